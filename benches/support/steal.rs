//! When the machine was not the server's: intervals in which the host took the processor away (steal) or the kernel ran
//! something else while one of the runtime's threads wanted to run. What was measured in them says little of the server,
//! and is shown apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Length of an interval: two ticks in which the kernel counts what was stolen.
const INTERVAL: Duration = Duration::from_millis(20);
/// A thread that waited no longer than this within an interval was not disturbed.
const WAIT_MAX_NS: u64 = 200_000;
/// The runtime's threads begin so.
const OURS: &str = "janus-";

/// A piece of time, in nanoseconds from the origin.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    pub from_ns: u64,
    pub to_ns: u64,
    pub disturbed: bool,
}

/// A watch that is kept.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Interval>>,
}

impl Watch {
    pub fn start(origin: Instant) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut intervals = Vec::new();
            let mut last = Look::now(origin);
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(INTERVAL);
                let look = Look::now(origin);
                let waited = look.waited_ns.saturating_sub(last.waited_ns);
                intervals.push(Interval {
                    from_ns: last.at_ns,
                    to_ns: look.at_ns,
                    disturbed: look.stolen > last.stolen || waited > WAIT_MAX_NS,
                });
                last = look;
            }
            intervals
        });
        Self { stop, thread }
    }

    /// The intervals until now, in order.
    pub fn stop(self) -> Vec<Interval> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only looks")
    }
}

/// Whether the interval around a moment was disturbed; what lies before or after all of them counts as disturbed.
pub fn is_disturbed(intervals: &[Interval], at_ns: u64) -> bool {
    let at = intervals.partition_point(|interval| interval.to_ns <= at_ns);
    intervals
        .get(at)
        .is_none_or(|interval| interval.disturbed || at_ns < interval.from_ns)
}

struct Look {
    at_ns: u64,
    /// Ticks of all processors.
    stolen: u64,
    /// Time in which the runtime's threads were ready and did not run.
    waited_ns: u64,
}

impl Look {
    fn now(origin: Instant) -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let all = stat.lines().next().unwrap_or_default();
        let stolen = all.split_ascii_whitespace().nth(8);
        Self {
            at_ns: origin.elapsed().as_nanos() as u64,
            stolen: stolen.and_then(|ticks| ticks.parse().ok()).unwrap_or(0),
            waited_ns: waited_ns(),
        }
    }
}

fn waited_ns() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let ours = tasks.flatten().map(|task| task.path());
    let ours = ours.filter(|path| read(path.join("comm")).starts_with(OURS));
    ours.map(|path| {
        let text = read(path.join("schedstat"));
        let waited = text.split(' ').nth(1);
        waited.and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    })
    .sum()
}
