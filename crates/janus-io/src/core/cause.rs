//! Reasons for which a frame is dropped before it reaches a shard: the steering's and the admission's. Counts nothing.

/// Why a frame goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Not what its headers claim.
    Malformed,
    /// A protocol that the stack does not speak.
    Unknown,
    /// From or for an impossible address.
    Martian,
    /// From an address that is on a list.
    Denied,
    /// One SYN too many from its network.
    TooManySyns,
}
