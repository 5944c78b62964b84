//! A device that looks where the bytes of each segment lie that it is to send.

use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use janus_io::{Backend, Batch, Caps, Queue};
use janus_mem::{Frame, Pool};
use janus_wire::{ipv4, tcp};

/// Where an application filled buffers, and what was sent from there and from elsewhere.
#[derive(Default)]
pub(crate) struct Places {
    filled: Mutex<HashSet<usize>>,
    /// Segments with bytes, those sent again included, whose bytes lie where they were filled in.
    pub(crate) from_there: AtomicU64,
    /// Others.
    pub(crate) from_elsewhere: AtomicU64,
}

impl Places {
    pub(crate) fn fills(&self, bytes: &[u8]) {
        self.filled.lock().unwrap().insert(bytes.as_ptr() as usize);
    }

    fn sees(&self, frame: &Frame) {
        let ip = ipv4::parse(frame.data()).expect("our own packet");
        let (_, _, bytes) = tcp::parse(ip.payload()).expect("our own segment");
        if bytes.is_empty() {
            return;
        }
        let known = self.filled.lock().unwrap();
        let count = match known.contains(&(bytes.as_ptr() as usize)) {
            true => &self.from_there,
            false => &self.from_elsewhere,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The device behind which `places` is told.
pub(crate) struct Watching {
    pub(crate) inner: Box<dyn Backend>,
    pub(crate) places: Arc<Places>,
}

impl Backend for Watching {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let places = self.places;
        let wrap = |inner| -> Box<dyn Queue> {
            let places = places.clone();
            Box::new(Watched { inner, places })
        };
        Ok(self.inner.open(queues)?.into_iter().map(wrap).collect())
    }
}

struct Watched {
    inner: Box<dyn Queue>,
    places: Arc<Places>,
}

impl Queue for Watched {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        self.inner.rx_burst(pool, out);
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        frames.iter().for_each(|frame| self.places.sees(frame));
        self.inner.tx_burst(pool, frames, done);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }
}
