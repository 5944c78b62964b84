//! Which processor a thread stays on. Best effort: where it is not allowed or not possible, the thread floats.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::config::Settings;

/// A processor's number.
pub(super) type Processor = usize;

/// A processor for each thread, or none for all.
pub(super) struct Plan {
    processors: Vec<Processor>,
    io_cores: usize,
}

/// Pins only when every thread can have a processor to itself.
pub(super) fn plan(settings: &Settings, io_cores: usize) -> Plan {
    let allowed = match sched_getaffinity(None) {
        Ok(set) if settings.pin => (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect(),
        _ => Vec::new(),
    };
    Plan {
        processors: allowed,
        io_cores,
    }
}

impl Plan {
    pub(super) fn io_core(&self, index: usize) -> Option<Processor> {
        self.processors.get(index).copied()
    }

    pub(super) fn shard(&self, index: usize) -> Option<Processor> {
        self.processors.get(self.io_cores + index).copied()
    }
}

/// Pins the calling thread.
pub(super) fn pin(processor: Option<Processor>) {
    let Some(processor) = processor else { return };
    let mut set = CpuSet::new();
    set.set(processor);
    let _ = sched_setaffinity(None, &set);
}
