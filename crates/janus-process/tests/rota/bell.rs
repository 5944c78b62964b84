//! Bells whose sleepers the model checker knows of.

use std::time::Duration;

use loom::lazy_static;
use loom::sync::{Arc, Condvar, Mutex};

use crate::Result;
use crate::held::Held;
use crate::kernel::Watched;
use crate::sleep::Slept;

lazy_static! {
    /// Which bells ring; one lock, as a thread can wait for two of them.
    static ref RINGING: Mutex<Vec<bool>> = Mutex::new(Vec::new());
    static ref RANG: Condvar = Condvar::new();
}

/// A bell is its place among all.
pub(crate) struct Bell(usize);

/// A core's.
pub(crate) type Waker = Arc<Bell>;

impl Bell {
    pub(crate) fn new() -> Result<Bell> {
        let mut all = RINGING.lock().unwrap();
        all.push(false);
        Ok(Bell(all.len() - 1))
    }

    pub(crate) fn ring(&self) {
        RINGING.lock().unwrap()[self.0] = true;
        RANG.notify_all();
    }

    pub(crate) fn clear(&self) {
        RINGING.lock().unwrap()[self.0] = false;
    }

    /// No time passes here: who waits is rung.
    pub(crate) fn wait(
        &self,
        also: &[Waker],
        _kernel: &mut [Watched],
        _limit: Option<Duration>,
        _held: Option<&Held>,
    ) -> Result<Slept> {
        let mut all = RINGING.lock().unwrap();
        while !all[self.0] && !also.iter().any(|bell| all[bell.0]) {
            all = RANG.wait(all).unwrap();
        }
        Ok(Slept::Awake)
    }
}
