//! The windows' common rules.

use janus_wire::SeqNum;

use super::*;
use crate::conn::loss::window::{on_ack, on_loss, on_sent, on_start, on_timeout};
use crate::rules::config::Config;
use crate::store::cold::Tcb;
use crate::store::hot::Hot;
use crate::store::window::wake;

const MSS: u32 = 1_000;

impl Congestion {
    /// A window of `cwnd` bytes that NewReno governs.
    pub(crate) fn reno(cwnd: u32, ssthresh: u32) -> Congestion {
        Congestion {
            cwnd,
            ssthresh,
            algorithm: CongestionControl::NewReno,
            ..Congestion::default()
        }
    }

    /// The window was lowered, and the peer has still to be told.
    pub(crate) fn lowered(self) -> Congestion {
        Congestion {
            cwr_due: true,
            ..self
        }
    }

    /// The window was what held the sender back.
    pub(crate) fn limits(&mut self) {
        self.cwnd_limited = true;
    }

    /// The state of a connection that has sent and lost, no field of which is as it is at first.
    pub(crate) fn littered() -> Congestion {
        Congestion {
            cwnd: 4,
            ssthresh: 5,
            cwnd_credit: 7,
            algorithm: CongestionControl::NewReno,
            cwnd_limited: true,
            slow_start_limit: 8,
            acked_ms: 9,
            used_peak: 10,
            used_until: SeqNum(11),
            growth: Growth::Later(Cubic::default()),
            cwr_end: SeqNum(12),
            cwr_due: true,
        }
    }

    /// Fields by name, all of them.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        macro_rules! fields {
            ($($field:ident)*) => {{
                let Congestion { $($field),* } = self;
                vec![$((stringify!($field), format!("{:?}", $field))),*]
            }};
        }
        fields!(cwnd ssthresh cwnd_credit acked_ms used_peak used_until growth cwr_end cwr_due cwnd_limited slow_start_limit algorithm)
    }
}

fn cold() -> Tcb {
    Tcb {
        mss: MSS as u16,
        srtt: 100_000,
        ..Tcb::default()
    }
}

fn reno(cwnd: u32, ssthresh: u32) -> Hot {
    Hot {
        congestion: Congestion {
            cwnd,
            ssthresh,
            cwnd_limited: true,
            algorithm: CongestionControl::NewReno,
            ..Congestion::default()
        },
        ..Hot::default()
    }
}

/// So many bytes more are acknowledged.
fn ack(hot: &mut Hot, cold: &Tcb, bytes: u32) {
    hot.sender.snd_una += bytes;
    on_ack(hot, cold, bytes, 0);
}

#[test]
fn a_window_survives_its_code_within_an_eighth() {
    for n in (1..61_440u32).step_by(7) {
        let back = decode_window(encode_window(n));
        assert!(back <= n && back * 9 >= n * 8, "{n} came back as {back}");
    }
    assert_eq!(decode_window(encode_window(10)), 10);
    assert_eq!(decode_window(encode_window(1)), 1);
    assert_eq!(decode_window(encode_window(3)), 3);
}

/// RFC 5681 section 3.1.
#[test]
fn slow_start_doubles_and_avoidance_adds_one_segment_per_window() {
    let mut hot = reno(10_000, 20_000);
    for _ in 0..10 {
        ack(&mut hot, &cold(), MSS);
    }
    assert_eq!(hot.congestion.cwnd, 20_000);
    for _ in 0..20 {
        ack(&mut hot, &cold(), MSS);
    }
    assert_eq!(hot.congestion.cwnd, 21_000);
}

/// RFC 3465: bytes count, not acknowledgements, so that a receiver gains nothing by dividing them.
#[test]
fn many_small_acknowledgements_count_what_they_acknowledge() {
    let mut hot = reno(10_000, u32::MAX);
    for _ in 0..1_000 {
        ack(&mut hot, &cold(), 1);
    }
    assert_eq!(hot.congestion.cwnd, 11_000);
}

#[test]
fn one_acknowledgement_widens_the_window_as_far_as_it_may() {
    for (limit, after) in [(0, 20_000), (2, 12_000), (8, 18_000)] {
        let mut hot = reno(10_000, u32::MAX);
        hot.congestion.slow_start_limit = limit;
        ack(&mut hot, &cold(), 10_000);
        assert_eq!(hot.congestion.cwnd, after, "limit {limit}");
    }
}

/// RFC 3465 section 2.3: what filled the hole after a timeout may acknowledge much that left the network before.
#[test]
fn after_a_timeout_an_acknowledgement_counts_for_one_segment() {
    let mut hot = reno(1_000, 50_000);
    hot.loss.recover = SeqNum(20_000);
    ack(&mut hot, &cold(), 20_000);
    assert_eq!(hot.congestion.cwnd, 2_000);
    // The next one was sent after the timeout.
    ack(&mut hot, &cold(), 2_000);
    assert_eq!(hot.congestion.cwnd, 4_000);
}

/// RFC 7661: what is not used is not known to be there.
#[test]
fn an_unused_window_does_not_grow() {
    let mut hot = reno(10_000, u32::MAX);
    hot.sender.pipe = 4_000;
    on_sent(&mut hot, &cold());
    ack(&mut hot, &cold(), MSS);
    assert_eq!(hot.congestion.cwnd, 10_000, "less than half was used");
    let mut hot = reno(10_000, 10_000);
    hot.sender.pipe = 8_000;
    on_sent(&mut hot, &cold());
    for _ in 0..20 {
        ack(&mut hot, &cold(), MSS);
    }
    assert_eq!(hot.congestion.cwnd, 10_000, "less than all was used");
}

