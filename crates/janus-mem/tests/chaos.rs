//! Several threads do with packet buffers all that is allowed, and what happens to programs: take, keep, stamp, pass on,
//! lend and get back, free here or elsewhere, drop, hand over as numbers, run dry, change the reserve, lose a pool, panic
//! with buffers in hand. In the end every buffer is accounted for, none had two owners, none was written by a stranger.
//! Seeded: what a thread decides follows from the seed that is printed, `JANUS_CHAOS_SEED` repeats it.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use janus_mem::{Depot, Frame, Growth, LENT, PacketBuf, Pool, RESERVE_MAX, Toucher};
use janus_seeds::Random;

const THREADS: usize = 4;
const STEPS: usize = if cfg!(miri) { 200 } else { 60_000 };
/// Until all is settled, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(120);
/// Frames that can wait for a thread; what does not fit comes back to the sender, as from a ring.
const INBOX: usize = 64;

/// What goes from thread to thread.
enum Parcel {
    /// For the receiver to keep.
    Frame(Frame),
    /// A batch of numbers, as over memory shared with another process.
    Raw(Vec<u64>),
    /// Lent: to be given back, untouched, to the thread that the frame's key names.
    Lent(Frame),
    /// It was lent and comes back.
    Completed(Frame),
}

/// One thread's doings.
struct Worker {
    me: usize,
    depot: Arc<Depot>,
    pool: Pool,
    random: Random,
    held: Vec<(PacketBuf, u64)>,
    stamp: u64,
    /// Lent and not back yet.
    lent: usize,
    /// Others' that did not fit on the way back; their lenders wait for them.
    owed: Vec<Frame>,
    inbox: Receiver<Parcel>,
    others: Vec<SyncSender<Parcel>>,
    counts: Counts,
}

/// That it came to everything.
#[derive(Default, Debug)]
struct Counts {
    taken: u64,
    dry: u64,
    dropped: u64,
    passed: u64,
    refused: u64,
    completed: u64,
    panics: u64,
    pools: u64,
}

/// Where in a buffer its stamp stands: not where a free buffer keeps a list.
const AT: usize = 700;

fn stamped(mut buf: PacketBuf, stamp: u64) -> PacketBuf {
    buf.bytes_mut()[AT..AT + 8].copy_from_slice(&stamp.to_ne_bytes());
    buf.bytes_mut()[2040..].copy_from_slice(&stamp.to_ne_bytes());
    buf
}

fn check(buf: &PacketBuf, stamp: u64) {
    assert_eq!(
        (&buf.bytes()[AT..AT + 8], &buf.bytes()[2040..]),
        (&stamp.to_ne_bytes()[..], &stamp.to_ne_bytes()[..]),
        "somebody else wrote into {buf:?}"
    );
}

fn stamp_of(buf: &PacketBuf) -> u64 {
    let bytes = buf.bytes()[AT..AT + 8].try_into().unwrap();
    u64::from_ne_bytes(bytes)
}

impl Worker {
    fn keep(&mut self, buf: PacketBuf) {
        self.stamp += 1;
        let stamp = (self.me as u64 + 1) << 48 | self.stamp;
        self.held.push((stamped(buf, stamp), stamp));
        self.counts.taken += 1;
    }

    fn take(&mut self) {
        let wanted = 1 + self.random.below(40);
        let many = self.random.below(3) == 0;
        let mut got = Vec::new();
        if many {
            self.pool.alloc_many(wanted, &mut got);
        } else if self.random.below(4) == 0 {
            got.extend((0..wanted / 8).map_while(|_| self.pool.alloc_reserved()));
        } else {
            got.extend((0..wanted).map_while(|_| self.pool.alloc()));
        }
        self.counts.dry += u64::from(got.is_empty());
        got.into_iter().for_each(|buf| self.keep(buf));
    }

    /// Any buffer held, checked.
    fn pick(&mut self) -> Option<(PacketBuf, u64)> {
        let at = self.random.below(self.held.len());
        if self.held.is_empty() {
            return None;
        }
        let (buf, stamp) = self.held.swap_remove(at);
        check(&buf, stamp);
        Some((buf, stamp))
    }

