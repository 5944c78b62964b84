//! Sockets of ours that another process uses. It has one end of a pair of the kernel's; a thread of this process has the other, and
//! carries bytes between that and the connection: half-closed as it is, and no faster than either side reads. The same thread hears what
//! forked children say (`children`), and accepts for them (`queue`).

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus_posix::abi;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::children::{Forked, Told};
use crate::core::Core;
use crate::kernel::{self, Watched};
use crate::poll::Polled;
use crate::process::Process;
use crate::{Errno, Result, errno, own};

mod claim;
mod connecting;
mod gate;
mod names;
mod pair;
mod queue;

/// Messages of one child until the others are heard.
const AT_ONCE: usize = 256;
/// Time that connections may take that go to other processes when this one ends.
const CARRIES_ON: Duration = Duration::from_secs(30);
/// Likewise of those whose clients have said their end: few of them wait for anything yet, and perhaps none is accepted.
const CARRIES_CLOSED_ON: Duration = Duration::from_secs(3);
/// Time between two looks at the end.
const LOOKS_AT_THE_END: Duration = Duration::from_millis(5);

pub(crate) use connecting::{Connecting, fill};
use gate::Gate;
pub use names::{Connects, Names};
pub(crate) use pair::Pair;
use queue::Door;
pub(crate) use queue::Queue;
pub use queue::accept;

/// The thread. It is begun with the process, as a fork is no time to begin one.
pub(crate) struct Pump {
    post: Arc<Post>,
    thread: Option<JoinHandle<Carrier>>,
}

/// A message to the thread.
enum News {
    Carry(Pair),
    Hear(Forked),
    /// To end once nothing is to be handed over.
    End,
    /// To end at once.
    Rest,
}

pub(crate) struct Post {
    news: Mutex<Vec<News>>,
    bell: OwnedFd,
    /// There are listeners that other programs have too.
    has_shared: AtomicBool,
}

impl Post {
    fn send(&self, news: News) {
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(news);
        drop(all);
        self.ring();
    }

    /// Something has changed about a listener that other programs have too.
    pub(crate) fn looks_at_shared(&self) {
        self.has_shared.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        // It fails when the counter is full, and then the bell rings already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// A pair as a connection is: a stream, both ways. The first is the program's.
pub(crate) fn pair(names: Option<Names>) -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (theirs, ours) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(errno)?;
    if let Some(names) = names {
        names.give(&ours);
    }
    Ok((theirs, ours))
}

impl Pump {
    pub(crate) fn start(core: Arc<Core>) -> Result<Pump> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(errno)?;
        let post = Arc::new(Post {
            news: Mutex::default(),
            bell,
            has_shared: AtomicBool::new(false),
        });
        let _the_first = core.pump.set(post.clone());
        core.lock().succession.pump = Some(post.clone());
        let mut carrier = Carrier {
            process: Process::again(core),
            post: post.clone(),
            pairs: Vec::new(),
            doors: Vec::new(),
            children: Vec::new(),
            gates: Vec::new(),
            ends: None,
            rests: false,
            alone: false,
        };
        let thread = std::thread::Builder::new().name("janus-pump".into());
        let thread = thread
            .spawn(move || {
                carrier.run(Carrier::may_end);
                carrier
            })
            .map_err(|_| Errno::EAGAIN)?;
        Ok(Pump {
            post,
            thread: Some(thread),
        })
    }
}

impl Pump {
    /// Ends the thread, once what goes to other processes has gone. What it carries yet comes back.
    pub(crate) fn ends(mut self) -> Option<Carrier> {
        self.stop(News::End)
    }

    /// Ends it at once.
    pub(crate) fn rests(mut self) -> Option<Carrier> {
        self.stop(News::Rest)
    }

    fn stop(&mut self, news: News) -> Option<Carrier> {
        let thread = self.thread.take()?;
        self.post.send(news);
        // It has printed why, if it panicked.
        thread.join().ok()
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        if let Some(carrier) = self.stop(News::End) {
            carrier.end();
        }
    }
}

