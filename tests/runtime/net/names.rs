//! Names instead of addresses: a name server that runs on Janus itself, asked over the wire.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use janus::BackendChoice;
use janus::net::{TcpListener, TcpStream, UdpSocket, lookup_host};
use janus::time::{sleep, timeout};

use crate::support::*;

const A: u16 = 1;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const AAAA: u16 = 28;

/// How often each name was asked for. Tests that count have names of their own.
static ASKED: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

fn asked(name: &str) -> usize {
    let asked = ASKED.lock().unwrap();
    asked
        .as_ref()
        .and_then(|asked| asked.get(name))
        .copied()
        .unwrap_or(0)
}

/// The answer to a question, as a name server would give it; `None`: it says nothing. `whole`: over TCP.
fn answer(question: &[u8], whole: bool) -> Option<Vec<u8>> {
    let (mut labels, mut at) = (Vec::new(), 12);
    while question[at] > 0 {
        let len = usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..at + 1 + len]).into_owned());
        at += 1 + len;
    }
    let end = at + 5;
    let of_type = u16::from_be_bytes([question[at + 1], question[at + 2]]);
    let name = labels.join(".");
    *ASKED
        .lock()
        .unwrap()
        .get_or_insert_default()
        .entry(name.clone())
        .or_default() += 1;
    let ttl = if name == "brief.example" { 1 } else { 60 };
    let records: &[(u16, &[u8])] = match (name.as_str(), of_type) {
        ("counted.example" | "brief.example" | "alike.example", A) => &[(A, &[192, 0, 2, 1])],
        // Nobody has the first.
        ("silent-first.example", A) => &[(A, &[192, 0, 2, 99]), (A, &[192, 0, 2, 1])],
        ("half.example", A) => &[(A, &[192, 0, 2, 1])],
        ("half.example", AAAA) => return None,
        ("web.example", A) => &[(A, &[192, 0, 2, 1])],
        ("alias.example", A) => &[(CNAME, &[3, b'w', b'e', b'b', 0xc0, 18])],
        ("two.example", A) => &[(A, &[192, 0, 2, 1]), (A, &[192, 0, 2, 3])],
        ("large.example", A) if whole => &[(A, &[192, 0, 2, 1])],
        ("large.example", A) => {
            let mut cut = question[..end].to_vec();
            cut[2] |= 0x82;
            return Some(cut);
        }
        ("silent.example", _) => return None,
        ("never.example", _) => return Some(never(&question[..end])),
        ("broken.example", _) => {
            let mut failed = question[..end].to_vec();
            failed[2] |= 0x80;
            failed[3] = 2;
            return Some(failed);
        }
        _ => {
            let mut unknown = question[..end].to_vec();
            unknown[2] |= 0x80;
            unknown[3] = 3;
            return Some(unknown);
        }
    };
    let mut out = question[..end].to_vec();
    out[2] |= 0x80;
    let alias = records[0].0 == CNAME;
    out[7] = records.len() as u8 + u8::from(alias);
    out[11] = 0;
    for (of_type, data) in records {
        put(&mut out, &[0xc0, 12], *of_type, data, ttl);
    }
    if alias {
        // "web", and behind it what follows the first label of the question's name.
        put(
            &mut out,
            &[3, b'w', b'e', b'b', 0xc0, 18],
            A,
            &[192, 0, 2, 1],
            ttl,
        );
    }
    Some(out)
}

/// There is no such name, and its zone says that this holds for a minute.
fn never(question: &[u8]) -> Vec<u8> {
    let mut out = question.to_vec();
    (out[2], out[3]) = (out[2] | 0x80, 3);
    (out[9], out[11]) = (1, 0);
    let mut zone = [0; 22];
    zone[21] = 60;
    put(&mut out, &[0xc0, 12], SOA, &zone, 60);
    out
}

fn put(out: &mut Vec<u8>, owner: &[u8], of_type: u16, data: &[u8], ttl: u8) {
    out.extend(owner);
    out.extend(of_type.to_be_bytes());
    out.extend([0, 1, 0, 0, 0, ttl]);
    out.extend((data.len() as u16).to_be_bytes());
    out.extend(data);
}

