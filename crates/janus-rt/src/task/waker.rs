//! Wakers that are a word: cloning and dropping do nothing, waking goes by the word alone. A stale one finds that its task has ended and
//! does nothing.

use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::context;
use crate::inbox::{self, WakeWord};

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, forget);

/// The waker of a task.
#[inline]
pub(super) fn waker(word: WakeWord) -> Waker {
    // SAFETY: the vtable's functions never dereference the data pointer and own nothing, so every contract of
    // `RawWaker` (thread safety among them) holds for any word.
    unsafe { Waker::from_raw(raw(word)) }
}

/// Returns the word in a waker of ours, else `None`.
#[inline]
pub(super) fn word_of(waker: &Waker) -> Option<WakeWord> {
    ptr::eq(waker.vtable(), &VTABLE).then(|| WakeWord::from_bits(waker.data().addr() as u64))
}

#[inline]
fn raw(word: WakeWord) -> RawWaker {
    RawWaker::new(ptr::without_provenance(word.bits() as usize), &VTABLE)
}

fn clone(data: *const ()) -> RawWaker {
    RawWaker::new(data, &VTABLE)
}

fn wake(data: *const ()) {
    let word = WakeWord::from_bits(data.addr() as u64);
    if !context::wake_here(word) {
        inbox::deliver(word);
    }
}

fn forget(_data: *const ()) {}
