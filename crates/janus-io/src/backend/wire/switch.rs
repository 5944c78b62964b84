//! A switch in memory: several backends on one link, each with its own link address. It learns which address is behind which port from what
//! they send, and floods frames for an address it does not know. There is no thread in it: the sender looks the way up in a table that all
//! share, and copies the frame into the receiver's memory. Loops, priorities and aging are not its business: a host that moves is learned
//! anew with the first frame it sends.

mod table;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use janus_mem::Pool;
use janus_wire::{Link, MacAddr, ethernet};
use rustix::fd::BorrowedFd;

use super::inlet::{Inlet, Side};
use super::lane::{self, LaneRx, LaneTx};
use super::{WireCounters, check_mtu, spread};
use crate::batch::BURST;
use crate::counter::Counter;
use crate::debug::opaque;
use crate::queue::{Backend, Batch, Caps, LossesFn, Queue, check_queues, retire};
use table::Table;

/// The most queues all ports of a switch have together.
pub const MAX_QUEUES: usize = 64;

/// Properties of a switch.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The longest IP packet.
    pub mtu: u16,
    /// Frames that can wait between one sending and one receiving queue.
    pub depth: u32,
    /// The most queues each port can be opened with.
    pub queues: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mtu: 1500,
            depth: 256,
            queues: 1,
        }
    }
}

/// Counts of frames by what the switch did with them, over all ports.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SwitchCounters {
    /// Frames that went to one port, because their receiver was known to be there.
    pub forwarded: Counter,
    /// Frames that went to all other ports.
    pub flooded: Counter,
    /// Frames for a receiver behind the port they came from.
    pub filtered: Counter,
    /// Frames too short for a link header.
    pub dropped_runt: Counter,
}

/// Port of the switch that a backend is opened from, not opened yet.
pub struct Port {
    caps: Caps,
    index: usize,
    sides: Arc<[Arc<Side>]>,
    parts: Vec<Parts>,
    table: Arc<Table>,
    counters: Arc<SwitchCounters>,
}

opaque!(Port);

/// The lanes of one queue.
#[derive(Default)]
struct Parts {
    /// By far port and queue there; none to its own port.
    tx: Vec<Vec<LaneTx>>,
    rx: Vec<LaneRx>,
}

/// Makes a switch and gives its ports.
pub fn switch(ports: usize, config: Config) -> io::Result<Vec<Port>> {
    check_mtu(config.mtu)?;
    check_queues("a port of the switch", config.queues, MAX_QUEUES)?;
    check_queues("a switch", ports.saturating_mul(config.queues), MAX_QUEUES)?;
    let sides = (0..ports).map(|_| Side::new(config.queues));
    let sides: Arc<[Arc<Side>]> = sides.collect::<io::Result<_>>()?;
    let table = Arc::new(Table::new());
    let counters = Arc::<SwitchCounters>::default();
    let port = |(index, parts)| Port {
        caps: caps(index, config.mtu),
        index,
        sides: sides.clone(),
        parts,
        table: table.clone(),
        counters: counters.clone(),
    };
    Ok(wired(ports, config)
        .into_iter()
        .enumerate()
        .map(port)
        .collect())
}

/// The queues of each port, every one with a lane to every queue of every other port.
fn wired(ports: usize, config: Config) -> Vec<Vec<Parts>> {
    let queue = || Parts {
        tx: (0..ports).map(|_| Vec::new()).collect(),
        rx: Vec::new(),
    };
    let mut all: Vec<Vec<Parts>> = (0..ports)
        .map(|_| (0..config.queues).map(|_| queue()).collect())
        .collect();
    for from in 0..ports {
        for to in (0..ports).filter(|to| *to != from) {
            for sender in 0..config.queues {
                for receiver in 0..config.queues {
                    let (tx, rx) = lane::lane(config.depth);
                    all[from][sender].tx[to].push(tx);
                    all[to][receiver].rx.push(rx);
                }
            }
        }
    }
    all
}

fn caps(index: usize, mtu: u16) -> Caps {
    Caps {
        link: Link::Ethernet,
        mtu,
        // Locally administered, "Janu" and the port.
        mac: Some(MacAddr([2, b'J', b'a', b'n', b'u', index as u8 + 1])),
        tx_checksum: false,
        rx_checksum: false,
        tso: false,
        gro: false,
        name: format!("switch port {index}"),
    }
}

