//! Listeners that another program has left to this one, which took its place, or that of a child of its: descriptors with marks
//! (`janus-process`, `legacy`). They are looked for once, when the library is loaded: a mark that comes later, with a message, was not left by who
//! began this program, and is not believed. All of them become sockets of Janus's as soon as one is used. Until then they are the kernel's to
//! close and to duplicate, and a program that uses none, a shell that starts another, joins no daemon.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use janus_process::Numbers;
use libc::c_int;

use crate::inside::{FEW, Inside, is_inside};
use crate::{settings, signals};

/// Descriptors that had marks when they were last seen. Who takes them over looks again.
static LEFT: Numbers<FEW> = Numbers::none();
/// Whether there is one.
static ANY: AtomicBool = AtomicBool::new(false);
/// Held while they are taken over.
static TAKES: Mutex<()> = Mutex::new(());

/// The loader calls it, before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let _inside = Inside::enter();
    settings::keep();
    janus_process::left_to_us()
        .iter()
        .flatten()
        .copied()
        .for_each(note);
}

fn note(fd: c_int) {
    if LEFT.add(fd) {
        ANY.store(true, Ordering::Release);
    }
}

/// Whether some have not been taken over.
#[inline]
pub(crate) fn are_there() -> bool {
    ANY.load(Ordering::Acquire)
}

/// A descriptor is about to be used as a socket.
#[inline]
pub(crate) fn is_used(fd: c_int) {
    if are_there() && !is_inside() && LEFT.has(fd) {
        take_over();
    }
}

/// A descriptor was duplicated: the copy has the mark that it has.
pub(crate) fn copied(fd: c_int, new: c_int) {
    if are_there() && new >= 0 && LEFT.has(fd) {
        note(new);
    }
}

/// Makes all of them sockets of this process's.
#[cold]
pub(crate) fn take_over() {
    let _inside = Inside::enter();
    let _one_after_the_other = TAKES.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = LEFT.all();
    noted.iter().for_each(|fd| LEFT.remove(*fd));
    // Numbers that were closed since, or given to something else, have no marks any more.
    let left = janus_process::marked(&noted);
    if !left.is_empty()
        && let Ok(process) = janus_c::process::get()
    {
        signals::begin();
        for fds in left {
            if let Err(error) = process.take_over(&fds, false) {
                let error = error.text();
                eprintln!(
                    "janus: a listener that another program has left to this one cannot be had: {error}"
                );
            }
        }
    }
    ANY.store(false, Ordering::Release);
}
