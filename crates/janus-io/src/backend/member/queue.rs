//! One core's four rings: empty buffers out and received packets in, packets to send out and sent buffers in.

use std::collections::{HashSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;

use janus_mem::{Depot, Frame, HEADROOM, LOOPED, Pool, Posted, RETURNS, TURNED, TURNED_LOOPED};
use janus_shm::{Consumer, Descriptor, Producer, Violation};
use rustix::fd::BorrowedFd;

use super::MemberCounters;
use super::line::Berth;
use crate::backend::held::Held;
use crate::queue::{Batch, Caps, Queue, retire};

/// Marks of a frame as the daemon makes them and as they are here, and those of one that is turned back.
const MARKS: [(u32, u16); 2] = [(Descriptor::INSIDE, LOOPED), (Descriptor::RETURNS, RETURNS)];
const BACK: [(u16, u32); 2] = [
    (TURNED, Descriptor::RETURNS),
    (TURNED_LOOPED, Descriptor::INSIDE),
];
/// Buffers that are given at a time, as long as there are enough.
const AT_ONCE: u32 = 16;
/// Times in a row that a core is kept from sleeping because the daemon still has frames of ours.
const AWAKE_FOR_SENDING_MAX: u32 = 64;

/// The ends of a core's rings.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) fill: Producer,
    pub(super) rx: Consumer,
    pub(super) tx: Producer,
    pub(super) done: Consumer,
}

pub(super) struct MemberQueue {
    caps: Caps,
    berth: Berth,
    ends: Option<Ends>,
    held: Held,
    depot: Arc<Depot>,
    posted: Posted,
    /// It has slept: the bell may have been rung.
    slept: bool,
    kept_awake: u32,
    /// How far what a daemon before had has come home. `None`: all of it has.
    homecoming: Option<usize>,
    /// Received from a daemon before, and not looked at yet.
    late: VecDeque<Frame>,
    /// To be sent when there is a daemon.
    unsent: VecDeque<Frame>,
    counters: Arc<MemberCounters>,
}

impl MemberQueue {
    pub(super) fn new(
        caps: Caps,
        berth: Berth,
        held: Held,
        depot: Arc<Depot>,
        counters: Arc<MemberCounters>,
    ) -> MemberQueue {
        MemberQueue {
            caps,
            posted: depot.posted(berth.depth()),
            berth,
            ends: None,
            held,
            depot,
            slept: false,
            kept_awake: 0,
            homecoming: None,
            late: VecDeque::new(),
            unsent: VecDeque::new(),
            counters,
        }
    }

    /// Between bursts: another daemon may be there, or none.
    #[inline]
    fn refresh(&mut self) {
        if self.slept {
            self.slept = false;
            let _ = self.berth.bell().hear();
        }
        if self.berth.is_behind() {
            self.take_place();
        }
    }

    #[cold]
    fn take_place(&mut self) {
        let next = self.berth.take();
        let before = std::mem::replace(&mut self.ends, next);
        if !self.berth.has_the_first() {
            self.outlives(before);
        }
        self.homecoming = Some(0);
        self.posted.lacks(0);
    }

    /// The daemon is gone. What came of it is looked at yet, and what it has not said to be sent is for the next: a packet that goes out twice does
    /// no harm. Buffers that it lent to this program are the program's own from now on: also those that were given and not taken.
    fn outlives(&mut self, before: Option<Ends>) {
        let mut given = Vec::new();
        if let Some(mut ends) = before {
            while let Ok(Some(it)) = ends.rx.take() {
                self.late
                    .extend(arrived(&mut self.held, it, &self.counters));
            }
            let mut sent = HashSet::new();
            while let Ok(Some(it)) = ends.done.take() {
                sent.insert(it.offset);
            }
            // Before what had no room in the ring yet.
            for it in ends.tx.latest() {
                if !sent.contains(&it.offset)
                    && let Some(frame) = self.held.sent(it.offset)
                {
                    self.unsent.push_front(frame);
                }
            }
            given = ends.fill.untaken().unwrap_or_default();
        }
        let lost = (self.held).keeps_its_own(given.iter().map(|it| it.offset));
        self.depot.give_up(lost);
    }

