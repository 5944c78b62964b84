//! Typed handles: a number that names a slot of one store and cannot be taken for a slot of another. An `Option` of one is as
//! large as the number.

use core::num::NonZeroU32;
use core::ops::{Index, IndexMut};

use janus_mem::{Growth, MemError, Slab};

/// A handle.
pub(crate) trait Key: Copy {
    /// The handle of slot `index`. [`u32::MAX`] is no slot.
    fn new(index: u32) -> Option<Self>;

    /// Returns the slot's number.
    fn index(self) -> u32;

    /// Returns the slot's number, or one that is no slot's.
    #[inline(always)]
    fn number(key: Option<Self>) -> u32 {
        key.map_or(u32::MAX, Self::index)
    }
}

impl HotId {
    /// The bit that each name of a hot block has when it is spelled as a word: their numbers stay below 2^31.
    pub(crate) const MARK: u32 = 1 << 31;

    /// The name as a word.
    #[inline(always)]
    pub(crate) fn word(self) -> u32 {
        self.0.get()
    }

    /// The name that a word spells, if it is one and no number below [`HotId::MARK`].
    #[inline(always)]
    pub(crate) fn of_word(word: u32) -> Option<HotId> {
        match word & HotId::MARK {
            0 => None,
            _ => NonZeroU32::new(word).map(HotId),
        }
    }
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        // The complement of the slot's number: no number is none, so `None` takes its place.
        pub(crate) struct $name(NonZeroU32);

        impl Key for $name {
            #[inline(always)]
            fn new(index: u32) -> Option<Self> {
                NonZeroU32::new(!index).map(Self)
            }

            #[inline(always)]
            fn index(self) -> u32 {
                !self.0.get()
            }

            // Nothing but a complement, as none is spelled like zero.
            #[inline(always)]
            fn number(key: Option<Self>) -> u32 {
                !key.map_or(0, |key| key.0.get())
            }
        }

        const _: () = assert!(size_of::<Option<$name>>() == 4);
    )+};
}

impl Key for u32 {
    fn new(index: u32) -> Option<u32> {
        Some(index)
    }

    #[inline(always)]
    fn index(self) -> u32 {
        self
    }
}

keys! {
    /// Names the record of a connection.
    ConnSlot,
    /// Names a [`Hot`](crate::store::hot::Hot) block.
    HotId,
    /// Names a [`Segment`](crate::store::segment::Segment).
    SegId,
    /// Names a [`Recovery`](crate::store::recovery::Recovery) block.
    RecoveryId,
    /// Names the [`Tuning`](crate::store::tuning::Tuning) of a hot block.
    TuningId,
}

/// A connection. It stays recognisable as stale when its slot serves another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId {
    /// The slot.
    pub index: u32,
    /// Which of the slot's connections.
    pub generation: u32,
}

impl ConnId {
    /// The record that it names; of whose connection it is, the generation says.
    #[inline]
    pub(crate) fn slot(self) -> Option<ConnSlot> {
        ConnSlot::new(self.index)
    }
}

/// A slab whose slots only a `K` names.
pub(crate) struct Slots<K, T> {
    slab: Slab<T>,
    key: core::marker::PhantomData<fn() -> K>,
}

impl<K: Key, T: Default> Slots<K, T> {
    pub(crate) fn new(max: u32, growth: &Growth) -> Result<Self, MemError> {
        Ok(Slots {
            slab: Slab::new(max, growth)?,
            key: core::marker::PhantomData,
        })
    }

    #[inline]
    pub(crate) fn alloc(&mut self) -> Option<K> {
        self.slab.alloc().and_then(K::new)
    }

    #[inline(always)]
    pub(crate) fn alloc_slot(&mut self) -> Option<(K, &mut T)> {
        let (id, slot) = self.slab.alloc_slot()?;
        Some((K::new(id)?, slot))
    }

    /// From now on what has been free for longest is taken first, of `spread` at least.
    pub(crate) fn reuse_oldest_first(&mut self, spread: usize) {
        self.slab.reuse_oldest_first(spread);
    }
}

impl<K: Key, T> Slots<K, T> {
    #[inline]
    pub(crate) fn free(&mut self, key: impl Into<Option<K>>) {
        self.slab.free(K::number(key.into()));
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Number of slots ever handed out.
    #[inline]
    pub(crate) fn high_water(&self) -> u32 {
        self.slab.high_water()
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.slab.committed_bytes()
    }
}

impl<K: Key, T> Index<K> for Slots<K, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, key: K) -> &T {
        &self.slab[key.index()]
    }
}

impl<K: Key, T> IndexMut<K> for Slots<K, T> {
    #[inline(always)]
    fn index_mut(&mut self, key: K) -> &mut T {
        &mut self.slab[key.index()]
    }
}

/// A link that leads somewhere. `None` is out of bounds, as any number would be that is no slot.
impl<K: Key, T> Index<Option<K>> for Slots<K, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, key: Option<K>) -> &T {
        &self.slab[K::number(key)]
    }
}

impl<K: Key, T> IndexMut<Option<K>> for Slots<K, T> {
    #[inline(always)]
    fn index_mut(&mut self, key: Option<K>) -> &mut T {
        &mut self.slab[K::number(key)]
    }
}
