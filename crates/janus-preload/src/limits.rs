//! The limit of a program's address space (RLIMIT_AS): it is meant for the program's own, and Janus reserves many times that without using it. What
//! Janus had at its beginning comes on top, for this process and for children and programs that inherit the limit.

use core::ptr::{from_ref, null, null_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_uint, pid_t, rlimit};

use crate::inside::is_inside;
use crate::real;

const SPACE: c_uint = libc::RLIMIT_AS as c_uint;

/// Bytes on top of the limit that the program has set last.
static ADDED: AtomicU64 = AtomicU64::new(0);

fn is_own(pid: pid_t) -> bool {
    pid == 0 || pid.cast_unsigned() == std::process::id()
}

fn more(limit: libc::rlim_t, by: u64) -> libc::rlim_t {
    // No limit stays none.
    limit.saturating_add(by)
}

fn less(limit: libc::rlim_t, by: u64) -> libc::rlim_t {
    match limit {
        libc::RLIM_INFINITY => limit,
        _ => limit.saturating_sub(by),
    }
}

/// # Safety
/// prlimit's contract.
unsafe fn change(pid: pid_t, which: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: the caller keeps the contract; the structures are plain data that the calls write.
    unsafe {
        let reserved = janus_c::process::reserved();
        if which != SPACE || is_inside() || !is_own(pid) || reserved == 0 {
            return real::prlimit(pid, which, new, old);
        }
        let mut before: rlimit = core::mem::zeroed();
        if real::prlimit(0, which, null(), &mut before) != 0 {
            return -1;
        }
        if let Some(new) = new.as_ref() {
            // A program without the right to raise it keeps what there is.
            let most = more(new.rlim_max, reserved).min(before.rlim_max);
            let wanted = rlimit {
                rlim_cur: more(new.rlim_cur, reserved).min(most),
                rlim_max: most,
            };
            // An error of the program's is told as it is.
            let is_valid = new.rlim_cur <= new.rlim_max;
            let given = if is_valid { from_ref(&wanted) } else { new };
            if real::prlimit(0, which, given, null_mut()) != 0 {
                return -1;
            }
        }
        let added = match new.is_null() {
            true => ADDED.load(Ordering::Relaxed),
            false => ADDED.swap(reserved, Ordering::Relaxed),
        };
        if let Some(old) = old.as_mut() {
            old.rlim_cur = less(before.rlim_cur, added);
            old.rlim_max = less(before.rlim_max, added);
        }
        0
    }
}

/// # Safety
/// As for libc's, here and below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    pid: pid_t,
    which: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the caller keeps the contract, here and below.
    unsafe { change(pid, which, new, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(which: c_uint, new: *const rlimit) -> c_int {
    // SAFETY: as above.
    unsafe { change(0, which, new, null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrlimit(which: c_uint, old: *mut rlimit) -> c_int {
    // SAFETY: as above.
    unsafe { change(0, which, null(), old) }
}
