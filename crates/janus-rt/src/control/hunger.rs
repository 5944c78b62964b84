//! Ports on which a task of a core waits for a connection, as that core says and all others see.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Written by its core only.
#[derive(Debug)]
pub(crate) struct Hunger {
    /// One bit for each port.
    ports: Box<[AtomicU64]>,
    /// Connections are offered, so how long they are served is looked at.
    timing: AtomicBool,
}

impl Default for Hunger {
    fn default() -> Hunger {
        Hunger {
            ports: (0..1024).map(|_| AtomicU64::new(0)).collect(),
            timing: AtomicBool::new(false),
        }
    }
}

impl Hunger {
    /// A task waits for a connection on `port`, or none does any more.
    #[inline]
    pub(crate) fn set(&self, port: u16, waits: bool) {
        let (word, bit) = self.place(port);
        let before = word.load(Ordering::Relaxed);
        let after = if waits { before | bit } else { before & !bit };
        if before != after {
            word.store(after, Ordering::Relaxed);
        }
    }

    pub(crate) fn waits_on(&self, port: u16) -> bool {
        let (word, bit) = self.place(port);
        word.load(Ordering::Relaxed) & bit != 0
    }

    #[inline]
    fn place(&self, port: u16) -> (&AtomicU64, u64) {
        (&self.ports[usize::from(port) / 64], 1 << (port % 64))
    }

    pub(crate) fn set_timing(&self, on: bool) {
        self.timing.store(on, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_timing(&self) -> bool {
        self.timing.load(Ordering::Relaxed)
    }
}
