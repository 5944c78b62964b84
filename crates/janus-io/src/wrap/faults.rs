//! A bad link between a device and who polls it: [`FaultyBackend`] wraps any backend and loses, doubles, spoils, holds back and
//! delays frames in both directions, as a seed decides, and counts what it did. For tests and trials, not for load.
//! Here are the wishes, the counters and the backend; what happens to one frame is `way.rs`, time on the link `line.rs`.

mod line;
mod queue;
mod way;

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::policy::ClockFn;
use crate::counter::Counter;
use crate::debug::opaque;
use crate::queue::{Backend, Caps, LossesFn, Queue};
use line::{Alarm, Cable};
use queue::Faulty;

/// Frames that are under way at a time, unless said otherwise.
pub const QUEUE: u16 = 1_000;
/// The longest way.
pub const DELAY_MAX: Duration = Duration::from_secs(60);

/// Faults of frames in one direction.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Seed: decides everything, together with the frames' order.
    pub seed: u64,
    /// Frames lost, of a thousand.
    pub loss: u16,
    /// Frames that arrive twice, of a thousand.
    pub duplicate: u16,
    /// Frames held back, of a thousand.
    pub reorder: u16,
    /// A frame held back is overtaken by up to so many others.
    pub distance: u16,
    /// In so many IP packets one bit is turned, so that a checksum tells. ARP, which has none, is left alone.
    pub corrupt: u16,
    /// How long each is under way.
    pub delay: Duration,
    /// And up to so much longer, drawn for each; none overtakes another by that.
    pub jitter: Duration,
    /// Rate of the link, in bits a second, all queues together; `None`: no limit.
    pub rate: Option<NonZeroU64>,
    /// Frames that each queue has under way or waiting for the link, at most; what comes beyond them is lost. It means
    /// something only with a delay or a rate.
    pub queue: u16,
}

impl Default for Faults {
    /// None.
    fn default() -> Self {
        Self {
            seed: 0,
            loss: 0,
            duplicate: 0,
            reorder: 0,
            distance: 1,
            corrupt: 0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            queue: QUEUE,
        }
    }
}

impl Faults {
    /// Nothing is done.
    #[must_use]
    pub fn is_none(&self) -> bool {
        let shares = [self.loss, self.duplicate, self.reorder, self.corrupt];
        shares == [0; 4] && !self.takes_time()
    }

    /// Frames spend time on the link.
    pub(crate) fn takes_time(&self) -> bool {
        !self.delay.is_zero() || !self.jitter.is_zero() || self.rate.is_some()
    }
}

/// Counts of what was done in one direction, over all queues.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct WayCounters {
    /// Frames that went on, each once.
    pub passed: Counter,
    /// Frames lost.
    pub lost: Counter,
    /// Copies made.
    pub duplicated: Counter,
    /// Frames held back.
    pub reordered: Counter,
    /// Frames in which a bit was turned.
    pub corrupted: Counter,
    /// Frames and copies, of those that had gone on, that the link had no room for.
    pub overflowed: Counter,
}

/// Counts of what was done in both directions.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct FaultCounters {
    /// To frames received.
    pub received: WayCounters,
    /// To frames sent.
    pub sent: WayCounters,
}

/// A backend all of whose queues have faults.
pub struct FaultyBackend {
    inner: Box<dyn Backend>,
    received: Faults,
    sent: Faults,
    clock: Option<Arc<ClockFn>>,
    counters: Arc<FaultCounters>,
}

opaque!(FaultyBackend);

impl FaultyBackend {
    /// Wraps a backend. The faults are the same in both directions.
    #[must_use]
    pub fn new(inner: Box<dyn Backend>, faults: Faults) -> Self {
        Self {
            inner,
            received: faults,
            sent: faults,
            clock: None,
            counters: Arc::default(),
        }
    }

    /// Other faults for what is received.
    #[must_use]
    pub fn with_received(mut self, faults: Faults) -> Self {
        self.received = faults;
        self
    }

    /// Other faults for what is sent.
    #[must_use]
    pub fn with_sent(mut self, faults: Faults) -> Self {
        self.sent = faults;
        self
    }

    /// Delays by this clock, in nanoseconds, instead of the machine's. A thread cannot sleep by it, so a polling core does not sleep while
    /// a frame is under way.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<ClockFn>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Returns the counters of the faults; they stay readable after the backend is open.
    #[must_use]
    pub fn counters(&self) -> Arc<FaultCounters> {
        self.counters.clone()
    }
}

impl Backend for FaultyBackend {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Self {
            inner,
            received,
            sent,
            clock: own,
            counters,
        } = *self;
        let faults = [bounded(received), bounded(sent)];
        let opened = inner.open(queues)?;
        if let Some(queue) = opened.first() {
            check(queue.caps(), &faults)?;
        }
        let sleeps = own.is_none() && faults.iter().any(Faults::takes_time);
        let start = Instant::now();
        let clock = own.unwrap_or_else(|| Arc::new(move || start.elapsed().as_nanos() as u64));
        // All queues share the cable, each way.
        let cables = [Arc::<Cable>::default(), Arc::default()];
        let wrap = |(index, inner): (u64, Box<dyn Queue>)| -> io::Result<Box<dyn Queue>> {
            let alarm = match sleeps {
                true => Alarm::for_queue(&*inner)?,
                false => None,
            };
            let time = (clock.clone(), alarm);
            let queue = Faulty::new(inner, faults, index, &cables, time, counters.clone());
            Ok(Box::new(queue))
        };
        (0..).zip(opened).map(wrap).collect()
    }

    fn losses(&self) -> Option<Box<LossesFn>> {
        self.inner.losses()
    }
}

fn bounded(faults: Faults) -> Faults {
    Faults {
        delay: faults.delay.min(DELAY_MAX),
        jitter: faults.jitter.min(DELAY_MAX),
        ..faults
    }
}

/// A device that fills in checksums, or vouches for them, would make good again, or hide, what is spoilt here.
fn check(caps: &Caps, [received, sent]: &[Faults; 2]) -> io::Result<()> {
    let hidden = sent.corrupt > 0 && caps.tx_checksum || received.corrupt > 0 && caps.rx_checksum;
    if !hidden {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "bits cannot be turned in frames whose checksums the device sees to, as {} does: open it without its offloads",
            caps.name
        ),
    ))
}

#[cfg(test)]
mod tests;
