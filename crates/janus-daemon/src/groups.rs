//! Ports that several members of one user have together: who of them gets a new connection, and where a connection is that is not where new
//! ones of its class would go.
//!
//! Flows are in classes. A class is the listening member's whose weight for it is the highest, so that one that comes or goes takes none but
//! its own classes along. What opens no connection goes to its class's member too, who may send it back where it knows nothing of it:
//! then the others are asked, one after the other, and who keeps it is remembered.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use janus_wire::FlowKey;
use janus_wire::siphash::{siphash_1_3, siphash_1_3_flow};

use crate::ports::Slot;

const CLASSES: usize = 256;
/// Flows that are remembered, of all groups together.
const STRAYS_MAX: usize = 1 << 16;

/// A group, as its members name it. Another user's of that name is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) user: u32,
    pub(crate) name: String,
}

/// A member of the group that has a port.
struct Seat {
    slot: Slot,
    /// Also with the next daemon.
    identity: u32,
    /// Else it has connections at most.
    listens: bool,
    /// It gets new ones only while none of the others does.
    reserve: bool,
}

struct Group {
    name: Name,
    seats: Vec<Seat>,
    /// `None`: none listens.
    classes: [Option<Slot>; CLASSES],
}

/// A port that a member has left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) port: u16,
    /// It listened, and was the last that did.
    pub(crate) unheard: bool,
    /// There is no other at all.
    pub(crate) empty: bool,
}

/// Where a segment goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) slot: Slot,
    /// It comes back from there if it is not known.
    pub(crate) returns: bool,
}

pub(crate) struct Groups {
    key: (u64, u64),
    groups: BTreeMap<u16, Group>,
    strays: Strays,
}

impl Seat {
    fn weight(&self, class: usize, key: (u64, u64)) -> (bool, u64, Slot) {
        let words = [class as u64, self.identity.into()];
        (!self.reserve, siphash_1_3(key, words), self.slot)
    }
}

impl Group {
    fn seat(&self, slot: Slot) -> Option<&Seat> {
        self.seats.iter().find(|it| it.slot == slot)
    }

    fn is_heard_by_another(&self, slot: Slot) -> bool {
        self.seats.iter().any(|it| it.listens && it.slot != slot)
    }

    fn divide(&mut self, key: (u64, u64)) {
        for (class, owner) in self.classes.iter_mut().enumerate() {
            let listening = self.seats.iter().filter(|it| it.listens);
            let first = listening.max_by_key(|it| it.weight(class, key));
            *owner = first.map(|it| it.slot);
        }
    }

    /// The member that gets this class once `by` does not listen any more, which may be known here already.
    fn heir(&self, by: Slot, class: usize, key: (u64, u64)) -> Option<Slot> {
        let weight = |it: &&Seat| it.weight(class, key);
        let bound = self.seat(by).filter(|it| it.listens).map(|it| weight(&it));
        let listening = self.seats.iter().filter(|it| it.listens);
        let below = listening.filter(|it| bound.is_none_or(|bound| weight(it) < bound));
        below.max_by_key(weight).map(|it| it.slot)
    }

    /// Where a flow may be that `by` does not have.
    fn unasked(&self, by: Slot, known: Option<Stray>) -> Option<Stray> {
        if known.is_some_and(|it| it.slot != by) {
            return known;
        }
        let asked = known.map_or(0, |it| it.asked) | 1_u128 << by;
        let mut fresh = self
            .seats
            .iter()
            .filter(|it| asked & 1_u128 << it.slot == 0);
        fresh.next().map(|it| Stray {
            slot: it.slot,
            asked,
        })
    }

    /// Where a new connection of this class goes; where none listens, to one that refuses it.
    fn home(&self, class: usize) -> Option<Slot> {
        self.classes[class].or(self.seats.first().map(|it| it.slot))
    }
}

impl Groups {
    pub(crate) fn new() -> Groups {
        Groups {
            key: secret(),
            groups: BTreeMap::new(),
            strays: Strays::default(),
        }
    }

