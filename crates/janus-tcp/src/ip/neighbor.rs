//! Hardware addresses of neighbors, for both families: a bounded, four-way table, and the frames that wait for an
//! answer. Asking and answering is ARP's (`control`) and neighbour discovery's (`nd`).
//!
//! An entry is unknown (there is none), asked for, or known. A known one is good for a while, then it is used on, and
//! asked for again, until it is confirmed or three questions went unanswered: what RFC 4861 section 7.3 says with five
//! states, and what RFC 1122 section 2.3.2.1 asks of ARP.
//!
//! Whoever asks for our address is filed, as an answer to it is likely; but only in a place that is free or whose
//! neighbour nothing was sent to lately, and never in a gateway's. So a flood of such questions pushes out no neighbor in use.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use janus_mem::Frame;
use janus_wire::MacAddr;
use janus_wire::siphash::words_of;

use crate::rules::interface::Interface;
use crate::time::Instant;
use crate::wire::Envelope;

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
/// How long after a packet went to a neighbour it counts as in use.
const IN_USE: Duration = Duration::from_secs(60);
/// How long after an answer no doubt is listened to.
const BEYOND_DOUBT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Default)]
struct Entry {
    /// By [`words_of`], where no IPv4 address stands for one of IPv6 that a neighbour has; zeros = empty.
    addr: [u64; 2],
    mac: MacAddr,
    known: bool,
    /// Questions put since it was last confirmed.
    probes: u8,
    /// When it was asked for; of a known one, when it is to be asked for again.
    at: Instant,
    /// When it was last wanted for a packet of ours; `ZERO` = never.
    used: Instant,
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.addr == [0, 0]
    }

    /// A packet went to it lately, or the answer to a question of ours may be on its way.
    fn is_in_use(&self, now: Instant) -> bool {
        let lately = if self.known { IN_USE } else { REQUEST_INTERVAL };
        self.used != Instant::ZERO && now.saturating_since(self.used) < lately
    }

    fn is_gateway(&self, interface: &Interface) -> bool {
        interface.gateways().any(|addr| words_of(addr) == self.addr)
    }
}

/// Why a neighbour is filed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// A packet of ours waits for it, or it is a gateway.
    ByUs,
    /// It has spoken to us.
    ByItself,
}

/// A neighbour that is known.
#[derive(Clone, Copy)]
pub(crate) struct Neighbor {
    pub(super) mac: MacAddr,
    ask_at: Instant,
}

impl Neighbor {
    /// It was not heard of for long: to be used, and asked for.
    #[inline]
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.ask_at <= now
    }
}

/// A neighbour that was spoken to last.
struct Latest<A> {
    addr: A,
    ask_at: Instant,
    envelope: Envelope,
}

impl<A: PartialEq> Latest<A> {
    /// How frames to `addr` are written, if it is this one, and not stale.
    #[inline(always)]
    fn envelope(&self, addr: &A, now: Instant) -> Option<&Envelope> {
        (self.addr == *addr && self.ask_at > now).then_some(&self.envelope)
    }
}

struct Waiting {
    hop: IpAddr,
    until: Instant,
    frame: Frame,
}

/// The neighbour table.
pub(crate) struct Neighbors {
    entries: Vec<[Entry; WAYS]>,
    /// Oldest first.
    waiting: VecDeque<Waiting>,
    /// Of `entries` those that were spoken to last over each family: nearly always the next ones too. Forgotten whenever an entry may
    /// change.
    latest_v4: Option<Latest<Ipv4Addr>>,
    latest_v6: Option<Latest<Ipv6Addr>>,
    /// The neighbor that the frame dropped last was for.
    unanswered: Option<IpAddr>,
    /// Odd. Without it, whoever is on the link could choose addresses that push the gateway out of its set.
    key: u64,
}

