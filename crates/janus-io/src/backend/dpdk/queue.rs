//! One core's end of a DPDK port: bursts of frames between our batches and the driver, by the shim. The buffers' owners
//! change, their bytes stay where they are.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use janus_dpdk_sys::{check, ffi};
use janus_mem::{Frame, LENT, Pool};
use rustix::fd::BorrowedFd;

use super::checksum;
use super::pause::Pause;
use super::port::Port;
use super::segments::{Chains, Limits};
use super::slots;
use crate::batch::BURST;
use crate::queue::{Batch, Caps, Queue};

/// Calls in a row in which the driver takes nothing, after which the link is asked for.
const STALLED: u32 = 64;
/// Looks at the queue between two looks at the link; going to sleep counts as many.
const LINK_EVERY: u32 = 1 << 20;
const LOOKS_OF_A_SLEEP: u32 = LINK_EVERY / 64;
/// Calls between two requests to give back what is sent.
const RECLAIM_EVERY: u32 = 16;
const NOT_SUPPORTED: i32 = -95;
const INVALID: i32 = -22;

const _: () = assert!(BURST == ffi::JD_BURST_MAX);

pub(super) struct DpdkQueue {
    port: Arc<Port>,
    index: u16,
    /// Goes before the port: it borrows a descriptor of it.
    pause: ManuallyDrop<Pause>,
    packets: Box<[ffi::jd_packet; BURST]>,
    received: ffi::jd_received,
    /// Where the device cuts segments.
    chains: Option<Chains>,
    /// The next burst goes frame by frame.
    singly: bool,
    /// Lent frames that are back.
    finished: VecDeque<Frame>,
    /// Lent frames that the driver has.
    lent: usize,
    stalled: u32,
    looks: u32,
    /// The driver gives back by itself what it has sent.
    reclaims_itself: bool,
    since_reclaim: u32,
}

/// Opens the queue with this number of a started port.
pub(super) fn open(port: &Arc<Port>, index: u16, sleep: Duration) -> io::Result<Box<dyn Queue>> {
    let pause = Pause::new(port.id, index, port.facts.interrupts, sleep)?;
    let facts = &port.facts;
    let limits = Limits::new(&facts.driver, port.chain_max, port.caps.mtu);
    Ok(Box::new(DpdkQueue {
        chains: facts.tso.then(|| Chains::new(limits)),
        singly: false,
        port: port.clone(),
        index,
        pause: ManuallyDrop::new(pause),
        packets: Box::new([ffi::jd_packet::default(); BURST]),
        received: ffi::jd_received::default(),
        finished: VecDeque::new(),
        lent: 0,
        stalled: 0,
        looks: 0,
        reclaims_itself: false,
        since_reclaim: 0,
    }))
}

impl Drop for DpdkQueue {
    fn drop(&mut self) {
        // SAFETY: once, here. The port and with it the driver's descriptor are still there.
        unsafe { ManuallyDrop::drop(&mut self.pause) };
    }
}

