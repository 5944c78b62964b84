//! How often each packet was handed from shard to shard, told by where its bytes lie.

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

/// A shard got these from a core that polls.
pub(crate) fn arrived(frames: &[Frame]) {
    HOPS.with_borrow_mut(|hops| {
        for frame in frames {
            hops.of.remove(&place(frame));
        }
    });
}

/// A shard hands this to another.
pub(crate) fn forwarded(frame: &Frame) {
    HOPS.with_borrow_mut(|hops| {
        let count = hops.of.entry(place(frame)).or_default();
        *count += 1;
        hops.most = hops.most.max(*count);
        hops.forwards += 1;
    });
}

/// The most that one packet has made, and all forwards, since the last call.
pub(crate) fn take() -> (u32, u64) {
    let hops = HOPS.take();
    (hops.most, hops.forwards)
}
