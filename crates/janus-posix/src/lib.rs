//! BSD sockets with Linux's errno values over one [`janus_tcp::Stack`].
//!
//! This is the layer that programs written for the kernel's sockets meet: the script runner today, a C interface
//! tomorrow. It never waits: where the kernel would block, a call says `EAGAIN` (or `EINPROGRESS`, `EALREADY`), and
//! whoever has a thread to block decides, by [`Sockets::is_nonblocking`], whether to call again or to pass the error on.
//! What never lives here: threads, clocks, and anything of TCP itself.

// Unsafe code is for C's pointers only, and those stay in `door`.
#![deny(unsafe_code)]

pub mod abi;
#[allow(unsafe_code)]
pub mod door;
mod errno;
mod family;
pub mod frames;
mod host;
mod offload;
mod options;
mod ports;
mod sockets;
pub mod sysctl;
mod table;
mod tcp_options;

pub use errno::Errno;
pub use host::{Host, ORIGIN, Sent};
pub use sockets::Sockets;
pub use table::FDS_MAX;
