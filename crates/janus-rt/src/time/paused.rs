//! Control of a test's clock: in a runtime begun with `start_paused` the clock stands still while there is something to do. Here it is
//! moved, resumed and stopped again, for all cores at once.

use std::future::poll_fn;
use std::task::Poll;

use super::{Duration, now};
use crate::clock::Paused;
use crate::shard::core_context;

/// Moves the clock of all cores by `time`, and returns in a turn in which it reads so. Tasks of this core whose sleep has ended by then
/// are awake, and will be polled; other cores are woken.
///
/// A clock that stands jumps by itself to the next timer when nothing is left to do, so this function is for tests in which something is
/// left to do.
///
/// ```
/// use janus::time::{Duration, advance, now};
/// # janus::Runtime::builder().ignore_environment().cores(1).start_paused(true).build()?.run(|| async {
/// let before = now();
/// advance(Duration::from_secs(3600)).await;
/// assert_eq!(now(), before + Duration::from_secs(3600));
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When no Janus core runs on this thread, in a runtime that was not begun with `start_paused`, and while its clock runs ([`resume`]).
///
/// # Cancel safety
/// The clock has moved after the first poll, also when the future is dropped.
pub async fn advance(time: Duration) {
    let moved = clock("advance").advance(time);
    let reads = moved.expect("the clock runs (`time::resume`): only one that stands can be moved");
    // Tasks whose timers are due are polled first.
    crate::task::yield_now().await;
    poll_fn(|cx| {
        if now() >= reads {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Stops a clock that [`resume`] started.
///
/// # Panics
/// When no Janus core runs on this thread, in a runtime that was not begun with `start_paused`, and when the clock stands already.
pub fn pause() {
    assert!(clock("pause").pause(), "the clock stands already");
}

/// Starts the clock of all cores; it runs at the speed of the machine's.
///
/// # Panics
/// When no Janus core runs on this thread, in a runtime that was not begun with `start_paused`, and when the clock runs already.
pub fn resume() {
    assert!(clock("resume").resume(), "the clock runs already");
}

fn clock(call: &str) -> &'static Paused {
    let clock = core_context::with(|ctx| ctx.shared.clock.jumps());
    let clock = clock.unwrap_or_else(|| panic!("time::{call} was called where no Janus core runs"));
    clock.unwrap_or_else(|| {
        panic!(
            "time::{call} needs a clock that can be stopped: begin the runtime with `start_paused`"
        )
    })
}
