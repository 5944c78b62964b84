//! A library that is loaded before a program's own (`LD_PRELOAD`): its symbols stand in front of libc's, and of what the program asks for,
//! sockets of Janus's are answered by `janus-c`, all else by libc (`real`).
//!
//! A thread that is in Janus, and every thread that Janus starts, sees libc only (`inside`): the library must not meet itself. A TCP
//! socket is Janus's from the start, and becomes the kernel's if what it is bound or connected to is (`choice`).
//! Never here: what a call means.

#![allow(
    unreachable_pub,
    clippy::missing_safety_doc,
    reason = "a program reaches these functions by their names"
)]

mod adopted;
mod bytes;
mod carried;
mod choice;
mod claimed;
mod cloned;
mod descriptors;
mod ends;
mod files;
mod handed;
mod inside;
mod left;
mod life;
mod limits;
#[cfg(target_arch = "x86_64")]
mod listed;
mod made;
mod memory;
mod raw;
mod ready;
mod real;
mod settings;
mod signals;
mod stdio;
mod threads;
mod twins;
mod watched;
