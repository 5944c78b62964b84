//! `signal` under the model checker: a bit on a line that several signals can share, as `ppoll` waits for several descriptors.

use std::io;

use super::{AWAKE, Bell, Parker, Woken};
use crate::sync::{Arc, AtomicU32};

/// A bit on a line.
pub(super) struct Signal {
    line: Arc<Line>,
    bit: u32,
}

struct Line {
    set: loom::sync::Mutex<u32>,
    changed: loom::sync::Condvar,
}

impl Signal {
    pub(super) fn new() -> io::Result<Self> {
        let line = Arc::new(Line {
            set: loom::sync::Mutex::new(0),
            changed: loom::sync::Condvar::new(),
        });
        Ok(Self { line, bit: 1 })
    }

    pub(super) fn set(&self) {
        *self.line.set.lock().unwrap() |= self.bit;
        self.line.changed.notify_one();
    }

    pub(super) fn clear(&self) {
        *self.line.set.lock().unwrap() &= !self.bit;
    }

    /// For any signal on the line.
    fn wait(&self) -> io::Result<Woken> {
        let mut set = self.line.set.lock().unwrap();
        while *set == 0 {
            set = self.line.changed.wait(set).unwrap();
        }
        Ok(Woken::Event)
    }
}

impl Parker {
    /// Sleeps until rung, without descriptors and time.
    pub fn park(&mut self, has_work: impl FnOnce() -> bool) -> io::Result<Woken> {
        self.park_with(has_work, |signal| signal.wait())
    }

    /// A device's bell, that this parker sleeps on too.
    pub(super) fn device_bell(&self) -> Bell {
        let signal = Signal {
            line: self.bell.signal.line.clone(),
            bit: 2,
        };
        Bell {
            state: AtomicU32::new(AWAKE),
            signal,
        }
    }
}
