//! Threads on processors of their own: without that the scheduler's choices are in every figure.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// While it lives, its thread is on one processor.
pub(crate) struct Pinned(Option<CpuSet>);

/// Pins this thread to the `n`th processor it may use, counted round. Where that is not allowed it runs where it likes.
#[must_use]
pub(crate) fn pin(n: usize) -> Pinned {
    let Ok(allowed) = sched_getaffinity(None) else {
        return Pinned(None);
    };
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect();
    let mut one = CpuSet::new();
    if let Some(&cpu) = usable.get(n % usable.len().max(1)) {
        one.set(cpu);
    }
    Pinned(sched_setaffinity(None, &one).is_ok().then_some(allowed))
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Threads started later inherit it.
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(None, before);
        }
    }
}
