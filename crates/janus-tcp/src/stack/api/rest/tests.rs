use core::time::Duration;

use crate::testing::Pair;
use crate::{Config, ConnId, Error, Rest, RestLimits, Stack};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn carrying(bits: u16) -> Rest {
    Rest::new(5).carrying(bits)
}

/// An open connection whose far end is at rest, and that end.
fn at_rest(pair: &mut Pair, port: u16, rest: Rest) -> (ConnId, ConnId) {
    let (a, b) = pair.open(port);
    pair.b.stack.rest(pair.now, b, rest).expect("it is open");
    (a, b)
}

fn roused(stack: &mut Stack) -> Option<(ConnId, u16)> {
    let (conn, rest) = stack.pop_roused()?;
    Some((conn, rest.carried()))
}

#[test]
fn what_comes_rouses_once_and_no_token_is_woken() {
    let mut pair = Pair::new(&Config::default(), 1);
    let (a, b) = at_rest(&mut pair, 4_000, carrying(77));
    assert_eq!((pair.b.stack.resting(), pair.b.stack.resting_at(5)), (1, 1));
    pair.run_for(SECOND);
    assert_eq!(roused(&mut pair.b.stack), None);
    pair.a.stack.write(pair.now, a, b"hello").expect("room");
    pair.run_for(SECOND);
    // Until it is taken the handler is still in use.
    assert_eq!((pair.b.stack.resting(), pair.b.stack.resting_at(5)), (0, 1));
    pair.a.stack.write(pair.now, a, b" again").expect("room");
    pair.run_for(SECOND);
    assert_eq!(roused(&mut pair.b.stack), Some((b, 77)));
    assert_eq!(roused(&mut pair.b.stack), None);
    assert_eq!(pair.b.stack.resting_at(5), 0);
    // Not even the acceptor's token is set here.
    assert_eq!(pair.b.stack.pop_ready(), None);
    let mut into = [0; 16];
    assert_eq!(pair.b.stack.read(pair.now, b, &mut into), Ok(11));
}

#[test]
fn what_is_there_already_rouses_at_once() {
    let mut pair = Pair::new(&Config::default(), 2);
    let (a, b) = pair.open(4_000);
    pair.a.stack.write(pair.now, a, b"early").expect("room");
    pair.run_for(SECOND);
    pair.b
        .stack
        .rest(pair.now, b, carrying(1))
        .expect("it is open");
    assert_eq!(pair.b.stack.resting(), 0);
    assert_eq!(roused(&mut pair.b.stack), Some((b, 1)));
    let stale = ConnId {
        generation: b.generation + 1,
        ..b
    };
    assert_eq!(
        pair.b.stack.rest(pair.now, stale, carrying(1)),
        Err(Error::Stale)
    );
}

#[test]
fn the_peers_end_and_a_reset_rouse() {
    let mut pair = Pair::new(&Config::default(), 3);
    let (fin, fin_b) = at_rest(&mut pair, 4_000, carrying(1));
    let (rst, rst_b) = at_rest(&mut pair, 4_001, carrying(2));
    pair.a.stack.close(pair.now, fin);
    pair.a.stack.abort(pair.now, rst);
    pair.run_for(SECOND);
    let mut ended = [roused(&mut pair.b.stack), roused(&mut pair.b.stack)];
    ended.sort_by_key(|roused| roused.map(|(_, bits)| bits));
    assert_eq!(ended, [Some((fin_b, 1)), Some((rst_b, 2))]);
    assert_eq!(pair.b.stack.read(pair.now, fin_b, &mut [0; 4]), Ok(0));
    let reset = pair.b.stack.read(pair.now, rst_b, &mut [0; 4]);
    assert_eq!(reset, Err(Error::ConnectionReset));
    // One that has ended is roused whenever it comes to rest.
    pair.b
        .stack
        .rest(pair.now, rst_b, carrying(3))
        .expect("ours");
    assert_eq!(roused(&mut pair.b.stack), Some((rst_b, 3)));
    assert_eq!(pair.b.stack.resting(), 0);
}

fn limited(pair: &mut Pair) {
    let limits = RestLimits {
        first: Some(20 * SECOND),
        further: Some(60 * SECOND),
    };
    pair.b.stack.limit_rests(pair.now, 5, limits);
}

