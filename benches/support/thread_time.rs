//! The processor time of the thread that measures.

/// Microseconds that this thread has run: what others do on the machine does not count.
pub fn thread_time_us() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}
