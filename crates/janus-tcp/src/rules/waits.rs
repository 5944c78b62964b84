//! Times of the configuration in the units that every segment is timed in: turned into them once.

use crate::rules::config::Config;
use crate::time::nanos;

/// Bounds of waiting; see the fields of [`Config`] with these names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    rto_initial_ns: u64,
    rto_min_ns: u64,
    rto_max_ns: u64,
    delayed_ack_ns: u64,
    delayed_ack_ms: u32,
}

impl Waits {
    pub(crate) fn of(config: &Config) -> Waits {
        Waits {
            rto_initial_ns: nanos(config.rto_initial),
            rto_min_ns: nanos(config.rto_min),
            rto_max_ns: nanos(config.rto_max),
            delayed_ack_ns: nanos(config.delayed_ack),
            delayed_ack_ms: config.delayed_ack.as_millis() as u32,
        }
    }

    #[inline(always)]
    pub(crate) fn rto_initial_ns(&self) -> u64 {
        self.rto_initial_ns
    }

    #[inline(always)]
    pub(crate) fn rto_min_ns(&self) -> u64 {
        self.rto_min_ns
    }

    #[inline(always)]
    pub(crate) fn rto_max_ns(&self) -> u64 {
        self.rto_max_ns
    }

    #[inline(always)]
    pub(crate) fn delayed_ack_ns(&self) -> u64 {
        self.delayed_ack_ns
    }

    #[inline(always)]
    pub(crate) fn delayed_ack_ms(&self) -> u32 {
        self.delayed_ack_ms
    }
}
