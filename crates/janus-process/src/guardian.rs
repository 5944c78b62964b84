//! The guardian's thread; what it does is in `watch`.

use crate::core::Core;
use crate::rota::Turns;
use crate::sleep::Sleeper;
use crate::sync::{Arc, Builder, JoinHandle};
use crate::{Errno, Result};

/// Looks in a row that find the core asleep, until it sleeps too.
const QUIET_LOOKS: u32 = 32;

pub(crate) struct Guardian {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Guardian {
    pub(crate) fn start(core: Arc<Core>) -> Result<Guardian> {
        let me = Sleeper::new()?;
        core.lock().sleepers().has_guardian(me.clone());
        let watched = core.clone();
        let thread = Builder::new().name("janus-guardian".into());
        let thread = thread
            .spawn(move || watched.rota.watch(&me, QUIET_LOOKS))
            .map_err(|_| Errno::EAGAIN)?;
        Ok(Guardian {
            core,
            thread: Some(thread),
        })
    }
}

/// Ends the thread.
impl Drop for Guardian {
    fn drop(&mut self) {
        self.core.lock().sleepers().let_guardian_go();
        if let Some(thread) = self.thread.take() {
            // It has printed why, if it panicked.
            let _ = thread.join();
        }
    }
}
