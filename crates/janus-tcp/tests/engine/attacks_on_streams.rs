//! Attacks on what an open connection holds: memory by tiny or misplaced segments, the congestion window by lying
//! acknowledgements, a window that stays shut, the end of a connection and what comes after it. Each time: no panic,
//! the stream is what was sent, bounded memory, others unharmed, nothing left behind.

use core::time::Duration;
use std::net::Ipv4Addr;

use crate::support::{Craft, Host, PEER, Peer, bytes_at};
use janus_tcp::{Config, Error, State};
use janus_wire::tcp::Flags;

fn small() -> Config {
    Config {
        receive_buffer: 60_000,
        send_buffer: 60_000,
        receive_buffer_max: 0,
        send_buffer_max: 0,
        ..Config::default()
    }
}

/// Packet buffers that may wait beyond a gap, by the receive buffer of [`small`].
const REORDERED: usize = 60_000 / 1_024 + 64;

#[test]
fn holes_hold_a_bounded_number_of_buffers_whichever_way_they_come() {
    for backwards in [false, true] {
        let mut host = Host::with(small());
        let mut other = Peer::open(&mut host, 4_001);
        let mut peer = Peer::open(&mut host, 4_000);
        for i in 0..20_000 {
            let at = if backwards { 40_000 - 2 * i } else { 2 * i };
            host.ask(&peer.ahead(at + 1, 1));
        }
        let held = host.held();
        assert!(held <= REORDERED + 2, "{held} buffers are held");
        other.expect_unharmed(&mut host);
        while peer.sent < 50_000 {
            peer.say(&mut host, 1_000);
        }
        peer.expect_stream(&mut host);
        assert_eq!(peer.read, peer.sent);
        peer.expect_unharmed(&mut host);
        host.end(&[peer.conn, other.conn]);
    }
}

/// Nobody reads, and each round fills holes with single bytes: what waited must not keep a buffer a byte.
#[test]
fn filled_holes_are_joined() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    while peer.sent < 20_000 {
        for hole in 0..100 {
            host.ask(&peer.ahead(2 * hole + 1, 1));
        }
        for hole in 0..100 {
            host.ask(&peer.ahead(2 * hole, 1));
        }
        peer.skip(200);
    }
    let held = host.held();
    assert!(held <= 64, "{held} buffers hold 20,000 bytes");
    peer.expect_stream(&mut host);
    assert_eq!(peer.read, peer.sent);
    host.end(&[peer.conn]);
}

#[test]
fn single_bytes_are_gathered() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    for _ in 0..20_000 {
        host.ask(&peer.ahead(0, 1));
        peer.skip(1);
    }
    let held = host.held();
    assert!(held <= 20, "{held} buffers hold 20,000 bytes");
    peer.expect_stream(&mut host);
    assert_eq!(peer.read, 20_000);
    host.end(&[peer.conn]);
}

/// What came first is kept. So every byte comes once, what was reported stays, and a repeat changes nothing.
#[test]
fn overlapping_segments_that_differ_give_one_stream() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    let mut part = |from: u32, len: usize, byte: u8| {
        let mut craft = peer.ahead(from, len);
        craft.payload = vec![byte; len];
        host.ask(&craft);
    };
    part(10, 10, b'A');
    part(5, 10, b'B');
    part(12, 3, b'X');
    part(18, 4, b'D');
    part(0, 7, b'C');
    part(0, 22, b'Y');
    part(20, 4, b'E');
    let mut into = [0; 64];
    let n = host.stack.read(host.now, peer.conn, &mut into);
    assert_eq!(n, Ok(24));
    assert_eq!(&into[..24], b"CCCCCBBBBBAAAAAAAAAADDEE");
    peer.skip(24);
    peer.read = 24;
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

#[test]
fn what_lies_behind_the_fin_is_not_delivered() {
    let mut host = Host::with(small());
    for (port, fin_first) in [(4_000, true), (4_001, false)] {
        let mut peer = Peer::open(&mut host, port);
        let mut fin = peer.ahead(10, 10);
        fin.flags = Flags::ACK | Flags::FIN;
        let behind = peer.ahead(20, 30);
        let further = peer.ahead(60, 30);
        for craft in if fin_first {
            [&fin, &behind, &further]
        } else {
            [&further, &behind, &fin]
        } {
            host.ask(craft);
        }
        host.ask(&peer.ahead(0, 10));
        let mut into = [0; 100];
        assert_eq!(host.stack.read(host.now, peer.conn, &mut into), Ok(20));
        assert_eq!(into[..20], bytes_at(0, 20));
        assert_eq!(host.stack.read(host.now, peer.conn, &mut into), Ok(0));
        assert_eq!(host.stack.segments_in_use(), 0);
        peer.snd += 21u32;
        // The other direction is still open, and the end comes in order.
        assert_eq!(host.stack.write(host.now, peer.conn, b"answer"), Ok(6));
        peer.listen(&mut host, true);
        assert_eq!(peer.got, b"answer");
        host.stack.close(host.now, peer.conn);
        peer.listen(&mut host, true);
    }
    assert_eq!(host.stack.connections(), 0);
    host.end(&[]);
}

