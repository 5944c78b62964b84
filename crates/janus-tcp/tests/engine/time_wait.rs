//! A connection takes the place of one in TIME-WAIT: which SYNs may (RFC 9293 MAY-2, RFC 6191), and where the new one's
//! numbers begin (RFC 1122 section 4.2.2.13).

use core::time::Duration;

use crate::support::family::socket;
use crate::support::{Craft, HERE, Host, PEER, PORT, Peer};
use janus_mem::{Frame, HEADROOM};
use janus_tcp::{Config, Placement, SynCookies, UnknownFlow};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

/// Our side closes first and waits; the peer has all that was written.
fn into_time_wait(host: &mut Host, peer: &mut Peer) {
    host.stack.close(host.now, peer.conn);
    peer.listen(host, true);
    host.send(&peer.segment(Flags::FIN | Flags::ACK));
    peer.snd += 1u32;
    host.collect();
    assert_eq!(host.stack.in_time_wait(), 1);
}

/// In no time, so faster than the clock of initial numbers.
fn send_much(host: &mut Host, peer: &mut Peer, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        left -= host
            .stack
            .write(host.now, peer.conn, &vec![7; left])
            .unwrap_or(0);
        while !peer.listen(host, true).is_empty() {}
    }
}

fn reopening(peer: &Peer, ahead: u32, timestamp: Option<u32>) -> Craft {
    let mut syn = Craft::syn(peer.at);
    syn.seq = peer.snd + ahead;
    syn.options.timestamps = timestamp.map(|value| (value, 0));
    syn
}

#[test]
fn the_successor_begins_beyond_what_its_predecessor_sent() {
    for syn_cookies in [SynCookies::Pressure, SynCookies::Always] {
        let mut host = Host::with(Config {
            syn_cookies,
            ..Config::default()
        });
        let mut peer = Peer::open(&mut host, 4_000);
        send_much(&mut host, &mut peer, 300_000);
        into_time_wait(&mut host, &mut peer);
        let answers = host.ask(&reopening(&peer, 1, None));
        assert!(answers[0].has(Flags::SYN | Flags::ACK));
        assert!(
            answers[0].header.seq.gt(peer.rcv),
            "not beyond the old numbers"
        );
        assert_eq!((host.stack.in_time_wait(), host.stack.half_open()), (0, 1));
        host.end(&[]);
    }
}

#[test]
fn so_does_one_that_we_open() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    send_much(&mut host, &mut peer, 300_000);
    into_time_wait(&mut host, &mut peer);
    let (local, remote) = (socket(HERE, PORT), socket(PEER, 4_000));
    let conn = host
        .stack
        .connect(host.now, local, remote)
        .expect("TIME-WAIT makes room");
    let syn = &host.collect()[0];
    assert!(syn.has(Flags::SYN) && syn.header.seq.gt(peer.rcv));
    host.end(&[conn]);
}

#[test]
fn the_clock_carries_the_numbers_when_it_is_ahead() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    into_time_wait(&mut host, &mut peer);
    host.wait(Duration::from_secs(10));
    let answers = host.ask(&reopening(&peer, 1, None));
    // Ten seconds at four microseconds a number.
    let gone = answers[0].header.seq - peer.irs;
    assert_eq!(gone, 2_500_000);
    host.end(&[]);
}

