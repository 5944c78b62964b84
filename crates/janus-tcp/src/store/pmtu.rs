//! Path MTUs: which destinations take less than the interface does, learned from ICMP (RFC 1191, RFC 8201) or, where
//! routers are silent, from full-sized segments that never arrive (RFC 4821).
//!
//! A bounded table of what deviates; most stacks have none. What ICMP said is forgotten after ten minutes, and the next
//! full-sized segment finds out (RFC 1191 section 6.3). What only loss has taught is taken back one probe at a time,
//! because no router would tell. Which message is believed is decided in `icmp_errors`, who sends what size in `resize`.

use core::time::Duration;
use std::net::IpAddr;

use janus_wire::siphash::{siphash_1_3, words_of};

use crate::coded::{Coded, Garbled, Shift, Source, coded};
use crate::time::Instant;

/// Destinations remembered: sets of ways.
const SETS: usize = 256;
const WAYS: usize = 4;
/// No router makes us go below this (RFC 1191 would let 68 through, and a forger with it; Linux draws the same line).
pub(crate) const SMALLEST_V4: u16 = 552;
/// Every IPv6 link carries so much; a message that says less is discarded (RFC 8201 section 4).
pub(crate) const SMALLEST_V6: u16 = 1_280;
/// Packet size that a silent path is believed to carry at first: 1,024 bytes of payload (RFC 4821 section 7.2).
const BASE_V4: u16 = 1_024 + 40;
/// How long ICMP's word counts (RFC 1191 section 6.3).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// How long after a silent path was found the first probe goes out; failures double it, up to the time above.
const FIRST_PROBE: Duration = Duration::from_secs(30);
/// A silent path that was not probed for so long is forgotten.
const SILENT_FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);
/// Closer than this the search for a silent path's size is over.
const CLOSE_ENOUGH: u16 = 32;
/// Sizes that paths have, for routers that do not name one (RFC 1191 section 7.1).
const PLATEAUS: [u16; 9] = [
    65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 552,
];

/// How a path's size was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// A router said so.
    Told,
    /// Only loss says so. What is `ceiling` or larger is known not to arrive.
    Silent {
        ceiling: u16,
        probe_at: Instant,
        wait: Duration,
    },
}

