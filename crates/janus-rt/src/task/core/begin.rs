//! How a task comes into its slot: spawned, to be polled in its turn, or begun, and polled at once. What happens to it from there is in
//! `core`.

use std::future::Future;
use std::task::Poll;

use super::super::arena::Slot;
use super::super::header::{self, Boxed, HANDLE, Inline, NAMELESS, QUEUED, RUNNING, Stored};
use super::super::join::JoinHandle;
use super::{Core, LARGE_LEAST, Life};
use crate::inbox::TaskRef;
use crate::warning::Warning;

impl Core {
    #[cold]
    fn warn_large<F>(&self) {
        if let Some(warnings) = &self.warnings {
            warnings.tell(&Warning::LargeFuture {
                task: std::any::type_name::<F>(),
                bytes: size_of::<F>(),
            });
        }
    }

    #[inline]
    pub(crate) fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        let slot = self.place(future, QUEUED | HANDLE);
        self.ready.borrow_mut().push(slot);
        let generation = self.arena.header(slot).generation();
        let task = TaskRef::new(&self.identity, slot.granule(), generation);
        if self.life.get() == Life::Closed {
            // The thread is still this core's, but no task is polled any more.
            self.close();
        }
        // SAFETY: the task gives an `F::Output`; HANDLE was set above, and this is the handle.
        unsafe { JoinHandle::here(task) }
    }

    /// Spawns the task that `make` makes, without a handle, and polls it. Where tasks are polled, but in none of them: see
    /// [`poll_each`](Core::poll_each).
    #[inline]
    pub(crate) fn begin<F: Future<Output = ()> + 'static>(&self, make: impl FnOnce() -> F) {
        self.look_at_size::<F>();
        if const { header::class_of::<Inline<F>>().is_some() } {
            self.begin_stored(|| Inline::new(make()));
        } else {
            self.begin_stored(|| Boxed::new(make()));
        }
    }

    #[inline]
    fn begin_stored<S: Stored + 'static>(&self, make: impl FnOnce() -> S) {
        // Nothing can have aborted it, and no queue has it.
        let slot = self.place_stored(make, NAMELESS | RUNNING);
        let header = self.arena.header(slot);
        let polled = self.poll_with(slot, header, header::vtable::<S>(), |pointer, cx| {
            // SAFETY: the slot was given an `S` just now, and RUNNING keeps everybody else from it, as in `poll`.
            unsafe { header::poll::<S>(pointer, cx) }
        });
        match polled {
            Poll::Pending => self.paused(slot, header),
            Poll::Ready(()) => self.free_of(slot, header::vtable::<S>().class),
        }
    }

    #[inline]
    fn place<F: Future + 'static>(&self, future: F, flags: u32) -> Slot {
        self.look_at_size::<F>();
        if const { header::class_of::<Inline<F>>().is_some() } {
            self.place_stored(|| Inline::new(future), flags)
        } else {
            self.place_stored(|| Boxed::new(future), flags)
        }
    }

    /// Warns of a large future, and counts one that gets a box.
    #[inline]
    fn look_at_size<F: Future + 'static>(&self) {
        if const { size_of::<F>() >= LARGE_LEAST } && size_of::<F>() >= self.large_from {
            self.warn_large::<F>();
        }
        if const { header::class_of::<Inline<F>>().is_none() } {
            self.count(|c| c.boxed += 1);
        }
    }

    /// Puts what `make` makes into a slot, once there is one: moved there from elsewhere, it would be written twice. `make` does
    /// not panic, else the slot is lost.
    #[inline]
    fn place_stored<S: Stored + 'static>(&self, make: impl FnOnce() -> S, flags: u32) -> Slot {
        let Some(class) = (const { header::class_of::<S>() }) else {
            unreachable!("a future without a class is boxed, and a box has one");
        };
        let Some(slot) = self.arena.alloc(class) else {
            self.no_slot_for(make);
        };
        // SAFETY: `alloc` gave this slot to no other task, it is vacant, and of the class that `S` needs.
        unsafe { header::write(self.arena.pointer(slot), make(), flags) };
        self.spawned.set(self.spawned.get() + 1);
        slot
    }

    /// Drops a future that there is no memory for.
    #[cold]
    fn no_slot_for<S>(&self, make: impl FnOnce() -> S) -> ! {
        let _future = make();
        panic!("no memory for another task: {} live", self.tasks());
    }
}