    /// A member listens at a port together with others of its group, or says that it listens otherwise than before. False: others have it.
    pub(crate) fn join(
        &mut self,
        port: u16,
        slot: Slot,
        identity: u32,
        name: &Name,
        reserve: bool,
    ) -> bool {
        let other = |it: &&mut Group| it.name != *name;
        if let Some(before) = self.groups.get_mut(&port).filter(other) {
            if before.is_heard_by_another(slot) {
                return false;
            }
            match before.name.user == name.user {
                // Those who listened before have their connections yet.
                true => before.name = name.clone(),
                false => self.forget(port),
            }
        }
        self.sits(port, slot, identity, name, reserve);
        true
    }

    /// A member has connections of a port, at which another group of that user may listen by now. False: it is another user's.
    pub(crate) fn has_left(&mut self, port: u16, slot: Slot, identity: u32, name: &Name) -> bool {
        let group = self.groups.get(&port);
        if group.is_some_and(|it| it.name.user != name.user) && !self.dissolve(port, slot) {
            return false;
        }
        self.sits(port, slot, identity, name, false);
        self.release(port, slot);
        true
    }

    /// A member listens; a group of that name begins with it if there is none.
    fn sits(&mut self, port: u16, slot: Slot, identity: u32, name: &Name, reserve: bool) {
        let group = self.groups.entry(port).or_insert_with(|| Group {
            name: name.clone(),
            seats: Vec::new(),
            classes: [None; CLASSES],
        });
        group.seats.retain(|it| it.slot != slot);
        group.seats.push(Seat {
            slot,
            identity,
            listens: true,
            reserve,
        });
        group.divide(self.key);
    }

    /// The port is to be this member's alone. False: another listens there.
    pub(crate) fn dissolve(&mut self, port: u16, slot: Slot) -> bool {
        let group = self.groups.get(&port);
        if group.is_some_and(|it| it.is_heard_by_another(slot)) {
            return false;
        }
        self.forget(port);
        true
    }

    fn forget(&mut self, port: u16) {
        if self.groups.remove(&port).is_some() {
            self.strays.retain(|flow, _| flow.local_port() != port);
        }
    }

    /// A member listens no more, and has its connections yet.
    pub(crate) fn release(&mut self, port: u16, slot: Slot) {
        if let Some(group) = self.groups.get_mut(&port) {
            let seats = group.seats.iter_mut().filter(|it| it.slot == slot);
            seats.for_each(|it| it.listens = false);
            group.divide(self.key);
        }
    }

    /// A member is gone, and its connections with it.
    pub(crate) fn gone(&mut self, slot: Slot) -> Vec<Left> {
        let mut left = Vec::new();
        for (port, group) in &mut self.groups {
            let Some(seat) = group.seat(slot) else {
                continue;
            };
            let unheard = seat.listens && !group.is_heard_by_another(slot);
            group.seats.retain(|it| it.slot != slot);
            group.divide(self.key);
            left.push(Left {
                port: *port,
                unheard,
                empty: group.seats.is_empty(),
            });
        }
        if !left.is_empty() {
            // Another will have its place, and is not to be taken for it.
            self.strays.retain(|_, stray| stray.slot != slot);
        }
        for it in left.iter().filter(|it| it.empty) {
            self.forget(it.port);
        }
        left
    }

    /// Whether a member is one of those that have this port.
    pub(crate) fn has(&self, port: u16, slot: Slot) -> bool {
        (self.groups.get(&port)).is_some_and(|it| it.seat(slot).is_some())
    }

    /// Whether there is one that takes new connections.
    pub(crate) fn is_heard(&self, port: u16) -> bool {
        (self.groups.get(&port)).is_some_and(|it| it.seats.iter().any(|it| it.listens))
    }

    fn class(&self, flow: &FlowKey) -> usize {
        siphash_1_3_flow(self.key, flow) as usize % CLASSES
    }

    /// Where a segment goes first. One that asks for a connection too: where an old one of the same ports is, that knows best when they may
    /// be used anew.
    pub(crate) fn way(&self, flow: &FlowKey) -> Option<Slot> {
        let group = self.groups.get(&flow.local_port())?;
        let stray = self.strays.get(flow).map(|it| it.slot);
        let stray = stray.filter(|slot| group.seat(*slot).is_some());
        stray.or_else(|| group.home(self.class(flow)))
    }

