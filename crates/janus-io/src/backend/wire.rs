//! The in-memory wire: two backends joined back to back, each with several queues. It behaves as two NICs with a cable:
//! the receiver posts empty buffers of its own pool, the sender's `tx_burst` copies each frame into one of them (that
//! is the DMA), and a frame for which none is posted is dropped and counted. The far queue is chosen by a symmetric
//! hash of the flow. A receiver that sleeps is rung. Delay, loss and order are not its business: it loses only what
//! does not fit, and keeps the order of a flow.

mod inlet;
mod lane;
pub mod switch;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use janus_mem::{HEADROOM, Pool, SLOT_SIZE};
use janus_wire::classify::Icmp;
use janus_wire::{Class, FlowKeyV4, FlowKeyV6, Link, MacAddr, classify};
use rustix::fd::BorrowedFd;

use crate::batch::BURST;
use crate::counter::Counter;
use crate::debug::opaque;
use crate::queue::{Backend, Batch, Caps, LossesFn, Queue, check_queues, retire};
use inlet::{Inlet, Side};
use lane::{LaneRx, LaneTx};

/// The most queues a side can have.
pub const MAX_QUEUES: usize = 64;
/// The longest MTU: a frame fits behind the headroom of one buffer.
pub const MAX_MTU: u16 = SLOT_SIZE as u16 - HEADROOM - janus_wire::ethernet::LEN as u16;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first end of the pair to the second.
    Forth,
    /// From the second to the first.
    Back,
}

/// Sees every frame that is sent, before it can be lost. Called on the sender's thread.
pub trait Capture: Send + Sync {
    /// One frame.
    fn frame(&self, direction: Direction, bytes: &[u8]);
}

impl<F: Fn(Direction, &[u8]) + Send + Sync> Capture for F {
    fn frame(&self, direction: Direction, bytes: &[u8]) {
        self(direction, bytes);
    }
}

/// Chooses the far queue of a frame.
pub trait Spread: Send + Sync {
    /// One of the `queues` that are open there, for a frame with these bytes. Called on the sender's thread.
    fn queue(&self, bytes: &[u8], queues: usize) -> usize;
}

impl<F: Fn(&[u8], usize) -> usize + Send + Sync> Spread for F {
    fn queue(&self, bytes: &[u8], queues: usize) -> usize {
        self(bytes, queues)
    }
}

/// Properties of a wire.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone)]
pub struct Config {
    /// First header of its frames.
    pub link: Link,
    /// The longest IP packet.
    pub mtu: u16,
    /// Frames that can wait between one sending and one receiving queue.
    pub depth: u32,
    /// The most queues the first and the second end can be opened with.
    pub queues: [usize; 2],
    /// Sees every frame.
    pub capture: Option<Arc<dyn Capture>>,
    /// Chooses queues otherwise than by the symmetric hash of the flow: as a device does whose rules change while
    /// flows live, or that does not know TCP.
    pub spread: Option<Arc<dyn Spread>>,
}

opaque!(Config);

impl Default for Config {
    fn default() -> Self {
        Self {
            link: Link::Ip,
            mtu: 1500,
            depth: 512,
            queues: [1, 1],
            capture: None,
            spread: None,
        }
    }
}

/// Counters of one queue. Written by the thread that polls it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct WireCounters {
    /// Frames that reached the far side.
    pub sent: Counter,
    /// Bytes of them.
    pub sent_bytes: Counter,
    /// Frames lost because the far side had no buffer posted.
    pub lost_no_buffer: Counter,
    /// Frames lost because the far side is not open.
    pub lost_no_link: Counter,
    /// Frames longer than the wire carries.
    pub lost_too_long: Counter,
    /// Times that this queue was to post buffers to receive into, and the pool had too few.
    pub no_buffer: Counter,
}

/// One end of the wire, not opened yet.
pub struct End {
    caps: Caps,
    direction: Direction,
    near: Arc<Side>,
    far: Arc<Side>,
    parts: Vec<Parts>,
    capture: Option<Arc<dyn Capture>>,
    spread: Option<Arc<dyn Spread>>,
}

