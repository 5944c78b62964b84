//! Receiving: when an acknowledgement goes out, what it says of gaps, how large the window grows, urgent data.

pub(crate) mod delayed_ack;
mod read;
pub(crate) mod sack_blocks;
pub(crate) mod tuning;
pub(crate) mod urgent;
