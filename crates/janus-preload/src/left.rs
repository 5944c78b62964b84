//! Listeners that another program has left to this one, which took its place, or that of a child of its: descriptors with marks
//! (`janus-process`, `legacy`). They are looked for once, when the library is loaded: a mark that comes later, with a message, was not left by who
//! began this program, and is not believed. All of them become sockets of Janus's as soon as one is used. Until then they are the kernel's to
//! close and to duplicate, and a program that uses none, a shell that starts another, joins no daemon.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use libc::c_int;

use crate::inside::{Inside, is_inside};
use crate::{settings, signals};

/// Numbers from here on are not looked at.
const FDS: usize = 1 << 16;
/// Descriptors that had marks when they were last seen, a bit for each. Who takes them over looks again.
static LEFT: [AtomicU64; FDS / 64] = [const { AtomicU64::new(0) }; FDS / 64];
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

fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((LEFT.get(fd / 64)?, 1 << (fd % 64)))
}

fn note(fd: c_int) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
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
    if are_there() && !is_inside() && has(fd) {
        take_over();
    }
}

fn has(fd: c_int) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// A descriptor was duplicated: the copy has the mark that it has.
pub(crate) fn copied(fd: c_int, new: c_int) {
    if are_there() && new >= 0 && has(fd) {
        note(new);
    }
}

/// Makes all of them sockets of this process's.
#[cold]
pub(crate) fn take_over() {
    let _inside = Inside::enter();
    let _one_after_the_other = TAKES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut noted = Vec::new();
    for (word, first) in LEFT.iter().zip((0..).step_by(64)) {
        let bits = word.swap(0, Ordering::Relaxed);
        noted.extend(
            (0..64)
                .filter(|bit| bits >> bit & 1 != 0)
                .map(|bit| first + bit),
        );
    }
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
