//! Messages from other threads to a shard: wake a task, close a handle that was dropped elsewhere, run a closure. A bounded
//! lock-free ring carries the messages; when it is full they spill into a list under a lock, so none is lost and no
//! sender waits. Packets never travel here.
//!
//! One sender's messages arrive in the order they were sent: while anything is spilled senders spill too, and the
//! receiver takes the spilled ones only when the ring is empty.

mod identity;
mod task_ref;
mod word;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use janus_io::mpsc::{self, SendError};
use janus_tcp::ConnId;

use crate::lock::Lock;

pub(crate) use identity::{Owner, ShardIdentity, deliver};
pub(crate) use task_ref::TaskRef;
pub(crate) use word::{GENERATION_MAX, GRANULE_BITS, WakeWord};

/// Messages the ring holds before they spill.
pub(crate) const RING: u32 = 1024;
/// Wakes the spill holds before they become one "wake everything": a wake too many is legal, a lost one is not.
pub(crate) const SPILLED_WAKES_MAX: usize = if cfg!(miri) { 1 << 8 } else { 1 << 16 };
/// Closures the spill holds before it refuses more.
pub(crate) const SPILLED_RUNS_MAX: usize = if cfg!(miri) { 1 << 8 } else { 1 << 16 };

/// Code to run on the shard's thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// One thing to do.
pub(crate) enum Message {
    /// Wake the task of this word, if it is still that task.
    Wake(WakeWord),
    /// Wake every task: more wakes came than the spill holds.
    WakeAll,
    /// The handle of a connection was dropped on another thread. `life` tells this shard from earlier ones that had
    /// its number.
    Close { conn: ConnId, life: u16 },
    /// The handle of a task was dropped on another thread.
    Detach(TaskRef),
    /// A task is to end.
    Abort(TaskRef),
    /// Run this here.
    Run(Job),
}

/// Why a closure was not taken. It is dropped by the sender, so that whatever it holds knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The shard is gone.
    Closed,
    /// [`SPILLED_RUNS_MAX`] closures wait already.
    Full,
}

/// How often something happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InboxCounters {
    /// Messages that found the ring full (or others spilled before them).
    pub(crate) spilled: u64,
    /// Wakes that were merged into "wake everything".
    pub(crate) wakes_merged: u64,
    /// Closures refused because too many waited.
    pub(crate) runs_refused: u64,
}

#[derive(Default)]
struct Spill {
    messages: VecDeque<Message>,
    /// A set, as one task may be aborted any number of times.
    aborts: BTreeSet<TaskRef>,
    wakes: usize,
    runs: usize,
    wake_all: bool,
    closed: bool,
}

/// The senders' side; shared by all of them.
pub(crate) struct Inbox {
    ring: mpsc::Sender<Message>,
    spill: Lock<Spill>,
    /// Something is in `spill`. Set and cleared under its lock.
    spilling: AtomicBool,
    /// Called after every message, when it can be seen: wakes the shard's thread if it sleeps.
    unpark: Box<dyn Fn() + Send + Sync>,
    spilled: AtomicU64,
    wakes_merged: AtomicU64,
    runs_refused: AtomicU64,
}

/// The shard's side.
pub(crate) struct InboxReader {
    ring: mpsc::Receiver<Message>,
    shared: Arc<Inbox>,
}

impl InboxReader {
    /// An inbox whose senders call `unpark` after each message. It must be cheap while the shard is awake.
    pub(crate) fn new(unpark: impl Fn() + Send + Sync + 'static) -> InboxReader {
        let (sender, ring) = mpsc::inbox(RING);
        let shared = Arc::new(Inbox {
            ring: sender,
            spill: Lock::default(),
            spilling: AtomicBool::new(false),
            unpark: Box::new(unpark),
            spilled: AtomicU64::new(0),
            wakes_merged: AtomicU64::new(0),
            runs_refused: AtomicU64::new(0),
        });
        InboxReader { ring, shared }
    }

    /// The other side, for whoever sends.
    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.shared
    }

    /// Nothing waits. Asked before going to sleep, after the unpark hook has been armed.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty() && !self.shared.spilling.load(Ordering::Acquire)
    }

    /// Takes the next message.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Message> {
        if let Some(message) = self.ring.pop() {
            return Some(message);
        }
        if !self.shared.spilling.load(Ordering::Acquire) {
            return None;
        }
        self.pop_spilled()
    }

    #[cold]
    fn pop_spilled(&mut self) -> Option<Message> {
        let mut spill = self.shared.spill.lock();
        // What entered the ring before the first message spilled comes first. A sender that is still writing hides
        // it; that sender calls `unpark` when it is done, and `spilling` keeps this inbox from looking empty.
        if self.ring.waiting() > 0 {
            return self.ring.pop();
        }
        if spill.wake_all {
            spill.wake_all = false;
            return Some(Message::WakeAll);
        }
        let abort = spill.aborts.pop_first().map(Message::Abort);
        let message = abort.or_else(|| spill.messages.pop_front());
        match &message {
            Some(Message::Wake(_)) => spill.wakes -= 1,
            Some(Message::Run(_)) => spill.runs -= 1,
            _ => {}
        }
        if spill.messages.is_empty() && spill.aborts.is_empty() {
            self.shared.spilling.store(false, Ordering::Release);
        }
        message
    }
}

