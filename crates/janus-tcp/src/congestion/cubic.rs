//! RFC 9438, CUBIC: congestion avoidance along a cubic curve of the time since the last loss. The curve is flat
//! around the window at which that loss came, steep far from it, and never below what Reno would do. Windows are in
//! bytes, times in milliseconds, all in whole numbers. What never lives here: slow start, and what happens in
//! recovery.
//!
//! **An idle connection keeps none of this**, only its window and threshold. An epoch's clock must not run while the
//! window is not used (section 5.8), so what an idle connection could keep is the curve without its clock. Without
//! that, the next epoch begins as the one after the first slow start does (section 4.10): on the plateau, at the
//! window that is known to have worked, and from there never slower than Reno.

use core::num::NonZeroU32;

use crate::coded::coded;
use crate::congestion::Congestion;

/// C = 0.4 segments per cubic second (section 5.1), as a fraction.
const C: (u64, u64) = (2, 5);
/// The window after a loss: beta = 0.7 (section 4.6), as a fraction.
const BETA: (u64, u64) = (7, 10);
/// 3 (1 - beta) / (1 + beta), what W_est grows by for each window, in segments, below `cwnd_prior` (section 4.3).
const ALPHA: (u64, u64) = (9, 17);
/// How far the curve is followed from its middle, in milliseconds (nearly nine minutes): beyond, with any segment
/// that is not tiny, it has left all the windows there are.
const REACH_MS: i64 = 1 << 19;

/// State of an epoch of congestion avoidance. Beginning and clock: section 4.2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cubic {
    /// The window at the middle of the curve; 0 = not known.
    w_max: u32,
    /// The window at the last reduction.
    cwnd_prior: u32,
    /// Reno's window, as estimated; 0 = no epoch has begun.
    w_est: u32,
    /// Bytes acknowledged towards the next segment of `w_est`.
    est_credit: u32,
    /// From the epoch's beginning to the middle of the curve.
    k_ms: u32,
    /// One more than the milliseconds that the epoch has lasted, without the times in which the window was not used:
    /// never zero, so that [`crate::congestion::Growth`] needs no word more to tell this from slow start.
    t_ms_and_one: NonZeroU32,
}

coded!(Cubic {
    w_max,
    cwnd_prior,
    w_est,
    est_credit,
    k_ms,
    t_ms_and_one
});

impl Default for Cubic {
    fn default() -> Cubic {
        Cubic {
            w_max: 0,
            cwnd_prior: 0,
            w_est: 0,
            est_credit: 0,
            k_ms: 0,
            t_ms_and_one: NonZeroU32::MIN,
        }
    }
}

const _: () = assert!(size_of::<Cubic>() <= 24);

/// The largest number whose cube is at most `n`, bit by bit from the top: 22 steps for any `n`.
fn cube_root(n: u64) -> u64 {
    let mut root: u64 = 0;
    for bit in (0..22).rev() {
        let next = root | 1 << bit;
        // (2^22)^3 would be more than 64 bits hold.
        if next.checked_pow(3).is_some_and(|cube| cube <= n) {
            root = next;
        }
    }
    root
}

fn times(n: u32, (by, of): (u64, u64)) -> u32 {
    (u64::from(n) * by / of).min(u64::from(u32::MAX)) as u32
}

impl Cubic {
    /// Section 4.2: K, the time the curve takes from `cwnd` up to `w_max`.
    fn k_ms(w_max: u32, cwnd: u32, mss: u32) -> u32 {
        // (difference / C) in segments and cubic seconds; 1e9 cubic milliseconds to the cubic second. Of 2^32 bytes
        // this is 2^63.3.
        let difference = u64::from(w_max.saturating_sub(cwnd));
        cube_root(difference * (1_000_000_000 * C.1 / C.0) / u64::from(mss)) as u32
    }

    /// Equation 1: W_cubic `at_ms` after the beginning, in bytes.
    fn window(&self, mss: u32, at_ms: u64) -> u32 {
        let from_middle = (at_ms.min(u64::from(u32::MAX)) as i64 - i64::from(self.k_ms))
            .clamp(-REACH_MS, REACH_MS);
        // At most 2^57; so that a segment's size can be multiplied with it, the last ten bits are given up: less
        // than a millionth of a segment. Then 1e9 * (C.1 / C.0) / 2^10 cubic milliseconds to the segment.
        let cube = from_middle.unsigned_abs().pow(3) >> 10;
        let offset = cube * u64::from(mss) / (1_000_000_000 * C.1 / C.0 / 1_024);
        let offset = offset.min(u64::from(u32::MAX)) as u32;
        if from_middle < 0 {
            self.w_max.saturating_sub(offset)
        } else {
            self.w_max.saturating_add(offset)
        }
    }

