//! Our end as two stacks on one device: every few hundred packets all that the one has goes to the other as parcels, which has other
//! secrets, record numbers, neighbors and another clock; as handles and as bytes by turns. The device tells late which frames it is done
//! with, so that parcels leave buffers on its wire. What never lives here: what the wire must show (`repeats`).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use janus_io::{BURST, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_tcp::{Config, Instant, Interface, IpCidr, ListenerId, Local, Parcel, Secrets, Stack};
use janus_wire::{Class, Link, classify};

use crate::end::End;
use crate::exchange::{Job, PORT, Role};
use crate::space::Family;

/// Packets, in either direction, between two moves.
const BETWEEN_MOVES: u64 = 300;
/// Frames that the device is done with and has not told of.
const TOLD_LATE: usize = 40;
const BUFFERS: u32 = 16 * 1024;
/// The second stack's clock is ahead of the first's: wrapping milliseconds have gone round.
const AHEAD: Duration = Duration::from_millis((1 << 32) + 123_456);
/// The device is looked at after so long though it says nothing.
const NAP: Duration = Duration::from_millis(1);
/// Our own port where we open.
const OWN_PORT: u16 = 40_001;

/// A move, by places in our stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    /// First byte that was not acknowledged.
    pub(crate) from: u64,
    /// End of those that were sent.
    pub(crate) to: u64,
}

/// Counts of what moved.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) moves: Vec<Move>,
    /// Moves of a connection with something queued, in flight, unread or timed.
    pub(crate) busy: u64,
    /// Moves while a loss was repaired.
    pub(crate) repairing: u64,
    /// Buffers that stayed on the wire.
    pub(crate) left_on_wire: u64,
    /// Timeouts and tail loss probes of both stacks.
    pub(crate) timeouts: u64,
    pub(crate) probes: u64,
    /// Whether our end got what it should.
    pub(crate) right: Option<bool>,
}

/// The two stacks, the device and the application, on one thread.
pub(crate) struct Movers {
    queue: Box<dyn Queue>,
    pool: Pool,
    stacks: [Stack; 2],
    listeners: Vec<ListenerId>,
    /// The stack that has the connection.
    at: usize,
    end: End,
    begin: std::time::Instant,
    packets: u64,
    /// Frames that the device has, by their memory, and whose they are.
    lent: HashMap<*const u8, usize>,
    done: VecDeque<Frame>,
    report: Report,
}

impl Report {
    pub(crate) fn assert_sound(&self, label: &str) {
        assert_eq!(self.right, Some(true), "{label}: {self:?}");
        let moves = self.moves.len() as u64;
        // Enough of each kind to have tried something.
        let tried = moves >= 10 && self.busy * 2 > moves && self.left_on_wire > 0;
        assert!(tried, "{label}: {self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            moves,
            busy,
            repairing,
            left_on_wire,
            timeouts,
            probes,
            right,
        } = self;
        let moves = moves.len();
        write!(
            f,
            "{moves} moves, {busy} busy, {repairing} repairing, {left_on_wire} buffers left on the wire, {timeouts} timeouts, \
             {probes} probes, right: {right:?}"
        )
    }
}

impl Movers {
    pub(crate) fn new(queue: Box<dyn Queue>, family: Family, role: Role, job: Job) -> Movers {
        let (ours, kernels) = family.addresses();
        let depot = Depot::new(BUFFERS, &Growth::Inline).expect("memory");
        let mut interface = Interface::ip(queue.caps().mtu);
        interface.link = Link::Ethernet;
        interface.mac = queue.caps().mac.expect("a link with addresses");
        interface.any_local = false;
        interface.addresses = vec![IpCidr::new(ours, family.prefix())];
        let stack = |seed| {
            let (config, interface) = (Config::default(), interface.clone());
            let secrets = Secrets::from_seed(seed);
            let stack = Stack::new(config, interface, secrets, depot.pool(), &Growth::Inline);
            stack.expect("memory")
        };
        let mut movers = Movers {
            pool: depot.pool(),
            stacks: [stack(1), stack(2)],
            listeners: Vec::new(),
            at: 0,
            end: End::new(role, job),
            begin: std::time::Instant::now(),
            packets: 0,
            lent: HashMap::new(),
            done: VecDeque::new(),
            report: Report::default(),
            queue,
        };
        movers.count_otherwise(ours, kernels);
        match role {
            Role::KernelConnects => {
                let here: SocketAddr = (ours, PORT).into();
                let listeners = movers.stacks.iter_mut().map(|stack| stack.listen(here, 8));
                movers.listeners = listeners
                    .map(|listener| listener.expect("a free port"))
                    .collect();
            }
            Role::KernelListens => {
                let (local, remote) = ((ours, OWN_PORT), (kernels, PORT));
                let now = movers.now(0);
                let conn = movers.stacks[0].connect(now, local, remote);
                movers.end.conn = Some(conn.expect("a free port"));
            }
        }
        movers
    }