impl Drop for InboxReader {
    fn drop(&mut self) {
        let left = {
            let mut spill = self.shared.spill.lock();
            spill.closed = true;
            std::mem::take(&mut spill.messages)
        };
        // Outside the lock: closures that never ran are dropped, and may send.
        drop(left);
        while let Some(message) = self.ring.pop() {
            drop(message);
        }
    }
}

impl Inbox {
    /// Wakes a task of this shard.
    pub(crate) fn wake(&self, word: WakeWord) {
        // To a shard that is gone: nothing to wake.
        let _ = self.send(Message::Wake(word));
    }

    /// Says that a handle was dropped on another thread.
    pub(crate) fn close(&self, conn: ConnId, life: u16) {
        // A shard that is gone has closed everything.
        let _ = self.send(Message::Close { conn, life });
    }

    /// Says that the handle of a task was dropped on another thread.
    pub(crate) fn detach(&self, task: TaskRef) {
        // A shard that is gone has dropped every task.
        let _ = self.send(Message::Detach(task));
    }

    /// Has a task end.
    pub(crate) fn abort(&self, task: TaskRef) {
        // As above.
        let _ = self.send(Message::Abort(task));
    }

    /// Runs `job` on the shard's thread.
    pub(crate) fn run(&self, job: Job) -> Result<(), Refused> {
        match self.send(Message::Run(job)) {
            Ok(()) => Ok(()),
            Err(SendError::Closed(_)) => Err(Refused::Closed),
            Err(SendError::Full(_)) => Err(Refused::Full),
        }
    }

    /// Runs `job` on the shard's thread, or gives it back.
    pub(crate) fn offer(&self, job: Job) -> Result<(), Job> {
        match self.send(Message::Run(job)) {
            Ok(()) => Ok(()),
            Err(SendError::Closed(Message::Run(job)) | SendError::Full(Message::Run(job))) => {
                Err(job)
            }
            Err(_) => unreachable!("a job was sent"),
        }
    }

    pub(crate) fn counters(&self) -> InboxCounters {
        InboxCounters {
            spilled: self.spilled.load(Ordering::Relaxed),
            wakes_merged: self.wakes_merged.load(Ordering::Relaxed),
            runs_refused: self.runs_refused.load(Ordering::Relaxed),
        }
    }

    fn send(&self, message: Message) -> Result<(), SendError<Message>> {
        let message = if self.spilling.load(Ordering::Acquire) {
            message
        } else {
            match self.ring.send(message) {
                Ok(()) => {
                    (self.unpark)();
                    return Ok(());
                }
                Err(SendError::Full(message)) => message,
                Err(closed) => return Err(closed),
            }
        };
        self.spill(message)?;
        (self.unpark)();
        Ok(())
    }

    #[cold]
    fn spill(&self, message: Message) -> Result<(), SendError<Message>> {
        let mut spill = self.spill.lock();
        if spill.closed {
            return Err(SendError::Closed(message));
        }
        match &message {
            Message::Wake(_) if spill.wakes >= SPILLED_WAKES_MAX => {
                self.wakes_merged.fetch_add(1, Ordering::Relaxed);
                spill.wake_all = true;
                return Ok(());
            }
            Message::Run(_) if spill.runs >= SPILLED_RUNS_MAX => {
                self.runs_refused.fetch_add(1, Ordering::Relaxed);
                return Err(SendError::Full(message));
            }
            Message::Wake(_) => spill.wakes += 1,
            Message::Run(_) => spill.runs += 1,
            // Each handle closes once, so closes are bounded by handles.
            Message::Close { .. } | Message::Detach(_) | Message::Abort(_) | Message::WakeAll => {}
        }
        match message {
            // Is there already.
            Message::Abort(task) if !spill.aborts.insert(task) => return Ok(()),
            Message::Abort(_) => {}
            message => spill.messages.push_back(message),
        }
        self.spilled.fetch_add(1, Ordering::Relaxed);
        self.spilling.store(true, Ordering::Release);
        Ok(())
    }
}
