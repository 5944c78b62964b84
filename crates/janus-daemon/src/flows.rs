//! The connections of one member, as far as its frames tell of them: the four numbers of each, and the link address that its peer is reached by. They
//! are for the day on which the member is gone (`resets.rs`). Never here: sequence numbers, which only the peer can tell then.

use std::collections::HashMap;
use std::hash::Hash;

use janus_wire::tcp::Flags;
use janus_wire::{FlowKey, FlowKeyV4, FlowKeyV6, MacAddr};

use crate::Counters;

/// Connections of a member over each of IPv4 and IPv6 that are remembered at most, and half as many at least.
const FLOWS_MAX: usize = 1 << 17;

/// A connection, and where frames for its peer go.
pub(crate) type Flow = (FlowKey, MacAddr);

/// Half of what may be remembered is forgotten at a time, the older half: ends that were not seen are there too, of peers that vanished.
#[derive(Default)]
struct Table<K> {
    young: HashMap<K, MacAddr>,
    old: HashMap<K, MacAddr>,
}

#[derive(Default)]
pub(crate) struct Flows {
    v4: Table<FlowKeyV4>,
    v6: Table<FlowKeyV6>,
    /// The member had a daemon before, which saw its connections begin: they are noted here when the end of a write (PSH) passes.
    pub(crate) follows: bool,
}

impl<K: Hash + Eq> Table<K> {
    fn put(&mut self, key: K, mac: MacAddr) {
        self.old.remove(&key);
        self.young.insert(key, mac);
        if self.young.len() >= FLOWS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
    }

    fn remove(&mut self, key: &K) -> Option<MacAddr> {
        (self.young.remove(key)).or_else(|| self.old.remove(key))
    }

    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// The youngest first.
    fn drain(self) -> impl Iterator<Item = (K, MacAddr)> {
        self.young.into_iter().chain(self.old)
    }
}

impl Flows {
    /// Whether a segment with these flags, which the member sends, may be the first or the last of a connection.
    #[inline(always)]
    pub(crate) fn turn_by(&self, flags: Flags) -> bool {
        const TURNS: Flags = Flags::SYN.union(Flags::FIN).union(Flags::RST);
        flags.intersects(TURNS) || self.follows && flags.contains(Flags::PSH)
    }

    /// A connection of another member's.
    pub(crate) fn put(&mut self, (key, mac): Flow) {
        match key {
            FlowKey::V4(key) => self.v4.put(key, mac),
            FlowKey::V6(key) => self.v6.put(key, mac),
        }
    }

    /// One that is another member's from now on.
    pub(crate) fn take(&mut self, key: &FlowKey) -> Option<MacAddr> {
        match key {
            FlowKey::V4(key) => self.v4.remove(key),
            FlowKey::V6(key) => self.v6.remove(key),
        }
    }

    /// Takes note of such a segment. A FIN is as good as an end: its peer waits for nothing more.
    pub(crate) fn note(&mut self, (key, mac): Flow, flags: Flags, counters: &Counters) {
        if flags.intersects(Flags::FIN.union(Flags::RST)) {
            return self.forget(&key, counters);
        }
        let before = self.len();
        self.put((key, mac));
        // One more, or fewer by all that were too old.
        let after = self.len();
        counters.begun.add(after.saturating_sub(before) as u64);
        counters.ended.add(before.saturating_sub(after) as u64);
    }

    /// The connection has been reset.
    pub(crate) fn forget(&mut self, key: &FlowKey, counters: &Counters) {
        let before = self.len();
        self.take(key);
        counters.ended.add((before - self.len()) as u64);
    }

    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    pub(crate) fn drain(self) -> impl Iterator<Item = Flow> + Send {
        let v4 = self.v4.drain().map(|(key, mac)| (FlowKey::V4(key), mac));
        v4.chain(self.v6.drain().map(|(key, mac)| (FlowKey::V6(key), mac)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::SocketAddr;

    use super::*;

    const AT: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn key(number: u32, v6: bool) -> FlowKey {
        let (at, port) = ((number >> 16) as u8, number as u16);
        let ends: (SocketAddr, SocketAddr) = match v6 {
            false => (([10, 0, at, 1], port).into(), ([192, 0, 2, 1], 80).into()),
            true => (
                ([0x2001, 0xdb8, 0, 0, 0, 0, at.into(), 1], port).into(),
                ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9], 80).into(),
            ),
        };
        FlowKey::new(ends.0, ends.1).unwrap()
    }

    /// Number that the counters say there are.
    fn counted(counters: &Counters) -> usize {
        (counters.begun.get() - counters.ended.get()) as usize
    }

    #[test]
    fn connections_are_noted_from_their_syn_to_their_fin_or_a_reset() {
        let (mut flows, counters) = (Flows::default(), Counters::default());
        let syn_ack = Flags::SYN.union(Flags::ACK);
        for v6 in [false, true] {
            for number in 0..3 {
                // A SYN that is sent again is of the same connection.
                flows.note((key(number, v6), AT), syn_ack, &counters);
                flows.note((key(number, v6), AT), syn_ack, &counters);
            }
            flows.note((key(0, v6), AT), Flags::FIN.union(Flags::ACK), &counters);
            flows.note((key(1, v6), AT), Flags::RST, &counters);
            flows.note((key(7, v6), AT), Flags::RST, &counters);
        }
        assert_eq!((flows.len(), counted(&counters)), (2, 2));
        let left: Vec<_> = flows.drain().collect();
        assert_eq!(left, [(key(2, false), AT), (key(2, true), AT)]);
    }

    #[test]
    fn one_that_is_anothers_now_is_counted_once() {
        let (mut flows, mut others, counters) =
            (Flows::default(), Flows::default(), Counters::default());
        for v6 in [false, true] {
            others.note((key(1, v6), AT), Flags::SYN, &counters);
            let known = others.take(&key(1, v6)).expect("it is known");
            flows.put((key(1, v6), known));
            assert_eq!(others.take(&key(1, v6)), None);
        }
        assert_eq!((flows.len(), others.len(), counted(&counters)), (2, 0, 2));
    }

    #[test]
    fn a_segment_in_between_is_looked_at_only_of_who_had_a_daemon_before() {
        let mut flows = Flows::default();
        let push = Flags::PSH.union(Flags::ACK);
        assert!(!flows.turn_by(push) && !flows.turn_by(Flags::ACK));
        assert!(flows.turn_by(Flags::FIN.union(push)));
        flows.follows = true;
        assert!(flows.turn_by(push) && !flows.turn_by(Flags::ACK));
    }

    #[test]
    fn the_older_half_is_forgotten_where_there_are_too_many() {
        let (mut flows, counters) = (Flows::default(), Counters::default());
        let last = 3 * FLOWS_MAX as u32 - 7;
        for number in 0..=last {
            flows.note((key(number, number % 2 == 0), AT), Flags::SYN, &counters);
            assert!(flows.len() <= 2 * FLOWS_MAX);
        }
        assert_eq!(flows.len(), counted(&counters));
        assert!(flows.len() >= FLOWS_MAX, "{}", flows.len());
        let left: HashSet<_> = flows.drain().collect();
        let at_least = last - FLOWS_MAX as u32 + 2..=last;
        assert!(
            at_least
                .into_iter()
                .all(|number| left.contains(&(key(number, number % 2 == 0), AT)))
        );
    }
}
