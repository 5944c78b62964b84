//! Segments in any order, size and overlap against the receiver of a connection with SACK: the stream is exact, every
//! block that an acknowledgement names is truly held, the first one holds the segment that caused it (or tells of a
//! duplicate), and buffers are bounded.

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, Seen};
use janus_tcp::Config;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;
use proptest::prelude::*;

const SPACE: usize = 40_000;

fn open(host: &mut Host, timestamps: bool) -> Peer {
    let mut syn = Craft::syn((PEER, 4_000));
    syn.seq = SeqNum(u32::MAX - 500);
    syn.options.sack_permitted = true;
    syn.options.timestamps = timestamps.then_some((1_000_000, 0));
    Peer::open_with(host, &syn)
}

struct Receiver {
    host: Host,
    peer: Peer,
    /// Which of the stream's bytes have been sent to it.
    sent: Vec<bool>,
    acked: usize,
    most_blocks: usize,
}

impl Receiver {
    fn new(timestamps: bool) -> Receiver {
        let mut host = Host::with(Config {
            receive_buffer: 60_000,
            receive_buffer_max: 0,
            send_buffer_max: 0,
            ..Config::default()
        });
        let peer = open(&mut host, timestamps);
        Receiver {
            host,
            peer,
            sent: vec![false; SPACE],
            acked: 0,
            most_blocks: if timestamps { 3 } else { 4 },
        }
    }

    fn place(&self, seq: SeqNum) -> usize {
        (seq - self.peer.snd) as usize
    }

    fn arrive(&mut self, at: usize, len: usize) {
        let before = self.sent.clone();
        let answers = self.host.ask(&self.peer.ahead(at as u32, len));
        self.sent[at..at + len].fill(true);
        assert!(answers.len() <= 2, "{answers:?}");
        for answer in &answers {
            self.check(answer, at, len, &before);
        }
        let (front, beyond) = self.front();
        let out_of_order = beyond > front;
        assert!(
            !out_of_order || !answers.is_empty(),
            "a gap is told at once"
        );
        self.peer
            .expect_stream_at_most(&mut self.host, front as u32);
    }

    /// How far the stream is complete, and its highest byte.
    fn front(&self) -> (usize, usize) {
        let front = self.sent.iter().take_while(|sent| **sent).count();
        let last = self.sent.iter().rposition(|sent| *sent);
        (front, last.map_or(0, |last| last + 1))
    }

