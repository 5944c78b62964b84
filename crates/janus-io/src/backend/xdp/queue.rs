//! One core's end of an AF_XDP interface: a socket, and the buffers the kernel holds for it. Receiving keeps the kernel in
//! buffers to fill; sending hands it ours and takes them back when it is done. No payload is copied here.

use std::sync::Arc;

use janus_mem::{Frame, Pool, Posted};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use super::attached::Attached;
use super::socket::{Desc, Socket};
use super::{XdpCounters, questions::Questions};
use crate::backend::held::Held;
use crate::backend::sound;
use crate::queue::{Batch, Caps, Queue, retire};

/// Calls to the kernel for one burst: each sends 32 frames at least.
const KICKS_MAX: usize = 4;
/// Times in a row that a core is kept from sleeping because the kernel still has frames of ours. It is not for ever: an
/// interface that is down keeps them until it is up.
const AWAKE_FOR_SENDING_MAX: u32 = 256;
/// Looks, a millisecond apart, at whether the kernel is done with what it sends before its buffers are given to others.
const LAST_LOOKS: u32 = 50;

pub(super) struct XdpQueue {
    pub(super) caps: Caps,
    pub(super) socket: Option<Socket>,
    pub(super) held: Held,
    /// Buffers the kernel has to receive into, when there are enough.
    pub(super) filled: u32,
    /// Checksums of received frames may be left out; see [`sound::complete`].
    pub(super) completes: bool,
    /// Where the kernel has an address of ours too.
    pub(super) questions: Option<Arc<Questions>>,
    pub(super) counters: Arc<XdpCounters>,
    pub(super) kept_awake: u32,
    /// Until all queues are gone.
    pub(super) attached: Arc<Attached>,
    /// Buffers the kernel has to receive into, as the depot knows; with it, the depot stays.
    pub(super) posted: Posted,
}

impl XdpQueue {
    /// Gives the kernel buffers up to what it should have.
    #[inline]
    pub(super) fn refill(&mut self, pool: &mut Pool) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        let wanted = self.filled.saturating_sub(self.held.filling) as usize;
        let mut pushed = 0;
        for _ in 0..wanted.min(socket.fill.room()) {
            let Some(buf) = pool.alloc_reserved() else {
                self.counters.no_buffer.add_shared(1);
                break;
            };
            match self.held.fill(buf) {
                Ok(address) => socket.fill.push(address),
                // Of a pool over other memory than the kernel knows: nothing can be received into it.
                Err(buf) => {
                    self.counters.foreign_pool.add_shared(1);
                    pool.free(buf);
                    break;
                }
            }
            pushed += 1;
        }
        self.posted.lacks((wanted - pushed) as u32);
        if pushed > 0 {
            socket.fill.publish();
        }
        if socket.fill.needs_wakeup() {
            socket.kick_rx();
        }
    }

    /// Takes back what the kernel has sent, as far as `done` has room for it.
    #[inline]
    fn reap(&mut self, pool: &mut Pool, done: &mut Batch) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        let mut left = socket.completed.waiting();
        if left == 0 {
            return;
        }
        // Any of them may be LENT.
        left = left.min(done.room());
        for _ in 0..left {
            let address = socket.completed.pop();
            match self.held.sent(address) {
                Some(frame) => retire(frame, pool, done),
                None => self.counters.strange.add_shared(1),
            }
        }
        socket.completed.publish();
        self.kept_awake = 0;
    }

    /// A frame in memory that the kernel does not know: copied into a buffer that it knows. The copy is what is sent, so the
    /// frame itself is done with.
    #[cold]
    fn copied(&mut self, frame: Frame, pool: &mut Pool, done: &mut Batch) -> Option<(u64, u16)> {
        let mut buf = pool.alloc_reserved()?;
        buf.bytes_mut()[..frame.data().len()].copy_from_slice(frame.data());
        buf.set_off(0);
        let copy = Frame::new(buf, frame.len);
        retire(frame, pool, done);
        self.counters.copied.add_shared(1);
        match self.held.send(copy) {
            Ok(given) => Some(given),
            Err(copy) => {
                self.counters.foreign_pool.add_shared(1);
                pool.free(copy.buf);
                None
            }
        }
    }

    /// Has the kernel send what is in the ring.
    fn kick(&mut self) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        for _ in 0..KICKS_MAX {
            let before = socket.tx.waiting();
            if before == 0 || !socket.tx.needs_wakeup() {
                return;
            }
            match socket.kick_tx() {
                Ok(()) => {}
                // It has sent part of it, or has no memory just now.
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => return self.counters.send_errors.add_shared(1),
            }
            if socket.tx.waiting() == before {
                return;
            }
        }
    }
}