#[test]
fn a_window_shut_for_ever_costs_its_bytes_and_ends_with_its_owner() {
    for toggles in [false, true] {
        let mut host = Host::with(small());
        let mut peer = Peer::open(&mut host, 4_000);
        peer.window = 0;
        host.send(&peer.segment(Flags::ACK));
        let written = host.stack.write(host.now, peer.conn, &[1; 100_000]);
        assert_eq!(written, Ok(60_000));
        let rest = host.stack.write(host.now, peer.conn, &[1; 10]);
        assert_eq!(rest, Err(Error::WouldBlock));
        host.collect();
        // An hour and more of probes, all answered: the connection lives (MUST-37).
        let probes = answer_probes(&mut host, &mut peer, 60, toggles);
        assert_eq!(probes, 60);
        assert!(host.held() < 100);
        assert!(host.stack.info(peer.conn).is_ok());
        // Its owner lets go. From then on answering does not keep it alive, nor does playing with the window.
        host.stack.close(host.now, peer.conn);
        answer_probes(&mut host, &mut peer, 200, toggles);
        assert_eq!(
            host.stack.connections(),
            0,
            "an orphan lives for ever (toggles: {toggles})"
        );
        host.end(&[]);
    }
}

/// Lets time pass and answers up to `n` probes with a shut window, opening it for a moment each time if `toggles`.
fn answer_probes(host: &mut Host, peer: &mut Peer, n: usize, toggles: bool) -> usize {
    let mut probes = 0;
    for _ in 0..20_000 {
        let Some(next) = host.stack.next_deadline().filter(|_| probes < n) else {
            break;
        };
        host.now = host.now.max(next);
        host.stack.advance(host.now);
        if host.collect().is_empty() {
            continue;
        }
        probes += 1;
        if toggles {
            peer.window = 1;
            host.send(&peer.segment(Flags::ACK));
            peer.window = 0;
        }
        host.send(&peer.segment(Flags::ACK));
    }
    probes
}

#[test]
fn an_optimistic_acknowledgement_frees_nothing() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    let data = bytes_at(0, 14_000);
    assert_eq!(host.stack.write(host.now, peer.conn, &data), Ok(14_000));
    let first = host.collect();
    let before = host.stack.info(peer.conn).expect("a connection");
    for beyond in [1u32, 1_400, 100_000, 1 << 30] {
        let mut ack = peer.segment(Flags::ACK);
        ack.ack = first.last().expect("data").end() + beyond;
        let answers = host.ask(&ack);
        assert!(answers.iter().all(|s| s.payload.is_empty()));
    }
    assert_eq!(host.stack.info(peer.conn), Ok(before));
    peer.take(&first);
    host.send(&peer.segment(Flags::ACK));
    peer.listen(&mut host, true);
    assert_eq!(peer.got, data);
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

#[test]
fn an_acknowledgement_in_pieces_earns_no_more_than_a_whole_one() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    host.stack
        .write(host.now, peer.conn, &[1; 60_000])
        .expect("room");
    let start = host.stack.info(peer.conn).expect("a connection").cwnd;
    host.collect();
    for _ in 0..2_800 {
        peer.rcv += 1u32;
        host.ask(&peer.segment(Flags::ACK));
    }
    let cwnd = host.stack.info(peer.conn).expect("a connection").cwnd;
    assert!(
        cwnd <= start + 2_800,
        "{start} grew to {cwnd} for 2,800 bytes"
    );
    // Repeats of one acknowledgement let out no more than the peer's window and the send buffer.
    for _ in 0..5_000 {
        host.ask(&peer.segment(Flags::ACK));
    }
    let info = host.stack.info(peer.conn).expect("a connection");
    assert!(info.in_flight + info.unsent <= 60_000);
    host.end(&[peer.conn]);
}

