//! The portal's thread: it accepts at the doors, opens the inner connections and lets every bridge move its bytes (what shards open is in
//! `exits`), then sleeps until the kernel, the wire, a timer or a command wants it. Bytes themselves are the bridge's business.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use janus_io::{BURST, Batch, Queue};
use janus_mem::{Frame, Pool};
use janus_tcp::{ConnId, Error, Instant, Local, Stack, Token};
use janus_wire::FlowKey;
use rustix::io::Errno;

use super::bridge::{Bridge, Scratch, Verdict, reset_on_drop};
use super::events::{Change, DoorId, Doorbell, Epoll, Source};
use super::exits::Exits;
use super::listen;
use super::outgoing::{self, Opening};
use super::reach::PortalReach;
use super::spare::{self, Spare, Waiting};
use crate::clock::Clock;
use crate::control::ending::LastIn;
use crate::control::mailbox::ControlMailbox;
use crate::losses::BRIDGES_MAX;

/// Connections accepted from one door before the others have their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Most clients accepted at a door when it closes: as many as the kernel's backlog holds.
const LAST_MAX: usize = listen::BACKLOG as usize;
/// Time for which the doors stay open for handshakes that have begun, when all close: longer than a round trip takes in most networks.
const HANDSHAKES: Duration = Duration::from_millis(100);
/// Delay before a door is tried again where a client could not be accepted for lack of a resource.
const RETRY: Duration = Duration::from_millis(100);
/// Turns at the end in which frames still in transit are passed on.
const LAST_TURNS: usize = 1000;
/// Source ports tried when the client's own is still in TIME-WAIT inside.
const OTHER_PORTS: u16 = 64;

/// Requests of the shards' side.
pub(super) enum Command {
    Serve {
        door: DoorId,
        listener: TcpListener,
    },
    Close {
        port: u16,
    },
    /// Closes all doors; dropped when every client that the kernel accepted is established inside.
    CloseAll(LastIn),
    End,
}

/// The carrier's end of the inner wire, and the stack on it.
pub(crate) struct Inner {
    pub(crate) queues: Vec<Box<dyn Queue>>,
    pub(crate) stack: Stack,
    pub(crate) pool: Pool,
    pub(crate) clock: Clock,
    /// Addresses that shards may open connections to.
    pub(crate) reach: PortalReach,
    /// Where shortages are counted, for reports and warnings.
    pub(crate) mailbox: Arc<ControlMailbox>,
}

pub(super) struct Door {
    pub(super) listener: TcpListener,
    /// Set when a client may be waiting there.
    pub(super) ready: bool,
}

/// Set while all doors are closing.
struct Closing {
    /// Time until which handshakes that have begun are waited for.
    until: Instant,
    /// Reports, when it is dropped, that all clients are in.
    _last: LastIn,
}

/// Plain counters, read by tests and the report at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: u64,
    pub(super) finished: u64,
    pub(super) broken: u64,
    pub(super) refused_inside: u64,
    pub(super) other_source_port: u64,
    pub(super) accept_failed: u64,
    pub(super) full: u64,
    /// Connections that shards opened.
    pub(super) opened: u64,
    /// Those that the kernel could not open.
    pub(super) failed_outside: u64,
    /// Those refused because the target was beyond the portal's reach.
    pub(super) out_of_reach: u64,
    /// Those that the shard did not wait for.
    pub(super) given_up: u64,
}

/// A slot's user, which has a kernel connection.
pub(super) enum Passage {
    /// Bytes move. With the flow, where a shard opened it.
    Open(Bridge, Option<FlowKey>),
    /// A shard opens it, and one of its two ends is not established yet.
    Opening(Opening),
}

pub(super) struct Carrier {
    pub(super) inner: Inner,
    commands: Receiver<Command>,
    doorbell: Arc<Doorbell>,
    epoll: Epoll,
    pub(super) doors: HashMap<DoorId, Door>,
    pub(super) passages: Vec<Option<Passage>>,
    pub(super) free: Vec<u32>,
    /// Slots of passages with something to do; a slot is listed at most a few times.
    pub(super) work: VecDeque<u32>,
    pub(super) exits: Exits,
    spare: Spare,
    arrived: Batch,
    pub(super) frames: Vec<Frame>,
    /// Empty between calls; kept so that no call allocates.
    pub(super) sifted: Vec<Frame>,
    leaving: Batch,
    done: Batch,
    scratch: Scratch,
    /// Number of bridges of the kernel's clients whose inner connections are not established yet.
    entering: usize,
    /// Set once all doors are to close.
    closing: Option<Closing>,
    pub(super) counters: Counters,
    ended: bool,
}

