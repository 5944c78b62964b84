//! How a process ends, or becomes another. It delivers first what it owes: nothing would afterwards.

use core::ffi::CStr;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use janus_process::{Errno, Stays};
use libc::{c_char, c_int};

use crate::inside::{self, Inside};
use crate::{left, real, settings};

pub(crate) fn end() {
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

/// A program that this one is to become, as far as it can be told whether it is there.
enum Program {
    At(*const c_char),
    /// Looked for in the folders of PATH if it names none.
    Named(*const c_char),
    /// The system finds out.
    Open,
}

fn may_run(path: &CStr) -> bool {
    // SAFETY: the string ends with a zero.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

impl Program {
    /// Whether it is there: a program that looks for another in several places asks at each, and has its sockets as long as there is none.
    /// If it is not, errno says why.
    ///
    /// # Safety
    /// Its name is a string.
    unsafe fn is_there(&self) -> bool {
        // SAFETY: the caller says so.
        let (name, looks) = unsafe {
            match self {
                Program::At(path) => (CStr::from_ptr(*path), false),
                Program::Named(name) => (CStr::from_ptr(*name), true),
                Program::Open => return true,
            }
        };
        if !looks || name.to_bytes().contains(&b'/') {
            return may_run(name);
        }
        let folders = std::env::var_os("PATH");
        let folders = folders
            .as_ref()
            .map_or(b"/bin:/usr/bin".as_slice(), |it| it.as_bytes());
        folders.split(|byte| *byte == b':').any(|folder| {
            let folder = if folder.is_empty() { b"." } else { folder };
            let path = CString::new([folder, b"/", name.to_bytes()].concat());
            path.is_ok_and(|path| may_run(&path))
        })
    }
}

/// Prepares for another program in the place of this one: delivers what it owes, and leaves what listens to that one. Whether it may go on, and
/// if so whether something was left.
///
/// # Safety
/// The program's name is a string.
unsafe fn prepares_for(program: &Program) -> Option<bool> {
    if inside::is_forked() && !inside::is_inside() {
        let _inside = Inside::enter();
        return Some(janus_c::process::child_leaves() > 0);
    }
    let Some(process) = inside::process() else {
        return Some(left::are_there());
    };
    let _inside = Inside::enter();
    if let Err(why) = process.may_leave() {
        eprintln!(
            "janus: a program with open sockets cannot be replaced by another (exec): {}",
            match why {
                Stays::Sockets => "its connections are in its memory",
                Stays::Listeners =>
                    "what listens is left to the next one only by a daemon's member (backend = \"daemon\")",
            }
        );
        janus_c::fail(Errno(libc::EBUSY));
        return None;
    }
    // SAFETY: the caller says so.
    if unsafe { !program.is_there() } {
        return None;
    }
    match process.leave() {
        Ok(left) => {
            match left {
                0 => janus_c::process::end(),
                _ => janus_c::process::end_by_exec(),
            }
            Some(left > 0)
        }
        Err(error) => {
            janus_c::fail(error);
            None
        }
    }
}

/// Becomes another program by `exec`, if this one may be replaced.
///
/// # Safety
/// The contract of execve; `exec` keeps to it, and is given the environment.
unsafe fn replaced_by(
    program: Program,
    environment: *const *const c_char,
    exec: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    // SAFETY: the caller keeps execve's contract.
    let Some(leaves) = (unsafe { prepares_for(&program) }) else {
        return -1;
    };
    let failed = match leaves {
        // SAFETY: as above.
        true => exec(unsafe { settings::with_kept(environment) }.as_ptr()),
        false => exec(environment),
    };
    janus_c::process::does_not_end();
    failed
}

/// glibc's own, which execv and its kin end in, is not called through a name that could be stood in front of.
macro_rules! exec {
    ($($name:ident($($argument:ident: $type:ty),*) of $program:expr, with $environment:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller keeps the contract of libc's function of this name.
            unsafe { replaced_by($program, $environment, |$environment| real::$name($($argument),*)) }
        }
    )*};
}

type Strings = *const *const c_char;

exec! {
    execve(path: *const c_char, arguments: Strings, environment: Strings) of Program::At(path), with environment;
    fexecve(fd: c_int, arguments: Strings, environment: Strings) of Program::Open, with environment;
    execvpe(file: *const c_char, arguments: Strings, environment: Strings) of Program::Named(file), with environment;
    execveat(folder: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int) of Program::Open, with environment;
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
