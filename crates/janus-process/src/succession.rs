//! Listeners that a program shares with the one that takes its place, until one of the two closes them. Both are members of a daemon, in a
//! group, and have TCP of their own: what goes from one to the other is the description of a listener (`legacy`), and the word of who serves.
//!
//! A listener that was taken over is closed to the outside until somebody waits at it: a program that finds that it cannot begin has taken no
//! connection then. From that moment on the program before it takes no new connections there, as it may have no process left that accepts any; those
//! it has stay. It takes new ones again when its successor closes the listener, or ends.

mod shared;

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use janus::Seat;
use janus_posix::abi;
use rustix::io::{DupFlags, fcntl_dupfd_cloexec, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::core::Inner;
use crate::legacy::{self, Legacy};
use crate::own::{self, Own};
use crate::poll::Polled;
use crate::process::Process;
use crate::pump::{self, Names, Post, Queue};
use crate::standing::Standing;
use crate::{Errno, Result, errno, kernel};
use shared::{Shared, Word, say};

/// All listeners that this program has in common with others.
pub(crate) struct Succession {
    shared: HashMap<i32, Shared>,
    /// Whether one of them is to be opened to the outside once somebody waits there.
    has_unused: Arc<AtomicBool>,
    /// Sockets that children have when this program ends.
    left: HashSet<i32>,
    /// Once there is a pump.
    pub(crate) pump: Option<Arc<Post>>,
}

impl Succession {
    pub(crate) fn new(has_unused: Arc<AtomicBool>) -> Succession {
        Succession {
            shared: HashMap::new(),
            has_unused,
            left: HashSet::new(),
            pump: None,
        }
    }

    fn note_unused(&self) {
        let mut all = self.shared.values();
        let has = all.any(|it| it.unused.is_some() || it.aside);
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

    /// How open a socket that listens is to the outside.
    pub(crate) fn standing(&self, socket: i32) -> Standing {
        let shared = self.shared.get(&socket);
        shared.map_or(Standing::Open, Shared::standing)
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
    /// Somebody waits at a socket: if it was taken over, and not used yet, or stands aside, it is opened to the outside.
    fn opens(&mut self, socket: i32) -> Result<()> {
        let shared = self.succession.shared.get(&socket);
        if shared.is_some_and(|it| it.aside) {
            let back = self.share(socket, |it| it.stands_aside(false));
            self.succession.note_unused();
            return back;
        }
        if shared.is_none_or(|it| it.unused.is_none()) {
            return Ok(());
        }
        let address = self.call(|sockets, _, _| sockets.getsockname(socket))?;
        if self.standing(address.port()) == Standing::Closed {
            self.open_outside(address)?;
        }
        self.succession.is_used(socket);
        let shared = self.succession.shared.get_mut(&socket);
        if let Some(shared) = shared.filter(|it| it.before.is_some()) {
            shared.held = true;
            self.descriptors.hold(socket);
        }
        Ok(())
    }

    /// Whether connections wait where another process could have them as well.
    fn lets_wait(&mut self) -> bool {
        let shared = self.succession.shared.iter();
        let shared = shared.filter(|(_, it)| it.is_one_of_many());
        let shared: Vec<i32> = shared.map(|(socket, _)| *socket).collect();
        shared.into_iter().any(|socket| self.has_waiting(socket))
    }

    fn has_waiting(&mut self, socket: i32) -> bool {
        let waits = self.call(|sockets, _, now| sockets.readiness(now, socket));
        waits.is_ok_and(|mask| mask & abi::POLLIN as u32 != 0)
    }

    /// The guardian has taken a turn, as no thread of the program did.
    pub(crate) fn is_left_alone(&mut self) {
        if self.lets_wait()
            && let Some(pump) = &self.succession.pump
        {
            pump.looks_at_shared();
        }
    }

    fn passes_on(&mut self, socket: i32, end: Own) {
        if self.share(socket, |it| it.passes_on(end.as_fd())) != Ok(true) {
            self.is_given(socket, end);
        }
    }

    /// A connection that another program carries is to be accepted here.
    fn is_given(&mut self, socket: i32, guest: Own) {
        let _ = self.call(|sockets, descriptors, _| {
            descriptors.put_guest(socket, guest);
            sockets.set_guests(socket, true)
        });
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
        let before = self.standing(port);
        let shared = self.succession.shared.get_mut(&socket);
        let changed = shared.map(change).unwrap_or_default();
        let address = self.call(|sockets, _, _| sockets.getsockname(socket))?;
        // A port that is another's by now stays closed.
        let _ = self.stands(before, address);
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
    /// Another program takes those that are not accepted here.
    pub(crate) has_heir: bool,
    /// It takes all new ones, or this program lets them wait and stands aside.
    pub(crate) is_shut: bool,
    /// It is to stand aside if it lets them wait.
    pub(crate) is_one_of_many: bool,
    /// Sockets that the program has made or accepted so far.
    pub(crate) made: u64,
    /// None serves there yet, but may.
    pub(crate) awaits_heir: bool,
    /// Another may pass on connections to this one yet, although this one has closed it.
    pub(crate) may_be_passed_back: bool,
    /// Likewise, another has passed on some that were not heard of.
    pub(crate) is_being_told: bool,
}

/// Reasons why a program with open sockets cannot become another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// It has sockets that are in its memory only.
    Sockets,
    /// It has listeners, and no other program may have its ports: it is no daemon's member.
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
        let shared = shared.filter(|(_, it)| it.is_common());
        let lines = shared.map(|(socket, it)| (*socket, it.lines().collect()));
        lines.collect()
    }

    /// Hears what is said on a line. A connection that comes is to be accepted here.
    pub(crate) fn hears(&self, socket: i32, line: RawFd) {
        let mut inner = self.core.lock();
        if let Ok(Some(guest)) = inner.share(socket, |it| it.hear(line)) {
            inner.is_given(socket, Own::new(own::keep(guest)));
        }
        inner.settle();
    }

    /// The pump has a name of a listener.
    pub(crate) fn is_named(&self, socket: i32) {
        let mut inner = self.core.lock();
        let shared = inner.succession.shared.get_mut(&socket);
        let was_held = shared.is_some_and(|it| std::mem::take(&mut it.held));
        drop(inner);
        if was_held {
            self.core.let_go(&[socket]);
        }
    }

    /// State of a listener that others have too, for the pump.
    pub(crate) fn state_of(&self, socket: i32, ends: bool) -> Common {
        let mut inner = self.core.lock();
        let waits = inner.has_waiting(socket);
        let names = inner.descriptors.names(socket);
        let is_queued = inner.queues.get(&socket).is_some_and(|it| !it.is_empty());
        let shared = inner.succession.shared.get(&socket);
        Common {
            names,
            waits: is_queued || waits,
            has_heir: shared.is_some_and(Shared::has_heir),
            is_shut: shared.is_some_and(|it| it.aside || it.is_succeeded()),
            is_one_of_many: shared.is_some_and(Shared::is_one_of_many),
            made: self.core.counted.made(),
            awaits_heir: shared.is_some_and(|it| !it.marks.is_empty() && !it.is_succeeded()),
            may_be_passed_back: shared.is_some_and(|it| it.may_be_passed_back(ends)),
            is_being_told: shared.is_some_and(Shared::is_being_told),
        }
    }

    /// Whether no connection comes any more to a listener that is closed to the outside: its end is known there, and no handshake is under way, here or at another
    /// listener.
    pub(crate) fn has_come_to_rest(&self, socket: i32) -> bool {
        let mut inner = self.core.lock();
        let is_closed = inner.seat.as_mut().is_none_or(Seat::is_closed_to_others);
        let half_open = inner.call(|sockets, _, _| Ok(sockets.stack().half_open() > 0));
        let rests = is_closed && half_open != Ok(true) && !inner.has_waiting(socket);
        inner.settle();
        rests
    }

    /// The program lets connections wait: others get them, and new ones, until it waits for some.
    pub(crate) fn stands_aside(&self, socket: i32) {
        let mut inner = self.core.lock();
        let _ = inner.share(socket, |it| it.stands_aside(true));
        inner.succession.note_unused();
        inner.settle();
    }

    /// It waits for what happens to several: where it stands aside it serves again.
    #[cold]
    pub(crate) fn serves_again(&self) {
        let inner = self.core.lock();
        let shared = inner.succession.shared.iter();
        let aside = shared.filter(|(_, it)| it.aside);
        let aside: Vec<i32> = aside.map(|(socket, _)| *socket).collect();
        drop(inner);
        for socket in aside {
            // A port that is another's by now stays closed.
            let _ = self.opens(socket);
        }
    }

    /// The program has closed a listener, and the others have it alone.
    pub(crate) fn rests(&self, socket: i32) {
        let mut inner = self.core.lock();
        // A core that has ended has closed it already.
        let _ = inner.share(socket, Shared::rests);
        inner.settle();
    }

    /// Gives a connection that is carried here to another program that has the listener. If there is none it is to be accepted here.
    pub(crate) fn passes_on(&self, socket: i32, end: Own) {
        let mut inner = self.core.lock();
        inner.passes_on(socket, end);
        inner.settle();
    }

    /// Gives those that were put into the children's queue to the other program: there is no child that would take them.
    pub(crate) fn passes_on_queued(&self, socket: i32) {
        let mut inner = self.core.lock();
        while let Some(end) = inner.queues.get(&socket).and_then(Queue::take_back) {
            inner.passes_on(socket, Own::new(own::keep(end)));
        }
        inner.settle();
    }

    /// At the end: children have these sockets.
    pub(crate) fn leaves_to_children(&self, sockets: &[i32]) {
        self.core.lock().succession.left.extend(sockets);
    }

    /// At the end, ports are kept for the programs that may take over what listens there yet, and for children.
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
            let is_marked = |it: &Shared| !it.marks.is_empty() && it.standing() == Standing::Open;
            shared.is_some_and(is_marked) || shared.is_none() && succession.left.contains(socket)
        };
        let before = listening.len();
        listening.retain(|socket, _| !kept(socket));
        if let Some(seat) = seat.as_ref().filter(|_| listening.len() < before) {
            seat.is_succeeded();
        }
    }

    /// Takes over a listener that another program has left, or the process that this one was forked from: all of these descriptors have its mark.
    ///
    /// # Errors
    /// Those of `bind(2)` and `listen(2)`: this process may have other addresses. EINVAL, EMFILE.
    pub fn take_over(&self, fds: &[RawFd], forked: bool) -> Result<()> {
        let mark = *fds.first().ok_or(Errno::EINVAL)?;
        let legacy = Legacy::read(mark)?;
        let nonblocking = kernel::is_nonblocking(mark)?;
        let line = fcntl_dupfd_cloexec(kernel::named(mark)?, 0).map_err(errno)?;
        let line = Own::new(own::keep(line));
        let mut inner = self.core.lock();
        if let Some(permit) = &legacy.permit {
            inner.seat()?.may_have(permit.clone());
        }
        let socket = inner.call(|sockets, _, now| {
            let socket = legacy.listen(sockets, now)?;
            sockets.ioctl(socket, abi::FIONBIO, nonblocking.into())?;
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
            // No other program has it: the one that had is gone, and its device is this one's.
            true if !self.core.shares_ports => inner.open_port(socket, legacy.local)?,
            true => {
                inner.listening.insert(socket, legacy.local.port());
                let shared = inner.succession.shared.entry(socket).or_default();
                (shared.unused, shared.forked) = (Some(line), forked);
                inner.succession.note_unused();
            }
            // An end that fails is an end.
            false => _ = inner.end(socket),
        }
        inner.settle();
        taken
    }

    /// Whether this program may become another, as far as its sockets go: where a daemon has the device, the other one can have what listens and what is
    /// connected.
    ///
    /// # Errors
    /// Why it may not.
    pub fn may_leave(&self) -> std::result::Result<(), Stays> {
        let mut inner = self.core.lock();
        for fd in inner.left_open() {
            let goes_along = self.core.shares_ports;
            let stays = inner.call(|sockets, descriptors, _| {
                let socket = descriptors.socket(fd)?;
                Ok(match sockets.is_listening(socket) {
                    true => (!goes_along).then_some(Stays::Listeners),
                    // An instance of epoll goes on watching what is the kernel's.
                    false if sockets.is_epoll(socket) => None,
                    false if goes_along && sockets.getpeername(socket).is_ok() => None,
                    false => Some(Stays::Sockets),
                })
            });
            if let Ok(Some(stays)) = stays {
                return Err(stays);
            }
        }
        Ok(())
    }

    /// Leaves what is not closed on exec to the program that this one becomes. Descriptors of what listens are marks from now on, and those of connections ends of
    /// pairs, whose other ends are carried here. How many descriptors that are.
    ///
    /// # Errors
    /// EMFILE; then those that go on do so here.
    pub fn leave(&self) -> Result<usize> {
        let mut inner = self.core.lock();
        let mut left: HashMap<i32, Vec<RawFd>> = HashMap::new();
        for fd in inner.left_open() {
            let socket = inner.descriptors.socket(fd)?;
            left.entry(socket).or_default().push(fd);
        }
        let mut stand_in = |(socket, fds): (i32, Vec<RawFd>)| {
            let stands_in = inner.stand_in(socket)?;
            Ok(stands_in.map(|(end, other)| (socket, fds, end, other)))
        };
        let stand_ins = left.into_iter().filter_map(|it| stand_in(it).transpose());
        let stand_ins = stand_ins.collect::<Result<Vec<_>>>()?;
        let (mut count, mut carried) = (0, Vec::new());
        for (socket, fds, end, other) in stand_ins {
            // Until the pump has a name of it.
            inner.descriptors.hold(socket);
            for fd in fds {
                // The number is the program's, and the next one's.
                let _ = kernel::duplicate_to(&end, fd, DupFlags::empty())?.into_raw_fd();
                let (before, _) = inner.descriptors.take(&self.core.ours, fd)?;
                let _ = before.into_raw_fd();
                count += 1;
            }
            match inner.listening.contains_key(&socket) {
                true => {
                    let shared = inner.succession.shared.entry(socket).or_default();
                    shared.marks.push(Own::new(own::keep(other)));
                    shared.held = true;
                }
                false => carried.push((socket, own::keep(other))),
            }
        }
        inner.settle();
        drop(inner);
        self.core.ring_pump();
        let carry = |(socket, end)| {
            let is_carried = self.carry(socket, end);
            self.core.let_go(&[socket]);
            is_carried
        };
        let carried: Vec<Result<()>> = carried.into_iter().map(carry).collect();
        carried.into_iter().collect::<Result<()>>()?;
        Ok(count)
    }
}

impl Inner {
    /// Stands in the place of a socket in another program, with its other end; `None` for what is the kernel's there.
    fn stand_in(&mut self, socket: i32) -> Result<Option<(OwnedFd, OwnedFd)>> {
        let ends = match self.listening.contains_key(&socket) {
            true => legacy::mark(&self.legacy(socket)?)?,
            false => {
                let names = self.call(|sockets, _, _| {
                    let local = sockets.getsockname(socket)?;
                    Ok(sockets
                        .getpeername(socket)
                        .ok()
                        .map(|peer| Names { local, peer }))
                });
                match names.unwrap_or_default() {
                    Some(names) => pump::pair(Some(names))?,
                    None => return Ok(None),
                }
            }
        };
        let nonblocking = self.call(|sockets, _, _| Ok(sockets.is_nonblocking(socket)))?;
        ioctl_fionbio(&ends.0, nonblocking).map_err(errno)?;
        Ok(Some(ends))
    }

    /// Description of a socket that listens, as text.
    pub(crate) fn legacy(&mut self, socket: i32) -> Result<Box<[u8]>> {
        let port = self.listening.get(&socket).copied();
        let permit = self.seat()?.permit(port.ok_or(Errno::EINVAL)?);
        let legacy = self.call(|sockets, _, now| Legacy::of(sockets, now, socket, permit));
        Ok(legacy?.text())
    }

    /// The program's descriptors that are not closed on exec.
    fn left_open(&self) -> Vec<RawFd> {
        let mut all = self.descriptors.all();
        all.retain(|fd| !own::is(*fd) && self.descriptors.close_on_exec(*fd) == Ok(false));
        all
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
