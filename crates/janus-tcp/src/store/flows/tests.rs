//! Both families in one store.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::*;

/// As large as what a connection keeps.
#[derive(Clone, Copy, Default)]
struct Rest {
    mark: u32,
    _filler: [u32; 12],
}

fn store(max: u32) -> Flows<Rest> {
    Flows::new(max, &Growth::Inline).expect("memory")
}

fn v4(port: u16) -> FlowKey {
    let end = |last, port| SocketAddr::new(Ipv4Addr::new(192, 0, 2, last).into(), port);
    FlowKey::new(end(1, port), end(2, 80)).expect("one family")
}

fn v6(port: u16) -> FlowKey {
    let addr = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    let end = |last, port| SocketAddr::new(addr(last).into(), port);
    FlowKey::new(end(1, port), end(2, 80)).expect("one family")
}

#[test]
fn records_of_both_families_keep_apart() {
    let mut store = store(100);
    let keys: Vec<FlowKey> = (1..=50).flat_map(|p| [v4(p), v6(p)]).collect();
    let ids: Vec<u32> = keys.iter().map(|k| store.alloc(k).expect("room")).collect();
    for (mark, &id) in ids.iter().enumerate() {
        store[id].mark = mark as u32;
    }
    for (mark, (&id, key)) in ids.iter().zip(&keys).enumerate() {
        assert_eq!(store[id].mark, mark as u32);
        assert_eq!(store.key(id), *key);
        assert_eq!(id & V6 != 0, key.is_v6());
        for other in &keys {
            assert_eq!(store.is_for(id, other), other == key);
        }
    }
}

#[test]
fn the_bound_counts_both() {
    let mut store = store(10);
    for port in 1..=5 {
        assert!(store.alloc(&v4(port)).is_some());
        assert!(store.alloc(&v6(port)).is_some());
    }
    assert_eq!(store.len(), 10);
    assert!(store.alloc(&v4(6)).is_none() && store.alloc(&v6(6)).is_none());
    store.free(V6);
    assert!(store.alloc(&v4(6)).is_some());
}

#[test]
fn a_freed_record_is_nobodys() {
    let mut store = store(10);
    for key in [v4(1), v6(1)] {
        let id = store.alloc(&key).expect("room");
        assert!(store.is_for(id, &key));
        store.free(id);
        assert!(!store.is_for(id, &key));
    }
    assert_eq!(store.len(), 0);
}

#[test]
fn an_index_beyond_all_slots_is_no_record() {
    let mut store = store(10);
    store.alloc(&v4(1)).expect("room");
    store.alloc(&v6(1)).expect("room");
    for id in [1, V6 | 1, V6 - 1, u32::MAX] {
        assert!(store.get(id).is_none());
        assert!(!store.is_for(id, &v4(1)) && !store.is_for(id, &v6(1)));
    }
    for id in [0, V6] {
        assert!(store.get(id).is_some());
    }
}
