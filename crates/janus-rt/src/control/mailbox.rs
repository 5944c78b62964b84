//! Requests and results passed between other threads and the control thread: ports and weights that are requested, the bell, the outcome of
//! the last update. Locks are held for a few moves of memory; a shard's loop comes here only to ring.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use janus_csb::policy::HeatBoard;
use janus_csb::{Ring, UpdateReport};
use janus_io::Counter;
use janus_io::park::Unparker;
use janus_tcp::Instant;

use super::hunger::Hunger;
use super::rests::Rests;
use super::watch::PolicyName;
use crate::lock::Lock;
use crate::losses::{Kind, Losses, Shortages};

/// Listeners by port; an empty set for a port that no longer has a listener.
pub(crate) type PortSets = BTreeMap<u16, Vec<u8>>;

/// One for each runtime.
pub(crate) struct ControlMailbox {
    wanted: Lock<Wanted>,
    /// Set when a request was left, or a core has done its part of an update.
    news: AtomicBool,
    stopping: AtomicBool,
    bell: Unparker,
    done: Lock<Done>,
    roles: Lock<Roles>,
    rules: Lock<Rules>,
    heat: Arc<HeatBoard>,
    boards: Vec<Board>,
    shortages: Shortages,
    /// Set when a core rang for losses.
    lost: AtomicBool,
    rests: Rests,
    /// An update is under way, or about to be.
    updates: AtomicBool,
    /// How often [`TIDY`] is doubled.
    tidy_doublings: AtomicU32,
    /// Bits of the kinds of losses for which no ring is needed: a warning has just reported these.
    pub(crate) quiet: AtomicU32,
}

/// Time between two moments at which updates are asked for that tell of moves, at first, and how often it is doubled at most.
const TIDY: Duration = Duration::from_millis(100);
const TIDY_DOUBLINGS: u32 = 6;

/// Changes for the next update. Of two requests for one thing the later counts.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) ports: PortSets,
    pub(crate) ring: Option<Ring>,
    /// Weight of each core: the ring for them is made from the one current by then.
    pub(crate) weights: Option<Vec<u16>>,
    /// Whether the ring is the policy's.
    pub(crate) planned: bool,
    /// New roles of cores, which decide who gets new connections: applied on top of all that.
    pub(crate) roles: Option<Roles>,
    /// An update that changes nothing: flows have moved.
    pub(crate) tidy: bool,
}

/// Which cores get new connections, and how many in proportion to the others where nothing else says so.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    pub(crate) weights: Vec<u16>,
    pub(crate) drained: Vec<bool>,
}

impl Roles {
    /// Returns the weights, with zero for cores that are drained.
    fn effective(&self) -> Vec<u16> {
        let each = self.weights.iter().zip(&self.drained);
        each.map(|(&weight, &drained)| if drained { 0 } else { weight })
            .collect()
    }

    fn serves(&self) -> bool {
        self.effective().iter().any(|&weight| weight > 0)
    }
}

impl Wanted {
    pub(crate) fn is_empty(&self) -> bool {
        !self.changes() && !self.tidy
    }

    /// Whether it is to another layout.
    pub(crate) fn changes(&self) -> bool {
        let ring = self.ring.is_some() || self.weights.is_some() || self.roles.is_some();
        ring || !self.ports.is_empty()
    }
}

/// New rules for the control thread itself; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    /// Policy that watches the load, and the time between its looks.
    pub(crate) watch: Option<(PolicyName, Duration)>,
    /// Longest time a task may keep its core.
    pub(crate) blocked: Option<Duration>,
}

/// Outcome of updates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) updates: u64,
    pub(crate) refused: u64,
    pub(crate) planned: u64,
    pub(crate) diverged: u64,
    pub(crate) held: u64,
    pub(crate) exact: u64,
    pub(crate) last: UpdateReport,
}

/// Numbers that one shard reports: its part in updates and its load. On a cache line of its own, written by that shard.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Board {
    pub(crate) slices: Counter,
    pub(crate) slice_ns_max: AtomicU64,
    /// Packets received.
    pub(crate) packets: Counter,
    /// Nanoseconds in turns in which something moved.
    pub(crate) busy_ns: Counter,
    /// Connections begun.
    pub(crate) opened: Counter,
    /// Flows held.
    pub(crate) flows: Counter,
    /// Packets that waited in the rings.
    pub(crate) queue: Counter,
    /// Nanoseconds of work for a connection, the median of the last; 0 before that is known.
    pub(crate) service_ns: Counter,
    /// Nanoseconds from a connection's offer to its end, the median of the last; 0 before that is known. Gathered where connections are
    /// offered.
    pub(crate) offered_ns: Counter,
    /// Connections that wait to be accepted, likewise.
    pub(crate) waiting: Counter,
    /// The core is to give away what no task of it has.
    empties: AtomicBool,
    /// Flows that it has given away since, and nanoseconds that this took.
    pub(crate) moved: Counter,
    pub(crate) moving_ns: Counter,
    /// When the core is to be sent more that others give away, in nanoseconds.
    pub(crate) welcomes_ns: AtomicU64,
    /// Ports on which a task waits for a connection.
    pub(crate) hunger: Arc<Hunger>,
    /// Frames and requests lost, and why.
    losses: Lock<Losses>,
}

