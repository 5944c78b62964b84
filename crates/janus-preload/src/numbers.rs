//! Sets of descriptors' numbers, which no lock guards.

use core::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

/// Numbers from here on are in none.
const FDS: usize = 1 << 16;

pub(crate) struct Numbers([AtomicU64; FDS / 64]);

impl Numbers {
    pub(crate) const fn none() -> Numbers {
        Numbers([const { AtomicU64::new(0) }; FDS / 64])
    }

    fn place(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.get(fd / 64)?, 1 << (fd % 64)))
    }

    #[inline]
    pub(crate) fn has(&self, fd: c_int) -> bool {
        self.place(fd)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Whether there was room for it.
    pub(crate) fn add(&self, fd: c_int) -> bool {
        let place = self.place(fd);
        let added = place.map(|(word, bit)| word.fetch_or(bit, Ordering::Relaxed));
        added.is_some()
    }

    pub(crate) fn remove(&self, fd: c_int) {
        if let Some((word, bit)) = self.place(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Takes all of them.
    pub(crate) fn take(&self) -> Vec<c_int> {
        let mut all = Vec::new();
        for (word, first) in self.0.iter().zip((0..).step_by(64)) {
            let bits = word.swap(0, Ordering::Relaxed);
            let set = (0..64).filter(|bit| bits >> bit & 1 != 0);
            all.extend(set.map(|bit| first + bit));
        }
        all
    }
}
