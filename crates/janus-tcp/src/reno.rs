//! RFC 5681 and 6582: slow start, congestion avoidance, fast retransmit and NewReno recovery. Window
//! arithmetic only; which segments go out is decided in `output`.

use crate::cold::Cold;
use crate::hot::{Hot, hot_flag};

/// Initial window in segments (RFC 6928).
pub(crate) const INITIAL_SEGMENTS: u32 = 10;
/// Duplicate acknowledgements that mean a loss (RFC 5681 section 3.2).
pub(crate) const DUP_THRESHOLD: u8 = 3;

/// Windows are kept for idle connections in seven bits: 8 steps to an octave, so within an eighth; 61,440
/// segments at most.
pub(crate) fn encode_window(segments: u32) -> u8 {
    let n = segments.max(1);
    let octave = 31 - n.leading_zeros();
    let step = if octave >= 3 {
        (n >> (octave - 3)) & 7
    } else {
        (n << (3 - octave)) & 7
    };
    ((octave << 3) | step).min(127) as u8
}

/// The inverse of [`encode_window`], rounded down.
pub(crate) fn decode_window(code: u8) -> u32 {
    let (octave, step) = (u32::from(code >> 3), u32::from(code & 7));
    let eighths = 8 + step;
    if octave >= 3 {
        eighths << (octave - 3)
    } else {
        (eighths >> (3 - octave)).max(1)
    }
}

/// Loads the hot block with what the cold TCB remembers.
pub(crate) fn wake(hot: &mut Hot, cold: &Cold, restarted: bool) {
    let mss = u32::from(cold.payload_mss());
    let mut segments = cold.idle_window();
    if restarted {
        // RFC 5681 section 4.1: after an idle RTO the old window says nothing about the path.
        segments = segments.min(INITIAL_SEGMENTS);
    }
    hot.cwnd = segments * mss;
    let threshold = cold.idle_threshold();
    hot.ssthresh = threshold.map_or(u32::MAX, |segments| segments * mss);
    hot.cwnd_credit = 0;
}

/// Stores in the cold TCB what outlives the hot block.
pub(crate) fn sleep(hot: &Hot, cold: &mut Cold) {
    let mss = u32::from(cold.payload_mss());
    cold.set_idle_window(hot.cwnd / mss);
    cold.set_idle_threshold((hot.ssthresh != u32::MAX).then(|| hot.ssthresh / mss));
}

/// New data was acknowledged outside recovery (RFC 5681 section 3.1, byte counting by RFC 3465, L = 2).
#[inline]
pub(crate) fn on_ack(hot: &mut Hot, mss: u32, acked: u32, was_limited: bool) {
    if !was_limited {
        // RFC 7661: a window that is not used is not tested either, and must not grow.
        return;
    }
    if hot.cwnd < hot.ssthresh {
        hot.cwnd = hot.cwnd.saturating_add(acked.min(2 * mss));
        return;
    }
    hot.cwnd_credit += acked;
    if hot.cwnd_credit >= hot.cwnd {
        hot.cwnd_credit -= hot.cwnd;
        hot.cwnd = hot.cwnd.saturating_add(mss);
    }
}

/// Half of what is in flight, two segments at least (RFC 5681 equation 4).
fn halve(hot: &mut Hot, mss: u32) {
    hot.ssthresh = (hot.flight.bytes / 2).max(2 * mss);
}

/// The third duplicate acknowledgement (RFC 6582 section 3.2 step 2).
pub(crate) fn enter_recovery(hot: &mut Hot, mss: u32) {
    halve(hot, mss);
    hot.cwnd = hot.ssthresh + u32::from(DUP_THRESHOLD) * mss;
    hot.cwnd_credit = 0;
    hot.set(hot_flag::RECOVERY);
}

/// A partial acknowledgement in recovery (step 3): deflate by what left, add back one segment.
pub(crate) fn on_partial_ack(hot: &mut Hot, mss: u32, acked: u32) {
    hot.cwnd = hot.cwnd.saturating_sub(acked).max(mss);
    if acked >= mss {
        hot.cwnd += mss;
    }
}

/// Everything sent before the loss is acknowledged.
pub(crate) fn leave_recovery(hot: &mut Hot, mss: u32) {
    let in_flight = hot.flight.bytes;
    hot.cwnd = hot.ssthresh.min(in_flight.max(mss) + mss);
    hot.clear(hot_flag::RECOVERY);
}

/// The retransmission timer went off (RFC 5681 section 3.1, last rules).
pub(crate) fn on_timeout(hot: &mut Hot, mss: u32, first: bool) {
    if first {
        halve(hot, mss);
    }
    hot.cwnd = mss;
    hot.cwnd_credit = 0;
    hot.clear(hot_flag::RECOVERY);
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn slow_start_doubles_and_avoidance_adds_one_segment_per_window() {
        let mut hot = Hot {
            cwnd: 10_000,
            ssthresh: 40_000,
            ..Hot::default()
        };
        for _ in 0..10 {
            on_ack(&mut hot, 1_000, 1_000, true);
        }
        assert_eq!(hot.cwnd, 20_000);
        hot.ssthresh = 20_000;
        for _ in 0..20 {
            on_ack(&mut hot, 1_000, 1_000, true);
        }
        assert_eq!(hot.cwnd, 21_000);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut hot = Hot {
            cwnd: 10_000,
            ssthresh: u32::MAX,
            ..Hot::default()
        };
        on_ack(&mut hot, 1_000, 1_000, false);
        assert_eq!(hot.cwnd, 10_000);
    }
}
