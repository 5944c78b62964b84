//! Time on the link: a cable that carries so many bits a second, a way that takes a while, and the alarm that wakes a sleeping
//! core when the next frame has arrived. Order is kept. What is lost or doubled was decided before.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use janus_mem::Frame;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::Faults;
use crate::queue::Queue;

const NANOSECONDS: u64 = 1_000_000_000;

/// Until when what was sent last keeps the cable busy: one direction of all queues of a device.
#[derive(Debug, Default)]
pub(super) struct Cable(AtomicU64);

impl Cable {
    /// When the last bit of so many is on its way, if they are given at `now`.
    fn carry(&self, now: u64, took: u64) -> u64 {
        let end = |busy: u64| busy.max(now).saturating_add(took);
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| Some(end(busy)));
        // It never refuses.
        before.map_or(now, end)
    }
}

/// Frames under way in one direction of a queue.
pub(super) struct Line {
    delay_ns: u64,
    jitter_ns: u64,
    rate: Option<NonZeroU64>,
    most: usize,
    cable: Arc<Cable>,
    /// In order, with the time at which each arrives, unless one before it takes longer.
    under_way: VecDeque<(u64, Frame)>,
}

impl Line {
    /// `None` where nothing takes time.
    pub(super) fn new(faults: &Faults, cable: &Arc<Cable>) -> Option<Line> {
        faults.takes_time().then(|| Line {
            delay_ns: faults.delay.as_nanos() as u64,
            jitter_ns: faults.jitter.as_nanos() as u64,
            rate: faults.rate,
            most: usize::from(faults.queue.max(1)),
            cable: cable.clone(),
            under_way: VecDeque::new(),
        })
    }

    /// Puts a frame on its way; gives it back when too many are. `draw` decides how much longer than others it takes.
    pub(super) fn put(&mut self, now: u64, frame: Frame, draw: u64) -> Result<(), Frame> {
        if self.under_way.len() >= self.most {
            return Err(frame);
        }
        let bits = 8 * u64::from(frame.len);
        let sent = match self.rate {
            None => now,
            Some(rate) => self.cable.carry(now, bits * NANOSECONDS / rate),
        };
        let jitter = match self.jitter_ns {
            0 => 0,
            most => draw % (most + 1),
        };
        let arrives = sent.saturating_add(self.delay_ns + jitter);
        self.under_way.push_back((arrives, frame));
        Ok(())
    }

    /// The next frame that has arrived.
    pub(super) fn take(&mut self, now: u64) -> Option<Frame> {
        let (arrives, _) = self.under_way.front()?;
        if *arrives > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, frame)| frame)
    }

    /// When the next one arrives.
    pub(super) fn next(&self) -> Option<u64> {
        self.under_way.front().map(|(arrives, _)| *arrives)
    }
}

/// Ends a core's sleep when a frame arrives: a timer beside the device's own descriptor.
pub(super) struct Alarm {
    timer: OwnedFd,
    either: OwnedFd,
    set: bool,
}

impl Alarm {
    /// None where the device has nothing to sleep on.
    pub(super) fn for_queue(inner: &dyn Queue) -> io::Result<Option<Alarm>> {
        let Some(device) = inner.wait_fd() else {
            return Ok(None);
        };
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [device, timer.as_fd()] {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&either, fd, data, epoll::EventFlags::IN)?;
        }
        Ok(Some(Alarm {
            timer,
            either,
            set: false,
        }))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }

    /// Sets the timer to ring in `in_ns` nanoseconds, or not at all. False: it cannot be set, so the core must not sleep.
    pub(super) fn set(&mut self, in_ns: Option<u64>) -> bool {
        if in_ns.is_none() && !self.set {
            return true;
        }
        // Zero would switch it off.
        let ns = in_ns.map_or(0, |ns| ns.max(1));
        let time = |ns: u64| Timespec {
            tv_sec: (ns / NANOSECONDS) as i64,
            tv_nsec: (ns % NANOSECONDS) as i64,
        };
        let once = Itimerspec {
            it_interval: time(0),
            it_value: time(ns),
        };
        self.set = in_ns.is_some();
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok()
    }
}
