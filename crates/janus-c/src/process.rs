//! The one process there is: started by the first call that needs it, ended when the program exits. A forked child has none, or another of its own.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

use janus::{BoxError, Builder, Handle, Permit, Places, Runtime};
use janus_process::{Attempt, Child, Copies, Errno, Fork, Process, Result, Side, interrupts};
use libc::c_int;

/// Null before it is started, and in a forked child that has none of its own. It is there for ever.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(null_mut());
/// In a forked child, its parent's: what its memory says of connections.
static PARENTS: AtomicPtr<Process> = AtomicPtr::new(null_mut());
/// Held while the process is started; whether that failed.
static STARTS: Mutex<bool> = Mutex::new(false);
/// The thread that ends the process, by its number; 0 as long as none does.
static ENDER: AtomicI32 = AtomicI32::new(0);
/// In a forked child, what it may use of its parent's connections.
static CHILD: Mutex<Option<Child>> = Mutex::new(None);

/// Says how the process is built, if not as its settings say.
static BUILT_BY: OnceLock<fn() -> Builder> = OnceLock::new();
/// Ends the process when the program exits.
static ENDED_BY: OnceLock<fn()> = OnceLock::new();

thread_local! {
    /// This thread is about to fork.
    static FORK: RefCell<Option<Fork<'static>>> = const { RefCell::new(None) };
    /// This thread forks a copy, in which all stays as it is.
    static IS_COPIED: Cell<bool> = const { Cell::new(false) };
}

/// The process, which is started if it is not there yet.
///
/// # Errors
/// ENETDOWN when it cannot be started (the reason was printed), EBADF in a forked child that has none of its own.
pub fn get() -> Result<&'static Process> {
    if let Some(process) = started() {
        return Ok(process);
    }
    if is_forked() {
        return Err(Errno::EBADF);
    }
    start(true, || Process::start(builder()))
}

fn builder() -> Builder {
    BUILT_BY.get().map_or_else(Runtime::builder, |by| by())
}

/// Builds the process by `builder` once it is needed, for libraries with a device of their own. No effect from the second time on, or once
/// the process has begun.
pub fn built_by(builder: fn() -> Builder) {
    let _the_first_counts = BUILT_BY.set(builder);
}

/// Ends the process by `end` when the program exits, for libraries whose calls must know that: it calls [`end`]. No effect from the second time on.
pub fn ended_by(end: fn()) {
    let _the_first_counts = ENDED_BY.set(end);
}

/// Whether this is a child that was forked from a process with connections. It may have a process of its own.
#[inline]
pub fn is_forked() -> bool {
    !PARENTS.load(Ordering::Relaxed).is_null()
}

/// The process if it has been started; in a forked child its own.
#[inline]
pub fn started() -> Option<&'static Process> {
    // SAFETY: null, or there for ever.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// In a forked child, its parent's process, of which it has the memory.
#[inline]
fn parents() -> Option<&'static Process> {
    // SAFETY: as above.
    unsafe { PARENTS.load(Ordering::Relaxed).as_ref() }
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

/// Starts the process by `start`, once. Why that cannot be is printed, if it `says` so.
fn start(
    says: bool,
    start: impl FnOnce() -> std::result::Result<Process, BoxError>,
) -> Result<&'static Process> {
    static REGISTERED: Once = Once::new();
    let mut failed = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    match started() {
        Some(process) => return Ok(process),
        None if *failed => return Err(Errno(libc::ENETDOWN)),
        None => {}
    }
    match start() {
        Ok(process) => {
            // SAFETY: both functions are there for as long as the library is, which is never unloaded with them registered: the C library
            // keeps it then. A forked child has them from its parent.
            REGISTERED.call_once(|| unsafe {
                libc::atexit(at_exit);
                libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
            });
            let process: &'static Process = Box::leak(Box::new(process));
            PROCESS.store(ptr::from_ref(process).cast_mut(), Ordering::Release);
            Ok(process)
        }
        Err(error) => {
            if says {
                eprintln!("janus: {error}");
            }
            *failed = true;
            Err(Errno(libc::ENETDOWN))
        }
    }
}

/// Closes all that is open and waits until what was written has been acknowledged, as long as `close_ms` says. Connections that other processes use go on in a
/// copy of this one, where a daemon has the device. Other threads that call from now on rest, if they ask ([`rest_in_the_end`]).
pub fn end() {
    end_by(Process::end_outlived);
}

