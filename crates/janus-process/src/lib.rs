//! Blocking sockets, poll and epoll for the plain threads of a process, on a core of Janus that belongs to none of them.
//!
//! A core is a lock and a home, not a thread (`core`): whoever calls takes the lock, and is the core until he gives it back; who would
//! block sleeps for it, on its device and its bell, and takes its turns (`rota`). While no thread is in a call a guardian acknowledges
//! and retransmits (`watch`). Descriptors are numbers of the kernel's, each a copy of one placeholder (`descriptors`), so that they
//! are as low as a program expects, and no file of its own can have the same. What a call answers is `janus-posix`'s affair.
//! Never here: pointers of C, names of libc's.

#![deny(unsafe_code)]

mod address;
mod afterlife;
mod bell;
mod calls;
mod children;
mod core;
mod descriptors;
mod epoll;
mod guardian;
mod held;
pub mod interrupts;
mod kernel;
mod legacy;
mod loans;
mod numbers;
mod own;
mod passing;
mod poll;
mod process;
mod pump;
mod rota;
mod sleep;
mod standing;
mod succession;
mod sync;
mod traffic;
mod transfer;
mod watch;

pub use self::core::GoesOn;
pub use afterlife::{Copies, Side};
pub use children::{Attempt, Child, Fork};
pub use epoll::Event;
pub use janus_posix::{Errno, abi};
pub use kernel::unused_tcp;
pub use loans::Loan;
pub use numbers::Fixed as Numbers;
pub use own::keep;
pub use poll::Polled;
pub use process::Process;
pub use pump::{Connects, Names, accept};
pub use succession::{Stays, left_to_us, marked};
pub use traffic::Traffic;

/// A result with Linux's error number.
pub type Result<T> = std::result::Result<T, Errno>;

/// The kernel's error as one of ours.
fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}
