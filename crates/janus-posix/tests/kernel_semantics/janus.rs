//! These sockets: two hosts and a wire that takes no time.

use crate::World;
use crate::plan::{Op, Who};
use janus_posix::{EpollEvent, Errno, Host, abi, sysctl};
use janus_tcp::{Instant, Interface, IpCidr};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const CLIENTS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SERVERS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const NOWHERE: SocketAddr = SocketAddr::new(SERVERS, 9);
/// The longest time an acknowledgement is delayed, and a little.
const DELAYED_ACK_US: u64 = 45_000;
/// Turns an exchange may take.
const TURNS_MAX: usize = 100;

pub(crate) struct Janus {
    clients: Host,
    servers: Host,
    open: Vec<(Who, i32)>,
    /// Of the clients' host.
    epolls: Vec<i32>,
    listener: Option<SocketAddr>,
}

fn host(address: IpAddr, seed: u64) -> Host {
    let settings = sysctl::parse("").expect("the profile");
    let mut interface = Interface::ip(1_500);
    interface.any_local = false;
    interface.addresses = vec![IpCidr::new(address, 24)];
    Host::new(settings.config, interface, seed).expect("memory")
}

type Result<T> = std::result::Result<T, Errno>;

impl Janus {
    pub(crate) fn new() -> Janus {
        let mut clients = host(CLIENTS, 1);
        let mut epoll = || {
            clients
                .sockets()
                .epoll_create(0)
                .expect("an epoll instance")
        };
        Janus {
            epolls: vec![epoll(), epoll()],
            clients,
            servers: host(SERVERS, 2),
            open: Vec::new(),
            listener: None,
        }
    }

    fn fd(&self, who: Who) -> Result<i32> {
        let mut open = self.open.iter();
        open.find(|(other, _)| *other == who)
            .map(|(_, fd)| *fd)
            .ok_or(Errno::EBADF)
    }

    /// The descriptor, its host, that host's address and its clock. One that a client has accepted is the client's.
    fn at(&mut self, who: Who) -> Result<(i32, &mut Host, IpAddr, Instant)> {
        let fd = self.fd(who)?;
        let (host, address) = match who {
            Who::Server | Who::Listener => (&mut self.servers, SERVERS),
            _ => (&mut self.clients, CLIENTS),
        };
        let now = host.now();
        Ok((fd, host, address, now))
    }

    fn add(&mut self, who: Who, fd: i32) -> Result<()> {
        self.open.retain(|(other, _)| *other != who);
        self.open.push((who, fd));
        let (fd, host, _, now) = self.at(who)?;
        let on = 1i32.to_ne_bytes();
        host.sockets()
            .setsockopt(now, fd, abi::SOL_TCP, abi::TCP_NODELAY, &on)
    }

    fn number(&mut self, who: Who, level: i32, name: i32) -> Result<i64> {
        let (fd, host, ..) = self.at(who)?;
        let mut value = [0; 4];
        host.sockets().getsockopt(fd, level, name, &mut value)?;
        Ok(i32::from_ne_bytes(value).into())
    }

    fn set(&mut self, who: Who, name: i32, value: &[u8]) -> Result<i64> {
        let (fd, host, _, now) = self.at(who)?;
        host.sockets()
            .setsockopt(now, fd, abi::SOL_SOCKET, name, value)?;
        Ok(0)
    }

    fn each(&mut self, who: Who, op: i32, events: u32) -> Result<i64> {
        let fd = self.fd(who)?;
        let mut outcome = Ok(0);
        for epfd in self.epolls.clone() {
            let now = self.clients.now();
            let done = self
                .clients
                .sockets()
                .epoll_ctl(now, epfd, op, fd, events, 0);
            outcome = done.map(|()| 0);
        }
        outcome
    }

