//! A connection gets the memory of the one that ended last, and nothing of what that one was: what its hot block, its
//! buffers and its tuple have left is seen in no packet. (`rfc9040.rs` has whole histories; here is what they would hide.)

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, Seen, bytes_at};
use janus_tcp::{Config, Error};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

const RTT: Duration = Duration::from_millis(100);
const MSS: usize = 1_400;

fn syn(port: u16) -> Craft {
    let mut syn = Craft::syn((PEER, port));
    syn.options.sack_permitted = true;
    syn.options.timestamps = Some((1_000_000, 0));
    syn
}

/// The peer resets, and the application lets go: the memory is free.
fn reset(host: &mut Host, peer: &Peer) {
    host.send(&peer.segment(Flags::RST | Flags::ACK));
    host.stack.close(host.now, peer.conn);
    // A block that stood in the queue of those that want to send goes with this turn's end.
    host.collect();
    assert_eq!((host.stack.connections(), host.stack.hot_in_use()), (0, 0));
}

/// One that gets the memory of `old`.
fn successor(host: &mut Host, old: &Peer, syn: &Craft) -> Peer {
    let next = Peer::open_with(host, syn);
    assert_eq!(next.conn.index, old.conn.index, "in the same memory");
    next
}

/// Of bytes that were received and never acknowledged nothing is counted for the next: by them, what it takes for the last
/// it acknowledged would be too low, and a peer's newer timestamp would not be echoed (RFC 7323 section 4.3).
#[test]
fn bytes_that_were_never_acknowledged_are_not_the_next_ones() {
    let mut host = Host::plain();
    let mut first = Peer::open_with(&mut host, &syn(4_000));
    host.send(&first.ahead(0, 500));
    first.skip(500);
    // No turn has ended yet, so no acknowledgement has left.
    reset(&mut host, &first);

    let mut shut = syn(4_001);
    shut.window = 0;
    let mut next = successor(&mut host, &first, &shut);
    // Not a byte may leave, so the hot block stays and owes nothing.
    assert_eq!(host.stack.write(host.now, next.conn, b"later"), Ok(5));
    assert!(host.collect().is_empty());
    next.clock = Some(1_000_777);
    next.window = 8_000;
    let sent = host.ask(&next.segment(Flags::ACK));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].payload, b"later");
    let echo = sent[0].options.timestamps.map(|(_, echo)| echo);
    assert_eq!(echo, Some(1_000_777));
    host.end(&[next.conn]);
}

fn write(host: &mut Host, peer: &Peer, segments: usize) -> Vec<Seen> {
    let data = bytes_at(0, segments * (MSS - 12));
    assert_eq!(host.stack.write(host.now, peer.conn, &data), Ok(data.len()));
    let sent = host.collect();
    assert_eq!(sent.len(), segments);
    sent
}

/// Round trips until one is known.
fn measure(host: &mut Host, peer: &mut Peer) {
    for _ in 0..5 {
        let sent = write(host, peer, 1);
        host.wait(RTT);
        peer.take(&sent);
        answer(host, peer, &[]);
    }
}

fn answer(host: &mut Host, peer: &mut Peer, sacked: &[(SeqNum, SeqNum)]) -> Vec<Seen> {
    peer.clock = peer.clock.map(|value| value + 1);
    let mut ack = peer.segment(Flags::ACK);
    for &(left, right) in sacked {
        ack.options.sack.push(left, right);
    }
    host.ask(&ack)
}

/// Whether the first of five segments is sent again at once when the four behind it are SACKed (DupThresh, RFC 8985 section
/// 6.2 step 4): it is, unless reordering was seen before.
fn repeats_at_once(host: &mut Host, peer: &mut Peer) -> bool {
    let sent = write(host, peer, 5);
    host.wait(RTT);
    let again = answer(host, peer, &[(sent[1].header.seq, sent[4].end())]);
    again
        .iter()
        .any(|s| s.header.seq == sent[0].header.seq && !s.payload.is_empty())
}

/// A network is seen to reorder; how the connection ends while it still holds a hot block is the test's.
fn see_reordering(host: &mut Host, peer: &mut Peer) {
    let sent = write(host, peer, 4);
    host.wait(RTT);
    answer(host, peer, &[(sent[1].header.seq, sent[1].end())]);
    // What seemed to be missing was only late: acknowledged without having been sent again.
    peer.rcv = sent[2].end();
    answer(host, peer, &[]);
}

/// What one path does to its packets is no sign of what the next one's does.
#[test]
fn reordering_is_the_business_of_one_connection() {
    let mut host = Host::plain();
    let mut first = Peer::open_with(&mut host, &syn(4_000));
    measure(&mut host, &mut first);
    see_reordering(&mut host, &mut first);
    assert!(!repeats_at_once(&mut host, &mut first), "it was seen");
    reset(&mut host, &first);

    let mut next = successor(&mut host, &first, &syn(4_001));
    measure(&mut host, &mut next);
    assert!(repeats_at_once(&mut host, &mut next));
    host.stack.abort(host.now, next.conn);
    host.end(&[]);
}

