//! Whole runtimes by subject, one file each, in one program: linking twenty took longer than running them. A test that is about
//! its process (signals, its memory, its use of a processor) or needs much stays a program of its own.

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod admission;
mod admission_v6;
mod attribute_options;
mod attributes;
mod bad_link;
mod combinators;
mod dhcp;
mod dropped_anywhere;
mod end_to_end;
mod foreign_core;
mod foreign_waker;
mod in_pieces;
mod live_updates;
mod net;
mod offers;
mod overload;
mod own_loop;
mod panicking_core;
mod paused_time;
mod policies;
mod portal_is_two_stacks;
mod portal_outgoing;
mod portal_reach;
mod reload;
mod rest;
mod runtime_end;
mod send_buf;
mod shared_time;
mod shutdown;
mod socket_options;
mod switch;
mod tasks_elsewhere;
