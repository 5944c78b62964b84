//! The kernel's sockets, over loopback, by libc's functions: with a library in front of libc they are that library's.

use std::io::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::null_mut;
use std::time::Duration;

use libc::{c_int, c_void, sockaddr, sockaddr_in, socklen_t};

use crate::World;
use crate::plan::{Op, Who};

/// A call's value, or errno.
type Result<T> = std::result::Result<T, i32>;

pub(crate) struct Kernel {
    /// How long loopback is given.
    settle: Duration,
    epolls: Vec<c_int>,
    open: Vec<(Who, c_int)>,
    listener: Option<SocketAddrV4>,
    nowhere: Option<SocketAddrV4>,
}

/// What a function of libc's has answered.
fn answer<T: Into<i64>>(value: T) -> Result<i64> {
    match value.into() {
        -1 => Err(Error::last_os_error().raw_os_error().unwrap_or(-1)),
        value => Ok(value),
    }
}

fn done<T: Into<i64>>(value: T) -> Result<()> {
    answer(value).map(|_| ())
}

fn to_c(address: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*address.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// Of the ioctls that libc has no name for.
const SIOCATMARK: libc::c_ulong = 0x8905;
const LEN: socklen_t = size_of::<sockaddr_in>() as socklen_t;

fn bind(fd: c_int, to: SocketAddrV4) -> Result<()> {
    let to = to_c(to);
    // SAFETY: the address is there, and so long.
    done(unsafe { libc::bind(fd, (&raw const to).cast(), LEN) })
}

fn connect(fd: c_int, to: SocketAddrV4) -> Result<()> {
    let to = to_c(to);
    // SAFETY: as above.
    done(unsafe { libc::connect(fd, (&raw const to).cast(), LEN) })
}

/// A name by one of the two functions that tell names.
fn name(
    fd: c_int,
    tell: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
) -> Result<SocketAddrV4> {
    let (mut name, mut len) = (to_c(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)), LEN);
    // SAFETY: there is room for so much.
    done(unsafe { tell(fd, (&raw mut name).cast(), &mut len) })?;
    let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
    Ok(SocketAddrV4::new(ip, u16::from_be(name.sin_port)))
}

fn set(fd: c_int, level: c_int, name: c_int, value: &[c_int]) -> Result<()> {
    let len = size_of_val(value) as socklen_t;
    // SAFETY: the value is so long.
    done(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), len) })
}

fn get(fd: c_int, name: c_int) -> Result<i64> {
    let (mut value, mut len) = (0, size_of::<c_int>() as socklen_t);
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: there is room for an int.
    done(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, place, &mut len) })?;
    Ok(i64::from(value))
}

fn ask(fd: c_int, request: libc::c_ulong) -> Result<i64> {
    let mut value: c_int = 0;
    // SAFETY: these requests write one int.
    done(unsafe { libc::ioctl(fd, request, &mut value) })?;
    Ok(i64::from(value))
}

impl Kernel {
    pub(crate) fn new(settle_us: u64) -> Kernel {
        // SAFETY: the call takes a number.
        let epoll = || unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        Kernel {
            settle: Duration::from_micros(settle_us),
            epolls: vec![epoll(), epoll()],
            open: Vec::new(),
            listener: None,
            nowhere: None,
        }
    }

    fn fd(&self, who: Who) -> Result<c_int> {
        let mut open = self.open.iter();
        open.find(|(other, _)| *other == who)
            .map(|(_, fd)| *fd)
            .ok_or(libc::EBADF)
    }

    fn close(&mut self, who: Who) {
        if let Ok(fd) = self.fd(who) {
            // SAFETY: it is open, and named nowhere else.
            unsafe { libc::close(fd) };
        }
        self.open.retain(|(other, _)| *other != who);
    }