opaque!(End);

/// The lanes of one queue.
struct Parts {
    tx: Vec<LaneTx>,
    rx: Vec<LaneRx>,
}

/// Makes a wire and gives its two ends.
pub fn pair(config: Config) -> io::Result<(End, End)> {
    let [near, far] = config.queues;
    check_mtu(config.mtu)?;
    for queues in config.queues {
        check_queues("an end of the wire", queues, MAX_QUEUES)?;
    }
    let sides = [Side::new(near)?, Side::new(far)?];
    let parts = |queues: usize| -> Vec<Parts> {
        (0..queues)
            .map(|_| Parts {
                tx: Vec::new(),
                rx: Vec::new(),
            })
            .collect()
    };
    let mut parts = [parts(near), parts(far)];
    for (from, to) in [(0, 1), (1, 0)] {
        for sender in 0..config.queues[from] {
            for receiver in 0..config.queues[to] {
                let (tx, rx) = lane::lane(config.depth);
                parts[from][sender].tx.push(tx);
                parts[to][receiver].rx.push(rx);
            }
        }
    }
    let [first, second] = parts;
    let end = |index: usize, parts| End {
        caps: Caps {
            link: config.link,
            mtu: config.mtu,
            // Locally administered, "Janus".
            mac: (config.link == Link::Ethernet).then_some(MacAddr([
                2,
                b'J',
                b'a',
                b'n',
                b'u',
                index as u8 + 1,
            ])),
            tx_checksum: false,
            rx_checksum: false,
            tso: false,
            gro: false,
            name: format!("wire end {index}"),
        },
        direction: if index == 0 {
            Direction::Forth
        } else {
            Direction::Back
        },
        near: sides[index].clone(),
        far: sides[1 - index].clone(),
        parts,
        capture: config.capture.clone(),
        spread: config.spread.clone(),
    };
    Ok((end(0, first), end(1, second)))
}

fn check_mtu(mtu: u16) -> io::Result<()> {
    if (68..=MAX_MTU).contains(&mtu) {
        return Ok(());
    }
    let text =
        format!("the wire carries packets of 68 to {MAX_MTU} bytes: an MTU of {mtu} cannot be");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

impl End {
    /// Returns the capabilities of the device, before it is open.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Returns the counters of this end's queues, one for each. They stay readable after it is opened.
    #[must_use]
    pub fn counters(&self) -> Vec<Arc<WireCounters>> {
        self.near.counters.clone()
    }
}

impl Backend for End {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Self {
            caps,
            direction,
            near,
            far,
            parts,
            capture,
            spread,
        } = *self;
        check_queues(&caps.name, queues, parts.len())?;
        near.open.store(queues, Ordering::Release);
        let queue = |(index, Parts { tx, rx }): (usize, Parts)| -> Box<dyn Queue> {
            Box::new(WireQueue {
                caps: caps.clone(),
                direction,
                tx,
                inlet: Inlet::new(rx, near.clone(), index),
                counters: near.counters[index].clone(),
                far: far.clone(),
                capture: capture.clone(),
                spread: spread.clone(),
            })
        };
        Ok(parts
            .into_iter()
            .take(queues)
            .enumerate()
            .map(queue)
            .collect())
    }

    fn losses(&self) -> Option<Box<LossesFn>> {
        Some(self.near.losses())
    }
}

struct WireQueue {
    caps: Caps,
    direction: Direction,
    /// One for each queue of the far side.
    tx: Vec<LaneTx>,
    inlet: Inlet,
    counters: Arc<WireCounters>,
    far: Arc<Side>,
    capture: Option<Arc<dyn Capture>>,
    spread: Option<Arc<dyn Spread>>,
}

