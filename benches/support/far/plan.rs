//! What the benchmark tells its far ends, and what they tell it: a phase that is switched, and counts. One writer
//! each, so that nothing here waits.

use super::again::Waiting;
use super::idle::Firsts;
use super::pace::{Due, Sample, Since, due, room_for};
use crate::support::witness::Record;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// What the far ends do until told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Answer what comes, begin nothing.
    Idle,
    /// Open connections, make one request on each, and leave them open and idle.
    Open,
    /// One short connection after the other: SYN, request, response, FIN.
    Short,
    /// Request after request on the open connections in turn.
    Requests,
    /// Close the open connections.
    Close,
}

/// A phase: what to do, and how much of it at a time.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub mode: Mode,
    /// Connections or requests in progress at a time, over all far ends.
    pub window: u32,
    /// Connections to hold in the end ([`Mode::Open`]).
    pub held: u32,
}

/// Shared by the benchmark and all far ends of a device.
pub struct Plan {
    epoch: AtomicU64,
    phase: Mutex<Phase>,
    next_held: AtomicU32,
    next_short: AtomicU32,
    /// Short connections take the numbers from here on, in turn.
    short_first: u32,
    short_span: u32,
    pub ends: Vec<EndCounts>,
    /// What the moments of paced connections count from.
    pub origin: Instant,
    /// Added to that where the server's time is not the machine's.
    shift: OnceLock<&'static AtomicI64>,
    /// Bits of the rate at which short connections come; nothing: as soon as others have ended.
    rate: AtomicU64,
    /// Room for the samples of the next paced phase, at each far end.
    rooms: Mutex<Vec<Vec<Sample>>>,
    /// Everything that the window allows is begun at once.
    interleaved: AtomicBool,
    /// What the server ends twice, as it sends again, counts once.
    once: AtomicBool,
    /// A tenth of the HTTP requests come in two segments.
    in_pieces: AtomicBool,
    samples: Mutex<Vec<Sample>>,
    /// How the far ends, and who else watches, saw the clock go on in a paced phase.
    records: Mutex<Vec<Record>>,
    /// Watchers beside the far ends.
    pub watchers: AtomicU32,
    /// Bytes in which the far ends keep the connections that are held.
    held_bytes: AtomicU64,
    /// Bytes of a response where that must be learned; 0 while unknown.
    pub response_len: AtomicU32,
    /// Firsts of many connections, for all far ends; made when the first asks.
    firsts: OnceLock<Firsts>,
    /// When what is under way in a paced phase was due, by connection.
    due: OnceLock<Due>,
    /// On which connections a request that came at a rate is under way.
    waiting: OnceLock<Waiting>,
    wake: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

/// Counts of one far end, written by it alone.
#[repr(align(128))]
#[derive(Default)]
pub struct EndCounts {
    cells: [AtomicU64; KINDS],
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// Nanoseconds spent inside the far end.
    InsideNs,
    /// Frames handed to the server.
    FramesIn,
    /// Frames the server sent.
    FramesOut,
    /// Connections, requests and closings begun.
    Begun,
    /// The same, ended well.
    Ended,
    /// Segments of the server that only acknowledge.
    PureAcks,
    /// Requests sent again for want of an answer.
    Again,
    /// Bytes of answers that may come in several segments.
    AnswerBytes,
    /// Wrong: a checksum.
    BadChecksum,
    /// Wrong: a sequence or acknowledgement number.
    BadSequence,
    /// Wrong: a payload.
    BadPayload,
    /// Wrong: a reset.
    Reset,
    /// Wrong: anything else.
    BadOther,
}

const KINDS: usize = Kind::BadOther as usize + 1;

/// A reading of the counts, summed over all far ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts([u64; KINDS]);

impl Counts {
    pub fn get(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    pub fn add(&mut self, kind: Kind, n: u64) {
        self.0[kind as usize] += n;
    }

    pub fn add_all(&mut self, others: &Self) {
        self.0.iter_mut().zip(&others.0).for_each(|(a, b)| *a += b);
    }

    pub fn since(&self, earlier: &Self) -> Self {
        let mut out = *self;
        out.0
            .iter_mut()
            .zip(&earlier.0)
            .for_each(|(now, then)| *now -= then);
        out
    }

    /// All wrong answers.
    pub fn bad(&self) -> u64 {
        use Kind::{BadChecksum, BadOther, BadPayload, BadSequence, Reset};
        [BadChecksum, BadSequence, BadPayload, Reset, BadOther]
            .iter()
            .map(|&kind| self.get(kind))
            .sum()
    }

    pub fn in_progress(&self) -> u64 {
        self.get(Kind::Begun).wrapping_sub(self.get(Kind::Ended))
    }
}

impl EndCounts {
    pub fn publish(&self, counts: &Counts) {
        for (cell, value) in self.cells.iter().zip(counts.0) {
            cell.store(value, Ordering::Relaxed);
        }
    }
}

impl Plan {
    /// For `ends` far ends; the first `held_max` connection numbers are for held connections.
    pub fn new(ends: usize, held_max: u32) -> Self {
        let idle = Phase {
            mode: Mode::Idle,
            window: 0,
            held: 0,
        };
        let left = super::packet::CONNECTIONS_MAX - held_max;
        Self {
            epoch: AtomicU64::new(0),
            phase: Mutex::new(idle),
            next_held: AtomicU32::new(0),
            next_short: AtomicU32::new(0),
            short_first: held_max,
            short_span: left,
            ends: (0..ends).map(|_| EndCounts::default()).collect(),
            origin: Instant::now(),
            shift: OnceLock::new(),
            rate: AtomicU64::new(0),
            rooms: Mutex::new(Vec::new()),
            interleaved: AtomicBool::new(false),
            once: AtomicBool::new(false),
            in_pieces: AtomicBool::new(false),
            samples: Mutex::new(Vec::new()),
            records: Mutex::new(Vec::new()),
            watchers: AtomicU32::new(0),
            held_bytes: AtomicU64::new(0),
            response_len: AtomicU32::new(0),
            firsts: OnceLock::new(),
            due: OnceLock::new(),
            waiting: OnceLock::new(),
            wake: Mutex::new(Vec::new()),
        }
    }