    /// Records and blocks of the second stack have other numbers: the last that was given back is the next that is taken.
    fn count_otherwise(&mut self, ours: IpAddr, kernels: IpAddr) {
        let (now, stack) = (self.now(1), &mut self.stacks[1]);
        let open = |port| stack.connect(now, (ours, OWN_PORT + port), (kernels, port));
        let conns: Vec<_> = (1..4).map(open).collect();
        for conn in conns {
            stack.abort(now, conn.expect("room"));
        }
    }

    /// Works until it is told that all is over.
    pub(crate) fn run(mut self, over: &Arc<AtomicBool>) -> Report {
        while !over.load(Ordering::Relaxed) {
            let moved = self.turn();
            if self.packets >= BETWEEN_MOVES {
                self.packets = 0;
                self.move_all();
            }
            if !moved {
                self.tell_done(0);
                self.nap();
            }
        }
        self.report.right = self.end.right;
        for counters in self.stacks.iter().map(Stack::counters) {
            self.report.timeouts += counters.timeouts;
            self.report.probes += counters.tail_probes;
        }
        self.report
    }

    fn now(&self, stack: usize) -> Instant {
        let ahead = if stack == 0 { Duration::ZERO } else { AHEAD };
        Instant::from_millis(1_000_000) + self.begin.elapsed() + ahead
    }

    /// Whether anything came or went.
    fn turn(&mut self) -> bool {
        let came = self.receive();
        for stack in 0..2 {
            let now = self.now(stack);
            self.stacks[stack].advance(now);
        }
        let (at, now) = (self.at, self.now(self.at));
        if let Some(listener) = self.listeners.get(at)
            && let Ok((conn, _)) = self.stacks[at].accept(*listener)
        {
            self.end.conn = Some(conn);
        }
        self.end.step(&mut self.stacks[at], now);
        let mut went = false;
        for stack in 0..2 {
            went |= self.send(stack);
            while self.stacks[stack].pop_ready().is_some() {}
        }
        came || went
    }

    fn receive(&mut self) -> bool {
        let mut batch = Batch::new();
        self.queue.rx_burst(&mut self.pool, &mut batch);
        let (mut here, mut there) = (Vec::new(), Vec::new());
        batch.append_to(&mut here);
        self.packets += here.len() as u64;
        for frame in &here {
            // Each asks for neighbors itself, and is asked.
            if !is_tcp(frame.data())
                && let Some(mut buf) = self.pool.alloc()
            {
                let off = usize::from(buf.off());
                buf.bytes_mut()[off..off + frame.data().len()].copy_from_slice(frame.data());
                there.push(Frame::new(buf, frame.data().len() as u16));
            }
        }
        let came = !here.is_empty();
        let (at, other) = (self.at, 1 - self.at);
        let (now, then) = (self.now(at), self.now(other));
        self.stacks[at].input(now, &mut here, &mut Local);
        self.stacks[other].input(then, &mut there, &mut Local);
        came
    }

    fn send(&mut self, stack: usize) -> bool {
        let mut out = Vec::new();
        let now = self.now(stack);
        self.stacks[stack].transmit(now, &mut out, BURST);
        let went = !out.is_empty();
        self.packets += out.len() as u64;
        let mut batch = Batch::new();
        for frame in out {
            if frame.is_lent() {
                self.lent.insert(place(&frame), stack);
            }
            assert!(batch.push(frame).is_ok(), "no more than fit");
        }
        // With nothing to send too: the device may be done with what it took before.
        loop {
            let (mut done, mut told) = (Batch::new(), Vec::new());
            self.queue.tx_burst(&mut self.pool, &mut batch, &mut done);
            done.append_to(&mut told);
            self.done.extend(told);
            self.tell_done(TOLD_LATE);
            if batch.is_empty() {
                return went;
            }
        }
    }

