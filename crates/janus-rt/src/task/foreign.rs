//! Wakers of other executors on this thread: notes that one was woken, for the executor that runs beside this core's. Without the feature
//! `tokio` there is none, and nothing is noted.

#[cfg(feature = "tokio")]
thread_local! {
    static WOKEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Notes that the core has woken one.
#[inline]
pub(crate) fn woken() {
    #[cfg(feature = "tokio")]
    WOKEN.set(true);
}

/// Returns whether one was woken since the last call.
#[cfg(feature = "tokio")]
#[inline]
pub(crate) fn take_woken() -> bool {
    WOKEN.replace(false)
}
