//! The memory of a task: a 16-byte header, then the future, or its output once it is done. All in one slot of
//! the arena; an echo task (a 40-byte future) fits one cache line. Nothing here knows queues or wakers.

use std::cell::Cell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// Bits of [`Header::state`].
pub(super) mod state {
    /// The slot holds a task.
    pub(crate) const LIVE: u8 = 1 << 0;
    /// It stands in the ready queue.
    pub(crate) const SCHEDULED: u8 = 1 << 1;
    /// The future is gone, and what the slot holds is its output, or nothing any more.
    pub(crate) const DONE: u8 = 1 << 2;
    /// The output has not been taken.
    pub(crate) const OUTPUT: u8 = 1 << 3;
    /// A `JoinHandle` exists.
    pub(crate) const JOINABLE: u8 = 1 << 4;
    /// The future is to be dropped instead of polled.
    pub(crate) const ABORT: u8 = 1 << 5;
}

/// What every slot begins with. A slot that never held a task is all zero.
#[repr(C)]
pub(super) struct Header {
    pub(super) vtable: Cell<Option<&'static VTable>>,
    pub(super) generation: Cell<u32>,
    pub(super) state: Cell<u8>,
    /// The arena's size class, as its index.
    pub(super) class: Cell<u8>,
}

const _: () = assert!(size_of::<Header>() == 16);

impl Header {
    #[inline]
    pub(super) fn has(&self, bit: u8) -> bool {
        self.state.get() & bit != 0
    }

    #[inline]
    pub(super) fn set(&self, bit: u8) {
        self.state.set(self.state.get() | bit);
    }

    #[inline]
    pub(super) fn clear(&self, bit: u8) {
        self.state.set(self.state.get() & !bit);
    }
}

/// What can be done with a task whose type is forgotten.
pub(super) struct VTable {
    /// Polls the future; when it is done drops it and leaves the output in its place.
    pub(super) poll: unsafe fn(NonNull<Header>, &mut Context<'_>) -> Poll<()>,
    pub(super) drop_future: unsafe fn(NonNull<Header>),
    pub(super) drop_output: unsafe fn(NonNull<Header>),
    /// Moves the output to where the second pointer says.
    pub(super) take_output: unsafe fn(NonNull<Header>, NonNull<u8>),
}

/// A slot that holds a task of type `F`.
#[repr(C)]
pub(super) struct Task<F: Future> {
    header: Header,
    stage: Stage<F>,
}

#[repr(C)]
union Stage<F: Future> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<F::Output>,
}

impl<F: Future> Task<F> {
    pub(super) const VTABLE: VTable = VTable {
        poll: Self::poll,
        drop_future: Self::drop_future,
        drop_output: Self::drop_output,
        take_output: Self::take_output,
    };

    /// Puts `future` into a slot.
    ///
    /// # Safety
    /// `slot` is large and aligned enough for `Task<F>`, is the caller's alone, and holds no task.
    #[inline]
    pub(super) unsafe fn write(slot: NonNull<Header>, future: F) {
        // SAFETY: the caller's promise.
        unsafe { Self::stage(slot).cast::<F>().write(future) };
    }

    /// # Safety
    /// `task` is a slot for `Task<F>`.
    #[inline]
    unsafe fn stage(task: NonNull<Header>) -> *mut Stage<F> {
        // SAFETY: the caller's promise: the field lies within the slot.
        unsafe { &raw mut (*task.cast::<Task<F>>().as_ptr()).stage }
    }

    unsafe fn poll(task: NonNull<Header>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the executor polls only a slot of this type that holds a future, one at a time, and a slot
        // never moves: so the future is pinned until it is dropped in place.
        unsafe {
            let stage = Self::stage(task);
            let future = Pin::new_unchecked(&mut *stage.cast::<F>());
            let Poll::Ready(output) = future.poll(cx) else {
                return Poll::Pending;
            };
            // Marked before the drop: if the drop panics the future is gone all the same.
            task.as_ref().set(state::DONE);
            stage.cast::<F>().drop_in_place();
            stage.cast::<F::Output>().write(output);
            task.as_ref().set(state::OUTPUT);
        }
        Poll::Ready(())
    }

    unsafe fn drop_future(task: NonNull<Header>) {
        // SAFETY: the executor calls this once, for a slot of this type that holds a future.
        unsafe { Self::stage(task).cast::<F>().drop_in_place() }
    }

    unsafe fn drop_output(task: NonNull<Header>) {
        // SAFETY: the executor calls this once, for a slot of this type that holds an output.
        unsafe { Self::stage(task).cast::<F::Output>().drop_in_place() }
    }

    unsafe fn take_output(task: NonNull<Header>, into: NonNull<u8>) {
        // SAFETY: as for `drop_output`; the executor passes room for an `F::Output`.
        unsafe {
            into.cast::<F::Output>()
                .write(Self::stage(task).cast::<F::Output>().read())
        }
    }
}
