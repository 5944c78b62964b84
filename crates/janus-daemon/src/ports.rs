//! Which member has which port. One load for each packet; all else is for claims, and for ports that groups have (`groups.rs`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::groups::{Groups, Name};

/// Ports of which members get blocks, for connections that they begin.
const BLOCKS: Range<u32> = 32_768..64_512;
/// Ports that are given to who claims any: what the blocks leave.
const ANY: Range<u32> = 64_512..65_536;
/// A block is this part of what is left at most, so that there is something for the next.
const PART: u32 = 16;
const BLOCK_MIN: u32 = 64;
/// How long the ports of a member that died are kept for its successor.
pub(crate) const KEPT: Duration = Duration::from_secs(2);

/// A member's place.
pub(crate) type Slot = u8;

/// Owner of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Nobody,
    /// Of the member that died.
    Kept,
    Member(Slot),
    Keeper,
    /// Several, or one that would share it.
    Group,
}

const NOBODY: u8 = u8::MAX;
const KEPT_FOR_ONE: u8 = u8::MAX - 1;
const SHARED: u8 = u8::MAX - 2;
const KEEPERS: u8 = u8::MAX - 3;

/// Of TCP and of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Port {
    pub(crate) udp: bool,
    pub(crate) number: u16,
}

/// A port of a member's own.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    slot: Slot,
    /// It has said that it does not listen there any more. Its connections may live.
    released: bool,
}

pub(crate) struct Ports {
    owners: [Box<[u8]>; 2],
    claimed: BTreeMap<Port, Claimed>,
    /// First and length of each member's block.
    blocks: BTreeMap<Slot, (u16, u16)>,
    kept: BTreeMap<Port, Instant>,
    next_any: u32,
    pub(crate) groups: Groups,
}

impl Ports {
    pub(crate) fn new() -> Ports {
        let nobody = || vec![NOBODY; 1 << 16].into_boxed_slice();
        Ports {
            owners: [nobody(), nobody()],
            claimed: BTreeMap::new(),
            blocks: BTreeMap::new(),
            kept: BTreeMap::new(),
            next_any: ANY.start,
            groups: Groups::new(),
        }
    }

    #[inline]
    pub(crate) fn owner(&self, port: Port) -> Owner {
        match self.owners[usize::from(port.udp)][usize::from(port.number)] {
            NOBODY => Owner::Nobody,
            KEPT_FOR_ONE => Owner::Kept,
            SHARED => Owner::Group,
            KEEPERS => Owner::Keeper,
            slot => Owner::Member(slot),
        }
    }

    fn set(&mut self, port: Port, owner: u8) {
        self.owners[usize::from(port.udp)][usize::from(port.number)] = owner;
    }

    /// Keeps a port from all members, for good.
    pub(crate) fn keep_for_keeper(&mut self, port: Port) {
        self.set(port, KEEPERS);
    }

    /// Gives a member a port, or says that another has it.
    pub(crate) fn claim(&mut self, slot: Slot, mut port: Port) -> Option<u16> {
        if port.number == 0 {
            port.number = self.any(port.udp)?;
        }
        if self.is_anothers(slot, port) || !port.udp && !self.groups.dissolve(port.number, slot) {
            return None;
        }
        let released = false;
        self.claimed.insert(port, Claimed { slot, released });
        self.kept.remove(&port);
        self.set(port, slot);
        Some(port.number)
    }

    /// Gives a member a port of TCP that others of its group may have too, or says that it is another's.
    pub(crate) fn join(
        &mut self,
        slot: Slot,
        identity: u32,
        number: u16,
        name: &Name,
        reserve: bool,
    ) -> Option<u16> {
        let (udp, mut port) = (false, number);
        if number == 0 {
            port = self.any(udp)?;
        }
        let (number, port) = (port, Port { udp, number: port });
        if self.is_anothers(slot, port) || !self.groups.join(number, slot, identity, name, reserve)
        {
            return None;
        }
        self.claimed.remove(&port);
        self.kept.remove(&port);
        self.set(port, SHARED);
        Some(number)
    }

    /// A member has connections of a port of TCP at which it listened under the daemon before, or says that it is another's.
    pub(crate) fn has_left(
        &mut self,
        slot: Slot,
        identity: u32,
        number: u16,
        name: &Name,
    ) -> Option<u16> {
        let (udp, other) = (false, |it: &Claimed| it.slot != slot);
        let port = Port { udp, number };
        let is_free = !self.is_anothers(slot, port) && !self.claimed.get(&port).is_some_and(other);
        if number == 0 || !is_free || !self.groups.has_left(number, slot, identity, name) {
            return None;
        }
        self.claimed.remove(&port);
        self.set(port, SHARED);
        Some(number)
    }

    fn is_anothers(&self, slot: Slot, port: Port) -> bool {
        let other = |it: &Claimed| it.slot != slot && !it.released;
        let in_block = |(of, (first, count)): (&Slot, &(u16, u16))| {
            *of != slot && port.number.wrapping_sub(*first) < *count
        };
        self.claimed.get(&port).is_some_and(other)
            || self.blocks.iter().any(in_block)
            || self.owner(port) == Owner::Keeper
    }