    fn carry_out(&mut self, op: Op) -> Result<i64> {
        let done = |outcome: Result<()>| outcome.map(|()| 0);
        match op {
            Op::Socket(who) => {
                let host = match who {
                    Who::Server | Who::Listener => &mut self.servers,
                    _ => &mut self.clients,
                };
                let kind = abi::SOCK_STREAM | abi::SOCK_NONBLOCK;
                let fd = host.sockets().socket(abi::AF_INET, kind, 0)?;
                done(self.add(who, fd))
            }
            Op::Bind(who) => {
                let (fd, host, address, _) = self.at(who)?;
                done(host.sockets().bind(fd, SocketAddr::new(address, 0)))
            }
            Op::Listen(who, backlog) => {
                let (fd, host, ..) = self.at(who)?;
                host.sockets().listen(fd, backlog)?;
                let name = host.sockets().getsockname(fd)?;
                if who == Who::Listener {
                    self.listener = Some(name);
                }
                Ok(0)
            }
            Op::Accept(who, new) => {
                let (fd, host, ..) = self.at(who)?;
                let (accepted, _) = host.sockets().accept4(fd, abi::SOCK_NONBLOCK)?;
                done(self.add(new, accepted))
            }
            Op::Connect(who) => {
                let to = self.listener.unwrap_or(NOWHERE);
                let (fd, host, _, now) = self.at(who)?;
                done(host.sockets().connect(now, fd, to))
            }
            Op::ConnectNowhere(who) => {
                let (fd, host, _, now) = self.at(who)?;
                done(host.sockets().connect(now, fd, NOWHERE))
            }
            Op::Disconnect(who) => {
                let (fd, host, _, now) = self.at(who)?;
                done(host.sockets().disconnect(now, fd))
            }
            Op::Recv(who, len, flags) => {
                let (fd, host, _, now) = self.at(who)?;
                let mut into = vec![0; len];
                host.sockets()
                    .recv(now, fd, &mut into, flags)
                    .map(|n| n as i64)
            }
            Op::Send(who, len, flags) => {
                let (fd, host, _, now) = self.at(who)?;
                host.sockets()
                    .send(now, fd, &vec![0; len], flags)
                    .map(|n| n as i64)
            }
            Op::ReadNothing(who) => {
                let (fd, host, _, now) = self.at(who)?;
                host.sockets().read(now, fd, &mut []).map(|n| n as i64)
            }
            Op::Shutdown(who, how) => {
                let (fd, host, _, now) = self.at(who)?;
                done(host.sockets().shutdown(now, fd, how))
            }
            Op::Close(who) => {
                let (fd, host, _, now) = self.at(who)?;
                host.sockets().close(now, fd)?;
                self.open.retain(|(other, _)| *other != who);
                Ok(0)
            }
            Op::Abortive(who) => {
                let linger = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
                self.set(who, abi::SO_LINGER, &linger)
            }
            Op::Error(who) => self.number(who, abi::SOL_SOCKET, abi::SO_ERROR),
            Op::PeerName(who) => {
                let (fd, host, ..) = self.at(who)?;
                host.sockets().getpeername(fd).map(|_| 0)
            }
            Op::HasPort(who) => {
                let (fd, host, ..) = self.at(who)?;
                Ok(i64::from(host.sockets().getsockname(fd)?.port() != 0))
            }
            Op::Unread(who) => {
                let (fd, host, ..) = self.at(who)?;
                host.sockets().ioctl(fd, abi::FIONREAD, 0).map(i64::from)
            }
            Op::AtMark(who) => {
                let (fd, host, ..) = self.at(who)?;
                host.sockets().ioctl(fd, abi::SIOCATMARK, 0).map(i64::from)
            }
            Op::InLine(who, on) => self.set(who, abi::SO_OOBINLINE, &i32::from(on).to_ne_bytes()),
            Op::IsListening(who) => self.number(who, abi::SOL_SOCKET, abi::SO_ACCEPTCONN),
            Op::ReuseAddress(who) => self.set(who, abi::SO_REUSEADDR, &1i32.to_ne_bytes()),
            Op::ReusePort(who) => self.set(who, abi::SO_REUSEPORT, &1i32.to_ne_bytes()),
            Op::BindAny(who) => {
                let (fd, host, ..) = self.at(who)?;
                done(host.sockets().bind(fd, SocketAddr::new(ANY, 0)))
            }
            Op::BindSame(who, other, any) => {
                let (fd, host, ..) = self.at(other)?;
                let port = host.sockets().getsockname(fd)?.port();
                let (fd, host, address, _) = self.at(who)?;
                let ip = if any { ANY } else { address };
                done(host.sockets().bind(fd, SocketAddr::new(ip, port)))
            }
            Op::Watch(who, events) => self.each(who, abi::EPOLL_CTL_ADD, events),
            Op::Rewatch(who, events) => self.each(who, abi::EPOLL_CTL_MOD, events),
            Op::Unwatch(who) => self.each(who, abi::EPOLL_CTL_DEL, 0),
            Op::Wait(which) => {
                let mut events = [EpollEvent::default(); 4];
                let now = self.clients.now();
                let epfd = self.epolls[which];
                let n = self.clients.sockets().epoll_wait(now, epfd, &mut events)?;
                Ok(events[..n].iter().map(|e| i64::from(e.events)).sum())
            }
        }
    }
}

impl World for Janus {
    fn call(&mut self, op: Op) -> i64 {
        let outcome = self.carry_out(op);
        self.clients.settle();
        self.servers.settle();
        match outcome {
            Ok(value) => value,
            Err(errno) => -i64::from(errno.0),
        }
    }

    fn settle(&mut self) {
        self.exchange();
        // What waits for an acknowledgement that is delayed waits no longer.
        for host in [&mut self.clients, &mut self.servers] {
            let until = host.micros() + DELAYED_ACK_US;
            while host.step(until) {}
        }
        self.exchange();
    }

    fn mask(&mut self, who: Who) -> Option<u32> {
        let (fd, host, _, now) = self.at(who).ok()?;
        Some(host.sockets().readiness(now, fd).expect("open") & 0x23df)
    }
}

impl Janus {
    /// All that is on its way arrives.
    fn exchange(&mut self) {
        for _ in 0..TURNS_MAX {
            let (mut out, mut back) = (Vec::new(), Vec::new());
            while let Some(sent) = self.clients.pop_sent() {
                out.push(sent.bytes);
            }
            while let Some(sent) = self.servers.pop_sent() {
                back.push(sent.bytes);
            }
            if out.is_empty() && back.is_empty() {
                return;
            }
            for packet in out {
                self.servers.deliver(&packet);
            }
            for packet in back {
                self.clients.deliver(&packet);
            }
        }
        panic!("no silence");
    }
}
