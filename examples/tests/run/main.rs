//! Every server and client among the examples, run as whoever reads it would run it: a process of its own, asked over the kernel's
//! sockets, ended by SIGTERM.

mod ends;
mod graceful;
mod load;
#[cfg(feature = "postgres")]
mod postgres;
mod process;
mod proxy;
