//! A device that can be told to break, and with it the loop of the core that polls it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use janus_io::{Backend, Batch, Caps, Queue};
use janus_mem::Pool;

/// A device one of whose queues panics when it is told to.
pub struct Fragile<B> {
    pub inner: B,
    /// The queue that breaks next, or [`NONE`].
    pub breaks: Arc<AtomicUsize>,
}

/// No queue.
pub const NONE: usize = usize::MAX;

impl<B: Backend> Backend for Fragile<B> {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Fragile { inner, breaks } = *self;
        let queues = Box::new(inner).open(queues)?.into_iter().enumerate();
        Ok(queues
            .map(|(number, inner)| {
                let breaks = breaks.clone();
                Box::new(FragileQueue {
                    inner,
                    number,
                    breaks,
                }) as Box<dyn Queue>
            })
            .collect())
    }
}

struct FragileQueue {
    inner: Box<dyn Queue>,
    number: usize,
    breaks: Arc<AtomicUsize>,
}

impl Queue for FragileQueue {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        self.inner.rx_burst(pool, out);
        let (breaks, number) = (&self.breaks, self.number);
        let told = breaks.compare_exchange(number, NONE, Ordering::AcqRel, Ordering::Relaxed);
        assert!(told.is_err(), "the device of the test breaks");
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.inner.tx_burst(pool, frames, done);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }
}
