//! What a call of a plain thread costs beyond what it does: the same call on a process's core, behind its lock and with its clock, and on the
//! sockets of a host alone. `peek`: a read that finds 64 bytes and leaves them; `epoll_wait`: with one event, which stays; `socket`: a
//! socket made and closed, its descriptor with it. `by` says how: `sockets` (alone), `process`.
//! Sides take turns; a row is the median of rounds.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Instant;

use crate::support::Scale;
use crate::support::report::Report;
use janus::{BackendChoice, Runtime, wire};
use janus_posix::{EpollEvent, Host, abi};
use janus_process::Process;
use janus_tcp::{Config, Interface, IpCidr};

const SERVER: &str = "192.0.2.1:7";
const TEXT: [u8; 64] = [7; 64];

/// Sockets alone: a host with a connection on which bytes wait, and its peer.
struct Alone {
    server: Host,
    fd: i32,
    epoll: i32,
}

fn host(address: &str, seed: u64) -> Host {
    let mut interface = Interface::ip(1_500);
    interface.any_local = false;
    let address: std::net::IpAddr = address.parse().expect("an address");
    interface.addresses = vec![IpCidr::new(address, 24)];
    Host::new(Config::default(), interface, seed).expect("memory")
}

/// All that the hosts have to say to each other.
fn exchange(a: &mut Host, b: &mut Host) {
    a.settle();
    b.settle();
    while a.has_sent() || b.has_sent() {
        while let Some(sent) = a.pop_sent() {
            b.deliver(&sent.bytes);
        }
        while let Some(sent) = b.pop_sent() {
            a.deliver(&sent.bytes);
        }
    }
}

impl Alone {
    fn new() -> Alone {
        let (mut server, mut client) = (host("192.0.2.1", 1), host("192.0.2.2", 2));
        let at: SocketAddr = SERVER.parse().expect("an address");
        let listener = server
            .sockets()
            .socket(abi::AF_INET, abi::SOCK_STREAM, 0)
            .expect("one");
        server.sockets().bind(listener, at).expect("a free port");
        server.sockets().listen(listener, 10).expect("a free port");
        let opens = client
            .sockets()
            .socket(abi::AF_INET, abi::SOCK_STREAM, 0)
            .expect("one");
        let now = client.now();
        let _in_progress = client.sockets().connect(now, opens, at);
        exchange(&mut server, &mut client);
        let (fd, _) = server.sockets().accept(listener).expect("a connection");
        let now = client.now();
        client.sockets().send(now, opens, &TEXT, 0).expect("room");
        exchange(&mut server, &mut client);
        let epoll = server.sockets().epoll_create(0).expect("an instance");
        let now = server.now();
        let mut sockets = server.sockets();
        sockets
            .epoll_ctl(now, epoll, abi::EPOLL_CTL_ADD, fd, abi::EPOLLIN as u32, 9)
            .expect("added");
        Alone { server, fd, epoll }
    }

    fn peek(&mut self) {
        let now = self.server.now();
        let mut into = [0; 64];
        let got = self
            .server
            .sockets()
            .recv(now, self.fd, &mut into, abi::MSG_PEEK);
        assert_eq!(got, Ok(64));
    }

    fn epoll_wait(&mut self) {
        let now = self.server.now();
        let mut events = [EpollEvent::default(); 16];
        let told = self
            .server
            .sockets()
            .epoll_wait(now, self.epoll, &mut events);
        assert_eq!(told, Ok(1));
    }

    fn socket(&mut self) {
        let now = self.server.now();
        let fd = self
            .server
            .sockets()
            .socket(abi::AF_INET, abi::SOCK_STREAM, 0)
            .expect("one");
        self.server.sockets().close(now, fd).expect("open");
    }
}

/// The same in a process.
struct Whole {
    server: Process,
    /// Its end of the connection stays open.
    _client: Process,
    fd: RawFd,
    epoll: RawFd,
}

