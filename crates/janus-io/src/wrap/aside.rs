//! A way past the stack, for the little traffic of a device that belongs to no shard: [`wrap`] goes around its queues, hands over the
//! received frames that a filter picks out, and sends frames given to it. The other end, [`Aside`], is for any thread. Both ways are
//! bounded: it is for protocols of a message now and then, such as DHCP. What frames mean is the filter's business. When all queues are
//! dropped, the one that sends is left to the other end, for a last message.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use janus_mem::{Frame, Pool};
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::counter::Counter;
use crate::debug::opaque;
use crate::park::Bell;
use crate::queue::{Batch, Caps, Queue};

/// Capacity of each direction, in frames.
pub const DEPTH: usize = 64;

/// Receiver of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The shards, as for most frames.
    Shards,
    /// The [`Aside`] end only.
    Aside,
    /// Both of them.
    Both,
}

/// Decides for each received frame. Called on the polling cores.
pub type Filter = fn(&[u8]) -> Whose;

/// Counts of frames that went past the stack.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct AsideCounters {
    /// Frames handed over.
    pub received: Counter,
    /// Frames sent.
    pub sent: Counter,
    /// Received frames dropped because [`DEPTH`] frames were waiting for the other end already, or it was gone.
    pub lost_received: Counter,
}

/// State that both ends share.
struct Shared {
    /// Bell of the one queue that sends.
    bell: Bell,
    /// True when there may be something to send.
    sending: AtomicBool,
    counters: AsideCounters,
    /// The queue that sends, once no core polls it any more.
    left: Mutex<Option<Box<dyn Queue>>>,
}

/// The end for the task that speaks the protocol.
pub struct Aside {
    received: Receiver<Vec<u8>>,
    send: Sender<Vec<u8>>,
    shared: Arc<Shared>,
    /// Capabilities of the device.
    pub caps: Caps,
}

opaque!(Aside);

impl Aside {
    /// Receives the next frame; `None` if none comes within `timeout`. An error: the device is gone.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Vec<u8>>, Gone> {
        match self.received.recv_timeout(timeout) {
            Ok(frame) => Ok(Some(frame)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Gone),
        }
    }

    /// Has a frame sent; false when too many wait already.
    pub fn send(&self, frame: Vec<u8>) -> bool {
        let taken = !matches!(self.send.try_send(frame), Err(TrySendError::Full(_)));
        self.shared.sending.store(true, Ordering::Release);
        self.shared.bell.ring();
        taken
    }

    /// Takes the queue that sent, after [`receive`](Self::receive) has said that the device is gone; no core polls that queue now. It
    /// closes when it is dropped.
    #[must_use]
    pub fn inherit(&self) -> Option<Box<dyn Queue>> {
        let left = self.shared.left.lock();
        left.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the counts of frames that went past the stack.
    #[must_use]
    pub fn counters(&self) -> &AsideCounters {
        &self.shared.counters
    }
}

/// The device is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The queues of a device, with a way past the stack.
pub fn wrap(
    opened: Vec<Box<dyn Queue>>,
    filter: Filter,
) -> io::Result<(Vec<Box<dyn Queue>>, Aside)> {
    let caps = opened.first().map(|queue| queue.caps().clone());
    let caps =
        caps.ok_or_else(|| io::Error::other("a device without a queue has no way past it"))?;
    let (to, received) = bounded(DEPTH);
    let (send, from) = bounded(DEPTH);
    let shared = Arc::new(Shared {
        bell: Bell::new()?,
        sending: AtomicBool::new(false),
        counters: AsideCounters::default(),
        left: Mutex::new(None),
    });
    let around = |(index, inner): (usize, Box<dyn Queue>)| -> io::Result<Box<dyn Queue>> {
        // One queue sends; it wakes for that too.
        let outlet = match index {
            0 => Some(Outlet {
                from: from.clone(),
                waiting: Batch::new(),
                either: either(&*inner, &shared.bell)?,
                armed: false,
            }),
            _ => None,
        };
        Ok(Box::new(AsideQueue {
            inner,
            inlet: Inlet {
                filter,
                to: to.clone(),
                shared: shared.clone(),
            },
            outlet,
            received: Batch::new(),
            shared: shared.clone(),
        }))
    };
    let queues = opened.into_iter().enumerate().map(around);
    let queues = queues.collect::<io::Result<_>>()?;
    let aside = Aside {
        received,
        send,
        shared: shared.clone(),
        caps,
    };
    Ok((queues, aside))
}

