//! Rings of descriptors between one producer and one consumer, in a segment that both map. Each side keeps its own index to itself and publishes it;
//! the other's is read once for a burst, and believed only as far as the ring goes. Checked by loom.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::segment::{Word, fence};
use crate::{Segment, Violation};

#[cfg(test)]
mod tests;

/// Bytes before the entries: each index, and the word of who sleeps, in a cache line pair of its own.
const HEADER: u64 = 384;
const TAIL: u64 = 0;
const HEAD: u64 = 128;
const ASLEEP: u64 = 256;
const ENTRY: u64 = 16;
/// Entries of the largest ring, as a power of two.
const LOG2_MAX: u8 = 20;

/// A piece of memory, or a word about one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Where it is, in a segment that both know.
    pub offset: u64,
    /// How long.
    pub len: u32,
    /// A meaning that the two have agreed on.
    pub tag: u32,
}

impl Descriptor {
    /// In a tag: the frame comes from another member, and has crossed no device.
    pub const INSIDE: u32 = 1;
    /// In a tag: the frame may be for another member of a group. One that has no use for it sends it back with this in its tag, and answers
    /// nothing.
    pub const RETURNS: u32 = 2;
}

/// Bytes that a ring of `1 << log2` entries takes.
#[must_use]
pub fn bytes_of_ring(log2: u8) -> u64 {
    HEADER + (ENTRY << log2.min(LOG2_MAX))
}

/// A ring's place.
#[derive(Clone, Debug)]
struct Place {
    segment: Arc<Segment>,
    offset: u64,
    entries: u32,
}

impl Place {
    fn new(segment: Arc<Segment>, offset: u64, log2: u8) -> Result<Place, Violation> {
        let len = bytes_of_ring(log2);
        segment.check(offset, len)?;
        if log2 > LOG2_MAX || !offset.is_multiple_of(64) {
            return Err(Violation::Outside { offset, len });
        }
        Ok(Place {
            segment,
            offset,
            entries: 1 << log2,
        })
    }

    fn word(&self, at: u64) -> &Word {
        let word = self.segment.word(self.offset + at);
        word.expect("its place was checked when it was made")
    }

    fn entry(&self, index: u32) -> u64 {
        let at = index & (self.entries - 1);
        self.offset + HEADER + ENTRY * u64::from(at)
    }

    fn read(&self, index: u32) -> Result<Descriptor, Violation> {
        let mut bytes = [0; ENTRY as usize];
        self.segment.read(self.entry(index), &mut bytes)?;
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let low = |at| u64::from(word(at));
        // In the order of this machine's bytes, as both sides are on it.
        let offset = match cfg!(target_endian = "little") {
            true => low(0) | low(4) << 32,
            false => low(4) | low(0) << 32,
        };
        Ok(Descriptor {
            offset,
            len: word(8),
            tag: word(12),
        })
    }

    fn write(&self, index: u32, it: Descriptor) -> Result<(), Violation> {
        let mut bytes = [0; ENTRY as usize];
        bytes[..8].copy_from_slice(&it.offset.to_ne_bytes());
        bytes[8..12].copy_from_slice(&it.len.to_ne_bytes());
        bytes[12..].copy_from_slice(&it.tag.to_ne_bytes());
        self.segment.write(self.entry(index), &bytes)
    }

    /// How many entries are between two indices.
    fn between(&self, head: u32, tail: u32, theirs: u32, ours: u32) -> Result<u32, Violation> {
        let held = tail.wrapping_sub(head);
        match held <= self.entries {
            true => Ok(held),
            false => Err(Violation::Index { theirs, ours }),
        }
    }
}

/// The end that puts in.
#[derive(Debug)]
pub struct Producer {
    place: Place,
    /// Of the next entry.
    tail: u32,
    /// Likewise, as the consumer may know it.
    shown: u32,
    /// Likewise, as it was when the consumer was last asked whether it sleeps.
    told: u32,
    /// The consumer's as it was last seen.
    head: u32,
}

/// The end that takes out.
#[derive(Debug)]
pub struct Consumer {
    place: Place,
    head: u32,
    tail: u32,
}

impl Producer {
    /// Of a ring at this place, that is empty.
    ///
    /// # Errors
    /// [`Violation::Outside`].
    pub fn new(segment: Arc<Segment>, offset: u64, log2: u8) -> Result<Producer, Violation> {
        Ok(Producer {
            place: Place::new(segment, offset, log2)?,
            tail: 0,
            shown: 0,
            told: 0,
            head: 0,
        })
    }

    /// Entries that there is room for.
    ///
    /// # Errors
    /// [`Violation::Index`].
    #[inline]
    pub fn room(&mut self) -> Result<u32, Violation> {
        let head = self.place.word(HEAD).load(Ordering::Acquire);
        let held = self.place.between(head, self.tail, head, self.tail)?;
        // Only what was checked: what is known is relied on later.
        self.head = head;
        Ok(self.place.entries - held)
    }

