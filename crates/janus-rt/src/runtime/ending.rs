//! How a runtime comes to its end, and what else all its cores share: who has ended, the first error, what happened
//! once. Everything here is rare; the loop only looks at one flag.

use std::collections::HashSet;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use janus_io::park::Unparker;

use super::BoxError;

/// Shared by the cores of one runtime and its handles.
pub(crate) struct Ending {
    stopping: AtomicBool,
    mains: AtomicUsize,
    /// Cores that have not fallen.
    standing: AtomicUsize,
    /// Cores that still have something to send or to hear.
    undrained: AtomicUsize,
    first_error: Mutex<Option<BoxError>>,
    bells: Vec<Unparker>,
    /// Lines that [`once`](super::once) was called from: bounded by the program's text.
    once: Mutex<HashSet<&'static Location<'static>>>,
}

impl Ending {
    pub(crate) fn new(bells: Vec<Unparker>) -> Ending {
        Ending {
            stopping: AtomicBool::new(false),
            mains: AtomicUsize::new(bells.len()),
            standing: AtomicUsize::new(bells.len()),
            undrained: AtomicUsize::new(bells.len()),
            first_error: Mutex::default(),
            bells,
            once: Mutex::default(),
        }
    }

    pub(crate) fn cores(&self) -> usize {
        self.bells.len()
    }

    pub(crate) fn stop(&self) {
        if !self.stopping.swap(true, Ordering::AcqRel) {
            self.ring();
        }
    }

    #[inline]
    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// One main has ended; the last one, or the first with an error, ends the runtime.
    pub(crate) fn main_ended(&self, result: Result<(), BoxError>) {
        let last = self.mains.fetch_sub(1, Ordering::AcqRel) == 1;
        match result {
            Err(error) => self.fail(error),
            Ok(()) if last => self.stop(),
            Ok(()) => {}
        }
    }

    /// Something that ends the runtime with an error.
    pub(crate) fn fail(&self, error: BoxError) {
        self.remember(error);
        self.stop();
    }

    /// A core has lost its tasks. The others go on, and the runtime ends with the error when they have; with the last
    /// core it ends at once.
    pub(crate) fn fell(&self, main_over: bool, error: BoxError) {
        self.remember(error);
        if !main_over {
            self.main_ended(Ok(()));
        }
        if self.standing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.stop();
        }
    }

    fn remember(&self, error: BoxError) {
        self.first_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
    }

    /// This core has nothing more to say; it goes on only for what its neighbours receive through it.
    pub(crate) fn drained(&self) {
        if self.undrained.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ring();
        }
    }

    pub(crate) fn all_drained(&self) -> bool {
        self.undrained.load(Ordering::Acquire) == 0
    }

    pub(crate) fn take_error(&self) -> Option<BoxError> {
        self.first_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    pub(crate) fn first_at(&self, place: &'static Location<'static>) -> bool {
        self.once
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(place)
    }

    fn ring(&self) {
        for bell in &self.bells {
            bell.wake();
        }
    }
}
