//! The one process there is: started by the first call that needs it, ended when the program exits, not there in a forked child.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use janus::Runtime;
use janus_process::{Errno, Process, Result};
use libc::c_int;

static PROCESS: OnceLock<Option<Process>> = OnceLock::new();
/// This is a child that was forked from the process: what its memory says of connections is the parent's.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The thread that ends the process, by its number; 0 as long as none does.
static ENDER: AtomicI32 = AtomicI32::new(0);

/// The process, which is started if it is not there yet.
///
/// # Errors
/// ENETDOWN when it cannot be started (the reason was printed), EBADF in a forked child.
pub fn get() -> Result<&'static Process> {
    if is_forked() {
        return Err(Errno::EBADF);
    }
    PROCESS
        .get_or_init(start)
        .as_ref()
        .ok_or(Errno(libc::ENETDOWN))
}

/// Whether this is a child that was forked from the process that has the connections.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Whether a descriptor of a forked child was a socket of its parent's, and is still what stands for it.
#[cold]
pub fn was_parents(fd: c_int) -> bool {
    let parents = matches!(PROCESS.get(), Some(Some(process)) if process.has(fd));
    if !parents {
        return false;
    }
    // The child may have closed it, and opened something else of that number.
    let (mut domain, mut len) = (0, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the value has so much room.
    let asked = unsafe {
        let into = (&raw mut domain).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, into, &mut len)
    };
    asked == 0 && domain == libc::AF_UNIX
}

/// The process if it has been started, and not in a forked child.
#[inline]
pub fn started() -> Option<&'static Process> {
    match PROCESS.get() {
        Some(Some(process)) if !is_forked() => Some(process),
        _ => None,
    }
}

/// Keeps the thread for as long as another one ends the process. The kernel's sockets are open to the last moment of a process, so no
/// thread of it is ever told that they are closed.
#[inline]
pub fn rest_in_the_end() {
    if ENDER.load(Ordering::Relaxed) != 0 {
        rest();
    }
}

#[cold]
fn rest() {
    while ![0, this_thread()].contains(&ENDER.load(Ordering::Relaxed)) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn this_thread() -> i32 {
    // SAFETY: the call takes nothing.
    unsafe { libc::gettid() }
}

fn start() -> Option<Process> {
    match Process::start(Runtime::builder()) {
        Ok(process) => {
            // SAFETY: both functions are there for as long as the library is, which is never unloaded with them registered: the C library
            // keeps it then.
            unsafe {
                libc::atexit(at_exit);
                libc::pthread_atfork(None, None, Some(in_child));
            }
            Some(process)
        }
        Err(error) => {
            eprintln!("janus: {error}");
            None
        }
    }
}

/// Closes all that is open and waits until what was written has been acknowledged, as long as `close_ms` says. Other threads that call
/// from now on rest, if they ask ([`rest_in_the_end`]).
pub fn end() {
    let Some(process) = started() else { return };
    // The process has no handle any more once it has ended: this is said once.
    if process.handle().is_some_and(|it| it.program_report()) {
        eprintln!("janus: {}", process.traffic());
    }
    ENDER.store(this_thread(), Ordering::Relaxed);
    if let Err(error) = process.end() {
        eprintln!("janus: {error}");
    }
}

extern "C" fn at_exit() {
    end();
}

/// The process goes on although it was to end.
pub fn does_not_end() {
    ENDER.store(0, Ordering::Relaxed);
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}
