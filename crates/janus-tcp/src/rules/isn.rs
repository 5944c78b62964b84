//! Initial sequence numbers by RFC 6528, the per-connection timestamp offset of RFC 7323 section 5.4, flow labels.

use janus_wire::siphash::siphash_1_3;
use janus_wire::{FlowKey, SeqNum, StampBase};

use crate::rules::Rules;
use crate::rules::config::Secrets;
use crate::time::Instant;

/// How far a connection that takes the place of one in TIME-WAIT begins beyond it: more than a window that is not
/// scaled, as in Linux.
const BEYOND_THE_OLD: u32 = 65_537;

/// The initial number of a connection whose ends had another one, which has sent up to `old`: the clock's, or one beyond
/// the old connection's numbers where those ran faster than the clock, 250 kB/s (RFC 1122 section 4.2.2.13).
pub(crate) fn beyond(initial: SeqNum, old: Option<SeqNum>) -> SeqNum {
    match old.map(|old| old + BEYOND_THE_OLD) {
        Some(least) if least.gt(initial) => least,
        _ => initial,
    }
}

/// Numbers that a connection has by one keyed hash. Of its 64 bits the timestamps' offset is 0 to 31, which the flow label takes its
/// from, and `F` of the initial sequence number 24 to 55. A stranger learns none of them from the numbers of its own connections, and
/// who sees the connection's packets sees all of them; 56 to 63, which hide the owner, are in none.
impl Rules {
    /// Returns the first sequence number of a connection, `M + F(addresses, ports, secret)` with M a clock that ticks every 4 µs,
    /// and what its timestamps are counted from.
    /// Keeps MUST-8, SHLD-1.
    #[inline(always)]
    pub(crate) fn first_numbers(&self, key: &FlowKey, now: Instant) -> (SeqNum, StampBase) {
        let stamps = self.secrets.stamps();
        let hash = stamps.hash(key);
        let clock = (now.as_micros() / 4) as u32;
        let first = clock.wrapping_add((hash >> 24) as u32);
        (SeqNum(first), stamps.base(hash))
    }

    /// Returns what the connection's timestamps are counted from, which only this host can compute.
    #[inline]
    pub(crate) fn stamp_base(&self, key: &FlowKey) -> StampBase {
        let stamps = self.secrets.stamps();
        stamps.base(stamps.hash(key))
    }

    /// Returns the connection's timestamp: milliseconds, and who owns the connection if timestamps are to say so.
    /// Keeps 7323-18, 7323-26, 7323-27.
    #[inline(always)]
    pub(crate) fn timestamp(&self, base: StampBase, now_ms: u32) -> u32 {
        self.secrets.stamps().stamp(base, now_ms)
    }

    /// How long ago, in milliseconds and at most, the timestamp was sent that is echoed; large for one from the future.
    #[inline]
    pub(crate) fn age_ms(&self, base: StampBase, now_ms: u32, echo: u32) -> u32 {
        self.secrets.stamps().age_ms(base, now_ms, echo)
    }

    /// Returns the connection's flow label (RFC 6437): the same for all its packets, and unpredictable to others.
    #[inline]
    pub(crate) fn flow_label(&self, key: &FlowKey) -> u32 {
        self.stamp_base(key).flow_label()
    }
}

/// Purpose that a key is derived for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Identifications = 1,
    SourcePorts = 2,
}

/// A key that says nothing of the secrets, nor of another purpose's.
pub(crate) fn derived(secrets: &Secrets, purpose: Purpose) -> (u64, u64) {
    // Three words: nothing else is hashed with this key that is as long.
    let word = |half| siphash_1_3(secrets.draws, [purpose as u64, half, u64::MAX]);
    (word(0), word(1))
}

/// Returns a number for `n` that only a holder of `secrets` can compute.
pub(crate) fn keyed(secrets: &Secrets, n: u64) -> u64 {
    siphash_1_3(secrets.draws, [n, u64::MAX])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::config::Config;
    use crate::rules::interface::Interface;
    use janus_wire::{FlowKeyV4, FlowKeyV6};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn rules(seed: u64) -> Rules {
        let secrets = Secrets::from_seed(seed);
        Rules::new(Config::default(), Interface::ip(1_500), secrets)
    }

    fn timestamp(rules: &Rules, key: &FlowKey, now: Instant) -> u32 {
        rules.timestamp(rules.stamp_base(key), now.as_millis() as u32)
    }

    fn key(port: u16) -> FlowKey {
        FlowKey::V4(FlowKeyV4 {
            peer: Ipv4Addr::new(192, 0, 2, 1),
            local: Ipv4Addr::new(192, 0, 2, 2),
            peer_port: port,
            local_port: 80,
        })
    }

    fn key_v6(peer: u128, port: u16) -> FlowKeyV6 {
        FlowKeyV6 {
            peer: Ipv6Addr::from_bits(peer),
            local: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            peer_port: port,
            local_port: 80,
        }
    }

    #[test]
    fn every_bit_of_a_v6_peer_counts() {
        let rules = rules(1);
        let now = Instant::from_millis(5);
        let peer = 0x2001_0db8_u128 << 96 | 7;
        let all = |key: FlowKeyV6| {
            let flow = FlowKey::V6(key);
            (
                rules.first_numbers(&flow, now).0,
                timestamp(&rules, &flow, now),
                rules.flow_label(&flow),
            )
        };
        let one = all(key_v6(peer, 1));
        for bit in 0..128 {
            let other = all(key_v6(peer ^ 1 << bit, 1));
            assert!(
                one.0 != other.0 && one.1 != other.1 && one.2 != other.2,
                "{bit}"
            );
        }
        assert_ne!(one, all(key_v6(peer, 2)));
    }

    #[test]
    fn the_clock_part_ticks_every_four_microseconds() {
        let rules = rules(1);
        let at = |us| rules.first_numbers(&key(1), Instant::from_micros(us)).0;
        assert_eq!(at(4_000) - at(0), 1_000);
    }

    #[test]
    fn a_successor_begins_beyond_its_predecessor() {
        for clock in [0, 1_000_000, u32::MAX - 10] {
            let clock = SeqNum(clock);
            assert_eq!(beyond(clock, None), clock);
            let ahead = clock - 5;
            assert_eq!(beyond(clock, Some(ahead)), ahead + 65_537);
            assert_eq!(beyond(clock, Some(clock + 1_000u32)), clock + 66_537);
            assert_eq!(beyond(clock, Some(clock - 70_000)), clock);
        }
    }

    #[test]
    fn another_tuple_or_secret_gives_another_number() {
        let (a, b) = (rules(1), rules(2));
        let now = Instant::from_millis(5);
        let initial = |of: &Rules, port| of.first_numbers(&key(port), now).0;
        assert_ne!(initial(&a, 1), initial(&a, 2));
        assert_ne!(initial(&a, 1), initial(&b, 1));
        assert_ne!(timestamp(&a, &key(1), now), timestamp(&b, &key(1), now));
    }
}
