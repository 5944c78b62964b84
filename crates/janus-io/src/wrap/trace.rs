//! Frames of a device, written down for Wireshark: a pcapng writer, and [`Traced`], which wraps any queue and writes every frame it
//! receives and every frame the device takes. For looking, not for load: all queues of a trace share one file behind a lock. A filter says
//! which frames are written, and can be changed meanwhile: one flow can be watched in a server that serves many. A trace that cannot be
//! written is counted, and never stops a packet.

mod pcapng;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use janus_mem::Pool;
use janus_wire::Link;
use rustix::fd::BorrowedFd;

use crate::backend::wire;
use crate::counter::Counter;
use crate::debug::opaque;
use crate::queue::{Backend, Batch, Caps, LossesFn, Queue};
use crate::wrap::filter::Filter;
pub use pcapng::{Flow, Writer};

/// Nanoseconds since 1970, or since whatever the clock of a simulation calls its beginning.
type ClockFn = dyn Fn() -> u64 + Send + Sync;

/// A trace being written; clones write to the same one.
#[derive(Clone)]
pub struct Trace {
    shared: Arc<Shared>,
}

opaque!(Trace);

struct Shared {
    inner: Mutex<Inner>,
    clock: Box<ClockFn>,
    failed: Counter,
    left_out: Counter,
}

/// State behind the lock.
struct Inner {
    writer: Writer<Box<dyn Write + Send>>,
    /// Of each interface, by its number.
    links: Vec<Link>,
    filter: Option<Filter>,
    /// Kind of the last error.
    error: Option<io::ErrorKind>,
}

impl Trace {
    /// A trace with the machine's clock, written to `out`.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        let now = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64)
        };
        Self::with_clock(out, now)
    }

    /// A trace whose times come from `clock`.
    pub fn with_clock(
        out: impl Write + Send + 'static,
        clock: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let inner = Inner {
            writer: Writer::new(Box::new(out) as Box<dyn Write + Send>)?,
            links: Vec::new(),
            filter: None,
            error: None,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                inner: Mutex::new(inner),
                clock: Box::new(clock),
                failed: Counter::default(),
                left_out: Counter::default(),
            }),
        })
    }

    /// From now on only frames that `filter` matches are written; all of them without one.
    pub fn set_filter(&self, filter: Option<Filter>) {
        self.lock().filter = filter;
    }

    /// Frames that the filter left out.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.shared.left_out.get()
    }

    /// A trace in a file, which is made or overwritten.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path).map_err(|cause| {
            io::Error::new(
                cause.kind(),
                format!("the trace {} cannot be written: {cause}", path.display()),
            )
        })?;
        Self::new(BufWriter::new(file))
    }

    /// Adds a device to the trace; the number is for [`hook`](Self::hook).
    pub fn add_interface(&self, caps: &Caps) -> u32 {
        let mut inner = self.lock();
        let added = inner.writer.interface(caps.link, &caps.name);
        match added {
            Ok(number) => {
                inner.links.push(caps.link);
                number
            }
            Err(error) => {
                inner.error = Some(error.kind());
                self.shared.failed.add_shared(1);
                0
            }
        }
    }

    /// Bursts that could not be written when they came. What fits the file's buffer is written later, in whole blocks, when
    /// there is space again; the rest is missing.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.shared.failed.get()
    }

    /// Kind of the last error of the file; `None` while every burst could be written.
    #[must_use]
    pub fn error(&self) -> Option<io::ErrorKind> {
        self.lock().error
    }

    /// A hook for the in-memory wire that writes all its frames, those of its first end as sent ones.
    #[must_use]
    pub fn hook(&self, interface: u32) -> Arc<dyn wire::Capture> {
        let trace = self.clone();
        Arc::new(move |direction, bytes: &[u8]| {
            let flow = if direction == wire::Direction::Forth {
                Flow::Sent
            } else {
                Flow::Received
            };
            trace.write(interface, flow, std::iter::once(bytes));
        })
    }

    /// Writes frames with one time stamp.
    pub fn write<'a>(
        &self,
        interface: u32,
        flow: Flow,
        frames: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let mut inner = self.lock();
        let Inner {
            writer,
            links,
            filter,
            error,
        } = &mut *inner;
        // The interface itself could not be written: its frames would be unreadable.
        let Some(&link) = links.get(interface as usize) else {
            return self.shared.failed.add_shared(1);
        };
        let wanted = |bytes: &[u8]| match &*filter {
            Some(filter) => filter.matches(bytes, link),
            None => true,
        };
        // Asked inside the lock, so that the times in the file never go back.
        let now = (self.shared.clock)();
        let (mut written, mut left_out) = (false, 0);
        let write = || {
            for bytes in frames {
                if !wanted(bytes) {
                    left_out += 1;
                    continue;
                }
                writer.frame(interface, now, flow, bytes)?;
                written = true;
            }
            // Whoever watches the file sees each burst at once; whoever loses the process loses nothing.
            if written { writer.flush() } else { Ok(()) }
        };
        let written = write();
        self.shared.left_out.add_shared(left_out);
        if let Err(failure) = written {
            *error = Some(failure.kind());
            self.shared.failed.add_shared(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue whose frames are written to a trace.
pub struct Traced<Q> {
    inner: Q,
    trace: Trace,
    interface: u32,
    /// Frames offered to the device in this call, as bytes: it may take only some of them, and those are gone then.
    offered: Vec<Vec<u8>>,
}

opaque!([Q] Traced<Q>);

impl<Q: Queue> Traced<Q> {
    /// Wraps a queue; it appears in the trace as a device of its own.
    pub fn new(inner: Q, trace: Trace) -> Self {
        let interface = trace.add_interface(inner.caps());
        Self {
            inner,
            trace,
            interface,
            offered: Vec::new(),
        }
    }
}

impl<Q: Queue> Queue for Traced<Q> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        let before = out.len();
        self.inner.rx_burst(pool, out);
        if out.len() > before {
            self.trace.write(
                self.interface,
                Flow::Received,
                out[before..].iter().map(|frame| frame.data()),
            );
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.offered.clear();
        self.offered
            .extend(frames.iter().map(|frame| frame.data().to_vec()));
        self.inner.tx_burst(pool, frames, done);
        let taken = self.offered.len() - frames.len();
        if taken > 0 {
            self.trace.write(
                self.interface,
                Flow::Sent,
                self.offered[..taken].iter().map(Vec::as_slice),
            );
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }
}

/// A backend all of whose queues are traced.
pub struct TracedBackend {
    inner: Box<dyn Backend>,
    trace: Trace,
}

opaque!(TracedBackend);

impl TracedBackend {
    /// Wraps a backend.
    #[must_use]
    pub fn new(inner: Box<dyn Backend>, trace: Trace) -> Self {
        Self { inner, trace }
    }
}

impl Backend for TracedBackend {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Self { inner, trace } = *self;
        let wrap = |queue| -> Box<dyn Queue> { Box::new(Traced::new(queue, trace.clone())) };
        Ok(inner.open(queues)?.into_iter().map(wrap).collect())
    }

    fn losses(&self) -> Option<Box<LossesFn>> {
        self.inner.losses()
    }
}

#[cfg(test)]
mod tests;
