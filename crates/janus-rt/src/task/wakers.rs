//! A table of wakers that are not a task's own packed word (those of combinators, of other executors) or that wait for a task's end.
//! Indexed by `u32`, so that every waiter is one small number.

use std::task::Waker;

/// Wakers by number; freed numbers are used again.
///
/// Cloning, waking or dropping a foreign waker runs foreign code, which may come back here. So this table takes and
/// gives wakers by value: do those things when it is not borrowed.
#[derive(Default)]
pub(crate) struct WakerTable {
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
}

impl WakerTable {
    pub(crate) fn insert(&mut self, waker: Waker) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.wakers[number as usize] = Some(waker);
                number
            }
            None => {
                self.wakers.push(Some(waker));
                (self.wakers.len() - 1) as u32
            }
        }
    }

    /// Removes and returns the waker; `None` when the number is not in use.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Waker> {
        let waker = self.wakers.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(waker)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Waker> {
        self.wakers.get(number as usize)?.as_ref()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.wakers.capacity() * size_of::<Option<Waker>>()
            + self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut table = WakerTable::default();
        let waker = || Waker::noop().clone();
        let first = table.insert(waker());
        let second = table.insert(waker());
        assert_ne!(first, second);
        assert!(table.get(first).is_some());
        assert!(table.remove(first).is_some());
        assert!(table.remove(first).is_none() && table.get(first).is_none());
        assert_eq!(table.insert(waker()), first);
        assert!(table.remove(77).is_none());
    }
}
