//! The door for the real packetdrill: the library it loads with `--so_filename`, with this stack where it expects a
//! kernel's. `table` is what it sees, `entry` its functions, `room` where they meet, on virtual time; `cabi` is what is
//! true of any C program's sockets.
//! What never lives here: what a call means. That is in [`crate::Sockets`].

mod cabi;
mod calls;
mod descriptors;
mod entry;
mod netdev;
mod pipe;
mod room;
mod splice;
mod table;
mod transfer;
mod wait;

pub use table::{Interface, packetdrill_interface_init};