/// RFC 6191 section 2, case by case: did the old one use timestamps, the SYN's timestamp beside the last one seen, its
/// sequence number beyond the last one seen or not.
#[test]
fn timestamps_decide_and_then_the_sequence_number() {
    let cases: [(bool, Option<i32>, u32, bool); 10] = [
        (true, Some(1), 0u32.wrapping_sub(1_000), true),
        (true, Some(1), 1_000, true),
        (true, Some(0), 1_000, true),
        (true, Some(0), 0u32.wrapping_sub(1_000), false),
        (true, Some(-1), 1_000, false),
        (true, None, 1_000, true),
        (true, None, 0u32.wrapping_sub(1_000), false),
        (false, Some(0), 0u32.wrapping_sub(1_000), true),
        (false, None, 1_000, true),
        (false, None, 0u32.wrapping_sub(1_000), false),
    ];
    for case in cases {
        let (old_has, timestamp, ahead, opens) = case;
        let mut host = Host::plain();
        let mut peer = if old_has {
            Peer::open_with_timestamps(&mut host, 4_000)
        } else {
            Peer::open(&mut host, 4_000)
        };
        into_time_wait(&mut host, &mut peer);
        let last = peer.clock.unwrap_or(1_000_000);
        let timestamp = timestamp.map(|off| last.wrapping_add_signed(off));
        let answers = host.ask(&reopening(&peer, ahead, timestamp));
        let opened = answers[0].has(Flags::SYN);
        assert_eq!(opened, opens, "{case:?}");
        // Who may not is told where the old connection stands.
        if !opens {
            assert_eq!(answers[0].header.flags, Flags::ACK);
            assert_eq!(
                (answers[0].header.seq, answers[0].header.ack),
                (peer.rcv, peer.snd)
            );
        }
        assert_eq!(host.stack.in_time_wait(), usize::from(!opens));
        host.end(&[]);
    }
}

#[test]
fn a_stranger_reopens_nothing() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    into_time_wait(&mut host, &mut peer);
    let mut syn = reopening(&peer, 1_000, None);
    syn.flags |= Flags::ACK;
    host.ask(&syn);
    let mut rst = peer.segment(Flags::RST);
    for seq in [peer.snd, peer.snd - 1, SeqNum(0)] {
        rst.seq = seq;
        assert!(host.ask(&rst).is_empty());
    }
    assert_eq!(host.stack.in_time_wait(), 1);
    host.end(&[]);
}

/// The shards beside this one, where somebody listens.
#[derive(Default)]
struct Others(Vec<Frame>);

impl UnknownFlow for Others {
    fn place(&mut self, _key: u32, _port: u16, _tag: u16) -> Placement {
        Placement::Elsewhere
    }

    fn forward(&mut self, frame: Frame) {
        self.0.push(frame);
    }
}

/// A core may have stopped listening while others go on: what it remembers must not keep the client from them.
#[test]
fn one_that_nobody_listens_to_here_may_be_for_another_shard() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    into_time_wait(&mut host, &mut peer);
    host.stack.unlisten(host.now, host.listener);
    let syn = reopening(&peer, 1_000, None);
    let answers = host.ask(&syn);
    assert!(answers.len() == 1 && !answers[0].has(Flags::RST) && !answers[0].has(Flags::SYN));
    assert_eq!(host.stack.in_time_wait(), 1, "a stray where nobody listens");

    let packet = syn.packet();
    let mut buf = host.device.alloc_reserved().expect("a buffer");
    let start = usize::from(HEADROOM);
    buf.bytes_mut()[start..start + packet.len()].copy_from_slice(&packet);
    let mut others = Others::default();
    let frame = Frame::new(buf, packet.len() as u16);
    host.stack.input(host.now, &mut vec![frame], &mut others);
    assert!(
        host.collect().is_empty(),
        "it is not this shard's to answer"
    );
    assert_eq!(host.stack.in_time_wait(), 0);
    let handed_on = others.0.pop().expect("it goes to the others");
    host.device.free(handed_on.buf);
    host.end(&[]);
}

/// Our side closes first with `wait` for the peer's FIN, which does not come.
fn into_fin_wait_2(host: &mut Host, peer: &mut Peer, wait: Option<Duration>) {
    let mut options = host.stack.options(peer.conn).expect("a connection");
    options.fin_wait_2 = wait;
    let set = host.stack.set_options(host.now, peer.conn, &options);
    set.expect("sound options");
    host.stack.close(host.now, peer.conn);
    peer.listen(host, true);
    assert_eq!(
        (host.stack.in_time_wait(), host.stack.connections()),
        (1, 0)
    );
}

