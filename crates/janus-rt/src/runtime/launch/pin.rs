//! Pinning of threads to processors. Where no processor was named, best effort: if it is not allowed or not possible, the thread
//! floats. Where somebody did, it must be possible.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::config::{ConfigError, Settings};

/// A processor's number.
pub(super) type Processor = usize;

/// A processor for each thread, or none for all.
pub(super) struct Plan {
    io_cores: Vec<Processor>,
    shards: Vec<Processor>,
}

/// Those this process may run on; empty where the system does not say.
fn allowed() -> Vec<Processor> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

/// Whether the processors that were named are there.
pub(super) fn check(settings: &Settings) -> Result<(), ConfigError> {
    let allowed = allowed();
    let named = settings.cores.on.iter().flatten();
    match named.copied().find(|named| !allowed.contains(named)) {
        Some(missing) if !allowed.is_empty() => Err(ConfigError::value(
            "cores",
            format!("this process may not run on processor {missing}, but on {allowed:?}"),
        )),
        _ => Ok(()),
    }
}

/// Pins where it was said; else only when every thread can have a processor to itself.
pub(super) fn plan(settings: &Settings, io_cores: usize) -> Plan {
    let mut allowed = allowed();
    if let Some(named) = &settings.cores.on {
        allowed.retain(|processor| !named.contains(processor));
        // I/O cores get what is left, if it is enough for all of them.
        allowed.truncate(if allowed.len() >= io_cores {
            io_cores
        } else {
            0
        });
        return Plan {
            io_cores: allowed,
            shards: named.clone(),
        };
    }
    if !settings.pin {
        allowed.clear();
    }
    Plan {
        shards: allowed.split_off(io_cores.min(allowed.len())),
        io_cores: allowed,
    }
}

impl Plan {
    pub(super) fn io_core(&self, index: usize) -> Option<Processor> {
        self.io_cores.get(index).copied()
    }

    pub(super) fn shard(&self, index: usize) -> Option<Processor> {
        self.shards.get(index).copied()
    }
}

/// Pins the calling thread.
pub(super) fn pin(processor: Option<Processor>) {
    let Some(processor) = processor.filter(|processor| *processor < CpuSet::MAX_CPU) else {
        return;
    };
    let mut set = CpuSet::new();
    set.set(processor);
    let _ = sched_setaffinity(None, &set);
}
