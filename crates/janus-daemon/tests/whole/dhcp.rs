//! A daemon whose address a DHCP server gives: on one switch with that server, which the test plays, and a client.

#[path = "../../../../tests/runtime/dhcp/server.rs"]
mod server;

use std::io::{ErrorKind, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus::net::{TcpListener, TcpStream, UdpSocket, lookup_host};
use janus::{BackendChoice, Cidr, DaemonMemory, Handle, Runtime};
use janus_daemon::{Counters, Daemon, Settings, Stop};
use janus_io::wire::switch::{self, switch};
use janus_shm::{Descriptor, Message};
use server::{Server, Wish};

use crate::bare::{Bare, claim};
use crate::churn::in_time;
use crate::device::Device;
use crate::world::{CORES, LONG, answers, begin, builder, member_builder, on, on_core, start};

const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 78);
/// The client is the name server that the leases name.
const CLIENT: &str = "192.0.2.53/24";
const PORT: u16 = 80;

/// A link with a server and a client; daemons come and go.
struct Link {
    socket: PathBuf,
    device: Device,
    server: Server,
    client: (Handle, JoinHandle<()>),
}

struct Running {
    stop: Stop,
    counters: Arc<Counters>,
    thread: JoinHandle<Result<()>>,
}

/// A member that serves at all addresses.
struct Serving {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Link {
    fn new(name: &str, wish: Wish) -> Link {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("janus-leased-{}-{number}-{name}", std::process::id());
        let ports = switch(3, switch::Config::default()).expect("a switch");
        let [ours, servers, clients] = ports.try_into().expect("as many as were asked for");
        let client = builder(&[CLIENT], BackendChoice::Custom(Box::new(clients)));
        Link {
            socket: std::env::temp_dir().join(folder).join("io.sock"),
            device: Device::new(ours),
            server: Server::start_with(servers, FIRST, wish),
            client: start(client.build().expect("a client")),
        }
    }

    fn daemon(&self, wait: Duration) -> Running {
        let settings = Settings {
            socket: self.socket.clone(),
            allow: Vec::new(),
            limits: Vec::new(),
            lends: 8_192,
            patience: None,
            signals: false,
        };
        let device = BackendChoice::Custom(Box::new(self.device.clone()));
        let builder = Runtime::builder().ignore_environment().backend(device);
        let builder = builder.packet_buffers(8_192).dhcp().dhcp_wait(wait);
        let route: Cidr = "198.51.100.0/24".parse().expect("a network");
        let builder = builder.route(route, server::ADDRESS.into());
        let daemon = Daemon::open(builder, &settings).expect("a daemon without an address");
        Running {
            stop: daemon.stop(),
            counters: daemon.counters(),
            thread: std::thread::spawn(move || daemon.run()),
        }
    }

    fn member(&self) -> Serving {
        self.member_of("", DaemonMemory::Isolated)
    }

    fn member_of(&self, group: &str, memory: DaemonMemory) -> Serving {
        let builder = member_builder(self.socket.clone(), group).daemon_memory(memory);
        let (handle, thread) = start(builder.build().expect("it waits for an address"));
        let cores = if group.is_empty() { 1 } else { CORES };
        for core in 0..cores {
            on_core(&handle, core, || async {
                let listener = TcpListener::bind(("0.0.0.0", PORT)).await.expect("a port");
                drop(janus::spawn(answers(listener, "one")));
            });
        }
        Serving { handle, thread }
    }

    /// Whether this address answers for the member.
    fn is_served(&self, at: Ipv4Addr) -> bool {
        let asked = async move || -> Result<bool> {
            let stream = TcpStream::connect((at, PORT)).await?;
            let mut into = [0; 5];
            stream.read_exact(&mut into).await?;
            Ok(&into == b"one: ")
        };
        on(&self.client.0, move || async move {
            let within = Duration::from_millis(500);
            let asked = janus::time::timeout(within, asked()).await;
            asked.is_ok_and(|it| it.is_ok_and(|it| it))
        })
    }