    /// A member of the port's group says that it has a flow. False: it is none of it.
    pub(crate) fn is_at(&mut self, flow: &FlowKey, slot: Slot) -> bool {
        let may = self.has(flow.local_port(), slot);
        if may {
            self.strays.put(*flow, Stray::at(slot));
        }
        may
    }

    /// Where a segment goes that `by` has no use for: to who has not been asked yet. At last it goes to where a new one would, for good: there
    /// it is answered as what belongs to no connection. `opens`: it asks for a connection, and `by` has just closed its listener.
    pub(crate) fn next(&mut self, by: Slot, flow: &FlowKey, opens: bool) -> Option<Way> {
        let class = self.class(flow);
        let group = self.groups.get(&flow.local_port())?;
        let next = match opens {
            true => group.heir(by, class, self.key).map(Stray::at),
            false => {
                let known = self.strays.get(flow).copied();
                let known = known.filter(|it| group.seat(it.slot).is_some());
                group.unasked(by, known)
            }
        };
        match next {
            Some(stray) => self.strays.put(*flow, stray),
            None => self.strays.remove(flow),
        }
        Some(Way {
            slot: next.map(|it| it.slot).or_else(|| group.home(class))?,
            returns: next.is_some(),
        })
    }
}

/// A key that the daemon which follows has too, so that few flows are strays there. Peers do not know it.
fn secret() -> (u64, u64) {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let id = boot.and_then(|text| u128::from_str_radix(&text.trim().replace('-', ""), 16).ok());
    match id {
        Some(id) => ((id >> 64) as u64, id as u64),
        None => (
            RandomState::new().hash_one(0),
            RandomState::new().hash_one(1),
        ),
    }
}

/// A flow's member, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stray {
    slot: Slot,
    /// Members that do not have it, a bit for each.
    asked: u128,
}

impl Stray {
    fn at(slot: Slot) -> Stray {
        Stray { slot, asked: 0 }
    }
}

const _: () = assert!(crate::MEMBERS_MAX <= u128::BITS as usize);

/// Flows that are not where their classes say. Half of what may be remembered is forgotten at a time, the older half: what is needed yet is
/// found again.
#[derive(Default)]
struct Strays {
    young: HashMap<FlowKey, Stray>,
    old: HashMap<FlowKey, Stray>,
}

impl Strays {
    #[inline]
    fn get(&self, flow: &FlowKey) -> Option<&Stray> {
        self.young.get(flow).or_else(|| self.old.get(flow))
    }

    fn put(&mut self, flow: FlowKey, stray: Stray) {
        self.old.remove(&flow);
        self.young.insert(flow, stray);
        if self.young.len() >= STRAYS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
    }

    fn remove(&mut self, flow: &FlowKey) {
        self.young.remove(flow);
        self.old.remove(flow);
    }