#[test]
fn a_rest_that_lasts_too_long_ends_in_order() {
    let mut pair = Pair::new(&Config::default(), 4);
    limited(&mut pair);
    let (first, _) = at_rest(&mut pair, 4_000, Rest::new(5));
    let (further, _) = at_rest(&mut pair, 4_001, carrying(1));
    let (other, _) = at_rest(&mut pair, 4_002, Rest::new(6));
    let open = |pair: &mut Pair, conn| pair.a.stack.read(pair.now, conn, &mut [0; 1]);
    let waits = Err(Error::WouldBlock);
    pair.run_for(19 * SECOND);
    assert_eq!(open(&mut pair, first), waits);
    pair.run_for(2 * SECOND);
    assert_eq!(open(&mut pair, first), Ok(0));
    assert_eq!(open(&mut pair, further), waits);
    pair.run_for(40 * SECOND);
    assert_eq!(open(&mut pair, further), Ok(0));
    assert_eq!(open(&mut pair, other), waits);
    assert_eq!(pair.b.stack.counters().rests_ended, 2);
    assert_eq!(pair.b.stack.resting(), 1);
    assert_eq!(roused(&mut pair.b.stack), None);
    // Whoever does not end his side keeps no connection here.
    assert_eq!(pair.b.stack.connections(), 1);
}

/// A peer that answers our keep-alive is heard of all the time.
#[test]
fn segments_that_bring_nothing_do_not_prolong_a_rest() {
    let mut pair = Pair::new(&Config::default(), 5);
    limited(&mut pair);
    let (a, b) = pair.open(4_000);
    let options = crate::SocketOptions {
        keepalive: true,
        keepalive_idle: 5 * SECOND,
        ..Default::default()
    };
    pair.b
        .stack
        .set_options(pair.now, b, &options)
        .expect("sound");
    pair.b.stack.rest(pair.now, b, carrying(0)).expect("open");
    pair.run_for(59 * SECOND);
    assert_eq!(pair.b.stack.resting(), 1);
    let silent_ms = pair.b.stack.info(b).expect("open").silent_ms;
    assert!(silent_ms < 6_000, "{silent_ms}");
    pair.run_for(9 * SECOND);
    assert_eq!(pair.b.stack.resting(), 0);
    assert_eq!(pair.a.stack.read(pair.now, a, &mut [0; 1]), Ok(0));
}

#[test]
fn what_is_no_request_does_not_prolong_a_rest_that_goes_on() {
    let mut pair = Pair::new(&Config::default(), 6);
    limited(&mut pair);
    let (a, b) = at_rest(&mut pair, 4_000, carrying(9));
    for second in 0..70 {
        if pair.a.stack.write(pair.now, a, b"\r\n").is_err() {
            assert!(second >= 59, "closed after {second} s");
            return;
        }
        pair.run_for(SECOND);
        if let Some((conn, rest)) = pair.b.stack.pop_roused() {
            let read = pair.b.stack.read(pair.now, b, &mut [0; 8]);
            assert_eq!((read, conn), (Ok(2), b));
            pair.b.stack.rest_on(b, rest).expect("open");
        }
    }
    panic!("it rests for ever");
}

#[test]
fn an_end_of_all_rests_goes_on_where_it_stopped() {
    let mut pair = Pair::new(&Config::default(), 7);
    for port in 0..20 {
        pair.v6 = port % 2 == 1;
        at_rest(&mut pair, 4_000 + port, Rest::new(port as u8));
    }
    let (_, kept) = pair.open(5_000);
    let (mut cursor, mut calls) = (0, 0);
    while let Some(next) = pair.b.stack.close_resting(pair.now, cursor, 5, 3) {
        let before = 20 - pair.b.stack.resting();
        assert!(next > cursor && before <= 3 * (calls + 1));
        (cursor, calls) = (next, calls + 1);
        pair.b.stack.audit().expect("sound");
    }
    assert_eq!(pair.b.stack.resting(), 0);
    assert!(pair.b.stack.info(kept).is_ok());
    pair.run_for(SECOND);
    assert_eq!(pair.b.stack.orphans() + pair.b.stack.connections(), 1);
}

