use core::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::flow::FlowKeyV4;

fn flow(peer: u32, port: u16) -> FlowKey {
    FlowKey::V4(FlowKeyV4 {
        peer: Ipv4Addr::from_bits(peer),
        local: Ipv4Addr::new(192, 0, 2, 1),
        peer_port: port,
        local_port: 80,
    })
}

proptest! {
    /// Whoever is named is read back; the stamps of a connection never go back, and their age is known to a tick.
    #[test]
    fn an_echo_names_its_owner_and_its_age(
        keys in any::<(u64, u64)>(),
        owners in 1u16..=256,
        owner in any::<u8>(),
        peer in any::<u32>(),
        port in any::<u16>(),
        sent in any::<u32>(),
        later in 0u32..1_000_000,
    ) {
        let owner = (u16::from(owner) % owners) as u8;
        let stamps = Stamps::new(keys).naming(owner, owners);
        let flow = flow(peer, port);
        let base = stamps.base(stamps.hash(&flow));
        let echo = stamps.stamp(base, sent);
        let named = (owners > 1).then_some(owner);
        prop_assert_eq!(stamps.owner(&flow, echo), named);
        // Read by a core that is nobody's owner, too.
        prop_assert_eq!(Stamps::new(keys).naming(0, owners).owner(&flow, echo), named);
        let now = sent.wrapping_add(later);
        prop_assert!(stamps.stamp(base, now).wrapping_sub(echo) as i32 >= 0);
        let age = stamps.age_ms(base, now, echo);
        prop_assert!(age >= later && age - later <= stamps.slack_ms(), "{age} for {later}");
        prop_assert!(stamps.slack_ms() < 2 * u32::from(owners));
    }

    /// The stamps of a connection that moves, to whoever and whatever the clock there, never go back, are as near as a tick allows, and
    /// name who has it. Where nothing differs nothing changes.
    #[test]
    fn a_connection_that_moves_stamps_on(
        [old, new] in any::<[(u64, u64); 2]>(),
        [of_old, of_new] in [1u16..=256, 1u16..=256],
        [owner, heir] in any::<[u8; 2]>(),
        port in any::<u16>(),
        [here, there] in any::<[u32; 2]>(),
        later in 0u32..1_000_000,
    ) {
        let old = Stamps::new(old).naming((u16::from(owner) % of_old) as u8, of_old);
        let heir = (u16::from(heir) % of_new) as u8;
        let new = Stamps::new(new).naming(heir, of_new);
        let flow = flow(9, port);
        let first = old.base(old.hash(&flow));
        let last = old.stamp(first, here);
        prop_assert_eq!(old.resume(old.hash(&flow), last, here), first);
        let base = new.resume(new.hash(&flow), last, there);
        prop_assert!(new.stamp(base, there).wrapping_sub(last) <= new.slack_ms());
        let next = new.stamp(base, there.wrapping_add(later));
        prop_assert!(next.wrapping_sub(last) as i32 >= 0);
        prop_assert_eq!(new.owner(&flow, next), (of_new > 1).then_some(heir));
        prop_assert_eq!(StampBase::from_bits(base.to_bits()), base);
    }

    /// A lie names somebody there is, or nobody.
    #[test]
    fn a_lie_names_nobody_that_there_is_not(owners in 1u16..=256, echo in any::<u32>(), port in any::<u16>()) {
        let stamps = Stamps::new((1, 2)).naming(0, owners);
        let named = stamps.owner(&flow(7, port), echo);
        prop_assert!(named.is_none_or(|named| u16::from(named) < owners));
    }
}

#[test]
fn without_owners_every_bit_is_the_clocks() {
    let stamps = Stamps::new((3, 4));
    let base = stamps.base(stamps.hash(&flow(1, 1)));
    let first = stamps.stamp(base, 0);
    for now in 0..5_000 {
        assert_eq!(stamps.stamp(base, now), first.wrapping_add(now));
        assert_eq!(stamps.age_ms(base, now, first), now);
    }
    assert_eq!((stamps.bits(), stamps.owner(&flow(1, 1), first)), (0, None));
}

#[test]
fn the_bits_tell_strangers_nothing_of_who_shares_an_owner() {
    let stamps = Stamps::new((0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03)).naming(3, 16);
    let mut seen = [0; 16];
    for port in 0..1_600 {
        let base = stamps.base(stamps.hash(&flow(1, port)));
        seen[(stamps.stamp(base, 0) & 15) as usize] += 1;
    }
    assert!(
        seen.iter().all(|count| (50..200).contains(count)),
        "{seen:?}"
    );
}

/// A stranger sees the offsets of as many connections of its own as it likes. With the multiply-and-fold hash that stood here
/// before, ports that differ in the lowest bit had one offset, and one address had the same for every port.
#[test]
fn offsets_of_one_stranger_have_nothing_to_do_with_each_other() {
    let keys = (0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03);
    let stamps = Stamps::new(keys);
    // The address for which the old hash multiplied by zero.
    let local = Ipv4Addr::from_bits(keys.0 as u32);
    let peer = Ipv4Addr::from_bits((keys.0 >> 32) as u32);
    for (peer, local) in [(peer, local), (Ipv4Addr::new(192, 0, 2, 9), local)] {
        let offset = |local_port: u16| {
            let flow = FlowKeyV4 {
                peer,
                local,
                peer_port: 4_000,
                local_port,
            };
            stamps.hash(&FlowKey::V4(flow)) as u32
        };
        let offsets: Vec<u32> = (0..4_096).map(offset).collect();
        let mut all = offsets.clone();
        all.sort_unstable();
        all.dedup();
        // Of 4,096 numbers of 32 bits, two are equal once in 512 tries.
        assert!(all.len() >= 4_094, "{} offsets", all.len());
        let mut steps: Vec<u32> = offsets
            .windows(2)
            .map(|two| two[1].wrapping_sub(two[0]))
            .collect();
        steps.sort_unstable();
        steps.dedup();
        assert!(steps.len() >= 4_093, "{} steps", steps.len());
    }
}