    fn retain(&mut self, keep: impl Fn(&FlowKey, &Stray) -> bool) {
        for part in [&mut self.young, &mut self.old] {
            part.retain(|flow, stray| keep(flow, stray));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn name(user: u32, name: &str) -> Name {
        let name = name.to_owned();
        Name { user, name }
    }

    fn flow(number: u32) -> FlowKey {
        let peer = SocketAddr::from(([10, 0, (number >> 16) as u8, 1], number as u16));
        FlowKey::new(peer, SocketAddr::from(([192, 0, 2, 1], 80))).unwrap()
    }

    fn group(slots: &[Slot]) -> Groups {
        let mut groups = Groups::new();
        for slot in slots {
            assert!(groups.join(80, *slot, 100 + u32::from(*slot), &name(7, "web"), false));
        }
        groups
    }

    fn owners(groups: &Groups) -> Vec<Option<Slot>> {
        groups.groups[&80].classes.to_vec()
    }

    #[test]
    fn who_listened_before_has_its_connections_under_the_next_group_of_its_user() {
        let mut groups = Groups::new();
        let (web, next) = (name(7, "web"), name(7, "next"));
        assert!(groups.join(80, 0, 100, &web, false));
        assert!(!groups.join(80, 1, 101, &next, false), "it listens");
        groups.release(80, 0);
        assert!(groups.join(80, 1, 101, &next, false));
        let flow = flow(5);
        assert_eq!(groups.way(&flow), Some(1));
        let asks = groups.next(1, &flow, false).expect("it may be there");
        assert_eq!((asks.slot, asks.returns), (0, true));
        assert_eq!(groups.way(&flow), Some(0), "it has kept it");
        assert!(!groups.join(80, 0, 100, &web, false), "another listens");
        // Another user's is no one to be asked.
        groups.release(80, 1);
        assert!(groups.join(80, 2, 102, &name(8, "web"), false));
        assert!(!groups.has(80, 0) && !groups.has(80, 1));
        assert!(!groups.has_left(80, 0, 100, &web));
        // To the next daemon they come in any order.
        let mut groups = Groups::new();
        assert!(groups.join(80, 1, 101, &next, false));
        assert!(groups.has_left(80, 0, 100, &web));
        assert!(!groups.join(80, 0, 100, &web, false), "another listens");
        assert_eq!(groups.next(1, &flow, false).map(|it| it.slot), Some(0));
        let mut groups = Groups::new();
        assert!(groups.has_left(80, 0, 100, &web));
        assert!(!groups.is_heard(80));
        assert!(groups.join(80, 1, 101, &next, false));
        assert_eq!(groups.next(1, &flow, false).map(|it| it.slot), Some(0));
    }

    #[test]
    fn who_has_it_has_said_so_and_is_found_though_it_was_asked_in_vain_before() {
        let mut groups = group(&[0, 1, 2]);
        let flow = flow(9);
        let first = groups.way(&flow).expect("a member");
        let second = groups.next(first, &flow, false).expect("another").slot;
        let third = groups.next(second, &flow, false).expect("the last").slot;
        assert!(groups.is_at(&flow, first));
        assert_eq!(groups.way(&flow), Some(first));
        let back = groups.next(third, &flow, false).expect("it is known");
        assert_eq!((back.slot, back.returns), (first, true));
        assert!(!groups.is_at(&flow, 3), "it is none of them");
        assert_eq!(groups.way(&flow), Some(first));
    }

    #[test]
    fn one_that_comes_or_goes_moves_none_but_its_own_classes() {
        let mut groups = group(&[0, 1, 2]);
        let three = owners(&groups);
        for slot in 0..3 {
            let share = three.iter().filter(|it| **it == Some(slot)).count();
            assert!((40..140).contains(&share), "{slot} has {share}");
        }
        groups.join(80, 3, 103, &name(7, "web"), false);
        let four = owners(&groups);
        let moved: Vec<_> = three.iter().zip(&four).filter(|(a, b)| a != b).collect();
        assert!((20..120).contains(&moved.len()), "{}", moved.len());
        assert!(moved.iter().all(|(_, to)| **to == Some(3)));
        groups.release(80, 3);
        assert_eq!(owners(&groups), three);
        groups.gone(3);
        assert_eq!(owners(&groups), three);
        // With the next daemon they come in another order, to other places.
        let mut next = Groups {
            key: groups.key,
            ..Groups::new()
        };
        for (slot, identity) in [(0, 102), (1, 100), (2, 101)] {
            next.join(80, slot, identity, &name(7, "web"), false);
        }
        let had = |it: Option<Slot>| it.map(|slot| (slot + 1) % 3);
        assert!(three.iter().zip(owners(&next)).all(|(a, b)| had(*a) == b));
    }

    #[test]
    fn a_reserve_serves_while_none_else_does() {
        let mut groups = group(&[0, 1]);
        let web = name(7, "web");
        groups.join(80, 0, 100, &web, true);
        assert!(owners(&groups).iter().all(|it| *it == Some(1)));
        assert_eq!(groups.next(1, &flow(1), true).map(|it| it.slot), Some(0));
        groups.release(80, 1);
        assert!(owners(&groups).iter().all(|it| *it == Some(0)));
        groups.join(80, 2, 102, &web, false);
        assert!(owners(&groups).iter().all(|it| *it == Some(2)));
        groups.gone(2);
        assert!(owners(&groups).iter().all(|it| *it == Some(0)));
        groups.join(80, 1, 101, &web, false);
        groups.join(80, 0, 100, &web, false);
        let both = owners(&groups);
        assert!(both.contains(&Some(0)) && both.contains(&Some(1)));
    }

    #[test]
    fn a_group_is_its_users_and_who_is_in_no_other_may_join_it() {
        let mut groups = group(&[0]);
        assert!(
            !groups.join(80, 1, 1, &name(8, "web"), false),
            "another user's"
        );
        assert!(!groups.join(80, 1, 1, &name(7, "mail"), false), "another's");
        assert!(!groups.dissolve(80, 1), "it is listened at");
        assert!(groups.join(80, 1, 1, &name(7, "web"), false));
        groups.release(80, 0);
        assert!(groups.has(80, 0) && groups.is_heard(80));
        assert!(!groups.dissolve(80, 0), "another listens");
        let gone = |unheard, empty| Left {
            port: 80,
            unheard,
            empty,
        };
        assert_eq!(groups.gone(1), [gone(true, false)]);
        assert!(!groups.is_heard(80));
        assert!(
            groups.join(80, 2, 1, &name(8, "web"), false),
            "the first has left it"
        );
        assert!(!groups.has(80, 0));
        assert_eq!(groups.gone(2), [gone(true, true)]);
        assert_eq!(groups.way(&flow(1)), None);
    }

    #[test]
    fn each_is_asked_once_and_who_keeps_a_segment_gets_the_next() {
        let mut groups = group(&[0, 1, 2]);
        let first = groups.way(&flow(1)).unwrap();
        let second = groups.next(first, &flow(1), false).unwrap();
        assert!(second.returns && second.slot != first);
        assert_eq!(groups.way(&flow(1)), Some(second.slot));
        // One that was on its way to the first meanwhile.
        assert_eq!(groups.next(first, &flow(1), false), Some(second));
        let third = groups.next(second.slot, &flow(1), false).unwrap();
        assert!(third.returns && third.slot != first && third.slot != second.slot);
        let last = groups.next(third.slot, &flow(1), false);
        let home = Way {
            slot: first,
            returns: false,
        };
        assert_eq!(last, Some(home));
        assert_eq!(groups.strays.get(&flow(1)), None);
    }

    #[test]
    fn a_request_that_comes_back_from_one_that_listens_no_more_goes_to_its_heir() {
        let mut groups = group(&[0, 1, 2]);
        let first = groups.way(&flow(1)).unwrap();
        // It has closed its listener, and that is not known yet.
        let heir = groups.next(first, &flow(1), true).unwrap();
        assert!(heir.returns && heir.slot != first);
        groups.release(80, first);
        assert_eq!(groups.next(first, &flow(1), true), Some(heir));
        groups.strays.remove(&flow(1));
        assert_eq!(groups.way(&flow(1)), Some(heir.slot), "without any stray");
        let third = groups.next(heir.slot, &flow(1), true).unwrap();
        assert!(third.returns && third.slot != first && third.slot != heir.slot);
        let last = groups.next(third.slot, &flow(1), true).unwrap();
        assert!(!last.returns);
    }

    #[test]
    fn strays_are_bounded_and_none_leads_to_who_is_gone() {
        let mut groups = group(&[0, 1, 2]);
        let last = STRAYS_MAX as u32 * 5 / 4;
        for number in 0..=last {
            let home = groups.way(&flow(number)).unwrap();
            groups.next(home, &flow(number), false);
        }
        let Strays { young, old } = &groups.strays;
        assert!(young.len() + old.len() <= STRAYS_MAX);
        assert!(groups.strays.get(&flow(0)).is_none(), "the oldest");
        let last = flow(last);
        let stray = groups.strays.get(&last).copied().expect("the youngest");
        groups.gone(stray.slot);
        assert_eq!(groups.strays.get(&last), None);
        groups.join(80, stray.slot, 9, &name(7, "web"), false);
        for slot in [0, 1, 2] {
            groups.gone(slot);
        }
        assert!(groups.strays.young.is_empty() && groups.strays.old.is_empty());
    }
}
