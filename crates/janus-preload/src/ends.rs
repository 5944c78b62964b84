//! How a process ends, or becomes another. It delivers first what it owes: nothing would afterwards.

use libc::{c_char, c_int};

use crate::inside::{self, Inside};
use crate::real;

fn end() {
    if inside::process().is_some() {
        let _inside = Inside::enter();
        janus_c::process::end();
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    end();
    // SAFETY: the call takes a number.
    unsafe { real::_exit(status) }
}

#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

#[unsafe(no_mangle)]
pub extern "C" fn quick_exit(status: c_int) -> ! {
    end();
    // SAFETY: the call takes a number.
    unsafe { real::quick_exit(status) }
}

/// Whether the program may be replaced: not with connections, which would go with it. In a forked child there are none.
fn may_be_replaced() -> bool {
    let Some(process) = inside::process() else {
        return true;
    };
    let _inside = Inside::enter();
    if process.open_descriptors().is_empty() {
        janus_c::process::end();
        return true;
    }
    eprintln!(
        "janus: a program that has open sockets cannot be replaced by another (exec): its connections are in its memory"
    );
    janus_c::fail(janus_process::Errno(libc::EBUSY));
    false
}

/// glibc's own, which execv and its kin end in, is not called through a name that could be stood in front of.
macro_rules! exec {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            match may_be_replaced() {
                true => {
                    // SAFETY: the caller keeps the contract of libc's function of this name.
                    let failed = unsafe { real::$name($($argument),*) };
                    janus_c::process::does_not_end();
                    failed
                }
                false => -1,
            }
        }
    )*};
}

exec! {
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char);
    fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char);
    execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char);
    execveat(folder: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int);
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller keeps execv's contract; the environment is the process's.
    unsafe { execve(path, arguments, environ) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller keeps execvp's contract; the environment is the process's.
    unsafe { execvpe(file, arguments, environ) }
}

/// A child of vfork has its parent's memory, this library's with it: what it closes on its way to exec would be closed for the parent. A
/// child of fork is as good to a program, which may not rely on more.
#[unsafe(no_mangle)]
pub extern "C" fn vfork() -> libc::pid_t {
    // SAFETY: the call takes nothing; the child goes on in a copy of this thread.
    unsafe { libc::fork() }
}