impl WireQueue {
    /// The far queue of a frame, of `queues` that are open.
    #[inline]
    fn far_queue(&self, frame: &[u8], queues: usize) -> usize {
        match &self.spread {
            _ if queues == 1 => 0,
            None => spread(frame, self.caps.link, queues),
            Some(choice) => choice.queue(frame, queues).min(queues - 1),
        }
    }

    /// Copies one frame into the far side's memory. `None` = it went there; otherwise which counter says why not.
    #[inline]
    fn carry(&mut self, frame: &[u8], to: usize, pool: &mut Pool) -> Option<&Counter> {
        if let Some(capture) = &self.capture {
            capture.frame(self.direction, frame);
        }
        if frame.len() > self.caps.frame_max() {
            return Some(&self.counters.lost_too_long);
        }
        if self.tx[to].carry(frame, pool) {
            None
        } else {
            Some(&self.counters.lost_no_buffer)
        }
    }

    fn flush(&mut self, far_open: usize) -> u64 {
        let mut sent = 0;
        for (lane, bell) in self.tx[..far_open].iter_mut().zip(&self.far.bells) {
            let n = lane.flush();
            if n > 0 {
                sent += n as u64;
                bell.ring();
            }
        }
        sent
    }
}

impl Queue for WireQueue {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        self.inlet.receive(pool, out);
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        let far_open = self.far.open.load(Ordering::Acquire);
        let mut bytes = 0;
        // Bounds the frames taken: each of them might be LENT.
        let room = done.room().min(BURST);
        for frame in frames.pull().take(room) {
            if far_open == 0 {
                self.counters.lost_no_link.add(1);
            } else {
                let data = frame.data();
                let to = self.far_queue(data, far_open);
                match self.carry(data, to, pool) {
                    None => bytes += data.len() as u64,
                    Some(lost) => lost.add(1),
                }
            }
            retire(frame, pool, done);
        }
        let sent = self.flush(far_open);
        self.counters.sent.add(sent);
        self.counters.sent_bytes.add(bytes);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inlet.fd())
    }

    fn arm(&mut self) -> bool {
        self.inlet.arm()
    }
}

/// Which of `queues` queues a frame goes to: the same for both directions of a flow, queue 0 for what has no flow.
#[inline]
#[must_use]
pub fn spread(frame: &[u8], link: Link, queues: usize) -> usize {
    let of_v4 = |flow: FlowKeyV4| {
        (
            fold4(flow.peer, flow.local),
            flow.peer_port ^ flow.local_port,
        )
    };
    let of_v6 = |flow: FlowKeyV6| {
        (
            fold6(flow.peer, flow.local),
            flow.peer_port ^ flow.local_port,
        )
    };
    let (addresses, ports) = match classify(frame, link) {
        Class::Tcp4(tcp) => of_v4(tcp.flow),
        Class::Tcp6(tcp) => of_v6(tcp.flow),
        Class::Udp4(udp) => of_v4(udp.flow),
        Class::Udp6(udp) => of_v6(udp.flow),
        // An ICMP error goes where the flow it speaks of goes.
        Class::Icmp4(icmp) => match icmp.quoted {
            Some(flow) => of_v4(flow),
            None => (fold4(icmp.src, icmp.dst), 0),
        },
        Class::Icmp6(Icmp {
            quoted: Some(flow), ..
        }) => of_v6(flow),
        _ => return 0,
    };
    // Fibonacci hashing; the upper half of the product times the count picks evenly.
    let mixed =
        (u64::from(addresses) << 16 ^ u64::from(ports)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (mixed as usize * queues) >> 32
}

fn fold4(one: Ipv4Addr, other: Ipv4Addr) -> u32 {
    one.to_bits() ^ other.to_bits()
}

fn fold6(one: Ipv6Addr, other: Ipv6Addr) -> u32 {
    let both = one.to_bits() ^ other.to_bits();
    (0..4).fold(0, |sum: u32, word| {
        sum.rotate_left(8) ^ (both >> (32 * word)) as u32
    })
}

#[cfg(test)]
mod tests;
