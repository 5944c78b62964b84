//! Two engines talk: opening, data both ways, every way of closing, loss, and nothing left behind.

use super::*;
use crate::{Error, State};

fn pair() -> Pair {
    Pair::new(&Config::default(), 1)
}

#[test]
fn an_idle_connection_holds_no_hot_block() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    pair.steps(10);
    assert_eq!(
        (pair.a.stack.hot_in_use(), pair.b.stack.hot_in_use()),
        (0, 0)
    );
    assert_eq!(pair.a.stack.write(pair.now, a, b"hello"), Ok(5));
    assert_eq!(pair.a.stack.hot_in_use(), 1);
    pair.steps(1);
    let mut got = [0; 16];
    assert_eq!(pair.b.stack.read(pair.now, b, &mut got), Ok(5));
    assert_eq!(&got[..5], b"hello");
    assert_eq!(
        pair.b.stack.read(pair.now, b, &mut got),
        Err(Error::WouldBlock)
    );
    pair.steps(10);
    assert_eq!(
        (pair.a.stack.hot_in_use(), pair.b.stack.hot_in_use()),
        (0, 0)
    );
    pair.a.stack.close(pair.now, a);
    pair.b.stack.close(pair.now, b);
    pair.assert_clean();
}

/// A stream that is closed leaves an option that is only its reader's: nothing is swept for the rest of its life.
#[test]
fn a_readers_option_ends_with_its_reader() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    let swept = |pair: &Pair| pair.a.stack.next_sweep().is_some();
    let silence = Some(Duration::from_secs(60));
    let set = pair.a.stack.set_wake_reader(pair.now, a, silence);
    assert_eq!((set, swept(&pair)), (Ok(()), true));
    assert_eq!(pair.a.stack.write(pair.now, a, b"hello"), Ok(5));
    pair.a.stack.close(pair.now, a);
    assert_eq!((swept(&pair), pair.a.stack.connections()), (false, 1));
    pair.steps(10);
    assert_eq!(pair.b.stack.read(pair.now, b, &mut [0; 16]), Ok(5));
    pair.b.stack.close(pair.now, b);
    pair.assert_clean();
}

/// A request from `a`, answered in the turn in which it arrives. Gives the segments each side sent for it.
fn exchange(pair: &mut Pair, a: ConnId, b: ConnId) -> (u64, u64) {
    let of = |host: &Host| host.stack.counters().segments_out;
    let before = (of(&pair.a), of(&pair.b));
    let mut got = [0; 16];
    pair.a.stack.write(pair.now, a, b"request").expect("room");
    while pair.b.stack.read(pair.now, b, &mut got).is_err() {
        pair.deliver();
    }
    pair.b.stack.write(pair.now, b, b"answer").expect("room");
    while pair.a.stack.read(pair.now, a, &mut got).is_err() {
        pair.deliver();
    }
    pair.run_for(Duration::from_secs(1));
    (of(&pair.a) - before.0, of(&pair.b) - before.1)
}

#[test]
fn an_answer_in_the_turn_carries_the_acknowledgement() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    for _ in 0..3 {
        // The request and the acknowledgement of the answer; the answer.
        assert_eq!(exchange(&mut pair, a, b), (2, 1));
    }
}

#[test]
fn acknowledgements_wait_only_where_answers_are_known_to_come() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    let ack_after = |pair: &mut Pair| {
        let mut got = [0; 16];
        pair.run_for(Duration::from_secs(1));
        let before = pair.b.stack.counters().segments_out;
        pair.a.stack.write(pair.now, a, b"tell").expect("room");
        while pair.b.stack.read(pair.now, b, &mut got).is_err() {
            pair.step();
        }
        let arrived = pair.now;
        while pair.b.stack.counters().segments_out == before {
            pair.step();
        }
        pair.now.saturating_since(arrived)
    };
    assert_eq!(ack_after(&mut pair), Duration::ZERO);
    exchange(&mut pair, a, b);
    let delayed = ack_after(&mut pair);
    let most = Config::default().delayed_ack + Duration::from_millis(1);
    assert!(delayed > Duration::ZERO && delayed <= most, "{delayed:?}");
}

