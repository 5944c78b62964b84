//! Initial sequence numbers by RFC 6528, and the per-connection timestamp offset of RFC 7323 section 5.4.

use janus_wire::{FlowKey, FlowKeyV4, FlowKeyV6, SeqNum};
use std::net::Ipv6Addr;

use crate::config::Secrets;
use crate::siphash::siphash_1_3;
use crate::time::Instant;

/// `ISN = M + F(addresses, ports, secret)`, M a clock that ticks every 4 µs.
pub(crate) fn initial(secrets: &Secrets, key: &FlowKey, now: Instant) -> SeqNum {
    let clock = (now.as_micros() / 4) as u32;
    let hash = match key {
        FlowKey::V4(key) => siphash_1_3(secrets.isn, words_v4(key)),
        FlowKey::V6(key) => siphash_1_3(secrets.isn, words_v6(key)),
    };
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

/// The connection's timestamp: milliseconds from an offset that only this host can compute, and who owns the connection
/// if timestamps are to say so.
#[inline]
pub(crate) fn timestamp(secrets: &Secrets, key: &FlowKey, now: Instant) -> u32 {
    secrets.timestamps.stamp(key, now.as_millis() as u32)
}

/// How long ago, in milliseconds and at most, the timestamp was sent that is echoed; large for one from the future.
#[inline]
pub(crate) fn age_ms(secrets: &Secrets, key: &FlowKey, now: Instant, echo: u32) -> u32 {
    secrets.timestamps.age_ms(key, now.as_millis() as u32, echo)
}

/// The connection's flow label (RFC 6437): the same for all its packets, and nobody's to foresee. It comes from the
/// bits that the timestamp leaves.
#[inline]
pub(crate) fn flow_label(secrets: &Secrets, key: &FlowKeyV6) -> u32 {
    (secrets.timestamps.hash_v6(key) >> 32) as u32 & 0x000f_ffff
}

/// A number for `n` that nobody else can compute.
pub(crate) fn keyed(secrets: &Secrets, n: u64) -> u64 {
    siphash_1_3(secrets.isn, [n, u64::MAX])
}

#[inline]
fn words_v4(key: &FlowKeyV4) -> [u64; 2] {
    [key.addresses(), u64::from(key.ports())]
}

#[inline]
fn words_v6(key: &FlowKeyV6) -> [u64; 5] {
    let halves = |addr: Ipv6Addr| [(addr.to_bits() >> 64) as u64, addr.to_bits() as u64];
    let ([p0, p1], [l0, l1]) = (halves(key.peer), halves(key.local));
    [p0, p1, l0, l1, u64::from(key.ports())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

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
            (
                initial(&secrets, &flow, now),
                timestamp(&secrets, &flow, now),
                flow_label(&secrets, &key),
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
        assert_ne!(timestamp(&a, &key(1), now), timestamp(&b, &key(1), now));
    }
}
