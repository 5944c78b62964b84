//! Packets to our own addresses: they do not leave, they go to the shard that has their flow. Each shard steers its own, as a polling core
//! steers what a device brings: by the published ring and what differs from it, and what the tag says of that is walked on from. They are
//! not asked about by the rules for what is let in, which are for devices.

use janus_csb::{FlowId, ShardId, Steering, Tag};
use janus_io::BURST;
use janus_mem::Frame;
use janus_wire::{Class, FlowKey, Link, classify};

use super::core_context::CoreContext;
#[cfg(test)]
use super::hops;

/// Packets that come back in in a turn: so many that a shard which only talks to itself is fast, and so few that its device does not wait
/// for long.
const LOOPED_A_TURN: usize = 4 * BURST;

/// The TCP flow that a packet belongs to, or that it speaks of; or the UDP port.
fn whose(frame: &Frame, link: Link) -> (Option<FlowKey>, Option<u16>) {
    match classify(frame.data(), link) {
        Class::Icmp4(icmp) => (icmp.quoted.map(FlowKey::V4), icmp.socket),
        Class::Icmp6(icmp) => (icmp.quoted.map(FlowKey::V6), icmp.socket),
        Class::Udp4(udp) => (None, Some(udp.flow.local_port)),
        Class::Udp6(udp) => (None, Some(udp.flow.local_port)),
        class => (class.segment().map(|(flow, _)| flow), None),
    }
}

impl CoreContext {
    /// Takes what this shard has sent to our own addresses: packets of its own flows go behind `arrived`, the others over. `looped` is
    /// empty before and after. `steering` is what was adopted for this batch.
    #[cold]
    pub(super) fn take_looped(
        &self,
        steering: &Steering,
        looped: &mut Vec<Frame>,
        arrived: &mut Vec<Frame>,
        leaving: &mut Vec<Frame>,
    ) {
        let link = {
            let mut stack = self.stack.borrow_mut();
            stack.take_looped(looped, LOOPED_A_TURN);
            stack.interface().link
        };
        #[cfg(test)]
        hops::arrived(looped);
        let mut forwarder = self.forwarder.borrow_mut();
        let mut pool = self.pool.borrow_mut();
        for mut frame in looped.drain(..) {
            if self.is_anothers(link, &frame) {
                self.address_to_daemon(link, &mut frame);
                leaving.push(frame);
                continue;
            }
            let owner = self.steer(steering, link, &mut frame);
            if owner.0 == self.core {
                arrived.push(frame);
            } else {
                forwarder.forward(owner, frame, &mut pool);
            }
        }
        forwarder.ring();
    }

    /// Whether a packet is for another program that has our addresses too.
    fn is_anothers(&self, link: Link, frame: &Frame) -> bool {
        let Some(member) = &self.shared.member else {
            return false;
        };
        let (flow, socket) = whose(frame, link);
        let port = socket.or(flow.map(|flow| flow.local_port()));
        port.is_some_and(|port| !member.has(socket.is_some(), port))
    }

    /// A packet of the own loop has no link addresses.
    fn address_to_daemon(&self, link: Link, frame: &mut Frame) {
        frame.tag = 0;
        if link == Link::Ethernet {
            let mac = self.stack.borrow().interface().mac.0;
            frame.data_mut()[..6].copy_from_slice(&mac);
            frame.data_mut()[6..12].copy_from_slice(&mac);
        }
    }

    /// Finds the shard that a packet goes to, and puts key and tag into it. Pings and fragments stay here.
    fn steer(&self, steering: &Steering, link: Link, frame: &mut Frame) -> ShardId {
        let (flow, socket) = whose(frame, link);
        let Some(flow) = flow else {
            let tag = Tag::new(steering.published().epoch(), false);
            frame.steer(tag.bits());
            let owner = |port| self.shared.datagrams.owner_of(port);
            return socket.map_or(ShardId(self.core), owner);
        };
        let key = self.shared.toeplitz.key_of(&flow);
        let name = || FlowId(self.shared.flow_names.of(&flow));
        let (owner, tag) = steering.look_up_flow(key, flow.local_port(), name);
        frame.key = key;
        frame.steer(tag.bits());
        owner
    }
}