#[test]
fn an_application_that_answers_soon_is_learned_too() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    let mut segments_of_b = |think: Duration| {
        let before = pair.b.stack.counters().segments_out;
        let mut got = [0; 16];
        pair.a.stack.write(pair.now, a, b"request").expect("room");
        while pair.b.stack.read(pair.now, b, &mut got).is_err() {
            pair.step();
        }
        pair.run_for(think);
        pair.b.stack.write(pair.now, b, b"answer").expect("room");
        while pair.a.stack.read(pair.now, a, &mut got).is_err() {
            pair.step();
        }
        pair.run_for(Duration::from_secs(1));
        pair.b.stack.counters().segments_out - before
    };
    let soon = Duration::from_millis(10);
    // The first answer cannot be foreseen; from then on it carries the acknowledgement.
    assert_eq!(segments_of_b(soon), 2);
    assert_eq!(segments_of_b(soon), 1);
    assert_eq!(segments_of_b(soon), 1);
    // One that comes too late has a bare acknowledgement in front, as the peer must not wait for it.
    assert_eq!(segments_of_b(Duration::from_millis(200)), 2);
}

fn transfer(pair: &mut Pair, bytes: usize) {
    let (a, b) = pair.open(40_000);
    let sent: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
    let (mut written, mut echoed, mut got, mut back) = (0, 0, Vec::new(), Vec::new());
    let mut chunk = [0; 3_000];
    for _ in 0..200_000 {
        if written < bytes {
            let upto = bytes.min(written + 5_000);
            written += pair
                .a
                .stack
                .write(pair.now, a, &sent[written..upto])
                .unwrap_or(0);
        }
        while let Ok(n @ 1..) = pair.b.stack.read(pair.now, b, &mut chunk) {
            got.extend_from_slice(&chunk[..n]);
        }
        if echoed < got.len() {
            echoed += pair.b.stack.write(pair.now, b, &got[echoed..]).unwrap_or(0);
        }
        while let Ok(n @ 1..) = pair.a.stack.read(pair.now, a, &mut chunk) {
            back.extend_from_slice(&chunk[..n]);
        }
        if back.len() == bytes {
            break;
        }
        pair.step();
    }
    assert_eq!(back.len(), bytes, "not everything came back");
    assert!(back == sent, "bytes differ");
    pair.a.stack.close(pair.now, a);
    pair.steps(200);
    pair.b.stack.close(pair.now, b);
    pair.assert_clean();
}

#[test]
fn a_megabyte_there_and_back() {
    transfer(&mut pair(), 1 << 20);
}

#[test]
fn loss_is_made_good() {
    for seed in 0..40 {
        let mut pair = Pair::new(&Config::default(), seed);
        pair.loss = 20 + seed * 4;
        transfer(&mut pair, 60_000);
    }
}

#[test]
fn a_small_receive_buffer_closes_and_opens_the_window() {
    let config = Config {
        receive_buffer: 4_000,
        send_buffer: 100_000,
        receive_buffer_max: 0,
        send_buffer_max: 0,
        ..Config::default()
    };
    let mut pair = Pair::new(&config, 3);
    let (a, b) = pair.open(40_000);
    pair.a.stack.write(pair.now, a, &[7; 50_000]).expect("room");
    pair.steps(50);
    assert_eq!(
        pair.b.stack.info(b).map(|i| i.unread),
        Ok(4_000),
        "window filled, not overrun"
    );
    let mut got = 0;
    let mut chunk = [0; 1_000];
    for _ in 0..10_000 {
        got += pair.b.stack.read(pair.now, b, &mut chunk).unwrap_or(0);
        if got == 50_000 {
            break;
        }
        pair.step();
    }
    assert_eq!(got, 50_000);
    pair.a.stack.close(pair.now, a);
    pair.b.stack.close(pair.now, b);
    pair.assert_clean();
}

#[test]
fn both_close_at_once() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    pair.steps(5);
    pair.a.stack.close(pair.now, a);
    pair.b.stack.close(pair.now, b);
    pair.steps(4);
    assert_eq!(
        (pair.a.stack.in_time_wait(), pair.b.stack.in_time_wait()),
        (1, 1)
    );
    pair.assert_clean();
}