/// Packets of a connection in buffers that are full of another one's secret carry none of it: nor do its reads.
#[test]
fn no_byte_of_one_connection_is_in_a_packet_of_the_next() {
    const SECRET: &[u8; 16] = b"THE-OTHERS-BYTES";
    let holds_secret = |bytes: &[u8]| bytes.windows(4).any(|w| SECRET.windows(4).any(|s| s == w));
    let mut host = Host::plain();
    // So often that every buffer of the pool has held it, in both directions.
    let secret = SECRET.repeat(80);
    let mut first = Peer::open_with(&mut host, &syn(4_000));
    for _ in 0..300 {
        let mut segment = first.segment(Flags::ACK | Flags::PSH);
        segment.payload = secret.clone();
        host.send(&segment);
        first.skip(secret.len() as u32);
        let mut into = [0; 2_000];
        assert_eq!(
            host.stack.read(host.now, first.conn, &mut into),
            Ok(secret.len())
        );
        host.stack
            .write(host.now, first.conn, &secret)
            .expect("room");
        first.listen(&mut host, true);
    }
    reset(&mut host, &first);

    let mut answers = Vec::new();
    let ask = syn(4_001);
    host.send(&ask);
    answers.extend(host.packets());
    let mut next = successor(&mut host, &first, &syn(4_002));
    host.stack.set_nodelay(next.conn, true).expect("it is open");
    let mut into = [0; 2_000];
    let read = host.stack.read(host.now, next.conn, &mut into);
    assert_eq!(read, Err(Error::WouldBlock));
    for len in [1, 3, 17, 700] {
        let text = bytes_at(0, len);
        host.send(&next.ahead(0, len));
        next.skip(len as u32);
        assert_eq!(
            host.stack.read(host.now, next.conn, &mut into),
            Ok(len),
            "no more than was sent"
        );
        assert!(!holds_secret(&into[..len]));
        host.stack.write(host.now, next.conn, &text).expect("room");
        answers.extend(host.packets());
    }
    // A segment to a port that nobody has.
    let mut stray = Craft::new((PEER, 9), Flags::ACK);
    stray.dst.1 = 9;
    host.send(&stray);
    host.stack.abort(host.now, next.conn);
    answers.extend(host.packets());
    assert!(answers.len() >= 7, "{}", answers.len());
    for packet in &answers {
        assert!(!holds_secret(packet), "{packet:02x?}");
    }
    // The half-open one gives up.
    host.end(&[]);
}

/// Initial numbers and timestamps come from keys, tuple and clock: whose memory a connection has does not show in them, nor
/// do they tell that it has another one's.
#[test]
fn numbers_and_timestamps_know_nothing_of_memory() {
    let open = |warm_reuse: bool, before: u16| {
        let mut host = Host::with(Config {
            warm_reuse,
            ..Config::default()
        });
        for port in 0..before {
            let old = Peer::open_with(&mut host, &syn(4_000 + port));
            reset(&mut host, &old);
        }
        let answers: Vec<Seen> = (0..4).flat_map(|i| host.ask(&syn(5_000 + i))).collect();
        assert_eq!(answers.len(), 4);
        let numbers = answers.iter().map(|seen| {
            let clock = seen.options.timestamps.expect("both use them").0;
            (seen.header.seq, clock)
        });
        numbers.collect::<Vec<_>>()
    };
    let fresh = open(true, 0);
    for (warm_reuse, before) in [(true, 1), (true, 40), (false, 40)] {
        assert_eq!(open(warm_reuse, before), fresh, "{warm_reuse} {before}");
    }
    for (i, one) in fresh.iter().enumerate() {
        for other in &fresh[..i] {
            assert!(one.0 != other.0 && one.1 != other.1);
        }
    }
}

/// The same tuple, again and again, in the same memory: each begins beyond the numbers of all before it (RFC 9293 section
/// 3.4.1), and its timestamps go on from the last (RFC 7323 section 5.4), so that the old connection's packets are old.
#[test]
fn the_same_tuple_goes_on_from_where_it_was() {
    let mut host = Host::plain();
    let mut last: Option<(SeqNum, u32)> = None;
    for _ in 0..50 {
        let mut again = syn(4_000);
        again.options.timestamps = Some((1_000_000, 0));
        let peer = Peer::open_with(&mut host, &again);
        host.stack
            .write(host.now, peer.conn, b"hello")
            .expect("room");
        let sent = host.collect();
        let clock = sent[0].options.timestamps.expect("both use them").0;
        if let Some((end, before)) = last {
            assert!(peer.irs.gt(end), "beyond what was sent");
            assert!(clock.wrapping_sub(before) as i32 >= 0, "never back");
        }
        last = Some((sent[0].end(), clock));
        reset(&mut host, &peer);
        host.wait(Duration::from_millis(1));
    }
    host.end(&[]);
}