    fn add(&mut self, who: Who, fd: c_int) {
        // Else a small segment waits for an acknowledgement that is delayed.
        set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &[1]).expect("an option");
        self.close(who);
        self.open.push((who, fd));
    }

    fn socket() -> Result<c_int> {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the call takes numbers.
        answer(unsafe { libc::socket(libc::AF_INET, kind, 0) }).map(|fd| fd as c_int)
    }

    /// An address that nobody listens on: one that was given out and is free again.
    fn nowhere(&mut self) -> Result<SocketAddrV4> {
        if self.nowhere.is_none() {
            let fd = Kernel::socket()?;
            bind(fd, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
            self.nowhere = Some(name(fd, libc::getsockname)?);
            // SAFETY: it is open, and named nowhere else.
            unsafe { libc::close(fd) };
        }
        self.nowhere.ok_or(libc::EINVAL)
    }

    /// For both epoll instances; what the last says.
    fn each(&self, who: Who, op: c_int, events: u32) -> Result<i64> {
        let fd = self.fd(who)?;
        let mut outcome = Ok(0);
        for epfd in &self.epolls {
            let mut event = libc::epoll_event {
                events,
                u64: who as u64,
            };
            // SAFETY: the event is there.
            outcome = answer(unsafe { libc::epoll_ctl(*epfd, op, fd, &mut event) });
        }
        outcome
    }

    fn carry_out(&mut self, op: Op) -> Result<i64> {
        match op {
            Op::Socket(who) => {
                let fd = Kernel::socket()?;
                self.add(who, fd);
            }
            Op::Bind(who) => bind(self.fd(who)?, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?,
            Op::Listen(who, backlog) => {
                // SAFETY: the call takes numbers.
                done(unsafe { libc::listen(self.fd(who)?, backlog) })?;
                if who == Who::Listener {
                    self.listener = Some(name(self.fd(who)?, libc::getsockname)?);
                }
            }
            Op::Accept(who, new) => {
                let (none, flags) = (null_mut(), libc::SOCK_NONBLOCK);
                // SAFETY: no name is asked for.
                let fd = answer(unsafe { libc::accept4(self.fd(who)?, none, null_mut(), flags) })?;
                self.add(new, fd as c_int);
            }
            Op::Connect(who) => {
                let to = match self.listener {
                    Some(listener) => listener,
                    None => self.nowhere()?,
                };
                connect(self.fd(who)?, to)?;
            }
            Op::ConnectNowhere(who) => {
                let nowhere = self.nowhere()?;
                connect(self.fd(who)?, nowhere)?;
            }
            Op::Disconnect(who) => {
                let mut nobody = to_c(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
                nobody.sin_family = libc::AF_UNSPEC as _;
                // SAFETY: the address is there, and so long.
                done(unsafe { libc::connect(self.fd(who)?, (&raw const nobody).cast(), LEN) })?;
            }
            Op::Shutdown(who, how) => {
                // SAFETY: the call takes numbers.
                done(unsafe { libc::shutdown(self.fd(who)?, how) })?;
            }
            Op::Close(who) => {
                self.fd(who)?;
                self.close(who);
            }
            Op::Recv(..) | Op::Send(..) | Op::ReadNothing(_) => return self.carry(op),
            Op::Watch(who, events) => return self.each(who, libc::EPOLL_CTL_ADD, events),
            Op::Rewatch(who, events) => return self.each(who, libc::EPOLL_CTL_MOD, events),
            Op::Unwatch(who) => return self.each(who, libc::EPOLL_CTL_DEL, 0),
            Op::Wait(which) => return self.wait(which),
            _ => return self.ask_or_set(op),
        }
        Ok(0)
    }

    fn carry(&self, op: Op) -> Result<i64> {
        match op {
            Op::Recv(who, len, flags) => {
                let mut into = vec![0u8; len];
                let place = into.as_mut_ptr().cast();
                // SAFETY: there is so much room.
                answer(unsafe { libc::recv(self.fd(who)?, place, len, flags) } as i64)
            }
            Op::Send(who, len, flags) => {
                let bytes = vec![0u8; len];
                let (place, flags) = (bytes.as_ptr().cast(), flags | libc::MSG_NOSIGNAL);
                // SAFETY: so many bytes are there.
                answer(unsafe { libc::send(self.fd(who)?, place, len, flags) } as i64)
            }
            _ => {
                let mut into = [0u8; 1];
                let place = into.as_mut_ptr().cast();
                // SAFETY: nothing is to be written.
                answer(unsafe { libc::read(self.fd(op.who())?, place, 0) } as i64)
            }
        }
    }

    fn wait(&self, which: usize) -> Result<i64> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let (place, room) = (events.as_mut_ptr(), events.len() as c_int);
        // SAFETY: there is room for so many.
        let told = answer(unsafe { libc::epoll_wait(self.epolls[which], place, room, 0) })?;
        let told = events[..told as usize].iter();
        Ok(told.map(|event| i64::from(event.events)).sum())
    }

    fn ask_or_set(&self, op: Op) -> Result<i64> {
        let fd = self.fd(op.who())?;
        let socket = libc::SOL_SOCKET;
        match op {
            Op::Abortive(_) => set(fd, socket, libc::SO_LINGER, &[1, 0])?,
            Op::InLine(_, on) => set(fd, socket, libc::SO_OOBINLINE, &[on.into()])?,
            Op::ReuseAddress(_) => set(fd, socket, libc::SO_REUSEADDR, &[1])?,
            Op::ReusePort(_) => set(fd, socket, libc::SO_REUSEPORT, &[1])?,
            Op::BindAny(_) => bind(fd, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?,
            Op::BindSame(_, other, any) => {
                let port = name(self.fd(other)?, libc::getsockname)?.port();
                let ip = match any {
                    true => Ipv4Addr::UNSPECIFIED,
                    false => Ipv4Addr::LOCALHOST,
                };
                bind(fd, SocketAddrV4::new(ip, port))?;
            }
            Op::PeerName(_) => _ = name(fd, libc::getpeername)?,
            Op::HasPort(_) => {
                return Ok(i64::from(name(fd, libc::getsockname)?.port() != 0));
            }
            Op::Error(_) => return get(fd, libc::SO_ERROR),
            Op::IsListening(_) => return get(fd, libc::SO_ACCEPTCONN),
            Op::Unread(_) => return ask(fd, libc::FIONREAD),
            Op::AtMark(_) => return ask(fd, SIOCATMARK),
            other => panic!("{other:?} is carried out elsewhere"),
        }
        Ok(0)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let open = self.open.iter().map(|(_, fd)| fd);
        for fd in open.chain(&self.epolls) {
            // SAFETY: each is open, and named nowhere else.
            unsafe { libc::close(*fd) };
        }
    }
}

impl World for Kernel {
    fn call(&mut self, op: Op) -> i64 {
        self.carry_out(op).unwrap_or_else(|errno| -i64::from(errno))
    }

    fn settle(&mut self) {
        std::thread::sleep(self.settle);
    }

    fn mask(&mut self, who: Who) -> Option<u32> {
        let mut place = libc::pollfd {
            fd: self.fd(who).ok()?,
            events: 0x23df,
            revents: 0,
        };
        // SAFETY: there is one place.
        let told = unsafe { libc::poll(&mut place, 1, 0) };
        assert!(told >= 0, "{}", Error::last_os_error());
        Some(place.revents as u16 as u32)
    }
}