    /// Likewise, or so many of them. The consumer's index is in a line that it writes: it is read only where what is known of it does not do.
    ///
    /// # Errors
    /// [`Violation::Index`].
    #[inline]
    pub fn room_for(&mut self, entries: u32) -> Result<u32, Violation> {
        match self.place.entries - self.tail.wrapping_sub(self.head) {
            known if known >= entries => Ok(known),
            _ => self.room(),
        }
    }

    /// Puts one in. False: there is no room. It is seen once it is [published](Self::publish).
    ///
    /// # Errors
    /// [`Violation::Index`].
    #[inline]
    pub fn put(&mut self, it: Descriptor) -> Result<bool, Violation> {
        let has_room = self.room_for(1)? > 0;
        if has_room {
            self.place.write(self.tail, it)?;
            self.tail = self.tail.wrapping_add(1);
        }
        Ok(has_room)
    }

    /// How far the consumer has come, and whether that is all that it was shown.
    ///
    /// # Errors
    /// [`Violation::Index`].
    pub fn progress(&mut self) -> Result<(u32, bool), Violation> {
        self.room()?;
        Ok((self.head, self.head == self.shown))
    }

    /// Entries that a consumer that sleeps was not rung for yet.
    #[inline]
    #[must_use]
    pub fn untold(&self) -> u32 {
        self.tail.wrapping_sub(self.told)
    }

    /// Entries that were not taken out, once the consumer is gone.
    ///
    /// # Errors
    /// [`Violation::Index`].
    pub fn untaken(&mut self) -> Result<Vec<Descriptor>, Violation> {
        self.room()?;
        let held = self.tail.wrapping_sub(self.head);
        let all = (0..held).map(|at| self.place.read(self.head.wrapping_add(at)));
        all.collect()
    }

    /// The last entries, taken out or not, as many as the ring has places for, the newest first. Before it was full once, some are of empty places.
    pub fn latest(&self) -> impl Iterator<Item = Descriptor> {
        (1..=self.place.entries)
            .filter_map(|back| self.place.read(self.tail.wrapping_sub(back)).ok())
    }

    /// Shows the consumer all that was put in. Whether it sleeps and is to be rung, once.
    #[inline]
    #[must_use = "a consumer that sleeps is to be rung"]
    pub fn publish(&mut self) -> bool {
        self.show();
        if self.told == self.tail {
            return false;
        }
        self.told = self.tail;
        // Of a consumer that falls asleep meanwhile, one of the two sees what the other has written.
        fence(Ordering::SeqCst);
        let asleep = self.place.word(ASLEEP);
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }

    /// Likewise, without a fence: to a consumer that never sleeps for these, or that [`publish`](Self::publish) is soon to wake.
    #[inline]
    pub fn show(&mut self) {
        if self.shown != self.tail {
            self.shown = self.tail;
            self.place.word(TAIL).store(self.tail, Ordering::Release);
        }
    }
}

impl Consumer {
    /// Of a ring at this place, that is empty.
    ///
    /// # Errors
    /// [`Violation::Outside`].
    pub fn new(segment: Arc<Segment>, offset: u64, log2: u8) -> Result<Consumer, Violation> {
        Ok(Consumer {
            place: Place::new(segment, offset, log2)?,
            head: 0,
            tail: 0,
        })
    }

    /// Entries that are there.
    ///
    /// # Errors
    /// [`Violation::Index`].
    #[inline]
    pub fn waiting(&mut self) -> Result<u32, Violation> {
        // The producer has written into this line just before it showed its index: both come at a time.
        self.place.segment.prefetch(self.place.entry(self.head));
        let tail = self.place.word(TAIL).load(Ordering::Acquire);
        let waiting = self.place.between(self.head, tail, tail, self.head)?;
        self.tail = tail;
        Ok(waiting)
    }

    /// Takes one out, if there is one. Its place is given back once that is [published](Self::publish).
    ///
    /// # Errors
    /// [`Violation::Index`].
    #[inline]
    pub fn take(&mut self) -> Result<Option<Descriptor>, Violation> {
        if self.head == self.tail && self.waiting()? == 0 {
            return Ok(None);
        }
        let it = self.place.read(self.head)?;
        self.head = self.head.wrapping_add(1);
        Ok(Some(it))
    }

    /// Gives the places back of all that was taken out.
    #[inline]
    pub fn publish(&mut self) {
        self.place.word(HEAD).store(self.head, Ordering::Release);
    }

    /// It is about to sleep: from now on the producer rings once it publishes. False: there is something already, and it must not.
    ///
    /// # Errors
    /// [`Violation::Index`].
    pub fn arm(&mut self) -> Result<bool, Violation> {
        self.place.word(ASLEEP).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let tail = self.place.word(TAIL).load(Ordering::Acquire);
        let waiting = self.place.between(self.head, tail, tail, self.head)?;
        self.tail = tail;
        if waiting > 0 {
            self.disarm();
        }
        Ok(waiting == 0)
    }

    /// It is awake, whoever rang.
    pub fn disarm(&mut self) {
        self.place.word(ASLEEP).store(0, Ordering::Relaxed);
    }
}