const HALF: Duration = Duration::from_millis(500);

#[test]
fn an_orphan_waits_for_the_peers_fin_as_long_as_it_was_told() {
    let seconds = Duration::from_secs;
    let cases = [
        (Some(seconds(3)), None, 3),
        (Some(seconds(61)), None, 61),
        (Some(seconds(120)), None, 120),
        (None, Some(seconds(10)), 10),
        (Some(seconds(90)), Some(seconds(10)), 90),
        (None, None, 60),
    ];
    for (wished, fin_wait_2, expected) in cases {
        let mut host = Host::with(Config {
            fin_wait_2,
            ..Config::default()
        });
        let mut peer = Peer::open(&mut host, 4_000);
        into_fin_wait_2(&mut host, &mut peer, wished);
        host.wait(seconds(expected) - HALF);
        assert_eq!(host.stack.in_time_wait(), 1, "{expected} s are not over");
        // Rounded up to a second.
        host.wait(HALF + HALF + HALF);
        assert_eq!(host.stack.in_time_wait(), 0, "{expected} s are over");
        let answers = host.ask(&peer.segment(Flags::FIN | Flags::ACK));
        assert!(answers[0].has(Flags::RST), "nothing is known of it");
        assert_eq!(host.stack.next_deadline(), None);
        host.end(&[]);
    }
}

/// TIME-WAIT is for what is still under way, and no wish of the application's makes it shorter.
#[test]
fn the_peers_fin_begins_a_whole_time_wait() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    into_fin_wait_2(&mut host, &mut peer, Some(Duration::from_secs(3)));
    host.wait(Duration::from_secs(2));
    let answers = host.ask(&peer.segment(Flags::FIN | Flags::ACK));
    assert_eq!(answers[0].header.ack, peer.snd + 1u32);
    host.wait(Duration::from_secs(60) - HALF);
    assert_eq!(host.stack.in_time_wait(), 1);
    host.wait(HALF);
    assert_eq!(host.stack.in_time_wait(), 0);
    host.end(&[]);
}

/// A peer whose FIN was lost repeats it: as long as that takes (Linux: tcp_fin_time).
#[test]
fn no_wait_is_too_short_for_a_repeated_fin() {
    let mut host = Host::with(Config {
        rto_min: Duration::from_secs(10),
        ..Config::default()
    });
    let mut peer = Peer::open(&mut host, 4_000);
    into_fin_wait_2(&mut host, &mut peer, Some(Duration::from_secs(1)));
    host.wait(Duration::from_secs(35) - HALF);
    assert_eq!(host.stack.in_time_wait(), 1);
    host.wait(Duration::from_secs(2));
    assert_eq!(host.stack.in_time_wait(), 0);
    host.end(&[]);
}

/// At the bound of all such records one makes room for another, whatever times they have.
#[test]
fn waits_of_all_lengths_have_one_bound() {
    let mut host = Host::with(Config {
        max_time_wait: 8,
        ..Config::default()
    });
    for port in 0..40 {
        let mut peer = Peer::open(&mut host, 4_000 + port);
        let wait = (port % 3 > 0).then(|| Duration::from_secs(u64::from(port) + 1));
        let mut options = host.stack.options(peer.conn).expect("a connection");
        options.fin_wait_2 = wait;
        let set = host.stack.set_options(host.now, peer.conn, &options);
        set.expect("sound options");
        host.stack.close(host.now, peer.conn);
        peer.listen(&mut host, true);
        host.wait(Duration::from_millis(10));
    }
    assert_eq!(host.stack.in_time_wait(), 8);
    assert_eq!(host.stack.counters().time_wait_evicted, 32);
    host.wait(Duration::from_secs(121));
    assert_eq!(host.stack.in_time_wait(), 0);
    host.end(&[]);
}
