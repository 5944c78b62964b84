//! Size classes of slots. A task gets the smallest that holds it, so the gaps between sizes are what tasks waste: up to a third at worst,
//! where doubling alone would waste half.

use super::arena::PAGE;

/// Slots begin at multiples of it.
pub(super) const GRANULE: usize = 32;
/// Granules in a page.
pub(super) const PAGE_GRANULES: u32 = (PAGE / GRANULE) as u32;
/// Greatest alignment of a slot.
const ALIGN_MAX: usize = 64;

/// Granules in a slot of each class, smallest first.
const GRANULES: [u8; CLASSES] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128];
pub(super) const CLASSES: usize = 11;

/// A bit for each granule of a page: whether a slot of the class begins there.
static BEGINNINGS: [[u64; 2]; CLASSES] = beginnings();

const fn beginnings() -> [[u64; 2]; CLASSES] {
    let mut all = [[0; 2]; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let step = GRANULES[class] as u32;
        let mut at = 0;
        while at + step <= PAGE_GRANULES {
            all[class][(at / 64) as usize] |= 1 << (at % 64);
            at += step;
        }
        class += 1;
    }
    all
}

/// The size of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class(u8);

impl Class {
    /// The smallest: a cache line.
    #[cfg(test)]
    pub(super) const LEAST: Class = Class(0);
    /// The largest: a page.
    pub(super) const LARGEST: Class = Class(CLASSES as u8 - 1);

    /// All of them, smallest first.
    #[cfg(test)]
    pub(super) fn all() -> impl Iterator<Item = Class> {
        (0..CLASSES as u8).map(Class)
    }

    /// Returns the smallest class for this size and alignment.
    pub(super) const fn of(bytes: usize, align: usize) -> Option<Class> {
        if align > ALIGN_MAX {
            return None;
        }
        let mut class = 0;
        while class < CLASSES {
            let size = GRANULES[class] as usize * GRANULE;
            if bytes <= size && size.is_multiple_of(align) {
                return Some(Class(class as u8));
            }
            class += 1;
        }
        None
    }

    /// Returns the class's index.
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the class with this index.
    #[inline]
    pub(super) fn at(index: usize) -> Option<Class> {
        (index < CLASSES).then_some(Class(index as u8))
    }

    #[inline]
    pub(super) const fn granules(self) -> u32 {
        GRANULES[self.0 as usize] as u32
    }

    pub(super) const fn bytes(self) -> usize {
        GRANULES[self.0 as usize] as usize * GRANULE
    }

    /// Returns whether a slot begins at this granule of a page.
    #[inline]
    pub(super) fn begins(self, granule: u32) -> bool {
        let words = &BEGINNINGS[self.0 as usize];
        let at = granule % PAGE_GRANULES;
        words[(at / 64) as usize] >> (at % 64) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_fits_the_smallest_class_that_holds_it() {
        for bytes in 0..=PAGE {
            let class = Class::of(bytes, 8).expect("a page holds it");
            assert!(class.bytes() >= bytes);
            let smaller = Class::all().filter(|other| other.bytes() >= bytes).min();
            assert_eq!(smaller, Some(class));
        }
        assert_eq!(Class::of(PAGE + 1, 8), None);
        assert_eq!(Class::of(1, 128), None);
    }

    #[test]
    fn slots_lie_as_they_must() {
        for class in Class::all() {
            let begins: Vec<u32> = (0..PAGE_GRANULES).filter(|&at| class.begins(at)).collect();
            assert_eq!(begins.len(), PAGE / class.bytes(), "{class:?}");
            for (number, at) in begins.iter().enumerate() {
                assert_eq!(*at as usize * GRANULE, number * class.bytes());
            }
            for align in [1, 8, 16, 32, 64] {
                let got = Class::of(class.bytes(), align).expect("small");
                assert!(got.bytes().is_multiple_of(align) && got >= class);
            }
        }
    }

    #[test]
    fn no_task_wastes_more_than_a_third_of_its_slot_beyond_the_smallest() {
        for bytes in 65..=1024 {
            let class = Class::of(bytes, 8).expect("small");
            assert!(
                class.bytes() * 2 <= bytes * 3,
                "{bytes} in {}",
                class.bytes()
            );
        }
    }
}