#[test]
fn half_closed_still_delivers() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    pair.a
        .stack
        .write(pair.now, a, b"last words")
        .expect("room");
    pair.a.stack.shutdown_write(pair.now, a).expect("open");
    pair.steps(5);
    let mut got = [0; 32];
    assert_eq!(pair.b.stack.read(pair.now, b, &mut got), Ok(10));
    assert_eq!(pair.b.stack.read(pair.now, b, &mut got), Ok(0));
    assert_eq!(pair.b.stack.info(b).map(|i| i.state), Ok(State::CloseWait));
    pair.b
        .stack
        .write(pair.now, b, b"and a reply")
        .expect("half open");
    pair.b.stack.close(pair.now, b);
    pair.steps(5);
    assert_eq!(pair.a.stack.read(pair.now, a, &mut got), Ok(11));
    assert_eq!(pair.a.stack.read(pair.now, a, &mut got), Ok(0));
    assert_eq!(
        pair.a.stack.write(pair.now, a, b"x"),
        Err(Error::BrokenPipe)
    );
    pair.a.stack.close(pair.now, a);
    pair.assert_clean();
}

#[test]
fn unread_bytes_at_close_reset_the_peer() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    pair.a
        .stack
        .write(pair.now, a, b"never read")
        .expect("room");
    pair.steps(3);
    pair.b.stack.close(pair.now, b);
    pair.steps(3);
    let mut got = [0; 8];
    assert_eq!(
        pair.a.stack.read(pair.now, a, &mut got),
        Err(Error::ConnectionReset)
    );
    pair.a.stack.close(pair.now, a);
    pair.assert_clean();
}

#[test]
fn nobody_listens_is_refused() {
    let mut pair = pair();
    pair.b.stack.unlisten(pair.now, pair.listener);
    let a = pair.connect(40_000);
    pair.steps(5);
    assert_eq!(pair.a.stack.is_connected(a), Err(Error::ConnectionRefused));
    pair.a.stack.close(pair.now, a);
    pair.assert_clean();
}

#[test]
fn a_silent_peer_times_out() {
    let mut pair = pair();
    pair.loss = 1_000;
    let a = pair.connect(40_000);
    let start = pair.now;
    for _ in 0..100 {
        pair.step();
    }
    assert_eq!(pair.a.stack.is_connected(a), Err(Error::TimedOut));
    // MUST-23: R2 of a SYN is three minutes at least.
    assert!(pair.now.saturating_since(start) >= Duration::from_secs(180));
    pair.a.stack.close(pair.now, a);
    pair.assert_clean();
}

#[test]
fn an_orphan_in_fin_wait_2_is_a_compact_record() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    pair.a.stack.close(pair.now, a);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(
        (pair.a.stack.connections(), pair.a.stack.in_time_wait()),
        (0, 1)
    );
    // Its tuple is taken: the peer has the connection still.
    let again = |pair: &mut Pair| pair.a.stack.connect(pair.now, (A, 40_000), (B, 80));
    assert_eq!(again(&mut pair), Err(Error::AddrInUse));
    pair.b.stack.close(pair.now, b);
    pair.run_for(Duration::from_secs(1));
    let anew = again(&mut pair).expect("TIME-WAIT makes room");
    pair.a.stack.abort(pair.now, anew);
    pair.assert_clean();
}

#[test]
fn a_stale_handle_is_told() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    pair.a.stack.abort(pair.now, a);
    let mut got = [0; 8];
    assert_eq!(pair.a.stack.read(pair.now, a, &mut got), Err(Error::Stale));
    pair.steps(3);
    assert_eq!(
        pair.b.stack.read(pair.now, b, &mut got),
        Err(Error::ConnectionReset)
    );
    let again = pair.connect(40_001);
    assert_eq!(again.index, a.index);
    assert_eq!(pair.a.stack.write(pair.now, a, b"x"), Err(Error::Stale));
    pair.a.stack.close(pair.now, again);
    pair.b.stack.close(pair.now, b);
    pair.assert_clean();
}

#[test]
fn simultaneous_open_makes_one_connection() {
    let mut pair = pair();
    let there = SocketAddr::from((B, 5_000));
    let here = SocketAddr::from((A, 4_000));
    let a = pair
        .a
        .stack
        .connect(pair.now, here, there)
        .expect("a connection");
    let b = pair
        .b
        .stack
        .connect(pair.now, there, here)
        .expect("a connection");
    pair.steps(10);
    assert_eq!(pair.a.stack.is_connected(a), Ok(true));
    assert_eq!(pair.b.stack.is_connected(b), Ok(true));
    pair.a.stack.write(pair.now, a, b"both").expect("room");
    pair.steps(3);
    let mut got = [0; 8];
    assert_eq!(pair.b.stack.read(pair.now, b, &mut got), Ok(4));
    pair.a.stack.close(pair.now, a);
    pair.b.stack.close(pair.now, b);
    pair.assert_clean();
}

