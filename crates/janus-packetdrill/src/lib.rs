//! The library that the real packetdrill loads with `--so_filename`: this stack where the tool expects a kernel's.
//! `table` is the symbol it looks for, `entry` its functions, `room` where they meet, on virtual time; `cabi` is what is true of any C
//! program's sockets.
//! What never lives here: what a call means. That is in [`janus_posix::Sockets`].

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

pub use entry::Interface;
pub use table::packetdrill_interface_init;
