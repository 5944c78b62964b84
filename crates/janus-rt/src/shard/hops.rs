//! Counts how often each packet was forwarded from shard to shard; packets are recognized by their buffers' addresses.

use std::cell::RefCell;
use std::collections::HashMap;

use janus_mem::Frame;

#[derive(Default)]
struct Hops {
    of: HashMap<usize, u32>,
    most: u32,
    forwards: u64,
}

thread_local! {
    static HOPS: RefCell<Hops> = RefCell::default();
}

fn place(frame: &Frame) -> usize {
    frame.buf.bytes().as_ptr().addr()
}

/// Notes frames that a shard got from a polling core.
pub(crate) fn arrived(frames: &[Frame]) {
    HOPS.with_borrow_mut(|hops| {
        for frame in frames {
            hops.of.remove(&place(frame));
        }
    });
}

/// Notes a frame that a shard forwards to another.
pub(crate) fn forwarded(frame: &Frame) {
    HOPS.with_borrow_mut(|hops| {
        let count = hops.of.entry(place(frame)).or_default();
        *count += 1;
        hops.most = hops.most.max(*count);
        hops.forwards += 1;
    });
}

/// Returns the most forwards of one packet, and all forwards, since the last call.
pub(crate) fn take() -> (u32, u64) {
    let hops = HOPS.take();
    (hops.most, hops.forwards)
}