#[test]
fn a_tiny_mss_cannot_pin_more_memory_than_the_send_buffer_says() {
    for mss in [0, 1, 47, 48, 535, 65_535] {
        let mut host = Host::with(small());
        let mut syn = Craft::syn((PEER, 4_000));
        syn.options.mss = Some(mss);
        syn.options.timestamps = Some((1, 0));
        let mut peer = Peer::open_with(&mut host, &syn);
        let data = bytes_at(0, 100_000);
        let mut done = 0;
        for _ in 0..20_000 {
            match host.stack.write(host.now, peer.conn, &data[done..]) {
                Ok(n) => done += n,
                Err(Error::WouldBlock) => {}
                Err(error) => panic!("{error:?}"),
            }
            let held = host.held();
            assert!(
                held <= 60_000 / 512 + 4,
                "MSS {mss}: {held} buffers are held"
            );
            peer.listen(&mut host, true);
            if peer.got.len() == data.len() {
                break;
            }
        }
        assert!(
            peer.got == data,
            "MSS {mss}: the stream is not what was written"
        );
        host.end(&[peer.conn]);
    }
}

/// A server that answers each byte at once, and a peer that never acknowledges.
#[test]
fn tiny_answers_nobody_acknowledges_are_bounded() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    host.stack
        .set_nodelay(peer.conn, true)
        .expect("a connection");
    for _ in 0..5_000 {
        host.send(&peer.ahead(0, 1));
        peer.skip(1);
        peer.expect_stream(&mut host);
        let _full = host.stack.write(host.now, peer.conn, b"x");
        host.collect();
    }
    let held = host.held();
    assert!(held <= 60_000 / 512 + 4, "{held} buffers are held");
    host.end(&[peer.conn]);
}