impl Port {
    /// Returns the capabilities of the device, before it is open.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Returns the counters of this port's queues, one for each. They stay readable after it is opened.
    #[must_use]
    pub fn counters(&self) -> Vec<Arc<WireCounters>> {
        self.sides[self.index].counters.clone()
    }

    /// Returns the counters of the whole switch.
    #[must_use]
    pub fn switch_counters(&self) -> Arc<SwitchCounters> {
        self.counters.clone()
    }
}

impl Backend for Port {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Self {
            caps,
            index,
            sides,
            parts,
            table,
            counters,
        } = *self;
        check_queues(&caps.name, queues, parts.len())?;
        let near = &sides[index];
        near.open.store(queues, Ordering::Release);
        let queue = |(at, Parts { tx, rx }): (usize, Parts)| -> Box<dyn Queue> {
            Box::new(SwitchQueue {
                caps: caps.clone(),
                port: index,
                tx,
                inlet: Inlet::new(rx, near.clone(), at),
                counters: near.counters[at].clone(),
                sides: sides.clone(),
                table: table.clone(),
                switch: counters.clone(),
            })
        };
        let parts = parts.into_iter().take(queues).enumerate();
        Ok(parts.map(queue).collect())
    }

    fn losses(&self) -> Option<Box<LossesFn>> {
        Some(self.sides[self.index].losses())
    }
}

struct SwitchQueue {
    caps: Caps,
    port: usize,
    tx: Vec<Vec<LaneTx>>,
    inlet: Inlet,
    counters: Arc<WireCounters>,
    sides: Arc<[Arc<Side>]>,
    table: Arc<Table>,
    switch: Arc<SwitchCounters>,
}

/// The ports a frame goes to.
enum Way {
    One(usize),
    All,
    None,
}

impl SwitchQueue {
    /// Learns whose frame it is, and says where it goes.
    fn way(&self, frame: &[u8]) -> Way {
        let Ok((header, _)) = ethernet::Header::parse(frame) else {
            self.switch.dropped_runt.add_shared(1);
            return Way::None;
        };
        self.table.learn(header.src, self.port);
        match self.table.find(header.dst) {
            Some(port) if port == self.port => {
                self.switch.filtered.add_shared(1);
                Way::None
            }
            Some(port) => {
                self.switch.forwarded.add_shared(1);
                Way::One(port)
            }
            None => {
                self.switch.flooded.add_shared(1);
                Way::All
            }
        }
    }

    /// Copies a frame into the memory of whoever is behind the port.
    fn carry(&mut self, frame: &[u8], port: usize, pool: &mut Pool) {
        let open = self.sides[port].open.load(Ordering::Acquire);
        if open == 0 {
            self.counters.lost_no_link.add(1);
            return;
        }
        let queue = match open {
            1 => 0,
            _ => spread(frame, Link::Ethernet, open),
        };
        if self.tx[port][queue].carry(frame, pool) {
            self.counters.sent_bytes.add(frame.len() as u64);
        } else {
            self.counters.lost_no_buffer.add(1);
        }
    }

    fn flood(&mut self, frame: &[u8], pool: &mut Pool) {
        let from = self.port;
        for port in (0..self.tx.len()).filter(|port| *port != from) {
            self.carry(frame, port, pool);
        }
    }

    fn flush(&mut self) {
        for (lanes, side) in self.tx.iter_mut().zip(self.sides.iter()) {
            for (lane, bell) in lanes.iter_mut().zip(&side.bells) {
                let sent = lane.flush();
                if sent > 0 {
                    self.counters.sent.add(sent as u64);
                    bell.ring();
                }
            }
        }
    }
}

impl Queue for SwitchQueue {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        self.inlet.receive(pool, out);
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        // Bounds the frames taken: each of them might be LENT.
        let room = done.room().min(BURST);
        for frame in frames.pull().take(room) {
            let data = frame.data();
            if data.len() > self.caps.frame_max() {
                self.counters.lost_too_long.add(1);
            } else {
                match self.way(data) {
                    Way::None => {}
                    Way::One(port) => self.carry(data, port, pool),
                    Way::All => self.flood(data, pool),
                }
            }
            retire(frame, pool, done);
        }
        self.flush();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inlet.fd())
    }

    fn arm(&mut self) -> bool {
        self.inlet.arm()
    }
}

#[cfg(test)]
mod tests;
