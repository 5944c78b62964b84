//! Which link address is behind which port: a bounded table that all ports read and write without a lock. What does not fit
//! pushes out another, and what is not known is flooded; so it can be wrong only in how far a frame goes, never in whether it
//! arrives.

use std::sync::atomic::{AtomicU64, Ordering};

use janus_wire::MacAddr;

/// Addresses that share a place; one more pushes one of them out.
const WAYS: usize = 4;
const SETS: usize = 256;
/// Addresses that are known at most.
#[cfg(test)]
pub(super) const CAPACITY: usize = WAYS * SETS;

const MAC_BITS: u32 = 48;
const MAC: u64 = (1 << MAC_BITS) - 1;
/// In every entry that is one; no port's number is so high.
const USED: u64 = 1 << 63;

pub(super) struct Table {
    sets: Box<[[AtomicU64; WAYS]]>,
}

fn bits(MacAddr([a, b, c, d, e, f]): MacAddr) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl Table {
    pub(super) fn new() -> Table {
        let sets = (0..SETS).map(|_| Default::default());
        Table {
            sets: sets.collect(),
        }
    }

    fn set(&self, mac: u64) -> &[AtomicU64; WAYS] {
        // Fibonacci hashing.
        let mixed = mac.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.sets[mixed as usize % SETS]
    }

    /// Where the address is; never known of a group.
    #[inline]
    pub(super) fn find(&self, mac: MacAddr) -> Option<usize> {
        let mac = bits(mac);
        let entries = self.set(mac).iter().map(|way| way.load(Ordering::Relaxed));
        entries
            .filter(|entry| entry & (USED | MAC) == USED | mac)
            .map(|entry| ((entry & !USED) >> MAC_BITS) as usize)
            .next()
    }

    /// The address has sent something from there. A group sends nothing.
    #[inline]
    pub(super) fn learn(&self, mac: MacAddr, port: usize) {
        if mac.is_group() {
            return;
        }
        let mac = bits(mac);
        let entry = USED | (port as u64) << MAC_BITS | mac;
        let set = self.set(mac);
        if set[0].load(Ordering::Relaxed) != entry {
            learn_anew(set, entry);
        }
    }
}

/// The newest stands first, so that the one that has said nothing for longest is pushed out. Several may do this at once: then
/// one may be there twice, of which the first counts, or be forgotten, and is flooded until it speaks again.
#[cold]
fn learn_anew(set: &[AtomicU64; WAYS], entry: u64) {
    let mut moving = entry;
    for way in set {
        let before = way.swap(moving, Ordering::Relaxed);
        if before == 0 || before & MAC == entry & MAC {
            return;
        }
        moving = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u32) -> MacAddr {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddr([2, 0, a, b, c, d])
    }

    #[test]
    fn who_spoke_last_from_where_counts() {
        let table = Table::new();
        assert_eq!(table.find(mac(1)), None);
        for port in [0, 7, 63, 0] {
            table.learn(mac(1), port);
            table.learn(mac(2), 5);
            assert_eq!(
                (table.find(mac(1)), table.find(mac(2))),
                (Some(port), Some(5))
            );
        }
        table.learn(MacAddr::BROADCAST, 3);
        assert_eq!(table.find(MacAddr::BROADCAST), None);
        assert_eq!(
            table.find(MacAddr::ZERO),
            None,
            "an empty place is nobody's"
        );
    }

    #[test]
    fn one_that_moves_about_pushes_out_nobody() {
        let table = Table::new();
        let same_place =
            |number: &u32| std::ptr::eq(table.set(bits(mac(*number))), table.set(bits(mac(0))));
        let neighbors: Vec<u32> = (0..).filter(same_place).take(WAYS).collect();
        for number in &neighbors {
            table.learn(mac(*number), 1);
        }
        for port in 0..20 {
            table.learn(mac(neighbors[0]), port);
            let known = neighbors
                .iter()
                .filter_map(|number| table.find(mac(*number)));
            assert_eq!(known.count(), WAYS, "{port}");
        }
    }

    #[test]
    fn a_flood_of_addresses_pushes_out_those_that_are_silent() {
        let table = Table::new();
        table.learn(mac(0), 1);
        for number in 1..20 * CAPACITY as u32 {
            table.learn(mac(number), 2);
            if number % 2 == 0 {
                table.learn(mac(0), 1);
            }
            assert_eq!(table.find(mac(number)), Some(2));
        }
        table.learn(mac(0), 1);
        assert_eq!(table.find(mac(0)), Some(1));
        let known = (1..20 * CAPACITY as u32).filter(|number| table.find(mac(*number)).is_some());
        let known = known.count();
        assert!(known > CAPACITY / 2 && known < CAPACITY, "{known}");
    }
}