    fn send(&mut self, to: usize, parcel: Parcel) {
        match self.others[to].try_send(parcel) {
            Ok(()) => self.counts.passed += 1,
            // A full ring: frames are freed, as an I/O core does; a lent one was never away.
            Err(TrySendError::Full(parcel) | TrySendError::Disconnected(parcel)) => {
                self.counts.refused += 1;
                match parcel {
                    Parcel::Frame(frame) => self.pool.free(frame.buf),
                    Parcel::Lent(frame) | Parcel::Completed(frame) => {
                        if usize::from(frame.key as u8) == self.me {
                            self.completed(frame);
                        } else {
                            self.owed.push(frame);
                        }
                    }
                    Parcel::Raw(numbers) => self.unpack(numbers),
                }
            }
        }
    }

    fn completed(&mut self, frame: Frame) {
        assert_eq!(usize::from(frame.key as u8), self.me, "somebody else's");
        self.lent -= 1;
        self.counts.completed += 1;
        let stamp = stamp_of(&frame.buf);
        assert_eq!(stamp >> 48, self.me as u64 + 1, "not what was lent");
        check(&frame.buf, stamp);
        self.pool.free(frame.buf);
    }

    fn unpack(&mut self, numbers: Vec<u64>) {
        for number in numbers {
            // SAFETY: made by `into_raw` in `give`, sent once, and its region lives as long as the test.
            let buf = unsafe { PacketBuf::from_raw(number) };
            check(&buf, stamp_of(&buf));
            self.pool.free(buf);
        }
    }

    fn receive(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Frame(frame) => {
                let stamp = stamp_of(&frame.buf);
                check(&frame.buf, stamp);
                match self.random.below(3) {
                    0 => self.held.push((frame.buf, stamp)),
                    1 => self.pool.free(frame.buf),
                    _ => drop(frame),
                }
            }
            Parcel::Raw(numbers) => self.unpack(numbers),
            Parcel::Lent(frame) => {
                assert!(frame.is_lent());
                self.owed.push(frame);
            }
            Parcel::Completed(frame) => self.completed(frame),
        }
    }

    fn give(&mut self) {
        let to = (self.me + 1 + self.random.below(THREADS - 1)) % THREADS;
        match self.random.below(3) {
            0 => {
                let picked: Vec<_> = (0..16).map_while(|_| self.pick()).collect();
                let numbers = picked.into_iter().map(|(buf, _)| buf.into_raw()).collect();
                self.send(to, Parcel::Raw(numbers));
            }
            1 => {
                let Some((buf, stamp)) = self.pick() else {
                    return;
                };
                if stamp >> 48 != self.me as u64 + 1 {
                    return self.pool.free(buf);
                }
                let mut frame = Frame::new(buf, 64);
                (frame.tag, frame.key) = (LENT, self.me as u32);
                self.lent += 1;
                self.send(to, Parcel::Lent(frame));
            }
            _ => {
                if let Some((buf, _)) = self.pick() {
                    self.send(to, Parcel::Frame(Frame::new(buf, 64)));
                }
            }
        }
    }

    /// Ends badly, with buffers in hand: they find home by themselves.
    fn panic(&mut self) {
        let hands: Vec<_> = (0..5).map_while(|_| self.pick()).collect();
        let ended = catch_unwind(AssertUnwindSafe(move || {
            let _hands = hands;
            std::panic::resume_unwind(Box::new("a task"));
        }));
        assert!(ended.is_err());
        self.counts.panics += 1;
    }

    fn pay(&mut self) {
        for frame in std::mem::take(&mut self.owed) {
            let lender = usize::from(frame.key as u8);
            self.send(lender, Parcel::Completed(frame));
        }
    }

    fn step(&mut self) {
        while let Ok(parcel) = self.inbox.try_recv() {
            self.receive(parcel);
        }
        self.pay();
        match self.random.below(100) {
            0..=29 => self.take(),
            30..=54 => {
                for _ in 0..self.random.below(24) {
                    if let Some((buf, _)) = self.pick() {
                        self.pool.free(buf);
                    }
                }
            }
            55..=64 => {
                self.counts.dropped += u64::from(self.pick().is_some());
            }
            65..=94 => self.give(),
            95 => self.pool.flush(),
            96 => {
                let reserve = self.random.below(RESERVE_MAX + 1);
                assert!(self.pool.set_reserve(reserve) <= reserve);
            }
            97 => {
                self.pool = self.depot.pool();
                self.counts.pools += 1;
            }
            98 => self.panic(),
            _ => std::thread::yield_now(),
        }
        assert!(self.depot.in_use() <= self.depot.capacity());
    }

    /// Steps, then takes what is its own until nobody waits for anything.
    fn run(mut self, settled: &AtomicUsize) -> Counts {
        (0..STEPS).for_each(|_| self.step());
        let (mut announced, begin) = (false, Instant::now());
        loop {
            // When a thread has failed the others must not wait for it.
            assert!(
                begin.elapsed() < PATIENCE,
                "{} lent and not back",
                self.lent
            );
            // Before the inbox is looked at: what was sent before the last one said so is in it.
            let over = settled.load(Ordering::Acquire) == THREADS;
            while let Ok(parcel) = self.inbox.try_recv() {
                self.receive(parcel);
            }
            self.pay();
            for (buf, stamp) in std::mem::take(&mut self.held) {
                check(&buf, stamp);
                self.pool.free(buf);
            }
            if !announced && self.lent == 0 {
                announced = true;
                settled.fetch_add(1, Ordering::Release);
            }
            if over {
                assert!(self.owed.is_empty(), "nobody waits any more");
                return self.counts;
            }
            std::thread::yield_now();
        }
    }
}

