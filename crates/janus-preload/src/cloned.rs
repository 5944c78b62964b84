//! `fork` and `clone` by `syscall(2)`, by which some programs have children in namespaces of their own. The kernel's call would go past what is done
//! on both sides of a fork. So it is `fork`, and the child leaves its parent's namespaces by itself, before its program goes on.

use std::io::{PipeReader, Read, Write, pipe};

use janus_c::fail;
use janus_process::Errno;
use libc::{c_int, c_long, c_ulong, pid_t};

use crate::inside::{self, Inside};
use crate::real;

/// Namespaces that a child can leave once it is there. That of process numbers is one of its children's only.
const SPACES: c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;

/// `fork`, from which a child of [`clone`] is not to be told apart.
fn fork() -> pid_t {
    // SAFETY: the call takes nothing; the child goes on in a copy of this thread.
    unsafe { libc::fork() }
}

/// `SYS_fork` and `SYS_vfork`.
pub(crate) fn forked() -> c_long {
    fork().into()
}

/// `SYS_clone`. A thread, or a child that has its parent's memory, is the kernel's affair, and so is all where nothing of Janus's is inherited.
///
/// # Safety
/// clone's contract.
pub(crate) unsafe fn clone(all: [c_ulong; 5]) -> c_long {
    let [flags, stack, ..] = all;
    let flags = flags as c_int;
    let inherits = inside::process().is_some() || inside::is_forked();
    if !inherits || inside::is_inside() || stack != 0 || flags & libc::CLONE_VM != 0 {
        let [a, b, c, d, e] = all;
        // SAFETY: the caller keeps the contract.
        return unsafe { real::syscall(libc::SYS_clone, a, b, c, d, e, 0) };
    }
    if flags & !SPACES != libc::SIGCHLD {
        // Programs that ask for more than there is ask for less then.
        return fail(Errno::EINVAL).into();
    }
    match flags & SPACES {
        0 => forked(),
        spaces => in_spaces(spaces).map_or_else(|error| fail(error).into(), c_long::from),
    }
}

fn in_spaces(spaces: c_int) -> Result<pid_t, Errno> {
    let inside = Inside::enter();
    let (hears, mut says) = pipe().map_err(|_| Errno::EMFILE)?;
    drop(inside);
    match fork() {
        -1 => Err(Errno::EAGAIN),
        0 => {
            let _inside = Inside::enter();
            // SAFETY: the calls take numbers.
            unsafe {
                if libc::unshare(spaces) == 0 {
                    return Ok(0);
                }
                let error = *libc::__errno_location();
                let _ = says.write_all(&error.to_ne_bytes());
                real::_exit(0)
            }
        }
        child => {
            let _inside = Inside::enter();
            drop(says);
            refused(hears).map_or(Ok(child), |error| {
                // SAFETY: as above.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
                Err(error)
            })
        }
    }
}

/// Why the child could not leave; `None`: it has.
fn refused(mut child: PipeReader) -> Option<Errno> {
    let mut error = [0; 4];
    child.read_exact(&mut error).ok()?;
    Some(Errno(c_int::from_ne_bytes(error)))
}