/// Readable when the device's descriptor is, or the bell was rung; nothing where the device has none to wait for.
fn either(inner: &dyn Queue, bell: &Bell) -> io::Result<Option<OwnedFd>> {
    let Some(device) = inner.wait_fd() else {
        return Ok(None);
    };
    let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in [device, bell.fd()] {
        epoll::add(
            &both,
            fd,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
    }
    Ok(Some(both))
}

/// The part of the queue that sends.
struct Outlet {
    from: Receiver<Vec<u8>>,
    /// Not yet taken by the device.
    waiting: Batch,
    either: Option<OwnedFd>,
    armed: bool,
}

struct AsideQueue {
    inner: Box<dyn Queue>,
    inlet: Inlet,
    outlet: Option<Outlet>,
    /// Received, not yet judged.
    received: Batch,
    shared: Arc<Shared>,
}

/// Where received frames are picked out.
struct Inlet {
    filter: Filter,
    to: Sender<Vec<u8>>,
    shared: Arc<Shared>,
}

impl Inlet {
    /// Hands a copy over; true when the shards are to have the frame too.
    #[inline]
    fn pass(&self, frame: &[u8]) -> bool {
        match (self.filter)(frame) {
            Whose::Shards => true,
            whose => self.hand_over(frame, whose),
        }
    }

    #[cold]
    fn hand_over(&self, frame: &[u8], whose: Whose) -> bool {
        let counters = &self.shared.counters;
        match self.to.try_send(frame.to_vec()) {
            Ok(()) => counters.received.add_shared(1),
            Err(_) => counters.lost_received.add_shared(1),
        }
        whose == Whose::Both
    }
}

impl AsideQueue {
    #[cold]
    fn send_waiting(&mut self, pool: &mut Pool, done: &mut Batch) {
        let Some(outlet) = &mut self.outlet else {
            return;
        };
        let longest = self.inner.caps().frame_max();
        while !outlet.waiting.is_full() {
            let Some(mut buf) = pool.alloc() else { break };
            // Before it is looked: what comes now is seen, or leaves its mark.
            self.shared.sending.store(false, Ordering::SeqCst);
            let Some(bytes) = outlet.from.try_iter().find(|bytes| bytes.len() <= longest) else {
                pool.free(buf);
                break;
            };
            self.shared.sending.store(true, Ordering::SeqCst);
            let off = usize::from(buf.off());
            buf.bytes_mut()[off..off + bytes.len()].copy_from_slice(&bytes);
            let _ = outlet.waiting.push(Frame::new(buf, bytes.len() as u16));
        }
        let before = outlet.waiting.len();
        self.inner.tx_burst(pool, &mut outlet.waiting, done);
        let sent = before - outlet.waiting.len();
        self.shared.counters.sent.add_shared(sent as u64);
    }
}

/// The queue that sends is left to the other end; only then is that told that the device is gone.
impl Drop for AsideQueue {
    fn drop(&mut self) {
        if self.outlet.take().is_some() {
            let inner = std::mem::replace(&mut self.inner, Box::new(Nothing));
            *self
                .shared
                .left
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(inner);
        }
    }
}

/// In the place of a queue that was left to somebody.
struct Nothing;

impl Queue for Nothing {
    fn caps(&self) -> &Caps {
        unreachable!("its owner is being dropped")
    }

    fn rx_burst(&mut self, _: &mut Pool, _: &mut Batch) {}

    fn tx_burst(&mut self, _: &mut Pool, _: &mut Batch, _: &mut Batch) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Queue for AsideQueue {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        if let Some(outlet) = &mut self.outlet
            && std::mem::take(&mut outlet.armed)
        {
            self.shared.bell.disarm();
        }
        if self.received.is_empty() {
            self.inner.rx_burst(pool, &mut self.received);
        }
        for frame in self.received.pull().take(out.room()) {
            if self.inlet.pass(frame.data()) {
                let refused = out.push(frame);
                debug_assert!(refused.is_ok(), "no more are taken than there is room");
            } else {
                pool.free(frame.buf);
            }
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.inner.tx_burst(pool, frames, done);
        let waiting = self.outlet.as_ref().is_some_and(|outlet| {
            !outlet.waiting.is_empty() || self.shared.sending.load(Ordering::Acquire)
        });
        if waiting {
            self.send_waiting(pool, done);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.outlet {
            Some(outlet) => outlet.either.as_ref().map(AsFd::as_fd),
            None => self.inner.wait_fd(),
        }
    }

    fn arm(&mut self) -> bool {
        let idle = self.outlet.as_mut().is_none_or(|outlet| {
            outlet.armed = true;
            self.shared.bell.arm();
            outlet.waiting.is_empty() && !self.shared.sending.load(Ordering::Acquire)
        });
        self.inner.arm() && idle && self.received.is_empty()
    }
}

#[cfg(test)]
mod tests;
