//! Initial sequence numbers by RFC 6528, the per-connection timestamp offset of RFC 7323 section 5.4, flow labels.

use std::cell::Cell;

use janus_wire::siphash::{siphash_1_3, siphash_1_3_flow};
use janus_wire::{FlowKey, FlowKeyV4, FlowKeyV6, SeqNum, Stamps};

use crate::rules::config::Secrets;
use crate::time::Instant;

/// `ISN = M + F(addresses, ports, secret)`, M a clock that ticks every 4 µs.
/// Keeps MUST-8, SHLD-1.
pub(crate) fn initial(secrets: &Secrets, key: &FlowKey, now: Instant) -> SeqNum {
    let clock = (now.as_micros() / 4) as u32;
    let hash = siphash_1_3_flow(secrets.isn, key);
    SeqNum(clock.wrapping_add(hash as u32))
}

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

/// Makes the numbers that a connection has by its timestamp hash.
pub(crate) struct Stamper {
    stamps: Stamps,
    v4: Latest<FlowKeyV4>,
    v6: Latest<FlowKeyV6>,
}

/// The hash of the connection that was asked about last: of a burst nearly every segment is that connection's, and one over
/// IPv6 asks twice.
struct Latest<Key> {
    key: Cell<Key>,
    hash: Cell<u64>,
}

impl<Key: Copy + Default + PartialEq + Into<FlowKey>> Latest<Key> {
    fn new(stamps: &Stamps) -> Latest<Key> {
        let none = Key::default();
        Latest {
            key: Cell::new(none),
            hash: Cell::new(stamps.hash(&none.into())),
        }
    }

    #[inline]
    fn hash(&self, key: &Key, stamps: &Stamps) -> u64 {
        if self.key.get() != *key {
            self.key.set(*key);
            self.hash.set(stamps.hash(&(*key).into()));
        }
        self.hash.get()
    }
}

impl Stamper {
    pub(crate) fn new(stamps: Stamps) -> Stamper {
        Stamper {
            v4: Latest::new(&stamps),
            v6: Latest::new(&stamps),
            stamps,
        }
    }

    #[inline]
    fn hash(&self, key: &FlowKey) -> u64 {
        match key {
            FlowKey::V4(key) => self.v4.hash(key, &self.stamps),
            FlowKey::V6(key) => self.v6.hash(key, &self.stamps),
        }
    }

    /// The connection's timestamp: milliseconds from an offset that only this host can compute, and who owns the connection
    /// if timestamps are to say so.
    /// Keeps 7323-18, 7323-26, 7323-27.
    #[inline]
    pub(crate) fn timestamp(&self, key: &FlowKey, now: Instant) -> u32 {
        self.stamps.stamp(self.hash(key), now.as_millis() as u32)
    }

    /// How long ago, in milliseconds and at most, the timestamp was sent that is echoed; large for one from the future.
    #[inline]
    pub(crate) fn age_ms(&self, key: &FlowKey, now: Instant, echo: u32) -> u32 {
        self.stamps
            .age_ms(self.hash(key), now.as_millis() as u32, echo)
    }

    /// Returns the connection's flow label (RFC 6437): the same for all its packets, and unpredictable to others. It comes from
    /// the bits that the timestamp leaves.
    #[inline]
    pub(crate) fn flow_label(&self, key: &FlowKey) -> u32 {
        (self.hash(key) >> 32) as u32 & 0x000f_ffff
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
    let word = |half| siphash_1_3(secrets.isn, [purpose as u64, half, u64::MAX]);
    (word(0), word(1))
}

/// Returns a number for `n` that only a holder of `secrets` can compute.
pub(crate) fn keyed(secrets: &Secrets, n: u64) -> u64 {
    siphash_1_3(secrets.isn, [n, u64::MAX])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

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
        let secrets = Secrets::from_seed(1);
        let now = Instant::from_millis(5);
        let peer = 0x2001_0db8_u128 << 96 | 7;
        let all = |key: FlowKeyV6| {
            let flow = FlowKey::V6(key);
            let stamper = Stamper::new(secrets.timestamps);
            (
                initial(&secrets, &flow, now),
                stamper.timestamp(&flow, now),
                stamper.flow_label(&flow),
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
        let secrets = Secrets::from_seed(1);
        let at = |us| initial(&secrets, &key(1), Instant::from_micros(us));
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
        let (a, b) = (Secrets::from_seed(1), Secrets::from_seed(2));
        let now = Instant::from_millis(5);
        assert_ne!(initial(&a, &key(1), now), initial(&a, &key(2), now));
        assert_ne!(initial(&a, &key(1), now), initial(&b, &key(1), now));
        let timestamp = |of: &Secrets| Stamper::new(of.timestamps).timestamp(&key(1), now);
        assert_ne!(timestamp(&a), timestamp(&b));
    }

    /// Whatever was asked before: of connections that differ in one port, or in nothing but the family.
    #[test]
    fn what_is_kept_of_the_latest_connection_is_no_other_s() {
        let secrets = Secrets::from_seed(3);
        let stamper = Stamper::new(secrets.timestamps);
        let FlowKey::V4(four) = key(1) else {
            unreachable!()
        };
        let six = FlowKeyV6 {
            peer: four.peer.to_ipv6_mapped(),
            local: four.local.to_ipv6_mapped(),
            peer_port: four.peer_port,
            local_port: four.local_port,
        };
        let keys = [
            key(1),
            key(2),
            FlowKey::V6(six),
            FlowKey::V4(FlowKeyV4::NONE),
        ];
        let now = Instant::from_millis(77);
        for (one, other) in keys
            .iter()
            .flat_map(|one| keys.iter().map(move |other| (one, other)))
        {
            for key in [one, other, other] {
                let fresh = Stamper::new(secrets.timestamps);
                assert_eq!(stamper.timestamp(key, now), fresh.timestamp(key, now));
                assert_eq!(stamper.flow_label(key), fresh.flow_label(key));
                assert_eq!(stamper.age_ms(key, now, 5), fresh.age_ms(key, now, 5));
            }
        }
    }
}
