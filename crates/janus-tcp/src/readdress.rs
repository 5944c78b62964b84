//! Addresses that come and go while the stack runs, as a lease does. A flow of an address that is not ours any more ends without
//! a word to its peer: a word would come from that address (RFC 2131 section 4.4.5). How the addresses are come by is no
//! matter of the stack's.

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr};

use janus_wire::FlowKey;

use crate::cold::flag;
use crate::interface::IpCidr;
use crate::records::Record;
use crate::routes::Route;
use crate::stack::Stack;
use crate::time::Instant;

/// Addresses of an interface, and the routes out of its own networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addressing {
    /// Our addresses, of both families.
    pub addresses: Vec<IpCidr>,
    /// Where IPv4 packets for other networks go.
    pub gateway: Option<Ipv4Addr>,
    /// Where IPv6 packets for other networks go.
    pub gateway_v6: Option<Ipv6Addr>,
    /// Other ways than the gateways', to single networks.
    pub routes: Vec<Route>,
    /// Largest IP packet.
    pub mtu: u16,
}

impl Stack {
    /// From now on these are our addresses, and these our ways. Nothing more is taken for others; the flows they have are
    /// ended by [`end_homeless`](Self::end_homeless).
    pub fn readdress(&mut self, new: Addressing) {
        let Addressing {
            addresses,
            gateway,
            gateway_v6,
            routes,
            mtu,
        } = new;
        let mut interface = self.rules.interface.clone();
        interface.addresses = addresses;
        (interface.gateway, interface.gateway_v6) = (gateway, gateway_v6);
        (interface.routes, interface.mtu) = (routes, mtu);
        self.rules.interface = interface.with_link_local();
    }

    /// Ends flows whose own address is none of ours, whose owners learn that the network cannot be reached. Looks on from
    /// `cursor` (0: the beginning) at no more than `budget` places; gives the cursor to go on from, `None` when all have been
    /// looked at.
    pub fn end_homeless(&mut self, now: Instant, cursor: u64, budget: usize) -> Option<u64> {
        self.now = now;
        let mut homeless: Vec<FlowKey> = Vec::new();
        let next = self.visit_flows(cursor, budget, |flow| {
            if !self.rules.interface.is_ours(flow.local()) {
                homeless.push(*flow);
            }
        });
        for flow in homeless {
            self.end_one(&flow);
        }
        next
    }

    fn end_one(&mut self, flow: &FlowKey) {
        match self.find(flow, self.index.hash.flow(flow)) {
            Some(Record::Connection(conn)) => self.end(conn, flag::NO_NETWORK),
            Some(Record::HalfOpen(slot)) => self.drop_half_open(slot),
            Some(Record::TimeWait(slot)) => self.drop_time_wait(slot),
            Some(Record::Stub(slot)) => {
                let shard = self.index.stubs.shard(slot);
                self.remove_stub(flow, shard);
            }
            None => {}
        }
    }
}