impl Process {
    /// A descriptor of the kernel's that does what this socket does, for another process, or for code that is out of our sight: one end of
    /// a pair. The socket lasts as long as its other end does.
    ///
    /// # Errors
    /// EBADF, EMFILE; ENOTCONN for what is no connection.
    pub fn hand_out(&self, fd: RawFd) -> Result<OwnedFd> {
        let names = Names {
            local: self.getsockname(fd)?,
            peer: self.getpeername(fd)?,
        };
        let (theirs, ours) = pair(Some(names))?;
        self.carry(self.socket_of(fd)?, own::keep(ours))?;
        Ok(theirs)
    }

    /// Names of one socket are descriptors that have the same number here.
    ///
    /// # Errors
    /// EBADF.
    pub fn socket_of(&self, fd: RawFd) -> Result<i32> {
        self.core.lock().descriptors.socket(fd)
    }

    /// Carries bytes between a socket and one end of a pair.
    pub(crate) fn carry(&self, socket: i32, end: OwnedFd) -> Result<()> {
        let pair = Pair::new(self, socket, end)?;
        self.tell_pump(News::Carry(pair))
    }

    /// Hears what a child has to say from now on.
    pub(crate) fn hear(&self, child: Forked) -> Result<()> {
        self.tell_pump(News::Hear(child))
    }

    fn tell_pump(&self, news: News) -> Result<()> {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = rest.as_ref().ok_or(Errno::EBADF)?;
        rest.pump.post.send(news);
        Ok(())
    }
}

/// All that the thread has.
pub(crate) struct Carrier {
    process: Process,
    post: Arc<Post>,
    pairs: Vec<Pair>,
    doors: Vec<Door>,
    children: Vec<Forked>,
    gates: Vec<Gate>,
    /// When it was told to end.
    ends: Option<Instant>,
    /// It was told to end at once.
    rests: bool,
    /// It is in a copy of the process, takes the core's turns too, and has time.
    alone: bool,
}

impl Carrier {
    /// Carries, and accepts for others, until that is so.
    fn run(&mut self, until: impl Fn(&Carrier) -> bool) {
        let bell = self.post.bell.as_raw_fd();
        loop {
            let mut polled = vec![Polled {
                fd: bell,
                events: abi::POLLIN as i16,
                revents: 0,
            }];
            let lines = self.look_at_gates();
            if until(self) {
                break;
            }
            polled.extend(lines.iter().map(|(_, line)| Polled {
                fd: *line,
                events: abi::POLLIN as i16,
                revents: 0,
            }));
            polled.extend(self.children.iter().map(Forked::polled));
            polled.extend(self.gates.iter().map(Gate::polled));
            polled.extend(self.doors.iter().map(Door::polled));
            polled.extend(self.pairs.iter().flat_map(Pair::polled));
            match self.wait(&mut polled, self.limit()) {
                Ok(()) | Err(Errno::EINTR) => {}
                // The process has ended.
                Err(_) => break,
            }
            let core = self.process.core.clone();
            let _no_fork = core.forks.lock().unwrap_or_else(PoisonError::into_inner);
            let (news, rest) = polled.split_at(1);
            let (said, rest) = rest.split_at(lines.len());
            let (children, rest) = rest.split_at(self.children.len());
            let (gates, rest) = rest.split_at(self.gates.len());
            let (doors, pairs) = rest.split_at(self.doors.len());
            for ((socket, line), _) in lines.iter().zip(said).filter(|(_, it)| it.revents != 0) {
                self.process.hears(*socket, *line);
            }
            // Pairs first: those that come now have not been looked at.
            let mut seen = pairs.chunks_exact(2);
            let process = &self.process;
            self.pairs.retain_mut(|pair| {
                seen.next()
                    .is_none_or(|seen| pair.carries_on(process, seen))
            });
            for (gate, _) in (self.gates.iter_mut().zip(gates)).filter(|(_, it)| it.revents != 0) {
                gate.hands_on(process, &mut self.pairs);
            }
            self.let_in(doors);
            self.hear(children);
            if news[0].revents != 0 {
                self.open_post();
            }
        }
    }

    /// In a copy of the process: what its program has left to others goes to these.
    pub(crate) fn hands_over(&mut self) {
        self.is_told_to_end();
        self.run(|it| it.gates.is_empty());
    }

