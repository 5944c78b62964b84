//! Idle connections: keep-alive (RFC 9293 section 3.8.4, RFC 1122 section 4.2.3.6)
//! the idle timeout, and readers that are to look at their clocks. No idle connection has a timer for it: a slow sweep goes
//! over all of them, a slice at a time, and only while some connection has options that ask for it.
//!
//! Nothing is stored either. When a connection was last heard and when its slice was last looked at say how many
//! questions have been asked since: each look asks at most one, and where it comes too late for several, the
//! connection's stamp is moved so that they count as one. So a peer is never given up before it was asked as
//! often as the options say (MUST-29), however seldom the sweep comes by.
//!
//! A pass is due when the first connection is, as far as the passes' cost allows: the times are exact to milliseconds
//! with a few thousand connections, and to half a second with a million.

use core::time::Duration;

use crate::rules::profile::SocketOptions;
use crate::store::cold::Tcb;

/// Connections looked at in one turn.
pub(crate) const SLICE: u32 = 2_048;
/// Most time between two slices of a pass: looking at one takes about 20 µs when nothing is due.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
/// Most time for a pass, from 41 million places on with less of a pause.
pub(crate) const PASS: Duration = Duration::from_secs(20);
/// Part of a pass's length that lies at least between it and the next.
pub(crate) const GAP: u32 = 4;

/// Parts of [`SocketOptions::wake_reader`] after which a reader that went on waiting is woken again.
const AGAIN: u32 = 8;

/// When to look again after a pass that met no connection that wants it.
pub(crate) const SEEN_NONE: Duration = Duration::from_secs(1);

/// Result of a look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Nothing to do before so many milliseconds.
    Wait(u32),
    /// To be asked whether it is there; the stamp of when it was last heard is to be so many milliseconds later.
    Ask(u32),
    /// Nothing was heard for too long.
    Gone,
}

/// Decides about a connection that was looked at `looked_ms` before.
pub(crate) fn verdict_of(
    cold: &Tcb,
    options: &SocketOptions,
    busy: bool,
    now_ms: u32,
    looked_ms: Option<u32>,
) -> Silence {
    let heard = cold.last_heard_ms;
    let silent = now_ms.wrapping_sub(heard);
    let mut wait = u32::MAX;
    if let Some(most) = options.idle_timeout {
        let most = millis(most);
        if silent >= most {
            return Silence::Gone;
        }
        wait = most - silent;
    }
    if !options.keepalive {
        return Silence::Wait(wait);
    }
    let (idle, interval) = (
        millis(options.keepalive_idle),
        millis(options.keepalive_interval),
    );
    if busy {
        return Silence::Wait(wait.min(idle));
    }
    let due = |silent: u32| {
        silent
            .checked_sub(idle)
            .map_or(0, |over| over / interval + 1)
    };
    let asked = match looked_ms.map(|looked| looked.wrapping_sub(heard)) {
        // Heard of since, or never looked at.
        None => 0,
        Some(before) if before as i32 <= 0 => 0,
        Some(silent) => due(silent),
    };
    let now_due = due(silent);
    if now_due <= asked {
        let next = u64::from(idle) + u64::from(interval) * u64::from(now_due);
        let next = u32::try_from(next)
            .unwrap_or(u32::MAX)
            .saturating_sub(silent);
        return Silence::Wait(wait.min(next));
    }
    let given_up = match options.user_timeout {
        Some(most) => asked > 0 && silent >= millis(most),
        None => asked >= u32::from(options.keepalive_count),
    };
    if given_up {
        return Silence::Gone;
    }
    Silence::Ask((now_due - asked - 1) * interval)
}

/// Whether a reader that was looked at `looked_ms` before is to be woken, and milliseconds until the next look.
pub(crate) fn judge_reader(
    most: u32,
    heard: u32,
    now_ms: u32,
    looked_ms: Option<u32>,
) -> (bool, u32) {
    let again = (most / AGAIN).max(1);
    // How often it is to have been woken in so long a silence.
    let wakes = |silent: u32| silent.checked_sub(most).map_or(0, |over| over / again + 1);
    let silent = now_ms.wrapping_sub(heard);
    let before = match looked_ms.map(|looked| looked.wrapping_sub(heard)) {
        // Heard of since, or never looked at.
        None => 0,
        Some(before) if before as i32 <= 0 => 0,
        Some(silent) => wakes(silent),
    };
    // A peer that is never silent so long, and has nothing to say.
    let round = looked_ms.is_some_and(|looked| looked / most != now_ms / most);
    let next = match silent.checked_sub(most) {
        None => most - silent,
        Some(over) => again - over % again,
    };
    (
        wakes(silent) > before || round,
        next.min(most - now_ms % most),
    )
}

/// The first that any of the options can ask for.
pub(crate) fn shortest(options: &SocketOptions) -> Duration {
    let keepalive = options.keepalive.then_some(options.keepalive_idle);
    let first = keepalive
        .into_iter()
        .chain(options.idle_timeout)
        .chain(options.wake_reader)
        .min();
    first.unwrap_or(Duration::MAX)
}

pub(crate) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}