impl Queue for XdpQueue {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        let before = out.len();
        let waiting = socket.rx.waiting().min(out.room());
        for _ in 0..waiting {
            let Desc { addr, len, .. } = socket.rx.pop();
            let Some(frame) = self.held.received(addr, len) else {
                self.counters.strange.add_shared(1);
                continue;
            };
            frame.buf.prefetch();
            let _ = out.push(frame);
        }
        if waiting > 0 {
            socket.rx.publish();
            if self.completes {
                let new = out[before..].iter_mut();
                new.for_each(|frame| sound::complete(frame.data_mut()));
            }
            if let Some(questions) = &self.questions {
                let new = out[before..].iter();
                new.for_each(|frame| questions.received(frame.data()));
            }
        }
        self.refill(pool);
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.reap(pool, done);
        let Some(socket) = &mut self.socket else {
            return;
        };
        let take = frames.len().min(socket.tx.room()).min(done.room());
        for frame in frames.pull().take(take) {
            if let Some(questions) = &self.questions {
                questions.sending(frame.data());
            }
            let given = match self.held.send(frame) {
                Ok(given) => Some(given),
                Err(foreign) => self.copied(foreign, pool, done),
            };
            let Some((addr, len)) = given else {
                self.counters.no_buffer.add_shared(1);
                continue;
            };
            if let Some(socket) = &mut self.socket {
                socket.tx.push(Desc {
                    addr,
                    len: u32::from(len),
                    options: 0,
                });
            }
        }
        if take > 0
            && let Some(socket) = &mut self.socket
        {
            socket.tx.publish();
        }
        if self.held.sending > 0 {
            self.kick();
            // Where the kernel copies it is done as a rule.
            self.reap(pool, done);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(Socket::wait_fd)
    }

    fn arm(&mut self) -> bool {
        // Packets that come in from here on make the descriptor readable: the kernel looks at the ring when it is waited for.
        let Some(socket) = &mut self.socket else {
            return true;
        };
        if socket.rx.waiting() > 0 || socket.completed.waiting() > 0 {
            return false;
        }
        // Without a buffer the kernel takes nothing in, and wakes no core: there must be one first.
        if self.held.filling == 0 {
            return false;
        }
        // Not left to the descriptor: it asks the driver only when something has come.
        if socket.fill.needs_wakeup() {
            socket.kick_rx();
        }
        // A completion wakes no core, so it is waited for awake.
        if self.held.sending > 0 && self.kept_awake < AWAKE_FOR_SENDING_MAX {
            self.kept_awake += 1;
            return false;
        }
        true
    }
}

impl Drop for XdpQueue {
    fn drop(&mut self) {
        // No packets for a queue that is no longer polled: the kernel gets them back at once.
        self.attached.detach();
        let Some(mut socket) = self.socket.take() else {
            return;
        };
        if let Ok(found) = socket.statistics() {
            self.counters.add(&found);
        }
        for _ in 0..LAST_LOOKS {
            for _ in 0..socket.completed.waiting() {
                let address = socket.completed.pop();
                drop(self.held.sent(address));
            }
            socket.completed.publish();
            if self.held.sending == 0 {
                break;
            }
            let _ = socket.kick_tx();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let zero_copy = socket.is_zero_copy();
        drop(socket);
        // A driver that writes into our memory itself lets go of it at a time of its own: those buffers are never used again.
        if !zero_copy {
            // SAFETY: no other descriptor of the socket exists, so it is closed, and closing waits until no packet is on its way into its
            // memory.
            unsafe { self.held.bring_home() };
        }
    }
}
