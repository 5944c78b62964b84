//! Attacks on what a sender does about losses: acknowledgements and SACKs that lie, repeat themselves, or make work.
//! Each time: no panic, bounded work, no more in the network than an honest peer would get, and whoever keeps to the
//! protocol afterwards still gets every byte.

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, Seen, bytes_at};
use janus_tcp::{Config, CongestionControl};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

/// Steps over segments that one acknowledgement may cost, marks of new ones not counted: what `conn/loss/sack.rs` and `conn/loss/rack.rs`
/// name, for four blocks' worth of runs.
const STEPS_MAX: u64 = 4 * 256;
/// Packet buffers of the sender's host: a megabyte in tiny segments is less than one connection's share.
const BUFFERS: u32 = 65_536;

struct Sender {
    host: Host,
    peer: Peer,
    /// Where its stream begins.
    start: SeqNum,
    /// How much of it the peer has acknowledged.
    acked: u32,
}

impl Sender {
    fn with(config: Config, mss: u16, sack: bool) -> Sender {
        let buffer = config.send_buffer.max(1 << 20);
        let config = Config {
            send_buffer: buffer,
            send_buffer_max: buffer,
            ..config
        };
        let mut host = Host::new(config, crate::support::own_address(), BUFFERS);
        let mut syn = Craft::syn((PEER, 4_000));
        syn.options.mss = Some(mss);
        syn.options.sack_permitted = sack;
        syn.options.window_scale = Some(8);
        syn.seq = SeqNum(u32::MAX - 500);
        let peer = Peer::open_with(&mut host, &syn);
        let start = peer.rcv;
        Sender {
            host,
            peer,
            start,
            acked: 0,
        }
    }

    fn new(mss: u16, sack: bool) -> Sender {
        Sender::with(Config::default(), mss, sack)
    }

    /// The application writes so much of an honest stream, at most.
    fn write(&mut self, from: u32, len: usize) -> usize {
        let bytes = bytes_at(from, len.min(200_000));
        self.host
            .stack
            .write(self.host.now, self.peer.conn, &bytes)
            .unwrap_or(0)
    }

    fn sent(&mut self) -> Vec<Seen> {
        self.host.collect()
    }

    /// An acknowledgement of `ack` bytes of the stream with blocks, and what it lets out.
    fn ack(&mut self, ack: u32, blocks: &[(u32, u32)]) -> Vec<Seen> {
        let mut craft = self.peer.segment(Flags::ACK);
        craft.ack = self.start + ack;
        self.acked = self.acked.max(ack);
        for &(from, to) in blocks {
            craft.options.sack.push(self.start + from, self.start + to);
        }
        self.host.ask(&craft)
    }

    fn steps(&self) -> u64 {
        self.host.stack.counters().recovery_steps
    }

    /// From now on the peer is honest: everything arrives, in whatever time it takes.
    fn finish(mut self, total: usize) {
        let mut have = vec![false; total];
        have[..(self.acked as usize).min(total)].fill(true);
        let mut seen = self.sent();
        for _ in 0..50_000 {
            for s in &seen {
                let at = (s.header.seq - self.start) as usize;
                assert_eq!(s.payload, bytes_at(at as u32, s.payload.len()));
                have[at..at + s.payload.len()].fill(true);
            }
            let got = have.iter().take_while(|&&have| have).count();
            if got == total {
                self.ack(total as u32, &[]);
                self.peer.rcv = self.start + total as u32;
                return self.host.end(&[self.peer.conn]);
            }
            if seen.is_empty() {
                let next = self
                    .host
                    .stack
                    .next_deadline()
                    .expect("something is to come");
                self.host.now = self.host.now.max(next);
                self.host.stack.advance(self.host.now);
                seen = self.sent();
            } else {
                seen = self.ack(got as u32, &[]);
            }
        }
        panic!("the stream does not arrive");
    }
}

