//! Who has which hardware address, for both families: a bounded, four-way table, and the frames that wait for an
//! answer. Asking and answering is ARP's (`control`) and neighbour discovery's (`nd`).
//!
//! An entry is unknown (there is none), asked for, or known. A known one is good for a while, then it is used on, and
//! asked for again, until it is confirmed or three questions went unanswered: what RFC 4861 section 7.3 says with five
//! states, and what RFC 1122 section 2.3.2.1 asks of ARP.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

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
/// How long an answer is believed without asking again.
pub(crate) const BELIEVED: Duration = Duration::from_secs(60);
/// Questions about a known neighbour that may go unanswered (RFC 4861 section 10: MAX_UNICAST_SOLICIT).
const MAX_PROBES: u8 = 3;
/// How long after an answer no doubt is listened to.
const BEYOND_DOUBT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Default)]
struct Entry {
    /// By [`spelled`]; 0 = empty.
    addr: u128,
    mac: MacAddr,
    known: bool,
    /// Questions put since it was last confirmed.
    probes: u8,
    /// When it was asked for; of a known one, when it is to be asked for again.
    at: Instant,
}

/// A neighbour that is known.
#[derive(Clone, Copy)]
pub(crate) struct Neighbor {
    pub(crate) mac: MacAddr,
    ask_at: Instant,
}

impl Neighbor {
    /// It was not heard of for long: to be used, and asked for.
    #[inline]
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.ask_at <= now
    }
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
    /// One of `entries`, the IPv4 neighbour that was spoken to last: nearly always the next one too. Forgotten whenever an
    /// entry may change.
    latest: Option<(Ipv4Addr, Neighbor)>,
    /// Odd. Without it, whoever is on the link could choose addresses that push the gateway out of its set.
    key: u64,
}

impl Neighbors {
    /// An empty table; `secret` decides which addresses share a set.
    pub(crate) fn new(secret: u64) -> Neighbors {
        Neighbors {
            entries: vec![[Entry::default(); WAYS]; SETS],
            waiting: VecDeque::with_capacity(MAX_WAITING),
            latest: None,
            key: secret | 1,
        }
    }

    #[inline]
    fn set(&self, addr: u128) -> usize {
        let (high, low) = ((addr >> 64) as u64, addr as u64);
        let mixed = (high ^ self.key.rotate_left(32)).wrapping_mul(self.key) ^ low;
        (mixed.wrapping_mul(self.key) >> 54) as usize % SETS
    }

    /// The place of `addr`, to be changed.
    fn entry(&mut self, addr: IpAddr) -> Option<&mut Entry> {
        self.latest = None;
        let addr = spelled(addr);
        let set = self.set(addr);
        self.entries[set].iter_mut().find(|e| e.addr == addr)
    }

    /// The neighbour's hardware address, if known.
    #[inline]
    pub(crate) fn lookup(&self, addr: IpAddr) -> Option<Neighbor> {
        let addr = spelled(addr);
        let set = &self.entries[self.set(addr)];
        let known = set.iter().find(|e| e.addr == addr && e.known);
        known.map(|e| Neighbor {
            mac: e.mac,
            ask_at: e.at,
        })
    }

    /// The hardware address of the neighbour that was looked up last, if it is this one and not stale.
    #[inline]
    pub(crate) fn latest_v4(&self, addr: Ipv4Addr, now: Instant) -> Option<MacAddr> {
        self.latest
            .filter(|(latest, known)| *latest == addr && !known.is_stale(now))
            .map(|(_, known)| known.mac)
    }

    /// This neighbour was just looked up.
    pub(crate) fn remember(&mut self, addr: IpAddr, known: Neighbor) {
        if let IpAddr::V4(addr) = addr {
            self.latest = Some((addr, known));
        }
    }

    /// Takes what a neighbour says of itself. `solicited`: it was said to us, so an unknown sender is filed too
    /// (RFC 826's merge rule, RFC 4861 section 7.2.3); otherwise only what we have is brought up to date.
    pub(crate) fn learn(&mut self, addr: IpAddr, mac: MacAddr, solicited: bool, now: Instant) {
        self.latest = None;
        let fresh = Entry {
            addr: spelled(addr),
            mac,
            known: true,
            probes: 0,
            at: now + BELIEVED,
        };
        let set = self.set(fresh.addr);
        let set = &mut self.entries[set];
        match set.iter_mut().find(|e| e.addr == fresh.addr) {
            Some(entry) => *entry = fresh,
            None if solicited => *Self::oldest(set) = fresh,
            None => {}
        }
    }

    /// Whether a request for `addr`, which is not known, should go out now; if so, that is noted.
    pub(crate) fn should_ask(&mut self, addr: IpAddr, now: Instant) -> bool {
        let asked = Entry {
            addr: spelled(addr),
            at: now,
            ..Entry::default()
        };
        match self.entry(addr) {
            Some(entry) if now.saturating_since(entry.at) < REQUEST_INTERVAL => false,
            Some(entry) => {
                *entry = asked;
                true
            }
            None => {
                let set = self.set(asked.addr);
                *Self::oldest(&mut self.entries[set]) = asked;
                true
            }
        }
    }

    /// Whether a request for `addr`, which is known and stale, should go out now; if so, that is noted. One that has
    /// left too many unanswered is forgotten.
    pub(crate) fn should_probe(&mut self, addr: IpAddr, now: Instant) -> bool {
        let Some(entry) = self.entry(addr).filter(|e| e.known && e.at <= now) else {
            return false;
        };
        entry.probes += 1;
        if entry.probes > MAX_PROBES {
            entry.known = false;
            entry.at = now;
        } else {
            entry.at = now + REQUEST_INTERVAL;
        }
        true
    }

    /// Nothing is heard of what goes through a neighbour (RFC 1122 section 3.3.1.4, negative advice): whether it is
    /// there is asked with the next packet for it, unless it has said so a moment ago.
    pub(crate) fn doubt(&mut self, addr: IpAddr, now: Instant) {
        if let Some(entry) = self.entry(addr)
            && entry.known
            && entry.probes == 0
            && entry.at + BEYOND_DOUBT <= now + BELIEVED
        {
            entry.at = entry.at.min(now);
        }
    }

    /// The place for a new entry. One that is only asked for goes before one that is known: packets to addresses
    /// that nobody has must not make us forget the gateway.
    fn oldest(set: &mut [Entry; WAYS]) -> &mut Entry {
        let oldest = (0..WAYS)
            .min_by_key(|&way| (set[way].addr != 0, set[way].known, set[way].at))
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

#[cfg(test)]
mod tests;
