//! Many runs, as many at a time as the machine has cores. What never lives here: what a run is.

use super::{Tally, run};
use crate::net::for_each_seed;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Runs every seed of the range. A run that fails panics, after its seed and the file with its packets were named.
pub fn run_many(seeds: Range<u64>) -> Tally {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return tally;
            }
            let sum = std::cell::Cell::new(tally);
            for_each_seed("hostile", seed..seed + 1, |network| {
                let mut total = sum.get();
                total.add(&run(network));
                sum.set(total);
            });
            tally = sum.get();
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut total = Tally::default();
        for worker in workers {
            match worker.join() {
                Ok(tally) => total.add(&tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        total
    })
}
