//! Meaning of an index in the flow table: which of the stack's stores holds the flow, and where.
//! Each store holds both families ([`crate::store::flows`]); the two bits above theirs say which store it is.

use crate::store::keys::{ConnSlot, Key};

/// The most records any one store can have of one family; the bit beyond says which family it is.
pub(crate) const MAX_RECORDS: u32 = 1 << 29;

/// A flow's place, as the flow table's `u32` spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A connection: an index into the cold TCBs.
    Connection(ConnSlot),
    /// A SYN that was answered and not yet acknowledged.
    HalfOpen(u32),
    /// A connection that is over, or whose owner is gone, waiting for its last segments to die.
    TimeWait(u32),
    /// Another shard's flow, whose packets come here.
    Stub(u32),
}

impl Record {
    #[inline]
    pub(crate) fn encode(self) -> u32 {
        match self {
            Record::Connection(i) => i.index(),
            Record::HalfOpen(i) => i | 1 << 30,
            Record::TimeWait(i) => i | 2 << 30,
            Record::Stub(i) => i | 3 << 30,
        }
    }

    #[inline]
    pub(crate) fn decode(index: u32) -> Record {
        let i = index & ((1 << 30) - 1);
        match (index >> 30, ConnSlot::new(i)) {
            (0, Some(i)) => Record::Connection(i),
            (1, _) => Record::HalfOpen(i),
            (2, _) => Record::TimeWait(i),
            _ => Record::Stub(i),
        }
    }
}
