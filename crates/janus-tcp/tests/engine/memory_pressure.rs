//! Memory runs out: a thousand peers fill all packet buffers there are, of the device too. Acknowledgements still leave,
//! the device still receives, no window is taken back, and when the applications read, every stream is exact.

use core::time::Duration;
use std::collections::HashMap;

use crate::support::{Craft, Host, PEER, Peer, Seen};
use janus_tcp::{Config, Error, Pressure};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

const BUFFERS: u32 = 4_096;
const RESERVE: usize = 32;
/// Frames a device hands in before the stack says what it has to.
const TURN: usize = 32;

/// A host whose device receives into the depot that the stack sends from, as in a runtime.
fn host() -> Host {
    let mut host = Host::new(Config::default(), crate::support::own_address(), BUFFERS);
    host.stack.pool().set_reserve(RESERVE);
    host.device = host.depot.pool();
    host.device.set_reserve(RESERVE);
    host
}

fn open(host: &mut Host, i: u32) -> Peer {
    let mut syn = Craft::syn((PEER, 4_000 + i as u16));
    syn.seq = SeqNum(u32::MAX - 500 * i);
    syn.options.sack_permitted = i.is_multiple_of(2);
    Peer::open_with(host, &syn)
}

/// A turn of the device: what the stack sent, and its buffers, go.
fn collect(host: &mut Host) -> HashMap<u16, Vec<Seen>> {
    let mut by_port: HashMap<u16, Vec<Seen>> = HashMap::new();
    while host.stack.wants_transmit() {
        for seen in host.collect_some(16) {
            by_port.entry(seen.to.1).or_default().push(seen);
        }
    }
    by_port
}

/// Sends with the device's reserve, as drivers do. False when there is no buffer for it.
fn feed(host: &mut Host, craft: &Craft) -> bool {
    let Some(buf) = host.device.alloc_reserved() else {
        return false;
    };
    host.device.free(buf);
    host.send(craft);
    true
}

#[test]
fn a_thousand_peers_that_fill_everything_starve_nobody() {
    let mut host = host();
    let mut peers: Vec<Peer> = (0..1_000).map(|i| open(&mut host, i)).collect();
    let mut acked = vec![0_u32; peers.len()];
    let mut edge: Vec<Option<SeqNum>> = vec![None; peers.len()];
    let mut take = |peers: &mut [Peer], acked: &mut [u32], seen: &HashMap<u16, Vec<Seen>>| {
        for (i, peer) in peers.iter_mut().enumerate() {
            for s in seen.get(&peer.at.1).into_iter().flatten() {
                peer.take(std::slice::from_ref(s));
                acked[i] = acked[i].max((s.header.ack - peer.snd) as u32);
                let offered = s.header.ack + (u32::from(s.header.window) << 7);
                let before = edge[i].unwrap_or(offered);
                assert!(offered.ge(before - 128), "a window was taken back");
                edge[i] = Some(before.later(offered));
            }
        }
    };
    // All send all they may, in order and beyond gaps; nobody reads. All applications write.
    for round in 0..24 {
        for i in 0..peers.len() {
            let peer = &peers[i];
            let gap = if i % 3 == 0 { 1_000 } else { 0 };
            assert!(
                feed(&mut host, &peer.ahead(acked[i] + gap, 1_000)),
                "the device receives"
            );
            if round % 8 == 0 {
                let _ = host.stack.write(host.now, peer.conn, &[7; 3_000]);
            }
            if i % TURN == 0 {
                let seen = collect(&mut host);
                take(&mut peers, &mut acked, &seen);
            }
        }
    }
    assert_eq!(host.stack.pressure(), Pressure::Critical);
    assert!(host.stack.counters().dropped_pressure > 0);
    assert_eq!(host.stack.reordered_in_use(), 0, "what could go has gone");
    // Each that asks is answered.
    for peer in peers.iter().step_by(97) {
        let mut probe = peer.segment(Flags::ACK);
        probe.seq = peer.snd - 1;
        host.wait(Duration::from_secs(1));
        assert!(feed(&mut host, &probe));
        assert!(collect(&mut host).contains_key(&peer.at.1), "no answer");
    }
    assert_eq!(host.stack.counters().dropped_no_buffer, 0);
    // The applications read, the peers go on from what was acknowledged.
    for _ in 0..40 {
        for i in 0..peers.len() {
            let peer = &mut peers[i];
            peer.expect_stream(&mut host);
            if acked[i] < 30_000 {
                feed(&mut host, &peer.ahead(acked[i], 1_000));
            }
            // What was sent to it is acknowledged.
            feed(&mut host, &peer.segment(Flags::ACK));
            if i % TURN == 0 {
                let seen = collect(&mut host);
                take(&mut peers, &mut acked, &seen);
            }
        }
        host.wait(Duration::from_millis(200));
        let seen = collect(&mut host);
        take(&mut peers, &mut acked, &seen);
    }
    for (i, peer) in peers.iter_mut().enumerate() {
        peer.expect_stream(&mut host);
        assert!(peer.read >= 30_000, "{i}: {} read", peer.read);
        assert_eq!(peer.read, acked[i]);
    }
    assert_eq!(host.stack.pressure(), Pressure::None);
    for (i, peer) in peers.iter_mut().enumerate() {
        peer.skip(acked[i]);
    }
    peers[5].expect_unharmed(&mut host);
    for peer in &peers {
        host.stack.abort(host.now, peer.conn);
    }
    host.stack.pool().set_reserve(0);
    host.device.set_reserve(0);
    host.end(&[]);
}