    /// Begins a connection that talks until it is told to stop; how often it was answered.
    fn talks(&self, at: Ipv4Addr, stop: &Arc<AtomicBool>) -> Receiver<Result<u32>> {
        let stop = stop.clone();
        begin(&self.client.0, move || async move {
            let stream = TcpStream::connect((at, PORT)).await?;
            stream.read_exact(&mut [0; 5]).await?;
            let mut rounds = 0;
            while !stop.load(Ordering::Acquire) {
                stream.write_all(b"hello").await?;
                let answer = &mut [0; 5];
                stream.read_exact(answer).await?;
                assert_eq!(answer, b"hello");
                rounds += 1;
                janus::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(rounds)
        })
    }

    fn ends(self) -> server::Counts {
        self.client.0.stop();
        self.client.1.join().expect("an end");
        let _ = std::fs::remove_dir_all(self.socket.parent().expect("a folder"));
        self.server.stop()
    }
}

impl Running {
    fn ends(self) -> Arc<Counters> {
        self.stop.stop();
        self.thread
            .join()
            .expect("no panic")
            .expect("it is stopped");
        self.counters
    }
}

impl Serving {
    /// What becomes of a connection to the client that says nothing.
    fn hears_of(&self, port: u16) -> Receiver<Result<usize>> {
        let (tells, told) = mpsc::channel();
        let heard = begin(&self.handle, move || async move {
            let stream = TcpStream::connect(("192.0.2.53", port)).await?;
            let _ = tells.send(stream.local_addr()?);
            stream.read(&mut [0; 16]).await
        });
        told.recv_timeout(LONG).expect("a connection");
        heard
    }

