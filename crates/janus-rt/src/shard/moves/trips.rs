//! Panics that tests want in the middle of a move. Never here: what becomes of them.

use std::cell::{Cell, RefCell};

use janus_wire::FlowKey;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(0) };
    static LOST: RefCell<Vec<FlowKey>> = const { RefCell::new(Vec::new()) };
}

/// The step of a move after so many others panics, on this thread.
pub(crate) fn set(after: u32) {
    LEFT.set(after);
}

/// A step of this flow's move.
pub(super) fn stumble(flow: &FlowKey) {
    let left = LEFT.get();
    LEFT.set(left.saturating_sub(1));
    if left == 1 {
        note(flow);
        panic!("a test wants this core to fall");
    }
}

/// The flow is lost.
pub(super) fn note(flow: &FlowKey) {
    LOST.with_borrow_mut(|lost| lost.push(*flow));
}

/// Flows that were lost on their way since the last call.
pub(crate) fn take_lost() -> Vec<FlowKey> {
    LOST.take()
}
