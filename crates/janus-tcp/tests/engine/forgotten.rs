//! Connections that nobody would ever look at again: peers that fall silent at the worst moment. A day later nothing is
//! left, and others are served all the time.

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, family};
use janus_tcp::{Config, Error, Pressure, Token};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

fn assert_nothing_left(host: &mut Host) {
    assert_eq!(host.stack.connections(), 0, "connections are left");
    assert_eq!(host.stack.in_time_wait(), 0, "TIME-WAIT records are left");
    assert_eq!(host.stack.hot_in_use(), 0, "hot blocks are left");
    assert_eq!(host.held(), 0, "packet buffers are left");
}

/// The server has closed, and the client acknowledges its FIN with a FIN or data whose number is one too high. What lies
/// beyond the gap cannot be read by anybody, so the connection is reset (as Linux: tcp_rcv_state_process).
#[test]
fn an_orphan_is_not_kept_by_what_lies_beyond_a_gap() {
    family::over_both(|| {
        for (acknowledges, gap, len) in [
            (true, 1, 0),
            (true, 1, 5),
            (true, 0, 5),
            (true, 3_000, 0),
            (false, 1, 0),
            (false, 700, 9),
        ] {
            let mut host = Host::plain();
            let mut peer = Peer::open(&mut host, 4_000);
            host.stack.close(host.now, peer.conn);
            peer.listen(&mut host, false);
            let mut fin = peer.segment(Flags::FIN | Flags::ACK);
            fin.seq = peer.snd + gap;
            fin.payload = vec![7; len];
            if !acknowledges {
                fin.ack = peer.rcv - 1;
            }
            let answers = host.ask(&fin);
            let case = format!("acknowledges {acknowledges}, gap {gap}, {len} bytes");
            assert!(answers.iter().any(|s| s.has(Flags::RST)), "{case}");
            host.a_silent_day();
            assert_nothing_left(&mut host);
        }
    });
}

/// A FIN in its place, with or without what came before, ends an orphan in good order.
#[test]
fn an_orphan_takes_a_fin_in_its_place() {
    family::over_both(|| {
        for acknowledges in [true, false] {
            let mut host = Host::plain();
            let mut peer = Peer::open(&mut host, 4_000);
            host.stack.close(host.now, peer.conn);
            peer.listen(&mut host, false);
            let mut fin = peer.segment(Flags::FIN | Flags::ACK);
            if !acknowledges {
                fin.ack = peer.rcv - 1;
            }
            let answers = host.ask(&fin);
            assert!(!answers.iter().any(|s| s.has(Flags::RST)), "{answers:?}");
            assert_eq!(answers[0].header.ack, peer.snd + 1);
            host.a_silent_day();
            assert_nothing_left(&mut host);
        }
    });
}

/// As many clients as a stack lets be orphans end so; those who come afterwards get all that was written for them.
#[test]
fn orphans_with_early_fins_leave_room_for_honest_ones() {
    let orphans = 64;
    let config = Config {
        max_orphans: orphans,
        ..Config::default()
    };
    let mut host = Host::with(config);
    for i in 0..2 * orphans {
        let mut peer = Peer::open(&mut host, 4_000 + i as u16);
        host.stack.close(host.now, peer.conn);
        peer.listen(&mut host, false);
        let mut fin = peer.segment(Flags::FIN | Flags::ACK);
        fin.seq = peer.snd + 1;
        host.ask(&fin);
        host.wait(Duration::from_millis(20));
    }
    let mut honest = Peer::open(&mut host, 9_000);
    let written = host.stack.write(host.now, honest.conn, b"farewell");
    assert_eq!(written, Ok(8));
    host.stack.close(host.now, honest.conn);
    let seen = honest.listen(&mut host, true);
    assert!(!seen.iter().any(|s| s.has(Flags::RST)), "{seen:?}");
    assert_eq!(honest.got, b"farewell");
    host.a_silent_day();
    assert_nothing_left(&mut host);
}

/// Peers whose windows were never larger than a piece of a segment are written to and left, in a depot that is soon exhausted: a segment
/// that is to be cut finds no packet buffer for the rest.
fn written_to_and_left(buffers: u32, peers: u32, silent: bool) -> Host {
    let mut host = Host::new(Config::default(), crate::support::own_address(), buffers);
    let mut clients = Vec::new();
    for i in 0..peers {
        let mut syn = Craft::syn((PEER, 4_000 + i as u16));
        syn.seq = SeqNum(i * 7_919);
        (syn.options.window_scale, syn.window) = (None, 100);
        clients.push(Peer::open_with(&mut host, &syn));
    }
    for peer in &clients {
        let _may_be_put_off = host.stack.write(host.now, peer.conn, &[9; 2_000]);
    }
    for peer in &mut clients {
        host.stack.close(host.now, peer.conn);
        peer.listen(&mut host, !silent);
    }
    host
}

#[test]
fn segments_that_cannot_be_cut_are_not_kept_for_ever() {
    family::over_both(|| {
        for (buffers, peers) in [(1_024, 600), (256, 200), (64, 100)] {
            let mut host = written_to_and_left(buffers, peers, true);
            host.audit();
            host.a_silent_day();
            assert_nothing_left(&mut host);
            let mut newcomer = Peer::open(&mut host, 3_000);
            assert_eq!(host.stack.pressure(), Pressure::None);
            newcomer.expect_unharmed(&mut host);
        }
    });
}

/// A writer waits for room, and the connection's other half says that no more will be written.
#[test]
fn a_writer_that_waits_is_told_of_the_shutdown() {
    family::over_both(|| {
        let mut host = Host::plain();
        let mut peer = Peer::open(&mut host, 4_000);
        while host.stack.write(host.now, peer.conn, &[9; 9_000]).is_ok() {}
        let token = Token(7);
        host.stack.wait_write(host.now, peer.conn, Some(token));
        assert_eq!(host.stack.pop_ready(), None);
        host.stack
            .shutdown_write(host.now, peer.conn)
            .expect("open");
        assert_eq!(host.stack.pop_ready(), Some(token));
        let written = host.stack.write(host.now, peer.conn, &[9]);
        assert_eq!(written, Err(Error::BrokenPipe));
        while !peer.listen(&mut host, true).is_empty() {}
        host.end(&[peer.conn]);
    });
}
