//! Counts of one member: plain numbers, which only the daemon's loop reaches. Others see what it shows of them (`publisher.rs`).

use std::time::SystemTime;

use janus_shm::Peer;

use crate::Counters;
use crate::member::Crossed;
use crate::statistics::{Traffic, to_millis};

#[derive(Debug)]
pub(crate) struct Account {
    /// Number of its process; 0: of another container's there is none.
    pub(crate) process: u32,
    /// When it asked, in milliseconds of Unix time.
    pub(crate) since: u64,
    /// Frames that it was given.
    pub(crate) received: Traffic,
    /// Frames that it sent, and that were let through.
    pub(crate) sent: Traffic,
    /// Frames that it had no buffer for.
    pub(crate) lost_no_buffer: u64,
    /// Frames that it may not send.
    pub(crate) refused: u64,
    /// Frames that it may send, but not so many in this time.
    pub(crate) limited: u64,
}

impl Account {
    pub(crate) fn new(peer: &Peer) -> Account {
        Account {
            process: peer.process.map_or(0, |it| it.as_raw_pid() as u32),
            since: to_millis(SystemTime::now()),
            received: Traffic::default(),
            sent: Traffic::default(),
            lost_no_buffer: 0,
            refused: 0,
            limited: 0,
        }
    }
}

impl Counters {
    /// A frame of this length has crossed to a member, or not.
    #[inline]
    pub(crate) fn crossed(&self, to: &mut Account, len: usize, crossed: Crossed) {
        match crossed {
            Crossed::Waits => return,
            Crossed::Not => {
                to.lost_no_buffer += 1;
                return self.lost_no_buffer.add(1);
            }
            Crossed::Copied => {}
            Crossed::Handed => self.uncopied.add(1),
        }
        to.received.add(len);
        self.to_members.add(1);
    }
}
