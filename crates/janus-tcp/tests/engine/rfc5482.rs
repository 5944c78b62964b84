//! The user timeout option of RFC 5482: when it is sent, and what becomes of what a peer says.

use core::time::Duration;

use crate::support::{Craft, HERE, Host, PEER, PORT, Peer, Seen, bytes_at, family};
use janus_tcp::{Config, ConnId, SocketOptions, State, SynCookies, Uto};
use janus_wire::SeqNum;
use janus_wire::tcp::{Flags, UserTimeout};

const SECOND: Duration = Duration::from_secs(1);

fn said(seen: &Seen) -> Option<u32> {
    seen.options.user_timeout.map(UserTimeout::as_secs)
}

fn all_said(seen: &[Seen]) -> Vec<Option<u32>> {
    seen.iter().map(said).collect()
}

fn on() -> Config {
    Config {
        uto: true,
        ..Config::default()
    }
}

/// Options that advertise so many seconds.
fn advertising(seconds: u32) -> SocketOptions {
    SocketOptions {
        uto: Uto {
            enabled: Some(true),
            advertised: Some(SECOND * seconds),
            changeable: None,
        },
        ..SocketOptions::default()
    }
}

fn syn_saying(port: u16, seconds: Option<u32>) -> Craft {
    let mut syn = Craft::syn((PEER, port));
    syn.seq = SeqNum(u32::MAX - 500);
    syn.options.user_timeout = seconds.map(UserTimeout::from_secs);
    syn
}

/// An acknowledgement of nothing new that says a user timeout.
fn saying(peer: &Peer, seconds: u32) -> Craft {
    let mut ack = peer.segment(Flags::ACK);
    ack.options.user_timeout = Some(UserTimeout::from_secs(seconds));
    ack
}

fn in_force(host: &Host, conn: ConnId) -> Option<Duration> {
    host.stack.info(conn).expect("a connection").user_timeout
}

fn heard(host: &Host, conn: ConnId) -> Option<Duration> {
    let info = host.stack.info(conn).expect("a connection");
    info.peer_user_timeout
}

fn set(host: &mut Host, conn: ConnId, options: &SocketOptions) {
    host.stack
        .set_options(host.now, conn, options)
        .expect("sound options");
}

fn wrote(host: &mut Host, conn: ConnId, bytes: &[u8]) -> Vec<Seen> {
    assert_eq!(host.stack.write(host.now, conn, bytes), Ok(bytes.len()));
    host.collect()
}

/// Our side opens; gives the SYN.
fn connect(host: &mut Host, options: &SocketOptions) -> (ConnId, Seen) {
    let (here, there) = (family::socket(HERE, 5_000), family::socket(PEER, 7));
    let conn = host
        .stack
        .connect_with(host.now, here, there, options)
        .expect("a connection");
    let mut seen = host.collect();
    assert_eq!(seen.len(), 1);
    (conn, seen.remove(0))
}

fn syn_ack(syn: &Seen, seconds: Option<u32>) -> Craft {
    let mut answer = Craft::new(syn.to, Flags::SYN | Flags::ACK);
    answer.dst = (HERE, 5_000);
    (answer.seq, answer.ack) = (SeqNum(9_000), syn.end());
    answer.options.mss = Some(1_400);
    answer.options.user_timeout = seconds.map(UserTimeout::from_secs);
    answer
}

#[test]
fn it_is_off_by_default_and_what_comes_changes_nothing() {
    let mut host = Host::plain();
    let syn = syn_saying(4_000, Some(1_000));
    let answers = host.ask(&syn);
    assert_eq!(all_said(&answers), [None]);
    let peer = Peer::open_with(&mut host, &syn_saying(4_001, Some(1_000)));
    host.send(&saying(&peer, 2_000));
    assert_eq!(
        (in_force(&host, peer.conn), heard(&host, peer.conn)),
        (None, None)
    );
    let seen = wrote(&mut host, peer.conn, b"hello");
    assert_eq!(all_said(&seen), [None]);
    let (conn, syn) = connect(&mut host, &SocketOptions::default());
    assert_eq!(said(&syn), None);
    host.end(&[peer.conn, conn]);
}

