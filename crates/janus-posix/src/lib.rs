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
mod epoll;
mod errno;
mod family;
pub mod frames;
mod host;
mod kept;
mod message;
mod offload;
mod options;
mod poll;
mod port_index;
mod ports;
mod shared;
mod sockets;
pub mod sysctl;
mod table;
mod tcp_options;
mod transfer;
mod watch;

pub use epoll::EpollEvent;
pub use errno::Errno;
pub use host::{Host, ORIGIN, Sent};
pub use poll::PollFd;
pub use sockets::{Lingering, Sockets};
pub use table::FDS_MAX;
pub use transfer::Progress;