fn never() -> bool {
    false
}

impl Whole {
    fn new() -> Whole {
        let (near, far) = wire::pair(wire::Config::default()).expect("a wire");
        let start = |end, address: &str| {
            let builder = Runtime::builder().ignore_environment();
            let builder = builder.address(address.parse().expect("an address"));
            Process::start(builder.backend(BackendChoice::wire(end))).expect("a process")
        };
        let (server, client) = (start(near, "192.0.2.1/24"), start(far, "192.0.2.2/24"));
        let at: SocketAddr = SERVER.parse().expect("an address");
        let listener = server
            .socket(abi::AF_INET, abi::SOCK_STREAM, 0)
            .expect("one");
        server.bind(listener, at).expect("a free port");
        server.listen(listener, 10).expect("a free port");
        let opens = client
            .socket(abi::AF_INET, abi::SOCK_STREAM, 0)
            .expect("one");
        client
            .connect(opens, Some(at), never)
            .expect("a connection");
        let (fd, _) = server.accept4(listener, 0, never).expect("a connection");
        let text = [std::io::IoSlice::new(&TEXT)];
        assert_eq!(client.send(opens, &text, 0, never), Ok(64));
        let mut all = [0; 64];
        let into = &mut [IoSliceMut::new(&mut all)];
        let flags = abi::MSG_PEEK | abi::MSG_WAITALL;
        assert_eq!(server.receive(fd, into, flags, never), Ok(64));
        let epoll = server.epoll_create(0).expect("an instance");
        let event = EpollEvent {
            events: abi::EPOLLIN as u32,
            data: 9,
        };
        server
            .epoll_ctl(epoll, abi::EPOLL_CTL_ADD, fd, event)
            .expect("added");
        Whole {
            server,
            _client: client,
            fd,
            epoll,
        }
    }

    fn peek(&mut self) {
        let mut into = [0; 64];
        let into = &mut [IoSliceMut::new(&mut into)];
        assert_eq!(
            self.server.receive(self.fd, into, abi::MSG_PEEK, never),
            Ok(64)
        );
    }

    fn epoll_wait(&mut self) {
        let mut events = [EpollEvent::default(); 16];
        assert_eq!(self.server.epoll_wait(self.epoll, &mut events, None), Ok(1));
    }

    fn socket(&mut self) {
        let fd = self
            .server
            .socket(abi::AF_INET, abi::SOCK_STREAM, 0)
            .expect("one");
        self.server.close(fd).expect("open");
    }
}

/// Nanoseconds a call.
fn time(calls: u32, mut call: impl FnMut()) -> f64 {
    let begin = Instant::now();
    (0..calls).for_each(|_| call());
    begin.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// A call's name, and how each side makes it.
type Pair = (&'static str, fn(&mut Alone), fn(&mut Whole));

pub(crate) fn run(report: &mut Report) {
    let calls = Scale::get().pick(1_000, 50_000, 200_000);
    let rounds = Scale::get().pick(3, 9, 21);
    let (mut alone, mut whole) = (Alone::new(), Whole::new());
    let each: [Pair; 3] = [
        ("peek", Alone::peek, Whole::peek),
        ("epoll_wait", Alone::epoll_wait, Whole::epoll_wait),
        ("socket", Alone::socket, Whole::socket),
    ];
    for (name, by_sockets, by_process) in each {
        let (mut sockets, mut process, mut more) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (a, b) = (
                time(calls, || by_sockets(&mut alone)),
                time(calls, || by_process(&mut whole)),
            );
            sockets.push(a);
            process.push(b);
            more.push(b - a);
        }
        for (by, times) in [("sockets", &sockets), ("process", &process)] {
            report.median(
                "call_ns",
                times,
                "ns",
                &[("call", name.into()), ("by", by.into())],
            );
        }
        report.median("beyond_ns", &more, "ns", &[("call", name.into())]);
    }
}
