//! Descriptors of the kernel's that the program names by their number.

#![allow(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::{from_ref, null};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::DupFlags;
use rustix::net::{getsockname, sockopt};

use crate::held::Held;
use crate::{Errno, Result, errno, own};

/// The descriptor with this number, for the length of a call.
pub(crate) fn named<'a>(fd: RawFd) -> Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: it is handed to calls that only wait for it or watch it. One that is not open, or is closed meanwhile by the program, whose
    // it is, the kernel refuses.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Makes `new` another name for what `fd` is, whatever it was before.
pub(crate) fn duplicate_to(fd: impl AsFd, new: RawFd, flags: DupFlags) -> Result<OwnedFd> {
    if new < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: the program says that the number may be closed; what it is afterwards has no other owner.
    let mut place = unsafe { OwnedFd::from_raw_fd(new) };
    match rustix::io::dup3(fd, &mut place, flags) {
        Ok(()) => Ok(place),
        Err(error) => {
            // Then it is what it was, and the program's.
            let _ = place.into_raw_fd();
            Err(errno(error))
        }
    }
}

/// Whether a descriptor of the program's goes when it becomes another.
pub(crate) fn closes_on_exec(fd: RawFd) -> bool {
    let flags = named(fd).and_then(|fd| rustix::io::fcntl_getfd(fd).map_err(errno));
    flags.is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC))
}

/// Whether calls at a descriptor of the program's do not wait.
pub(crate) fn is_nonblocking(fd: RawFd) -> Result<bool> {
    let flags = fcntl_getfl(named(fd)?).map_err(errno)?;
    Ok(flags.contains(OFlags::NONBLOCK))
}

/// Closes a number of the program's. A thread of it that closes it once more may have been first, which is its error and no reason to end.
pub(crate) fn close(number: OwnedFd) {
    // SAFETY: it is closed once by its owner, here.
    unsafe { libc::close(number.into_raw_fd()) };
}

/// Closes a descriptor of Janus's own by the kernel's call: the C library's `close` may be the preloaded one, which takes the core's lock.
pub(crate) fn close_number(fd: RawFd) {
    // SAFETY: its owner gives it up, or is in the memory of a forked child that never uses it again.
    unsafe { rustix::io::close(fd) };
}

/// The process is a copy of a program's, and has none of that any more but what is Janus's: neither its session, its folder nor its descriptors.
pub(crate) fn leaves_its_program() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"janus-carrier");
    let mut first = 0;
    for kept in own::all().into_iter().chain([RawFd::MAX]) {
        if first < kept {
            // SAFETY: the call takes numbers; those of the program have no owner in this process, which is never the program again.
            unsafe { libc::syscall(libc::SYS_close_range, first, kept - 1, 0) };
        }
        first = kept.saturating_add(1);
    }
    // Where others print. In a root folder without devices writing fails.
    let (family, kind) = (
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
    );
    let nowhere = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::empty(),
    )
    .or_else(|_| rustix::net::socket(family, kind, None));
    let mut nowhere = nowhere.ok();
    while let Some(fd) = nowhere.take_if(|fd| fd.as_raw_fd() < 3) {
        nowhere = rustix::io::dup(&fd).ok();
        let _ = fd.into_raw_fd();
    }
}

/// Ends the process, and nothing else.
pub(crate) fn exit() -> ! {
    // SAFETY: the call takes a number.
    unsafe { libc::_exit(0) }
}

/// Whether the other end of a pair, or a pipe, is closed.
pub(crate) fn has_hung_up(end: BorrowedFd<'_>) -> bool {
    let mut polled = [Watched::new(end.as_raw_fd(), PollFlags::empty())];
    look(&mut polled).is_ok() && polled[0].seen.contains(PollFlags::HUP)
}

/// Whether the other end of a pair has read all that was written to this one.
pub(crate) fn is_all_read(end: BorrowedFd<'_>) -> bool {
    let mut unread: libc::c_int = 0;
    // SAFETY: there is room for the number.
    let told = unsafe { libc::ioctl(end.as_raw_fd(), libc::TIOCOUTQ, &mut unread) };
    told == 0 && unread == 0
}

/// The name of a socket of the kernel's TCP that has been neither bound nor connected, which says no more than its family. `None`: the descriptor is none.
pub fn unused_tcp(fd: RawFd) -> Option<SocketAddr> {
    let fd = named(fd).ok()?;
    let is_tcp = sockopt::socket_protocol(fd) == Ok(Some(rustix::net::ipproto::TCP));
    let name = is_tcp.then(|| getsockname(fd).ok())??;
    let name = SocketAddr::try_from(name).ok()?;
    (name.port() == 0).then_some(name)
}

