//! Who speaks ECN with whom, and what outlives a hot block.

use core::time::Duration;

use janus_wire::SeqNum;

use super::*;
use crate::congestion::{self, Congestion};
use crate::conn::loss::window;
use crate::stack::Stack;
use crate::store::cold::Tcb;
use crate::store::hot::{Hot, Sender};
use crate::store::keys::ConnSlot;
use crate::store::rto;
use crate::testing::{Pair, slot};

/// What the two ends agree on, when `client` connects to `server`.
fn agree(client: Ecn, server: Ecn) -> (bool, bool) {
    let config = |ecn| Config {
        ecn,
        ..Config::default()
    };
    let mut pair = Pair::new(&config(client), 7);
    pair.b.stack.rules_mut().config_mut().ecn = server;
    let (a, b) = pair.open(40_000);
    let has = |stack: &Stack, conn: ConnSlot| stack.store().tcbs[conn].has(flag::ECN);
    (has(&pair.a.stack, slot(a)), has(&pair.b.stack, slot(b)))
}

/// RFC 3168 section 6.1.1.
#[test]
fn both_ends_must_want_it() {
    use Ecn::{Off, On, Passive};
    for (client, server, speak) in [
        (On, On, true),
        (On, Passive, true),
        (On, Off, false),
        (Passive, On, false),
        (Off, On, false),
        (Passive, Passive, false),
    ] {
        assert_eq!(
            agree(client, server),
            (speak, speak),
            "{client:?} to {server:?}"
        );
    }
}

/// RFC 3168 section 6.1.1.1.
#[test]
fn a_syn_sent_again_offers_nothing() {
    let mut config = Config {
        ecn: Ecn::On,
        ..Config::default()
    };
    assert_eq!(syn_flags(&config, 0), Flags(Flags::ECE.0 | Flags::CWR.0));
    assert_eq!(syn_flags(&config, 1), Flags(0));
    config.ecn = Ecn::Passive;
    assert_eq!(syn_flags(&config, 0), Flags(0));
}

/// RFC 3168 section 6.1.1: a peer that only reflects what it gets.
#[test]
fn both_flags_in_a_syn_ack_agree_to_nothing() {
    let config = Config {
        ecn: Ecn::On,
        ..Config::default()
    };
    for (flags, speak) in [
        (Flags::ECE.0, true),
        (Flags::ECE.0 | Flags::CWR.0, false),
        (Flags::CWR.0, false),
        (0, false),
    ] {
        let mut pair = Pair::new(&config, 3);
        let a = pair.connect(40_000);
        pair.deliver();
        for frame in pair.under_way_to_a() {
            // Behind IPv4 without options: TCP's flags.
            frame[33] = frame[33] & 0x3f | flags;
            let segment = &mut frame[20..];
            segment[16..18].fill(0);
            janus_wire::tcp::fill_checksum_v4(segment, crate::testing::B, crate::testing::A);
        }
        pair.run_for(Duration::from_millis(30));
        assert_eq!(pair.a.stack.is_connected(a), Ok(true));
        assert_eq!(
            pair.a.stack.store().tcbs[slot(a)].has(flag::ECN),
            speak,
            "flags {flags:#x}"
        );
    }
}

/// What one side owes the other survives idleness, beside everything else that its field holds.
#[test]
fn an_idle_connection_keeps_what_it_owes() {
    let mut tcb = Tcb {
        mss: 1_000,
        ..Tcb::default()
    };
    tcb.set(flag::ECN);
    assert!(!tcb.owes_ece() && tcb.idle_threshold().is_none());
    tcb.set_owes_ece(true);
    assert!(tcb.owes_ece() && tcb.idle_threshold().is_none());
    tcb.set_idle_threshold(Some(64));
    assert!(tcb.owes_ece());
    assert_eq!(tcb.idle_threshold(), Some(64));
    tcb.set_owes_ece(false);
    assert_eq!((tcb.owes_ece(), tcb.idle_threshold()), (false, Some(64)));

    rto::sample(&mut tcb, 100_000);
    let mut hot = Hot {
        congestion: Congestion::reno(10_000, 5_000).lowered(),
        ..Hot::default()
    };
    crate::store::window::sleep(&hot, &mut tcb);
    rto::keep_backoff(&mut tcb, 3);
    assert_eq!((rto::variation(&tcb), rto::kept_backoff(&tcb)), (50_000, 3));
    hot.congestion.take_cwr();
    crate::store::window::wake(
        &mut hot,
        &tcb,
        &Config::default(),
        congestion::CongestionControl::default(),
        0,
    );
    assert!(hot.congestion.owes_cwr());
}