    /// Frames that a daemon before had are given back to whoever waits for them, as far as there is room. True: all have been.
    fn comes_home(&mut self, pool: &mut Pool, done: &mut Batch) -> bool {
        let Some(at) = &mut self.homecoming else {
            return true;
        };
        while done.room() > 0 {
            // SAFETY: whoever had the other ends has ended, or unmaps the memory before it lets go of the line.
            match unsafe { self.held.next_home(at) } {
                Some(frame) => retire(frame, pool, done),
                None => {
                    self.homecoming = None;
                    return true;
                }
            }
        }
        false
    }

    /// The daemon has broken the rules: nothing more of it, until there is another.
    #[cold]
    fn breaks(&mut self, violation: Violation) {
        self.ends = None;
        self.berth.breaks(violation);
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Batch) -> Result<(), Violation> {
        while !out.is_full()
            && let Some(frame) = self.late.pop_front()
        {
            let _ = out.push(frame);
        }
        let Some(ends) = self.ends.as_mut().filter(|_| self.homecoming.is_none()) else {
            return Ok(());
        };
        if ends.rx.waiting()? == 0 {
            return self.fill(pool, AT_ONCE);
        }
        for _ in 0..out.room() {
            let Some(it) = ends.rx.take()? else { break };
            if let Some(frame) = arrived(&mut self.held, it, &self.counters) {
                frame.buf.prefetch();
                let _ = out.push(frame);
            }
        }
        ends.rx.publish();
        // The packets first, unless it would run short.
        self.fill(pool, self.berth.depth() / 4)
    }

    /// Gives the daemon buffers up to what it should have, if it lacks so many.
    #[inline]
    fn fill(&mut self, pool: &mut Pool, least: u32) -> Result<(), Violation> {
        let Some(ends) = &mut self.ends else {
            return Ok(());
        };
        let wanted = self.berth.depth().saturating_sub(self.held.filling) as usize;
        let (mut given, mut lacking) = (0, 0);
        if wanted < least as usize {
            self.posted.lacks(0);
            return Ok(());
        }
        while given < wanted && ends.fill.room_for(1)? > 0 {
            let Some(buf) = pool.alloc_reserved() else {
                self.counters.no_buffer.add_shared(1);
                lacking = wanted - given;
                break;
            };
            match self.held.fill(buf) {
                Ok(offset) => {
                    let offset = offset + u64::from(HEADROOM);
                    let (len, tag) = (0, 0);
                    ends.fill.put(Descriptor { offset, len, tag })?;
                    given += 1;
                }
                Err(buf) => {
                    self.counters.foreign_pool.add_shared(1);
                    pool.free(buf);
                    break;
                }
            }
        }
        self.posted.lacks(lacking as u32);
        // The daemon may have frames that wait for them.
        if given > 0 && ends.fill.publish() {
            self.berth.bell().ring();
        }
        Ok(())
    }

    /// Takes back what the daemon has sent, as far as `done` has room for it.
    fn reap(&mut self, pool: &mut Pool, done: &mut Batch) -> Result<(), Violation> {
        let Some(ends) = &mut self.ends else {
            return Ok(());
        };
        for _ in 0..done.room() {
            let Some(it) = ends.done.take()? else { break };
            match self.held.sent(it.offset) {
                Some(frame) => retire(frame, pool, done),
                None => self.counters.strange.add_shared(1),
            }
            self.kept_awake = 0;
        }
        ends.done.publish();
        Ok(())
    }

    fn send(
        &mut self,
        pool: &mut Pool,
        frames: &mut Batch,
        done: &mut Batch,
    ) -> Result<(), Violation> {
        let Some(ends) = &mut self.ends else {
            return Ok(());
        };
        if frames.is_empty() {
            return Ok(());
        }
        let room = ends.tx.room_for(frames.len() as u32)? as usize;
        let take = frames.len().min(room).min(done.room());
        for frame in frames.pull().take(take) {
            let marks = BACK.iter().filter(|(ours, _)| frame.tag & ours != 0);
            let tag = marks.fold(0, |tag, (_, theirs)| tag | theirs);
            match self.held.send(frame) {
                Ok((offset, len)) => {
                    let len = u32::from(len);
                    ends.tx.put(Descriptor { offset, len, tag })?;
                }
                Err(foreign) => {
                    self.counters.foreign_pool.add_shared(1);
                    retire(foreign, pool, done);
                }
            }
        }
        if ends.tx.publish() {
            self.berth.bell().ring();
        }
        Ok(())
    }