fn chaos(capacity: u32, growth: &Growth, seed: u64) {
    println!("seed {seed}");
    let depot = Depot::new(capacity, growth).unwrap();
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel(INBOX)).unzip();
    let settled = AtomicUsize::new(0);
    let counts: Vec<Counts> = std::thread::scope(|scope| {
        let threads: Vec<_> = inboxes
            .into_iter()
            .enumerate()
            .map(|(me, inbox)| {
                let worker = Worker {
                    me,
                    depot: depot.clone(),
                    pool: depot.pool(),
                    random: Random::new(seed ^ (me as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    held: Vec::new(),
                    stamp: 0,
                    lent: 0,
                    owed: Vec::new(),
                    inbox,
                    others: senders.clone(),
                    counts: Counts::default(),
                };
                let settled = &settled;
                scope.spawn(move || worker.run(settled))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a worker"))
            .collect()
    });
    account(&depot, capacity);
    for counts in &counts {
        let all = [
            counts.taken,
            counts.dropped,
            counts.passed,
            counts.completed,
            counts.panics,
            counts.pools,
        ];
        assert!(cfg!(miri) || all.iter().all(|&n| n > 0), "{counts:?}");
    }
    // A small depot runs dry and inboxes fill: the hard ways were gone too.
    assert!(cfg!(miri) || capacity > 4_000 || counts.iter().any(|counts| counts.dry > 0));
}

/// Every buffer is home, once, and can be had again.
fn account(depot: &Arc<Depot>, capacity: u32) {
    let stats = depot.stats();
    assert_eq!(
        (stats.free, stats.outstanding),
        (capacity as usize, 0),
        "{stats:?}"
    );
    let mut pool = depot.pool();
    let mut all = Vec::new();
    assert_eq!(pool.alloc_many(usize::MAX, &mut all), capacity as usize);
    let places: HashSet<_> = all.iter().map(|buf| buf.bytes().as_ptr()).collect();
    assert_eq!(places.len(), capacity as usize, "a buffer came back twice");
    all.into_iter().for_each(|buf| pool.free(buf));
    drop(pool);
    assert_eq!(depot.stats().outstanding, 0);
}

fn seed() -> u64 {
    let given = std::env::var("JANUS_CHAOS_SEED").ok();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| std::process::id().into())
}

#[test]
fn every_buffer_is_accounted_for_where_there_are_few() {
    for capacity in [17, 300, 1_000] {
        chaos(capacity, &Growth::Inline, seed());
    }
}

#[test]
fn every_buffer_is_accounted_for_while_memory_grows() {
    if cfg!(miri) {
        return;
    }
    chaos(20_000, &Growth::Ahead(Toucher::spawn().unwrap()), seed());
}
