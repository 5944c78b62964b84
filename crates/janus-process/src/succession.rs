//! Listeners that a program shares with the one that takes its place, until one of the two closes them. Both are members of a daemon, in a
//! group, and have TCP of their own: what goes from one to the other is the description of a listener (`legacy`), and the word of who serves.
//!
//! A listener that was taken over is closed to the outside until somebody waits at it: a program that finds that it cannot begin has taken no
//! connection then. From that moment on the program before it takes no new connections there, as it may have no process left that accepts any; those
//! it has stay. It takes new ones again when its successor closes the listener, or ends.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use janus_posix::abi;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{DupFlags, fcntl_dupfd_cloexec, ioctl_fionbio};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

use crate::core::Inner;
use crate::legacy::{self, Legacy};
use crate::own::{self, Own};
use crate::poll::Polled;
use crate::process::Process;
use crate::{Errno, Result, errno, kernel, passing};

/// Words between programs that have the same listener, a byte each.
#[derive(Clone, Copy)]
enum Word {
    /// Said on a mark, with the end of a line: this program serves from now on.
    Serves = 1,
    /// It has closed the listener.
    Rests = 2,
    /// A connection that it has not accepted comes along, as one end of a pair: it carries it.
    Guest = 3,
}

/// The line to a program that has taken a listener over.
struct Successor {
    line: Own,
    serves: bool,
}

/// A listener that this program has in common with others.
#[derive(Default)]
struct Shared {
    /// The mark by which it was taken over, as long as no thread has waited at it.
    unused: Option<Own>,
    /// The line to the program before this one.
    before: Option<Own>,
    /// Other ends of marks: programs that may take it over.
    marks: Vec<Own>,
    after: Vec<Successor>,
    /// This program has closed it.
    rests: bool,
}

/// All listeners that this program has in common with others.
pub(crate) struct Succession {
    shared: HashMap<i32, Shared>,
    has_unused: Arc<AtomicBool>,
}

fn say(line: &Own, word: Word, fd: Option<BorrowedFd<'_>>) -> Result<()> {
    passing::send(line, &[word as u8], fd, SendFlags::DONTWAIT)
}