impl ControlMailbox {
    /// Makes the mailbox of so many shards and I/O cores.
    pub(crate) fn new(shards: usize, io_cores: usize, bell: Unparker) -> ControlMailbox {
        ControlMailbox {
            wanted: Lock::default(),
            news: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            bell,
            done: Lock::default(),
            roles: Lock::new(Roles {
                weights: vec![1; shards],
                drained: vec![false; shards],
            }),
            rules: Lock::default(),
            heat: Arc::default(),
            boards: (0..shards).map(|_| Board::default()).collect(),
            shortages: Shortages::default(),
            lost: AtomicBool::new(false),
            rests: Rests::new(shards + io_cores),
            updates: AtomicBool::new(false),
            tidy_doublings: AtomicU32::new(0),
            quiet: AtomicU32::new(0),
        }
    }

    pub(crate) fn shards(&self) -> usize {
        self.boards.len()
    }

    pub(crate) fn board(&self, shard: u8) -> &Board {
        &self.boards[usize::from(shard)]
    }

    pub(crate) fn boards(&self) -> &[Board] {
        &self.boards
    }

    /// Wakes the control thread: there is something to look at.
    pub(crate) fn ring(&self) {
        self.news.store(true, Ordering::Release);
        self.bell.wake();
    }

    pub(crate) fn rests(&self) -> &Rests {
        &self.rests
    }

    /// Notes that a shard, or the I/O core whose number follows the shards', works, and rings where the control thread dozes.
    #[inline]
    pub(crate) fn works(&self, thread: usize) {
        if self.begins_work(thread) {
            self.ring();
        }
    }

    /// Notes that a shard works, and returns whether it must ring soon: the control thread dozes, and no other core rings.
    #[inline]
    pub(crate) fn begins_work(&self, thread: usize) -> bool {
        self.rests.works(thread)
    }

