//! The processor time of the thread that measures.

use std::time::Duration;

/// How long this thread has run: what others do on the machine does not count.
pub fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The same in microseconds.
pub fn thread_time_us() -> f64 {
    thread_time().as_nanos() as f64 / 1e3
}
