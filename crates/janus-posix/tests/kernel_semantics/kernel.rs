//! The kernel's sockets, over loopback.

use crate::World;
use crate::plan::{Op, Who};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result, ioctl_fionread};
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketFlags, SocketType,
    accept_with, bind, connect, connect_unspec, getpeername, getsockname, listen, recv, send,
    shutdown, socket_with,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

pub(crate) struct Kernel {
    /// How long loopback is given.
    settle: Duration,
    epolls: Vec<OwnedFd>,
    open: Vec<(Who, OwnedFd)>,
    listener: Option<SocketAddrV4>,
    nowhere: Option<SocketAddrV4>,
}

impl Kernel {
    pub(crate) fn new(settle_us: u64) -> Kernel {
        let epoll = || epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
        Kernel {
            settle: Duration::from_micros(settle_us),
            epolls: vec![epoll(), epoll()],
            open: Vec::new(),
            listener: None,
            nowhere: None,
        }
    }

    fn fd(&self, who: Who) -> Result<&OwnedFd> {
        let mut open = self.open.iter();
        open.find(|(other, _)| *other == who)
            .map(|(_, fd)| fd)
            .ok_or(Errno::BADF)
    }

    fn add(&mut self, who: Who, fd: OwnedFd) {
        // Else a small segment waits for an acknowledgement that is delayed.
        sockopt::set_tcp_nodelay(&fd, true).expect("an option");
        self.open.retain(|(other, _)| *other != who);
        self.open.push((who, fd));
    }

