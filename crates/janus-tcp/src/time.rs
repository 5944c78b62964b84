//! The stack's own idea of time: nanoseconds since an arbitrary start, always handed in, never read.

use core::ops::Add;
use core::time::Duration;

/// A moment, in nanoseconds since a start that the owner of the stack chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of time.
    pub const ZERO: Instant = Instant(0);

    /// Comes after all moments: a deadline that is none.
    pub(crate) const NEVER: Instant = Instant(u64::MAX);

    /// The moment `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// The moment `micros` microseconds after the start.
    pub const fn from_micros(micros: u64) -> Instant {
        Instant(micros.saturating_mul(1_000))
    }

    /// The moment `millis` milliseconds after the start.
    pub const fn from_millis(millis: u64) -> Instant {
        Instant(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the start.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since the start.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The moment so many nanoseconds later.
    #[inline]
    pub(crate) const fn after_nanos(self, nanos: u64) -> Instant {
        Instant(self.0.saturating_add(nanos))
    }

    /// The time from `earlier` to here; zero when `earlier` is later.
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    #[inline]
    fn add(self, after: Duration) -> Instant {
        self.after_nanos(nanos(after))
    }
}

/// A time in whole nanoseconds, without the 128 bits that [`Duration`] would count them in.
#[inline]
pub(crate) fn nanos(time: Duration) -> u64 {
    let whole = time.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(time.subsec_nanos().into())
}
