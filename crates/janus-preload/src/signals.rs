//! Handlers of signals. The program's are called by ours, at once where its thread is outside of Janus, else when it leaves: a handler may
//! call in again. Those of faults are never put off. A signal that would kill the process kills it when what it owes has been delivered.

use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Once;

use janus_process::interrupts;
use libc::{c_int, c_void, sigaction as Action, sighandler_t, siginfo_t, sigset_t};

use crate::inside::{self, is_inside};
use crate::memory::{self, Handling};
use crate::{adopted, claimed, ends, real};

/// Signals are numbered from 1 to this.
const SIGNALS: usize = 64;
/// They are about the instruction that was interrupted, or about the library itself.
const AT_ONCE: [c_int; 8] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGPROF,
];
/// By default they end a process, and what sends them means it to end.
const FATAL: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// Actions that the program has installed, by signal; null where it never has. Each is made once and never changed: a handler may be reading it.
static ACTIONS: [AtomicPtr<Action>; SIGNALS + 1] =
    [const { AtomicPtr::new(null_mut()) }; SIGNALS + 1];

/// Signals whose handlers this thread has put off.
struct Due {
    /// A bit for each signal.
    signals: Cell<u64>,
    /// The process in which they came: a child that it forks has none of them.
    process: Cell<libc::pid_t>,
    infos: UnsafeCell<[siginfo_t; SIGNALS + 1]>,
}

impl Due {
    /// Those of this process.
    fn signals(&self) -> u64 {
        // SAFETY: the call takes nothing.
        let me = unsafe { libc::getpid() };
        match self.process.replace(me) == me {
            true => self.signals.get(),
            false => 0,
        }
    }
}

thread_local! {
    static DUE: Due = const { Due {
        signals: Cell::new(0),
        process: Cell::new(0),
        // SAFETY: the structure is plain data, for which zeros are a value.
        infos: UnsafeCell::new(unsafe { core::mem::zeroed() }),
    } };
}

type Handler = extern "C" fn(c_int);
type LongHandler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn is_handled(action: &Action) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

/// Called by the kernel in a handler's place.
extern "C" fn arrives(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = std::io::Error::last_os_error().raw_os_error();
    if is_inside() && !AT_ONCE.contains(&signal) {
        DUE.with(|due| {
            // SAFETY: the kernel gives one; the place is this thread's, and who reads it blocks signals meanwhile.
            unsafe { (*due.infos.get())[signal as usize] = *info };
            due.signals.set(due.signals() | 1 << (signal - 1));
        });
        interrupts::due();
    } else {
        let _handling = Handling::begin();
        handle(signal, info, context);
    }
    // SAFETY: the address is that of this thread's `errno`, which a handler leaves as it was.
    unsafe { *libc::__errno_location() = errno.unwrap_or(0) };
}

/// Calls the program's handler as if its thread were outside of Janus.
fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let action = ACTIONS[signal as usize].load(Ordering::Acquire);
    // SAFETY: what stands there is never changed or freed.
    let Some(action) = (unsafe { action.as_ref() }).filter(|action| is_handled(action)) else {
        return dies(signal);
    };
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        ACTIONS[signal as usize].store(null_mut(), Ordering::Release);
    }
    interrupts::handled(action.sa_flags & libc::SA_RESTART != 0);
    let outside = inside::Outside::step();
    // SAFETY: the program says that it is such a function.
    unsafe {
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: LongHandler = core::mem::transmute(action.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: Handler = core::mem::transmute(action.sa_sigaction);
            handler(signal);
        }
    }
    drop(outside);
}

/// Runs what was put off on this thread, each with the signals blocked that its handler wants blocked.
pub(crate) fn deliver() {
    let all = DUE.with(|due| due.signals() & due.signals.take());
    for signal in (1..=SIGNALS as c_int).filter(|signal| all & 1 << (signal - 1) != 0) {
        // SAFETY: the sets are plain data that the calls write; the info is copied while its signal is blocked.
        unsafe {
            let mut blocked: sigset_t = core::mem::zeroed();
            let action = ACTIONS[signal as usize].load(Ordering::Acquire).as_ref();
            if let Some(action) = action {
                blocked = action.sa_mask;
            }
            libc::sigaddset(&mut blocked, signal);
            let mut before: sigset_t = core::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before);
            let mut info = DUE.with(|due| (*due.infos.get())[signal as usize]);
            let mut context: libc::ucontext_t = core::mem::zeroed();
            if action.is_some_and(|action| action.sa_flags & libc::SA_NODEFER != 0) {
                let mut only: sigset_t = core::mem::zeroed();
                libc::sigaddset(&mut only, signal);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, null_mut());
            }
            handle(signal, &mut info, (&raw mut context).cast());
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        }
    }
}

/// Where the undertaker listens; -1 before there is one.
static UNDERTAKER: AtomicI32 = AtomicI32::new(-1);
/// The signal by which the process is to end; 0: by none.
static DEADLY: AtomicI32 = AtomicI32::new(0);
/// The process that it is in.
static BEGUN_IN: AtomicU32 = AtomicU32::new(0);

/// The process is to be killed by this signal: in order, by a thread of its own, as this one may hold anything.
fn dies(signal: c_int) {
    let undertaker = UNDERTAKER.load(Ordering::Acquire);
    if inside::is_forked() || undertaker < 0 {
        return die_at_once(signal);
    }
    // The first says how: others may follow before it is heard, and the bell adds up what is written.
    let _another = DEADLY.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Relaxed);
    let ring = 1_u64.to_ne_bytes();
    // SAFETY: so many bytes are there.
    unsafe { real::write(undertaker, ring.as_ptr().cast(), ring.len()) };
}

