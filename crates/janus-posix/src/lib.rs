//! BSD sockets, poll and epoll with Linux's errno values over one [`janus_tcp::Stack`].
//!
//! This is the layer that programs written for the kernel's sockets meet: the script runner, a C interface, and what the
//! runtime makes of it later. It never waits. Where the kernel would block, a call says so ([`Progress::Blocked`], or `EAGAIN`,
//! `EINPROGRESS`, `EALREADY`); [`Sockets::wait`] leaves word, [`Sockets::next_woken`] names the descriptor once when the call
//! should be tried again, and how long to wait is told by SO_RCVTIMEO, SO_SNDTIMEO and SO_LINGER. What is ready is learned
//! from the stack's wake-ups, so that [`Sockets::epoll_wait`] costs what is ready and not what is watched: with ten million
//! sockets no call looks at them all, and each is a record of 64 bytes at most.
//!
//! `docs/sockets.md` says of each call, flag and option what becomes of it; `tests/kernel_semantics` asks the kernel the same.
//! What never lives here: threads, clocks, and anything of TCP itself.

#![forbid(unsafe_code)]

pub mod abi;
mod epoll;
mod errno;
mod family;
pub mod frames;
mod handover;
mod host;
mod ignored_options;
mod lent;
mod message;
mod moving;
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
mod urgent;
mod watch;
mod zero_copy;

pub use epoll::EpollEvent;
pub use errno::Errno;
pub use handover::Ends;
pub use host::{Host, ORIGIN, Sent, Whose};
pub use lent::Received;
pub use moving::Stranded;
pub use poll::PollFd;
pub use sockets::{Files, Lingering, Sockets};
pub use table::FDS_MAX;
pub use transfer::Progress;