impl Carrier {
    pub(super) fn new(
        inner: Inner,
        commands: Receiver<Command>,
        doorbell: Arc<Doorbell>,
    ) -> io::Result<Carrier> {
        let epoll = Epoll::new()?;
        epoll.watch_level(&*doorbell, Source::Doorbell)?;
        for queue in &inner.queues {
            if let Some(fd) = queue.wait_fd() {
                epoll.watch_level(fd, Source::Wire)?;
            }
        }
        Ok(Carrier {
            exits: Exits::new(inner.reach.clone()),
            spare: Spare::new(),
            inner,
            commands,
            doorbell,
            epoll,
            doors: HashMap::new(),
            passages: Vec::new(),
            free: Vec::new(),
            work: VecDeque::new(),
            arrived: Batch::new(),
            frames: Vec::with_capacity(BURST),
            sifted: Vec::with_capacity(BURST),
            leaving: Batch::new(),
            done: Batch::new(),
            scratch: Scratch::new(),
            entering: 0,
            closing: None,
            counters: Counters::default(),
            ended: false,
        })
    }

    /// Runs until told to end.
    pub(super) fn run(mut self) {
        while !self.ended {
            let busy = self.turn();
            if let Err(error) = self.sleep(busy) {
                eprintln!("janus: the portal ends: {error}");
                return;
            }
        }
        // The shards are gone; their last segments, resets above all, are still on the wire.
        let _all = (0..LAST_TURNS).all(|_| self.turn());
        // Connections may go on inside, as those of a daemon's members do: their clients have not heard all.
        for passage in self.passages.iter().flatten() {
            if let Passage::Open(bridge, _) = passage {
                bridge.is_left();
            }
        }
    }

    /// Makes one pass over everything; returns whether anything moved.
    pub(super) fn turn(&mut self) -> bool {
        let now = self.inner.clock.now();
        let arrived = self.take_frames(now);
        while let Some(token) = self.inner.stack.pop_ready() {
            if !self.admit(token, now) {
                self.work.push_back(token.0);
            }
        }
        self.give_up_overdue(now);
        let accepted = self.open_doors(now);
        let moved = self.pump_passages(now);
        self.close_doors(now);
        self.inner.stack.advance(now);
        let sent = self.send_frames(now);
        arrived || accepted || moved || sent
    }

    fn take_frames(&mut self, now: Instant) -> bool {
        let mut any = false;
        for queue in &mut self.inner.queues {
            queue.rx_burst(&mut self.inner.pool, &mut self.arrived);
            any |= !self.arrived.is_empty();
            self.frames.extend(self.arrived.pull());
        }
        self.sift();
        self.inner.stack.input(now, &mut self.frames, &mut Local);
        any
    }

    fn send_frames(&mut self, now: Instant) -> bool {
        let Inner {
            queues,
            stack,
            pool,
            ..
        } = &mut self.inner;
        let complaints = &mut self.exits.complaints;
        let fit = complaints.len().min(self.leaving.room());
        self.leaving.extend(complaints.drain(..fit));
        stack.transmit(now, &mut self.frames, self.leaving.room());
        self.leaving.extend(self.frames.drain(..));
        if self.leaving.is_empty() {
            return false;
        }
        let before = self.leaving.len();
        queues[0].tx_burst(pool, &mut self.leaving, &mut self.done);
        for frame in self.done.pull() {
            stack.completed(frame);
        }
        self.leaving.len() < before || stack.wants_transmit() || !complaints.is_empty()
    }

    fn open_doors(&mut self, now: Instant) -> bool {
        let mut any = false;
        let ready: Vec<DoorId> = self
            .doors
            .iter()
            .filter(|(_, door)| door.ready)
            .map(|(id, _)| *id)
            .collect();
        for id in ready {
            for _ in 0..ACCEPTS_PER_TURN {
                if !self.accept(now, id) {
                    break;
                }
                any = true;
            }
        }
        any
    }

    /// Accepts one client at a door; returns whether there may be more.
    fn accept(&mut self, now: Instant, id: DoorId) -> bool {
        let Some(slot) = self.free_slot() else {
            if let Some(door) = self.doors.get_mut(&id) {
                door.ready = spare::somebody_waits(&door.listener);
                if door.ready {
                    self.is_full();
                }
            }
            return false;
        };
        let accepted = self.accept_into(now, id, slot);
        if self.passages[slot as usize].is_none() {
            self.free.push(slot);
        }
        accepted
    }

