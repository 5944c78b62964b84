//! Signals of a thread whose call is about to wait: held back from before its last look until it returns, and let in by the sleep itself.
//! So a handler runs in the sleep, which it ends, or after the call, and never just before a sleep that would then last.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

use libc::sigset_t;

/// Signals that are a fault of the thread itself: they are never held.
const FAULTS: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// While it lives, the calling thread is sent no signals but in a sleep.
pub(crate) struct Held {
    before: sigset_t,
    /// The mask is the thread's.
    _here: PhantomData<*const ()>,
}

impl Held {
    pub(crate) fn now() -> Held {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the first call writes the whole set, the last one writes the one that was; numbers of signals are right.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Held {
            before,
            _here: PhantomData,
        }
    }

    /// The mask of a sleep.
    pub(crate) fn mask(&self) -> &sigset_t {
        &self.before
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, null_mut()) };
    }
}
