//! Speculative accept (PIKA): a connection that no task of its core accepts in time is offered to another, where a task waits for one. The
//! other core takes it in if that task waits still; else the connection comes back, and stays. By one of PIKA's schemes connections are dealt
//! instead: each that finds no task goes to the core that is drawn, and waits there. How it moves is `moves`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use janus_csb::ShardId;
use janus_csb::policy::{Candidate, Dealer, Scheme};
use janus_tcp::{ConnId, Instant};
use janus_wire::FlowKey;

use super::core_context::CoreContext;
use super::moves::Why;
use super::service_times::ServiceTimes;
use crate::config::SpeculativeAccept;
use crate::control::mailbox::Board;

/// Least time between two looks at what waits.
const PAUSE: Duration = Duration::from_micros(50);
/// And where no task of another core waits for any.
const ALL_BUSY: Duration = Duration::from_millis(1);
/// Connections offered in a look, of one listener.
const OFFERS: usize = 16;
/// Offers by whose outcome `auto` goes, and how long it keeps still when more than half of them come back.
const SAMPLE: u32 = 64;
const STILL: Duration = Duration::from_secs(1);

/// Connections that waited to be accepted and went to other cores, and those that waited longer than is usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OfferCounters {
    /// Connections that this core has offered, or dealt, to others.
    pub offered: u64,
    /// Connections that this core has taken from others.
    pub claimed: u64,
    /// Those of the offered that were refused: no task waited there any more, or there was no room.
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
    /// The scheme by which connections are dealt, and until when those that came have been.
    dealer: Option<Dealer>,
    dealt: Instant,
    pub(super) times: ServiceTimes,
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

    /// Sets by which scheme is dealt.
    fn deal_by(&mut self, scheme: Option<Scheme>, now: Instant) {
        if self.dealer.as_ref().map(Dealer::scheme) != scheme {
            self.dealer = scheme.map(Dealer::new);
            self.dealt = now;
        }
    }
}

/// The next number; it need not be hard to guess.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
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
                self.board().waiting.set(0);
            }
            return false;
        }
        due.is_none_or(|at| now >= at) && self.offer_overdue(now)
    }

    #[inline(never)]
    fn offer_overdue(&self, now: Instant) -> bool {
        let mode = self.shared.settings.get().speculative_accept;
        let waiting = self.stack.borrow().waiting();
        let mut offers = self.offers.borrow_mut();
        if mode == SpeculativeAccept::Auto && offers.in_vain() {
            offers.still_until = now + STILL;
        }
        offers.off = mode == SpeculativeAccept::Off || self.shared.mailbox.shards() == 1;
        self.board().hunger.set_timing(!offers.off);
        offers.deal_by(mode.scheme(), now);
        if offers.off || now < offers.still_until {
            // Looked at again: the setting may change.
            offers.next = Some(now + STILL);
            return false;
        }
        self.board().waiting.set(waiting as u64);
        if offers.dealer.is_some() {
            offers.next = Some(now + PAUSE);
            drop(offers);
            return self.deal(now);
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
            gone |= self.offer_to(&flow, to, Why::Offered);
        }
        gone
    }

    fn offer_to(&self, flow: &FlowKey, to: ShardId, why: Why) -> bool {
        let goes = self.move_flow_for(flow, to, why);
        if goes {
            let mut offers = self.offers.borrow_mut();
            offers.counters.offered += 1;
            offers.tried += 1;
        }
        goes
    }

    /// Deals the connections that have come since the last time and wait. Returns whether some have gone.
    fn deal(&self, now: Instant) -> bool {
        let mut offers = self.offers.borrow_mut();
        let since = std::mem::replace(&mut offers.dealt, now);
        drop(offers);
        let mut came: Vec<FlowKey> = Vec::new();
        self.on_stack(|stack, _| stack.came_between([since, now], |flow| came.push(flow)));
        let mut gone = false;
        for flow in came {
            if !self.may_leave_stubs() {
                break;
            }
            let to = self.draw(flow.local_port());
            gone |= to.0 != self.core && self.offer_to(&flow, to, Why::Dealt);
        }
        gone
    }

    /// Draws a core by the scheme, of those that listen on `port` and are not drained.
    fn draw(&self, port: u16) -> ShardId {
        let steering = self.steering.borrow();
        let listeners = steering.steering().published().ports().get(port);
        let may = |shard: &ShardId| !self.shared.mailbox.empties(shard.0);
        let candidate = |shard: ShardId| {
            let board = self.shared.mailbox.board(shard.0);
            Candidate {
                shard,
                service_ns: Some(board.offered_ns.get()).filter(|ns| *ns > 0),
                waiting: board.waiting.get() as u32,
            }
        };
        let listeners = listeners.into_iter().flat_map(|set| set.iter());
        let shards: Vec<Candidate> = listeners.filter(may).map(candidate).collect();
        let mut offers = self.offers.borrow_mut();
        let Offers { dealer, random, .. } = &mut *offers;
        let here = ShardId(self.core);
        let drawn = dealer.as_mut();
        drawn.map_or(here, |dealer| {
            dealer.draw(here, &shards, || next_random(random))
        })
    }

    fn board(&self) -> &Board {
        self.shared.mailbox.board(self.core)
    }

    /// A task has accepted a connection, and the time that it is served is looked at.
    pub(crate) fn accepted(&self, conn: ConnId) {
        let (now, mut offers) = (self.now.get(), self.offers.borrow_mut());
        let waited = self.stack.borrow().accept_delays().last;
        let offered = Instant::from_nanos(now.as_nanos().saturating_sub(waited.as_nanos() as u64));
        offers.times.accepted(now, conn, offered);
    }

    /// A task has done with a connection: it ends, or rests.
    #[inline]
    pub(crate) fn served(&self, conn: ConnId, rests: bool) {
        if self.board().hunger.is_timing() {
            let mut offers = self.offers.borrow_mut();
            match rests {
                true => offers.times.rests(conn),
                false => offers.times.ended(self.now.get(), conn),
            }
            if let Some(median) = offers.times.news() {
                self.board().offered_ns.set(median);
            }
        }
    }

    /// Whether a task waits here for a connection of this flow, or was woken for one in this turn.
    pub(super) fn is_awaited(&self, flow: &FlowKey) -> bool {
        let waits = self.board().hunger.waits_on(flow.local_port());
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
        let mut one = || hungry().nth((next_random(&mut offers.random) >> 32) as usize % count);
        let cost = |core: &u8| {
            let board = shared.mailbox.board(*core);
            (board.offered_ns.get(), board.waiting.get())
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