#[test]
fn blocks_that_cannot_be_true_change_nothing() {
    let mut sender = Sender::new(1_000, true);
    assert_eq!(sender.write(0, 30_000), 30_000);
    let sent = sender.sent();
    assert_eq!(sent.len(), 10);
    let far = 0x8000_0000;
    let lies = [
        [(1_000, 10_001), (10_000, 11_000), (20_000, 30_000)],
        [(2_000, 1_000), (3_000, 3_000), (9_000, 8_000)],
        [(0, 2_000), (0, 10_000), (5_000, far)],
        [(far, far + 1_000), (far - 1, far + 1), (u32::MAX, 1)],
        [(1_000, u32::MAX), (0, 0), (u32::MAX, u32::MAX)],
    ];
    for blocks in lies {
        for _ in 0..10 {
            let answer = sender.ack(0, &blocks);
            assert!(answer.is_empty(), "{blocks:?} was answered by {answer:?}");
        }
    }
    let counters = *sender.host.stack.counters();
    assert_eq!(
        (counters.fast_retransmits, counters.retransmissions),
        (0, 0)
    );
    assert!(counters.sack_invalid >= 100, "{}", counters.sack_invalid);
    sender.host.wait(Duration::from_millis(1));
    sender.finish(30_000);
}

/// What is known as SACK panic: thousands of tiny segments, and blocks that make each acknowledgement look at all of
/// them.
#[test]
fn thousands_of_holes_cost_bounded_work_for_each_acknowledgement() {
    let config = Config {
        send_buffer: 4 << 20,
        max_segments: 1 << 16,
        slow_start_limit: None,
        ..Config::default()
    };
    let mut sender = Sender::with(config, 48, true);
    let total = 48 * 6_000;
    let mut written = sender.write(0, total) as u32;
    let mut sent = sender.sent().len() as u32;
    // An honest start, until four thousand segments are out at once.
    let mut acked = 0;
    while sent * 48 - acked < 4_000 * 48 {
        acked += 48 * 8;
        sent += sender.ack(acked, &[]).len() as u32;
        written += sender.write(written, 48 * 40) as u32;
    }
    let end = sent * 48;
    let (mut most, mut worst) = (0, 0);
    let mut cost = |sender: &mut Sender, blocks: &[(u32, u32)]| {
        let before = sender.steps();
        let lost = sender.host.stack.counters().retransmissions;
        sender.ack(acked, blocks);
        let marks = blocks
            .iter()
            .map(|b| u64::from((b.1 - b.0) / 48))
            .sum::<u64>();
        let resent = sender.host.stack.counters().retransmissions - lost;
        most = (sender.steps() - before)
            .saturating_sub(marks + resent)
            .max(most);
        worst = worst.max(marks);
    };
    // Every second segment is SACKed, from the far end to the near one, so that each search begins anew.
    let mut at = end - 96;
    while at > acked + 192 {
        let near = (acked + 96, acked + 144);
        cost(&mut sender, &[(at, at + 48), near, (end - 48, end)]);
        at -= 96;
    }
    assert!(sender.host.stack.counters().sack_searches_cut > 0);
    // And now in every order a peer may think of.
    let mut seed = 7u32;
    for _ in 0..2_000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let place = acked + 48 + (seed >> 8) % ((end - acked) / 48 - 4) * 48;
        cost(
            &mut sender,
            &[(place, place + 48), (acked + 96, acked + 144)],
        );
    }
    // The first look at what is lost passes each segment once.
    let passed = u64::from((end - acked) / 48);
    assert!(
        most <= STEPS_MAX + passed,
        "{most} steps for one acknowledgement"
    );
    let average = sender.steps() / 4_000;
    assert!(average <= 2 * 256, "{average} steps on the average");
    sender.host.wait(Duration::from_millis(1));
    sender.finish(written as usize);
}

#[test]
fn an_acknowledgement_of_what_is_not_sent_opens_nothing() {
    for sack in [false, true] {
        let mut sender = Sender::new(1_000, sack);
        assert_eq!(sender.write(0, 100_000), 100_000);
        assert_eq!(sender.sent().len(), 10);
        let cwnd = sender.host.stack.info(sender.peer.conn).map(|i| i.cwnd);
        for ahead in [10_001, 11_000, 90_000, 0x7fff_0000] {
            let answers = sender.ack(ahead, &[]);
            let data = answers.iter().filter(|s| !s.payload.is_empty()).count();
            assert_eq!(data, 0, "{ahead} was answered with data");
        }
        assert_eq!(
            sender.host.stack.info(sender.peer.conn).map(|i| i.cwnd),
            cwnd
        );
        sender.acked = 0;
        sender.finish(100_000);
    }
}

