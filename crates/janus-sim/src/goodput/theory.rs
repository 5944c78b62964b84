//! Theoretical goodput of a long transfer. Losses by chance: Padhye, Firoiu, Towsley and Kurose for Reno (Mathis's
//! square root with timeouts), RFC 9438's response function for CUBIC. Losses from a full buffer: the mean of the
//! sawtooth that they make. The lesser of the two counts, and the link's rate bounds both.
//! What never lives here: a measurement.

use super::{Cell, PACKET, PAYLOAD, RATE};
use janus_tcp::CongestionControl;

/// RFC 9438: C and beta.
const C: f64 = 0.4;
const BETA_CUBIC: f64 = 0.7;
const BETA_RENO: f64 = 0.5;
/// Least retransmission timeout above the round trip, in seconds.
const LEAST_TIMEOUT: f64 = 0.2;
/// Packets that a Reno-like window grows by in a round trip: CUBIC's estimate of Reno below the window that was lost.
const ALPHA_CUBIC: f64 = 3.0 * (1.0 - BETA_CUBIC) / (1.0 + BETA_CUBIC);

/// Goodput that theory expects of a cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// Mbit/s of payload.
    pub goodput: f64,
}

impl Prediction {
    /// For one of the algorithms.
    pub fn of(cell: Cell, algorithm: CongestionControl) -> Prediction {
        let rtt = f64::from(cell.rtt_ms) / 1_000.0;
        let loss = f64::from(cell.loss_ppm) / 1e6;
        let link = RATE as f64 / 1e6 * f64::from(PAYLOAD) / f64::from(PACKET);
        let (path, buffer) = cell.packets();
        let (by_chance, by_buffer) = match algorithm {
            CongestionControl::NewReno => (
                reno_rate(loss, rtt),
                linear_sawtooth(path, buffer, BETA_RENO, 1.0).0,
            ),
            CongestionControl::Cubic => (cubic_rate(loss, rtt), cubic_sawtooth(path, buffer, rtt)),
        };
        let by_chance = by_chance * f64::from(PAYLOAD) * 8.0 / 1e6 * (1.0 - loss);
        Prediction {
            goodput: by_chance.min(link * by_buffer).min(link * (1.0 - loss)),
        }
    }
}

/// Packets a second (Padhye et al., equation 30, with one acknowledgement's worth of growth for each packet: we count
/// bytes, so that delayed acknowledgements do not slow growth).
fn reno_rate(loss: f64, rtt: f64) -> f64 {
    if loss == 0.0 {
        return f64::INFINITY;
    }
    let timeout = rtt + LEAST_TIMEOUT;
    let waits =
        timeout * (3.0 * (3.0 * loss / 8.0).sqrt()).min(1.0) * loss * (1.0 + 32.0 * loss * loss);
    1.0 / (rtt * (2.0 * loss / 3.0).sqrt() + waits)
}

/// Packets a second (RFC 9438 section 5.1, equation for AVG_W_cubic; section 4.3: never less than Reno would).
fn cubic_rate(loss: f64, rtt: f64) -> f64 {
    if loss == 0.0 {
        return f64::INFINITY;
    }
    let curve =
        (C * (3.0 + BETA_CUBIC) / (4.0 * (1.0 - BETA_CUBIC))).powf(0.25) * (rtt / loss).powf(0.75);
    (curve / rtt).max(reno_rate(loss, rtt))
}

/// The part of the link's rate that a window gets which grows by `alpha` packets in a round trip and falls to `beta` of
/// itself when path and buffer are full; and how many round trips that takes, counted without queueing.
fn linear_sawtooth(path: f64, buffer: f64, beta: f64, alpha: f64) -> (f64, f64) {
    let top = path + buffer;
    let low = top * beta;
    // Below the path's own content the link idles; above it, the link is busy and the round trip grows.
    let idle_until = path.max(low);
    let below = (idle_until - low) / alpha;
    let sent_below = (idle_until * idle_until - low * low) / 2.0 / alpha / path;
    let above = (top * top - idle_until * idle_until) / 2.0 / alpha / path;
    ((sent_below + above) / (below + above), below + above)
}

/// Like [`linear_sawtooth`], but for CUBIC: along the curve, or Reno-friendly where that is back sooner.
fn cubic_sawtooth(path: f64, buffer: f64, rtt: f64) -> f64 {
    let top = path + buffer;
    let k = (top * (1.0 - BETA_CUBIC) / C).cbrt();
    let (linear, round_trips) = linear_sawtooth(path, buffer, BETA_CUBIC, ALPHA_CUBIC);
    if round_trips * rtt < k {
        return linear;
    }
    // (top - window) falls from 0.3 top to nothing as a cube. The link idles while it is more than the buffer.
    let fall = top * (1.0 - BETA_CUBIC);
    let busy = (buffer / fall).min(1.0).cbrt();
    let missing = fall * (1.0 - busy.powi(4)) / 4.0 - buffer * (1.0 - busy);
    1.0 - missing.max(0.0) / path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(loss_ppm: u32, rtt_ms: u32, buffer_percent: u32) -> Cell {
        Cell {
            loss_ppm,
            rtt_ms,
            buffer_percent,
        }
    }

    /// Mathis et al.: MSS / RTT * sqrt(3/2) / sqrt(p), when timeouts are rare.
    #[test]
    fn reno_is_the_square_root_law_for_rare_losses() {
        let mathis = 1.0 / 0.1 * (1.5f64 / 1e-4).sqrt();
        assert!((reno_rate(1e-4, 0.1) / mathis - 1.0).abs() < 0.02);
    }

    /// RFC 9438 table 1: at RTT 0.1 s and p = 1e-6, a mean window of 59,200 for the plain curve and 1,200 for Reno... at
    /// p = 1e-4, 187 against Reno's 120.
    #[test]
    fn cubic_is_the_table_of_its_rfc() {
        let window = cubic_rate(1e-4, 0.1) * 0.1;
        assert!((window - 187.0).abs() < 2.0, "{window}");
        let window = cubic_rate(1e-2, 0.1) * 0.1;
        assert!(
            (window - reno_rate(1e-2, 0.1) * 0.1).abs() < 1e-9,
            "{window}"
        );
    }

    #[test]
    fn a_buffer_of_a_path_keeps_reno_busy() {
        assert!((linear_sawtooth(1_000.0, 1_000.0, 0.5, 1.0).0 - 1.0).abs() < 1e-9);
        // No buffer at all: three quarters.
        assert!((linear_sawtooth(1_000.0, 0.0, 0.5, 1.0).0 - 0.75).abs() < 1e-9);
        assert!(cubic_sawtooth(10_000.0, 5_000.0, 0.2) > 0.999);
        let none = cubic_sawtooth(10_000.0, 0.0, 0.2);
        assert!((none - (1.0 - 0.3 / 4.0)).abs() < 1e-9, "{none}");
    }

    #[test]
    fn no_prediction_is_more_than_the_link() {
        for cell in Cell::all() {
            for algorithm in super::super::ALGORITHMS {
                let goodput = Prediction::of(cell, algorithm).goodput;
                assert!(goodput > 0.0 && goodput <= 96.54, "{cell:?}: {goodput}");
            }
        }
        assert!(Prediction::of(cell(0, 50, 100), CongestionControl::NewReno).goodput > 96.5);
    }
}
