//! The walk: what a shard does with a packet whose flow it does not know. It decides; it neither forwards nor counts.
//!
//! 1. A shard that knows the flow processes the packet and never asks (half-open and TIME_WAIT count as known).
//! 2. One that does not walks the rings in order, from the packet's stage to the newest it has adopted. A tag without
//!    hint says "the ring of this epoch chose you": the walk starts after it. With a hint that ring is asked first.
//! 3. The first ring that names another shard gets the packet, tagged with that ring's epoch and no hint. Coming back
//!    to a shard (x → y → x) is right: what was unknown at the first visit may have been created since.
//! 4. Where the walk ends the flow is created or reset, and nowhere else.
//!
//! Never a jump to the newest ring: a flow may live with the owner of any ring in between.

use crate::epoch::Tag;
use crate::shard::ShardId;
use crate::steering::Steering;

#[cfg(test)]
mod tests;

/// Next step for a packet of an unknown flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The walk ended here: create the flow, or answer with a reset.
    Stay,
    /// Another shard is named: hand the packet over with this tag.
    Forward {
        /// The shard to hand it to.
        to: ShardId,
        /// The tag it carries from here.
        tag: Tag,
    },
    /// The packet is older than the rings still known: drop and count it.
    Expired,
}

/// The next step for a packet with this key, local port and tag, at shard `me`, which does not know its flow.
///
/// `view` must be the steering the shard adopted before the batch. Each forward raises the tag's epoch, so a packet is
/// forwarded at most once for each epoch between its tag and the newest.
#[inline]
pub fn walk(view: &Steering, me: ShardId, key: u32, port: u16, tag: Tag) -> Step {
    let walked = if tag.is_hint() {
        tag.epoch().previous()
    } else {
        tag.epoch()
    };
    let Some(layouts) = view.after(walked) else {
        return Step::Expired;
    };
    for layout in layouts {
        let owner = layout.owner(key, port);
        if owner != me {
            return Step::Forward {
                to: owner,
                tag: Tag::new(layout.epoch(), false),
            };
        }
    }
    Step::Stay
}
