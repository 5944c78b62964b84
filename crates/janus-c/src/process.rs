//! The one process there is: started by the first call that needs it, ended when the program exits, not there in a forked child.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use janus::{Builder, Runtime};
use janus_process::{Child, Errno, Fork, Process, Result};
use libc::c_int;

static PROCESS: OnceLock<Option<Process>> = OnceLock::new();
/// This is a child that was forked from the process: what its memory says of connections is the parent's.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The thread that ends the process, by its number; 0 as long as none does.
static ENDER: AtomicI32 = AtomicI32::new(0);
/// In a forked child, what it may use of its parent's connections.
static CHILD: Mutex<Option<Child>> = Mutex::new(None);

/// Says how the process is built, if not as its settings say.
static BUILT_BY: OnceLock<fn() -> Builder> = OnceLock::new();

thread_local! {
    /// This thread is about to fork.
    static FORK: RefCell<Option<Fork<'static>>> = const { RefCell::new(None) };
}

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

/// Builds the process by `builder` once it is needed, for libraries with a device of their own. No effect from the second time on, or once
/// the process has begun.
pub fn built_by(builder: fn() -> Builder) {
    let _the_first_counts = BUILT_BY.set(builder);
}

/// Whether this is a child that was forked from the process that has the connections.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
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
    let builder = BUILT_BY.get().map_or_else(Runtime::builder, |by| by());
    match Process::start(builder) {
        Ok(process) => {
            // SAFETY: both functions are there for as long as the library is, which is never unloaded with them registered: the C library
            // keeps it then.
            unsafe {
                libc::atexit(at_exit);
                libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
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

extern "C" fn before_fork() {
    if is_forked() {
        child().as_mut().map(Child::forks);
    }
    FORK.set(started().map(Process::before_fork));
}

extern "C" fn after_fork() {
    if let (Some(process), Some(fork)) = (started(), FORK.take()) {
        process.after_fork(fork);
    }
}

extern "C" fn in_child() {
    // A child of a child has what that had.
    if FORKED.swap(true, Ordering::Relaxed) {
        return;
    }
    *child() = FORK.take().and_then(Fork::in_child);
}

fn child() -> std::sync::MutexGuard<'static, Option<Child>> {
    CHILD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a descriptor of a forked child was a socket of its parent's.
#[inline]
pub fn was_parents(fd: c_int) -> bool {
    is_forked() && matches!(PROCESS.get(), Some(Some(process)) if process.has(fd))
}

/// In a forked child: makes a descriptor that was a connection of its parent's one of the kernel's that does the same. False: it was none.
#[cold]
pub fn claims(fd: c_int) -> bool {
    let Some(Some(process)) = PROCESS.get() else {
        return false;
    };
    child()
        .as_mut()
        .is_some_and(|child| child.claims(process, fd))
}

/// In a forked child: descriptors are closed, or others are put in their place.
#[cold]
pub fn child_closes(first: c_int, last: c_int) {
    let (Some(Some(process)), mut child) = (PROCESS.get(), child()) else {
        return;
    };
    process.closes_in_child(first, last);
    let over = (child.as_mut()).is_some_and(|child| !child.closes(first, last));
    if over && let Some(child) = child.take() {
        child.is_over();
    }
}

/// In a forked child that becomes another program: leaves to that what its parent listens at. How many descriptors that are.
#[cold]
pub fn child_leaves() -> usize {
    let Some(Some(process)) = PROCESS.get() else {
        return 0;
    };
    child().as_ref().map_or(0, |child| child.leaves(process))
}
