//! Threads that are started in Janus belong to it: all that they call is libc's.

use core::ffi::c_void;

use libc::{c_int, pthread_attr_t, pthread_t};

use crate::inside::{Inside, is_inside};
use crate::real;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// The beginning of a thread of Janus's.
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
            return real::pthread_create(thread, attributes, start, argument);
        }
        let it = Box::into_raw(Box::new(Begin { start, argument }));
        let started = real::pthread_create(thread, attributes, begin, it.cast());
        if started != 0 {
            drop(Box::from_raw(it));
        }
        started
    }
}