/// Several acknowledgements that come in one batch each count, although nothing is sent between them.
#[test]
fn a_full_window_stays_noted_until_its_data_is_acknowledged() {
    let mut hot = reno(10_000, u32::MAX);
    hot.congestion.cwnd_limited = false;
    let mut cold = cold();
    for sent in 1..=10 {
        hot.sender.pipe = sent * MSS;
        cold.snd_nxt += MSS;
        on_sent(&mut hot, &cold);
    }
    for _ in 0..10 {
        hot.sender.pipe -= MSS;
        ack(&mut hot, &cold, MSS);
    }
    assert_eq!(hot.congestion.cwnd, 20_000);
    // A little more is sent, then: the next round is not limited.
    hot.sender.pipe = MSS;
    cold.snd_nxt += MSS;
    on_sent(&mut hot, &cold);
    ack(&mut hot, &cold, MSS);
    assert_eq!(hot.congestion.cwnd, 20_000);
}

/// RFC 5681 equation 4, and section 3.2 step 2: limited transmit is not counted.
#[test]
fn a_loss_halves_what_was_in_flight() {
    let mut hot = reno(10_000, u32::MAX);
    hot.sender.flight.bytes = 12_000;
    assert_eq!(on_loss(&mut hot, &cold()), 5_000);
    hot.sender.flight.bytes = 6_000;
    assert_eq!(on_loss(&mut hot, &cold()), 3_000);
    hot.sender.flight.bytes = 1_000;
    assert_eq!(on_loss(&mut hot, &cold()), 2_000);
}

/// RFC 5681 section 3.1: the threshold is not lowered again for the same segment, the window is one segment.
#[test]
fn a_timeout_starts_from_one_segment() {
    let mut hot = reno(10_000, u32::MAX);
    hot.sender.flight.bytes = 10_000;
    on_timeout(&mut hot, &cold(), true);
    assert_eq!((hot.congestion.cwnd, hot.congestion.ssthresh), (MSS, 5_000));
    on_timeout(&mut hot, &cold(), false);
    assert_eq!((hot.congestion.cwnd, hot.congestion.ssthresh), (MSS, 5_000));
}

/// RFC 5681 section 4.1, and what RFC 2861 says of the threshold.
#[test]
fn an_idle_window_is_found_again_by_slow_start() {
    let config = Config::default();
    let mut idle = cold();
    idle.set_idle_window(64);
    idle.set_idle_threshold(Some(32));
    let mut hot = Hot::default();
    wake(&mut hot, &idle, &config, config.congestion, 150);
    assert_eq!(
        (hot.congestion.cwnd, hot.congestion.ssthresh),
        (64_000, 32_000),
        "shorter than an RTO"
    );
    wake(&mut hot, &idle, &config, config.congestion, 1_000);
    assert_eq!(
        (hot.congestion.cwnd, hot.congestion.ssthresh),
        (10_000, 48_000)
    );
    // The same without a release of the hot block: unread data may hold it.
    let mut hot = reno(64_000, 32_000);
    on_start(&mut hot, &cold(), &config, 150);
    assert_eq!(
        (hot.congestion.cwnd, hot.congestion.ssthresh),
        (64_000, 32_000)
    );
    on_start(&mut hot, &cold(), &config, 1_150);
    assert_eq!(
        (hot.congestion.cwnd, hot.congestion.ssthresh),
        (10_000, 48_000)
    );
    // A small window is not widened.
    let mut hot = reno(2_000, 32_000);
    on_start(&mut hot, &cold(), &config, 5_000);
    assert_eq!(
        (hot.congestion.cwnd, hot.congestion.ssthresh),
        (2_000, 32_000)
    );
}

/// RFC 9406: a growing round trip slows slow start, and then ends it at the window that is there.
#[test]
fn a_growing_round_trip_ends_the_first_slow_start() {
    let mut hot = reno(100_000, u32::MAX);
    hot.congestion.growth = Growth::First(HyStart::default());
    let rounds = |hot: &mut Hot, rtt_us, n| {
        for _ in 0..n {
            (0..10).for_each(|ack| on_rtt(&mut hot.congestion, rtt_us, ack == 9));
        }
    };
    rounds(&mut hot, 40_000, 2);
    ack(&mut hot, &cold(), 8_000);
    assert_eq!(hot.congestion.cwnd, 108_000);
    rounds(&mut hot, 50_000, 1);
    ack(&mut hot, &cold(), 8_000);
    assert_eq!(hot.congestion.cwnd, 110_000, "a quarter");
    rounds(&mut hot, 60_000, 4);
    assert_eq!(
        (hot.congestion.cwnd, hot.congestion.ssthresh),
        (110_000, 110_000)
    );
}

/// RFC 9406 section 4.2: a loss ends it all.
#[test]
fn after_a_loss_slow_start_is_the_plain_one() {
    let mut hot = reno(100_000, u32::MAX);
    hot.congestion.growth = Growth::First(HyStart::default());
    for rtt_us in [40_000, 60_000] {
        (0..10).for_each(|ack| on_rtt(&mut hot.congestion, rtt_us, ack == 9));
    }
    hot.sender.flight.bytes = 100_000;
    on_timeout(&mut hot, &cold(), true);
    ack(&mut hot, &cold(), 1_000);
    assert_eq!(
        (hot.congestion.cwnd, hot.congestion.ssthresh),
        (2_000, 50_000)
    );
}