    /// Rings where the control thread may wait for it: a core has adopted a steering. Each does when it wakes from a sleep, which is no news
    /// while there is no update.
    pub(crate) fn adopted(&self) {
        // Set before the steering is published, and the core has seen that.
        if self.updates.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Rings where the control thread dozes: something was counted for which no core works.
    pub(crate) fn stirs(&self) {
        if self.rests.ends_doze() {
            self.ring();
        }
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    /// Its thread is about to be started once more.
    pub(crate) fn restarts(&self) {
        self.stopping.store(false, Ordering::Release);
    }

    /// Enters what a shard has lost so far, and rings where a kind among `changed` is not quiet.
    pub(crate) fn enter_losses(&self, shard: u8, losses: &Losses, changed: u32) {
        *self.board(shard).losses.lock() = *losses;
        self.ring_for_losses(changed);
    }

    fn ring_for_losses(&self, changed: u32) {
        if changed & !self.quiet.load(Ordering::Relaxed) != 0 {
            self.lost.store(true, Ordering::Release);
            self.ring();
        }
    }

    pub(crate) fn shortages(&self) -> &Shortages {
        &self.shortages
    }

    /// Counts that a descriptor was wanted and none was free.
    pub(crate) fn no_descriptor(&self) {
        self.shortages.descriptors.add_shared(1);
        self.ring_for_losses(Kind::Descriptors.bit());
    }

    /// Counts that the portal had no place for another connection.
    pub(crate) fn portal_full(&self) {
        self.shortages.portal_full.add_shared(1);
        self.ring_for_losses(Kind::PortalFull.bit());
    }

    pub(crate) fn want_port(&self, port: u16, cores: &[u8]) {
        self.wanted.lock().ports.insert(port, cores.to_vec());
        self.ring();
    }

    /// Drops the request for a port that already has the right owners.
    pub(crate) fn forget_port(&self, port: u16) {
        self.wanted.lock().ports.remove(&port);
    }

    #[cfg(test)]
    pub(crate) fn want_ring(&self, ring: Ring) {
        let mut wanted = self.wanted.lock();
        (wanted.ring, wanted.planned) = (Some(ring), false);
        drop(wanted);
        self.ring();
    }

    /// Requests new weights. Returns false, and requests nothing, if no core would get new connections.
    pub(crate) fn want_weights(&self, weights: &[u16]) -> bool {
        let mut roles = self.roles.lock();
        let next = Roles {
            weights: weights.to_vec(),
            drained: roles.drained.clone(),
        };
        if !next.serves() {
            return false;
        }
        *roles = next;
        let mut wanted = self.wanted.lock();
        wanted.weights = Some(roles.effective());
        (wanted.ring, wanted.planned) = (None, false);
        drop((wanted, roles));
        self.ring();
        true
    }

    /// Requests that a core get no new connections, or some again. Returns false, and requests nothing, if none would get any.
    pub(crate) fn want_drained(&self, core: usize, drained: bool) -> bool {
        let mut roles = self.roles.lock();
        let mut next = roles.clone();
        next.drained[core] = drained;
        if !next.serves() {
            return false;
        }
        *roles = next;
        self.wanted.lock().roles = Some(roles.clone());
        drop(roles);
        self.boards[core].empties.store(drained, Ordering::Relaxed);
        self.ring();
        true
    }

    /// Whether a core is to give away what no task of it has.
    pub(crate) fn empties(&self, core: u8) -> bool {
        self.board(core).empties.load(Ordering::Relaxed)
    }

    /// Requests an update that tells of moves.
    pub(crate) fn want_tidy(&self) {
        let before = std::mem::replace(&mut self.wanted.lock().tidy, true);
        if !before {
            self.ring();
        }
    }

    /// The next moment at which such updates are asked for: the same for all cores, so that one does for all. Two let a stub go.
    pub(crate) fn next_tidy(&self, now: Instant) -> Instant {
        let doublings = self.tidy_doublings.load(Ordering::Relaxed);
        let period = (TIDY.as_nanos() as u64) << doublings;
        Instant::from_nanos((now.as_nanos() / period + 1) * period)
    }

    /// The last of them took so long: they are to take a quarter of the time at most.
    pub(crate) fn tidied_in(&self, took: Duration) {
        let mut doublings = 0;
        while doublings < TIDY_DOUBLINGS && TIDY * (1 << doublings) < 4 * took {
            doublings += 1;
        }
        self.tidy_doublings.store(doublings, Ordering::Relaxed);
    }

    /// Requests another policy, or another time between its looks.
    pub(crate) fn want_watch(&self, name: PolicyName, interval: Duration) {
        self.rules.lock().watch = Some((name, interval));
        self.ring();
    }

    /// Requests another limit to how long a task may keep its core.
    pub(crate) fn want_limit(&self, blocked: Duration) {
        self.rules.lock().blocked = Some(blocked);
        self.ring();
    }

    /// Returns the board where polling cores leave samples of keys, if a policy watches.
    pub(crate) fn heat(&self) -> &Arc<HeatBoard> {
        &self.heat
    }

    pub(crate) fn drained(&self) -> Vec<bool> {
        self.roles.lock().drained.clone()
    }

    /// Requests the policy's ring, unless another one has been set meanwhile.
    pub(crate) fn plan_ring(&self, ring: Ring) -> bool {
        let mut wanted = self.wanted.lock();
        let free = wanted.ring.is_none() && wanted.weights.is_none() && wanted.roles.is_none();
        if free {
            (wanted.ring, wanted.planned) = (Some(ring), true);
        }
        free
    }

    pub(crate) fn done(&self) -> Done {
        *self.done.lock()
    }

    // From here on: for the control thread.

    /// Says whether an update is under way; before it publishes anything.
    pub(crate) fn set_updates(&self, under_way: bool) {
        self.updates.store(under_way, Ordering::Relaxed);
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn has_news(&self) -> bool {
        self.news.load(Ordering::Acquire)
    }

    pub(crate) fn read_news(&self) {
        self.news.store(false, Ordering::Release);
    }

    /// Returns whether a core has rung for losses since the last call.
    pub(crate) fn takes_losses(&self) -> bool {
        self.lost.swap(false, Ordering::AcqRel)
    }

    /// Returns what a shard has entered last.
    pub(crate) fn losses(&self, shard: usize) -> Losses {
        *self.boards[shard].losses.lock()
    }

    pub(crate) fn take_rules(&self) -> Rules {
        std::mem::take(&mut self.rules.lock())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wanted.lock().is_empty()
    }

    pub(crate) fn take(&self) -> Wanted {
        std::mem::take(&mut self.wanted.lock())
    }

    /// Puts back a request that could not be carried out now. Later requests take precedence.
    pub(crate) fn put_back(&self, refused: Wanted) {
        let mut wanted = self.wanted.lock();
        for (port, cores) in refused.ports {
            wanted.ports.entry(port).or_insert(cores);
        }
        wanted.roles = wanted.roles.take().or(refused.roles);
        wanted.tidy |= refused.tidy;
        // A plan is made anew from the state at that time.
        if wanted.ring.is_none() && wanted.weights.is_none() && !refused.planned {
            (wanted.ring, wanted.weights) = (refused.ring, refused.weights);
        }
        self.done.lock().refused += 1;
    }

    pub(crate) fn finished(&self, report: UpdateReport, planned: bool) {
        let mut done = self.done.lock();
        // A change made in one stroke, before there were flows, is no update.
        if report.updates == done.last.updates {
            return;
        }
        done.updates += 1;
        done.planned += u64::from(planned);
        done.diverged += report.diverged as u64;
        done.held += report.held as u64;
        done.exact += report.exact as u64;
        done.last = report;
    }
}
