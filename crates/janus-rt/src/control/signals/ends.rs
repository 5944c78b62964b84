//! SIGTERM and SIGINT end a runtime in order, unless the program has other plans for them, and end the process at once when they come
//! again. When no runtime is left that handles such a signal, its default action is back.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::Signal;

use super::{SIGNALS, Signals, SignalsState};
use crate::lock::Lock;

/// The signals that end a runtime.
const ENDING: [Signal; 2] = [Signal::TERM, Signal::INT];

/// Number of runtimes that handle each signal, whatever for.
static HANDLED: [AtomicU32; SIGNALS] = [const { AtomicU32::new(0) }; SIGNALS];
/// Signals that had their default action before a runtime handled them.
static TAKEN_OVER: [AtomicBool; SIGNALS] = [const { AtomicBool::new(false) }; SIGNALS];

/// Held while a runtime finds out whether a signal is handled elsewhere: two may begin at once.
static FINDING_OUT: Lock<()> = Lock::new(());

/// Returns the bit that stands for the signal `at`; there are 64, from 1 on.
pub(super) const fn bit(at: usize) -> u64 {
    1u64.rotate_left(at as u32)
}

/// Counts one more runtime that handles the signal `at`.
pub(super) fn is_handled(at: usize) {
    HANDLED[at].fetch_add(1, Ordering::AcqRel);
}

/// Counts one runtime less that handles it.
pub(super) fn is_handled_no_more(at: usize) {
    HANDLED[at].fetch_sub(1, Ordering::AcqRel);
}

impl Signals {
    /// Makes these signals end the runtime; each unless something in the process, not a runtime, handles or ignores it.
    pub(crate) fn end_the_runtime(&self) -> io::Result<()> {
        let _alone = FINDING_OUT.lock();
        for signal in ENDING {
            let number = signal.as_raw();
            let at = number as usize;
            if !TAKEN_OVER[at].load(Ordering::Acquire) {
                if !does_as_by_default(number) {
                    continue;
                }
                fall_back(at)?;
                TAKEN_OVER[at].store(true, Ordering::Release);
            }
            let mut state = self.state.lock();
            self.handle(&mut state, at)?;
            state.ends.insert(number, self.came(number));
        }
        Ok(())
    }

    /// Returns the name of the signal that has just come to end the runtime, if one has.
    pub(crate) fn ended_by(&self) -> Option<&'static str> {
        let mut state = self.state.lock();
        let SignalsState { ends, listened, .. } = &mut *state;
        let mut ended = None;
        for (number, seen) in &mut *ends {
            let came = self.came(*number);
            if std::mem::replace(seen, came) != came && !listened.contains(number) {
                ended = Some(*number);
            }
        }
        let number = ended?;
        // A second signal does not wait for any thread of ours.
        let again = ends
            .keys()
            .fold(0, |bits, number| bits | bit(*number as usize));
        self.board.last_words.store(again, Ordering::Release);
        Some(match Signal::from_named_raw(number) {
            Some(Signal::INT) => "SIGINT",
            _ => "SIGTERM",
        })
    }
}

/// Restores the default action of the signal `at` when no runtime handles it any more.
fn fall_back(at: usize) -> io::Result<()> {
    let handler = move || {
        if HANDLED[at].load(Ordering::Acquire) == 0 {
            // SAFETY: both may be called by a handler; the signal is delivered again when this one has returned.
            unsafe {
                libc::signal(at as i32, libc::SIG_DFL);
                libc::raise(at as i32);
            }
        }
    };
    // SAFETY: the handler reads an atomic and makes two system calls.
    unsafe { signal_hook_registry::register(at as i32, handler) }?;
    Ok(())
}

fn does_as_by_default(number: i32) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only asks, and `now` has room for the answer; all zeroes are a value of it, should there be none.
    let now = unsafe {
        libc::sigaction(number, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_DFL
}
