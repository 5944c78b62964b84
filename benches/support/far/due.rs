//! What is to be sent next.

use super::idle::{Lengths, Parked};
use super::{first_seq, ts_of};
use std::collections::VecDeque;

/// Something to be sent to the server.
#[derive(Clone, Copy)]
pub struct Due {
    pub conn: u32,
    pub seq: u32,
    pub ack: u32,
    pub ts_val: u32,
    pub ts_echo: u32,
    pub what: What,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    Syn,
    Ack,
    Request,
    /// The second half of a request that comes in pieces.
    Rest,
    Fin,
}

impl Due {
    /// One request in ten, by its connection and its place there.
    pub fn is_tenth(&self) -> bool {
        (self.conn ^ self.seq).wrapping_mul(0x9e37_79b1) < u32::MAX / 10
    }
}

/// Touched, as it is the load's: what comes into memory later counts as a server's.
pub fn nothing() -> VecDeque<Due> {
    let any = Due {
        conn: 0,
        seq: 0,
        ack: 0,
        ts_val: 0,
        ts_echo: 0,
        what: What::Ack,
    };
    let mut due = VecDeque::from(vec![any; 1 << 16]);
    due.clear();
    due
}

/// The next segment on a connection that was idle.
pub(super) fn wake_up(parked: &Parked, lengths: Lengths, what: What) -> Due {
    let sent = parked
        .seq
        .wrapping_sub(first_seq(parked.conn).wrapping_add(1));
    let served = sent / lengths.request;
    let first = parked
        .ack
        .wrapping_sub(served.wrapping_mul(lengths.response));
    Due {
        conn: parked.conn,
        seq: parked.seq,
        ack: parked.ack,
        ts_val: ts_of(first),
        ts_echo: parked.ts_echo,
        what,
    }
}
