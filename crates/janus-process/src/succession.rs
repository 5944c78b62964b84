//! Listeners that a program shares with the one that takes its place, until one of the two closes them. Both are members of a daemon, in a
//! group, and have TCP of their own: what goes from one to the other is the description of a listener (`legacy`), and the word of who serves.
//!
//! A listener that was taken over is closed to the outside until somebody waits at it: a program that finds that it cannot begin has taken no
//! connection then. From that moment on the program before it takes no new connections there, as it may have no process left that accepts any; those
//! it has stay. It takes new ones again when its successor closes the listener, or ends.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use janus_posix::abi;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{DupFlags, fcntl_dupfd_cloexec, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::core::Inner;
use crate::legacy::{self, Legacy};
use crate::own::{self, Own};
use crate::poll::Polled;
use crate::process::Process;
use crate::{Errno, Result, errno, kernel};

/// The successor's word that it serves.
const SERVES: [u8; 1] = [1];

/// A program that has taken over a socket of this one's.
struct Heir {
    /// The other end of its mark.
    line: Own,
    serves: bool,
}

/// Part of the listening sockets in what programs leave to each other.
#[derive(Default)]
pub(crate) struct Succession {
    /// Marks of sockets that were taken over: the program before this one sees them closed when it is to serve again.
    marks: HashMap<i32, Own>,
    /// Those at which no thread has waited yet.
    unused: HashSet<i32>,
    has_unused: Arc<AtomicBool>,
    heirs: HashMap<i32, Vec<Heir>>,
}

impl Succession {
    pub(crate) fn new(has_unused: Arc<AtomicBool>) -> Succession {
        Succession {
            has_unused,
            ..Succession::default()
        }
    }

    fn take_over(&mut self, socket: i32, mark: Own) {
        self.marks.insert(socket, mark);
        self.unused.insert(socket);
        self.note_unused();
    }

    fn note_unused(&self) {
        let has = !self.unused.is_empty();
        self.has_unused.store(has, Ordering::Relaxed);
    }

    /// Somebody waits at it. The program before is told.
    fn is_used(&mut self, socket: i32) {
        self.unused.remove(&socket);
        self.note_unused();
        if let Some(mark) = self.marks.get(&socket) {
            // The program before may have ended.
            let _ = send(mark, &SERVES, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Whether a socket is closed to the outside although it listens.
    pub(crate) fn shuts(&self, socket: i32) -> bool {
        let heirs = self.heirs.get(&socket);
        let serves = heirs.is_some_and(|heirs| heirs.iter().any(|it| it.serves));
        serves || self.unused.contains(&socket)
    }

    /// The socket listens no more.
    pub(crate) fn forget(&mut self, socket: i32) {
        self.marks.remove(&socket);
        self.heirs.remove(&socket);
        if self.unused.remove(&socket) {
            self.note_unused();
        }
    }

    /// Hears what one of the heirs of a socket says.
    fn hear(&mut self, socket: i32, line: RawFd) {
        let Some(heirs) = self.heirs.get_mut(&socket) else {
            return;
        };
        heirs.retain_mut(|heir| {
            if heir.line.as_fd().as_raw_fd() != line {
                return true;
            }
            match recv(&heir.line, &mut [0_u8; 8][..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => false,
                Ok(_) => {
                    heir.serves = true;
                    true
                }
                Err(error) => errno(error) == Errno::EAGAIN,
            }
        });
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
        if !self.succession.unused.contains(&socket) {
            return Ok(());
        }
        let address = self.call(|sockets, _, _| sockets.getsockname(socket))?;
        if !self.is_open(address.port()) {
            self.open_outside(address)?;
        }
        self.succession.is_used(socket);
        Ok(())
    }

    /// An heir has something to say.
    fn hears(&mut self, socket: i32, line: RawFd) -> Result<()> {
        let port = self.listening.get(&socket).copied();
        let was_open = port.is_some_and(|port| self.is_open(port));
        self.succession.hear(socket, line);
        let Some(port) = port else { return Ok(()) };
        match (was_open, self.is_open(port)) {
            (true, false) => self.seat()?.close_port(port),
            (false, true) => {
                let address = self.call(|sockets, _, _| sockets.getsockname(socket))?;
                self.open_outside(address)?;
            }
            _ => {}
        }
        Ok(())
    }
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
        opened
    }

    /// A program has taken over a socket of this one's; its mark's other end, which is kept.
    pub(crate) fn has_heir(&self, socket: i32, line: OwnedFd) {
        let heir = Heir {
            line: Own::new(line),
            serves: false,
        };
        let mut inner = self.core.lock();
        match inner.listening.contains_key(&socket) {
            true => inner.succession.heirs.entry(socket).or_default().push(heir),
            false => {
                drop(inner);
                drop(heir);
            }
        }
    }

    /// All heirs there are: the socket, and what they say it on.
    pub(crate) fn heirs(&self) -> Vec<(i32, RawFd)> {
        let inner = self.core.lock();
        let heirs = inner.succession.heirs.iter();
        let lines = heirs.flat_map(|(socket, heirs)| {
            let line = |heir: &Heir| (*socket, heir.line.as_fd().as_raw_fd());
            heirs.iter().map(line)
        });
        lines.collect()
    }

    /// Hears what an heir says.
    pub(crate) fn hears(&self, socket: i32, line: RawFd) {
        let mut inner = self.core.lock();
        // A port that is another's by now stays closed.
        let _ = inner.hears(socket, line);
        inner.settle();
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
                inner.succession.take_over(socket, line);
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
