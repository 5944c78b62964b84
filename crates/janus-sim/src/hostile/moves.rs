//! A host moves all it has to another stack, between two packets: what a stack holds of each flow goes as a parcel, and the applications go
//! on with new names. What never lives here: when that happens (`plan`).

use super::World;
use crate::net::Host;
use janus_mem::Growth;
use janus_tcp::{ConnId, Instant, Parcel, Secrets, Stack, SynCookies};

/// The new stack's number.
const THE_OTHER: u16 = 1;

impl World<'_> {
    /// Moves hosts as the plan says.
    pub(super) fn move_hosts(&mut self) {
        let rate = self.plan.moves;
        for index in 0..self.hosts.len() {
            if rate > 0 && self.network.random().chance(rate) {
                self.move_host(index);
            }
        }
    }

    fn move_host(&mut self, index: usize) {
        // Cookies are the runtime's, and no connections yet.
        let cookies = self.plan.hosts[index].config.syn_cookies != SynCookies::Never;
        if cookies && self.flows.iter().any(super::Flow::is_opening) {
            return;
        }
        self.network.flush();
        let (now, seed) = (self.network.now(), self.network.random().bits());
        let id = self.hosts[index];
        let host = self.network.host(id);
        let mut old = host.replace_stack(seed);
        while let Some((conn, _)) = old.pop_roused() {
            host.roused.insert(conn);
        }
        for (at, listener) in &mut self.listeners {
            if *at == id {
                let here = old.listens_at(*listener).expect("it is made and stays");
                let new = host.stack.listen(here, super::BACKLOG);
                let old_one = std::mem::replace(listener, new.expect("a free port"));
                while let Ok(waiting) = old.detach_waiting(now, old_one, THE_OTHER) {
                    self.tally.moved += 1;
                    adopt(host, now, waiting.parcel);
                }
            }
        }
        let sides = self.flows.iter_mut().flat_map(|flow| &mut flow.sides);
        for side in sides.filter(|side| side.host == id && !side.gone) {
            let Some(conn) = side.conn else { continue };
            let Ok(mine) = old.detach(now, conn, THE_OTHER) else {
                continue;
            };
            let rest = mine.parcel.rest();
            self.tally.moved += 1;
            self.tally.moved_busy += u64::from(!mine.parcel.is_idle());
            let new = adopt(host, now, mine.parcel).expect("a connection");
            if let Some(rest) = rest {
                let rests = host.stack.rest_on(new, rest);
                rests.expect("it is open");
            }
            if host.roused.remove(&conn) {
                host.roused.insert(new);
            }
            side.conn = Some(new);
        }
        let mut flows = Vec::new();
        old.visit_flows(0, usize::MAX >> 1, |flow| flows.push(*flow));
        for flow in flows {
            if let Ok(left) = old.detach_flow(now, &flow, THE_OTHER) {
                self.tally.moved += 1;
                adopt(host, now, left.parcel);
            }
        }
        // A connection that is over may wait for a queue to come to it.
        let left = |flow: &_| panic!("left behind: {flow:?}");
        old.visit_flows(0, usize::MAX >> 1, left);
        assert_eq!(old.segments_in_use(), 0, "left behind");
    }
}

fn adopt(host: &mut Host, now: Instant, parcel: Parcel) -> Option<ConnId> {
    let adopted = host.stack.adopt(now, parcel);
    adopted.unwrap_or_else(|refused| panic!("{refused:?}"))
}

impl Host {
    /// Another stack like this one, with other secrets, in its place.
    fn replace_stack(&mut self, seed: u64) -> Stack {
        let (config, interface) = (self.stack.config(), self.stack.interface());
        let new = Stack::new(
            config.clone(),
            interface.clone(),
            Secrets::from_seed(seed),
            self.depot.pool(),
            &Growth::Inline,
        );
        std::mem::replace(&mut self.stack, new.expect("memory for a stack"))
    }
}
