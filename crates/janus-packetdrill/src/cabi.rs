//! Memory layout of the C interface of sockets, and safe access to it: pointers of the caller, addresses, vectors of
//! buffers, messages, polled descriptors. Nothing here knows of packetdrill or of a clock: a library that is preloaded
//! into a program meets the same bytes.

pub(crate) mod errno;
pub(crate) mod events;
pub(crate) mod iovec;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod sockaddr;
pub(crate) mod thread;
