//! Asking name servers over our own sockets: each question over UDP, again over TCP when the answer did not fit, one server after
//! the other until one answers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::files::Conf;
use super::message::{Answer, Family, Name, question, read};
use crate::net::stream::TcpStream;
use crate::net::udp::UdpSocket;
use crate::shard::here;
use crate::time::timeout;

/// Datagrams on one socket that are no answer to what was asked: beyond it somebody is guessing, and another server is asked.
const STRANGERS_MAX: usize = 32;

/// What is known of a name.
enum Known {
    Addresses(Vec<IpAddr>),
    /// That there is no such name, or that it has no address.
    Nothing,
}

/// The addresses of `name`, which may be short of its domain.
pub(super) async fn addresses(
    conf: &Conf,
    families: &[Family],
    name: &str,
) -> io::Result<Vec<IpAddr>> {
    for candidate in conf.candidates(name) {
        let Some(candidate) = Name::new(&candidate) else {
            continue;
        };
        if let Known::Addresses(found) = ask_in_turn(conf, families, &candidate).await? {
            return Ok(found);
        }
    }
    Err(super::unknown(name))
}

async fn ask_in_turn(conf: &Conf, families: &[Family], name: &Name) -> io::Result<Known> {
    let mut last = None;
    for _ in 0..conf.attempts {
        for &server in &conf.servers {
            let asked = timeout(conf.timeout, ask(server, families, name, conf.timeout)).await;
            match asked.map_err(io::Error::from).flatten() {
                Ok(known) => return Ok(known),
                Err(error) => last = Some(error),
            }
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no name server is known")))
}

/// All questions to one server, each under a number of its own; the answers in the order of the questions.
async fn ask(
    server: SocketAddr,
    families: &[Family],
    name: &Name,
    patience: Duration,
) -> io::Result<Known> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::open(SocketAddr::new(any, 0))?;
    socket.connect_to(server)?;
    let mut open: Vec<(u16, Family, Option<Answer>)> = Vec::new();
    for &family in families {
        let id = draw()?;
        socket.send(&question(id, name, family)).await?;
        open.push((id, family, None));
    }
    let mut strangers = 0;
    while open.iter().any(|(_, _, answer)| answer.is_none()) {
        let datagram = socket.recv_datagram().await?;
        let mut waiting = open.iter_mut().filter(|(_, _, answer)| answer.is_none());
        let taken = waiting.find_map(|(id, family, place)| {
            let answer = read(datagram.bytes(), *id, name, *family)?;
            *place = Some(answer);
            Some(())
        });
        strangers += usize::from(taken.is_none());
        if strangers > STRANGERS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{server} answers what was not asked"),
            ));
        }
    }
    let mut answers = Vec::new();
    for (_, family, answer) in open {
        answers.push(match answer {
            Some(Answer::Truncated) | None => {
                timeout(patience, ask_whole(server, family, name)).await??
            }
            Some(answer) => answer,
        });
    }
    conclude(server, answers)
}

/// The same question over TCP (RFC 7766).
async fn ask_whole(server: SocketAddr, family: Family, name: &Name) -> io::Result<Answer> {
    let stream = TcpStream::connect(server).await?;
    let id = draw()?;
    let question = question(id, name, family);
    let len = (question.len() as u16).to_be_bytes();
    stream.write_all(&[&len[..], &question].concat()).await?;
    let mut len = [0; 2];
    stream.read_exact(&mut len).await?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut message).await?;
    match read(&message, id, name, family) {
        None | Some(Answer::Truncated) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{server} does not answer what was asked"),
        )),
        Some(answer) => Ok(answer),
    }
}

/// All addresses together. A server that will not say is none that says no.
fn conclude(server: SocketAddr, answers: Vec<Answer>) -> io::Result<Known> {
    let mut found = Vec::new();
    let mut refused = None;
    for answer in answers {
        match answer {
            Answer::Addresses(addresses) => found.extend(addresses),
            Answer::NoName | Answer::Truncated => {}
            Answer::Refused(code) => refused = Some(code),
        }
    }
    match (found.is_empty(), refused) {
        (false, _) => Ok(Known::Addresses(found)),
        (true, None) => Ok(Known::Nothing),
        (true, Some(code)) => Err(io::Error::other(format!(
            "name server {server} refuses with code {code}"
        ))),
    }
}

/// A number that nobody else can foresee.
fn draw() -> io::Result<u16> {
    let drawn = here::with(|here| {
        let core = u64::from(here.core);
        here.on_stack(|stack, _| stack.draw(core))
    });
    drawn.map(|drawn| drawn as u16).ok_or_else(here::no_core)
}
