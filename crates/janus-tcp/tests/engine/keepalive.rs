//! Keep-alive and the idle timeout (RFC 9293 section 3.8.4): idle connections have no timer, and yet are asked in time,
//! as often as their options say.

use core::time::Duration;

use crate::support::{Craft, Host, Peer, Seen};
use janus_tcp::{Error, Instant, SocketOptions, State, Token};
use janus_wire::tcp::Flags;

const SECOND: Duration = Duration::from_secs(1);

fn asking(idle: u64, interval: u64, count: u8) -> SocketOptions {
    SocketOptions {
        keepalive: true,
        keepalive_idle: SECOND * idle as u32,
        keepalive_interval: SECOND * interval as u32,
        keepalive_count: count,
        ..SocketOptions::default()
    }
}

fn set(host: &mut Host, peer: &Peer, options: &SocketOptions) {
    host.stack
        .set_options(host.now, peer.conn, options)
        .expect("sound options");
}

/// Lets time pass; gives what was sent and when, in seconds from now.
fn watch(host: &mut Host, time: Duration, mut answer: impl FnMut(&mut Host, &Seen)) -> Vec<f64> {
    let (start, until) = (host.now, host.now + time);
    let mut sent = Vec::new();
    let mut turns = 0;
    while let Some(next) = host.stack.next_deadline().filter(|&at| at <= until) {
        host.now = host.now.max(next);
        host.stack.advance(host.now);
        for seen in host.collect() {
            sent.push(host.now.saturating_since(start).as_secs_f64());
            answer(host, &seen);
        }
        turns += 1;
        assert!(turns < 100_000, "a busy loop");
    }
    host.now = until;
    sent
}

fn near(times: &[f64], expected: &[f64]) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 0.01;
    let all = times.iter().zip(expected).all(close);
    assert!(
        all && times.len() == expected.len(),
        "{times:?}, not {expected:?}"
    );
}

#[test]
fn it_is_off_by_default_and_then_nothing_stirs() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    assert_eq!(host.stack.next_deadline(), None);
    assert!(
        !host
            .stack
            .options(peer.conn)
            .expect("a connection")
            .keepalive
    );
    // Other options do not wake the sweep either.
    let ttl = SocketOptions {
        ttl: Some(9),
        ..SocketOptions::default()
    };
    set(&mut host, &peer, &ttl);
    assert_eq!(host.stack.next_deadline(), None);
    host.end(&[peer.conn]);
}

#[test]
fn a_dead_peer_is_asked_as_often_as_was_wished_and_given_up() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    set(&mut host, &peer, &asking(10, 2, 3));
    let mut probes = Vec::new();
    let times = watch(&mut host, SECOND * 60, |_, seen| probes.push(seen.clone()));
    // Asked at 10, 12 and 14; at 16 it is told, should it be there after all, that we are not.
    near(&times, &[10.0, 12.0, 14.0, 16.0]);
    for probe in &probes[..3] {
        assert_eq!(probe.header.flags, Flags::ACK);
        assert_eq!(probe.header.seq + 1u32, peer.rcv, "SND.NXT - 1");
        assert_eq!(probe.header.ack, peer.snd);
        assert!(probe.payload.is_empty());
    }
    assert!(probes[3].has(Flags::RST));
    let mut into = [0; 8];
    assert_eq!(
        host.stack.read(host.now, peer.conn, &mut into),
        Err(Error::TimedOut)
    );
    assert_eq!(
        (host.stack.counters().keepalives, host.stack.hot_in_use()),
        (3, 0)
    );
    host.end(&[peer.conn]);
}

#[test]
fn a_live_peer_answers_and_is_asked_again_after_the_same_time() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    set(&mut host, &peer, &asking(10, 2, 3));
    let reply = peer.segment(Flags::ACK);
    let times = watch(&mut host, SECOND * 45, |host, _| host.send(&reply));
    near(&times, &[10.0, 20.0, 30.0, 40.0]);
    // One answer to the last of three questions is enough.
    let mut questions = 0;
    watch(&mut host, SECOND * 200, |host, _| {
        questions += 1;
        if questions % 3 == 0 {
            host.send(&reply);
        }
    });
    assert_eq!(
        host.stack.info(peer.conn).map(|info| info.state),
        Ok(State::Established)
    );
    // Data is an answer as well, and puts the next question off.
    let mut talker = peer;
    talker.say(&mut host, 10);
    talker.expect_stream(&mut host);
    host.wait(SECOND * 5);
    talker.say(&mut host, 10);
    talker.expect_stream(&mut host);
    let times = watch(&mut host, SECOND * 11, |_, _| {});
    near(&times[times.len() - 1..], &[10.0]);
    host.end(&[talker.conn]);
}

#[test]
fn unacknowledged_data_asks_by_itself() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    set(&mut host, &peer, &asking(10, 2, 3));
    host.stack
        .write(host.now, peer.conn, b"anybody there?")
        .expect("room");
    watch(&mut host, SECOND * 60, |_, _| {});
    assert_eq!(host.stack.counters().keepalives, 0);
    assert_eq!(
        host.stack.info(peer.conn).map(|info| info.state),
        Ok(State::Established)
    );
    host.end(&[peer.conn]);
}

#[test]
fn the_wait_begins_with_the_wish() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    host.wait(SECOND * 100_000);
    set(&mut host, &peer, &asking(10, 2, 3));
    let times = watch(&mut host, SECOND * 11, |_, _| {});
    near(&times, &[10.0]);
    // Nobody asks any more when nobody wishes it.
    set(&mut host, &peer, &SocketOptions::default());
    assert_eq!(host.stack.next_deadline(), None);
    host.end(&[peer.conn]);
}