/// [`end`] of a program that becomes another, to which something was left.
pub fn end_by_exec() {
    end_by(Process::end_by_exec);
}

fn end_by(end: fn(&Process, Option<Copies>) -> std::result::Result<(), BoxError>) {
    let Some(process) = started() else { return };
    // The process has no handle any more once it has ended: this is said once.
    if process.handle().is_some_and(|it| it.program_report()) {
        // In one piece: its like may end at the same time.
        let line = format!("janus: {}\n", process.traffic());
        eprint!("{line}");
    }
    ends_here();
    // A handler may have interrupted what has the locks that are taken over a fork.
    let copies = (!interrupts::is_in_handler()).then_some(copies as Copies);
    if let Err(error) = end(process, copies) {
        eprintln!("janus: {error}");
    }
}

/// The calling thread ends the process.
fn ends_here() {
    ENDER.store(this_thread(), Ordering::Relaxed);
}

/// Forks twice, so that the copy is not the program's to wait for.
fn copies() -> Option<Side> {
    IS_COPIED.set(true);
    // SAFETY: the calls take numbers, and a place for one. The C library's own locks are whole in a child; others' are not used by a copy.
    let side = unsafe {
        match libc::fork() {
            -1 => None,
            0 => {
                ends_here();
                match libc::fork() {
                    0 => {
                        ends_here();
                        Some(Side::Copy)
                    }
                    failed => libc::_exit(i32::from(failed < 0)),
                }
            }
            between => {
                let mut status = 0;
                while libc::waitpid(between, &mut status, 0) < 0
                    && std::io::Error::last_os_error().kind() == ErrorKind::Interrupted
                {
                }
                (status == 0).then_some(Side::Original)
            }
        }
    };
    IS_COPIED.set(false);
    side
}

extern "C" fn at_exit() {
    ENDED_BY.get().map_or(end as fn(), |by| *by)();
}

/// The process goes on although it was to end.
pub fn does_not_end() {
    ENDER.store(0, Ordering::Relaxed);
}

extern "C" fn before_fork() {
    if IS_COPIED.get() {
        return;
    }
    if is_forked() {
        child().as_mut().map(Child::forks);
    }
    // Late in its thread's end there is no place for it, and a child inherits nothing.
    let _ = FORK.try_with(|fork| fork.replace(started().map(Process::before_fork)));
}

fn fork() -> Option<Fork<'static>> {
    FORK.try_with(RefCell::take).ok().flatten()
}

extern "C" fn after_fork() {
    if IS_COPIED.get() {
        return;
    }
    if let (Some(process), Some(fork)) = (started(), fork()) {
        process.after_fork(fork);
    }
}

extern "C" fn in_child() {
    if IS_COPIED.get() {
        return;
    }
    ENDER.store(0, Ordering::Relaxed);
    let parents = PROCESS.swap(null_mut(), Ordering::Relaxed);
    // A child of a child that has no process of its own has what that had.
    if !parents.is_null() {
        PARENTS.store(parents, Ordering::Relaxed);
        let mut child = child();
        let forked = fork().and_then(Fork::in_child);
        if let Some(grandchild) = child.take() {
            // Its channel is closed by that.
            grandchild.is_over();
        }
        *child = forked;
    }
}

fn child() -> std::sync::MutexGuard<'static, Option<Child>> {
    CHILD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a descriptor of a forked child was a socket of its parent's.
#[inline]
pub fn was_parents(fd: c_int) -> bool {
    parents().is_some_and(|process| process.has(fd))
}

/// In a forked child: makes a descriptor that was a connection of its parent's one of the kernel's that does the same. False: it was none.
#[cold]
pub fn claims(fd: c_int) -> bool {
    let Some(process) = parents() else {
        return false;
    };
    let mut child = child();
    // Another thread may have been first.
    !process.has(fd) || (child.as_mut()).is_some_and(|child| child.claims(process, fd))
}

/// In a forked child: whether a descriptor is the only one of a connection of its parent's that a process of the child's own might have.
pub fn has_alone(fd: c_int) -> bool {
    is_forked() && child().as_ref().is_some_and(|child| child.has_alone(fd))
}

