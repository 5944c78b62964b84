//! Counts of one member: plain numbers, which only the daemon's loop reaches. Others see what it shows of them (`publisher.rs`).

use std::time::SystemTime;

use janus_shm::Peer;

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
