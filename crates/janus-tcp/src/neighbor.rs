//! Who has which hardware address: a bounded, four-way table, and the frames that wait for an answer.

use std::collections::VecDeque;
use std::net::IpAddr;

use core::time::Duration;
use janus_mem::Frame;
use janus_wire::MacAddr;

use crate::time::Instant;

const SETS: usize = 1_024;
const WAYS: usize = 4;
/// Frames that wait for a neighbour's answer, over all neighbours.
const MAX_WAITING: usize = 64;
/// One request a second for an address (RFC 1122 section 2.3.2.1).
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);
/// How long a frame waits: then it counts as lost, so that its segment can be sent, and the question put, again.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Default)]
struct Entry {
    /// By [`spelled`]; 0 = empty.
    addr: u128,
    mac: MacAddr,
    known: bool,
    stamp: Instant,
}

struct Waiting {
    hop: IpAddr,
    until: Instant,
    frame: Frame,
}

/// Both families in one number: an IPv4 address as the IPv6 address that stands for it in programs (RFC 4291 section
/// 2.5.5.2), which no neighbour has.
#[inline]
fn spelled(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => 0xffff << 32 | u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// The neighbour table.
pub(crate) struct Neighbors {
    entries: Vec<[Entry; WAYS]>,
    /// Oldest first.
    waiting: VecDeque<Waiting>,
}

impl Neighbors {
    pub(crate) fn new() -> Neighbors {
        Neighbors {
            entries: vec![[Entry::default(); WAYS]; SETS],
            waiting: VecDeque::with_capacity(MAX_WAITING),
        }
    }

    #[inline]
    fn set(addr: u128) -> usize {
        let folded = (addr >> 96 ^ addr >> 64 ^ addr >> 32 ^ addr) as u32;
        (folded.wrapping_mul(0x9e37_79b1) >> 22) as usize % SETS
    }

    /// The neighbour's hardware address, if known.
    #[inline]
    pub(crate) fn lookup(&self, addr: IpAddr) -> Option<MacAddr> {
        let addr = spelled(addr);
        let set = &self.entries[Self::set(addr)];
        set.iter()
            .find(|e| e.addr == addr && e.known)
            .map(|e| e.mac)
    }

    /// Takes what an ARP packet says. `solicited`: it was addressed to us, so an unknown sender is filed too
    /// (RFC 826's merge rule); otherwise only a known entry is brought up to date.
    pub(crate) fn learn(&mut self, addr: IpAddr, mac: MacAddr, solicited: bool, now: Instant) {
        let fresh = Entry {
            addr: spelled(addr),
            mac,
            known: true,
            stamp: now,
        };
        let set = &mut self.entries[Self::set(fresh.addr)];
        match set.iter_mut().find(|e| e.addr == fresh.addr) {
            Some(entry) => *entry = fresh,
            None if solicited => *Self::oldest(set) = fresh,
            None => {}
        }
    }

    /// Whether a request for `addr` should go out now; if so, that is noted.
    pub(crate) fn should_ask(&mut self, addr: IpAddr, now: Instant) -> bool {
        let addr = spelled(addr);
        let set = &mut self.entries[Self::set(addr)];
        let asked = Entry {
            addr,
            stamp: now,
            ..Entry::default()
        };
        match set.iter_mut().find(|e| e.addr == addr) {
            Some(entry) if now.saturating_since(entry.stamp) < REQUEST_INTERVAL => false,
            Some(entry) => {
                *entry = asked;
                true
            }
            None => {
                *Self::oldest(set) = asked;
                true
            }
        }
    }

    /// The place for a new entry. One that is only asked for goes before one that is known: packets to addresses
    /// that nobody has must not make us forget the gateway.
    fn oldest(set: &mut [Entry; WAYS]) -> &mut Entry {
        let oldest = (0..WAYS)
            .min_by_key(|&way| (set[way].addr != 0, set[way].known, set[way].stamp))
            .unwrap_or(0);
        &mut set[oldest]
    }

    /// Keeps a frame until `hop` answers; gives back the frame that must make room.
    pub(crate) fn wait(&mut self, hop: IpAddr, frame: Frame, now: Instant) -> Option<Frame> {
        let pushed_out = if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front()
        } else {
            None
        };
        let until = now + PATIENCE;
        self.waiting.push_back(Waiting { hop, until, frame });
        pushed_out.map(|w| w.frame)
    }

    /// The next frame that waited for `hop`.
    pub(crate) fn pop_waiting(&mut self, hop: IpAddr) -> Option<Frame> {
        let at = self.waiting.iter().position(|w| w.hop == hop)?;
        self.waiting.remove(at).map(|w| w.frame)
    }

    /// The next frame that has waited long enough.
    pub(crate) fn pop_overdue(&mut self, now: Instant) -> Option<Frame> {
        self.waiting
            .pop_front_if(|w| w.until <= now)
            .map(|w| w.frame)
    }

    /// When the first frame will have waited long enough.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|w| w.until)
    }
}
