//! Time in a test's hands: a runtime that was begun with `start_paused` has a clock that stands still while there is something to
//! do. Here it is moved, let go and stopped again, for all cores at once.

use std::future::poll_fn;
use std::task::Poll;

use super::{Duration, now};
use crate::clock::Paused;
use crate::shard::here;

/// Moves the clock of all cores by `time`, and goes on in a turn in which it reads so. What sleeps on this core until a moment that
/// has passed by then is awake, and will be polled; other cores are rung for.
///
/// A clock that stands jumps by itself to the next timer when nothing is left to do, so this is for what happens while there
/// is something.
///
/// # Panics
/// Where no Janus core runs, in a runtime that was not begun with `start_paused`, and while its clock runs ([`resume`]).
pub async fn advance(time: Duration) {
    let moved = clock("advance").advance(time);
    let reads = moved.expect("the clock runs (`time::resume`): only one that stands can be moved");
    // What has become due is polled before this goes on.
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

/// Stops a clock that [`resume`] let go; it stands where it is.
///
/// # Panics
/// Where no Janus core runs, in a runtime that was not begun with `start_paused`, and when the clock stands already.
pub fn pause() {
    assert!(clock("pause").pause(), "the clock stands already");
}

/// Lets the clock of all cores run as the machine's does.
///
/// # Panics
/// Where no Janus core runs, in a runtime that was not begun with `start_paused`, and when the clock runs already.
pub fn resume() {
    assert!(clock("resume").resume(), "the clock runs already");
}

fn clock(call: &str) -> &'static Paused {
    let clock = here::with(|here| here.shared.clock.jumps());
    let clock = clock.unwrap_or_else(|| panic!("time::{call} was called where no Janus core runs"));
    clock.unwrap_or_else(|| {
        panic!(
            "time::{call} needs a clock that can be stopped: begin the runtime with `start_paused`"
        )
    })
}
