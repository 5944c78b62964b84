//! Leased addresses (`address = "dhcp"`): the client's protocol in `client.rs`, the lease in `lease.rs`, the file that outlives the
//! process in `memory.rs`, the thread that runs the client in `keeper.rs`; in `cores.rs` how the cores are told, also by a member of a
//! daemon that has the lease.

mod client;
mod cores;
mod keeper;
mod lease;
mod memory;

pub(crate) use cores::{Follower, Shown};
pub(crate) use keeper::{AddressingFn, Keeper, Wanted, acquire, whose};
pub use lease::Lease;
