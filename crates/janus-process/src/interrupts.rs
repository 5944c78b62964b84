//! Signals whose handlers wait until their thread is out of here: a handler may call in again, and the lock is not one that its holder may
//! take twice. Who installs handlers (a library in front of libc's) notes here that one is due; a thread that would sleep, or sleeps, runs
//! it first.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use crate::kernel;

/// Runs the handlers that are due on this thread.
type Deliver = fn();

static DELIVER: OnceLock<Deliver> = OnceLock::new();

thread_local! {
    static DUE: Cell<bool> = const { Cell::new(false) };
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
    static GOES_ON: Cell<Option<bool>> = const { Cell::new(None) };
    /// The bell that ends this thread's sleep; -1 while it does not sleep.
    static BELL: Cell<RawFd> = const { Cell::new(-1) };
}

/// A handler runs on this thread from now on, or does no more. Whether one did.
#[inline]
pub fn in_handler(runs: bool) -> bool {
    IN_HANDLER.replace(runs)
}

/// Whether a handler runs on this thread.
#[inline]
pub fn is_in_handler() -> bool {
    IN_HANDLER.get()
}

/// A handler has run on this thread, and calls go on after it, or not (SA_RESTART).
pub fn handled(goes_on: bool) {
    GOES_ON.set(Some(GOES_ON.get().unwrap_or(true) && goes_on));
}

/// Whether calls go on after the handlers that have run on this thread since this was asked last; `None`: none is known of.
pub fn goes_on() -> Option<bool> {
    GOES_ON.take()
}

/// Says who runs handlers. The first who says so does.
pub fn delivered_by(deliver: Deliver) {
    let _only_once = DELIVER.set(deliver);
}

/// A handler is due on this thread, which is in here. For handlers of signals: it takes no lock and no memory.
pub fn due() {
    DUE.set(true);
    kernel::ring(BELL.get());
}

/// Whether one is due on this thread.
pub fn is_due() -> bool {
    DUE.get()
}

/// Runs what is due, without the core's lock. Whether there was anything.
pub fn deliver() -> bool {
    let was = DUE.replace(false);
    if was && let Some(deliver) = DELIVER.get() {
        deliver();
    }
    was
}

/// From here until the guard is dropped, what becomes due ends a sleep on this bell.
pub(crate) fn sleeps_on(bell: RawFd) -> Sleeping {
    BELL.set(bell);
    Sleeping
}

pub(crate) struct Sleeping;

impl Drop for Sleeping {
    fn drop(&mut self) {
        BELL.set(-1);
    }
}
