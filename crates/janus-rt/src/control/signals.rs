//! The process's signals, for one runtime. A handler records that its signal came and rings the control thread, which wakes the tasks that
//! wait for it: all that is done inside a handler is two stores and the bell's write. The bell's own descriptor takes the place of the
//! usual self-pipe. Signals that end a runtime are `ends.rs` below.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use signal_hook_registry::SigId;

use super::mailbox::ControlMailbox;
use crate::lock::Lock;

mod ends;

/// Signal numbers there are (SIGRTMAX is 64).
const SIGNALS: usize = 65;

/// One for each runtime.
pub(crate) struct Signals {
    board: Arc<Board>,
    mailbox: Arc<ControlMailbox>,
    state: Lock<SignalsState>,
    next_listener: AtomicU64,
}

/// State that handlers write.
struct Board {
    /// Number of times each signal came.
    came: [AtomicU32; SIGNALS],
    news: AtomicBool,
    /// Signals that end the process at once, as bits ([`ends::bit`]): set when one of them has told the runtime to end.
    last_words: AtomicU64,
}

#[derive(Default)]
struct SignalsState {
    /// Signals whose handlers are in place.
    handled: BTreeMap<i32, SigId>,
    /// Signals that a task has listened for. From then on they are the program's affair.
    listened: BTreeSet<i32>,
    /// Signals that end the runtime, and how often each had come at the last look.
    ends: BTreeMap<i32, u32>,
    /// Waiting tasks, by listener: at most one waker for each.
    waiting: BTreeMap<u64, Waker>,
}

impl Signals {
    pub(crate) fn new(mailbox: Arc<ControlMailbox>) -> Signals {
        Signals {
            board: Arc::new(Board {
                came: [const { AtomicU32::new(0) }; SIGNALS],
                news: AtomicBool::new(false),
                last_words: AtomicU64::new(0),
            }),
            mailbox,
            state: Lock::default(),
            next_listener: AtomicU64::new(0),
        }
    }

    /// Counts `number` from now on, instead of its default action. Returns a number for the listener.
    pub(crate) fn listen(&self, number: i32) -> io::Result<u64> {
        let at = usize::try_from(number).ok().filter(|at| *at < SIGNALS);
        let Some(at) = at.filter(|_| !signal_hook_registry::FORBIDDEN.contains(&number)) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("signal {number} cannot be waited for"),
            ));
        };
        let mut state = self.state.lock();
        self.handle(&mut state, at)?;
        state.listened.insert(number);
        Ok(self.next_listener.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts the signal `at` from now on.
    fn handle(&self, state: &mut SignalsState, at: usize) -> io::Result<()> {
        if let Entry::Vacant(place) = state.handled.entry(at as i32) {
            let (board, mailbox) = (self.board.clone(), self.mailbox.clone());
            let handler = move || {
                if board.last_words.load(Ordering::Acquire) & ends::bit(at) != 0 {
                    // SAFETY: it ends the process, and may be called by a handler.
                    unsafe { libc::_exit(128 + at as i32) }
                }
                board.came[at].fetch_add(1, Ordering::AcqRel);
                board.news.store(true, Ordering::Release);
                mailbox.ring();
            };
            // SAFETY: the handler only does what a signal handler may: atomics, and at most one write to an eventfd by a
            // system call of its own. It allocates, frees and locks nothing, and leaves `errno` alone.
            let id = unsafe { signal_hook_registry::register(at as i32, handler) }?;
            ends::is_handled(at);
            place.insert(id);
        }
        Ok(())
    }

    /// Returns how often `number`, which is listened for, has come.
    pub(crate) fn came(&self, number: i32) -> u32 {
        self.board.came[number as usize].load(Ordering::Acquire)
    }

    /// Wakes `waker` at the next signal, whichever it is. To be followed by a look at [`came`](Signals::came).
    pub(crate) fn wait(&self, listener: u64, waker: &Waker) {
        let old = self.state.lock().waiting.insert(listener, waker.clone());
        // Outside the lock: dropping a foreign waker may run any code.
        drop(old);
    }

    /// Forgets a listener that is gone.
    pub(crate) fn forget(&self, listener: u64) {
        let old = self.state.lock().waiting.remove(&listener);
        drop(old);
    }

    /// Wakes the waiting tasks if a signal came. For the control thread.
    pub(crate) fn deliver(&self) {
        if !self.board.news.swap(false, Ordering::AcqRel) {
            return;
        }
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        waiting.into_values().for_each(Waker::wake);
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let state = self.state.lock();
        for (number, id) in &state.handled {
            signal_hook_registry::unregister(*id);
            ends::is_handled_no_more(*number as usize);
        }
    }
}
