//! Segments that leave as one: where a device cuts large segments (TSO), those of a burst that follow each other cross to it as a
//! chain behind headers of its own, a copy of the first one's that speaks for all, and it cuts them again. Here it is decided what
//! is chained; the frames themselves stay as they are, so what the device does not take can go another way.

use janus_dpdk_sys::ffi;
use janus_mem::Frame;

use crate::backend::large::join;
use crate::batch::BURST;

/// Chains in a burst: of two frames at least.
const CHAINS_MAX: usize = BURST / 2;
/// Drivers that cut by DPDK's own library (librte_gso), which knows no IPv6.
const CUTS_V4_ONLY: &[&str] = &["net_tap"];

/// Limits of the segmentation offload of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Frames in a chain.
    pub(super) frames: usize,
    /// Bytes of each segment's frame.
    pub(super) segment: usize,
    pub(super) v6: bool,
}

impl Limits {
    /// `pieces` is what a chain may have, its headers among them; 0: any number.
    pub(super) fn new(driver: &str, pieces: u16, mtu: u16) -> Limits {
        let by_library = CUTS_V4_ONLY.contains(&driver);
        Limits {
            frames: match pieces {
                0 => BURST,
                most => BURST.min(usize::from(most) - 1),
            },
            // The library's driver holds the link header to be a part of the packet.
            segment: match by_library {
                true => mtu.into(),
                false => usize::from(mtu) + janus_wire::ethernet::LEN,
            },
            v6: !by_library,
        }
    }
}

/// The chains of one burst.
pub(super) struct Chains {
    limits: Limits,
    headers: Box<[[u8; ffi::JD_HEADERS_MAX]; CHAINS_MAX]>,
}

impl Chains {
    pub(super) fn new(limits: Limits) -> Chains {
        Chains {
            limits,
            headers: Box::new([[0; ffi::JD_HEADERS_MAX]; CHAINS_MAX]),
        }
    }

    /// The headers of the chains, one after the other.
    pub(super) fn headers(&self) -> *const u8 {
        self.headers.as_ptr().cast()
    }

    /// Chains what can be of these frames, which `packets` describes one by one, as it then describes the chains. How many.
    pub(super) fn join(&mut self, frames: &[Frame], packets: &mut [ffi::jd_packet]) -> usize {
        let (mut at, mut chains) = (0, 0);
        while at < frames.len() {
            let end = frames.len().min(at + self.limits.frames.max(1));
            let run = join::run(&frames[at..end]);
            if let Some(layout) = run.layout
                && run.count > 1
                && (self.limits.v6 || !layout.v6)
                && layout.payload <= ffi::JD_HEADERS_MAX
                && layout.payload + run.size <= self.limits.segment
            {
                let headers = &mut self.headers[chains][..layout.payload];
                headers.copy_from_slice(&frames[at].data()[..layout.payload]);
                join::seal(headers, &layout, run.total, run.flags);
                let tcp = (layout.payload - layout.tcp) as u32;
                packets[at].flags |= ffi::JD_TX_TSO;
                packets[at].hash = run.size as u32 | tcp << 16 | (run.count as u32) << 24;
                chains += 1;
            }
            at += run.count;
        }
        chains
    }
}

#[cfg(test)]
mod tests;