impl Neighbors {
    /// An empty table; `secret` decides which addresses share a set.
    pub(crate) fn new(secret: u64) -> Neighbors {
        Neighbors {
            entries: vec![[Entry::default(); WAYS]; SETS],
            waiting: VecDeque::with_capacity(MAX_WAITING),
            latest_v4: None,
            latest_v6: None,
            unanswered: None,
            key: secret | 1,
        }
    }

    #[inline]
    fn set(&self, [high, low]: [u64; 2]) -> usize {
        let mixed = (high ^ self.key.rotate_left(32)).wrapping_mul(self.key) ^ low;
        (mixed.wrapping_mul(self.key) >> 54) as usize % SETS
    }

    fn find(&mut self, addr: IpAddr) -> Option<&mut Entry> {
        let addr = words_of(addr);
        let set = self.set(addr);
        self.entries[set].iter_mut().find(|e| e.addr == addr)
    }

    /// The place of `addr`, to be changed.
    fn entry(&mut self, addr: IpAddr, now: Instant) -> Option<&mut Entry> {
        self.forget_latest(now);
        self.find(addr)
    }

    /// The entries at hand were used, an unknown number of times.
    pub(crate) fn forget_latest(&mut self, now: Instant) {
        let latest_v4 = self.latest_v4.take().map(|latest| latest.addr.into());
        let latest_v6 = self.latest_v6.take().map(|latest| latest.addr.into());
        for addr in [latest_v4, latest_v6].into_iter().flatten() {
            if let Some(entry) = self.find(addr) {
                entry.used = now;
            }
        }
    }

    /// The neighbour's hardware address, if known.
    #[inline]
    pub(crate) fn lookup(&self, addr: IpAddr) -> Option<Neighbor> {
        let addr = words_of(addr);
        let set = &self.entries[self.set(addr)];
        let known = set.iter().find(|e| e.addr == addr && e.known);
        known.map(|e| Neighbor {
            mac: e.mac,
            ask_at: e.at,
        })
    }

    /// [`Neighbors::lookup`] for a packet of ours: the neighbour is in use.
    #[inline]
    pub(crate) fn lookup_to_send(&mut self, addr: IpAddr, now: Instant) -> Option<Neighbor> {
        let entry = self.find(addr).filter(|e| e.known)?;
        entry.used = now;
        Some(Neighbor {
            mac: entry.mac,
            ask_at: entry.at,
        })
    }

    /// How frames to this neighbour are written, if it was looked up last and is not stale.
    #[inline(always)]
    pub(crate) fn latest_v4(&self, addr: Ipv4Addr, now: Instant) -> Option<&Envelope> {
        self.latest_v4.as_ref()?.envelope(&addr, now)
    }

    /// Like [`latest_v4`](Self::latest_v4).
    #[inline]
    pub(crate) fn latest_v6(&self, addr: Ipv6Addr, now: Instant) -> Option<&Envelope> {
        self.latest_v6.as_ref()?.envelope(&addr, now)
    }

    /// This neighbour was just looked up.
    pub(crate) fn remember(&mut self, addr: IpAddr, known: Neighbor, interface: &Interface) {
        let (ask_at, envelope) = (
            known.ask_at,
            Envelope::new(interface, addr.is_ipv6(), known.mac),
        );
        match addr {
            IpAddr::V4(addr) => {
                self.latest_v4 = Some(Latest {
                    addr,
                    ask_at,
                    envelope,
                });
            }
            IpAddr::V6(addr) => {
                self.latest_v6 = Some(Latest {
                    addr,
                    ask_at,
                    envelope,
                });
            }
        }
    }