    /// Switches the phase and wakes sleeping servers. What is in progress goes on to its end.
    pub fn set(&self, phase: Phase) {
        *self.phase.lock().expect("no holder panics") = phase;
        self.epoch.fetch_add(1, Ordering::Release);
        for wake in self.wake.lock().expect("no holder panics").iter() {
            wake();
        }
    }

    /// From the next phase on, which lasts so long, short connections come at this rate, over all far ends; at 0.0 as soon as
    /// others have ended.
    pub fn set_rate(&self, per_second: f64, time: Duration) {
        // Answers may all come to one end.
        let samples = (per_second * time.as_secs_f64()) as usize;
        let rooms = (0..self.ends.len()).map(|_| room_for(samples));
        *self.rooms.lock().expect("no holder panics") = rooms.collect();
        self.rate.store(per_second.to_bits(), Ordering::Relaxed);
    }

    /// Room for a far end's samples of a paced phase.
    pub fn take_room(&self) -> Vec<Sample> {
        let mut rooms = self.rooms.lock().expect("no holder panics");
        rooms.pop().unwrap_or_default()
    }

    pub fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// The server's time is the machine's with this added.
    pub fn shift_by(&self, shift: &'static AtomicI64) {
        let _first = self.shift.set(shift);
    }

    /// The server's time.
    pub fn since(&self) -> Since {
        Since {
            origin: self.origin,
            shift: self.shift.get().copied(),
        }
    }

    /// From the next phase on, the window is always full: each connection waits for the packets of all others before its
    /// next one. Otherwise a far end begins only as much as it has room to send, and fewer are in progress.
    pub fn set_interleaved(&self) {
        self.interleaved.store(true, Ordering::Relaxed);
    }

    /// From the next phase on, a tenth of the HTTP requests come in two segments, with whatever others have to say in between.
    pub fn set_in_pieces(&self) {
        self.in_pieces.store(true, Ordering::Relaxed);
    }

    /// From the next phase on, a connection that ends or is answered twice counts once: where the far end has a thread of its own, a
    /// server whose timers run out while that stands still sends again.
    pub fn set_once(&self) {
        self.once.store(true, Ordering::Relaxed);
    }

    /// Where it is known what is under way, if what ends twice counts once.
    pub fn once(&self) -> Option<Waiting> {
        let is_wanted = self.once.load(Ordering::Relaxed);
        is_wanted.then(|| Waiting::none(super::packet::CONNECTIONS_MAX))
    }

