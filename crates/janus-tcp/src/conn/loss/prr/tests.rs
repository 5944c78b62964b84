//! RFC 6937's arithmetic, acknowledgement by acknowledgement, with segments of 1,000 bytes.

use super::*;
use crate::store::hot::{Hot, Sender};

const MSS: u32 = 1_000;

/// A window of `flight` segments of which the first is lost and three are SACKed.
fn begin(flight: u32, ssthresh: u32) -> (Recovery, Hot) {
    let mut rec = Recovery {
        sacked: 3,
        sacked_bytes: 3 * MSS,
        ..Recovery::default()
    };
    let mut hot = Hot {
        sender: Sender {
            pipe: (flight - 4) * MSS,
            ..Sender::default()
        },
        congestion: Congestion::reno(0, ssthresh * MSS),
        ..Hot::default()
    };
    rec.prr_begin(flight * MSS, MSS);
    rec.prr_on_ack(&mut hot.congestion, hot.sender.pipe, MSS, MSS, false);
    (rec, hot)
}

/// Sends all that the window lets out; gives how many segments that was.
fn send(rec: &mut Recovery, hot: &mut Hot) -> u32 {
    let mut sent = 0;
    while hot.sender.pipe + MSS <= hot.congestion.cwnd() {
        hot.sender.pipe += MSS;
        rec.prr_out += MSS;
        sent += 1;
    }
    sent
}

/// One SACK of one segment.
fn sack(rec: &mut Recovery, hot: &mut Hot) -> u32 {
    hot.sender.pipe -= MSS;
    rec.prr_on_ack(&mut hot.congestion, hot.sender.pipe, MSS, MSS, false);
    send(rec, hot)
}

#[test]
fn one_loss_halves_the_rate_over_a_round_trip() {
    // RFC 6937 section 3.1's first example: 20 segments, ssthresh 10.
    let (mut rec, mut hot) = begin(20, 10);
    assert_eq!(send(&mut rec, &mut hot), 1, "the repair goes out at once");
    let mut sent = 0;
    for _ in 0..16 {
        sent += sack(&mut rec, &mut hot);
    }
    // Of what was delivered in recovery half has gone out, the repair included.
    assert_eq!(sent + 1, (17u32 * 10).div_ceil(18));
}

#[test]
fn the_flight_is_without_what_was_sacked_before() {
    let (rec, _) = begin(20, 10);
    assert_eq!(rec.prr_flight, 18 * MSS);
}

#[test]
fn after_a_burst_of_losses_no_more_goes_out_than_comes_in() {
    // Of 20 segments 16 are lost, three SACKed: the pipe is far below ssthresh.
    let (mut rec, mut hot) = begin(5, 10);
    assert_eq!(send(&mut rec, &mut hot), 1);
    for _ in 0..3 {
        rec.prr_on_ack(&mut hot.congestion, hot.sender.pipe, MSS, MSS, false);
        assert_eq!(send(&mut rec, &mut hot), 1);
    }
    // Packet conservation (RFC 6937 section 3, PRR-CRB).
    assert_eq!(rec.prr_out, rec.prr_delivered);
}

#[test]
fn while_repairs_arrive_and_nothing_more_is_lost_it_grows_by_a_segment_more() {
    let (mut rec, mut hot) = begin(20, 10);
    send(&mut rec, &mut hot);
    hot.sender.pipe = 2 * MSS;
    rec.prr_out = rec.prr_delivered;
    rec.prr_on_ack(&mut hot.congestion, hot.sender.pipe, MSS, MSS, true);
    assert_eq!(send(&mut rec, &mut hot), 2, "RFC 9937: safeACK");
    // But never beyond ssthresh.
    hot.sender.pipe = 9 * MSS;
    rec.prr_on_ack(&mut hot.congestion, hot.sender.pipe, MSS, 5 * MSS, true);
    assert_eq!(send(&mut rec, &mut hot), 1);
}

#[test]
fn what_delivers_nothing_lets_out_nothing() {
    let (mut rec, mut hot) = begin(20, 10);
    send(&mut rec, &mut hot);
    let cwnd = hot.congestion.cwnd();
    for _ in 0..100 {
        rec.prr_on_ack(&mut hot.congestion, hot.sender.pipe, MSS, 0, true);
    }
    assert_eq!(hot.congestion.cwnd(), cwnd);
}

#[test]
fn numbers_of_any_size_do_not_overflow() {
    let mut rec = Recovery::default();
    let mut hot = Hot {
        sender: Sender {
            pipe: u32::MAX,
            ..Sender::default()
        },
        congestion: Congestion::reno(0, u32::MAX - 1),
        ..Hot::default()
    };
    rec.prr_begin(0, 0);
    for _ in 0..4 {
        rec.prr_on_ack(
            &mut hot.congestion,
            hot.sender.pipe,
            u32::from(u16::MAX),
            u32::MAX,
            true,
        );
    }
    assert_eq!(hot.congestion.cwnd(), u32::MAX);
}
