//! Settings in force, as cores read them while a reload may change some.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Settings;

/// Shared by the cores of one runtime.
pub(crate) struct LiveSettings(Mutex<Arc<Settings>>);

impl LiveSettings {
    pub(crate) fn new(settings: Settings) -> LiveSettings {
        LiveSettings(Mutex::new(Arc::new(settings)))
    }

    pub(crate) fn get(&self) -> Arc<Settings> {
        self.lock().clone()
    }

    pub(crate) fn set(&self, settings: Settings) {
        *self.lock() = Arc::new(settings);
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Settings>> {
        // Only a pointer is ever replaced under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