    /// Frames that the device is done with go home, but for the latest `kept`.
    fn tell_done(&mut self, kept: usize) {
        while self.done.len() > kept
            && let Some(frame) = self.done.pop_front()
        {
            let whose = self.lent.remove(&place(&frame));
            self.stacks[whose.expect("it was lent")].completed(frame);
        }
        // To where its connection is by now; that may be back again.
        while let Some((home, to)) = self.homecoming() {
            self.stacks[to].comes_home(home.ticket, home.buf);
        }
    }

    fn homecoming(&mut self) -> Option<(janus_tcp::Homecoming, usize)> {
        let mut stacks = self.stacks.iter_mut();
        let home = stacks.find_map(Stack::pop_homecoming)?;
        let to = usize::from(home.to);
        Some((home, to))
    }

    /// All that the one stack has goes to the other.
    fn move_all(&mut self) {
        let (from, to) = (self.at, 1 - self.at);
        let (then, now) = (self.now(from), self.now(to));
        if let Some(conn) = self.end.conn
            && let Ok(info) = self.stacks[from].info(conn)
        {
            let sent = self.end.written - u64::from(info.unsent);
            let from = sent.saturating_sub(u64::from(info.in_flight));
            self.report.moves.push(Move { from, to: sent });
            self.report.repairing += u64::from(info.recovering || info.lost_segments > 0);
        }
        let mut parcels = Vec::new();
        if let Some(conn) = self.end.conn
            && let Ok(mine) = self.stacks[from].detach(then, conn, to as u16)
        {
            parcels.push(mine.parcel);
        }
        let mut flows = Vec::new();
        self.stacks[from].visit_flows(0, usize::MAX >> 1, |flow| flows.push(*flow));
        for flow in flows {
            let left = self.stacks[from].detach_flow(then, &flow, to as u16);
            parcels.push(left.expect("a flow").parcel);
        }
        let in_bytes = self.report.moves.len().is_multiple_of(2);
        for parcel in parcels {
            self.report.busy += u64::from(!parcel.is_idle());
            self.report.left_on_wire += parcel.tickets().count() as u64;
            let mut parcel = match in_bytes {
                true => by_bytes(&parcel, self.stacks[to].pool()),
                false => parcel,
            };
            let owned = parcel.is_owned();
            parcel.rebase(now);
            let adopted = self.stacks[to].adopt(now, parcel);
            let conn = adopted.unwrap_or_else(|refused| panic!("{refused:?}"));
            if owned {
                self.end.conn = conn;
            }
        }
        for stack in &self.stacks {
            assert_eq!(stack.audit(), Ok(()));
        }
        assert_eq!(self.stacks[from].flows_held(), 0, "left behind");
        self.at = to;
    }

    fn nap(&self) {
        let Some(fd) = self.queue.wait_fd() else {
            return std::thread::sleep(NAP);
        };
        let mut fds = [rustix::event::PollFd::new(
            &fd,
            rustix::event::PollFlags::IN,
        )];
        let nap = rustix::time::Timespec::try_from(NAP).expect("a short time");
        let _ = rustix::event::poll(&mut fds, Some(&nap));
    }
}

fn is_tcp(frame: &[u8]) -> bool {
    matches!(
        classify(frame, Link::Ethernet),
        Class::Tcp4(_) | Class::Tcp6(_)
    )
}

fn place(frame: &Frame) -> *const u8 {
    frame.buf.bytes().as_ptr()
}

fn by_bytes(parcel: &Parcel, pool: &mut Pool) -> Parcel {
    let mut bytes = Vec::new();
    parcel.encode(&mut bytes);
    let read = Parcel::decode(&bytes, pool);
    read.unwrap_or_else(|error| panic!("{parcel:?}: {error}"))
}
