//! Records in the order of their times: a doubly linked list through a store, for stores in which all wait equally
//! long. Taking out of the middle is as cheap as from the front, and no timer is needed.

use core::ops::IndexMut;

use crate::store::cold::NONE;

/// Records passed over at most to find the place of one that comes late.
const STEPS: u32 = 64;

/// A record's neighbours in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    prev: u32,
    next: u32,
}

impl Default for Links {
    fn default() -> Links {
        Links {
            prev: NONE,
            next: NONE,
        }
    }
}

/// A record that can stand in a [`Fifo`].
pub(crate) trait Linked: Default {
    fn links(&self) -> Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// The queue: oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    head: u32,
    tail: u32,
}

impl Fifo {
    pub(crate) const EMPTY: Fifo = Fifo {
        head: NONE,
        tail: NONE,
    };

    /// The oldest record.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    #[inline]
    pub(crate) fn push<S>(&mut self, store: &mut S, id: u32)
    where
        S: IndexMut<u32, Output: Linked>,
    {
        let tail = core::mem::replace(&mut self.tail, id);
        *store[id].links_mut() = Links {
            prev: tail,
            next: NONE,
        };
        if tail == NONE {
            self.head = id;
        } else {
            store[tail].links_mut().next = id;
        }
    }

    /// Puts a record where it belongs, as `before` tells of each whether it comes before; behind those that are more than `STEPS` from the
    /// newest.
    pub(crate) fn insert<S>(&mut self, store: &mut S, id: u32, before: impl Fn(&S::Output) -> bool)
    where
        S: IndexMut<u32, Output: Linked>,
    {
        let (mut prev, mut next) = (self.tail, NONE);
        for _ in 0..STEPS {
            if prev == NONE || before(&store[prev]) {
                break;
            }
            (prev, next) = (store[prev].links().prev, prev);
        }
        *store[id].links_mut() = Links { prev, next };
        match prev {
            NONE => self.head = id,
            prev => store[prev].links_mut().next = id,
        }
        match next {
            NONE => self.tail = id,
            next => store[next].links_mut().prev = id,
        }
    }

    #[inline(always)]
    pub(crate) fn unlink<S>(&mut self, store: &mut S, id: u32)
    where
        S: IndexMut<u32, Output: Linked>,
    {
        let Links { prev, next } = store[id].links();
        if prev == NONE {
            self.head = next;
        } else {
            store[prev].links_mut().next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            store[next].links_mut().prev = prev;
        }
    }
}
