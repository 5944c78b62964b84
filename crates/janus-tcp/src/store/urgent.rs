//! Urgent data of a connection, in either direction.

use std::collections::BTreeMap;

use janus_wire::SeqNum;

use crate::coded::coded;
use crate::store::keys::HotId;

/// Urgent data of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgent {
    /// The end of what we were told to send as urgent, until it is acknowledged.
    pub(crate) sent: Option<SeqNum>,
    /// The end of what the peer called urgent, until it is read.
    pub(crate) received: Option<SeqNum>,
    /// The octet before that end, if it came while something before it was missing.
    pub(crate) early: Option<u8>,
    /// It was taken aside.
    pub(crate) taken: bool,
    /// The end of an earlier mark that reading stood at when the pointer moved on.
    pub(crate) passed: Option<SeqNum>,
}

coded!(Urgent {
    sent,
    received,
    early,
    taken,
    passed
});

/// Urgent data, by hot block. Beside them, because hardly anyone uses it.
pub(crate) type Urgents = BTreeMap<HotId, Urgent>;