async fn name_server(ready: std::sync::mpsc::Sender<()>) -> janus::Result {
    let socket = UdpSocket::bind("192.0.2.1:53").await?;
    let listener = TcpListener::bind("192.0.2.1:53").await?;
    let _ = ready.send(());
    janus::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut len = [0; 2];
            stream.read_exact(&mut len).await?;
            let mut question = vec![0; usize::from(u16::from_be_bytes(len))];
            stream.read_exact(&mut question).await?;
            let answer = answer(&question, true).unwrap_or_default();
            let len = (answer.len() as u16).to_be_bytes();
            stream.write_all(&[&len[..], &answer].concat()).await?;
        }
        std::io::Result::Ok(())
    });
    loop {
        let datagram = socket.recv_datagram().await?;
        if let Some(answer) = answer(datagram.bytes(), false) {
            // One that guesses the number comes first, and is not believed.
            let mut guessed = answer.clone();
            guessed[0] ^= 1;
            if let Some(last) = guessed.last_mut() {
                *last = 66;
            }
            socket.send_to(&guessed, datagram.peer).await?;
            socket.send_to(&answer, datagram.peer).await?;
        }
    }
}

/// A client whose name server is the far runtime, which also echoes on port 80, and on 81 of another address only.
fn with_names<F: Future<Output = ()> + 'static>(client: fn() -> F) {
    with_names_at(&["192.0.2.2/24"], client);
}

/// The same for a client with these addresses.
fn with_names_at<F: Future<Output = ()> + 'static>(addresses: &[&str], client: fn() -> F) {
    let (near, far) = wire_for(ONE_COMBINED);
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .address("192.0.2.3/24".parse().unwrap());
    let (ready, listens) = std::sync::mpsc::channel();
    let server = Running::start(builder.build().unwrap(), move || {
        let ready = ready.clone();
        async move {
            for at in ["0.0.0.0:80", "192.0.2.3:81"] {
                let listener = TcpListener::bind(at).await?;
                janus::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        janus::spawn(echo(stream));
                    }
                });
            }
            name_server(ready).await
        }
    });
    listens.recv_timeout(PATIENCE).expect("it listens");
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(far))
        .name_server("192.0.2.1:53".parse().unwrap());
    let builder = addresses.iter().fold(builder, |builder, own| {
        builder.address(own.parse().unwrap())
    });
    let running = Running::start(builder.build().unwrap(), move || async move {
        timeout(PATIENCE, client()).await
    });
    running.join().unwrap();
    server.stop().unwrap();
}

async fn look_up(host: &str) -> std::io::Result<Vec<SocketAddr>> {
    Ok(lookup_host((host, 80)).await?.collect())
}

#[test]
fn a_name_server_is_asked_over_our_own_device() {
    with_names(|| async {
        let web = vec![SocketAddr::from(([192, 0, 2, 1], 80))];
        for host in [
            "web.example",
            "WEB.example.",
            "alias.example",
            "large.example",
        ] {
            assert_eq!(look_up(host).await.unwrap(), web, "{host}");
        }
        assert_eq!(look_up("two.example").await.unwrap().len(), 2);
        let unknown = look_up("none.example").await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
        assert!(unknown.to_string().contains("none.example"), "{unknown}");
        let broken = look_up("broken.example").await.unwrap_err();
        assert!(broken.to_string().contains("refuses"), "{broken}");
    });
}

#[test]
fn a_connection_is_opened_to_the_first_address_that_answers() {
    with_names(|| async {
        let stream = TcpStream::connect("web.example:80").await.unwrap();
        stream.write_all(b"by name").await.unwrap();
        let mut got = [0; 7];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"by name");
        // Port 81 is refused at the first of the two.
        let stream = TcpStream::connect("two.example:81").await.unwrap();
        let peer = stream.peer_addr().unwrap().ip();
        assert_eq!(peer, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3)));
        let nowhere = TcpStream::connect("two.example:82").await.unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::ConnectionRefused);
        let several = ["192.0.2.1:81", "192.0.2.3:81"].map(|at| at.parse().unwrap());
        assert!(TcpStream::connect(&several[..]).await.is_ok());
        let none: &[SocketAddr] = &[];
        let none = TcpStream::connect(none).await.unwrap_err();
        assert_eq!(none.kind(), ErrorKind::InvalidInput);
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        socket.connect("web.example:53").await.unwrap();
        assert_eq!(
            socket.peer_addr().unwrap().ip(),
            Ipv4Addr::new(192, 0, 2, 1)
        );
    });
}