#[test]
fn a_window_scale_beyond_the_limit_is_the_limit() {
    let mut host = Host::with(small());
    let mut syn = Craft::syn((PEER, 4_000));
    syn.options.window_scale = Some(255);
    let mut peer = Peer::open_with(&mut host, &syn);
    host.send(&peer.segment(Flags::ACK));
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

#[test]
fn floods_of_fin_and_urgent_change_nothing() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    for i in 0..2_000u32 {
        // Not at the edge: a FIN there is the peer's.
        let mut craft = peer.segment(Flags(
            (i % 256) as u8 & !(Flags::RST | Flags::SYN).0 | Flags::FIN.0,
        ));
        craft.seq = peer.snd + (1 + i.wrapping_mul(0x9e37_79b9) % 1_000_000);
        craft.urgent = i as u16;
        host.ask(&craft);
    }
    peer.expect_unharmed(&mut host);
    // Urgent data is delivered in line, wherever the pointer leads.
    for urgent in [0, 1, 300, 65_535] {
        let mut craft = peer.ahead(0, 50);
        craft.flags = Flags::ACK | Flags::URG;
        craft.urgent = urgent;
        host.ask(&craft);
        peer.skip(50);
    }
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

/// A connection that both sides closed, ours first.
fn in_time_wait(host: &mut Host, timestamps: bool) -> Peer {
    let mut peer = if timestamps {
        Peer::open_with_timestamps(host, 4_000)
    } else {
        Peer::open(host, 4_000)
    };
    peer.expect_unharmed(host);
    host.stack.close(host.now, peer.conn);
    peer.listen(host, true);
    host.ask(&peer.segment(Flags::FIN | Flags::ACK));
    peer.snd += 1u32;
    assert_eq!(host.stack.in_time_wait(), 1);
    peer
}

#[test]
fn time_wait_is_not_assassinated_nor_kept_alive() {
    for timestamps in [false, true] {
        let mut host = Host::with(small());
        let peer = in_time_wait(&mut host, timestamps);
        for second in 0..59u32 {
            // RFC 1337: resets, old data, old acknowledgements; and FINs that are not the peer's.
            for offset in [0, 1, 1u32.wrapping_neg(), 100, 1 << 31] {
                for flags in [
                    Flags::RST,
                    Flags::ACK,
                    Flags::FIN | Flags::ACK,
                    Flags::FIN,
                    Flags::RST | Flags::ACK,
                ] {
                    let mut forged = peer.segment(flags);
                    forged.seq = peer.snd + offset;
                    // The peer's own FIN, repeated, is no forgery.
                    if flags.contains(Flags::FIN) && offset == 1u32.wrapping_neg() {
                        continue;
                    }
                    forged.payload = vec![0xee; (second % 2) as usize * 10];
                    if forged.seq + 11u32 == peer.snd {
                        continue;
                    }
                    let answers = host.ask(&forged);
                    assert!(
                        answers.len() <= 1 && answers.iter().all(|s| s.header.flags == Flags::ACK)
                    );
                }
            }
            assert_eq!(
                host.stack.in_time_wait(),
                1,
                "assassinated after {second} s"
            );
            host.wait(Duration::from_secs(1));
        }
        // A minute after the FIN it is gone, whatever the others sent.
        host.wait(Duration::from_secs(2));
        assert_eq!(host.stack.in_time_wait(), 0, "kept alive");
        host.end(&[]);
    }
}

#[test]
fn the_peers_own_fin_restarts_time_wait() {
    let mut host = Host::with(small());
    let peer = in_time_wait(&mut host, true);
    host.wait(Duration::from_secs(40));
    let mut fin = peer.segment(Flags::FIN | Flags::ACK);
    fin.seq = peer.snd - 1;
    let answers = host.ask(&fin);
    assert_eq!(answers[0].header.ack, peer.snd);
    host.wait(Duration::from_secs(40));
    assert_eq!(host.stack.in_time_wait(), 1);
    host.end(&[]);
}

#[test]
fn old_duplicates_do_not_pass_paws() {
    let mut host = Host::with(small());
    let mut peer = Peer::open_with_timestamps(&mut host, 4_000);
    peer.expect_unharmed(&mut host);
    peer.clock = Some(2_000_000);
    peer.expect_unharmed(&mut host);
    let mut old = peer.segment(Flags::ACK | Flags::FIN);
    old.options.timestamps = Some((1_500_000, 0));
    old.payload = vec![0xee; 700];
    host.ask(&old);
    old.options.timestamps = None;
    host.ask(&old);
    assert_eq!(host.stack.counters().dropped_paws, 2);
    peer.expect_unharmed(&mut host);
    // A month of silence later half of all timestamps would look old: the rule rests (RFC 7323 section 5.5).
    host.wait(Duration::from_secs(30 * 24 * 3_600));
    peer.clock = Some(2_000_000 + (1 << 31) + (1 << 28));
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

#[test]
fn a_dry_pool_stalls_senders_and_nobody_for_ever() {
    let mut host = Host::new(small(), crate::support::own_address(), 64);
    let mut peers: Vec<Peer> = (0..40).map(|i| Peer::open(&mut host, 4_000 + i)).collect();
    let data = bytes_at(0, 20_000);
    let mut done = vec![0; peers.len()];
    for _ in 0..2_000 {
        for (peer, done) in peers.iter().zip(&mut done) {
            match host.stack.write(host.now, peer.conn, &data[*done..]) {
                Ok(n) => *done += n,
                Err(Error::WouldBlock) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        host.wait(Duration::from_millis(10));
        let seen = host.collect();
        for peer in &mut peers {
            peer.take(&seen);
            if !seen.is_empty() {
                host.send(&peer.segment(Flags::ACK));
            }
        }
        if peers.iter().all(|p| p.got.len() == data.len()) {
            break;
        }
    }
    assert!(host.stack.counters().starved > 0, "the pool was never dry");
    assert!(peers.iter().all(|p| p.got == data));
    host.end(&peers.iter().map(|p| p.conn).collect::<Vec<_>>());
}

/// The pool is dry, thousands want to write and nothing of theirs is in flight: all are told when there is a buffer.
#[test]
fn all_who_found_the_pool_dry_are_told() {
    const MANY: u32 = 3_000;
    let mut host = Host::new(small(), crate::support::own_address(), 256);
    let mut conns = Vec::new();
    for i in 0..MANY {
        let syn = Craft::syn((
            Ipv4Addr::new(203, 0, 113, (i % 250) as u8),
            2_000 + (i / 250) as u16,
        ));
        conns.push(Peer::open_with(&mut host, &syn).conn);
    }
    let mut hoard: Vec<_> = core::iter::from_fn(|| host.stack.pool().alloc()).collect();
    for (i, &conn) in conns.iter().enumerate() {
        assert_eq!(
            host.stack.write(host.now, conn, b"x"),
            Err(Error::WouldBlock)
        );
        host.stack
            .wait_write(host.now, conn, Some(janus_tcp::Token(i as u32)));
    }
    hoard.clear();
    let mut told = 0;
    for _ in 0..100 {
        host.wait(Duration::from_millis(1));
        while host.stack.pop_ready().is_some() {
            told += 1;
        }
    }
    assert_eq!(told, MANY);
    for conn in conns {
        host.stack.abort(host.now, conn);
    }
    host.end(&[]);
}

#[test]
fn a_peer_that_never_reads_does_not_stop_the_one_that_does() {
    let mut host = Host::with(small());
    let mut shut = Peer::open(&mut host, 4_000);
    shut.window = 0;
    host.send(&shut.segment(Flags::ACK));
    host.stack
        .write(host.now, shut.conn, &[1; 60_000])
        .expect("room");
    let mut other = Peer::open(&mut host, 4_001);
    for _ in 0..100 {
        other.expect_unharmed(&mut host);
    }
    let state = host.stack.info(shut.conn).map(|info| info.state);
    assert_eq!(state, Ok(State::Established));
    host.end(&[shut.conn, other.conn]);
}