    /// Frames that have waited for this daemon go first, as far as there is room. True: nothing waits.
    fn catches_up(&mut self, pool: &mut Pool, done: &mut Batch) -> Result<bool, Violation> {
        let mut late = Batch::new();
        while !late.is_full()
            && let Some(frame) = self.unsent.pop_front()
        {
            let _ = late.push(frame);
        }
        self.send(pool, &mut late, done)?;
        while let Some(frame) = late.pop() {
            self.unsent.push_front(frame);
        }
        self.reap(pool, done)?;
        Ok(self.unsent.is_empty())
    }

    /// There is no daemon: frames wait for the next, and those for which there is no room are lost, as on a cable that is pulled out.
    fn wait_for_a_daemon(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        let most = self.berth.unsent_max() as usize;
        let room = most.saturating_sub(self.unsent.len()) + done.room();
        let count = frames.len().min(room);
        for frame in frames.pull().take(count) {
            if self.unsent.len() < most {
                self.unsent.push_back(frame);
            } else {
                self.counters.lost_no_daemon.add_shared(1);
                retire(frame, pool, done);
            }
        }
    }
}

/// A frame that the daemon has received.
#[inline]
fn arrived(held: &mut Held, it: Descriptor, counters: &MemberCounters) -> Option<Frame> {
    let Some(mut frame) = held.received(it.offset, it.len) else {
        counters.strange.add_shared(1);
        return None;
    };
    for (theirs, ours) in MARKS {
        frame.tag |= if it.tag & theirs != 0 { ours } else { 0 };
    }
    Some(frame)
}

impl Queue for MemberQueue {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        self.refresh();
        if let Err(violation) = self.receive(pool, out) {
            self.breaks(violation);
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.refresh();
        if self.homecoming.is_some() {
            if !self.comes_home(pool, done) {
                return;
            }
            // It may be about to sleep, and the daemon has none to receive into.
            if let Err(violation) = self.fill(pool, AT_ONCE) {
                return self.breaks(violation);
            }
        }
        if self.ends.is_none() {
            return self.wait_for_a_daemon(pool, frames, done);
        }
        if !self.unsent.is_empty() {
            match self.catches_up(pool, done) {
                Ok(true) => {}
                Ok(false) => return,
                Err(violation) => return self.breaks(violation),
            }
        }
        // Frames first; what is given back makes room for more.
        let sent = self
            .send(pool, frames, done)
            .and_then(|()| self.reap(pool, done))
            .and_then(|()| self.send(pool, frames, done));
        if let Err(violation) = sent {
            self.breaks(violation);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.berth.bell().as_fd())
    }

    fn arm(&mut self) -> bool {
        if self.berth.is_behind() || self.homecoming.is_some() || !self.late.is_empty() {
            return false;
        }
        let sending = self.held.sending > 0;
        let Some(ends) = &mut self.ends else {
            self.slept = true;
            return true;
        };
        if sending && self.kept_awake < AWAKE_FOR_SENDING_MAX {
            self.kept_awake += 1;
            return false;
        }
        let armed = match ends.rx.arm() {
            Ok(true) if sending => ends.done.arm(),
            other => other,
        };
        match armed {
            Ok(armed) => {
                self.slept = true;
                armed
            }
            Err(violation) => {
                self.breaks(violation);
                false
            }
        }
    }
}

impl Drop for MemberQueue {
    fn drop(&mut self) {
        // The daemon may be reading from the rings yet.
        let gone = self.berth.leave();
        self.ends = None;
        self.depot.give_up(self.held.forget_exchanged());
        if gone {
            // SAFETY: there is no daemon, or it has said that it is done with this member.
            unsafe { self.held.bring_home() };
        }
    }
}
