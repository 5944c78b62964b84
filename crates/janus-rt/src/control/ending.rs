//! How a runtime comes to its end, and what else all its cores share: who has ended, the first error, what happened
//! once. Everything here is rare; the loop only looks at one flag.

use std::collections::HashSet;
use std::panic::Location;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use janus_io::park::Unparker;

use super::mailbox::ControlMailbox;
use super::supervisor::Supervisor;
use crate::lock::Lock;

/// Error of a main, or of the runtime.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where a runtime stands on the way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
enum Stage {
    Serving = 0,
    /// The portal closes its doors; those inside, and those whom the kernel has let in, are served as before.
    ClosingDoors = 1,
    /// The doors are closed, and who was let in last stands inside, or waits to be accepted.
    DoorsClosed = 2,
    /// It takes no new connections, and ends when those it has are done.
    Closing = 3,
    Stopping = 4,
}

/// Shared by the cores of one runtime and its handles.
pub(crate) struct Ending {
    stage: AtomicU8,
    /// How long connections may go on after the runtime was told to shut down.
    within_ns: AtomicU64,
    /// Cores with connections that may go on.
    unfinished: AtomicUsize,
    mains: AtomicUsize,
    /// Cores that have not fallen.
    standing: AtomicUsize,
    /// Cores that still have something to send or to hear.
    unclosed: AtomicUsize,
    first_error: Lock<Option<BoxError>>,
    bells: Vec<Unparker>,
    /// Lines that [`once`](crate::once) was called from: bounded by the program's text.
    once: Lock<HashSet<&'static Location<'static>>>,
    /// Who wants to know when it serves and when it ends.
    pub(crate) supervisor: OnceLock<Supervisor>,
}

impl Ending {
    pub(crate) fn new(bells: Vec<Unparker>) -> Ending {
        Ending {
            stage: AtomicU8::new(Stage::Serving as u8),
            within_ns: AtomicU64::new(0),
            unfinished: AtomicUsize::new(bells.len()),
            mains: AtomicUsize::new(bells.len()),
            standing: AtomicUsize::new(bells.len()),
            unclosed: AtomicUsize::new(bells.len()),
            first_error: Lock::default(),
            bells,
            once: Lock::default(),
            supervisor: OnceLock::new(),
        }
    }

    pub(crate) fn cores(&self) -> usize {
        self.bells.len()
    }

    pub(crate) fn stop(&self) {
        if self.stage.swap(Stage::Stopping as u8, Ordering::AcqRel) != Stage::Stopping as u8 {
            self.tell_supervisor();
            self.ring();
        }
    }

    /// Begins the end: no new connections from outside; those there are may go on for so long. False when that was said
    /// before.
    pub(crate) fn close_doors(&self, within: Duration) -> bool {
        let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        // The first to say so decides; whoever sees the stage sees the time too.
        let first = self.within_ns.compare_exchange(
            0,
            within_ns.max(1),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        let begins = first.is_ok() && self.goes_on(Stage::Serving, Stage::ClosingDoors);
        if begins {
            self.tell_supervisor();
        }
        begins
    }

    /// No connection comes in from outside any more, nor is one on the way in.
    pub(crate) fn doors_closed(&self) {
        self.goes_on(Stage::ClosingDoors, Stage::DoorsClosed);
    }

    /// Tells the shards, and their tasks.
    pub(crate) fn close(&self) {
        if self.goes_on(Stage::DoorsClosed, Stage::Closing) {
            self.ring();
        }
    }

    fn goes_on(&self, from: Stage, to: Stage) -> bool {
        let (from, to) = (from as u8, to as u8);
        let changed = self
            .stage
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        changed.is_ok()
    }

    /// What was said with [`close_doors`](Ending::close_doors).
    pub(crate) fn within(&self) -> Duration {
        Duration::from_nanos(self.within_ns.load(Ordering::Acquire))
    }

    #[inline]
    fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Serving,
            1 => Stage::ClosingDoors,
            2 => Stage::DoorsClosed,
            3 => Stage::Closing,
            _ => Stage::Stopping,
        }
    }

    /// Shards and tasks have not been told that it ends.
    #[inline]
    pub(crate) fn serving(&self) -> bool {
        self.stage() < Stage::Closing
    }

    /// The end has not been asked for.
    pub(crate) fn is_open(&self) -> bool {
        self.stage() == Stage::Serving
    }

    /// The doors are being closed.
    pub(crate) fn is_closing_doors(&self) -> bool {
        self.stage() == Stage::ClosingDoors
    }

    /// The doors are closed, and shards and tasks do not know yet.
    pub(crate) fn is_behind_closed_doors(&self) -> bool {
        self.stage() == Stage::DoorsClosed
    }

    /// The runtime ends.
    pub(crate) fn stopping(&self) -> bool {
        self.stage() == Stage::Stopping
    }

    /// This core's connections are done, or had their time; with the last core the runtime stops.
    pub(crate) fn finished(&self) {
        if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.stop();
        }
    }

    /// One main has ended; the last one, or the first with an error, ends the runtime.
    pub(crate) fn main_ended(&self, result: Result<(), BoxError>) {
        let last = self.mains.fetch_sub(1, Ordering::AcqRel) == 1;
        match result {
            Err(error) => self.fail(error),
            // While connections finish, mains may end.
            Ok(()) if last && self.is_open() => self.stop(),
            Ok(()) => {}
        }
    }

    /// Something that ends the runtime with an error.
    pub(crate) fn fail(&self, error: BoxError) {
        self.remember(error);
        self.stop();
    }

    /// A core has lost its tasks. The others go on, and the runtime ends with the error when they have; with the last
    /// core it ends at once.
    pub(crate) fn fell(&self, main_over: bool, error: BoxError) {
        self.remember(error);
        if !main_over {
            self.main_ended(Ok(()));
        }
        if self.standing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.stop();
        }
    }

    fn remember(&self, error: BoxError) {
        self.first_error.lock().get_or_insert(error);
    }

    /// This core has nothing more to say; it goes on only for what other shards receive through it.
    pub(crate) fn closed(&self) {
        if self.unclosed.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ring();
        }
    }

    pub(crate) fn all_closed(&self) -> bool {
        self.unclosed.load(Ordering::Acquire) == 0
    }

    pub(crate) fn take_error(&self) -> Option<BoxError> {
        self.first_error.lock().take()
    }

    pub(crate) fn first_at(&self, place: &'static Location<'static>) -> bool {
        self.once.lock().insert(place)
    }

    fn tell_supervisor(&self) {
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.stopping();
        }
    }

    fn ring(&self) {
        for bell in &self.bells {
            bell.wake();
        }
    }
}

/// Reports, when it is dropped, that the portal's doors are closed behind the clients that were accepted: also when the thread that closes
/// them is gone.
pub(crate) struct LastIn {
    pub(crate) ending: Arc<Ending>,
    pub(crate) mailbox: Arc<ControlMailbox>,
}

impl Drop for LastIn {
    fn drop(&mut self) {
        self.ending.doors_closed();
        self.mailbox.ring();
    }
}
