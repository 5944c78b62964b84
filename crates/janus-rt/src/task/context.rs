//! The executor that this thread runs: set while a shard's loop (or a test) drives it.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::rc::Rc;

use super::core::Core;
use crate::inbox::WakeWord;

thread_local! {
    static CURRENT: Cell<*const Core> = const { Cell::new(ptr::null()) };
}

/// Makes this the thread's executor while it lives. Guards nest.
pub(crate) struct Entered {
    core: Rc<Core>,
    before: *const Core,
    /// Belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Entered {
    pub(super) fn new(core: Rc<Core>) -> Entered {
        let before = CURRENT.replace(Rc::as_ptr(&core));
        Entered {
            core,
            before,
            not_send: PhantomData,
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        debug_assert!(
            ptr::eq(CURRENT.get(), Rc::as_ptr(&self.core)),
            "guards end in reverse order"
        );
        CURRENT.set(self.before);
    }
}

/// Calls `f` with the executor that this thread runs, if any.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Core) -> R) -> Option<R> {
    // `try_with`: a waker may be used by another thread-local's destructor.
    let core = CURRENT.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: the pointer is set only while an `Entered` of this thread holds its `Rc`, and `f` cannot end that
    // guard: it is owned by a frame below this one.
    unsafe { core.as_ref() }.map(f)
}

/// Wakes a task of this thread's executor. Returns false when the word is another executor's.
#[inline]
pub(super) fn wake_here(word: WakeWord) -> bool {
    with(|core| core.wake_word(word)).unwrap_or(false)
}
