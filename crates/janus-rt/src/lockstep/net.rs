//! The network between the peer and the runtime: it delays, so that packets overtake each other, and duplicates some, SYNs most of all. It
//! loses nothing. Each packet comes into a random queue of the runtime.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use janus_io::wire::Spread;
use janus_tcp::Instant;
use janus_wire::tcp::Flags;

use super::rng::Rng;
use super::stamps;

/// Usual bound of a packet's delay, in nanoseconds.
const DELAY_NS: u64 = 100_000;
/// Bound of the delay of some packets, in nanoseconds.
pub(super) const LATE_NS: u64 = 3_000_000;

/// Spreads packets at random: every packet of a flow may come to another I/O core.
pub(crate) fn any_queue(seed: u64) -> Arc<dyn Spread> {
    let rng = Mutex::new(Rng::new(seed));
    Arc::new(move |_: &[u8], queues: usize| {
        let mut rng = rng.lock().expect("one thread");
        rng.below(queues as u64) as usize
    })
}

/// Packets in one direction.
pub(crate) struct Net {
    rng: Rng,
    under_way: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    count: u64,
    /// No packet is late, and only SYNs are duplicated.
    pub(crate) calm: bool,
    pub(crate) duplicate_syns: u64,
    /// Every third source port is of a peer without timestamps, and one echo in ten is wrong.
    pub(crate) odd_stamps: bool,
    pub(crate) stripped: u64,
    pub(crate) lies: u64,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Net {
        Net {
            rng: Rng::new(seed),
            under_way: BinaryHeap::new(),
            count: 0,
            calm: false,
            duplicate_syns: 0,
            odd_stamps: false,
            stripped: 0,
            lies: 0,
        }
    }

    pub(crate) fn send(&mut self, now: Instant, packet: &[u8]) {
        let syn = is_syn(packet);
        if syn && self.rng.one_in(3) {
            self.duplicate_syns += 1;
            self.send_once(now, packet);
        } else if !self.calm && self.rng.one_in(50) {
            self.send_once(now, packet);
        }
        self.send_once(now, packet);
    }

    fn send_once(&mut self, now: Instant, packet: &[u8]) {
        let late = !self.calm && self.rng.one_in(20);
        let delay = self.rng.below(if late { LATE_NS } else { DELAY_NS });
        self.count += 1;
        let mut packet = packet.to_vec();
        if self.odd_stamps && packet[0] == 0x45 {
            if u16::from_be_bytes([packet[20], packet[21]]).is_multiple_of(3) {
                self.stripped += u64::from(stamps::strip(&mut packet));
            }
            if self.rng.one_in(10) {
                let bits = 1 + self.rng.below(3) as u16;
                self.lies += u64::from(stamps::lie(&mut packet, bits));
            }
        }
        let due = now + Duration::from_nanos(delay);
        self.under_way.push(Reverse((due, self.count, packet)));
    }

    /// Returns the next packet that has arrived.
    pub(crate) fn receive(&mut self, now: Instant) -> Option<Vec<u8>> {
        let Reverse((due, ..)) = self.under_way.peek()?;
        if *due > now {
            return None;
        }
        self.under_way.pop().map(|Reverse((_, _, packet))| packet)
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.under_way.peek().map(|Reverse((due, ..))| *due)
    }
}

/// Returns whether the packet is a SYN without an acknowledgement, in IPv4 or IPv6 without options before TCP.
fn is_syn(packet: &[u8]) -> bool {
    let header = if packet[0] >> 4 == 6 { 40 } else { 20 };
    let flags = packet.get(header + 13).copied().unwrap_or_default();
    let (syn, ack) = (Flags::SYN.0, Flags::ACK.0);
    flags & (syn | ack) == syn
}