fn marked(cwnd: u32) -> (Hot, Tcb) {
    let mut tcb = Tcb {
        mss: 1_000,
        snd_nxt: SeqNum(10_000),
        ..Tcb::default()
    };
    tcb.set(flag::ECN);
    let mut hot = Hot {
        conn: None,
        congestion: Congestion::reno(cwnd, u32::MAX),
        sender: Sender {
            snd_una: SeqNum(1_000),
            ..Sender::default()
        },
        ..Hot::default()
    };
    hot.sender.flight.bytes = 9_000;
    (hot, tcb)
}

/// RFC 3168 section 6.1.2: once for each window of data.
#[test]
fn a_mark_lowers_the_window_once_for_each_flight() {
    let (mut hot, mut tcb) = marked(10_000);
    assert!(window::on_ecn(&mut hot, &tcb, 1_000));
    assert_eq!(
        (
            hot.congestion.cwnd(),
            hot.congestion.ssthresh(),
            hot.congestion.owes_cwr()
        ),
        (5_000, 5_000, true)
    );
    // The rest of this flight says the same, and makes nothing grow.
    hot.sender.snd_una = SeqNum(10_000);
    assert!(!window::on_ecn(&mut hot, &tcb, 9_000));
    hot.congestion.limits();
    window::on_ack(&mut hot, &tcb, 9_000, 0);
    assert_eq!(hot.congestion.cwnd(), 5_000);
    // The next one speaks for itself.
    (tcb.snd_nxt, hot.sender.snd_una, hot.sender.flight.bytes) =
        (SeqNum(15_000), SeqNum(11_000), 4_000);
    assert!(window::on_ecn(&mut hot, &tcb, 1_000));
    assert_eq!(hot.congestion.cwnd(), 2_500);
}

/// The same section: a loss in a window that a mark has lowered does not lower it again, nor the other way round.
#[test]
fn a_mark_and_a_loss_in_one_flight_count_once() {
    let (mut hot, tcb) = marked(10_000);
    assert!(window::on_ecn(&mut hot, &tcb, 1_000));
    assert_eq!(window::on_loss(&mut hot, &tcb), 5_000);
    let (mut hot, tcb) = marked(10_000);
    window::on_loss(&mut hot, &tcb);
    hot.loss.recover = tcb.snd_nxt;
    assert!(!window::on_ecn(&mut hot, &tcb, 1_000));
    assert_eq!(hot.congestion.cwnd(), 10_000);
    assert!(
        hot.congestion.owes_cwr(),
        "the window falls, and the peer is told"
    );
}

/// Three gigabytes without a mark or a loss: what was noted at the last must not seem to lie ahead.
#[test]
fn old_ends_follow_the_stream_round() {
    let (mut hot, mut tcb) = marked(10_000);
    hot.sender.flight.bytes = 1_000;
    for step in 0..3_000u32 {
        hot.sender.snd_una = SeqNum(step.wrapping_mul(1_000_000).wrapping_add(1_000));
        tcb.snd_nxt = hot.sender.snd_una + 1_000u32;
        window::on_ack(&mut hot, &tcb, 1_000, 0);
    }
    hot.sender.snd_una += 1_000u32;
    assert!(window::on_ecn(&mut hot, &tcb, 1_000));
}
