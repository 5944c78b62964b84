//! `segment.rs` under the model checker: a word in each cache line and a cell for each entry of a ring, of which loom tells when both sides are
//! at one at the same time. As much of it as a ring needs.

#![allow(unsafe_code)]

use std::io;

use loom::cell::UnsafeCell;
pub(crate) use loom::sync::atomic::{AtomicU32 as Word, fence};

use crate::Violation;

const LINE: usize = 64;
const CELL: usize = 16;

/// Memory that two threads have.
#[derive(Debug)]
pub struct Segment {
    len: usize,
    words: Vec<Word>,
    cells: Vec<UnsafeCell<[u8; CELL]>>,
}

// SAFETY: loom looks at each access to a cell, which is for its time only.
unsafe impl Sync for Segment {}

impl Segment {
    pub(crate) fn create(_: &str, len: usize) -> io::Result<Segment> {
        Ok(Segment {
            len,
            words: (0..len.div_ceil(LINE)).map(|_| Word::new(0)).collect(),
            cells: (0..len / CELL)
                .map(|_| UnsafeCell::new([0; CELL]))
                .collect(),
        })
    }

    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<usize, Violation> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len as u64 => Ok(offset as usize),
            _ => Err(Violation::Outside { offset, len }),
        }
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8; CELL]) -> Result<(), Violation> {
        let at = self.check(offset, CELL as u64)?;
        // SAFETY: loom ends the test where the other side writes.
        *into = self.cells[at / CELL].with(|cell| unsafe { *cell });
        Ok(())
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8; CELL]) -> Result<(), Violation> {
        let at = self.check(offset, CELL as u64)?;
        // SAFETY: as for reading.
        self.cells[at / CELL].with_mut(|cell| unsafe { *cell = *from });
        Ok(())
    }

    pub(crate) fn prefetch(&self, _: u64) {}

    pub(crate) fn word(&self, offset: u64) -> Result<&Word, Violation> {
        let at = self.check(offset, 4)?;
        assert!(at.is_multiple_of(LINE), "two words in a cache line");
        Ok(&self.words[at / LINE])
    }
}