    fn socket() -> Result<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
    }

    /// An address that nobody listens on: one that was given out and is free again.
    fn nowhere(&mut self) -> Result<SocketAddrV4> {
        if self.nowhere.is_none() {
            let fd = Kernel::socket()?;
            bind(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
            self.nowhere = v4(getsockname(&fd)?);
        }
        self.nowhere.ok_or(Errno::INVAL)
    }

    /// For both epoll instances; what the last says.
    fn each(&self, who: Who, call: impl Fn(&OwnedFd, &OwnedFd) -> Result<()>) -> Result<i64> {
        let fd = self.fd(who)?;
        let mut outcome = Ok(0);
        for epfd in &self.epolls {
            outcome = call(epfd, fd).map(|()| 0);
        }
        outcome
    }

    fn carry_out(&mut self, op: Op) -> Result<i64> {
        let done = |outcome: Result<()>| outcome.map(|()| 0);
        match op {
            Op::Socket(who) => {
                let fd = Kernel::socket()?;
                self.add(who, fd);
                Ok(0)
            }
            Op::Bind(who) => done(bind(
                self.fd(who)?,
                &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
            )),
            Op::Listen(who, backlog) => {
                listen(self.fd(who)?, backlog)?;
                if who == Who::Listener {
                    self.listener = v4(getsockname(self.fd(who)?)?);
                }
                Ok(0)
            }
            Op::Accept(who, new) => {
                let fd = accept_with(self.fd(who)?, SocketFlags::NONBLOCK)?;
                self.add(new, fd);
                Ok(0)
            }
            Op::Connect(who) => {
                let to = match self.listener {
                    Some(listener) => listener,
                    None => self.nowhere()?,
                };
                done(connect(self.fd(who)?, &to))
            }
            Op::ConnectNowhere(who) => {
                let nowhere = self.nowhere()?;
                done(connect(self.fd(who)?, &nowhere))
            }
            Op::Disconnect(who) => done(connect_unspec(self.fd(who)?)),
            Op::Recv(who, len, flags) => {
                let mut into = vec![0; len];
                let flags = RecvFlags::from_bits_retain(flags as u32);
                recv(self.fd(who)?, &mut into[..], flags).map(|(n, _)| n as i64)
            }
            Op::Send(who, len, flags) => {
                let flags = SendFlags::from_bits_retain(flags as u32) | SendFlags::NOSIGNAL;
                send(self.fd(who)?, &vec![0; len], flags).map(|n| n as i64)
            }
            Op::ReadNothing(who) => {
                let mut into: [u8; 0] = [];
                rustix::io::read(self.fd(who)?, &mut into[..]).map(|n| n as i64)
            }
            Op::Shutdown(who, how) => {
                let how = [Shutdown::Read, Shutdown::Write, Shutdown::Both][how as usize];
                done(shutdown(self.fd(who)?, how))
            }
            Op::Close(who) => {
                self.fd(who)?;
                self.open.retain(|(other, _)| *other != who);
                Ok(0)
            }
            Op::Abortive(who) => {
                let none = Some(Duration::ZERO);
                done(sockopt::set_socket_linger(self.fd(who)?, none))
            }
            Op::Error(who) => Ok(match sockopt::socket_error(self.fd(who)?)? {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().into(),
            }),
            Op::PeerName(who) => getpeername(self.fd(who)?).map(|_| 0),
            Op::HasPort(who) => {
                let name = v4(getsockname(self.fd(who)?)?);
                Ok(i64::from(name.is_some_and(|name| name.port() != 0)))
            }
            Op::Unread(who) => ioctl_fionread(self.fd(who)?).map(|n| n as i64),
            Op::AtMark(who) => at_mark(self.fd(who)?),
            Op::InLine(who, on) => done(sockopt::set_socket_oobinline(self.fd(who)?, on)),
            Op::IsListening(who) => sockopt::socket_acceptconn(self.fd(who)?).map(i64::from),
            Op::ReuseAddress(who) => done(sockopt::set_socket_reuseaddr(self.fd(who)?, true)),
            Op::ReusePort(who) => done(sockopt::set_socket_reuseport(self.fd(who)?, true)),
            Op::BindAny(who) => {
                let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
                done(bind(self.fd(who)?, &any))
            }
            Op::BindSame(who, other, any) => {
                let port = v4(getsockname(self.fd(other)?)?).map_or(0, |name| name.port());
                let ip = match any {
                    true => Ipv4Addr::UNSPECIFIED,
                    false => Ipv4Addr::LOCALHOST,
                };
                done(bind(self.fd(who)?, &SocketAddrV4::new(ip, port)))
            }
            Op::Watch(who, events) => self.each(who, |epfd, fd| {
                epoll::add(
                    epfd,
                    fd,
                    data(who),
                    epoll::EventFlags::from_bits_retain(events),
                )
            }),
            Op::Rewatch(who, events) => self.each(who, |epfd, fd| {
                epoll::modify(
                    epfd,
                    fd,
                    data(who),
                    epoll::EventFlags::from_bits_retain(events),
                )
            }),
            Op::Unwatch(who) => self.each(who, |epfd, fd| epoll::delete(epfd, fd)),
            Op::Wait(which) => {
                let none = epoll::Event {
                    flags: epoll::EventFlags::empty(),
                    data: epoll::EventData::new_u64(0),
                };
                let mut events = [none; 4];
                let soon = Timespec::default();
                let n = epoll::wait(&self.epolls[which], &mut events[..], Some(&soon))?;
                let told = events[..n].iter();
                Ok(told.map(|event| i64::from({ event.flags }.bits())).sum())
            }
        }
    }
}

/// SIOCATMARK.
fn at_mark(fd: &OwnedFd) -> Result<i64> {
    const REQUEST: Opcode = 0x8905;
    // SAFETY: this request writes one C int and reads nothing (tcp_ioctl).
    unsafe { ioctl(fd, Getter::<REQUEST, i32>::new()) }.map(i64::from)
}

fn data(who: Who) -> epoll::EventData {
    epoll::EventData::new_u64(who as u64)
}

fn v4(name: SocketAddrAny) -> Option<SocketAddrV4> {
    SocketAddrV4::try_from(name).ok()
}

impl World for Kernel {
    fn call(&mut self, op: Op) -> i64 {
        match self.carry_out(op) {
            Ok(value) => value,
            Err(errno) => -i64::from(errno.raw_os_error()),
        }
    }

    fn settle(&mut self) {
        std::thread::sleep(self.settle);
    }

    fn mask(&mut self, who: Who) -> Option<u32> {
        let fd = self.fd(who).ok()?;
        let all = PollFlags::from_bits_retain(0x23df);
        let mut fds = [PollFd::new(fd, all)];
        poll(&mut fds, Some(&Timespec::default())).expect("poll");
        Some(fds[0].revents().bits().into())
    }
}
