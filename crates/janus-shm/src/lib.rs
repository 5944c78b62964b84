//! Memory that two processes share without trusting each other, rings in it, the messages by which they agree on both, and figures that one
//! shows to any other.
//!
//! Whatever the other side can write is read once, into a copy, and judged there: an index beyond its ring is a [`Violation`], and so is a range
//! beyond its segment. A side's own index is never read back from where the other could change it. Segments are sealed, so that no
//! side can take memory away under the other's hands.
//! Never here: packets, addresses, who may do what.

#![deny(unsafe_code)]
#![cfg_attr(loom, allow(dead_code))]

mod message;
mod ring;
#[cfg_attr(loom, path = "segment/model.rs")]
mod segment;

pub use message::{
    ADDRESSES_MAX, Claim, Device, Hello, Malformed, Message, Mode, NAME_MAX, NAME_SERVERS_MAX,
    Network, Permit, ROUTES_MAX, Share, VERSION, Welcome,
};
pub use ring::{Consumer, Descriptor, Producer, bytes_of_ring};
pub use segment::Segment;
#[cfg(not(loom))]
pub use unmodeled::*;

/// All that the model checker does not see, as if it stood in the crate's root.
#[cfg(not(loom))]
#[path = "."]
mod unmodeled {
    mod bell;
    mod board;
    mod foreign;
    pub(crate) mod kept;
    mod link;
    mod peer;

    pub use bell::Bell;
    pub use board::{Board, Copied, Form};
    pub use foreign::{Closer, is_agreed_on};
    pub use kept::keep_descriptors_by;
    pub use link::{Link, Received};
    pub use peer::Peer;
}

/// The other side has broken the rules: nothing of it is to be believed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Its index says that the ring holds more than it can.
    Index {
        /// The index that was read.
        theirs: u32,
        /// Ours at that time.
        ours: u32,
    },
    /// A ring or a range lies outside of its segment, or is not aligned.
    Outside {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        len: u64,
    },
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Violation::Index { theirs, ours } => {
                write!(
                    f,
                    "an index of {theirs} where ours is {ours}: more than the ring holds"
                )
            }
            Violation::Outside { offset, len } => {
                write!(f, "{len} bytes at {offset} are not in the segment")
            }
        }
    }
}

impl std::error::Error for Violation {}