impl Queue for DpdkQueue {
    fn caps(&self) -> &Caps {
        &self.port.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        registration::ensure();
        let before = self.received;
        let got = self.receive(pool, out.room().min(BURST) as u16);
        self.pause.looked(got > 0);
        self.look(1);
        if self.received != before {
            self.count_received(before);
        }
        let counters = &self.port.counters;
        for packet in &self.packets[..got] {
            // SAFETY: received just now: its slot is ours alone.
            let mut frame = unsafe { slots::frame(&packet.frame) };
            (frame.tag, frame.key) = (0, 0);
            if self.port.caps.rx_checksum && !checksum::is_sound(packet.flags, frame.data_mut()) {
                counters.dropped_checksum.add_shared(1);
                pool.free(frame.buf);
                continue;
            }
            let refused = out.push(frame);
            debug_assert!(refused.is_ok(), "no more is received than there is room");
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        registration::ensure();
        if !frames.is_empty() {
            self.send(pool, frames);
        }
        if self.lent > 0 {
            self.reclaim(pool, frames.is_empty());
            self.bring_back(done);
        } else if !self.finished.is_empty() {
            self.bring_back(done);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pause.fd()
    }

    fn arm(&mut self) -> bool {
        self.look(LOOKS_OF_A_SLEEP);
        // A driver that must be asked for what it has sent must be asked soon.
        let owes = self.lent > 0 && !self.reclaims_itself;
        self.pause.arm() && !owes && self.finished.is_empty()
    }
}

impl DpdkQueue {
    /// Now and then one queue looks at the link.
    #[inline]
    fn look(&mut self, weight: u32) {
        self.looks += weight;
        if self.looks >= LINK_EVERY {
            self.looks = 0;
            if self.index == 0 {
                self.port.look_at_link();
            }
        }
    }

    /// A burst into `packets`; how many.
    #[inline]
    fn receive(&mut self, pool: &mut Pool, count: u16) -> usize {
        let port = &*self.port;
        let home = &port.homes[usize::from(self.index)];
        let packets = self.packets.as_mut_ptr();
        let received = &raw mut self.received;
        let got = port.slots().in_turn(pool, &mut self.finished, home, || {
            // SAFETY: the port is started and this is the queue's only thread; `packets` has `BURST` places, and `count`
            // is no more.
            unsafe {
                ffi::jd_slots_receive(
                    port.id,
                    self.index,
                    port.slots().raw(),
                    packets,
                    count,
                    received,
                )
            }
        });
        home.add(-(got as isize));
        usize::from(got)
    }

    #[cold]
    #[inline(never)]
    fn count_copies(&self, before: ffi::jd_received) {
        let (now, counters) = (&self.received, &self.port.counters);
        counters.rx_copied.add_shared(now.copied - before.copied);
        counters
            .dropped_long
            .add_shared(now.too_long - before.too_long);
        counters
            .dropped_no_buffer
            .add_shared(now.no_buffer - before.no_buffer);
    }

    #[inline]
    fn count_received(&self, before: ffi::jd_received) {
        let now = &self.received;
        self.port
            .counters
            .received
            .add_shared(now.frames - before.frames);
        if (now.copied, now.too_long, now.no_buffer)
            != (before.copied, before.too_long, before.no_buffer)
        {
            self.count_copies(before);
        }
    }

    /// Gives the driver what it takes of `frames`.
    fn send(&mut self, pool: &mut Pool, frames: &mut Batch) {
        let region = self.port.slots().region();
        for at in 0..frames.len() {
            let foreign = as_slot(&frames[at]).region != region;
            if foreign && !self.copy(pool, &mut frames[at]) {
                // No buffer for it: the frames before it go now, the rest later.
                return self.hand_over(pool, frames, at);
            }
            let packet = outgoing(&frames[at], self.port.caps.tx_checksum);
            self.packets[at] = packet;
        }
        self.hand_over(pool, frames, frames.len());
    }

    /// Sends the first `count` frames, which `packets` describes.
    fn hand_over(&mut self, pool: &mut Pool, frames: &mut Batch, count: usize) {
        let singly = std::mem::take(&mut self.singly);
        let (mut chained, mut headers) = (0, ptr::null());
        if let Some(chains) = &mut self.chains
            && !singly
        {
            chained = chains.join(&frames[..count], &mut self.packets[..count]);
            headers = chains.headers();
        }
        let port = self.port.clone();
        let home = &port.homes[usize::from(self.index)];
        let packets = &self.packets[..count];
        let lent = |packets: &[ffi::jd_packet]| {
            packets
                .iter()
                .filter(|packet| packet.flags & ffi::JD_LENT != 0)
                .count()
        };
        let slots = port.slots();
        let sent = slots.in_turn(pool, &mut self.finished, home, || {
            // SAFETY: the port is started and this is the queue's only thread. The slots are of this region and ours, as
            // the frames are; what the driver takes is forgotten below. `home` lives as long as the port.
            unsafe {
                ffi::jd_slots_transmit(
                    port.id,
                    self.index,
                    slots.raw(),
                    ptr::from_ref(home).cast_mut().cast(),
                    packets.as_ptr(),
                    packets.len() as u16,
                    headers,
                )
            }
        });
        let is_chain = |packet: &ffi::jd_packet| packet.flags & ffi::JD_TX_TSO != 0;
        if sent <= 0 {
            let chained = packets.first().is_some_and(is_chain);
            return self.nothing_sent(pool, frames, chained, sent == INVALID);
        }
        let sent = sent as usize;
        if chained > 0 {
            let went = packets[..sent].iter().filter(|packet| is_chain(packet));
            port.counters.joined.add_shared(went.count() as u64);
        }
        self.stalled = 0;
        self.lent += lent(&self.packets[..sent]);
        home.add(sent as isize);
        port.counters.sent.add_shared(sent as u64);
        // SAFETY: the driver owns their buffers now, or has already given them back by the hooks.
        unsafe { frames.forget_front(sent) };
    }

    /// The driver took nothing: its ring is full, its link is down, or it cannot send the first frame.
    #[cold]
    #[inline(never)]
    fn nothing_sent(&mut self, pool: &mut Pool, frames: &mut Batch, chained: bool, unfit: bool) {
        let counters = &self.port.counters;
        self.stalled += 1;
        // Perhaps it is the chain that it does not take.
        self.singly = chained && (unfit || self.stalled.is_multiple_of(STALLED));
        let give_up = if unfit && chained {
            return;
        } else if unfit {
            counters.refused.add_shared(1);
            1
        } else if self.stalled.is_multiple_of(STALLED) && !self.port.look_at_link() {
            counters.lost_link_down.add_shared(frames.len() as u64);
            frames.len()
        } else {
            return;
        };
        for frame in frames.pull().take(give_up) {
            self.dispose(frame, pool);
        }
    }

    /// A frame in another depot's buffer goes out of one of ours, which takes its place; a lent one is finished.
    #[cold]
    #[inline(never)]
    fn copy(&mut self, pool: &mut Pool, frame: &mut Frame) -> bool {
        let Some(buf) = self.port.slots().alloc() else {
            return false;
        };
        let mut copy = Frame::new(buf, frame.len);
        copy.data_mut().copy_from_slice(frame.data());
        self.port.counters.tx_copied.add_shared(1);
        let original = std::mem::replace(frame, copy);
        self.dispose(original, pool);
        true
    }

    /// Finished with, without ever having been the driver's.
    fn dispose(&mut self, frame: Frame, pool: &mut Pool) {
        if frame.is_lent() {
            self.lent += 1;
            self.finished.push_back(frame);
        } else {
            pool.free(frame.buf);
        }
    }

    /// Asks the driver for what it has sent: a lent frame must not wait for the next one.
    fn reclaim(&mut self, pool: &mut Pool, idle: bool) {
        self.since_reclaim += 1;
        if self.reclaims_itself || !idle || self.since_reclaim < RECLAIM_EVERY {
            return;
        }
        self.since_reclaim = 0;
        let port = &*self.port;
        let home = &port.homes[usize::from(self.index)];
        let answer = port.slots().in_turn(pool, &mut self.finished, home, || {
            // SAFETY: the port is started and this is the queue's only thread.
            unsafe { ffi::jd_tx_reclaim(port.id, self.index) }
        });
        self.reclaims_itself = answer == NOT_SUPPORTED;
    }

    fn bring_back(&mut self, done: &mut Batch) {
        self.port.homes[usize::from(self.index)].bring(&mut self.finished);
        let fits = done.room().min(self.finished.len());
        done.extend(self.finished.drain(..fits));
        self.lent -= fits;
        self.port.counters.completed.add_shared(fits as u64);
    }
}

/// Describes a frame to the shim.
#[inline]
fn outgoing(frame: &Frame, tx_checksum: bool) -> ffi::jd_packet {
    let (mut flags, l2_len, l3_len) = match tx_checksum {
        true => checksum::offload(frame.data()),
        false => (0, 0, 0),
    };
    if frame.tag & LENT != 0 {
        flags |= ffi::JD_LENT;
    }
    ffi::jd_packet {
        frame: as_slot(frame),
        hash: 0,
        flags,
        l2_len,
        l3_len,
    }
}

#[inline]
fn as_slot(frame: &Frame) -> ffi::jd_slot {
    // SAFETY: a second handle for the length of `into_raw`, which makes a number of it and drops nothing.
    let raw = unsafe { ptr::read(&raw const frame.buf) }.into_raw();
    ffi::jd_slot {
        slot: raw as u32,
        region: (raw >> 32) as u16,
        off: (raw >> 48) as u16,
        len: frame.len,
        tag: frame.tag,
        key: frame.key,
    }
}

/// Threads that poll are made known to DPDK, once each, and forgotten when they end.
mod registration {
    use janus_dpdk_sys::ffi;

    use super::check;

    struct Registered(bool);

    impl Drop for Registered {
        fn drop(&mut self) {
            if self.0 {
                // SAFETY: this thread was registered, by `ensure`.
                unsafe { ffi::jd_thread_unregister() };
            }
        }
    }

    thread_local! {
        static THREAD: Registered = Registered(
            // SAFETY: DPDK runs, as there is a queue. One that is known already, or one too many, stays as it is: a queue
            // works all the same.
            check(unsafe { ffi::jd_thread_register() }).is_ok()
        );
    }

    #[inline]
    pub(super) fn ensure() {
        THREAD.with(|_| ());
    }
}