/// Section 3: in the SYN, and in the first segment that is none.
#[test]
fn who_connects_says_it_in_the_syn_and_in_the_first_segment_after() {
    let mut host = Host::plain();
    let (conn, syn) = connect(&mut host, &advertising(700));
    assert_eq!(said(&syn), Some(700));
    let answer = syn_ack(&syn, Some(900));
    let seen = host.ask(&answer);
    assert_eq!(all_said(&seen), [Some(700)]);
    assert!(!seen[0].has(Flags::SYN));
    assert_eq!(
        in_force(&host, conn),
        Some(SECOND * 1_600),
        "the step above 900"
    );
    let seen = wrote(&mut host, conn, b"hello");
    assert_eq!(all_said(&seen), [None], "once is enough");
    host.end(&[conn]);
}

#[test]
fn who_listens_says_it_in_the_syn_ack_and_in_the_first_segment_after() {
    let mut host = Host::plain();
    let listener = host.listener;
    host.stack
        .set_listener_options(listener, &advertising(40_000))
        .expect("sound options");
    let syn = syn_saying(4_000, Some(250));
    let answers = host.ask(&syn);
    // Beyond 32,767 seconds it is minutes, and no fewer than were wished.
    assert_eq!(all_said(&answers), [Some(40_020)]);
    let mut ack = Craft::new(syn.src, Flags::ACK);
    (ack.seq, ack.ack) = (syn.seq + 1u32, answers[0].end());
    assert!(host.ask(&ack).is_empty());
    let (conn, _) = host.stack.accept(listener).expect("a connection");
    // U_LIMIT bounds what is in force, not what is advertised.
    assert_eq!(in_force(&host, conn), Some(SECOND * 3_600));
    assert_eq!(heard(&host, conn), Some(SECOND * 400));
    let seen = wrote(&mut host, conn, b"hello");
    assert_eq!(all_said(&seen), [Some(40_020)]);
    let seen = wrote(&mut host, conn, b"again");
    assert!(all_said(&seen).iter().all(Option::is_none));
    host.end(&[conn]);
}

#[test]
fn repeats_of_the_handshake_go_without() {
    let mut host = Host::with(on());
    let (conn, syn) = connect(&mut host, &SocketOptions::default());
    assert_eq!(said(&syn), Some(300), "five minutes");
    let answers = host.ask(&syn_saying(4_000, None));
    assert_eq!(all_said(&answers), [Some(300)]);
    host.wait(SECOND + SECOND / 100);
    let repeats = host.collect();
    assert_eq!(repeats.len(), 2);
    assert!(repeats.iter().all(|s| s.has(Flags::SYN)));
    assert_eq!(all_said(&repeats), [None, None]);
    // The segment after says it in any case.
    let seen = host.ask(&syn_ack(&syn, None));
    assert_eq!(all_said(&seen), [Some(300)]);
    host.end(&[conn]);
}

/// Where the first segment has no room, an acknowledgement goes before it; no segment gets larger than agreed.
#[test]
fn beside_full_segments_an_acknowledgement_carries_it() {
    let mut host = Host::with(on());
    let peer = Peer::open(&mut host, 4_000);
    let seen = wrote(&mut host, peer.conn, &bytes_at(0, 2_800));
    assert_eq!(all_said(&seen), [Some(300), None, None]);
    let lens: Vec<usize> = seen.iter().map(|s| s.payload.len()).collect();
    assert_eq!(lens, [0, 1_400, 1_400]);
    host.end(&[peer.conn]);
}

