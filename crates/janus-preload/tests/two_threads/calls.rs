//! A call of a plan, carried out through libc's functions.

use std::ffi::CStr;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU16, Ordering};

use libc::{c_int, c_void, sockaddr_in, socklen_t};

use crate::bytes::{Answer, answer, recv, send};
use crate::plan::{By, Childs, Look, Op, PLACES, Place, Wait};

/// Milliseconds of [`Wait::Soon`].
const SOON_MS: c_int = 15;
const LEN: socklen_t = size_of::<sockaddr_in>() as socklen_t;
/// Bytes of the file that is sent.
const FILE: usize = 4_096;

/// The descriptors that the threads share.
pub(crate) struct Table {
    fds: [AtomicI32; PLACES],
    /// The ports that places were bound to last; 0: none.
    ports: [AtomicU16; PLACES],
    file: c_int,
    /// A socket that new epoll instances watch, if they do.
    anchor: c_int,
    /// Numbers are told, and stay in their places when they are closed.
    numbered: bool,
}

/// The number of a place that has none.
const NONE: c_int = -1;

fn address(port: u16) -> sockaddr_in {
    let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: at.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*at.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

fn set(fd: c_int, level: c_int, name: c_int, value: &[c_int]) -> c_int {
    let len = size_of_val(value) as socklen_t;
    // SAFETY: the value is so long.
    unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), len) }
}

/// SO_RCVTIMEO; 0: for ever.
fn patience(fd: c_int, milliseconds: c_int) {
    let time = libc::timeval {
        tv_sec: 0,
        tv_usec: i64::from(milliseconds) * 1_000,
    };
    let len = size_of_val(&time) as socklen_t;
    // SAFETY: the value is so long.
    unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const time).cast(),
            len,
        )
    };
}

fn is_socket(fd: c_int) -> bool {
    let (mut value, mut len): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    let place = (&raw mut value).cast();
    // SAFETY: there is room for an int.
    unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, place, &mut len) == 0 }
}

fn milliseconds(wait: Wait) -> c_int {
    match wait {
        Wait::Never => 0,
        Wait::Soon => SOON_MS,
        Wait::Ever => -1,
    }
}

