//! Threads that are started in Janus belong to it: all that they call is libc's, and the program's signals are not for them.

use core::ffi::c_void;

use libc::{c_int, pthread_attr_t, pthread_t, sigset_t};

use crate::inside::{Inside, is_inside};
use crate::{claimed, real};

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// First function of a thread of Janus's, and its argument.
struct Begin {
    start: Start,
    argument: *mut c_void,
}

extern "C" fn begin(it: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below gave it away, to this thread only.
    let Begin { start, argument } = *unsafe { Box::from_raw(it.cast::<Begin>()) };
    // For as long as it lives, whatever its destructors call.
    core::mem::forget(Inside::enter());
    start(argument)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps pthread_create's contract.
    unsafe {
        if !is_inside() {
            claimed::has_thread();
            return real::pthread_create(thread, attributes, start, argument);
        }
        let it = Box::into_raw(Box::new(Begin { start, argument }));
        let (mut all, mut before): (sigset_t, sigset_t) = core::mem::zeroed();
        libc::sigfillset(&mut all);
        // A thread begins with the mask of the one that starts it. Faults come all the same.
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = real::pthread_create(thread, attributes, begin, it.cast());
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        if started != 0 {
            drop(Box::from_raw(it));
        }
        started
    }
}
