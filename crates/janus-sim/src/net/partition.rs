//! Windows of time in which some hosts cannot be reached: a cable pulled, a route gone, a firewall that drops one way.
//! What never lives here: a decision by chance, which is the link's.

use super::HostId;
use janus_tcp::Instant;
use std::ops::Range;

/// Which packets across the cut are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// All of them.
    Both,
    /// Those that leave the hosts cut off.
    Out,
    /// Those for the hosts cut off.
    In,
}

/// A set of hosts cut off from all others for a while. Among themselves they still talk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// The hosts cut off.
    pub hosts: Vec<HostId>,
    /// When. A packet is lost that is sent in this time; one that is under way already arrives.
    pub during: Range<Instant>,
    /// Which way.
    pub way: Way,
}

impl Partition {
    /// Whether a packet sent now from one host to another is lost.
    pub(super) fn cuts(&self, now: Instant, from: usize, to: usize) -> bool {
        let inside = |host: usize| self.hosts.contains(&HostId(host));
        self.during.contains(&now)
            && match self.way {
                Way::Both => inside(from) != inside(to),
                Way::Out => inside(from) && !inside(to),
                Way::In => !inside(from) && inside(to),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_way_and_the_time_named_are_cut() {
        let at = Instant::from_millis;
        let cut = |way| Partition {
            hosts: vec![HostId(0), HostId(1)],
            during: at(10)..at(20),
            way,
        };
        let (out, back) = ((0, 2), (2, 1));
        for (way, cuts_out, cuts_back) in [
            (Way::Both, true, true),
            (Way::Out, true, false),
            (Way::In, false, true),
        ] {
            assert_eq!(cut(way).cuts(at(10), out.0, out.1), cuts_out, "{way:?}");
            assert_eq!(cut(way).cuts(at(19), back.0, back.1), cuts_back, "{way:?}");
            for (now, from, to) in [(9, 0, 2), (20, 0, 2), (15, 0, 1), (15, 2, 3)] {
                assert!(!cut(way).cuts(at(now), from, to), "{way:?}");
            }
        }
    }
}