    /// Counts a connection for which there is no slot.
    pub(super) fn is_full(&mut self) {
        self.counters.full += 1;
        self.inner.mailbox.portal_full();
    }

    /// Returns an empty slot for one more passage, for the caller to fill or to give back; `None` when all are in use.
    pub(super) fn free_slot(&mut self) -> Option<u32> {
        if self.free.is_empty() && self.passages.len() < BRIDGES_MAX {
            self.passages.push(None);
            self.free.push((self.passages.len() - 1) as u32);
        }
        self.free.pop()
    }

    fn accept_into(&mut self, now: Instant, id: DoorId, slot: u32) -> bool {
        let Some(door) = self.doors.get_mut(&id) else {
            return false;
        };
        let (kernel, client) = match door.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                door.ready = false;
                return false;
            }
            Err(error) => return self.accept_failed(now, id, &error),
        };
        self.spare.relieved();
        self.counters.accepted += 1;
        match self.open_inside(now, client, id.port) {
            Ok(conn) if self.watch(&kernel, slot).is_ok() => {
                let bridge = Bridge::new(kernel, conn, Token(slot));
                self.passages[slot as usize] = Some(Passage::Open(bridge, None));
                self.work.push_back(slot);
                self.entering += 1;
            }
            // The kernel has no memory to watch it.
            Ok(conn) => {
                self.counters.accept_failed += 1;
                self.inner.stack.abort(now, conn);
                reset_on_drop(&kernel);
            }
            Err(_) => {
                self.counters.refused_inside += 1;
                reset_on_drop(&kernel);
            }
        }
        true
    }

    /// Returns whether there may be more clients at a door where one could not be accepted. If not, the door stays ready, unless no client
    /// waits there, and is tried again after [`RETRY`].
    fn accept_failed(&mut self, now: Instant, id: DoorId, error: &io::Error) -> bool {
        self.counters.accept_failed += 1;
        let short = matches!(outgoing::errno(error), Some(Errno::MFILE | Errno::NFILE));
        let Some(door) = self.doors.get_mut(&id).filter(|_| short) else {
            return false;
        };
        let mailbox = &self.inner.mailbox;
        mailbox.no_descriptor();
        let waiting = self.spare.turn_away(now, &door.listener);
        door.ready = waiting != Waiting::Nobody;
        let turned_away = waiting == Waiting::TurnedAway;
        let reset = &mailbox.shortages().clients_reset;
        reset.add_shared(u64::from(turned_away));
        turned_away
    }

    pub(super) fn watch(&self, kernel: &TcpStream, slot: u32) -> io::Result<()> {
        kernel.set_nonblocking(true)?;
        // Bytes are passed on as they come; the kernel need not hold them back a second time.
        kernel.set_nodelay(true)?;
        self.epoll.watch_edge(kernel, Source::Bridge(slot))
    }

    /// Opens the inner connection from the client's own address, with its own port where that is free.
    fn open_inside(
        &mut self,
        now: Instant,
        client: SocketAddr,
        port: u16,
    ) -> Result<ConnId, Error> {
        let loopback = match client {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        let server = SocketAddr::new(loopback, port);
        let stack = &mut self.inner.stack;
        match stack.connect(now, client, server) {
            Err(Error::AddrInUse) => {}
            other => return other,
        }
        self.counters.other_source_port += 1;
        for step in 1..=OTHER_PORTS {
            // The kernel hands out even and odd ports for different purposes, near each other: go far away.
            let other =
                1024 + client.port().wrapping_add(step.wrapping_mul(12_289)) % (u16::MAX - 1024);
            match stack.connect(now, SocketAddr::new(client.ip(), other), server) {
                Err(Error::AddrInUse) => {}
                other => return other,
            }
        }
        Err(Error::AddrInUse)
    }

    fn pump_passages(&mut self, now: Instant) -> bool {
        let mut any = false;
        for _ in 0..self.work.len() {
            let Some(slot) = self.work.pop_front() else {
                break;
            };
            let Some(Some(passage)) = self.passages.get_mut(slot as usize) else {
                continue;
            };
            any = true;
            let Passage::Open(bridge, flow) = passage else {
                self.advance_opening(slot, now);
                continue;
            };
            let was_entering = flow.is_none() && bridge.is_entering();
            let verdict = bridge.pump(now, &mut self.inner.stack, &mut self.scratch);
            let over = matches!(verdict, Verdict::Finished | Verdict::Broken);
            if was_entering && (over || !bridge.is_entering()) {
                self.entering -= 1;
            }
            match verdict {
                Verdict::Wait => continue,
                Verdict::Again => {
                    self.work.push_back(slot);
                    continue;
                }
                Verdict::Finished => self.counters.finished += 1,
                Verdict::Broken => self.counters.broken += 1,
            }
            if let Some(flow) = flow {
                self.exits.forget(flow);
            }
            self.passages[slot as usize] = None;
            self.free.push(slot);
        }
        any
    }

    /// Waits for the next event or deadline, or, if this turn was `busy`, only looks.
    pub(super) fn sleep(&mut self, busy: bool) -> io::Result<()> {
        let armed =
            !busy && self.work.is_empty() && self.inner.queues.iter_mut().all(|queue| queue.arm());
        let timeout = if armed {
            self.until_deadline()
        } else {
            Some(Duration::ZERO)
        };
        let Carrier {
            epoll,
            passages,
            doors,
            work,
            doorbell,
            ..
        } = self;
        let mut rung = false;
        epoll.wait(
            timeout,
            |Change {
                 source,
                 readable,
                 writable,
                 broken,
             }| match source {
                Source::Doorbell => rung = true,
                Source::Wire => {}
                Source::Door(id) => {
                    if let Some(door) = doors.get_mut(&id) {
                        door.ready = true;
                    }
                }
                // Only marked here: no slot changes hands while events of one call are read.
                Source::Bridge(slot) => {
                    if let Some(Some(passage)) = passages.get_mut(slot as usize) {
                        if let Passage::Open(bridge, _) = passage {
                            bridge.changed(readable, writable, broken);
                        }
                        work.push_back(slot);
                    }
                }
            },
        )?;
        if rung {
            doorbell.silence();
            self.obey();
        }
        Ok(())
    }

    /// Closes the doors of `port`: no task listens there any more.
    fn close(&mut self, port: u16) {
        // All doors close soon, and clients of this port are on their way through its door.
        if self.closing.is_none() {
            self.doors.retain(|id, _| id.port != port);
        }
    }

    /// Begins to close all doors: refuses further handshakes, and waits for those that have begun.
    fn close_all(&mut self, last: LastIn) {
        let doors = self.doors.values();
        let refused = doors.map(|door| listen::refuse_handshakes(&door.listener));
        if let Some(error) = refused.filter_map(Result::err).next() {
            eprintln!(
                "janus: the portal may reset clients that come while its doors close: {error}"
            );
        }
        let now = self.inner.clock.now();
        let until = if self.doors.is_empty() {
            now
        } else {
            now + HANDSHAKES
        };
        self.closing = Some(Closing { until, _last: last });
    }

    /// Finishes what [`close_all`](Self::close_all) began, as far as it is time.
    fn close_doors(&mut self, now: Instant) {
        let Some(closing) = &self.closing else {
            return;
        };
        if closing.until > now {
            return;
        }
        let doors: Vec<DoorId> = self.doors.keys().copied().collect();
        for id in doors {
            for _ in 0..LAST_MAX {
                if !self.accept(now, id) {
                    break;
                }
            }
            self.doors.remove(&id);
        }
        if self.entering == 0 {
            self.closing = None;
        }
    }

    fn until_deadline(&self) -> Option<Duration> {
        let stack = self.inner.stack.next_deadline();
        let closing = self.closing.iter().map(|closing| closing.until);
        let closing = closing.filter(|_| !self.doors.is_empty());
        let timer = stack.into_iter().chain(self.exits.deadline());
        let timer = timer.chain(closing).min();
        let timer = timer.map(|at| at.saturating_since(self.inner.clock.now()));
        // A door where an accept failed has no event of its own.
        let retry = self.doors.values().any(|door| door.ready).then_some(RETRY);
        timer.into_iter().chain(retry).min()
    }

    fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Serve { door: id, listener } => {
                    let port = id.port;
                    match self.epoll.watch_edge(&listener, Source::Door(id)) {
                        Ok(()) => {
                            let ready = true;
                            self.doors.insert(id, Door { listener, ready });
                        }
                        Err(error) => {
                            eprintln!("janus: the portal cannot serve port {port}: {error}");
                        }
                    }
                }
                Command::Close { port } => self.close(port),
                Command::CloseAll(last) => self.close_all(last),
                Command::End => self.ended = true,
            }
        }
    }
}