#[test]
fn what_was_answered_is_not_asked_for_again_while_it_holds() {
    with_names(|| async {
        for _ in 0..3 {
            assert_eq!(look_up("counted.example").await.unwrap().len(), 1);
            TcpStream::connect("Counted.Example:80").await.unwrap();
            let never = look_up("never.example.").await.unwrap_err();
            assert_eq!(never.kind(), ErrorKind::NotFound);
            // Nobody said how long this one is nothing.
            assert!(look_up("gone.example.").await.is_err());
        }
        assert_eq!((asked("counted.example"), asked("never.example")), (1, 1));
        assert_eq!(asked("gone.example"), 3);
        // A second later it is asked for anew.
        while asked("brief.example") < 2 {
            assert_eq!(look_up("brief.example").await.unwrap().len(), 1);
            sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn who_asks_at_the_same_time_shares_a_question() {
    with_names(|| async {
        let ask = |n| {
            let name = if n % 2 == 0 {
                "alike.example"
            } else {
                "ALIKE.example"
            };
            janus::spawn(look_up(name))
        };
        let asking: Vec<_> = (0..20).map(ask).collect();
        for found in asking {
            assert_eq!(found.await.unwrap().unwrap().len(), 1);
        }
        assert_eq!(asked("alike.example"), 1);
    });
}

#[test]
fn an_address_that_says_nothing_is_not_waited_for() {
    with_names(|| async {
        let stream = TcpStream::connect("silent-first.example:80").await.unwrap();
        let peer = stream.peer_addr().unwrap().ip();
        assert_eq!(peer, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
        // The other attempt is over.
        assert_eq!(janus::report().unwrap().connections, 1);
        stream.write_all(b"by the second").await.unwrap();
        let mut got = [0; 13];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"by the second");
    });
}

/// The server never says whether the name has an IPv6 address.
#[test]
fn an_answer_for_one_family_is_enough_to_connect() {
    with_names_at(&["192.0.2.2/24", "2001:db8::2/64"], || async {
        let stream = TcpStream::connect("half.example:80").await.unwrap();
        assert!(stream.peer_addr().unwrap().is_ipv4());
    });
}

/// A lookup that is given up leaves nothing: no task, no socket.
#[test]
fn a_lookup_can_be_given_up() {
    with_names(|| async {
        let bound = std::time::Duration::from_millis(100);
        let given_up = timeout(bound, look_up("silent.example")).await;
        assert!(given_up.is_err());
        assert_eq!(look_up("web.example").await.unwrap().len(), 1);
    });
}

#[test]
fn behind_the_portal_the_system_is_asked() {
    // Whatever the machine's own file names.
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let named = hosts.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        let name = words.find(|name| !name.contains("localhost"))?;
        Some((address, name.to_owned()))
    });
    let Some((address, name)) = named else {
        println!("skipped: /etc/hosts names nobody but localhost");
        return;
    };
    let runtime = ONE_COMBINED.builder().backend(BackendChoice::Portal);
    let running = Running::start(runtime.build().unwrap(), move || {
        let name = name.clone();
        async move {
            let found: Vec<_> = lookup_host((name, 7)).await.unwrap().collect();
            assert!(found.contains(&SocketAddr::new(address, 7)), "{found:?}");
            let local: Vec<_> = lookup_host("x.localhost:7").await.unwrap().collect();
            assert_eq!(local, [SocketAddr::from((Ipv4Addr::LOCALHOST, 7))]);
        }
    });
    running.join().unwrap();
}
