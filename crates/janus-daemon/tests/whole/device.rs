//! A device that outlives the daemon which has it, as an interface does that was made beforehand.

use std::io::Result;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use janus_io::{Backend, Batch, Caps, Queue};
use janus_mem::{Frame, Pool};

/// A wire's near end.
#[derive(Clone)]
pub(crate) struct Device(Arc<Mutex<Option<Box<dyn Queue>>>>);

impl Device {
    pub(crate) fn new(end: impl Backend + 'static) -> Device {
        let end: Box<dyn Backend> = Box::new(end);
        let queue = end.open(1).expect("an end").remove(0);
        Device(Arc::new(Mutex::new(Some(queue))))
    }

    /// Nothing is left of it.
    pub(crate) fn ends(self) {
        drop(self.0.lock().expect("no one panicked").take());
    }
}

impl Backend for Device {
    fn open(self: Box<Self>, _queues: usize) -> Result<Vec<Box<dyn Queue>>> {
        let queue = self.0.lock().unwrap().take();
        Ok(vec![Box::new(Opened { queue, of: *self })])
    }
}

struct Opened {
    /// `None`: it is given back.
    queue: Option<Box<dyn Queue>>,
    of: Device,
}

impl Opened {
    fn queue(&mut self) -> &mut Box<dyn Queue> {
        self.queue.as_mut().expect("one daemon at a time")
    }
}

impl Queue for Opened {
    fn caps(&self) -> &Caps {
        self.queue.as_ref().expect("one daemon at a time").caps()
    }

    /// As devices do it, into buffers of the daemon's.
    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        let mut theirs = Batch::new();
        self.queue().rx_burst(pool, &mut theirs);
        for frame in theirs.pull() {
            let Some(mut buf) = pool.alloc() else {
                continue;
            };
            let (at, len) = (usize::from(buf.off()), frame.data().len());
            buf.bytes_mut()[at..at + len].copy_from_slice(frame.data());
            let _ = out.push(Frame::new(buf, frame.len));
            pool.free(frame.buf);
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.queue().tx_burst(pool, frames, done);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref()?.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.queue().arm()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        *self.of.0.lock().unwrap() = self.queue.take();
    }
}
