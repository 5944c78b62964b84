//! Answers to segments that fit nothing: a flow gives one in half a second to strays of every kind, in every state, and
//! none of another flow's limit is its own. An honest peer's repeats are answered each time all the same. Observers who
//! count answers are in `attack_list/observer.rs`.

use core::time::Duration;
use std::net::Ipv4Addr;

use crate::support::{Craft, Host, PEER, Peer, bytes_at};
use janus_tcp::Config;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

const PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    HalfOpen,
    Idle,
    /// Data is unread.
    Busy,
    /// The peer's FIN has come.
    CloseWait,
    /// FIN-WAIT-2 without an owner.
    Orphan,
    TimeWait,
}

const STATES: [State; 6] = [
    State::HalfOpen,
    State::Idle,
    State::Busy,
    State::CloseWait,
    State::Orphan,
    State::TimeWait,
];

/// A flow in one of the states, with 1,000 octets from the peer where there can be any.
fn flow(host: &mut Host, at: (Ipv4Addr, u16), state: State, timestamps: bool) -> Peer {
    let mut syn = Craft::syn(at);
    syn.seq = SeqNum(u32::MAX - 700);
    syn.options.timestamps = timestamps.then_some((1_000_000, 0));
    if state == State::HalfOpen {
        let answer = host.ask(&syn).remove(0);
        return Peer {
            at,
            conn: janus_tcp::ConnId {
                index: u32::MAX,
                generation: 0,
            },
            snd: syn.seq + 1u32,
            rcv: answer.end(),
            irs: answer.header.seq,
            window: syn.window,
            clock: timestamps.then_some(1_000_000),
            sent: 0,
            read: 0,
            got: Vec::new(),
        };
    }
    let mut peer = Peer::open_with(host, &syn);
    peer.say(host, 1_000);
    if state != State::Busy {
        peer.expect_stream(host);
        host.wait(Duration::from_millis(50));
        host.collect();
    }
    if matches!(state, State::Orphan | State::TimeWait) {
        host.stack.close(host.now, peer.conn);
        peer.listen(host, true);
    }
    if matches!(state, State::CloseWait | State::TimeWait) {
        host.send(&peer.segment(Flags::FIN | Flags::ACK));
        peer.snd += 1u32;
        host.collect();
    }
    assert_eq!(
        host.stack.in_time_wait(),
        usize::from(matches!(state, State::Orphan | State::TimeWait))
    );
    peer
}

/// Segments that no honest peer sends from where it stands.
fn strays(peer: &Peer) -> Vec<(&'static str, Craft)> {
    let craft = |flags: Flags, ahead: u32, text: usize| {
        let mut craft = peer.segment(flags);
        craft.seq += ahead;
        craft.payload = bytes_at(0, text);
        craft
    };
    // Below all that the largest window reaches.
    let below = (1u32 << 31) + 5;
    let mut wild_ack = craft(Flags::ACK, 1, 10);
    wild_ack.ack += 1u32 << 30;
    let mut wild_repeat = craft(Flags::ACK, 20u32.wrapping_neg(), 10);
    wild_repeat.ack += 1u32 << 30;
    let mut unacknowledged = craft(Flags::PSH, 20u32.wrapping_neg(), 10);
    unacknowledged.ack = SeqNum(0);
    let mut strays = vec![
        ("SYN beyond", craft(Flags::SYN, 1 << 30, 0)),
        ("SYN in the window", craft(Flags::SYN, 5, 0)),
        ("SYN below", craft(Flags::SYN, below, 0)),
        ("SYN-ACK", craft(Flags::SYN | Flags::ACK, 70_000_000, 0)),
        ("RST in the window", craft(Flags::RST, 5, 0)),
        ("text beyond", craft(Flags::ACK | Flags::PSH, 1 << 30, 500)),
        ("text below", craft(Flags::ACK | Flags::PSH, below, 500)),
        ("FIN beyond", craft(Flags::ACK | Flags::FIN, 1 << 30, 0)),
        ("nothing beyond", craft(Flags::ACK, 1 << 30, 0)),
        ("nothing below", craft(Flags::ACK, below, 0)),
        ("a wild acknowledgement", wild_ack),
        ("a repeat with a wild acknowledgement", wild_repeat),
        ("a repeat without one", unacknowledged),
    ];
    if let Some(clock) = peer.clock {
        let mut aged = craft(Flags::ACK, 1, 10);
        aged.options.timestamps = Some((clock - 5_000, 0));
        strays.push(("an old timestamp", aged));
    }
    strays
}

/// Whether a flow of this state resets or ignores this stray, or takes it for what it is not.
fn is_excepted(state: State, name: &str) -> bool {
    match state {
        // An acknowledgement that cannot be for our SYN is reset; what has none is no third step.
        State::HalfOpen => matches!(
            name,
            "a wild acknowledgement"
                | "an old timestamp"
                | "a repeat with a wild acknowledgement"
                | "a repeat without one"
        ),
        // These open anew.
        State::TimeWait => matches!(name, "SYN beyond" | "SYN in the window"),
        _ => false,
    }
}

#[test]
fn strays_of_all_kinds_are_answered_once_in_half_a_second() {
    for (state, timestamps) in STATES.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let mut host = Host::plain();
        let peer = flow(&mut host, (PEER, 4_000), state, timestamps);
        for (name, stray) in strays(&peer) {
            if is_excepted(state, name) {
                continue;
            }
            let answers: usize = (0..400).map(|_| host.ask(&stray).len()).sum();
            assert!(answers <= 1, "{name} at {state:?}: {answers} answers");
            host.now = host.now + PAUSE;
        }
        // One of each in a moment draws no more.
        let strays = strays(&peer);
        let all = strays.iter().filter(|(name, _)| !is_excepted(state, name));
        let answers: usize = all.map(|(_, stray)| host.ask(stray).len()).sum();
        assert_eq!(answers, 1, "{state:?}");
    }
}