    /// Whether a member listens at a port of TCP, or one is to come that does.
    pub(crate) fn is_heard(&self, number: u16) -> bool {
        let (udp, listens) = (false, |it: &Claimed| !it.released);
        let port = Port { udp, number };
        self.claimed.get(&port).is_some_and(listens)
            || self.groups.is_heard(number)
            || self.is_kept(port)
    }

    /// Whether what opens a connection to this port waits for who claims it next.
    pub(crate) fn is_kept(&self, port: Port) -> bool {
        self.kept.contains_key(&port)
    }

    fn any(&mut self, udp: bool) -> Option<u16> {
        for _ in ANY {
            let number = self.next_any as u16;
            self.next_any = if self.next_any + 1 == ANY.end {
                ANY.start
            } else {
                self.next_any + 1
            };
            if self.owner(Port { udp, number }) == Owner::Nobody {
                return Some(number);
            }
        }
        None
    }

    /// A member does not listen at a port any more. What comes there is its yet, until another claims it: it may have connections.
    pub(crate) fn release(&mut self, slot: Slot, port: Port) {
        if let Some(claimed) = self.claimed.get_mut(&port)
            && claimed.slot == slot
        {
            claimed.released = true;
        }
        if self.owner(port) == Owner::Group {
            self.groups.release(port.number, slot);
        }
    }

    /// Gives a member ports for connections that it begins: from `first` on if it says so, and as many as it wants if there are.
    pub(crate) fn block(&mut self, slot: Slot, (first, wanted): (u16, u16)) -> Option<(u16, u16)> {
        let free: Vec<Range<u32>> = self.gaps();
        let left: u32 = free.iter().map(ExactSizeIterator::len).sum::<usize>() as u32;
        let block = match first {
            0 => {
                let most = (left / PART).max(BLOCK_MIN);
                let mut count = 1 << u32::from(wanted.max(1)).min(most).ilog2();
                loop {
                    let fits =
                        |gap: &&Range<u32>| gap.start.next_multiple_of(count) + count <= gap.end;
                    if let Some(gap) = free.iter().find(fits) {
                        break (gap.start.next_multiple_of(count) as u16, count as u16);
                    }
                    count /= 2;
                    if count < BLOCK_MIN {
                        return None;
                    }
                }
            }
            // Of a daemon before. What that gave is at most what was wanted.
            first => {
                let start = u32::from(first);
                let gap = free.iter().find(|gap| gap.contains(&start))?;
                let room = (gap.end - start).min(1 << start.trailing_zeros());
                let count = u32::from(wanted.max(1)).min(room);
                (first, 1 << count.ilog2())
            }
        };
        let (first, count) = block;
        for number in first..first + count {
            for udp in [false, true] {
                let port = Port { udp, number };
                if self.owner(port) == Owner::Nobody {
                    self.set(port, slot);
                }
            }
        }
        self.blocks.insert(slot, block);
        Some(block)
    }

    /// Ports that are in no block.
    fn gaps(&self) -> Vec<Range<u32>> {
        let mut taken: Vec<(u32, u32)> = (self.blocks.values())
            .map(|(first, count)| (u32::from(*first), u32::from(*count)))
            .collect();
        taken.sort_unstable();
        let (mut at, mut gaps) = (BLOCKS.start, Vec::new());
        for (first, count) in taken.into_iter().chain([(BLOCKS.end, 0)]) {
            if first > at {
                gaps.push(at..first);
            }
            at = first + count;
        }
        gaps
    }

    /// A member is gone. The ports that it listened at are kept for a while, if it went without a word.
    pub(crate) fn gone(&mut self, slot: Slot, kept_until: Option<Instant>) {
        for table in &mut self.owners {
            (table.iter_mut().filter(|owner| **owner == slot)).for_each(|owner| *owner = NOBODY);
        }
        self.blocks.remove(&slot);
        let of = |it: &Claimed| it.slot == slot;
        let mut listened: Vec<Port> = (self.claimed.iter())
            .filter(|(port, it)| of(it) && !it.released && !port.udp)
            .map(|(port, _)| *port)
            .collect();
        self.claimed.retain(|_, it| it.slot != slot);
        for left in self.groups.gone(slot) {
            let (udp, number) = (false, left.port);
            let port = Port { udp, number };
            if left.empty {
                self.set(port, NOBODY);
            }
            if left.unheard {
                listened.push(port);
            }
        }
        for port in listened {
            if let Some(until) = kept_until {
                if self.owner(port) != Owner::Group {
                    self.set(port, KEPT_FOR_ONE);
                }
                self.kept.insert(port, until);
            }
        }
    }