/// In a forked child: a process of its own, for a connection that its parent carries. `None`: there cannot be one, and none is tried again.
#[cold]
pub fn begins_for(fd: c_int) -> Option<&'static Process> {
    let child = is_forked().then(child)?;
    let (parent, permit) = child.as_ref()?.permit_for(fd)?;
    let begin = || Process::start_in_child(builder, parent, Some(&permit));
    start(false, begin).ok()
}

/// In a forked child: whether a descriptor was a listener of its parent's that a process of the child's own may have too.
pub fn may_serve(fd: c_int) -> bool {
    is_forked() && child().as_ref().is_some_and(|child| child.may_serve(fd))
}

/// In a forked child: whether a descriptor was a listener of its parent's that a process of the child's own may have once that has ended.
pub fn may_follow(fd: c_int) -> bool {
    is_forked() && child().as_ref().is_some_and(|child| child.may_follow(fd))
}

/// In a forked child: `listen` at what its parent has bound. `None`: it is nothing of that kind.
#[cold]
pub fn listens(fd: c_int, backlog: c_int) -> Option<Result<()>> {
    let mut child = is_forked().then(child)?;
    child.as_mut()?.listens(fd, backlog)
}

/// Whether a socket that is bound or connected to `at` is Janus's, as the settings say.
pub fn takes(at: SocketAddr) -> bool {
    static PLACES: OnceLock<Option<Places>> = OnceLock::new();
    match started() {
        Some(process) => process.handle().is_some_and(|handle| handle.takes(at)),
        // A device is made by that.
        None if BUILT_BY.get().is_some() => true,
        None => {
            let places = PLACES.get_or_init(|| Runtime::builder().places().ok());
            // Settings that are wrong are spoken of when the process is started.
            places.as_ref().is_none_or(|places| places.takes(at))
        }
    }
}

/// Bytes of address space that the process took when it was started, or its parent's; 0 before.
pub fn reserved() -> u64 {
    let process = started().or_else(parents);
    process.map_or(0, Process::reserved)
}

/// In a forked child: `bind` of a socket that is nowhere yet, which its parent makes for it. `None`: it is the kernel's.
#[cold]
pub fn binds(fd: c_int, at: SocketAddr) -> Option<Result<()>> {
    let mut child = is_forked().then(child)?;
    child.as_mut()?.binds(fd, at)
}

/// In a forked child: `connect` likewise, as far as it does not wait.
#[cold]
pub fn connects(fd: c_int, remote: SocketAddr) -> Option<Result<Attempt>> {
    let mut child = is_forked().then(child)?;
    child.as_mut()?.connects(fd, remote)
}

/// In a forked child: whether a descriptor was bound by its parent, and does not listen yet.
pub fn is_bound_only(fd: c_int) -> bool {
    is_forked()
        && child()
            .as_ref()
            .is_some_and(|child| child.is_bound_only(fd))
}

/// In a forked child: makes a descriptor that was a listener of its parent's one of a process of the child's own, if a daemon has the device or its parent
/// ends. False: it is what it was.
#[cold]
pub fn serves(fd: c_int) -> bool {
    let Some(parents) = parents() else {
        return false;
    };
    let started = |parent: &Handle, permit: Option<&Permit>| {
        start(true, || Process::start_in_child(builder, parent, permit))
    };
    let child = child();
    // Another thread may have been first.
    self::started().is_some_and(|process| process.has(fd))
        || (child.as_ref()).is_some_and(|child| child.serves(parents, fd, started).is_ok())
}

/// Whether this is a forked child without a process of its own, whose parent has ended, or is about to: it has left that one's session, as by
/// `daemon(3)`.
#[cold]
pub fn is_orphan() -> bool {
    let is_left = || child().as_ref().is_some_and(Child::is_orphan);
    // SAFETY: both take numbers.
    let leads = || unsafe { libc::getsid(0) == libc::getpid() };
    is_forked() && started().is_none() && (is_left() || leads())
}

/// Descriptors of listeners that [`serves`] may take.
pub fn servable() -> Vec<c_int> {
    child().as_ref().map(Child::servable).unwrap_or_default()
}

/// In a forked child: descriptors are closed, or others are put in their place.
#[cold]
pub fn child_closes(first: c_int, last: c_int) {
    let (Some(process), mut child) = (parents(), child()) else {
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
    let Some(process) = parents() else {
        return 0;
    };
    child().as_ref().map_or(0, |child| child.leaves(process))
}