impl Table {
    pub(crate) fn new(numbered: bool) -> Table {
        const NAME: &CStr = c"file";
        // SAFETY: the name ends with a zero, the bytes are there. The number is beyond those of the plan.
        let file = unsafe {
            let made = libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC);
            let bytes = [b'f'; FILE];
            libc::write(made, bytes.as_ptr().cast(), FILE);
            let file = libc::fcntl(made, libc::F_DUPFD_CLOEXEC, 250);
            libc::close(made);
            file
        };
        Table {
            fds: [const { AtomicI32::new(NONE) }; PLACES],
            ports: [const { AtomicU16::new(0) }; PLACES],
            file,
            anchor: NONE,
            numbered,
        }
    }

    pub(crate) fn fd(&self, place: Place) -> c_int {
        self.fds[place as usize].load(Ordering::Relaxed)
    }

    /// From now on each new epoll instance watches a socket, so that it is Janus's before anything else watches it.
    pub(crate) fn anchored(mut self) -> Table {
        // SAFETY: the calls take numbers.
        unsafe {
            let made = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
            self.anchor = libc::fcntl(made, libc::F_DUPFD_CLOEXEC, 250);
            libc::close(made);
        }
        self
    }

    pub(crate) fn put(&self, place: Place, fd: c_int) {
        self.fds[place as usize].store(fd, Ordering::Relaxed);
    }

    /// A call has made a descriptor, or failed.
    fn made(&self, place: Place, answer: Answer) -> Answer {
        if answer.value >= 0 {
            self.put(place, answer.value as c_int);
        }
        self.told(answer)
    }

    /// An answer that is a number.
    fn told(&self, mut answer: Answer) -> Answer {
        if !self.numbered {
            answer.value = answer.value.min(0);
        }
        answer
    }

    fn close(&self, place: Place) -> c_int {
        let fd = self.fd(place);
        // SAFETY: the number is the plan's.
        let closed = unsafe { libc::close(fd) };
        if !self.numbered && closed == 0 {
            let same = self
                .fds
                .iter()
                .filter(|it| it.load(Ordering::Relaxed) == fd);
            same.for_each(|it| it.store(NONE, Ordering::Relaxed));
        }
        closed
    }

    /// Notes where a place is.
    fn named(&self, place: Place) {
        let (mut name, mut len) = (address(0), LEN);
        // SAFETY: there is room for so much.
        let told = unsafe { libc::getsockname(self.fd(place), (&raw mut name).cast(), &mut len) };
        if told == 0 && len == LEN && name.sin_family == libc::AF_INET as _ {
            self.ports[place as usize].store(u16::from_be(name.sin_port), Ordering::Relaxed);
        }
    }

    /// Makes a call; `mark` is what it sends.
    pub(crate) fn call(&self, op: Op, mark: u8) -> Answer {
        use Op::*;
        match op {
            Send(..) | SendFile(..) | Splice(..) => self.send(op, mark),
            Recv(at, len, flags, by) => recv(self.fd(at), len, flags, by),
            RecvSoon(at, len, flags) => {
                patience(self.fd(at), SOON_MS);
                let got = recv(self.fd(at), len, flags, By::Socket);
                patience(self.fd(at), 0);
                got
            }
            Socket(_) | Bind(_) | Listen(_) | Accept(..) | AcceptSoon(..) | Connect(..) => {
                self.life(op)
            }
            Shutdown(..) | Close(_) | CloseRange(..) | Dup(..) | Dup2(..) | Dup3(..)
            | DupFrom(..) => self.number(op),
            Flags(_) | NonBlocking(..) | OnExec(..) | Unread(_) | Set(..) | Abortive(_)
            | Get(..) | PeerName(_) => self.ask(op),
            Look(by, places, events, wait) => self.look(by, places, events, wait),
            Epoll(_) | EpollCtl(..) | EpollWait(..) => self.epoll(op),
            Eventfd(into) => {
                // SAFETY: the call takes numbers.
                let made = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
                self.made(into, answer(made))
            }
            Pipe(out, into) => self.pipe(out, into),
            Fork(acts) => self.fork(acts, mark),
        }
    }

    fn life(&self, op: Op) -> Answer {
        use Op::*;
        // To port 0 Janus says ENETUNREACH at once, and the kernel asks whoever it is.
        let port = |place: Place| self.ports[place as usize].load(Ordering::Relaxed);
        let name = |place: Place| {
            address(if port(place) == 0 {
                port(0)
            } else {
                port(place)
            })
        };
        let accept = |at: Place, new: Place, flags| {
            // SAFETY: no name is asked for.
            let made = unsafe { libc::accept4(self.fd(at), null_mut(), null_mut(), flags) };
            if made >= 0 {
                set(made, libc::IPPROTO_TCP, libc::TCP_NODELAY, &[1]);
            }
            self.made(new, answer(made))
        };
        // SAFETY: the addresses are there, and so long.
        unsafe {
            match op {
                Socket(at) => {
                    let made = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
                    set(made, libc::IPPROTO_TCP, libc::TCP_NODELAY, &[1]);
                    self.made(at, answer(made))
                }
                Bind(at) => {
                    let bound = answer(libc::bind(
                        self.fd(at),
                        core::ptr::from_ref(&address(0)).cast(),
                        LEN,
                    ));
                    self.named(at);
                    bound
                }
                Listen(at) => {
                    let listens = answer(libc::listen(self.fd(at), 50));
                    self.named(at);
                    listens
                }
                Connect(at, to) => answer(libc::connect(
                    self.fd(at),
                    core::ptr::from_ref(&name(to)).cast(),
                    LEN,
                )),
                Accept(at, new, flags) => accept(at, new, flags),
                AcceptSoon(at, new) => {
                    patience(self.fd(at), SOON_MS);
                    let accepted = accept(at, new, 0);
                    patience(self.fd(at), 0);
                    accepted
                }
                other => panic!("{other:?} is carried out elsewhere"),
            }
        }
    }

    fn number(&self, op: Op) -> Answer {
        use Op::*;
        // SAFETY: the calls take numbers, all of the plan's.
        unsafe {
            match op {
                Shutdown(at, how) => answer(libc::shutdown(self.fd(at), how)),
                Close(at) => answer(self.close(at)),
                CloseRange(at, more) => {
                    let first = self.fd(at) as u32;
                    answer(libc::close_range(
                        first,
                        first.saturating_add(more.into()),
                        0,
                    ))
                }
                Dup(at, new) => self.made(new, answer(libc::dup(self.fd(at)))),
                Dup2(at, onto) => self.told(answer(libc::dup2(self.fd(at), self.fd(onto)))),
                Dup3(at, onto, flags) => {
                    self.told(answer(libc::dup3(self.fd(at), self.fd(onto), flags)))
                }
                DupFrom(at, new, least) => {
                    self.made(new, answer(libc::fcntl(self.fd(at), libc::F_DUPFD, least)))
                }
                other => panic!("{other:?} is carried out elsewhere"),
            }
        }
    }

    fn ask(&self, op: Op) -> Answer {
        use Op::*;
        // SAFETY: the calls take numbers, or write to a place that is there.
        unsafe {
            match op {
                Flags(at) => {
                    let mut told = answer(libc::fcntl(self.fd(at), libc::F_GETFD));
                    let flags = libc::fcntl(self.fd(at), libc::F_GETFL);
                    told.told = format!("{:x}", flags & (libc::O_NONBLOCK | libc::O_ACCMODE));
                    told
                }
                NonBlocking(at, on) => answer(libc::fcntl(
                    self.fd(at),
                    libc::F_SETFL,
                    if on { libc::O_NONBLOCK } else { 0 },
                )),
                OnExec(at, on) => answer(libc::fcntl(self.fd(at), libc::F_SETFD, c_int::from(on))),
                Unread(at) => {
                    let mut unread: c_int = 0;
                    let mut told = answer(libc::ioctl(self.fd(at), libc::FIONREAD, &mut unread));
                    told.told = unread.to_string();
                    told
                }
                Set(at, level, name, value) => answer(set(self.fd(at), level, name, &[value])),
                Abortive(at) => {
                    answer(set(self.fd(at), libc::SOL_SOCKET, libc::SO_LINGER, &[1, 0]))
                }
                Get(at, level, name) => {
                    let (mut value, mut len): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
                    let place = (&raw mut value).cast::<c_void>();
                    let mut told =
                        answer(libc::getsockopt(self.fd(at), level, name, place, &mut len));
                    told.told = value.to_string();
                    told
                }
                PeerName(at) => {
                    let (mut name, mut len) = (address(0), LEN);
                    answer(libc::getpeername(
                        self.fd(at),
                        (&raw mut name).cast(),
                        &mut len,
                    ))
                }
                other => panic!("{other:?} is carried out elsewhere"),
            }
        }
    }

    fn look(&self, by: Look, places: [Place; 3], events: i16, wait: Wait) -> Answer {
        let milliseconds = milliseconds(wait);
        let fds = places.map(|place| self.fd(place));
        if by == Look::Select {
            return select(fds, events, milliseconds);
        }
        let mut polled = fds.map(|fd| libc::pollfd {
            fd,
            events,
            revents: 0,
        });
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: i64::from(milliseconds.max(0)) * 1_000_000,
        };
        let limit = if wait == Wait::Ever {
            null()
        } else {
            &raw const time
        };
        // SAFETY: there are three, and the time is there.
        let mut told = answer(unsafe {
            match by {
                Look::Poll => libc::poll(polled.as_mut_ptr(), 3, milliseconds),
                _ => libc::ppoll(polled.as_mut_ptr(), 3, limit, null()),
            }
        });
        if told.value >= 0 {
            told.told = format!("{:x?}", polled.map(|it| it.revents));
        }
        told
    }

    fn epoll(&self, op: Op) -> Answer {
        use Op::*;
        // SAFETY: the events are there, and there is room for so many.
        unsafe {
            match op {
                Epoll(into) => {
                    let made = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                    let mut event = libc::epoll_event { events: 0, u64: 99 };
                    if self.anchor != NONE {
                        event.events = libc::EPOLLET as u32 | libc::EPOLLONESHOT as u32;
                        libc::epoll_ctl(made, libc::EPOLL_CTL_ADD, self.anchor, &mut event);
                        libc::epoll_wait(made, &mut event, 1, 0);
                    }
                    self.made(into, answer(made))
                }
                EpollCtl(at, how, watched, events) => {
                    let mut event = libc::epoll_event {
                        events,
                        u64: watched.into(),
                    };
                    answer(libc::epoll_ctl(
                        self.fd(at),
                        how,
                        self.fd(watched),
                        &mut event,
                    ))
                }
                EpollWait(at, wait) => {
                    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
                    let wait = milliseconds(wait);
                    let mut told =
                        answer(libc::epoll_wait(self.fd(at), events.as_mut_ptr(), 64, wait));
                    let mut all: Vec<(u64, u32)> = events[..told.value.max(0) as usize]
                        .iter()
                        .map(|event| (event.u64, event.events))
                        .collect();
                    all.sort_unstable();
                    told.told = format!("{all:x?}");
                    told
                }
                other => panic!("{other:?} is carried out elsewhere"),
            }
        }
    }

    fn pipe(&self, out: Place, into: Place) -> Answer {
        let mut both = [0; 2];
        // SAFETY: there is room for two.
        let mut made = answer(unsafe { libc::pipe2(both.as_mut_ptr(), libc::O_NONBLOCK) });
        if made.value == 0 {
            if self.numbered {
                made.told = format!("{both:?}");
            }
            self.put(out, both[0]);
            self.put(into, both[1]);
        }
        made
    }

    fn send(&self, op: Op, mark: u8) -> Answer {
        let (zero, nothing) = (&mut 0_i64 as *mut i64, null_mut());
        // SAFETY: the bytes are there, in two parts that are as long together; the offset is there.
        let done = unsafe {
            match op {
                Op::Send(at, len, flags, by) => send(self.fd(at), &vec![mark; len], flags, by),
                Op::SendFile(out, len) => libc::sendfile(self.fd(out), self.file, zero, len),
                // Said to be EINVAL with a socket.
                Op::Splice(from, to, _) if is_socket(self.fd(from)) || is_socket(self.fd(to)) => 0,
                Op::Splice(from, to, len) => libc::splice(
                    self.fd(from),
                    nothing,
                    self.fd(to),
                    nothing,
                    len,
                    libc::SPLICE_F_NONBLOCK,
                ),
                other => panic!("{other:?} is carried out elsewhere"),
            }
        };
        answer(done as i64)
    }

    fn fork(&self, acts: Childs, mark: u8) -> Answer {
        let acts = match acts {
            // What is unread is the child's from its first use on, so that the close is another there.
            Childs::Answers(at) if self.ask(Op::Unread(at)).told != "0" => Childs::Nothing,
            acts => acts,
        };
        // SAFETY: the child makes calls that may be made after a fork, and exits.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                match acts {
                    Childs::Nothing => {}
                    Childs::Closes(at) => _ = libc::close(self.fd(at)),
                    Childs::Answers(at) => {
                        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
                        libc::send(self.fd(at), [mark; 5].as_ptr().cast(), 5, flags);
                    }
                }
                libc::_exit(0);
            }
            let mut status = 0;
            while libc::waitpid(child, &mut status, 0) == -1 {}
            if let Childs::Answers(at) = acts {
                self.close(at);
            }
            let mut ended = answer(i64::from(child.min(0)));
            ended.told = status.to_string();
            ended
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: it is open, and named nowhere else.
        unsafe {
            libc::close(self.file);
            if self.anchor != NONE {
                libc::close(self.anchor);
            }
        }
    }
}

fn select(fds: [c_int; 3], events: i16, milliseconds: c_int) -> Answer {
    // SAFETY: the sets are plain data, for which zeros are empty; all numbers are below what a set has room for.
    unsafe {
        let empty: libc::fd_set = core::mem::zeroed();
        let mut sets = [empty; 3];
        let wanted = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
        for (set, wanted) in sets.iter_mut().zip(wanted) {
            if events & wanted != 0 {
                fds.iter()
                    .filter(|fd| **fd >= 0)
                    .for_each(|fd| libc::FD_SET(*fd, set));
            }
        }
        let mut time = libc::timeval {
            tv_sec: 0,
            tv_usec: i64::from(milliseconds.max(0)) * 1_000,
        };
        let limit = if milliseconds < 0 {
            null_mut()
        } else {
            &raw mut time
        };
        let [read, write, except] = &mut sets;
        let count = fds.iter().max().map_or(0, |most| most + 1);
        let mut told = answer(libc::select(count, read, write, except, limit));
        if told.value >= 0 {
            let has = |fd, set| u8::from(fd >= 0 && libc::FD_ISSET(fd, set));
            told.told = format!("{:?}", sets.map(|set| fds.map(|fd| has(fd, &set))));
        }
        told
    }
}