/// Section 3: whenever a new timeout is advertised, the next segment says so.
#[test]
fn a_new_timeout_is_told_with_the_next_segment() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let conn = peer.conn;
    let mut write = |host: &mut Host, bytes: &[u8]| {
        assert_eq!(host.stack.write(host.now, peer.conn, bytes), Ok(1));
        all_said(&peer.listen(host, true))
    };
    assert_eq!(write(&mut host, b"a"), [None]);
    set(&mut host, conn, &advertising(500));
    assert!(host.collect().is_empty(), "it waits for a segment");
    assert_eq!(write(&mut host, b"b"), [Some(500)]);
    // What does not change it is no summary.
    let same = SocketOptions {
        ttl: Some(9),
        ..advertising(500)
    };
    set(&mut host, conn, &same);
    assert_eq!(write(&mut host, b"c"), [None]);
    let chosen = SocketOptions {
        user_timeout: Some(SECOND * 77),
        uto: Uto {
            enabled: Some(true),
            ..Uto::default()
        },
        ..SocketOptions::default()
    };
    set(&mut host, conn, &chosen);
    // An acknowledgement carries it as well as data does.
    let seen = peer.say(&mut host, 1_400);
    assert_eq!(all_said(&seen), [Some(77)], "the timeout that was chosen");
    peer.expect_stream(&mut host);
    host.end(&[peer.conn]);
}

/// Section 3.1: min(U_LIMIT, max(ADV_UTO, REMOTE_UTO, L_LIMIT)); what was said last counts.
#[test]
fn the_longer_timeout_counts_within_the_limits() {
    let mut host = Host::plain();
    let peer = Peer::open_with(&mut host, &syn_saying(4_000, None));
    set(&mut host, peer.conn, &advertising(10));
    assert_eq!(in_force(&host, peer.conn), None, "nothing was said yet");
    for (theirs, kept) in [
        (1, 100),
        (100, 100),
        (101, 200),
        (400, 400),
        (90_000, 3_600),
        (30, 100),
    ] {
        host.send(&saying(&peer, theirs));
        assert_eq!(
            in_force(&host, peer.conn),
            Some(SECOND * kept),
            "they say {theirs}"
        );
    }
    set(&mut host, peer.conn, &advertising(1_000));
    assert_eq!(
        in_force(&host, peer.conn),
        Some(SECOND * 1_000),
        "ours is longer"
    );
    host.end(&[peer.conn]);
}

#[test]
fn a_connection_lives_as_long_as_the_peer_said() {
    for (theirs, seconds) in [(100, 100.0), (3_600, 3_600.0)] {
        let mut host = Host::plain();
        let peer = Peer::open(&mut host, 4_000);
        set(&mut host, peer.conn, &advertising(10));
        host.send(&saying(&peer, theirs));
        wrote(&mut host, peer.conn, b"anybody?");
        let start = host.now;
        while host.stack.info(peer.conn).expect("a handle").state != State::Closed {
            let next = host.stack.next_deadline().expect("a timer");
            host.now = host.now.max(next);
            host.stack.advance(host.now);
            host.collect();
        }
        let lived = host.now.saturating_since(start).as_secs_f64();
        assert!((lived - seconds).abs() < 0.1, "{lived} s, not {seconds}");
        host.end(&[peer.conn]);
    }
}

/// CHANGEABLE becomes false when the application chooses a timeout; what the peer says is still told.
#[test]
fn what_the_application_chose_is_not_overridden() {
    let mut host = Host::with(on());
    let peer = Peer::open(&mut host, 4_000);
    let chosen = SocketOptions {
        user_timeout: Some(SECOND * 20),
        ..SocketOptions::default()
    };
    set(&mut host, peer.conn, &chosen);
    host.send(&saying(&peer, 800));
    assert_eq!(in_force(&host, peer.conn), Some(SECOND * 20));
    assert_eq!(heard(&host, peer.conn), Some(SECOND * 800));
    // Unless it says that it may be.
    let yields = SocketOptions {
        uto: Uto {
            changeable: Some(true),
            ..Uto::default()
        },
        ..chosen
    };
    set(&mut host, peer.conn, &yields);
    assert_eq!(in_force(&host, peer.conn), Some(SECOND * 800));
    let firm = SocketOptions {
        uto: Uto {
            changeable: Some(false),
            ..Uto::default()
        },
        ..SocketOptions::default()
    };
    set(&mut host, peer.conn, &firm);
    assert_eq!(in_force(&host, peer.conn), None);
    let off = SocketOptions {
        uto: Uto {
            enabled: Some(false),
            ..Uto::default()
        },
        ..SocketOptions::default()
    };
    set(&mut host, peer.conn, &off);
    assert_eq!(in_force(&host, peer.conn), None);
    host.end(&[peer.conn]);
}

