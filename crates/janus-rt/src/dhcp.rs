//! Leased addresses (`address = "dhcp"`): the client's protocol in `client.rs`, the lease in `lease.rs`, the file that outlives the
//! process in `memory.rs`, the thread that runs the client and tells the cores in `keeper.rs`.

mod client;
mod keeper;
mod lease;
mod memory;

pub(crate) use keeper::{Keeper, Shown, Wanted, acquire, whose};
pub use lease::Lease;