#[test]
fn after_a_long_pause_of_the_stack_the_peer_is_still_asked_first() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    set(&mut host, &peer, &asking(10, 2, 3));
    // The machine slept for an hour.
    host.now = host.now + SECOND * 3_600;
    let times = watch(&mut host, SECOND * 60, |_, _| {});
    near(&times, &[0.0, 2.0, 4.0, 6.0]);
    host.end(&[peer.conn]);
}

#[test]
fn an_idle_timeout_ends_what_says_nothing() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let options = SocketOptions {
        idle_timeout: Some(SECOND * 30),
        ..SocketOptions::default()
    };
    set(&mut host, &peer, &options);
    host.wait(SECOND * 29);
    peer.say(&mut host, 10);
    peer.expect_stream(&mut host);
    let mut last = None;
    let times = watch(&mut host, SECOND * 60, |_, seen| last = Some(seen.clone()));
    near(&times[times.len() - 1..], &[30.0]);
    assert!(last.expect("a segment").has(Flags::RST));
    let mut into = [0; 8];
    assert_eq!(
        host.stack.read(host.now, peer.conn, &mut into),
        Err(Error::TimedOut)
    );
    host.end(&[peer.conn]);
}

/// Wakes of the reader, in seconds from now; the peer speaks without content `every` so long. A reader that is woken waits on.
fn reader_woken(host: &mut Host, peer: &Peer, time: Duration, every: Duration) -> Vec<f64> {
    let (start, until) = (host.now, host.now + time);
    let (mut woken, mut speaks) = (Vec::new(), host.now + every);
    host.stack.wait_read(peer.conn, Some(Token(7)));
    while host.now < until {
        let next = host.stack.next_deadline().unwrap_or(until);
        host.now = host.now.max(next.min(speaks).min(until));
        if host.now >= speaks {
            speaks = speaks + every;
            host.send(&peer.segment(Flags::ACK));
        }
        host.stack.advance(host.now);
        host.collect();
        while let Some(token) = host.stack.pop_ready() {
            assert_eq!(token, Token(7));
            woken.push(host.now.saturating_since(start).as_secs_f64());
            host.stack.wait_read(peer.conn, Some(Token(7)));
        }
    }
    woken
}

/// After the time, and after each eighth of it from then on; a peer that goes on speaking without a word cannot put it off for
/// longer than twice. Nothing is sent, the connection stays, and without the option nobody is woken.
#[test]
fn a_reader_that_waits_is_woken_to_look_at_its_clock() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    assert!(reader_woken(&mut host, &peer, SECOND * 100, SECOND * 1_000).is_empty());
    let silence = Some(SECOND * 16);
    let set = host.stack.set_wake_reader(host.now, peer.conn, silence);
    assert_eq!(set, Ok(()));
    let options = host.stack.options(peer.conn).expect("a connection");
    assert_eq!(options.wake_reader, silence);
    let woken = reader_woken(&mut host, &peer, SECOND * 21, SECOND * 1_000);
    let silent: Vec<f64> = [16.0, 18.0, 20.0].into();
    let rounds = |at: &f64| silent.iter().all(|silent| (at - silent).abs() > 0.01);
    let others: Vec<_> = woken.iter().filter(|at| rounds(at)).collect();
    near(
        &woken
            .iter()
            .copied()
            .filter(|at| !rounds(at))
            .collect::<Vec<_>>(),
        &silent,
    );
    assert!(others.len() <= 2, "{woken:?}");
    let woken = reader_woken(&mut host, &peer, SECOND * 160, SECOND);
    assert!((9..=12).contains(&woken.len()), "{woken:?}");
    let info = host.stack.info(peer.conn).expect("a connection");
    assert_eq!(info.state, State::Established);
    host.end(&[peer.conn]);
}

/// Several slices of connections, each with a time of its own.
#[test]
fn many_connections_are_all_asked_in_time() {
    const MANY: u32 = 5_000;
    let mut host = Host::plain();
    let mut conns = Vec::new();
    let start = host.now;
    for i in 0..MANY {
        host.now = start + Duration::from_millis(u64::from(i));
        let from = std::net::Ipv4Addr::from_bits(0x0b00_0000 + i);
        let peer = Peer::open_with(&mut host, &Craft::syn((from, 4_000)));
        set(&mut host, &peer, &asking(10, 5, 2));
        conns.push(peer.conn);
    }
    let mut asked = vec![Vec::new(); MANY as usize];
    while host.now < Instant::from_millis(5_000) + SECOND * 40 {
        let next = host.stack.next_deadline().unwrap_or(host.now + SECOND);
        host.now = host.now.max(next);
        host.stack.advance(host.now);
        for seen in host.collect() {
            let std::net::IpAddr::V4(to) = std::net::IpAddr::from(seen.to.0) else {
                continue;
            };
            asked[(to.to_bits() - 0x0b00_0000) as usize].push(host.now);
        }
    }
    for (i, times) in asked.iter().enumerate() {
        // Two questions and the farewell.
        assert_eq!(times.len(), 3, "{i}");
        let since = |at: Instant| at.saturating_since(start).as_millis() as usize - i;
        for (at, due) in times.iter().zip([10_000, 15_000, 20_000]) {
            let late = since(*at) - due;
            assert!(late <= 20, "{i} late by {late} ms");
        }
    }
    host.end(&conns);
}

/// MUST-28.
#[test]
fn the_first_question_comes_after_two_hours_unless_wished_otherwise() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    let on = SocketOptions {
        keepalive: true,
        ..SocketOptions::default()
    };
    set(&mut host, &peer, &on);
    let times = watch(&mut host, SECOND * 7_260, |_, _| {});
    near(&times, &[7_200.0]);
    host.end(&[peer.conn]);
}
