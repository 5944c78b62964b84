//! Queries to name servers over our own sockets: each over UDP, again over TCP when the answer was truncated, one server after another
//! until one answers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::files::Conf;
use super::message::{Answer, Family, Name, question, read};
use crate::net::stream::TcpStream;
use crate::net::udp::UdpSocket;
use crate::shard::core_context;
use crate::time::{now, timeout, timeout_at};

/// Datagrams on one socket that do not answer the query: beyond this number an attacker is guessing, and the next server is queried.
const STRANGERS_MAX: usize = 32;

/// How long the second family's answer is waited for when the first is there (RFC 8305 section 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// How many of a name's addresses are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wanted {
    /// Every address.
    All,
    /// The addresses of the family that answers first, and of the other if its answer is not late.
    Soon,
}

/// Result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Empty: the name does not exist, or has no address.
    pub(super) addresses: Vec<IpAddr>,
    /// Seconds for which the result may be cached; `None`: not at all.
    pub(super) ttl: Option<u32>,
}

/// Looks up the addresses of `name`, which may lack its domain.
pub(super) async fn addresses(
    conf: &Conf,
    families: &[Family],
    name: &str,
    wanted: Wanted,
) -> io::Result<Known> {
    let mut nothing = Known {
        addresses: Vec::new(),
        ttl: Some(u32::MAX),
    };
    for candidate in conf.candidates(name) {
        let Some(candidate) = Name::new(&candidate) else {
            continue;
        };
        let known = ask_in_turn(conf, families, &candidate, wanted).await?;
        // An earlier candidate's absence is part of why this one was meant, so its time counts too.
        let ttl = known
            .ttl
            .zip(nothing.ttl)
            .map(|(own, others)| own.min(others));
        if !known.addresses.is_empty() {
            return Ok(Known { ttl, ..known });
        }
        nothing.ttl = ttl;
    }
    Ok(nothing)
}

async fn ask_in_turn(
    conf: &Conf,
    families: &[Family],
    name: &Name,
    wanted: Wanted,
) -> io::Result<Known> {
    let mut last = None;
    for _ in 0..conf.attempts {
        for &server in &conf.servers {
            let asked = ask(server, families, name, wanted, conf.timeout);
            let asked = timeout(conf.timeout, asked).await;
            match asked.map_err(io::Error::from).flatten() {
                Ok(known) => return Ok(known),
                Err(error) => last = Some(error),
            }
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no name server is known")))
}

/// A query without an answer yet.
struct Open {
    id: u16,
    family: Family,
    answer: Option<Answer>,
}

/// Sends all queries to one server, each with a number of its own; returns the answers in the order of the queries.
async fn ask(
    server: SocketAddr,
    families: &[Family],
    name: &Name,
    wanted: Wanted,
    patience: Duration,
) -> io::Result<Known> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::open(SocketAddr::new(any, 0))?;
    socket.connect_to(server)?;
    let mut open = Vec::new();
    for &family in families {
        let id = draw()?;
        socket.send(&question(id, name, family)).await?;
        open.push(Open {
            id,
            family,
            answer: None,
        });
    }
    collect(&socket, server, name, wanted, &mut open).await?;
    let mut answers = Vec::new();
    for Open { family, answer, .. } in open {
        answers.push(match answer {
            Some(Answer::Truncated) => {
                let whole = timeout(patience, ask_whole(server, family, name));
                Some(whole.await??)
            }
            answer => answer,
        });
    }
    conclude(server, answers)
}

/// Receives until every query is answered, or as many as are waited for.
async fn collect(
    socket: &UdpSocket,
    server: SocketAddr,
    name: &Name,
    wanted: Wanted,
    open: &mut [Open],
) -> io::Result<()> {
    let (mut strangers, mut until) = (0, None);
    while open.iter().any(|open| open.answer.is_none()) {
        let datagram = match until {
            None => socket.recv_datagram().await?,
            Some(until) => match timeout_at(until, socket.recv_datagram()).await {
                Ok(datagram) => datagram?,
                Err(_) => break,
            },
        };
        let mut waiting = open.iter_mut().filter(|open| open.answer.is_none());
        let taken = waiting.find_map(|open| {
            let answer = read(datagram.bytes(), open.id, name, open.family)?;
            Some(open.answer.insert(answer))
        });
        if matches!(taken, Some(Answer::Addresses(..))) && wanted == Wanted::Soon {
            until = until.or(Some(now() + RESOLUTION_DELAY));
        }
        strangers += usize::from(taken.is_none());
        if strangers > STRANGERS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{server} answers what was not asked"),
            ));
        }
    }
    Ok(())
}

/// Repeats the query over TCP (RFC 7766).
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

/// Joins the answers' addresses. A refusal is not an answer that there are none.
fn conclude(server: SocketAddr, answers: Vec<Option<Answer>>) -> io::Result<Known> {
    let mut addresses = Vec::new();
    let mut ttl = Some(u32::MAX);
    let mut refused = None;
    for answer in answers {
        let own = match answer {
            Some(Answer::Addresses(found, own)) => {
                addresses.extend(found);
                Some(own)
            }
            Some(Answer::Nothing(own)) => own,
            Some(Answer::Refused(code)) => {
                refused = Some(code);
                None
            }
            Some(Answer::Truncated) | None => None,
        };
        ttl = ttl.zip(own).map(|(others, own)| others.min(own));
    }
    match refused {
        Some(code) if addresses.is_empty() => Err(io::Error::other(format!(
            "name server {server} refuses with code {code}"
        ))),
        _ => Ok(Known { addresses, ttl }),
    }
}

/// Draws a number that no other host can predict.
fn draw() -> io::Result<u16> {
    let drawn = core_context::with(|ctx| {
        let core = u64::from(ctx.core);
        ctx.on_stack(|stack, _| stack.next_random(core))
    });
    drawn
        .map(|drawn| drawn as u16)
        .ok_or_else(core_context::no_core)
}