/// RFC 3465 section 2.2: the window grows by what is acknowledged, not by how often.
#[test]
fn an_acknowledgement_cut_into_slices_is_worth_no_more_than_one() {
    for (sack, algorithm) in [
        (false, CongestionControl::NewReno),
        (true, CongestionControl::NewReno),
        (true, CongestionControl::Cubic),
    ] {
        let mut sent = Vec::new();
        for slice in [1_000, 10] {
            let config = Config {
                congestion: algorithm,
                ..Config::default()
            };
            let mut sender = Sender::with(config, 1_000, sack);
            assert_eq!(sender.write(0, 100_000), 100_000);
            let mut n = sender.sent().len();
            for upto in (slice..=10_000).step_by(slice as usize) {
                n += sender.ack(upto, &[]).len();
            }
            sent.push(n);
            sender.finish(100_000);
        }
        assert!(sent[1] <= sent[0] + 1, "{sent:?} segments, {algorithm:?}");
    }
}

/// Without SACK a duplicate acknowledgement says that a segment has left the network. Who sends more of them than
/// there were segments wants the window to grow.
#[test]
fn duplicates_without_end_let_out_no_more_than_was_in_flight() {
    let config = Config {
        congestion: CongestionControl::NewReno,
        not_sent_low: None,
        ..Config::default()
    };
    let mut sender = Sender::with(config, 1_000, false);
    assert_eq!(sender.write(0, 200_000), 200_000);
    assert_eq!(sender.sent().len(), 10);
    let mut more = 0;
    for _ in 0..5_000 {
        more += sender.ack(0, &[]).len();
    }
    // ssthresh is five segments; the ten that were out may all have left; one was sent again, and two by limited
    // transmit were part of what was out.
    assert!(more <= 5 + 10 + 3 - 10 + 2, "{more} segments for nothing");
    sender.finish(200_000);
}

/// With SACK duplicates say nothing at all.
#[test]
fn duplicates_without_sacks_say_nothing_to_who_uses_sack() {
    let config = Config {
        not_sent_low: None,
        ..Config::default()
    };
    let mut sender = Sender::with(config, 1_000, true);
    assert_eq!(sender.write(0, 200_000), 200_000);
    assert_eq!(sender.sent().len(), 10);
    for _ in 0..5_000 {
        assert!(sender.ack(0, &[]).is_empty());
    }
    sender.finish(200_000);
}

/// A peer says it has what it has thrown away. Whatever it does, in the end it is sent again.
#[test]
fn what_a_reneging_peer_threw_away_is_sent_again() {
    for acks in [1, 2, 5] {
        let mut sender = Sender::new(1_000, true);
        assert_eq!(sender.write(0, 20_000), 20_000);
        assert_eq!(sender.sent().len(), 10);
        sender.host.wait(Duration::from_millis(20));
        let mut again = sender.ack(0, &[(1_000, 10_000)]);
        assert_eq!(again[0].header.seq, sender.start, "the hole is filled");
        for i in 1..acks {
            again.extend(sender.ack(i * 1_000, &[]));
        }
        assert!(
            again
                .iter()
                .filter(|s| s.end().le(sender.start + 10_000))
                .count()
                <= 1
        );
        sender.finish(20_000);
    }
}

/// The same again and again: each time costs the peer a timeout of waiting, us one walk.
#[test]
fn reneging_for_ever_costs_little() {
    let mut sender = Sender::new(1_000, true);
    assert_eq!(sender.write(0, 20_000), 20_000);
    sender.sent();
    for round in 0..200u32 {
        let una = round.min(8) * 1_000;
        sender.ack(una, &[(una + 1_000, 10_000)]);
        sender.ack(una, &[(una + 1_000, 10_000)]);
        sender.host.wait(Duration::from_millis(50));
        sender.sent();
    }
    let info = sender.host.stack.info(sender.peer.conn).expect("open");
    assert!(info.cwnd <= 20_000);
    assert!(sender.steps() < 20_000, "{} steps", sender.steps());
    sender.finish(20_000);
}

/// SACKs that move the edges of one block by single bytes mark nothing and cost next to nothing.
#[test]
fn blocks_of_single_bytes_mark_nothing() {
    let mut sender = Sender::new(1_000, true);
    assert_eq!(sender.write(0, 20_000), 20_000);
    sender.sent();
    for at in (1_001..9_000).step_by(7) {
        let seen = sender.ack(0, &[(at, at + 1), (at + 500, at + 900)]);
        assert!(seen.is_empty());
    }
    assert!(sender.steps() < 100_000);
    assert_eq!(sender.host.stack.counters().retransmissions, 0);
    sender.finish(20_000);
}