/// Section 3.4: zero of either unit is reserved; and no stranger's segment says anything.
#[test]
fn reserved_values_and_strangers_are_not_heeded() {
    let mut host = Host::with(on());
    let peer = Peer::open(&mut host, 4_000);
    for bits in [[0, 0], [0x80, 0]] {
        let mut ack = peer.segment(Flags::ACK);
        ack.junk = [&[28, 4][..], &bits].concat();
        host.send(&ack);
        assert_eq!(heard(&host, peer.conn), None);
    }
    let mut outside = saying(&peer, 1_000);
    outside.seq = peer.snd + 1_000_000u32;
    host.send(&outside);
    let mut unsent = saying(&peer, 1_000);
    unsent.ack = peer.rcv + 5_000u32;
    host.send(&unsent);
    assert_eq!(heard(&host, peer.conn), None);
    host.collect();
    host.end(&[peer.conn]);
}

/// A cookie keeps nothing of it; the peer's first segment says it again (section 3).
#[test]
fn a_cookie_forgets_it_and_the_first_segment_says_it_again() {
    let mut host = Host::with(Config {
        syn_cookies: SynCookies::Always,
        ..on()
    });
    let mut peer = Peer::open_with(&mut host, &syn_saying(4_000, Some(500)));
    assert_eq!(heard(&host, peer.conn), None);
    let mut first = peer.ahead(0, 10);
    first.flags = Flags::ACK | Flags::PSH;
    first.options.user_timeout = Some(UserTimeout::from_secs(500));
    let seen = host.ask(&first);
    peer.skip(10);
    assert_eq!(heard(&host, peer.conn), Some(SECOND * 800));
    assert_eq!(all_said(&seen), [Some(300)], "and so does ours");
    peer.expect_stream(&mut host);
    host.end(&[peer.conn]);
}

/// Whatever thousands of peers say, a stack keeps nothing for it beside their connections.
#[test]
fn peers_fill_no_table() {
    let mut host = Host::with(on());
    let mut conns = Vec::new();
    for port in 0..600 {
        let peer = Peer::open_with(
            &mut host,
            &syn_saying(4_000 + port, Some(u32::from(port) * 7 + 1)),
        );
        conns.push(peer.conn);
        let own = SocketOptions {
            ttl: Some(1 + (port % 250) as u8),
            ..SocketOptions::default()
        };
        set(&mut host, peer.conn, &own);
    }
    host.collect();
    host.end(&conns);
}

/// Section 4.2: where the option is used, keep-alive waits for longer than the user timeout.
#[test]
fn keep_alive_ends_nothing_that_the_user_timeout_would_let_live() {
    for (uto, first) in [(false, 10), (true, 400)] {
        let mut host = Host::with(Config {
            uto,
            ..Config::default()
        });
        let peer = Peer::open_with(&mut host, &syn_saying(4_000, Some(400)));
        let asking = SocketOptions {
            keepalive: true,
            keepalive_idle: SECOND * 10,
            keepalive_interval: SECOND * 2,
            keepalive_count: 3,
            ..SocketOptions::default()
        };
        set(&mut host, peer.conn, &asking);
        let start = host.now;
        let mut asked = Vec::new();
        while host.stack.info(peer.conn).expect("a handle").state != State::Closed {
            host.now = host.now.max(host.stack.next_deadline().expect("a sweep"));
            host.stack.advance(host.now);
            for seen in host.collect().iter().filter(|s| !s.has(Flags::RST)) {
                assert_eq!(seen.header.seq + 1u32, peer.rcv, "a question");
                asked.push(host.now.saturating_since(start).as_secs());
            }
        }
        assert_eq!(asked, [first, first + 2, first + 4]);
        host.end(&[peer.conn]);
    }
}

#[test]
fn senseless_times_are_refused() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, PORT + 4_000);
    for bad in [Duration::ZERO, SECOND * (40 * 24 * 3_600)] {
        let mut options = advertising(5);
        options.uto.advertised = Some(bad);
        let refused = host.stack.set_options(host.now, peer.conn, &options);
        assert!(refused.is_err(), "{bad:?}");
    }
    host.end(&[peer.conn]);
}
