//! A model check of the update protocol: every order in which packets, views, slices and updates can follow each other
//! in a small world is tried, and in none may a live connection be lost.
//!
//! The world: two I/O cores, three shards, a FIFO ring for each pair, one to three flows that all have one key (keys
//! do not touch each other, so this is the hardest case and the only one), false positives that send a packet anywhere,
//! SYNs, duplicates, data, ACKs of cookies, FINs, TIME-WAIT, reuse of the tuple, active opens, loss, moves, a shard that dies. Walk, tags and
//! layouts are the crate's own; what a shard holds, what an I/O core looks up and what the control side waits for are
//! written out here by the rules of `docs/csb.md`, each with a switch that weakens it (`rules.rs`).
//!
//! `JANUS_MODEL=full` searches everything that is listed, some 127 million states, minutes in release; without it a
//! choice of it, two and a half million. A violation is printed as the shortest trace that leads to it.

mod apply;
mod complete;
mod enabled;
mod print;
mod rules;
mod search;
mod state;
mod weakened;
mod world;
