//! One direction of a faulty queue: what becomes of each frame, in which order those that are left go on, and when. Devices
//! and their bursts are `queue.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use janus_mem::{Frame, Pool};
use janus_wire::{Link, ethernet};

use super::line::{Cable, Line};
use super::{Faults, WayCounters};
use crate::batch::BURST;

/// Frames held back at a time, in one direction of a queue; one more passes.
const HELD_MAX: usize = 64;
/// Polls without a frame after which what is held back goes on: nothing is left to overtake it.
pub(super) const QUIET_POLLS: u32 = 32;

/// Fate of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    Pass,
    Twice,
    /// Overtaken by so many.
    Held(u32),
}

/// One direction.
pub(super) struct Way {
    faults: Faults,
    link: Link,
    random: u64,
    /// Frames that have arrived, in order.
    pub(super) going: VecDeque<Frame>,
    /// Frames held back, each with how many more frames are to overtake it.
    held: VecDeque<(u32, Frame)>,
    quiet: u32,
    line: Option<Line>,
}

/// Context of one poll, for the frames on their way.
pub(super) struct Turn<'a> {
    pub(super) pool: &'a mut Pool,
    pub(super) counters: &'a WayCounters,
    /// 0 where nothing takes time.
    pub(super) now: u64,
}

impl Way {
    pub(super) fn new(faults: Faults, link: Link, stream: u64, cable: &Arc<Cable>) -> Way {
        Way {
            faults,
            link,
            random: faults.seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93),
            going: VecDeque::with_capacity(2 * BURST + HELD_MAX),
            held: VecDeque::with_capacity(HELD_MAX),
            quiet: 0,
            line: Line::new(&faults, cable),
        }
    }

    /// SplitMix64.
    fn bits(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn fate(&mut self) -> Fate {
        let draw = (self.bits() % 1_000) as u16;
        let Faults {
            loss,
            duplicate,
            reorder,
            ..
        } = self.faults;
        if draw < loss {
            return Fate::Lost;
        }
        if draw < loss.saturating_add(duplicate) {
            return Fate::Twice;
        }
        let reorders = draw < loss.saturating_add(duplicate).saturating_add(reorder);
        if !reorders || self.held.len() == HELD_MAX {
            return Fate::Pass;
        }
        let most = u64::from(self.faults.distance.max(1));
        Fate::Held(1 + (self.bits() % most) as u32)
    }

    /// The bit that is turned in this frame, if one is.
    fn spoilt_bit(&mut self, frame: &Frame) -> Option<usize> {
        if self.faults.corrupt == 0 || self.bits() % 1_000 >= u64::from(self.faults.corrupt) {
            return None;
        }
        let from = self.link.header_len();
        let guarded = match self.link {
            Link::Ip => true,
            Link::Ethernet => ethernet::Header::parse(frame.data()).is_ok_and(|(header, _)| {
                [ethernet::ethertype::IPV4, ethernet::ethertype::IPV6].contains(&header.ethertype)
            }),
        };
        let bits = 8 * usize::from(frame.len).saturating_sub(from) as u64;
        (guarded && bits > 0).then(|| 8 * from + (self.bits() % bits) as usize)
    }

    /// Takes one frame in. Gives back what has left its sender's hands here: a frame that is lost, or one that is LENT and was
    /// copied, because its bytes are changed, or because a link that takes time is no place where the sender's memory waits.
    pub(super) fn take(&mut self, frame: Frame, turn: &mut Turn<'_>) -> Option<Frame> {
        self.quiet = 0;
        let fate = self.fate();
        if fate == Fate::Lost {
            turn.counters.lost.add_shared(1);
            return Some(frame);
        }
        let spoilt = self.spoilt_bit(&frame);
        let (mut frame, original) = if frame.is_lent() && (self.line.is_some() || spoilt.is_some())
        {
            match copy(&frame, turn.pool) {
                Some(copy) => (copy, Some(frame)),
                None => {
                    turn.counters.overflowed.add_shared(1);
                    return Some(frame);
                }
            }
        } else {
            (frame, None)
        };
        turn.counters.passed.add_shared(1);
        // The second one is sound.
        let twice = (fate == Fate::Twice)
            .then(|| copy(&frame, turn.pool))
            .flatten();
        if let Some(bit) = spoilt {
            turn.counters.corrupted.add_shared(1);
            frame.data_mut()[bit / 8] ^= 1 << (bit % 8);
        }
        if let Fate::Held(overtaken_by) = fate {
            turn.counters.reordered.add_shared(1);
            self.held.push_back((overtaken_by, frame));
            return original;
        }
        if let Some(copy) = twice {
            turn.counters.duplicated.add_shared(1);
            self.go(copy, turn);
        }
        self.go(frame, turn);
        self.overtake(turn);
        original
    }

    /// A frame goes on; where the link takes time, it sets out.
    fn go(&mut self, frame: Frame, turn: &mut Turn<'_>) {
        let draw = match self.faults.jitter.is_zero() {
            true => 0,
            false => self.bits(),
        };
        let Some(line) = &mut self.line else {
            return self.going.push_back(frame);
        };
        if let Err(frame) = line.put(turn.now, frame, draw) {
            turn.counters.overflowed.add_shared(1);
            turn.pool.free(frame.buf);
        }
    }

    /// One frame went past those that are held back.
    fn overtake(&mut self, turn: &mut Turn<'_>) {
        for waiting in &mut self.held {
            waiting.0 = waiting.0.saturating_sub(1);
        }
        for _ in 0..self.held.len() {
            if let Some((left, frame)) = self.held.pop_front() {
                match left {
                    0 => self.go(frame, turn),
                    _ => self.held.push_back((left, frame)),
                }
            }
        }
    }

    /// Nothing came: after a while all that is held back goes on.
    pub(super) fn nothing_came(&mut self, turn: &mut Turn<'_>) {
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet >= QUIET_POLLS {
            while let Some((_, frame)) = self.held.pop_front() {
                self.go(frame, turn);
            }
        }
    }

    /// Moves the frames that have arrived by now to `going`.
    pub(super) fn arrive(&mut self, now: u64) {
        if let Some(line) = &mut self.line {
            while self.going.len() < BURST
                && let Some(frame) = line.take(now)
            {
                self.going.push_back(frame);
            }
        }
    }

    /// When the next frame arrives that is under way.
    pub(super) fn next_arrival(&self) -> Option<u64> {
        self.line.as_ref().and_then(Line::next)
    }

    /// Nothing waits for the next poll.
    pub(super) fn is_quiet(&self) -> bool {
        self.going.is_empty() && self.held.is_empty()
    }
}

/// Copies the frame into a buffer of its own.
fn copy(frame: &Frame, pool: &mut Pool) -> Option<Frame> {
    let mut copy = Frame::new(pool.alloc()?, frame.len);
    copy.data_mut().copy_from_slice(frame.data());
    Some(copy)
}
