//! Settings in force, as cores read them while a reload may change some.

use std::sync::Arc;

use super::Settings;
use crate::lock::Lock;

/// Shared by the cores of one runtime.
pub(crate) struct LiveSettings(Lock<Arc<Settings>>);

impl LiveSettings {
    pub(crate) fn new(settings: Settings) -> LiveSettings {
        LiveSettings(Lock::new(Arc::new(settings)))
    }

    pub(crate) fn get(&self) -> Arc<Settings> {
        self.0.lock().clone()
    }

    pub(crate) fn set(&self, settings: Settings) {
        *self.0.lock() = Arc::new(settings);
    }
}