    /// Carries until no other process uses any of it; where it is no copy that does, not for ever.
    pub(crate) fn carries_on(&mut self) {
        let begin = Instant::now();
        self.run(|it| {
            let limit = match it.pairs.iter().all(Pair::is_closed) {
                true => CARRIES_CLOSED_ON,
                false => CARRIES_ON,
            };
            !it.is_needed() || !it.alone && begin.elapsed() >= limit
        });
    }

    /// Whether another process has a connection.
    pub(crate) fn is_needed(&self) -> bool {
        let inner = self.process.core.lock();
        let lives =
            |socket| inner.descriptors.has_names(socket) && !inner.listening.contains_key(&socket);
        !self.pairs.is_empty() || self.held().any(lives)
    }

    /// Sockets that are held for children.
    pub(crate) fn held(&self) -> impl Iterator<Item = i32> {
        self.children
            .iter()
            .flat_map(|child| child.held.iter().copied())
    }

    /// The process is a copy.
    pub(crate) fn is_alone(&mut self) {
        self.alone = true;
    }

    /// Connections that are carried end; the other processes are told as by the end of a stream.
    pub(crate) fn end(mut self) {
        for pair in self.pairs.drain(..) {
            pair.end(&self.process);
        }
        for gate in self.gates.drain(..) {
            gate.close(&self.process);
        }
        for door in self.doors.drain(..) {
            door.close(&self.process);
        }
        for child in self.children.drain(..) {
            child.end(&self.process);
        }
    }

    /// Looks at the listeners that other programs have too. Answers the lines by which these may say something.
    fn look_at_gates(&mut self) -> Vec<(i32, RawFd)> {
        if !self.post.has_shared.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let shared = self.process.shared();
        let mut lines = Vec::new();
        for (socket, its) in &shared {
            self.open_gate(*socket);
            lines.extend(its.iter().map(|line| (*socket, *line)));
        }
        let (process, doors, ends) = (&self.process, &self.doors, self.ends.is_some());
        self.gates.retain_mut(|gate| {
            let socket = gate.socket;
            let has_door = doors.iter().any(|door| door.socket == socket);
            let is_shared = shared.iter().any(|(of, _)| *of == socket);
            let stays = gate.looks(process, has_door, ends) && is_shared;
            if !stays {
                gate.close(process);
            }
            stays
        });
        if !lines.is_empty() || !self.gates.is_empty() {
            self.post.has_shared.store(true, Ordering::Release);
        }
        lines
    }

    fn open_gate(&mut self, socket: i32) {
        match self.gates.iter().any(|gate| gate.socket == socket) {
            // Another program may have it since.
            true => self.process.is_named(socket),
            // Without a descriptor for it, what is not accepted when the program closes it is lost.
            false => self.gates.extend(Gate::open(&self.process, socket)),
        }
    }

    /// Whether it was told to end, and nothing is left that is waited for.
    fn may_end(&self) -> bool {
        let Some(passed) = self.ends.map(|it| it.elapsed()) else {
            return self.rests;
        };
        let owes = self.pairs.iter().any(Pair::outlasts);
        let waits = [
            (owes, self.process.close_time()),
            (!self.gates.is_empty(), CARRIES_ON),
        ];
        waits.iter().all(|(does, limit)| !does || passed >= *limit)
    }

    fn is_told_to_end(&mut self) {
        let children = self.children.iter();
        children.for_each(|child| child.is_left(&self.process));
        self.ends = Some(Instant::now());
    }

    fn limit(&self) -> Option<Duration> {
        let doors = self.doors.iter().filter_map(Door::looks_in);
        let gates = self.gates.iter().filter_map(Gate::looks_in);
        let ends = self.ends.filter(|_| !self.alone);
        let ends = ends.map(|_| LOOKS_AT_THE_END);
        doors.chain(gates).chain(ends).min()
    }