    /// Ports are kept no longer than they are to be. When that is next to be looked at.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Instant> {
        let over: Vec<Port> = (self.kept.iter())
            .filter(|(_, until)| **until <= now)
            .map(|(port, _)| *port)
            .collect();
        for port in over {
            self.kept.remove(&port);
            if self.owner(port) == Owner::Kept {
                self.set(port, NOBODY);
            }
        }
        self.kept.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(number: u16) -> Port {
        Port { udp: false, number }
    }

    #[test]
    fn a_port_is_one_members_until_it_is_released_or_gone() {
        let mut ports = Ports::new();
        assert_eq!(ports.claim(1, tcp(80)), Some(80));
        assert_eq!(ports.claim(2, tcp(80)), None);
        let udp = Port {
            udp: true,
            number: 80,
        };
        assert_eq!(ports.claim(2, udp), Some(80), "another table");
        assert_eq!(ports.claim(1, tcp(80)), Some(80), "its own");
        ports.release(2, tcp(80));
        assert_eq!(ports.claim(2, tcp(80)), None, "not its to release");
        ports.release(1, tcp(80));
        assert_eq!(ports.owner(tcp(80)), Owner::Member(1), "connections live");
        assert_eq!(ports.claim(2, tcp(80)), Some(80));
        assert_eq!(ports.owner(tcp(80)), Owner::Member(2));
    }

    #[test]
    fn what_a_dead_member_listened_at_is_kept_for_its_successor() {
        let mut ports = Ports::new();
        let now = Instant::now();
        ports.claim(1, tcp(80));
        ports.claim(1, tcp(81));
        ports.release(1, tcp(81));
        ports.gone(1, Some(now + KEPT));
        assert_eq!(ports.owner(tcp(80)), Owner::Kept);
        assert_eq!(ports.owner(tcp(81)), Owner::Nobody);
        assert_eq!(ports.expire(now), Some(now + KEPT));
        assert_eq!(
            ports.claim(2, tcp(80)),
            Some(80),
            "within 20 ms another may"
        );
        ports.gone(2, Some(now + KEPT));
        assert_eq!(ports.expire(now + KEPT), None);
        assert_eq!(ports.owner(tcp(80)), Owner::Nobody);
        ports.claim(3, tcp(80));
        ports.gone(3, None);
        assert_eq!(ports.owner(tcp(80)), Owner::Nobody, "it went in order");
    }

    #[test]
    fn a_groups_port_is_kept_only_if_none_is_left_that_listens() {
        let (mut ports, now) = (Ports::new(), Instant::now());
        let name = Name {
            user: 7,
            name: "web".into(),
        };
        for slot in [1, 2, 3] {
            assert_eq!(ports.join(slot, slot.into(), 80, &name, false), Some(80));
        }
        assert_eq!(ports.claim(4, tcp(80)), None, "alone");
        ports.release(3, tcp(80));
        ports.gone(1, Some(now + KEPT));
        assert!(!ports.is_kept(tcp(80)), "another listens");
        ports.gone(2, Some(now + KEPT));
        assert!(ports.is_kept(tcp(80)));
        assert_eq!(ports.owner(tcp(80)), Owner::Group, "connections live");
        assert_eq!(ports.expire(now + KEPT), None);
        assert_eq!(ports.owner(tcp(80)), Owner::Group);
        assert_eq!(ports.claim(4, tcp(80)), Some(80), "it is released");
        ports.gone(3, Some(now + KEPT));
        assert_eq!(ports.owner(tcp(80)), Owner::Member(4));
        assert_eq!(ports.join(5, 5, 80, &name, false), None);
        ports.gone(4, None);
        assert_eq!(ports.join(5, 5, 80, &name, false), Some(80));
        ports.gone(5, Some(now + KEPT));
        assert_eq!(ports.owner(tcp(80)), Owner::Kept);
    }

    #[test]
    fn sixty_four_members_have_ports_of_their_own_to_begin_from() {
        let mut ports = Ports::new();
        let blocks: Vec<(u16, u16)> = (0..64)
            .map(|slot| ports.block(slot, (0, 2_048)).expect("a block"))
            .collect();
        let mut all: Vec<u16> = (blocks.iter())
            .flat_map(|(first, count)| *first..first + count)
            .collect();
        let had = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), had, "no port is two members'");
        assert_eq!(blocks[0].1, 1_024);
        assert!(blocks.iter().all(|(_, count)| count.is_power_of_two()));
        assert_eq!(ports.claim(1, tcp(blocks[0].0)), None, "another's block");
        assert_eq!(ports.claim(0, tcp(blocks[0].0)), Some(blocks[0].0));
        ports.gone(0, None);
        assert_eq!(ports.block(70, blocks[0]), Some(blocks[0]), "as before");
        assert_eq!(ports.block(71, blocks[0]), None, "taken");
    }

    #[test]
    fn who_does_not_care_gets_a_port_of_nobodys() {
        let mut ports = Ports::new();
        let mut given: Vec<u16> = Vec::new();
        while let Some(port) = ports.claim(3, tcp(0)) {
            given.push(port);
        }
        assert_eq!(given.len(), ANY.len());
    }
}
