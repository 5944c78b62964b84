//! A device that costs next to nothing: what is sent over it is what it receives next, in the buffer it lies in. As with
//! a NIC no processor copies a frame, and the driver's part is moving handles; so a benchmark over it measures the rest.

use std::collections::VecDeque;

use janus_io::{Batch, Caps, Queue};
use janus_mem::{Frame, Pool};
use janus_wire::Link;
use rustix::fd::BorrowedFd;

pub(crate) struct Mirror {
    caps: Caps,
    frames: VecDeque<Frame>,
}

impl Mirror {
    /// With these frames to be received first.
    pub(crate) fn new(frames: impl IntoIterator<Item = Frame>) -> Self {
        let frames: VecDeque<Frame> = frames.into_iter().collect();
        Self {
            caps: Caps {
                link: Link::Ethernet,
                mtu: 1500,
                mac: None,
                tx_checksum: false,
                rx_checksum: false,
                tso: false,
                gro: false,
                name: "mirror".to_owned(),
            },
            frames,
        }
    }
}

impl Queue for Mirror {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, _: &mut Pool, out: &mut Batch) {
        let count = self.frames.len().min(out.room());
        out.extend(self.frames.drain(..count).map(|mut frame| {
            (frame.tag, frame.key) = (0, 0);
            frame
        }));
    }

    fn tx_burst(&mut self, _: &mut Pool, frames: &mut Batch, _: &mut Batch) {
        self.frames.extend(frames.pull());
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self) -> bool {
        self.frames.is_empty()
    }
}
