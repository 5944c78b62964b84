//! Which local ports are taken, and by what kind of sockets: the question of `bind` is answered without looking at sockets.
//! Sockets that are alike in all that matters to it are only counted.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::family::Family;

/// Properties of a socket that matter to others that want its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) ip: IpAddr,
    pub(crate) family: Family,
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    pub(crate) listening: bool,
    /// `bind`, `listen` or a listener chose the port, not `connect`.
    pub(crate) chosen: bool,
}

impl Place {
    /// inet_bind_conflict, for sockets of one owner. `given`: the program names the port; else one is looked for, and
    /// only one that no socket has at this address will do.
    fn conflicts(&self, taken: &Place, given: bool) -> bool {
        if !taken.family.overlaps(taken.ip, self.family, self.ip) {
            return false;
        }
        let share_address = self.reuse_address && taken.reuse_address && !taken.listening;
        let share_port = self.reuse_port && taken.reuse_port;
        !(given && (share_address || share_port))
    }
}

/// All ports that are taken.
#[derive(Default)]
pub(crate) struct PortIndex {
    ports: HashMap<u16, Vec<(Place, u32)>>,
}

impl PortIndex {
    pub(crate) fn add(&mut self, port: u16, place: Place) {
        let places = self.ports.entry(port).or_default();
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, count)) => *count += 1,
            None => places.push((place, 1)),
        }
    }

    pub(crate) fn remove(&mut self, port: u16, place: &Place) {
        let Some(places) = self.ports.get_mut(&port) else {
            return;
        };
        if let Some(at) = places.iter().position(|(known, _)| known == place) {
            places[at].1 -= 1;
            if places[at].1 == 0 {
                places.swap_remove(at);
            }
        }
        if places.is_empty() {
            self.ports.remove(&port);
        }
    }

    /// Whether a socket that is not counted here may not have the port.
    pub(crate) fn conflict(&self, port: u16, place: &Place, given: bool) -> bool {
        let mut taken = self.ports.get(&port).into_iter().flatten();
        taken.any(|(taken, _)| place.conflicts(taken, given))
    }

    /// Whether the port is left to those who chose it: `connect` takes no such port (__inet_hash_connect).
    pub(crate) fn is_chosen(&self, port: u16) -> bool {
        let mut taken = self.ports.get(&port).into_iter().flatten();
        taken.any(|(taken, _)| taken.chosen)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }
}
