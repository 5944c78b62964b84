//! Speculative accept (PIKA): a connection that no task of its core accepts in time is offered to another, where a task waits for one. The
//! other core takes it in if that task waits still; else the connection comes back, and stays. How it moves is `moves`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use janus_csb::ShardId;
use janus_tcp::Instant;
use janus_wire::FlowKey;

use super::core_context::CoreContext;
use super::moves::Why;
use crate::config::SpeculativeAccept;

/// Least time between two looks at what waits.
const PAUSE: Duration = Duration::from_micros(50);
/// And where no task of another core waits for any.
const ALL_BUSY: Duration = Duration::from_millis(1);
/// Connections offered in a look, of one listener.
const OFFERS: usize = 16;
/// Offers by whose outcome `auto` goes, and how long it keeps still when more than half of them come back.
const SAMPLE: u32 = 64;
const STILL: Duration = Duration::from_secs(1);

/// Connections that waited longer than is usual to be accepted, and their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OfferCounters {
    /// Connections that this core has offered to others.
    pub offered: u64,
    /// Connections that this core has taken from others.
    pub claimed: u64,
    /// Those of the offered that were refused: no task waited there any more.
    pub returned: u64,
    /// Connections that were accepted when they had waited longer than is usual.
    pub late: u64,
}

/// A core's offers.
#[derive(Default)]
pub(crate) struct Offers {
    /// When the next look at what waits is due.
    next: Option<Instant>,
    /// None is made.
    off: bool,
    /// Nor before this.
    still_until: Instant,
    counters: OfferCounters,
    /// Offers of the sample, and those of them that came back.
    tried: u32,
    back: u32,
    random: u64,
}

impl Offers {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next.filter(|_| !self.off)
    }

    pub(super) fn claimed(&mut self) {
        self.counters.claimed += 1;
    }

    pub(super) fn returned(&mut self) {
        self.counters.returned += 1;
        self.back += 1;
    }

    /// Whether the last offers were mostly in vain; then the next ones are others'.
    fn in_vain(&mut self) -> bool {
        if self.tried < SAMPLE {
            return false;
        }
        let (tried, back) = (self.tried, self.back);
        (self.tried, self.back) = (0, 0);
        2 * back > tried
    }

    /// A number below `below`; it need not be hard to guess.
    fn draw(&mut self, below: usize) -> usize {
        let mixed = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random = mixed;
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 32) as usize % below
    }
}

impl CoreContext {
    /// Offers connections that have waited for too long. Returns whether some have gone.
    #[inline]
    pub(super) fn offer(&self, now: Instant) -> bool {
        let waits = self.stack.borrow().waiting() > 0;
        let due = self.offers.borrow().next;
        if !waits {
            if due.is_some() {
                self.offers.borrow_mut().next = None;
            }
            return false;
        }
        due.is_none_or(|at| now >= at) && self.offer_overdue(now)
    }

    #[inline(never)]
    fn offer_overdue(&self, now: Instant) -> bool {
        let mode = self.shared.settings.get().speculative_accept;
        let mut offers = self.offers.borrow_mut();
        if mode == SpeculativeAccept::Auto && offers.in_vain() {
            offers.still_until = now + STILL;
        }
        offers.off = mode == SpeculativeAccept::Off || self.shared.mailbox.shards() == 1;
        if offers.off || now < offers.still_until {
            // Looked at again: the setting may change.
            offers.next = Some(now + STILL);
            return false;
        }
        let mut overdue: Vec<FlowKey> = Vec::new();
        let left =
            self.on_stack(|stack, now| stack.overdue(now, OFFERS, |flow| overdue.push(flow)));
        offers.next = Some(now + left.unwrap_or_default().max(PAUSE));
        drop(offers);
        if !self.may_leave_stubs() {
            return false;
        }
        let mut gone = false;
        for flow in overdue {
            let Some(to) = self.choose(flow.local_port()) else {
                self.offers.borrow_mut().next = Some(now + ALL_BUSY);
                return gone;
            };
            if self.move_flow_for(&flow, to, Why::Offered) {
                let mut offers = self.offers.borrow_mut();
                offers.counters.offered += 1;
                offers.tried += 1;
                gone = true;
            }
        }
        gone
    }

    /// Whether a task waits here for a connection of this flow, or was woken for one in this turn.
    pub(super) fn is_awaited(&self, flow: &FlowKey) -> bool {
        let board = self.shared.mailbox.board(self.core);
        let waits = board.hunger.waits_on(flow.local_port());
        waits && self.on_stack(|stack, now| stack.is_awaited(now, flow))
    }

    /// The better of two cores, drawn among those where a task waits on `port`: the one that takes less time for a connection.
    fn choose(&self, port: u16) -> Option<ShardId> {
        let shared = &self.shared;
        let hungry = || {
            (0..shared.mailbox.shards() as u8).filter(|&core| {
                core != self.core
                    && shared.mailbox.board(core).hunger.waits_on(port)
                    && !shared.mailbox.empties(core)
                    && !shared.blocked[usize::from(core)].load(Ordering::Relaxed)
            })
        };
        let count = hungry().count();
        if count == 0 {
            return None;
        }
        let mut offers = self.offers.borrow_mut();
        let mut one = || hungry().nth(offers.draw(count));
        let cost = |core: &u8| {
            let board = shared.mailbox.board(*core);
            (board.service_ns.get(), board.queue.get())
        };
        // Their tasks may have stopped to wait meanwhile.
        let drawn = [one(), one()].into_iter().flatten();
        drawn.min_by_key(cost).map(ShardId)
    }

    /// Outcome for connections that waited too long.
    pub(crate) fn offer_counters(&self) -> OfferCounters {
        OfferCounters {
            late: self.stack.borrow().accept_delays().late,
            ..self.offers.borrow().counters
        }
    }
}
