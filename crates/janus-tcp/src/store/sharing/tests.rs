use super::*;

const KEY: (u64, u64) = (0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03);

fn peer(i: u32) -> IpAddr {
    std::net::Ipv4Addr::from_bits(0xc633_6400 + i).into()
}

fn facts(srtt_us: u32) -> Facts {
    Facts {
        srtt_us,
        variation_us: srtt_us / 2,
        threshold: Some(20),
    }
}

#[test]
fn what_was_learned_last_is_known_until_it_is_old() {
    let mut table = PathFacts::default();
    let begin = Instant::ZERO + Duration::from_secs(5);
    assert!(table.is_empty());
    assert_eq!(table.of(KEY, peer(1), begin), None);
    table.learn(KEY, peer(1), facts(100), begin);
    table.learn(KEY, peer(1), facts(200), begin);
    let just = begin + (FORGOTTEN_AFTER - Duration::from_nanos(1));
    assert_eq!(table.of(KEY, peer(1), just), Some(facts(200)));
    assert_eq!(table.of(KEY, peer(1), begin + FORGOTTEN_AFTER), None);
    assert_eq!(table.of(KEY, peer(2), begin), None);
    table.forget(KEY, peer(2));
    assert_eq!(table.of(KEY, peer(1), just), Some(facts(200)));
    table.forget(KEY, peer(1));
    assert_eq!(table.of(KEY, peer(1), just), None);
}

/// However many peers there are, the table stays as large as it is, and those heard of last are in it.
#[test]
fn the_oldest_make_room() {
    let mut table = PathFacts::default();
    let at = |i: u32| Instant::ZERO + Duration::from_millis(i.into());
    let many = 100 * (SETS * WAYS) as u32;
    for i in 0..many {
        table.learn(KEY, peer(i), facts(i + 1), at(i));
    }
    assert_eq!(table.sets.len(), SETS);
    let last = (many - SETS as u32 / 4..many).rev();
    let known = last.filter(|i| table.of(KEY, peer(*i), at(many)) == Some(facts(i + 1)));
    assert_eq!(
        known.count(),
        SETS / 4,
        "of the last, none has been pushed out"
    );
    let old = (0..many / 2).filter(|i| table.of(KEY, peer(*i), at(*i)).is_some());
    assert_eq!(old.count(), 0);
}

/// Two addresses that share a set under one key need not do so under another.
#[test]
fn which_paths_push_each_other_out_is_the_keys_secret() {
    let together = |key| move |i: &u32| set_number(key, peer(*i)) == set_number(key, peer(0));
    let first: Vec<u32> = (1..20_000).filter(together(KEY)).collect();
    assert!(first.len() > 20, "{}", first.len());
    let still = first.iter().filter(|i| together((KEY.1, KEY.0))(i)).count();
    assert!(still < first.len() / 4, "{still} of {}", first.len());
}
