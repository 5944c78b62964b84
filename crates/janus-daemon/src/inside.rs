//! Frames that do not leave the daemon: from member to member, and those that a member of a group sends back as another's.

use janus_mem::Frame;
use janus_shm::Descriptor;
use janus_wire::classify;
use janus_wire::tcp::Flags;

use crate::groups::Way;
use crate::member::Member;
use crate::ports::Slot;
use crate::steer::{To, core_of, opens, steer};
use crate::switch::Switch;

impl Switch {
    /// From one member to another, or back: whoever sends to a port without an owner answers itself that it is closed.
    pub(crate) fn carry_inside(&mut self, from: Slot, member: &mut Member, frame: Frame) {
        self.counters.inside.add(1);
        let class = classify(frame.data(), self.link);
        let to = steer(class, frame.data(), &self.ports, &mut self.pieces);
        if let Some((flow, flags)) = class.segment()
            && (flags.contains(Flags::RST) || to == To::Closed)
        {
            self.is_reset(&flow, to.slot());
            // Its answer to itself is not seen here.
            member.flows.forget(&flow.reversed(), &self.counters);
        }
        let (slot, core, tag) = match to {
            To::Member(slot, core) => (slot, core, 0),
            To::Returns(slot, core) => (slot, core, Descriptor::RETURNS),
            To::Keeper | To::Closed => (from, 0, 0),
            To::Kept | To::Nowhere | To::Everybody => {
                self.counters.lost_reserved.add(1);
                return self.stock.pool.free(frame.buf);
            }
        };
        self.inside
            .push((slot, core, tag | Descriptor::INSIDE, frame));
    }

    /// A member of a group has no use for a frame: another may have. Nothing is believed of it: whatever it sends so goes to members of that
    /// group, which are one user's and trust each other, and each time it does is once.
    pub(crate) fn turned_back(&mut self, by: Slot, frame: Frame, inside: u32) {
        let segment = classify(frame.data(), self.link).segment();
        let own = segment.filter(|(flow, _)| self.ports.groups.has(flow.local_port(), by));
        let way = own.and_then(|(flow, flags)| {
            let way = self.ports.groups.next(by, &flow, opens(flags))?;
            Some((way, flow, flags))
        });
        let Some((Way { slot, returns }, flow, flags)) = way else {
            self.counters.refused.add(1);
            return self.stock.pool.free(frame.buf);
        };
        self.counters.turned_back.add(1);
        // The one that has it may not have joined yet.
        if !returns && self.waits_for_members() {
            self.counters.lost_reserved.add(1);
            return self.stock.pool.free(frame.buf);
        }
        if flags.contains(Flags::RST) {
            self.is_reset(&flow, Some(slot));
        }
        let returns = if returns { Descriptor::RETURNS } else { 0 };
        let core = core_of(&flow);
        self.inside.push((slot, core, inside | returns, frame));
    }

    /// Delivers what stays inside, once no member is lent out.
    pub(crate) fn deliver_inside(&mut self) {
        let mut inside = std::mem::take(&mut self.inside);
        for (slot, core, tag, frame) in inside.drain(..) {
            self.deliver(slot, core, frame, tag);
        }
        self.inside = inside;
    }
}