    fn ends(self) {
        self.handle.stop();
        self.thread.join().expect("an end");
    }
}

/// A port of the client's that takes connections and keeps them.
fn keeps_connections(link: &Link) -> u16 {
    on(&link.client.0, || async {
        let listener = TcpListener::bind("192.0.2.53:0").await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(janus::spawn(async move {
            let mut all = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                all.push(stream);
            }
        }));
        port
    })
}

#[test]
fn an_address_is_leased_prolonged_and_changed_under_a_member() {
    // A member of a group has two cores.
    for (group, memory) in [("", DaemonMemory::Shared), ("web", DaemonMemory::Isolated)] {
        let link = Link::new("changes", Wish::default());
        let daemon = link.daemon(LONG);
        // At the same moment.
        let member = link.member_of(group, memory);
        assert!(link.is_served(FIRST));
        let stop = Arc::default();
        let talk = link.talks(FIRST, &stop);
        let wish = link.server.wish();
        in_time("the lease is prolonged twice", || wish.renewals() >= 2);
        stop.store(true, Ordering::Release);
        let rounds = talk.recv_timeout(LONG).expect("an answer").unwrap();
        assert!(rounds > 10, "{rounds}");
        let heard = member.hears_of(keeps_connections(&link));
        wish.refuse_then_give(SECOND);
        let error = heard.recv_timeout(LONG).expect("an end").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{error}");
        in_time("its listener serves at the other", || {
            link.is_served(SECOND)
        });
        assert!(!link.is_served(FIRST));
        member.hears_of(keeps_connections(&link));
        member.ends();
        let counters = daemon.ends();
        assert_eq!(counters.cut_off.get(), 0, "{counters}");
        link.ends();
    }
}

#[test]
fn a_daemon_that_follows_asks_for_the_same_address_and_connections_live() {
    let link = Link::new("follows", Wish::default());
    let daemon = link.daemon(LONG);
    let member = link.member();
    let stop = Arc::default();
    let talk = link.talks(FIRST, &stop);
    assert!(link.is_served(FIRST));
    daemon.ends();
    let daemon = link.daemon(LONG);
    in_time("it serves again", || link.is_served(FIRST));
    stop.store(true, Ordering::Release);
    talk.recv_timeout(LONG).expect("an answer").unwrap();
    member.ends();
    daemon.ends();
    let wish = link.server.wish();
    let counts = link.ends();
    assert_eq!((counts.discovers, counts.reboots), (1, 1), "{counts:?}");
    assert_eq!(wish.releases(), 0, "it may be followed");
}

#[test]
fn one_that_asks_while_there_is_no_address_waits_for_it() {
    let link = Link::new("late", Wish::short_leases());
    let daemon = link.daemon(LONG);
    let member = link.member();
    assert!(link.is_served(FIRST));
    let heard = member.hears_of(keeps_connections(&link));
    let wish = link.server.wish();
    wish.be_silent();
    // The lease ends.
    let error = heard.recv_timeout(LONG).expect("an end").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{error}");
    let (socket, begins) = (link.socket.clone(), Instant::now());
    let late = std::thread::spawn(move || {
        let late = member_builder(socket, "").build().expect("it waits");
        drop(late);
        begins.elapsed()
    });
    // For longer than one may take to join, and to be answered where an address is there.
    let waits = Duration::from_secs(6);
    std::thread::sleep(waits);
    wish.speak();
    assert!(late.join().expect("an address") > waits);
    in_time("it is served again", || link.is_served(FIRST));
    member.ends();
    assert_eq!(daemon.ends().cut_off.get(), 0);
    link.ends();
}

#[test]
fn one_that_waits_for_too_long_is_refused_and_the_daemon_goes_on() {
    let link = Link::new("refused", Wish::short_leases());
    let daemon = link.daemon(Duration::from_secs(4));
    let member = link.member();
    let heard = member.hears_of(keeps_connections(&link));
    let wish = link.server.wish();
    wish.be_silent();
    heard.recv_timeout(LONG).expect("an end").unwrap_err();
    let refused = member_builder(link.socket.clone(), "").build();
    let error = refused.expect_err("there is no address").to_string();
    let says = "no DHCP server has given the daemon an address within 4000 ms";
    assert!(error.contains(says), "{error}");
    wish.speak();
    in_time("it is served again", || link.is_served(FIRST));
    member.ends();
    let counters = daemon.ends();
    let ended = (counters.cut_off.get(), counters.died.get());
    assert_eq!(ended, (0, 0), "{counters}");
    link.ends();
}

#[test]
fn without_a_server_daemon_and_members_say_so() {
    let link = Link::new("none", Wish::default());
    link.server.wish().be_silent();
    let daemon = link.daemon(Duration::from_secs(1));
    let begins = Instant::now();
    let error = member_builder(link.socket.clone(), "").build();
    let error = error.expect_err("no address, no member").to_string();
    assert!(error.contains("no DHCP server"), "{error}");
    let ended = daemon.thread.join().expect("no panic");
    let error = ended.expect_err("nothing to serve").to_string();
    assert!(error.contains("no DHCP server"), "{error}");
    assert!(begins.elapsed() < LONG);
    link.ends();
    // One that is told to end does not wait.
    let link = Link::new("none", Wish::default());
    link.server.wish().be_silent();
    let begins = Instant::now();
    link.daemon(LONG).ends();
    assert!(begins.elapsed() < LONG);
    link.ends();
}

/// A datagram from this address and port, as a member would send it.
fn datagram(mac: [u8; 6], from: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.octets());
    frame.extend([192, 0, 2, 2]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 9, 0, 8, 0, 0]);
    frame
}

