//! Each kind of move is told once, none when nobody asks, and the bound costs nothing but a telling.

use core::time::Duration;

use super::*;
use crate::stack::Stack;
use crate::testing::{Pair, slot};
use crate::{Config, Error};

fn told(stack: &mut Stack) -> Vec<u16> {
    let mut ports = Vec::new();
    stack.take_moved(|key| ports.push(key.peer_port().max(key.local_port())));
    ports
}

#[test]
fn each_way_from_store_to_store_is_told_once() {
    let mut pair = Pair::new(&Config::default(), 1);
    pair.b.stack.track_moves(true);
    pair.a.stack.track_moves(true);
    let (a, b) = pair.open(40_000);
    // From half-open to connection at the server; at the client the record stays.
    assert_eq!(told(&mut pair.b.stack), [40_000]);
    assert_eq!(told(&mut pair.a.stack), []);
    pair.a.stack.close(pair.now, a);
    pair.run_for(Duration::from_secs(1));
    // Nobody is left to read: FIN-WAIT-2 in a compact record.
    assert_eq!(told(&mut pair.a.stack), [40_000]);
    pair.b.stack.close(pair.now, b);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a.stack.in_time_wait(), 1);
    assert_eq!(told(&mut pair.a.stack), []);
    // In place of TIME-WAIT: back again.
    let (_, b) = pair.open(40_000);
    assert_eq!(told(&mut pair.a.stack), [40_000]);
    assert_eq!(told(&mut pair.b.stack), [40_000]);
    // And at the other end, by a SYN.
    pair.b.stack.close(pair.now, b);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(told(&mut pair.b.stack), [40_000]);
    assert_eq!(pair.a.stack.counters().moves_told, 2);
}

#[test]
fn what_has_ended_meanwhile_is_not_told() {
    let mut pair = Pair::new(&Config::default(), 1);
    pair.b.stack.track_moves(true);
    let (_, first) = pair.open(40_000);
    pair.open(40_001);
    pair.b.stack.abort(pair.now, first);
    assert_eq!(told(&mut pair.b.stack), [40_001]);
    assert_eq!(pair.b.stack.counters().moves_told, 2);
}

#[test]
fn nothing_is_kept_while_nobody_asks() {
    let mut pair = Pair::new(&Config::default(), 1);
    pair.open(40_000);
    assert_eq!(told(&mut pair.b.stack), []);
    pair.b.stack.track_moves(true);
    pair.open(40_001);
    pair.b.stack.track_moves(false);
    assert_eq!(told(&mut pair.b.stack), []);
    assert_eq!(pair.b.stack.index().moves.flows.capacity(), 0);
}

#[test]
fn beyond_the_bound_none_goes_back() {
    let mut pair = Pair::new(&Config::default(), 1);
    let (a, b) = pair.open(40_000);
    let key = pair.a.stack.store().tcbs.key(slot(a));
    pair.a.stack.close(pair.now, a);
    pair.b.stack.close(pair.now, b);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a.stack.in_time_wait(), 1);
    pair.a.stack.track_moves(true);
    for _ in 0..=MOVES_MAX {
        pair.a.stack.moved(&key);
    }
    let counters = pair.a.stack.counters();
    assert_eq!(
        (counters.moves_told, counters.moves_untold),
        (MOVES_MAX as u64, 1)
    );
    let (local, remote) = (key.local_addr(), key.peer_addr());
    let again = pair.a.stack.connect(pair.now, local, remote);
    assert_eq!(again, Err(Error::AddrInUse));
    assert_eq!(told(&mut pair.a.stack).len(), MOVES_MAX);
    assert!(pair.a.stack.connect(pair.now, local, remote).is_ok());
    assert_eq!(told(&mut pair.a.stack), [40_000]);
}
