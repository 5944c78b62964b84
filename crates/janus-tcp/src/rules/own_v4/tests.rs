use super::*;
use crate::rules::interface::IpCidr;
use proptest::prelude::*;

/// Addresses that differ in few places, so that networks, their ends and strangers all come.
fn any_addr() -> impl Strategy<Value = Ipv4Addr> {
    let first = prop_oneof![Just(0u8), Just(10), Just(127), Just(192), Just(224)];
    let last = prop_oneof![Just(0u8), Just(1), Just(127), Just(128), Just(255)];
    (first, 0u8..2, last.clone(), last).prop_map(|(a, b, c, d)| Ipv4Addr::new(a, b, c, d))
}

proptest! {
    /// Numbers compare as the interface compares addresses.
    #[test]
    fn numbers_say_what_the_addresses_say(
        own in proptest::collection::vec((any_addr(), 0u8..=32), 0..4),
        any_local: bool,
        src in any_addr(),
        dst in any_addr(),
    ) {
        let mut interface = Interface::ip(1_500);
        interface.any_local = any_local;
        interface.addresses = own.iter().map(|&(addr, prefix)| IpCidr::new(addr, prefix)).collect();
        let numbers = OwnV4::new(&interface);
        let (source, ours) = (IpAddr::V4(src), IpAddr::V4(dst));
        let is_unicast = (1..224).contains(&dst.octets()[0]) && (1..224).contains(&src.octets()[0]);
        let takes = is_unicast && interface.may_be_source(source) && interface.is_ours(ours);
        prop_assert_eq!(numbers.takes(number(src), number(dst)), takes);
        let loops = |addr: Ipv4Addr| {
            let is_unicast = (1..224).contains(&addr.octets()[0]);
            !any_local && is_unicast && interface.is_own(addr.into())
        };
        prop_assert_eq!((numbers.has(src), numbers.has(dst)), (loops(src), loops(dst)));
        let takes_looped = numbers.takes_looped(number(src), number(dst));
        prop_assert_eq!(takes_looped, loops(src) && loops(dst));
        let near = interface.addresses.iter().any(|own| own.contains(source));
        prop_assert_eq!(numbers.is_near(src), near);
    }
}