    pub fn is_in_pieces(&self) -> bool {
        self.in_pieces.load(Ordering::Relaxed)
    }

    pub fn is_interleaved(&self) -> bool {
        self.interleaved.load(Ordering::Relaxed)
    }

    /// The handshakes of a paced phase at one far end, when it is over; none from a watcher.
    pub fn hand_in(&self, samples: Vec<Sample>, record: Record) {
        self.samples
            .lock()
            .expect("no holder panics")
            .extend(samples);
        self.records.lock().expect("no holder panics").push(record);
    }

    /// Waits until every far end and watcher has handed in what the paced phase before this one gave; what that was.
    pub fn take_samples(&self, limit: Duration) -> (Vec<Sample>, Vec<Record>) {
        let start = Instant::now();
        let all = self.ends.len() + self.watchers.load(Ordering::Relaxed) as usize;
        while self.records.lock().expect("no holder panics").len() < all {
            assert!(start.elapsed() < limit, "somebody does not hand in");
            std::thread::sleep(Duration::from_millis(1));
        }
        (
            std::mem::take(&mut self.samples.lock().expect("no holder panics")),
            std::mem::take(&mut self.records.lock().expect("no holder panics")),
        )
    }

    /// Something to do when the phase changes.
    pub fn on_change(&self, wake: Box<dyn Fn() + Send>) {
        self.wake.lock().expect("no holder panics").push(wake);
    }

    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub fn phase(&self) -> Phase {
        *self.phase.lock().expect("no holder panics")
    }

    /// The next connection to open and hold, below `limit`.
    #[inline]
    pub fn take_held(&self, limit: u32) -> Option<u32> {
        if self.next_held.load(Ordering::Relaxed) >= limit {
            return None;
        }
        let conn = self.next_held.fetch_add(1, Ordering::Relaxed);
        // Another far end may have taken the last one in between: then the number is lost, which harms nobody.
        (conn < limit).then_some(conn)
    }

    /// How many connections to be held were begun.
    pub fn held_begun(&self) -> u32 {
        self.next_held.load(Ordering::Relaxed)
    }

    /// A far end keeps the connections that are held in so many bytes.
    pub fn keeps(&self, bytes: usize) {
        self.held_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes in which all far ends keep the connections that are held, whether there are any yet or not.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Room for the first sequence numbers of so many connections, which is touched now.
    pub fn firsts(&self, held_max: u32) -> Firsts {
        let make = || {
            let firsts: Firsts = (0..held_max).map(|_| AtomicU32::new(1)).collect();
            firsts.iter().for_each(|it| it.store(0, Ordering::Relaxed));
            firsts
        };
        self.firsts.get_or_init(make).clone()
    }

    /// When what is under way was due.
    pub fn due(&self) -> Due {
        self.due.get_or_init(due).clone()
    }

    /// On which of the held connections a request is under way.
    pub fn waiting(&self) -> Waiting {
        let none = || Waiting::none(self.short_first);
        self.waiting.get_or_init(none).clone()
    }

    /// The number of the next short connection.
    #[inline]
    pub fn take_short(&self) -> u32 {
        self.short_first + self.next_short.fetch_add(1, Ordering::Relaxed) % self.short_span
    }

    /// Whether a connection is one of those that are held.
    #[inline]
    pub fn is_held(&self, conn: u32) -> bool {
        conn < self.short_first
    }

    /// All counts.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for end in &self.ends {
            for (total, cell) in sum.0.iter_mut().zip(&end.cells) {
                *total += cell.load(Ordering::Relaxed);
            }
        }
        sum
    }

    /// What may be begun yet where so many may be under way at all ends together.
    pub fn room(&self, window: u32) -> usize {
        let sum = |kind: Kind| {
            let all = self.ends.iter().map(|end| &end.cells[kind as usize]);
            all.map(|cell| cell.load(Ordering::Relaxed)).sum::<u64>()
        };
        // In this order: what begins or ends meanwhile takes room away, and gives none that there is not.
        let (ended, begun) = (sum(Kind::Ended), sum(Kind::Begun));
        u64::from(window).saturating_sub(begun.saturating_sub(ended)) as usize
    }

    /// Waits until everything begun has ended, at most `limit`. False when something never did.
    pub fn settle(&self, limit: Duration) -> bool {
        let start = Instant::now();
        while self.counts().in_progress() != 0 {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}