/// A reset of all that is left, at a program's end, leaves none at rest.
#[test]
fn resets_end_rests_too() {
    let mut pair = Pair::new(&Config::default(), 8);
    limited(&mut pair);
    for port in 0..5 {
        at_rest(&mut pair, 4_000 + port, carrying(port));
    }
    assert_eq!(pair.b.stack.reset_from(pair.now, 0), None);
    pair.b.stack.audit().expect("sound");
    assert_eq!((pair.b.stack.resting(), pair.b.stack.connections()), (0, 0));
    assert_eq!(pair.b.stack.next_sweep(), None);
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Open,
    Write(usize),
    Shut(usize),
    Abort(usize),
    Wait(u64),
    Limit(u8, Option<u8>),
    CloseSome(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        Just(Deed::Open),
        (0..8usize).prop_map(Deed::Write),
        (0..8usize).prop_map(Deed::Write),
        (0..8usize).prop_map(Deed::Shut),
        (0..8usize).prop_map(Deed::Abort),
        (1..20_000u64).prop_map(Deed::Wait),
        (0..3u8, proptest::option::of(1..30u8)).prop_map(|(at, s)| Deed::Limit(at, s)),
        (0..40usize).prop_map(Deed::CloseSome),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]

    /// Whatever happens, each connection is in a hand, at rest, or roused; and when all peers have gone, so is everything.
    #[test]
    fn no_rest_is_forgotten(seed: u64, loss in 0..200u64, deeds in proptest::collection::vec(deed(), 1..60)) {
        let mut pair = Pair::new(&Config::default(), seed);
        let (mut peers, mut opened) = (Vec::new(), 0u16);
        for deed in deeds {
            pair.loss = loss;
            match deed {
                Deed::Open if peers.len() < 8 => {
                    pair.loss = 0;
                    let (a, b) = pair.open(4_000 + opened);
                    peers.push(a);
                    pair.b.stack.rest(pair.now, b, Rest::new((opened % 3) as u8)).expect("open");
                    opened += 1;
                }
                Deed::Write(at) if at < peers.len() => {
                    let _ = pair.a.stack.write(pair.now, peers[at], b"something");
                }
                Deed::Shut(at) if at < peers.len() => {
                    let _ = pair.a.stack.shutdown_write(pair.now, peers[at]);
                }
                // A reset is never sent again.
                Deed::Abort(at) if at < peers.len() => {
                    pair.loss = 0;
                    pair.a.stack.abort(pair.now, peers.remove(at));
                    pair.run_for(SECOND);
                }
                Deed::Wait(ms) => pair.run_for(Duration::from_millis(ms)),
                Deed::Limit(at, seconds) => {
                    let limit = seconds.map(|s| SECOND * s.into());
                    pair.b.stack.limit_rests(pair.now, at, RestLimits { first: limit, further: limit });
                }
                Deed::CloseSome(from) => _ = pair.b.stack.close_resting(pair.now, from, 3, 2),
                _ => {}
            }
            serve(&mut pair);
            prop_assert_eq!(pair.b.stack.audit(), Ok(()));
        }
        pair.loss = 0;
        for a in peers {
            pair.a.stack.close(pair.now, a);
        }
        for _ in 0..20 {
            pair.run_for(SECOND * 3_600);
            serve(&mut pair);
        }
        prop_assert_eq!(pair.b.stack.audit(), Ok(()));
        prop_assert_eq!((pair.b.stack.connections(), pair.b.stack.resting()), (0, 0));
    }
}

/// Each that was roused reads what is there, and rests again unless its peer has ended.
fn serve(pair: &mut Pair) {
    while let Some((conn, rest)) = pair.b.stack.pop_roused() {
        let (now, stack) = (pair.now, &mut pair.b.stack);
        match stack.read(now, conn, &mut [0; 64]) {
            Ok(1..) => {
                let rest = rest.carrying(rest.carried().wrapping_add(1));
                stack.rest(now, conn, rest).expect("it is ours");
            }
            Ok(0) | Err(_) => stack.close(now, conn),
        }
    }
}

#[test]
fn limits_that_are_set_later_count_from_the_beginning_of_a_rest() {
    let mut pair = Pair::new(&Config::default(), 4);
    pair.run_for(1_000 * SECOND);
    let (further, _) = at_rest(&mut pair, 4_001, carrying(1));
    pair.run_for(5 * SECOND);
    limited(&mut pair);
    let open = |pair: &mut Pair, conn| pair.a.stack.read(pair.now, conn, &mut [0; 1]);
    pair.run_for(50 * SECOND);
    assert_eq!(open(&mut pair, further), Err(Error::WouldBlock));
    pair.run_for(15 * SECOND);
    assert_eq!(open(&mut pair, further), Ok(0));
}