#[test]
fn an_honest_peers_repeats_are_answered_each_time() {
    for (state, timestamps) in STATES.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        if state == State::HalfOpen {
            continue;
        }
        let mut host = Host::plain();
        let peer = flow(&mut host, (PEER, 4_000), state, timestamps);
        // The flow's allowance is used up by somebody.
        let mut stray = peer.segment(Flags::ACK);
        stray.seq += 1u32 << 30;
        host.ask(&stray);
        assert!(host.ask(&stray).is_empty());
        let ended = u32::from(matches!(state, State::CloseWait | State::TimeWait));
        let text = peer.snd - ended - 1_000;
        for (from, len, flags) in [
            (text, 1_000, Flags::ACK),
            (text, 500, Flags::ACK | Flags::PSH),
            (text + 999u32, 1, Flags::ACK),
        ] {
            let mut repeat = peer.segment(flags);
            (repeat.seq, repeat.payload) = (from, bytes_at((from - text) as u32, len));
            let answers: Vec<_> = (0..20).flat_map(|_| host.ask(&repeat)).collect();
            assert_eq!(answers.len(), 20, "{len} octets at {state:?}");
            assert!(answers.iter().all(|seen| seen.header.ack == peer.snd));
        }
        if ended > 0 {
            let mut fin = peer.segment(Flags::FIN | Flags::ACK);
            fin.seq = peer.snd - 1;
            assert_eq!((0..20).flat_map(|_| host.ask(&fin)).count(), 20);
        }
        // One who asks whether we are there has an allowance of his own.
        let mut keepalive = peer.segment(Flags::ACK);
        keepalive.seq = peer.snd - 1;
        let alone = state != State::TimeWait;
        assert_eq!(host.ask(&keepalive).len(), usize::from(alone), "{state:?}");
        assert_eq!(host.stack.counters().challenge_acks, 1);
    }
}

/// Slots are given out again at once, the last one first.
fn tight() -> Host {
    Host::with(Config {
        max_connections: 1,
        max_half_open: 1,
        max_time_wait: 1,
        ..Config::default()
    })
}

#[test]
fn a_half_open_record_inherits_no_limit() {
    let mut host = tight();
    for port in 4_000..4_010 {
        let peer = flow(&mut host, (PEER, port), State::HalfOpen, false);
        let mut syn = Craft::syn(peer.at);
        syn.seq = peer.snd - 1;
        let mut stray = peer.segment(Flags::SYN);
        stray.seq += 9u32;
        for craft in [syn, stray] {
            assert_eq!(host.ask(&craft).len(), 1, "the first of {port}");
            assert!(host.ask(&craft).is_empty());
        }
        host.ask(&peer.segment(Flags::RST));
        assert_eq!(host.stack.half_open(), 0);
    }
    host.end(&[]);
}

#[test]
fn a_connection_inherits_no_limit() {
    let mut host = tight();
    for port in 4_000..4_010 {
        let peer = Peer::open(&mut host, port);
        let mut stray = peer.segment(Flags::RST);
        stray.seq += 9u32;
        let mut keepalive = peer.segment(Flags::ACK);
        keepalive.seq = peer.snd - 1;
        for craft in [stray, keepalive] {
            assert_eq!(host.ask(&craft).len(), 1, "the first of {port}");
            assert!(host.ask(&craft).is_empty());
        }
        host.ask(&peer.segment(Flags::RST));
        host.stack.close(host.now, peer.conn);
        assert_eq!(host.stack.connections(), 0);
    }
    host.end(&[]);
}

#[test]
fn a_time_wait_record_inherits_no_limit() {
    for state in [State::Orphan, State::TimeWait] {
        let mut host = tight();
        for port in 4_000..4_010 {
            let peer = flow(&mut host, (PEER, port), state, false);
            let mut stray = peer.segment(Flags::ACK);
            stray.seq += 1u32 << 30;
            assert_eq!(host.ask(&stray).len(), 1, "the first of {port}");
            assert!(host.ask(&stray).is_empty());
        }
        assert_eq!(host.stack.counters().time_wait_evicted, 9);
        host.end(&[]);
    }
}

/// A flow that goes on in another record has something else to say: an answer as half-open tells nothing of the
/// connection, nor that of the connection of TIME-WAIT.
#[test]
fn a_new_state_answers_anew() {
    let mut host = Host::plain();
    let stray = |host: &mut Host, of: &Peer| {
        let mut stray = of.segment(Flags::ACK);
        stray.seq += 1u32 << 30;
        (0..10).flat_map(|_| host.ask(&stray)).count()
    };
    let mut peer = flow(&mut host, (PEER, 4_000), State::HalfOpen, false);
    assert_eq!(stray(&mut host, &peer), 1);
    host.ask(&peer.segment(Flags::ACK));
    let (conn, _) = host.stack.accept(host.listener).expect("it is open");
    peer.conn = conn;
    assert_eq!(stray(&mut host, &peer), 1);
    host.stack.close(host.now, conn);
    peer.listen(&mut host, true);
    host.send(&peer.segment(Flags::FIN | Flags::ACK));
    peer.snd += 1u32;
    host.collect();
    assert_eq!(host.stack.in_time_wait(), 1);
    assert_eq!(stray(&mut host, &peer), 1);
    host.end(&[]);
}