/// A pool that stays dry is not asked every millisecond, and those who wait are told soon after it is not.
#[test]
fn a_pool_that_stays_dry_is_asked_less_and_less() {
    let mut host = Host::new(Config::default(), crate::support::own_address(), 256);
    let peer = Peer::open(&mut host, 4_000);
    let hoard: Vec<_> = core::iter::from_fn(|| host.stack.pool().alloc()).collect();
    let written = host.stack.write(host.now, peer.conn, b"x");
    assert_eq!(written, Err(Error::WouldBlock));
    let token = janus_tcp::Token(3);
    host.stack.wait_write(host.now, peer.conn, Some(token));
    let end = host.now + Duration::from_secs(2);
    let mut turns = 0;
    while let Some(next) = host.stack.next_deadline().filter(|at| *at < end) {
        host.now = host.now.max(next);
        host.stack.advance(host.now);
        turns += 1;
        assert!(turns < 100, "advance runs and runs");
    }
    assert!(turns >= 8, "{turns} turns");
    drop(hoard);
    host.wait(Duration::from_millis(200));
    assert_eq!(host.stack.pop_ready(), Some(token));
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// Four cores have a pool each for their stack and their device; seven of the eight only have been at work.
#[test]
fn what_other_threads_have_in_stock_is_no_shortage() {
    for buffers in [512, 1_024, 4_096] {
        let mut host = Host::new(Config::default(), crate::support::own_address(), buffers);
        host.stack.pool().set_reserve(RESERVE);
        host.device = host.depot.pool();
        let mut others: Vec<_> = (0..7).map(|_| host.depot.pool()).collect();
        let mut held = Vec::new();
        for other in &mut others {
            other.set_reserve(RESERVE);
            other.alloc_many(usize::MAX, &mut held);
        }
        for (at, buf) in held.into_iter().enumerate() {
            others[at % 7].free(buf);
        }
        let mut peer = open(&mut host, 0);
        // Unread, in a quarter of all there are.
        for n in 0..buffers / 4 {
            assert!(feed(&mut host, &peer.ahead(20 * n, 20)));
            collect(&mut host);
        }
        assert_eq!(host.stack.pressure(), Pressure::None, "{buffers} buffers");
        assert_eq!(host.stack.counters().pressure_rises, 0);
        peer.expect_stream(&mut host);
        assert_eq!(peer.read, 20 * (buffers / 4));
        drop(others);
    }
}

/// A device that has half of a small depot to receive into leaves the other half, and pressure is how full that is.
#[test]
fn what_a_device_has_to_receive_into_is_no_shortage() {
    const BUFFERS: usize = 1_024;
    let mut host = Host::new(
        Config::default(),
        crate::support::own_address(),
        BUFFERS as u32,
    );
    let mut peer = open(&mut host, 0);
    let posted = host.depot.posted(BUFFERS as u32 / 2);
    let mut pool = host.depot.pool();
    let mut held = Vec::new();
    let mut hear = |host: &mut Host, in_use: usize| {
        pool.alloc_many(in_use - held.len(), &mut held);
        assert_eq!(held.len(), in_use);
        host.send(&peer.segment(Flags::ACK));
        host.stack.pressure()
    };
    // The device's, then half of what is left, then most of it.
    assert_eq!(hear(&mut host, BUFFERS / 2), Pressure::None);
    assert_eq!(hear(&mut host, BUFFERS * 3 / 4), Pressure::None);
    assert_eq!(host.stack.counters().pressure_rises, 0);
    drop(posted);
    assert_eq!(hear(&mut host, BUFFERS * 3 / 4), Pressure::High);
    let posted = host.depot.posted(BUFFERS as u32 / 2);
    assert_eq!(hear(&mut host, BUFFERS * 3 / 4), Pressure::None);
    assert_eq!(hear(&mut host, BUFFERS * 29 / 32), Pressure::High);
    drop((held, pool, posted));
    peer.expect_unharmed(&mut host);
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// The last buffers are not for peers whose windows have shrunk to less than a segment: what cannot leave would keep them.
/// Their writers stand before nobody who waits for memory, their windows are asked for, and they go on when those open, or
/// when memory is there.
#[test]
fn who_could_not_send_keeps_no_buffer_from_who_could() {
    let mut host = Host::new(Config::default(), crate::support::own_address(), BUFFERS);
    let mut talker = open(&mut host, 0);
    let mut silent: Vec<Peer> = (1..400).map(|i| open(&mut host, i)).collect();
    for peer in &mut silent {
        // Wide once, in units of eight bytes; now 800.
        peer.window = 100;
        host.send(&peer.segment(Flags::ACK));
    }
    let critical = BUFFERS as usize * 30 / 32 + 16;
    let hoard: Vec<_> = core::iter::from_fn(|| host.stack.pool().alloc())
        .take(critical)
        .collect();
    let token = |i: usize| janus_tcp::Token(1_000 + i as u32);
    for (i, peer) in silent.iter().enumerate() {
        let written = host.stack.write(host.now, peer.conn, &[9; 4_000]);
        assert_eq!(written, Err(Error::WouldBlock), "peer {i}");
        host.stack.wait_write(host.now, peer.conn, Some(token(i)));
    }
    assert_eq!(host.stack.pressure(), Pressure::Critical);
    assert_eq!(host.stack.segments_in_use(), 0);
    // One only asks whether it may write.
    let mut asker = open(&mut host, 500);
    asker.window = 100;
    host.send(&asker.segment(Flags::ACK));
    host.stack
        .wait_write(host.now, asker.conn, Some(token(500)));
    assert_eq!(host.stack.status(asker.conn).map(|s| s.writable), Ok(false));
    // What fits their windows is another matter, and so is who has a wide one. Nor does more join what fits.
    let write = |host: &mut Host| host.stack.write(host.now, silent[7].conn, &[9; 500]);
    assert_eq!(write(&mut host), Ok(500));
    assert_eq!(write(&mut host), Ok(300));
    assert_eq!(write(&mut host), Err(Error::WouldBlock));
    assert_eq!(silent[7].listen(&mut host, true).len(), 1);
    assert_eq!(silent[7].got.len(), 800);
    assert_eq!(host.stack.segments_in_use(), 0);
    talker.expect_unharmed(&mut host);
    // Nobody asks in vain for them, but their peers are asked.
    assert_eq!(host.stack.pop_ready(), None);
    let mut asked = HashMap::new();
    let until = host.now + Duration::from_secs(4);
    while let Some(next) = host.stack.next_deadline().filter(|at| *at < until) {
        // Turn by turn: what is left has buffers for one call's probes, not for all.
        host.now = host.now.max(next);
        host.stack.advance(host.now);
        for (port, seen) in collect(&mut host) {
            *asked.entry(port).or_insert(0) += seen.len();
        }
    }
    assert!(
        silent.iter().all(|peer| asked.contains_key(&peer.at.1)),
        "{asked:?}"
    );
    assert!(asked.values().all(|times| *times < 10), "{asked:?}");
    // A window opens: its writer is told, and writes.
    silent[3].window = 1_000;
    host.send(&silent[3].segment(Flags::ACK));
    assert_eq!(host.stack.pop_ready(), Some(token(3)));
    assert_eq!(host.stack.pop_ready(), None);
    let written = host.stack.write(host.now, silent[3].conn, &[9; 4_000]);
    assert_eq!(written, Ok(1_400));
    assert_eq!(silent[3].listen(&mut host, true).len(), 1);
    // One that was shut altogether opens when memory is there again: it is told at once all the same.
    silent[5].window = 0;
    host.send(&silent[5].segment(Flags::ACK));
    drop(hoard);
    silent[5].window = 1_000;
    host.send(&silent[5].segment(Flags::ACK));
    assert_eq!(host.stack.pressure(), Pressure::None);
    assert_eq!(host.stack.pop_ready(), Some(token(5)));
    // So are the others in time, whatever their windows.
    host.wait(Duration::from_secs(60));
    let mut told: Vec<_> = core::iter::from_fn(|| host.stack.pop_ready()).collect();
    told.sort_unstable_by_key(|token| token.0);
    let others = (0..silent.len()).chain([500]);
    let others = others.filter(|i| ![3, 5].contains(i)).map(token);
    assert!(told.into_iter().eq(others));
    silent.extend([talker, asker]);
    for peer in &silent {
        host.stack.abort(host.now, peer.conn);
    }
    host.end(&[]);
}
