//! An address that is asked for instead of configured (`address = "dhcp"`): the client's protocol in `client.rs`, what it gets in
//! `lease.rs`, what of it outlives the process in `memory.rs`, the thread that speaks it and tells the cores in `keeper.rs`.

mod client;
mod keeper;
mod lease;
mod memory;

pub(crate) use keeper::{Keeper, Shown, Wanted, acquire, whose};
pub use lease::Lease;