#[test]
fn members_send_from_the_address_of_now_and_hear_nothing_of_the_lease() {
    let link = Link::new("filter", Wish::default());
    let daemon = link.daemon(LONG);
    let mut bare = Bare::new(&link.socket);
    bare.says_hello();
    loop {
        match bare.hears().expect("a welcome") {
            Message::Welcome(welcome) => {
                bare.welcome = Some(welcome);
                break;
            }
            Message::Network(it) if it.addresses.is_empty() => assert!(it.wait_ms > 0),
            Message::Network(it) => {
                assert_eq!(it.addresses, [(FIRST.into(), 24)]);
                assert_eq!(it.name_servers, [Ipv4Addr::new(192, 0, 2, 53)]);
                let route = ([198, 51, 100, 0].into(), 24, server::ADDRESS.into());
                assert_eq!(it.routes, [route]);
            }
            other => panic!("{other:?}"),
        }
    }
    bare.gives_memory();
    bare.gives_rings();
    bare.says(&Message::Ready, &[]);
    let welcome = bare.welcome.clone().expect("it is");
    assert_eq!(welcome.addresses, [(FIRST.into(), 24)]);
    let (mac, own, mut tx) = (bare.mac(), welcome.ports.0, bare.ring(2));
    let mut fill = bare.ring(0);
    for at in 0..32 {
        let offset = at * 4_096;
        let empty = Descriptor {
            offset,
            ..Descriptor::default()
        };
        assert_eq!(fill.put(empty), Ok(true));
    }
    let _ = fill.publish();
    let counters = daemon.counters.clone();
    let mut refused = 0;
    let mut sends = |bare: &Bare, from: Ipv4Addr, port: u16, passes: bool| {
        let before = counters.from_members.get();
        refused += u64::from(!passes);
        bare.sends(&mut tx, &datagram(mac, from, port));
        in_time("it is judged", || {
            let passed = counters.from_members.get() - before;
            (passed, counters.refused.get()) == (u64::from(passes), refused)
        });
    };
    sends(&bare, FIRST, own, true);
    sends(&bare, SECOND, own, false);
    sends(&bare, Ipv4Addr::UNSPECIFIED, own, false);
    // The client's port is the daemon's.
    sends(&bare, FIRST, 68, false);
    bare.says(&claim(1, true, 68), &[]);
    assert!(matches!(bare.hears(), Some(Message::Refused { .. })));
    link.server.wish().refuse_then_give(SECOND);
    let mut told = Vec::new();
    while told.last() != Some(&vec![(SECOND.into(), 24)]) {
        let Some(Message::Network(network)) = bare.hears() else {
            panic!("it is not told");
        };
        told.push(network.addresses);
    }
    assert_eq!(told, [vec![], vec![(SECOND.into(), 24)]]);
    sends(&bare, FIRST, own, false);
    sends(&bare, SECOND, own, true);
    // It has got what all get, and not what the server has said.
    let mut rx = bare.end(1);
    while let Some(got) = rx.take().expect("a ring") {
        let mut frame = vec![0; got.len as usize];
        (bare.packets.read(got.offset, &mut frame)).expect("its memory");
        assert_ne!(frame[12..14], [8, 0], "{frame:?}");
    }
    bare.leaves();
    daemon.ends();
    link.ends();
}

/// The address of every name.
const ANSWER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

async fn answers_names() -> Result<()> {
    let socket = UdpSocket::bind("192.0.2.53:53").await?;
    loop {
        let asked = socket.recv_datagram().await?;
        let question = asked.bytes();
        let name = question[12..].iter().position(|byte| *byte == 0);
        let end = 12 + name.unwrap_or_default() + 5;
        let mut answer = question[..end].to_vec();
        answer[2] |= 0x80;
        (answer[7], answer[11]) = (1, 0);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(ANSWER.octets());
        socket.send_to(&answer, asked.peer).await?;
    }
}

#[test]
fn members_ask_the_name_server_that_the_lease_names() {
    let link = Link::new("names", Wish::default());
    drop(begin(&link.client.0, answers_names));
    let daemon = link.daemon(LONG);
    let member = link.member();
    let found = on(&member.handle, || async {
        let found = janus::time::timeout(LONG, lookup_host(("web.example", 80))).await;
        let found: Vec<_> = found.expect("in time").expect("an address").collect();
        found
    });
    assert_eq!(found, [SocketAddr::from((ANSWER, 80))]);
    member.ends();
    daemon.ends();
    link.ends();
}
