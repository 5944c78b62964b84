//! Sizes and scales that a SYN offers, and those that follow from the peer's.

use janus_wire::FlowKey;
use janus_wire::tcp::Options;

use crate::rules::profile::DEFAULT;
use crate::rules::{Rules, config};

/// MSS of a peer that names none, over IPv4 and over IPv6 (RFC 9293 MUST-15), and the smallest we let a peer force on us.
const DEFAULT_MSS: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1_220;
const SMALLEST_MSS: u16 = 48;

impl Rules {
    /// Keeps MUST-14, MUST-15.
    #[inline]
    pub(crate) fn usable_mss(&self, key: &FlowKey, options: &Options, profile: u8) -> u16 {
        // An MSS of nothing is none (as on Linux).
        let named = options.mss.filter(|&mss| mss > 0);
        let offered = named.unwrap_or(if key.is_v6() {
            DEFAULT_MSS_V6
        } else {
            DEFAULT_MSS
        });
        offered
            .max(SMALLEST_MSS)
            .min(self.largest_segment(key, profile))
    }

    /// The largest segment that a connection takes and sends.
    #[inline]
    pub(crate) fn largest_segment(&self, key: &FlowKey, profile: u8) -> u16 {
        let most = self.largest[usize::from(key.is_v6())];
        if profile == DEFAULT {
            return most;
        }
        let wished = self.profiles.get(profile).max_segment;
        most.min(wished.unwrap_or(u16::MAX))
    }

    /// The window of a SYN is never scaled (RFC 7323 section 2.2).
    /// Keeps 7323-3.
    #[inline]
    pub(crate) fn first_window(&self, profile: u8) -> u16 {
        let buffer = self.profiles.receive_buffer(profile, &self.config);
        buffer.min(0xffff) as u16
    }

    /// The scale that a SYN offers. Where the application says how large the buffer is to be, it does not grow.
    /// Keeps 7323-4, 7323-8.
    #[inline]
    pub(crate) fn window_scale(&self, profile: u8) -> u8 {
        if profile == DEFAULT {
            return self.own_scale;
        }
        match self.profiles.get(profile).receive_buffer {
            Some(buffer) => config::scale_for(buffer),
            None => self.own_scale,
        }
    }
}