/// A word that was said on a line, and what came along. An error: there is no other end any more.
fn heard(line: &Own) -> Result<Option<(u8, Option<OwnedFd>)>> {
    let mut word = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut got = passing::receive(line, &mut word, flags);
    if got.as_ref().is_err_and(|error| *error == Errno::ECONNRESET) {
        // The other end was closed with the mark's text unread. What was said before that is still there.
        got = passing::receive(line, &mut word, flags);
    }
    match got {
        Ok((0, _)) => Err(Errno::ECONNRESET),
        Ok((_, fd)) => Ok(Some((word[0], fd))),
        Err(Errno::EAGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_at(own: &Own, fd: RawFd) -> bool {
    own.as_fd().as_raw_fd() == fd
}

impl Shared {
    fn is_succeeded(&self) -> bool {
        self.after.iter().any(|it| it.serves)
    }

    /// Whether it is closed to the outside although it listens.
    fn is_shut(&self) -> bool {
        self.unused.is_some() || self.rests || self.is_succeeded()
    }

    /// Where connections go that are not accepted here.
    fn heir(&self) -> Option<&Own> {
        let after = self.after.iter().rev().find(|it| it.serves);
        after.map(|it| &it.line).or(self.before.as_ref())
    }

    fn lines(&self) -> impl Iterator<Item = RawFd> {
        let after = self.after.iter().map(|it| &it.line);
        let all = self.marks.iter().chain(&self.before).chain(after);
        all.map(|it| it.as_fd().as_raw_fd())
    }

    /// Hears what is said on one of its lines. A connection may have come.
    fn hear(&mut self, fd: RawFd) -> Option<OwnedFd> {
        let mut guest = None;
        let after = &mut self.after;
        self.marks.retain(|mark| {
            if !is_at(mark, fd) {
                return true;
            }
            match heard(mark) {
                Ok(Some((word, Some(line)))) if word == Word::Serves as u8 => {
                    let line = Own::new(own::keep(line));
                    after.push(Successor { line, serves: true });
                    true
                }
                said => said.is_ok(),
            }
        });
        self.after.retain_mut(|it| {
            if !is_at(&it.line, fd) {
                return true;
            }
            match heard(&it.line) {
                Ok(Some((_, Some(end)))) => guest = Some(end),
                Ok(Some(_)) => it.serves = false,
                Ok(None) => {}
                Err(_) => return false,
            }
            true
        });
        if let Some(before) = self.before.as_ref().filter(|it| is_at(it, fd)) {
            match heard(before) {
                Ok(said) => guest = said.and_then(|(_, end)| end),
                Err(_) => self.before = None,
            }
        }
        guest
    }
}

impl Succession {
    pub(crate) fn new(has_unused: Arc<AtomicBool>) -> Succession {
        Succession {
            shared: HashMap::new(),
            has_unused,
        }
    }

    fn note_unused(&self) {
        let has = self.shared.values().any(|it| it.unused.is_some());
        self.has_unused.store(has, Ordering::Relaxed);
    }

    /// The program before is told that this one serves.
    fn is_used(&mut self, socket: i32) {
        if let Some(shared) = self.shared.get_mut(&socket)
            && let Some(mark) = shared.unused.take()
        {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let line = socketpair(family, kind, SocketFlags::CLOEXEC, None);
            // Without a line, or without a program before, it serves all the same.
            if let Ok((mine, theirs)) = line
                && say(&mark, Word::Serves, Some(theirs.as_fd())).is_ok()
            {
                shared.before = Some(Own::new(own::keep(mine)));
            }
        }
        self.note_unused();
    }

    /// Whether a socket is closed to the outside although it listens.
    pub(crate) fn shuts(&self, socket: i32) -> bool {
        self.shared.get(&socket).is_some_and(Shared::is_shut)
    }

    /// Whether another program has this listener, or may have it.
    pub(crate) fn has(&self, socket: i32) -> bool {
        self.shared.contains_key(&socket)
    }

    /// The socket listens no more.
    pub(crate) fn forget(&mut self, socket: i32) {
        if self.shared.remove(&socket).is_some() {
            self.note_unused();
        }
    }
}

impl Inner {
    /// Whether a port is open to the outside for one of the sockets that listen there.
    pub(crate) fn is_open(&self, port: u16) -> bool {
        let mut listening = self.listening.iter();
        listening.any(|(socket, it)| *it == port && !self.succession.shuts(*socket))
    }

    /// Somebody waits at a socket: if it was taken over, and not used yet, it is opened to the outside.
    fn opens(&mut self, socket: i32) -> Result<()> {
        let shared = self.succession.shared.get(&socket);
        if shared.is_none_or(|it| it.unused.is_none()) {
            return Ok(());
        }
        let address = self.call(|sockets, _, _| sockets.getsockname(socket))?;
        if !self.is_open(address.port()) {
            self.open_outside(address)?;
        }
        self.succession.is_used(socket);
        Ok(())
    }

    /// Changes what a listener has in common with others, and opens or closes it to the outside as that says.
    fn share<R: Default>(
        &mut self,
        socket: i32,
        change: impl FnOnce(&mut Shared) -> R,
    ) -> Result<R> {
        let (Some(port), true) = (
            self.listening.get(&socket).copied(),
            self.succession.has(socket),
        ) else {
            return Ok(R::default());
        };
        let was_open = self.is_open(port);
        let shared = self.succession.shared.get_mut(&socket);
        let changed = shared.map(change).unwrap_or_default();
        match (was_open, self.is_open(port)) {
            (true, false) => self.seat()?.close_port(port),
            (false, true) => {
                let address = self.call(|sockets, _, _| sockets.getsockname(socket))?;
                // A port that is another's by now stays closed.
                let _ = self.open_outside(address);
            }
            _ => {}
        }
        Ok(changed)
    }
}

/// A listener that this program has in common with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    /// Descriptors that have it, and others that hold it.
    pub(crate) names: u32,
    /// Connections have come that are not accepted.
    pub(crate) waits: bool,
    /// Handshakes are under way, here or at another listener.
    pub(crate) half_open: bool,
    /// Another program takes those that are not accepted here.
    pub(crate) has_heir: bool,
    /// None serves there yet, but may.
    pub(crate) awaits_heir: bool,
}

/// Reasons why a program with open sockets cannot become another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// It has sockets that are in its memory only.
    Sockets,
    /// It has listeners, and no other program may have its ports: it is not in a daemon's group.
    Listeners,
}

impl Process {
    /// Somebody waits at a descriptor.
    pub(crate) fn waits_at(&self, fd: RawFd) -> Result<()> {
        if !self.core.has_unused.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.socket_of(fd) {
            Ok(socket) => self.opens(socket),
            // The call itself says what is wrong.
            Err(_) => Ok(()),
        }
    }

    /// [`Process::waits_at`] for descriptors that are waited for together. One that cannot be opened says so to who accepts.
    pub(crate) fn waits_at_all(&self, polled: &[Polled]) {
        if self.core.has_unused.load(Ordering::Relaxed) {
            let readable = |it: &&Polled| it.events & abi::POLLIN as i16 != 0;
            for it in polled.iter().filter(readable) {
                let _ = self.waits_at(it.fd);
            }
        }
    }

    /// Somebody waits at a socket.
    pub(crate) fn opens(&self, socket: i32) -> Result<()> {
        let mut inner = self.core.lock();
        let opened = inner.opens(socket);
        inner.settle();
        drop(inner);
        // It has one more to listen to.
        self.core.ring_pump();
        opened
    }

    /// A child becomes a program that may take over a socket of this one's; its mark's other end, which is kept.
    pub(crate) fn leaves_to(&self, socket: i32, mark: OwnedFd) {
        let mark = Own::new(mark);
        let mut inner = self.core.lock();
        if inner.listening.contains_key(&socket) {
            let shared = inner.succession.shared.entry(socket).or_default();
            shared.marks.push(mark);
        }
    }

    /// Listeners that this program has in common with others, each with the lines by which these may say something.
    pub(crate) fn shared(&self) -> Vec<(i32, Vec<RawFd>)> {
        let inner = self.core.lock();
        let shared = inner.succession.shared.iter();
        let lines = shared.map(|(socket, shared)| (*socket, shared.lines().collect()));
        lines.collect()
    }

    /// Hears what is said on a line. A connection that comes is to be accepted here.
    pub(crate) fn hears(&self, socket: i32, line: RawFd) {
        let mut inner = self.core.lock();
        if let Ok(Some(guest)) = inner.share(socket, |it| it.hear(line)) {
            let guest = Own::new(own::keep(guest));
            let _ = inner.call(|sockets, descriptors, _| {
                descriptors.put_guest(socket, guest);
                sockets.set_guests(socket, true)
            });
        }
        inner.settle();
    }

    /// State of a listener that others have too, for the pump.
    pub(crate) fn state_of(&self, socket: i32) -> Common {
        let mut inner = self.core.lock();
        let waits = inner.call(|sockets, _, now| sockets.readiness(now, socket));
        let half_open = inner.call(|sockets, _, _| Ok(sockets.stack().half_open() > 0));
        let names = inner.descriptors.names(socket);
        let is_queued = inner.queues.get(&socket).is_some_and(|it| !it.is_empty());
        let shared = inner.succession.shared.get(&socket);
        Common {
            names,
            waits: is_queued || waits.is_ok_and(|mask| mask & abi::POLLIN as u32 != 0),
            half_open: half_open == Ok(true),
            has_heir: shared.is_some_and(|it| it.heir().is_some()),
            awaits_heir: shared.is_some_and(|it| !it.marks.is_empty() && !it.is_succeeded()),
        }
    }

    /// The program has closed a listener, and the others have it alone.
    pub(crate) fn rests(&self, socket: i32) {
        let mut inner = self.core.lock();
        // A core that has ended has closed it already.
        let _ = inner.share(socket, |it| {
            it.rests = true;
            if let Some(before) = &it.before {
                let _ = say(before, Word::Rests, None);
            }
        });
        inner.settle();
    }

    /// Gives a connection that is carried here to another program that has the listener.
    pub(crate) fn passes_on(&self, socket: i32, end: BorrowedFd<'_>) -> Result<()> {
        let inner = self.core.lock();
        let shared = inner.succession.shared.get(&socket);
        let heir = shared.and_then(Shared::heir).ok_or(Errno::ENOTCONN)?;
        say(heir, Word::Guest, Some(end))
    }

    /// Gives those that were put into the children's queue to the other program: there is no child that would take them.
    pub(crate) fn passes_on_queued(&self, socket: i32) {
        let mut inner = self.core.lock();
        let Inner {
            succession, queues, ..
        } = &mut *inner;
        let heir = succession.shared.get(&socket).and_then(Shared::heir);
        if let (Some(queue), Some(heir)) = (queues.get(&socket), heir) {
            while let Some(end) = queue.take_back() {
                // If that fails its peer is told of an end.
                let _ = say(heir, Word::Guest, Some(end.as_fd()));
            }
        }
    }

    /// At the end, ports are kept for the programs that may take over what listens there yet.
    pub(crate) fn keeps_ports(&self) {
        let mut inner = self.core.lock();
        let Inner {
            succession,
            listening,
            seat,
            ..
        } = &mut *inner;
        let kept = |socket: &i32| {
            let shared = succession.shared.get(socket);
            shared.is_some_and(|it| !it.marks.is_empty() && !it.is_shut())
        };
        let before = listening.len();
        listening.retain(|socket, _| !kept(socket));
        if let Some(seat) = seat.as_ref().filter(|_| listening.len() < before) {
            seat.is_succeeded();
        }
    }

    /// Takes over a listener that another program has left: all of these descriptors have its mark.
    ///
    /// # Errors
    /// Those of `bind(2)` and `listen(2)`: this process may have other addresses. EINVAL, EMFILE.
    pub fn take_over(&self, fds: &[RawFd]) -> Result<()> {
        let mark = *fds.first().ok_or(Errno::EINVAL)?;
        let legacy = Legacy::read(mark)?;
        let flags = fcntl_getfl(kernel::named(mark)?).map_err(errno)?;
        let nonblocking = i32::from(flags.contains(OFlags::NONBLOCK));
        let line = fcntl_dupfd_cloexec(kernel::named(mark)?, 0).map_err(errno)?;
        let line = Own::new(own::keep(line));
        let mut inner = self.core.lock();
        let socket = inner.call(|sockets, _, now| {
            let socket = legacy.listen(sockets, now)?;
            sockets.ioctl(socket, abi::FIONBIO, nonblocking)?;
            Ok(socket)
        })?;
        self.core.counted.socket();
        let mut taken = Err(Errno::EBADF);
        for name in fds {
            let placed = inner
                .descriptors
                .place(*name, kernel::closes_on_exec(*name));
            taken = placed.map(|fd| _ = inner.descriptors.put(&self.core.ours, fd, socket));
            if taken.is_err() {
                break;
            }
        }
        match inner.descriptors.has_names(socket) {
            true => {
                inner.listening.insert(socket, legacy.local.port());
                let shared = inner.succession.shared.entry(socket).or_default();
                shared.unused = Some(line);
                inner.succession.note_unused();
            }
            // An end that fails is an end.
            false => _ = inner.end(socket),
        }
        inner.settle();
        taken
    }

    /// Whether this program may become another, as far as its sockets go: those that are not closed by that are listeners, which the other
    /// program can have.
    ///
    /// # Errors
    /// Why it may not.
    pub fn may_leave(&self) -> std::result::Result<(), Stays> {
        let mut inner = self.core.lock();
        for fd in inner.left_open() {
            let of = |sockets: &mut janus_posix::Sockets<'_>, socket| {
                (sockets.is_listening(socket), sockets.is_epoll(socket))
            };
            let kind =
                inner.call(|sockets, descriptors, _| Ok(of(sockets, descriptors.socket(fd)?)));
            match kind {
                Ok((true, _)) if self.core.shares_ports => {}
                Ok((true, _)) => return Err(Stays::Listeners),
                // An instance of epoll goes on watching what is the kernel's.
                Ok((_, true)) | Err(_) => {}
                Ok(_) => return Err(Stays::Sockets),
            }
        }
        Ok(())
    }

    /// Leaves the listeners that are not closed on exec to the program that this one becomes: their descriptors are marks from now on. How many
    /// descriptors that are.
    ///
    /// # Errors
    /// EMFILE; then all are what they were.
    pub fn leave(&self) -> Result<usize> {
        let mut inner = self.core.lock();
        let mut left: HashMap<i32, Vec<RawFd>> = HashMap::new();
        for fd in inner.left_open() {
            left.entry(inner.descriptors.socket(fd)?)
                .or_default()
                .push(fd);
        }
        left.retain(|socket, _| inner.listening.contains_key(socket));
        let marked = inner.call(|sockets, _, now| {
            let mark = |(socket, fds): (i32, Vec<RawFd>)| {
                let text = Legacy::of(sockets, now, socket)?.text();
                // The other end goes at once: this program ends before the next begins.
                let (mark, _) = legacy::mark(&text)?;
                ioctl_fionbio(&mark, sockets.is_nonblocking(socket)).map_err(errno)?;
                Ok((mark, fds))
            };
            left.into_iter().map(mark).collect::<Result<Vec<_>>>()
        })?;
        let mut count = 0;
        for (mark, fds) in &marked {
            for fd in fds {
                let number = kernel::duplicate_to(mark, *fd, DupFlags::empty())?;
                // The program's, and the next one's.
                let _ = number.into_raw_fd();
                let (before, last) = inner.descriptors.take(&self.core.ours, *fd)?;
                let _ = before.into_raw_fd();
                if let Some(socket) = last {
                    // Its port stays open for the next program.
                    inner.listening.remove(&socket);
                    let _ = inner.end(socket);
                }
                count += 1;
            }
        }
        if count > 0 {
            inner.seat()?.is_succeeded();
        }
        inner.settle();
        Ok(count)
    }
}

impl Inner {
    /// The program's descriptors that are not closed on exec.
    fn left_open(&self) -> Vec<RawFd> {
        let mut all = self.descriptors.all();
        all.retain(|fd| !own::is(*fd) && self.descriptors.close_on_exec(*fd) == Ok(false));
        all
    }

    /// Opens an address to the outside.
    pub(crate) fn open_outside(&mut self, address: SocketAddr) -> Result<()> {
        let opened = self.seat()?.open_port(address);
        opened.map(|_| ()).map_err(|error| {
            let number = error.raw_os_error();
            number.map_or(Errno::EADDRINUSE, Errno)
        })
    }
}

/// Descriptors among those that are open now that are marks of listeners, each mark's together: what another program has left to this one. To be
/// asked when a program begins.
pub fn left_to_us() -> Vec<Vec<RawFd>> {
    marked(&kernel::open_descriptors())
}

/// Those among these descriptors that are marks, each mark's together.
pub fn marked(among: &[RawFd]) -> Vec<Vec<RawFd>> {
    legacy::marks(among.iter().copied()).into_values().collect()
}