/// `getsockopt`: bytes that were written.
pub(crate) fn option(fd: impl AsFd, level: i32, name: i32, into: &mut [u8]) -> Result<usize> {
    let (fd, mut len) = (fd.as_fd().as_raw_fd(), into.len() as libc::socklen_t);
    // SAFETY: there are so many bytes.
    match unsafe { libc::getsockopt(fd, level, name, into.as_mut_ptr().cast(), &mut len) } {
        0 => Ok(len as usize),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error().raw_os_error();
    Errno(error.unwrap_or(libc::EIO))
}

/// Whether something has this number.
pub(crate) fn is_open(fd: RawFd) -> bool {
    named(fd).is_ok_and(|fd| rustix::io::fcntl_getfd(fd).is_ok())
}

/// Bytes of this process's address space that are taken; 0 where /proc is not there.
pub(crate) fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').next().and_then(|first| first.parse().ok());
    pages.unwrap_or(0_u64) * rustix::param::page_size() as u64
}

/// Whether a process may have ports below 1,024 (CAP_NET_BIND_SERVICE).
pub(crate) fn may_bind_any_port(process: rustix::process::Pid) -> bool {
    const NUMBER: u32 = 10;
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("CapEff:"));
    let has = lines.next().map(|set| u64::from_str_radix(set.trim(), 16));
    has.is_some_and(|set| set.is_ok_and(|set| set >> NUMBER & 1 != 0))
}

/// All that are open in this process; none where /proc is not there.
pub(crate) fn open_descriptors() -> Vec<RawFd> {
    let all = std::fs::read_dir("/proc/self/fd");
    let names = all.into_iter().flatten().flatten();
    let numbers = names.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<RawFd> = numbers.collect();
    // The folder itself was open, and is not any more.
    numbers.retain(|fd| is_open(*fd));
    numbers
}

/// Rings a bell; -1 is none. Allowed in a handler of a signal.
pub(crate) fn ring(bell: RawFd) {
    if bell >= 0 {
        // SAFETY: whoever named it keeps it open for as long as it is named.
        let bell = unsafe { BorrowedFd::borrow_raw(bell) };
        // It fails when the counter is full, and then the bell rings already.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

/// One that is waited for.
#[derive(Clone, Copy)]
pub(crate) struct Watched {
    pub(crate) fd: RawFd,
    pub(crate) events: PollFlags,
    pub(crate) seen: PollFlags,
}

impl Watched {
    pub(crate) fn new(fd: RawFd, events: PollFlags) -> Watched {
        let seen = PollFlags::empty();
        Watched { fd, events, seen }
    }
}

/// Asks what there is now of all of them.
pub(crate) fn look(watched: &mut [Watched]) -> Result<()> {
    wait(&[], watched, Some(Duration::ZERO), None)
}

/// Waits until one of them, or of `also`, has something. `held`: signals that are let in meanwhile.
pub(crate) fn wait(
    also: &[BorrowedFd<'_>],
    watched: &mut [Watched],
    limit: Option<Duration>,
    held: Option<&Held>,
) -> Result<()> {
    let entry = |fd: RawFd, events: PollFlags| libc::pollfd {
        fd,
        events: events.bits() as i16,
        revents: 0,
    };
    let also = also.iter().map(|fd| entry(fd.as_raw_fd(), PollFlags::IN));
    let first = also.len();
    let theirs = watched.iter().map(|it| entry(it.fd, it.events));
    let mut all: Vec<libc::pollfd> = also.chain(theirs).collect();
    // A time too long for the kernel's type is no limit at all.
    let limit = limit.and_then(|limit| {
        Some(libc::timespec {
            tv_sec: limit.as_secs().try_into().ok()?,
            tv_nsec: limit.subsec_nanos().into(),
        })
    });
    let limit = limit.as_ref().map_or(null(), from_ref);
    let mask = held.map_or(null(), |held| from_ref(held.mask()));
    // SAFETY: there are so many entries; time and mask are there for as long as the call, or null. A descriptor that is not open is told of.
    let told = unsafe { libc::ppoll(all.as_mut_ptr(), all.len() as u64, limit, mask) };
    if told < 0 {
        return Err(last_error());
    }
    for (it, seen) in watched.iter_mut().zip(&all[first..]) {
        it.seen = PollFlags::from_bits_retain(seen.revents as u16);
    }
    Ok(())
}

/// The epoll instance with this number, which is ours from now on.
pub(crate) fn epoll(fd: RawFd) -> Result<OwnedFd> {
    let link = rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new())
        .map_err(|_| Errno::EBADF)?;
    if !link.to_bytes().ends_with(b"[eventpoll]") {
        return Err(Errno::EINVAL);
    }
    // SAFETY: it is open, as was just seen, and the program closes it by Janus from here on.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
