//! Socket options, one copy for sockets that have equal ones: millions of sockets have a handful of different sets.

use std::sync::Arc;

use crate::table::SocketOptions;

/// Sets that are remembered, so that an equal one can be shared; a program that uses more in turn pays with copies.
const REMEMBERED: usize = 16;

/// The sets that were given out last.
#[derive(Default)]
pub(crate) struct SharedOptions {
    recent: Vec<Arc<SocketOptions>>,
    /// Which of them goes next.
    oldest: usize,
}

impl SharedOptions {
    /// A set equal to this one.
    pub(crate) fn share(&mut self, options: &SocketOptions) -> Arc<SocketOptions> {
        if let Some(known) = self.recent.iter().find(|known| ***known == *options) {
            return Arc::clone(known);
        }
        let new = Arc::new(*options);
        if self.recent.len() < REMEMBERED {
            self.recent.push(Arc::clone(&new));
        } else {
            self.recent[self.oldest] = Arc::clone(&new);
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_options_are_one() {
        let mut shared = SharedOptions::default();
        let low = |receive_low| SocketOptions {
            receive_low,
            ..SocketOptions::default()
        };
        let (a, b) = (shared.share(&low(1)), shared.share(&low(1)));
        assert!(Arc::ptr_eq(&a, &b));
        let other = shared.share(&low(2));
        assert!(!Arc::ptr_eq(&a, &other));
        for n in 3..100 {
            assert_eq!(shared.share(&low(n)).receive_low, n);
        }
        assert_eq!(shared.recent.len(), REMEMBERED);
    }
}
