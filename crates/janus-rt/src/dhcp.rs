//! An address that is asked for instead of configured (`address = "dhcp"`): the client's protocol in `client.rs`, what it gets in
//! `lease.rs`, the thread that speaks it and tells the cores in `keeper.rs`.

mod client;
mod keeper;
mod lease;

pub(crate) use keeper::{Keeper, Shown, acquire, whose};
pub use lease::Lease;