    fn check(&mut self, answer: &Seen, at: usize, len: usize, before: &[bool]) {
        let (front, _) = self.front();
        assert_eq!(self.place(answer.header.ack), front);
        self.acked = front;
        let blocks: Vec<(usize, usize)> = answer
            .options
            .sack
            .as_slice()
            .iter()
            .map(|(left, right)| {
                assert!(right.gt(*left));
                let left_of_start = left.lt(self.peer.snd);
                assert!(!left_of_start, "before the stream");
                (self.place(*left), self.place(*right))
            })
            .collect();
        assert!(blocks.len() <= self.most_blocks);
        let mut blocks = &blocks[..];
        // A duplicate is told first: it lies below the acknowledgement or within the block behind it.
        let duplicate = |first: &(usize, usize), rest: &[(usize, usize)]| {
            first.1 <= front || rest.iter().any(|b| b.0 <= first.0 && first.1 <= b.1)
        };
        let known: Vec<usize> = (at..at + len).filter(|&i| before[i]).collect();
        assert_eq!(
            blocks.first().is_some_and(|b| duplicate(b, &blocks[1..])),
            !known.is_empty(),
            "{blocks:?} {at}+{len} {front}"
        );
        if let Some(first) = known.first() {
            let told = blocks[0];
            assert_eq!(told.0, *first);
            assert!((told.0..told.1).all(|i| before[i]), "{told:?} came once");
            assert!(told.1 <= at + len);
            blocks = &blocks[1..];
        }
        for (i, block) in blocks.iter().enumerate() {
            assert!(block.0 > front, "{block:?} is not beyond {front}");
            assert!(self.sent[block.0..block.1].iter().all(|sent| *sent));
            assert!(!self.sent[block.0 - 1] && !self.sent[block.1], "not whole");
            assert!(!blocks[..i].contains(block), "{block:?} twice");
        }
        if at + len > front && !blocks.is_empty() {
            let last = at + len - 1;
            let holds = blocks[0].0 <= last && last < blocks[0].1;
            assert!(holds, "{blocks:?} does not begin with {at}+{len}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn blocks_are_true_and_the_stream_exact(
        texts in proptest::collection::vec((0..SPACE - 1_500, prop_oneof![Just(1usize), 2..80usize, 500..1_400usize]), 1..60),
        forward in any::<bool>(),
        timestamps in any::<bool>(),
    ) {
        let mut receiver = Receiver::new(timestamps);
        for (at, len) in texts {
            receiver.arrive(at, len);
            prop_assert!(receiver.host.held() <= 60_000 / 1_024 + 64 + SPACE / 900);
        }
        let starts: Vec<usize> = (0..SPACE - 700).step_by(700).collect();
        for i in 0..starts.len() {
            receiver.arrive(starts[if forward { i } else { starts.len() - 1 - i }], 700);
        }
        let (front, _) = receiver.front();
        receiver.peer.expect_stream(&mut receiver.host);
        prop_assert_eq!(receiver.peer.read as usize, front);
        let Receiver { host, peer, .. } = receiver;
        host.end(&[peer.conn]);
    }
}

/// More ranges change in one batch than an acknowledgement names: more than one acknowledgement leaves.
#[test]
fn every_new_block_of_a_batch_is_told() {
    let mut host = Host::plain();
    let peer = open(&mut host, false);
    for i in 0..10 {
        host.send(&peer.ahead(2_000 * i + 1_000, 1_000));
    }
    let answers = host.collect();
    for i in 0..10 {
        let block = (
            peer.snd + (2_000 * i + 1_000),
            peer.snd + (2_000 * i + 2_000),
        );
        let told = |s: &Seen| s.options.sack.as_slice().contains(&block);
        assert!(answers.iter().any(told), "block {i} is not told");
    }
    assert!(answers.len() <= 4, "{} acknowledgements", answers.len());
    host.end(&[peer.conn]);
}

/// Who reads no blocks counts acknowledgements (RFC 5681 section 3.2): each segment of a batch has its own.
#[test]
fn without_sack_each_segment_of_a_batch_makes_a_duplicate() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    for i in 1..6 {
        host.send(&peer.ahead(1_000 * i, 1_000));
    }
    let answers = host.collect();
    assert_eq!(answers.len(), 5);
    assert!(answers.iter().all(|s| s.header.ack == peer.snd));
    host.end(&[peer.conn]);
}

/// A duplicate on a connection that holds nothing: it gets no block for it, and is told all the same, each time, and not
/// as a challenge.
#[test]
fn a_late_duplicate_is_told_by_an_idle_connection() {
    let mut host = Host::plain();
    let mut peer = open(&mut host, true);
    peer.say(&mut host, 1_000);
    peer.expect_stream(&mut host);
    host.wait(Duration::from_millis(50));
    peer.listen(&mut host, true);
    assert_eq!(host.stack.hot_in_use(), 0);
    let mut told = 0;
    for _ in 0..3_000 {
        let mut late = peer.segment(Flags::ACK);
        late.seq = peer.snd - 1_000;
        late.payload = crate::support::bytes_at(0, 1_000);
        for answer in host.ask(&late) {
            assert_eq!(
                answer.options.sack.as_slice(),
                [(peer.snd - 1_000, peer.snd)]
            );
            told += 1;
        }
        assert_eq!(host.stack.hot_in_use(), 0);
    }
    assert_eq!(told, 3_000);
    assert_eq!(host.stack.counters().challenge_acks, 0);
    host.end(&[peer.conn]);
}

/// A payload cut to the full MSS and three blocks would not fit the MTU together.
#[test]
fn data_and_blocks_never_exceed_the_mtu() {
    let mut host = Host::plain();
    let mut syn = Craft::syn((PEER, 4_000));
    syn.options.mss = Some(1_460);
    syn.options.sack_permitted = true;
    syn.options.timestamps = Some((1, 0));
    let peer = Peer::open_with(&mut host, &syn);
    for i in 0..3 {
        host.send(&peer.ahead(2_000 * i + 1_000, 1_000));
    }
    let written = host.stack.write(host.now, peer.conn, &[7; 5_000]);
    assert_eq!(written, Ok(5_000));
    let seen = host.collect();
    let mut with_blocks = 0;
    for s in &seen {
        let len = 20 + s.header.header_len + s.payload.len();
        assert!(len <= 1_500, "{len} bytes");
        with_blocks += usize::from(s.options.sack.len() == 3);
    }
    assert!(with_blocks > 0, "{seen:?}");
    assert_eq!(seen.iter().map(|s| s.payload.len()).sum::<usize>(), 5_000);
    host.end(&[peer.conn]);
}

/// Many connections with gaps that are never filled hold what all may hold together, and no more: the one that has waited
/// longest makes room, so the latest are never refused, and all of them recover.
#[test]
fn all_gaps_together_are_bounded_oldest_first() {
    const MOST: u32 = 100;
    let mut host = Host::with(Config {
        max_reordered: MOST,
        ..Config::default()
    });
    let mut peers: Vec<Peer> = (0..50).map(|i| Peer::open(&mut host, 4_000 + i)).collect();
    for peer in &peers {
        for n in 0..10 {
            host.ask(&peer.ahead(3_000 * n + 1_000, 1_200));
        }
        assert!(host.stack.reordered_in_use() <= MOST as usize);
    }
    let counters = host.stack.counters();
    assert_eq!(counters.dropped_reordered, 0, "the latest are kept");
    assert!(counters.reordered_pruned >= 400);
    // What the last one sent is all there; the first one has to send all again.
    for (which, there) in [(49, 2_200), (0, 1_000)] {
        let peer = &mut peers[which];
        host.send(&peer.ahead(0, 1_000));
        host.wait(Duration::from_millis(100));
        let answers = host.collect();
        assert_eq!(answers[0].header.ack, peer.snd + there, "{which}");
        peer.skip(there);
        peer.expect_stream(&mut host);
        assert_eq!(peer.read, there);
    }
    for peer in &peers {
        host.stack.abort(host.now, peer.conn);
    }
    assert_eq!(host.stack.reordered_in_use(), 0);
    host.end(&[]);
}

/// A window is a promise: what comes within it is kept, however long the gap before it lasts and whatever is known of the
/// connection by then.
#[test]
fn what_was_offered_is_held_beyond_a_gap_that_lasts() {
    const LEN: u32 = 1_400;
    let mut host = Host::with(Config {
        receive_buffer: 64 << 10,
        receive_buffer_max: 1 << 20,
        ..Config::default()
    });
    let mut syn = Craft::syn((PEER, 4_000));
    syn.options.sack_permitted = true;
    syn.options.window_scale = Some(7);
    let mut peer = Peer::open_with(&mut host, &syn);
    let window = |host: &Host, peer: &Peer| {
        let info = host.stack.info(peer.conn).expect("a connection");
        info.receive_window
    };
    // Its application reads more in each round trip.
    for _ in 0..16 {
        for _ in 0..window(&host, &peer) / 2 / LEN {
            peer.say(&mut host, LEN as usize);
            peer.expect_stream(&mut host);
        }
        host.wait(Duration::from_millis(5));
        host.collect();
    }
    let offered = window(&host, &peer);
    assert!(offered > 800_000, "{offered}");
    let before = *host.stack.counters();
    // Of a whole window the first segment is lost, and the rest takes many round trips, and a silence.
    let segments = offered / LEN;
    for n in 1..segments {
        host.send(&peer.ahead(n * LEN, LEN as usize));
        if n % 16 == 0 {
            host.wait(Duration::from_millis(5));
            host.collect();
        }
        if n == segments / 2 {
            let info = host.stack.info(peer.conn).expect("a connection");
            assert!(info.receive_buffer >= offered, "{}", info.receive_buffer);
            host.wait(Duration::from_secs(10));
        }
    }
    let after = *host.stack.counters();
    assert_eq!(after.reordered - before.reordered, u64::from(segments - 1));
    assert_eq!((after.dropped_reordered, after.reordered_pruned), (0, 0));
    peer.say(&mut host, LEN as usize);
    peer.skip((segments - 1) * LEN);
    peer.expect_stream(&mut host);
    assert_eq!(peer.read, peer.sent);
    host.end(&[peer.conn]);
}
