//! Wakers that are no task of this core's: that one was woken is worth knowing to whoever else runs tasks on this thread.
//! Without the feature `tokio` nobody does, and nothing is noted.

#[cfg(feature = "tokio")]
thread_local! {
    static WOKEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The core has woken one.
#[inline]
pub(crate) fn woken() {
    #[cfg(feature = "tokio")]
    WOKEN.set(true);
}

/// Whether it has since this was asked the last time.
#[cfg(feature = "tokio")]
#[inline]
pub(crate) fn take_woken() -> bool {
    WOKEN.replace(false)
}