impl Coded for Known {
    fn put(&self, to: &mut Vec<u8>) {
        match *self {
            Known::Told => false.put(to),
            Known::Silent {
                ceiling,
                probe_at,
                wait,
            } => (true, (ceiling, (probe_at, wait))).put(to),
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Known, Garbled> {
        if !bool::take(from)? {
            return Ok(Known::Told);
        }
        let (ceiling, (probe_at, wait)) = Coded::take(from)?;
        Ok(Known::Silent {
            ceiling,
            probe_at,
            wait,
        })
    }

    fn shift(&mut self, by: &Shift) {
        if let Known::Silent { probe_at, .. } = self {
            probe_at.shift(by);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    to: IpAddr,
    /// Largest IP packet that is believed to arrive.
    mtu: u16,
    known: Known,
    forgotten_at: Instant,
}

coded!(Path {
    to,
    mtu,
    known,
    forgotten_at
});

impl Path {
    fn is_of(&self, to: IpAddr, now: Instant) -> bool {
        self.to == to && now < self.forgotten_at
    }
}

/// The table.
pub(crate) struct Paths {
    /// Decides which destinations share a set, so that a peer cannot choose which to push out.
    key: (u64, u64),
    /// Made when there is something to put into it.
    sets: Vec<[Option<Path>; WAYS]>,
}

/// The least a path to `to` can carry.
pub(crate) fn smallest(to: IpAddr) -> u16 {
    match to {
        IpAddr::V4(_) => SMALLEST_V4,
        IpAddr::V6(_) => SMALLEST_V6,
    }
}

/// The size that a router which names none probably meant, for a packet of `len` bytes that did not fit.
pub(crate) fn plateau_below(len: u16) -> u16 {
    let below = PLATEAUS.into_iter().find(|&size| size < len);
    below.unwrap_or(SMALLEST_V4)
}

impl Paths {
    /// An empty table.
    pub(crate) fn new(key: (u64, u64)) -> Paths {
        Paths {
            key,
            sets: Vec::new(),
        }
    }

    /// Nothing is known of any path: the common case, in which the look ends here.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    fn set_of(&self, to: IpAddr) -> usize {
        siphash_1_3(self.key, words_of(to)) as usize % SETS
    }

    fn find(&mut self, to: IpAddr, now: Instant) -> Option<&mut Path> {
        let set = self.set_of(to);
        let set = self.sets.get_mut(set)?;
        set.iter_mut().flatten().find(|path| path.is_of(to, now))
    }

    /// The largest packet that arrives at `to`, if that is known to be less than what the interface takes.
    pub(crate) fn mtu(&self, to: IpAddr, now: Instant) -> Option<u16> {
        let set = self.sets.get(self.set_of(to))?;
        let path = set.iter().flatten().find(|path| path.is_of(to, now));
        path.map(|path| path.mtu)
    }

    /// All that is known of the path to `to`, if that is anything.
    pub(crate) fn known(&self, to: IpAddr, now: Instant) -> Option<Path> {
        let set = self.sets.get(self.set_of(to))?;
        let known = set.iter().flatten().find(|path| path.is_of(to, now));
        known.copied()
    }

    /// Another stack knows this of a path. False when less was known to arrive already.
    pub(crate) fn learn(&mut self, path: Path, now: Instant) -> bool {
        let mtu = path.mtu.max(smallest(path.to));
        if now >= path.forgotten_at || self.mtu(path.to, now).is_some_and(|own| own <= mtu) {
            return false;
        }
        self.file(Path { mtu, ..path });
        true
    }

    /// A router says that no packet larger than `mtu` arrives at `to`. False when that is nothing new: such a message
    /// never raises anything.
    pub(crate) fn told(&mut self, to: IpAddr, mtu: u16, now: Instant) -> bool {
        let mtu = mtu.max(smallest(to));
        if self.find(to, now).is_some_and(|path| path.mtu <= mtu) {
            return false;
        }
        self.file(Path {
            to,
            mtu,
            known: Known::Told,
            forgotten_at: now + FORGOTTEN_AFTER,
        });
        true
    }

    /// Packets of `lost` bytes go to `to` and nothing comes back, no error either. Gives the size to go on with, if
    /// there is a smaller one.
    pub(crate) fn silent(&mut self, to: IpAddr, lost: u16, now: Instant) -> Option<u16> {
        let base = match to {
            IpAddr::V4(_) if lost > BASE_V4 => BASE_V4,
            _ => smallest(to),
        };
        let mtu = self.find(to, now).map_or(base, |path| path.mtu.min(base));
        if mtu >= lost {
            return None;
        }
        self.file(Path {
            to,
            mtu,
            known: Known::Silent {
                ceiling: u16::MAX,
                probe_at: now + FIRST_PROBE,
                wait: FIRST_PROBE,
            },
            forgotten_at: now + SILENT_FORGOTTEN_AFTER,
        });
        Some(mtu)
    }

    /// The size that a segment to `to` should now have to find out whether a silent path carries more; at most `full`.
    pub(crate) fn probe_due(&mut self, to: IpAddr, full: u16, now: Instant) -> Option<u16> {
        let path = self.find(to, now)?;
        let Known::Silent {
            ceiling, probe_at, ..
        } = path.known
        else {
            return None;
        };
        if now < probe_at || full <= path.mtu {
            return None;
        }
        // All at first: a peer that was only gone for a while is the common case. Then halfway.
        let size = if ceiling > full {
            full
        } else {
            path.mtu + (ceiling - path.mtu) / 2
        };
        (size > path.mtu).then_some(size)
    }

    /// A probe of `size` arrived: so much is safe, and the next may follow. At `full` the path is forgotten.
    pub(crate) fn probe_arrived(&mut self, to: IpAddr, size: u16, full: u16, now: Instant) {
        let Some(path) = self.find(to, now) else {
            return;
        };
        path.mtu = path.mtu.max(size);
        if path.mtu >= full {
            path.forgotten_at = Instant::ZERO;
        } else if let Known::Silent {
            ceiling, probe_at, ..
        } = &mut path.known
        {
            let close = ceiling.saturating_sub(path.mtu) < CLOSE_ENOUGH;
            if close {
                // Found. After a while it is worth asking again whether the path carries all.
                *ceiling = u16::MAX;
                *probe_at = now + FORGOTTEN_AFTER;
            }
        }
    }

    /// A probe of `size` did not arrive.
    pub(crate) fn probe_lost(&mut self, to: IpAddr, size: u16, now: Instant) {
        let Some(path) = self.find(to, now) else {
            return;
        };
        if let Known::Silent {
            ceiling,
            probe_at,
            wait,
        } = &mut path.known
        {
            *wait = (*wait * 2).min(FORGOTTEN_AFTER);
            *probe_at = now + *wait;
            *ceiling = (*ceiling).min(size);
            if ceiling.saturating_sub(path.mtu) < CLOSE_ENOUGH {
                *ceiling = u16::MAX;
                *probe_at = now + FORGOTTEN_AFTER;
            }
            path.forgotten_at = now + SILENT_FORGOTTEN_AFTER;
        }
    }

    fn file(&mut self, path: Path) {
        if self.sets.is_empty() {
            self.sets.resize(SETS, [None; WAYS]);
        }
        let set = self.set_of(path.to);
        let set = &mut self.sets[set];
        let same = set
            .iter()
            .position(|way| way.is_some_and(|p| p.to == path.to));
        // Else an empty way, else the one that would be forgotten first.
        let first = || (0..WAYS).min_by_key(|&way| set[way].map(|p| p.forgotten_at));
        let way = same.or_else(first).unwrap_or(0);
        set[way] = Some(path);
    }
}

#[cfg(test)]
mod tests;