#[test]
fn without_cookies_a_full_half_open_table_drops_the_oldest() {
    let config = Config {
        max_half_open: 4,
        syn_cookies: crate::SynCookies::Never,
        ..Config::default()
    };
    let mut pair = Pair::new(&config, 9);
    for port in 40_000..40_010 {
        pair.connect(port);
    }
    // The SYNs arrive together; the answers are still on their way.
    pair.run_for(DELAY);
    assert_eq!(pair.b.stack.half_open(), 4);
    assert_eq!(pair.b.stack.counters().half_open_evicted, 6);
}

#[test]
fn writers_and_fins_survive_a_dry_pool() {
    let mut pair = pair();
    let (a, b) = pair.open(40_000);
    pair.run_for(Duration::from_secs(1));
    let mut hoard = Vec::new();
    while let Some(buf) = pair.a.stack.pool().alloc() {
        hoard.push(buf);
    }
    assert_eq!(
        pair.a.stack.write(pair.now, a, b"later"),
        Err(Error::WouldBlock)
    );
    pair.a.stack.wait_write(pair.now, a, Some(crate::Token(5)));
    let feed = |pair: &mut Pair, hoard: &mut Vec<janus_mem::PacketBuf>| {
        for buf in hoard.drain(..) {
            pair.a.stack.pool().free(buf);
        }
        pair.now = pair.a.stack.next_deadline().expect("a retry is due");
        pair.a.stack.advance(pair.now);
    };
    feed(&mut pair, &mut hoard);
    assert_eq!(pair.a.stack.pop_ready(), Some(crate::Token(5)));
    assert_eq!(pair.a.stack.write(pair.now, a, b"later"), Ok(5));
    pair.run_for(Duration::from_secs(1));
    while let Some(buf) = pair.a.stack.pool().alloc() {
        hoard.push(buf);
    }
    pair.a.stack.close(pair.now, a);
    let mut out = Vec::new();
    pair.a.stack.transmit(pair.now, &mut out, 10);
    assert!(out.is_empty(), "no buffer for the FIN yet");
    feed(&mut pair, &mut hoard);
    pair.run_for(Duration::from_secs(1));
    let mut got = [0; 8];
    assert_eq!(pair.b.stack.read(pair.now, b, &mut got), Ok(5));
    assert_eq!(
        pair.b.stack.read(pair.now, b, &mut got),
        Ok(0),
        "the FIN came after all"
    );
    pair.b.stack.close(pair.now, b);
    pair.assert_clean();
}

/// Whoever has much to send lets the others' answers out in between.
#[test]
fn a_short_answer_does_not_wait_for_a_long_write() {
    let mut pair = pair();
    let (bulk, reader) = pair.open(40_000);
    let (brief, _) = pair.open(40_001);
    let (text, mut got) = ([7; 200_000], [0; 65_536]);
    // Until the window lets a hundred segments out.
    for _ in 0..100 {
        let _full = pair.a.stack.write(pair.now, bulk, &text);
        pair.steps(1);
        while pair.b.stack.read(pair.now, reader, &mut got).is_ok() {}
    }
    // All of it arrives, and not so long after that the window would begin anew.
    for _ in 0..10 {
        pair.steps(1);
        while pair.b.stack.read(pair.now, reader, &mut got).is_ok() {}
    }
    let mut out = Vec::new();
    let stack = &mut pair.a.stack;
    let written = stack.write(pair.now, bulk, &text).expect("room");
    assert!((100_000..200_000).contains(&written), "{written}");
    stack.write(pair.now, brief, b"answer").expect("room");
    stack.transmit(pair.now, &mut out, 256);
    let is_brief = |frame: &Frame| frame.data().ends_with(b"answer");
    let at = out.iter().position(is_brief).expect("the answer is out");
    assert!(at <= 32 && out.len() > 64, "{at} of {}", out.len());
    // Nothing else of the long write was kept back by it.
    let before = out.len();
    stack.transmit(pair.now, &mut out, 256);
    assert_eq!(out.len(), before);
}