    /// Section 4.2: a stage of congestion avoidance begins. Where no loss has said what the window should be (after
    /// slow start without loss, section 4.10; after a timeout, section 4.8; after an idle time) the curve's middle
    /// is here.
    fn begin(&mut self, cwnd: u32, mss: u32) {
        if self.w_max <= cwnd {
            self.w_max = cwnd;
            self.k_ms = 0;
        } else {
            self.k_ms = Self::k_ms(self.w_max, cwnd, mss);
        }
        if self.cwnd_prior == 0 {
            self.cwnd_prior = cwnd;
        }
        self.w_est = cwnd.max(1);
        self.est_credit = 0;
        self.t_ms_and_one = NonZeroU32::MIN;
    }

    /// Section 4.3: what Reno's window would be by now, had it the same mean as CUBIC's.
    fn estimate(&mut self, cwnd: u32, mss: u32, acked: u32) {
        let (by, of) = if self.w_est < self.cwnd_prior {
            ALPHA
        } else {
            (1, 1)
        };
        let per_segment = (u64::from(cwnd) * of / by).max(1);
        let credit = u64::from(self.est_credit) + u64::from(acked);
        let grown = (credit / per_segment) as u32;
        self.w_est = self.w_est.saturating_add(grown.saturating_mul(mss));
        self.est_credit = (credit % per_segment).min(u64::from(u32::MAX)) as u32;
    }
}

/// `acked` bytes were acknowledged in congestion avoidance, and the window was in use since the acknowledgement
/// before, `since_ms` ago.
/// Keeps 9438-1, 9438-2, 9438-3, MAY-18.
pub(crate) fn on_ack(window: &mut Congestion, mss: u32, acked: u32, srtt_us: u32, since_ms: u32) {
    let cubic = window.growth.cubic();
    if cubic.w_est == 0 {
        cubic.begin(window.cwnd, mss);
    } else {
        cubic.t_ms_and_one = cubic.t_ms_and_one.saturating_add(since_ms);
    }
    let t = u64::from(cubic.t_ms_and_one.get() - 1);
    cubic.estimate(window.cwnd, mss, acked);
    if cubic.window(mss, t) < cubic.w_est {
        // The Reno-friendly region.
        window.cwnd = window.cwnd.max(cubic.w_est);
        return;
    }
    // Sections 4.4 and 4.5: a round trip from now the window should be on the curve, but no further than half as
    // much again. So much of a segment for each segment that is acknowledged:
    let most = times(window.cwnd, (3, 2));
    let target = cubic
        .window(mss, t + u64::from(srtt_us / 1_000))
        .clamp(window.cwnd, most);
    let missing = u64::from(target - window.cwnd);
    if missing == 0 {
        return;
    }
    let per_segment = u64::from(window.cwnd) * u64::from(mss) / missing;
    let credit = u64::from(window.cwnd_credit) + u64::from(acked);
    if credit < per_segment {
        window.cwnd_credit = credit as u32;
        return;
    }
    // Credit that was gained where the curve was flatter must not carry the window beyond it.
    let most = missing.div_ceil(u64::from(mss));
    let grown = (credit / per_segment).min(most) as u32;
    window.cwnd = window.cwnd.saturating_add(grown.saturating_mul(mss));
    window.cwnd_credit = (credit % per_segment).min(u64::from(u32::MAX)) as u32;
}

/// Sections 4.6 and 4.7: a loss. The window at which it came is the middle of the next curve, or less when that has
/// sunk since the last: another flow wants room then (fast convergence).
/// Keeps 9438-4, 9438-5.
pub(crate) fn threshold(window: &mut Congestion, mss: u32, flight: u32) -> u32 {
    let cubic = window.growth.cubic();
    cubic.w_max = if window.cwnd < cubic.w_max {
        times(window.cwnd, (BETA.0 + BETA.1, 2 * BETA.1))
    } else {
        window.cwnd
    };
    cubic.cwnd_prior = window.cwnd;
    cubic.w_est = 0;
    times(flight, BETA).max(2 * mss)
}

/// Section 4.8: after a timeout the curve starts from where slow start ends.
pub(crate) fn on_timeout(window: &mut Congestion) {
    let cubic = window.growth.cubic();
    (cubic.w_max, cubic.w_est) = (0, 0);
}

/// The window is not what it was for another reason than a loss: the epoch is over, its curve is kept.
pub(crate) fn end_epoch(window: &mut Congestion) {
    window.growth.cubic().w_est = 0;
}

#[cfg(test)]
mod tests;