fn die_at_once(signal: c_int) {
    // SAFETY: the structures are plain data, of which zeros are the default and the empty set; the signal is let through, so that it
    // comes now.
    unsafe {
        let default: Action = core::mem::zeroed();
        real::sigaction(signal, &default, null_mut());
        let mut only: sigset_t = core::mem::zeroed();
        libc::sigaddset(&mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, null_mut());
        libc::kill(libc::getpid(), signal);
    }
}

/// Called once there is something to deliver: from here on handlers are put off, and a deadly signal waits for what is owed.
pub(crate) fn begin() {
    // A forked child has none of its parent's threads.
    let me = std::process::id();
    if BEGUN_IN.swap(me, Ordering::Relaxed) != me {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: the function is there for as long as the library is.
            unsafe {
                let (before, parent) = (inside::before_fork, inside::after_fork);
                libc::pthread_atfork(Some(before), Some(parent), Some(in_child))
            };
        });
        UNDERTAKER.store(-1, Ordering::Release);
        DEADLY.store(0, Ordering::Release);
        interrupts::delivered_by(deliver);
        janus_c::process::ended_by(ends::end);
        // SAFETY: the call takes numbers; what it gives has no other owner.
        let undertaker = unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC) {
                -1 => return,
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        let undertaker = janus_process::keep(undertaker).into_raw_fd();
        let bury = move || {
            let mut rung = [0; 8];
            // SAFETY: there is so much room.
            if unsafe { real::read(undertaker, rung.as_mut_ptr().cast(), rung.len()) } == 8 {
                janus_c::process::end();
                die_at_once(DEADLY.load(Ordering::Acquire));
            }
        };
        let thread = std::thread::Builder::new().name("janus-undertaker".into());
        if thread.spawn(bury).is_ok() {
            UNDERTAKER.store(undertaker, Ordering::Release);
            FATAL
                .iter()
                .for_each(|signal| stand_before_default(*signal));
        }
    }
}

extern "C" fn in_child() {
    memory::in_child();
    adopted::forget();
    claimed::has_no_thread();
    inside::after_fork();
}

/// Ours comes first where the program leaves a deadly signal to the kernel.
fn stand_before_default(signal: c_int) {
    // SAFETY: the actions are plain data; the calls read and write them.
    unsafe {
        let mut now: Action = core::mem::zeroed();
        if real::sigaction(signal, core::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_DFL
        {
            let mut ours: Action = core::mem::zeroed();
            ours.sa_sigaction = arrives as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
            real::sigaction(signal, &ours, null_mut());
        }
    }
}

/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let known = usize::try_from(signal).is_ok_and(|signal| (1..=SIGNALS).contains(&signal));
    // SAFETY: the caller keeps sigaction's contract; what stands in `ACTIONS` is never changed or freed.
    unsafe {
        if is_inside() || !known {
            return real::sigaction(signal, new, old);
        }
        let place = &ACTIONS[signal as usize];
        let before = place.load(Ordering::Acquire).as_ref().copied();
        let mut kernels: Action = core::mem::zeroed();
        let done = match new.as_ref() {
            None => real::sigaction(signal, core::ptr::null(), &mut kernels),
            Some(new) => {
                let mut given = *new;
                let stands_in = is_handled(new)
                    || (new.sa_sigaction == libc::SIG_DFL
                        && FATAL.contains(&signal)
                        && UNDERTAKER.load(Ordering::Acquire) >= 0);
                if stands_in {
                    given.sa_sigaction = arrives as *const () as usize;
                    given.sa_flags |= libc::SA_SIGINFO;
                    given.sa_flags &= !libc::SA_RESETHAND;
                }
                let kept = place.load(Ordering::Acquire);
                // Before the kernel may call it.
                place.store(keep(*new, kept), Ordering::Release);
                let done = real::sigaction(signal, &given, &mut kernels);
                if done != 0 {
                    place.store(kept, Ordering::Release);
                }
                done
            }
        };
        if let (0, Some(old)) = (done, old.as_mut()) {
            let ours = kernels.sa_sigaction == arrives as *const () as usize;
            *old = match (ours, before) {
                (true, Some(before)) => before,
                // Ours, where the program has never said anything.
                (true, None) => core::mem::zeroed(),
                (false, _) => kernels,
            };
        }
        done
    }
}

/// A copy for ever: handlers read it. The same again is the same copy.
fn keep(new: Action, kept: *mut Action) -> *mut Action {
    // SAFETY: what stands there is never changed or freed.
    if let Some(before) = unsafe { kept.as_ref() }
        && (before.sa_sigaction, before.sa_flags) == (new.sa_sigaction, new.sa_flags)
        && is_same_set(&before.sa_mask, &new.sa_mask)
    {
        return kept;
    }
    Box::into_raw(Box::new(new))
}

fn is_same_set(a: &sigset_t, b: &sigset_t) -> bool {
    // SAFETY: the calls read sets that are there.
    (1..=SIGNALS as c_int)
        .all(|signal| unsafe { libc::sigismember(a, signal) == libc::sigismember(b, signal) })
}

/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller keeps signal's contract; the actions are plain data.
    unsafe { install(signal, handler, libc::SA_RESTART) }
}

/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller keeps bsd_signal's contract.
    unsafe { install(signal, handler, libc::SA_RESTART) }
}

/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller keeps sysv_signal's contract.
    unsafe { install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER) }
}

/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller keeps its contract.
    unsafe { install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER) }
}

unsafe fn install(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    // SAFETY: the actions are plain data, for which zeros are a value; the caller keeps signal's contract.
    unsafe {
        let mut new: Action = core::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        if flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&mut new.sa_mask, signal);
        }
        let mut old: Action = core::mem::zeroed();
        match sigaction(signal, &new, &mut old) {
            0 => old.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}
