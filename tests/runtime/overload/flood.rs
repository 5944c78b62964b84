//! A flood of SYNs in front of an end of the wire: addresses that nobody has open connections and never answer, as fast
//! as they are answered themselves, so that the server works for strangers as much as it can while nothing is lost on
//! the wire; or, as a torrent, faster than it can, whatever becomes of them. What it answers them goes no further.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use janus_io::wire::End;
use janus_io::{Backend, Batch, Caps, Queue};
use janus_mem::{Frame, Pool};
use janus_wire::{SeqNum, ipv4, proto, tcp};
use rustix::fd::BorrowedFd;

/// SYNs on their way at a time: the wire holds more.
const WINDOW: u64 = 256;
/// Sent in one go.
const BURST: u64 = 16;
/// What a torrent brings in one go. What of that the wire does not take, or nobody could make so fast, is lost before it.
const TORRENT: u64 = 640;
/// When no answer has come for so long, what was sent is taken for lost.
const SILENCE: Duration = Duration::from_secs(2);
/// 198.18.0.0/15, for tests of networks (RFC 2544).
const STRANGERS: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const STRANGERS_MASK: u32 = 0xfffe_0000;

/// The flood as the test sees it.
#[derive(Default)]
pub(crate) struct Tide {
    pub(crate) runs: AtomicBool,
    pub(crate) is_torrent: AtomicBool,
    /// SYNs on the wire, or of a torrent those that should be.
    pub(crate) sent: AtomicU64,
    /// SYN-ACKs that came.
    pub(crate) answered: AtomicU64,
    /// Anything else that was said to a stranger.
    pub(crate) others: AtomicU64,
}

/// An end of the wire with the flood in front of it.
pub(crate) struct Flooded {
    pub(crate) end: End,
    pub(crate) tide: Arc<Tide>,
    pub(crate) port: u16,
}

impl Backend for Flooded {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Flooded { end, tide, port } = *self;
        let wrap = |inner| -> Box<dyn Queue> {
            Box::new(Flooding {
                inner,
                tide: tide.clone(),
                port,
                under_way: 0,
                heard: Instant::now(),
            })
        };
        let queues = Box::new(end).open(queues)?;
        Ok(queues.into_iter().map(wrap).collect())
    }
}

struct Flooding {
    inner: Box<dyn Queue>,
    tide: Arc<Tide>,
    port: u16,
    under_way: u64,
    heard: Instant,
}

impl Flooding {
    fn runs(&self) -> bool {
        self.tide.runs.load(Ordering::Acquire)
    }

    /// As many as the wire takes now.
    fn pour(&mut self, pool: &mut Pool) {
        let first = self.tide.sent.fetch_add(TORRENT, Ordering::Relaxed);
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        let numbers = first..first + BURST * 4;
        for packet in numbers.map(|number| syn(number, self.port)) {
            push(pool, &mut batch, &packet);
        }
        self.inner.tx_burst(pool, &mut batch, &mut done);
        batch.pull().for_each(|frame| pool.free(frame.buf));
    }

    fn flood(&mut self, pool: &mut Pool) {
        if self.tide.is_torrent.load(Ordering::Relaxed) {
            return self.pour(pool);
        }
        if self.heard.elapsed() > SILENCE {
            (self.under_way, self.heard) = (0, Instant::now());
        }
        let mut batch = Batch::new();
        for _ in 0..BURST.min(WINDOW.saturating_sub(self.under_way)) {
            let number = self.tide.sent.load(Ordering::Relaxed) + batch.len() as u64;
            push(pool, &mut batch, &syn(number, self.port));
        }
        let sent = batch.len() as u64;
        let mut done = Batch::new();
        self.inner.tx_burst(pool, &mut batch, &mut done);
        self.under_way += sent;
        self.tide.sent.fetch_add(sent, Ordering::Relaxed);
    }

    /// Notes what is for a stranger; false for what is not.
    fn is_for_a_stranger(&mut self, packet: &[u8]) -> bool {
        let Ok(ip) = ipv4::parse(packet) else {
            return false;
        };
        if ip.dst.to_bits() & STRANGERS_MASK != STRANGERS {
            return false;
        }
        let header = tcp::parse(ip.payload());
        let both = tcp::Flags::SYN | tcp::Flags::ACK;
        match header {
            Ok((header, ..)) if header.flags.0 & both.0 == both.0 => {
                self.tide.answered.fetch_add(1, Ordering::Relaxed);
                self.under_way = self.under_way.saturating_sub(1);
                self.heard = Instant::now();
            }
            _ => _ = self.tide.others.fetch_add(1, Ordering::Relaxed),
        }
        true
    }
}

impl Queue for Flooding {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        if self.runs() {
            self.flood(pool);
        }
        // No more than there is room for.
        let mut burst = Batch::new();
        burst.set_limit(out.room());
        while !burst.is_full() {
            let before = burst.len();
            self.inner.rx_burst(pool, &mut burst);
            if burst.len() == before {
                break;
            }
        }
        for frame in burst.pull() {
            if self.is_for_a_stranger(frame.data()) {
                pool.free(frame.buf);
            } else {
                let refused = out.push(frame);
                assert!(refused.is_ok(), "no more were taken than there was room");
            }
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.inner.tx_burst(pool, frames, done);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        !self.runs() && self.inner.arm()
    }
}

/// Adds a packet, if there is a buffer for it.
fn push(pool: &mut Pool, batch: &mut Batch, packet: &[u8]) {
    let Some(buf) = pool.alloc() else { return };
    let mut frame = Frame::new(buf, packet.len() as u16);
    frame.data_mut().copy_from_slice(packet);
    let _ = batch.push(frame);
}

/// The SYN of stranger number `number`: no two are alike for a long time.
fn syn(number: u64, port: u16) -> Vec<u8> {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let from = Ipv4Addr::from_bits(STRANGERS | (mixed >> 40) as u32 & !STRANGERS_MASK);
    let server = Ipv4Addr::new(192, 0, 2, 1);
    let options = tcp::Options {
        mss: Some(1_460),
        sack_permitted: true,
        ..tcp::Options::NONE
    };
    let mut segment = vec![0; 60];
    let header = tcp::Header {
        src_port: 1_024 + (number % 60_000) as u16,
        dst_port: port,
        seq: SeqNum(mixed as u32),
        ack: SeqNum(0),
        flags: tcp::Flags::SYN,
        window: 0xffff,
        urgent: 0,
        header_len: tcp::LEN,
    };
    let len = tcp::emit(&mut segment, &header, &options);
    segment.truncate(len);
    tcp::fill_checksum_v4(&mut segment, from, server);
    let mut packet = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src: from,
        dst: server,
        proto: proto::TCP,
        payload_len: segment.len() as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut packet, &repr);
    packet.extend(segment);
    packet
}
