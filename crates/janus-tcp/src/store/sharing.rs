//! RFC 9040: what one connection learned of the path to a peer, for the next one to the same peer: the smoothed round
//! trip, its variation, the slow-start threshold. What a path carries (its MTU) all connections share while they live
//! already (`pmtu`), and the congestion window is found anew each time. Never shared: sequence numbers, the offset of
//! timestamps, what was sent or received.
//!
//! A bounded table of what is worth knowing: a path whose timeout is the configured least whatever is remembered of it,
//! and on which nothing was lost, is not in it. On a server whose peers are all near it stays empty, and then costs a
//! connection one comparison at its beginning and one at its end.

use core::time::Duration;
use std::net::IpAddr;

use janus_wire::FlowKey;
use janus_wire::siphash::words_of;

use crate::rules::Rules;
use crate::store::cold::Tcb;
use crate::store::rto;
use crate::time::Instant;

/// Paths remembered: sets of ways.
const SETS: usize = 256;
const WAYS: usize = 4;
/// Age from which on facts say little of a path as it is now.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Facts of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) srtt_us: u32,
    pub(crate) variation_us: u32,
    /// In segments.
    pub(crate) threshold: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    to: IpAddr,
    facts: Facts,
    learned_at: Instant,
}

/// Which paths share a set is keyed, so that a peer cannot choose which to push out. No answer shows which do.
fn set_number(key: (u64, u64), to: IpAddr) -> usize {
    let [high, low] = words_of(to);
    let mixed = (high ^ key.1).wrapping_mul(key.0 | 1) ^ low;
    (mixed.wrapping_mul(key.0 | 1) >> 32) as usize % SETS
}

/// The table.
#[derive(Default)]
pub(crate) struct PathFacts {
    /// Made when there is something to put into it.
    sets: Vec<[Option<Path>; WAYS]>,
}

impl PathFacts {
    /// Nothing is known of any path: the look ends here.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    fn set_of(&mut self, key: (u64, u64), to: IpAddr) -> Option<&mut [Option<Path>; WAYS]> {
        self.sets.get_mut(set_number(key, to))
    }

    fn of(&mut self, key: (u64, u64), to: IpAddr, now: Instant) -> Option<Facts> {
        let set = self.set_of(key, to)?;
        let path = set.iter().flatten().find(|path| path.to == to)?;
        (now.saturating_since(path.learned_at) < FORGOTTEN_AFTER).then_some(path.facts)
    }

    pub(crate) fn learn(&mut self, key: (u64, u64), to: IpAddr, facts: Facts, now: Instant) {
        if self.sets.is_empty() {
            self.sets.resize(SETS, [None; WAYS]);
        }
        let Some(set) = self.set_of(key, to) else {
            return;
        };
        let same = set.iter().position(|way| way.is_some_and(|p| p.to == to));
        // Else an empty way, else what was learned first.
        let first = || (0..WAYS).min_by_key(|&way| set[way].map(|p| p.learned_at));
        let way = same.or_else(first).unwrap_or(0);
        set[way] = Some(Path {
            to,
            facts,
            learned_at: now,
        });
    }

    pub(crate) fn forget(&mut self, key: (u64, u64), to: IpAddr) {
        if let Some(set) = self.set_of(key, to) {
            set.iter_mut()
                .filter(|way| way.is_some_and(|path| path.to == to))
                .for_each(|way| *way = None);
        }
    }
}

impl PathFacts {
    /// A connection is open: it begins with what is known of its path. True when something is.
    #[inline]
    pub(crate) fn recall(
        &mut self,
        key: &FlowKey,
        tcb: &mut Tcb,
        rules: &Rules,
        now: Instant,
    ) -> bool {
        !self.is_empty() && self.recall_known(key, tcb, rules, now)
    }

    #[cold]
    fn recall_known(&mut self, key: &FlowKey, tcb: &mut Tcb, rules: &Rules, now: Instant) -> bool {
        let Some(facts) = self.of(rules.secrets().table_key(), key.peer(), now) else {
            return false;
        };
        rto::resume(tcb, facts.srtt_us, facts.variation_us);
        if facts.threshold.is_some() {
            tcb.set_idle_threshold(facts.threshold);
        }
        true
    }
}

#[cfg(test)]
mod tests;
