#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod plain;

use std::sync::Arc;

use super::{Consumer, Descriptor, Producer, bytes_of_ring};
use crate::{Segment, Violation};

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

/// Puts in what there is room for; how many.
fn put(producer: &mut Producer, all: &[Descriptor]) -> Result<usize, Violation> {
    for (count, it) in all.iter().enumerate() {
        if !producer.put(*it)? {
            return Ok(count);
        }
    }
    Ok(all.len())
}

/// Takes out what is there, so many at most.
fn take(consumer: &mut Consumer, most: usize) -> Result<Vec<Descriptor>, Violation> {
    let mut all = Vec::new();
    while all.len() < most
        && let Some(it) = consumer.take()?
    {
        all.push(it);
    }
    Ok(all)
}
