#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod plain;

use std::sync::Arc;

use super::{Consumer, Descriptor, Producer, bytes_of_ring};
use crate::Segment;

fn ring(log2: u8) -> (Producer, Consumer, Arc<Segment>) {
    let segment = Arc::new(Segment::create("test", bytes_of_ring(log2) as usize).unwrap());
    let producer = Producer::new(segment.clone(), 0, log2).unwrap();
    let consumer = Consumer::new(segment.clone(), 0, log2).unwrap();
    (producer, consumer, segment)
}

fn numbered(from: u32, count: usize) -> Vec<Descriptor> {
    let numbers = (from..).take(count);
    numbers
        .map(|tag| Descriptor {
            offset: u64::from(tag) << 20 | 1 << 50,
            len: !tag,
            tag,
        })
        .collect()
}
