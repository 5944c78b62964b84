//! Arrivals as the delayed acknowledgement sees them: a part of the hot block.

use crate::coded::coded;
use crate::store::cold::Tcb;

/// Of a hot block: what is known of the data that came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    /// Milliseconds, wrapping, of the last data; of the last segment before the block was there.
    pub(crate) last_ms: u32,
    /// The largest segment of late, which is taken for the peer's size of full ones.
    pub(crate) mss: u16,
    /// About the time between segments in milliseconds (ATO); 0 = none has come since the block is there.
    pub(crate) ato_ms: u8,
    /// Acknowledgements that are still to go at once, and above them [`Arrivals::pushed`].
    pub(crate) counts: u8,
}

coded!(Arrivals { mss, ato_ms, counts; ms last_ms });

impl Arrivals {
    /// Of a connection that gets a hot block.
    #[inline]
    pub(crate) fn of(cold: &Tcb) -> Arrivals {
        Arrivals {
            last_ms: cold.last_heard_ms,
            ato_ms: 0,
            mss: cold.mss.clamp(LEAST_MSS, UNSEEN_MSS),
            counts: 0,
        }
    }

    /// At least so many are acknowledged at once, as far as the window has room for them (tcp_incr_quickack).
    #[inline(always)]
    pub(crate) fn hurry(&mut self, cold: &Tcb, most: u32) {
        if u32::from(self.quick()) < most {
            self.hurry_more(cold, most);
        }
    }

    fn hurry_more(&mut self, cold: &Tcb, most: u32) {
        let fit = cold.receive_window() / (2 * u32::from(self.mss));
        let fit = if fit == 0 { 2 } else { fit };
        let quick = self.quick().max(fit.min(most) as u8);
        self.counts = self.counts & !QUICK | quick;
    }

    #[inline]
    pub(crate) fn quick(&self) -> u8 {
        self.counts & QUICK
    }

    /// Segments that seemed to be the end of a write, since the last acknowledgement: none, one, or more.
    #[inline]
    pub(crate) fn pushed(&self) -> u8 {
        self.counts & !QUICK
    }

    #[inline]
    pub(crate) fn push(&mut self) {
        let more = match self.pushed() {
            0 => PUSHED_ONE,
            _ => PUSHED_MORE,
        };
        self.counts = self.counts & QUICK | more;
    }
}

/// Of [`Arrivals::counts`]: the first holds [`QUICK_MAX`].
const QUICK: u8 = 0x1f;

const PUSHED_SHIFT: u32 = 5;

pub(crate) const PUSHED_ONE: u8 = 1 << PUSHED_SHIFT;

const PUSHED_MORE: u8 = 2 << PUSHED_SHIFT;

/// Segment size assumed of the peer before any came, and the least one (TCP_MSS_DEFAULT, TCP_MIN_MSS).
pub(crate) const UNSEEN_MSS: u16 = 536;

pub(crate) const LEAST_MSS: u16 = 88;

/// Acknowledgements that go at once, one for each segment, at the beginning (TCP_MAX_QUICKACKS).
pub(crate) const QUICK_MAX: u32 = 16;
