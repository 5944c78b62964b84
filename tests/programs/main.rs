//! Programs as Debian has them, on Janus by the preloaded library: each runs in a network namespace where only Janus can carry a byte, its
//! peer being a program on the kernel's end of a TAP device; then the same in a namespace of the kernel's, and what all of them said is
//! compared. Needs root and the programs; without them a test says so in one line and passes, unless `JANUS_PRIVILEGED=1` says that the
//! machine must be able to. docs/programs.md tells what came of it.

#![allow(unreachable_pub, reason = "a test is reached by no other crate")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../../crates/janus-io/tests/support/veth.rs"]
mod veth;

mod afterlife;
mod clients;
mod daemon;
mod deaths;
mod devices;
mod ends;
mod faults;
mod ftp;
mod library;
mod peers;
mod prefork;
mod python;
mod reloads;
mod restarts;
mod running;
mod servers;
mod stores;
mod upgrade;
mod web;
mod world;