    /// Takes what a neighbour says of itself. `solicited`: it was said to us, so an unknown sender is filed too
    /// (RFC 826's merge rule, RFC 4861 section 7.2.3); otherwise only what we have is brought up to date. False when
    /// there was no place for it that another neighbour does not need.
    pub(crate) fn learn(
        &mut self,
        addr: IpAddr,
        mac: MacAddr,
        solicited: bool,
        now: Instant,
        interface: &Interface,
    ) -> bool {
        let used = self.entry(addr, now).map(|entry| entry.used);
        let fresh = Entry {
            addr: words_of(addr),
            mac,
            known: true,
            probes: 0,
            at: now + BELIEVED,
            used: used.unwrap_or(Instant::ZERO),
        };
        if let Some(entry) = self.find(addr) {
            *entry = fresh;
            return true;
        }
        let wanted = match fresh.is_gateway(interface) {
            true => Wanted::ByUs,
            false => Wanted::ByItself,
        };
        !solicited || self.file(fresh, wanted, now, interface)
    }

    /// Whether a request for `addr`, which is not known, should go out now; if so, that is noted.
    pub(crate) fn should_ask(&mut self, addr: IpAddr, now: Instant, interface: &Interface) -> bool {
        let asked = Entry {
            addr: words_of(addr),
            at: now,
            used: now,
            ..Entry::default()
        };
        match self.entry(addr, now) {
            Some(entry) if now.saturating_since(entry.at) < REQUEST_INTERVAL => false,
            Some(entry) => {
                *entry = asked;
                true
            }
            None => self.file(asked, Wanted::ByUs, now, interface),
        }
    }

    /// Whether a request for `addr`, which is known and stale, should go out now; if so, that is noted. One that has
    /// left too many unanswered is forgotten.
    pub(crate) fn should_probe(&mut self, addr: IpAddr, now: Instant) -> bool {
        let Some(entry) = (self.entry(addr, now)).filter(|e| e.known && e.at <= now) else {
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
    /// Keeps MUST-20.
    pub(crate) fn doubt(&mut self, addr: IpAddr, now: Instant) {
        if let Some(entry) = self.entry(addr, now)
            && entry.known
            && entry.probes == 0
            && entry.at + BEYOND_DOUBT <= now + BELIEVED
        {
            entry.at = entry.at.min(now);
        }
    }

    /// Puts a new entry into its set, in place of the one that is needed least: one that is only asked for goes before one
    /// that is known, as packets to unused addresses must not make us forget a neighbor; then what was not used for
    /// longest; a gateway last. False when what is there is needed more.
    fn file(&mut self, new: Entry, wanted: Wanted, now: Instant, interface: &Interface) -> bool {
        let set = self.set(new.addr);
        let needed = |entry: &Entry| {
            let is_gateway = entry.is_gateway(interface);
            (
                !entry.is_empty(),
                is_gateway,
                entry.known,
                entry.used,
                entry.at,
            )
        };
        let may_go = |entry: &&mut Entry| {
            wanted == Wanted::ByUs || !entry.is_in_use(now) && !entry.is_gateway(interface)
        };
        let entries = self.entries[set].iter_mut().filter(may_go);
        match entries.min_by_key(|entry| needed(entry)) {
            Some(entry) => {
                *entry = new;
                true
            }
            None => false,
        }
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
        pushed_out.map(|w| self.give_up(w))
    }

    fn give_up(&mut self, waiting: Waiting) -> Frame {
        self.unanswered = Some(waiting.hop);
        waiting.frame
    }

    /// Address of the neighbor for which a frame was dropped last, as it did not answer in time.
    pub(crate) fn unanswered(&self) -> Option<IpAddr> {
        self.unanswered
    }

    /// The next frame that waited for `hop`.
    pub(crate) fn pop_waiting(&mut self, hop: IpAddr) -> Option<Frame> {
        let at = self.waiting.iter().position(|w| w.hop == hop)?;
        self.waiting.remove(at).map(|w| w.frame)
    }

    /// The next frame that has waited long enough.
    pub(crate) fn pop_overdue(&mut self, now: Instant) -> Option<Frame> {
        let overdue = self.waiting.pop_front_if(|w| w.until <= now)?;
        Some(self.give_up(overdue))
    }

    /// When the first frame will have waited long enough.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|w| w.until)
    }
}

#[cfg(test)]
mod tests;