    /// With nothing to carry and nothing to accept it is no thread that waits for the core, unless there is no other.
    fn wait(&self, polled: &mut [Polled], limit: Option<Duration>) -> Result<()> {
        let is_idle = self.pairs.is_empty() && self.doors.is_empty() && self.gates.is_empty();
        if self.alone || !is_idle {
            return self.process.poll(polled, limit).map(|_| ());
        }
        let watched =
            |it: &Polled| Watched::new(it.fd, PollFlags::from_bits_retain(it.events as u16));
        let mut kernels: Vec<Watched> = polled.iter().map(watched).collect();
        kernel::wait(&[], &mut kernels, limit, None)?;
        for (it, seen) in polled.iter_mut().zip(&kernels) {
            it.revents = seen.seen.bits() as i16;
        }
        Ok(())
    }

    /// Hands on what has been accepted.
    fn let_in(&mut self, seen: &[Polled]) {
        let mut seen = seen.iter();
        let (process, pairs) = (&self.process, &mut self.pairs);
        self.doors.retain_mut(|door| {
            door.looks();
            let is_quiet = seen.next().is_none_or(|seen| seen.revents == 0);
            let stays = is_quiet || door.hands_on(process, pairs);
            if !stays {
                door.close(process);
            }
            stays
        });
    }

    /// Children that have something to say say it; those that are gone hold nothing any more.
    fn hear(&mut self, seen: &[Polled]) {
        let mut at = 0;
        for seen in seen {
            if seen.revents != 0 && self.hear_all_of(at) {
                self.children.remove(at).end(&self.process);
            } else {
                at += 1;
            }
        }
        let (process, children) = (&self.process, &self.children);
        self.doors.retain(|door| {
            let wanted = children.iter().any(|child| child.accepts(door.socket));
            if !wanted {
                door.close(process);
            }
            wanted
        });
    }

    /// Whether the child is gone.
    fn hear_all_of(&mut self, child: usize) -> bool {
        for _ in 0..AT_ONCE {
            match self.children[child].told(&self.process) {
                Told::LetGo => self.doors.iter_mut().for_each(Door::was_let_go),
                Told::Nothing => return false,
                Told::Claimed(socket, end) => {
                    // Without memory for it the child finds the end of the stream.
                    self.pairs.extend(Pair::new(&self.process, socket, end));
                    self.children[child].lets_go(&self.process, socket);
                }
                Told::Leaves(socket, line) => {
                    self.process.leaves_to(socket, line);
                    // At once: the child had it, and may have been the last.
                    self.open_gate(socket);
                    self.post.has_shared.store(true, Ordering::Release);
                }
                Told::Listens(socket, backlog, answer) => {
                    if self.process.listens_for_child(socket, backlog, answer) {
                        self.children[child].listens(socket);
                        self.opens_door(socket);
                    }
                }
                Told::Binds(wanted, sender, answer) => {
                    if let Some(socket) = self.process.binds_for_child(&wanted, sender, answer) {
                        self.children[child].has(socket);
                    }
                }
                Told::Connects(socket, wanted, end, connecting) => {
                    let pair = self
                        .process
                        .connects_for_child(socket, &wanted, end, connecting);
                    self.pairs.extend(pair);
                    if let Some(socket) = socket {
                        self.children[child].lets_go(&self.process, socket);
                    }
                }
                Told::Accepts(socket) => {
                    if let Err(error) = self.process.opens(socket) {
                        eprintln!(
                            "janus: a listener that another program has left to this one cannot be opened: {}",
                            error.text()
                        );
                    }
                    self.opens_door(socket);
                }
                Told::Gone => {
                    self.doors.iter_mut().for_each(Door::was_let_go);
                    return true;
                }
            }
        }
        false
    }

    fn opens_door(&mut self, socket: i32) {
        if !self.doors.iter().any(|door| door.socket == socket) {
            // One that listens no more has nothing to accept.
            self.doors.extend(Door::open(&self.process, socket));
        }
    }

    fn open_post(&mut self) {
        let _ = rustix::io::read(self.post.bell.as_fd(), &mut [0_u8; 8]);
        let post = self.post.clone();
        let mut news = post.news.lock().unwrap_or_else(PoisonError::into_inner);
        for news in std::mem::take(&mut *news) {
            match news {
                News::Carry(pair) => self.pairs.push(pair),
                News::Hear(child) => self.children.push(child),
                News::End => self.is_told_to_end(),
                News::Rest => self.rests = true,
            }
        }
    }
}
