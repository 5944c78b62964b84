//! Owner bits: a peer that uses timestamps echoes ours, and ours name the shard they came from. So most packets need
//! neither hash nor look-up. What the echo names is a claim and no more: a peer can say anything, and a shard that does not
//! know the flow has it looked up (`Tag::claim`). SYNs, and packets without an echo, go by the balancer.

use janus_csb::{FlowId, ShardId, Tag};
use janus_mem::Frame;
use janus_wire::classify::Tcp;
use janus_wire::tcp::Flags;
use janus_wire::{Class, Stamps, classify, proto};

use super::flow::flow_of;
use super::{Route, Scratch, Steerer};
use crate::batch::BURST;
use crate::core::policy::Gate;

/// Two no-operations, kind and length of the timestamps option: how all common stacks begin their options. In any other
/// place it is not looked for.
const LAYOUT: [u8; 4] = [1, 1, 8, 10];
/// Where the option begins in a segment, and the echo in it.
const OPTIONS: usize = 20;
const ECHO: usize = OPTIONS + 8;

impl Steerer {
    /// [`route_past`](Steerer::route_past) where timestamps name owners.
    #[inline(never)]
    pub(super) fn route_by_echoes(
        &self,
        stamps: &Stamps,
        gate: &mut impl Gate,
        frames: &mut [Frame],
        routes: &mut [Route; BURST],
    ) {
        let claim = Tag::claim(self.steering().published().epoch()).bits();
        let mut scratch = Scratch {
            keys: [0; BURST],
            ports: [0; BURST],
            owners: [ShardId(0); BURST],
        };
        // The places of those that are looked up.
        let (mut asked, mut count) = ([0u8; BURST], 0);
        for (i, frame) in frames.iter_mut().enumerate() {
            let class = classify(frame.data(), self.link);
            if !frame.is_looped()
                && let Some(cause) = gate.refuses(&class)
            {
                routes[i] = Route::Drop(cause);
                continue;
            }
            if let Some(owner) = claimed(frame.data(), class, stamps) {
                routes[i] = Route::Shard(owner);
                frame.key = 0;
                frame.steer(claim);
                continue;
            }
            match self.key_of_rest(class) {
                Ok((key, port)) => {
                    (scratch.keys[count], scratch.ports[count]) = (key, port);
                    asked[count] = i as u8;
                    count += 1;
                    frame.key = key;
                }
                Err(route) => routes[i] = route,
            }
        }
        let name = |at: usize| {
            let frame: &Frame = &frames[usize::from(asked[at])];
            let flow = flow_of(frame.data(), self.link);
            FlowId(flow.map_or(0, |flow| self.names.of(&flow)))
        };
        let owners = &mut scratch.owners[..count];
        let (keys, ports) = (&scratch.keys[..count], &scratch.ports[..count]);
        let tags = self.end.look_up_batch(keys, ports, name, owners);
        for (at, (&i, &owner)) in asked[..count].iter().zip(&*owners).enumerate() {
            routes[usize::from(i)] = Route::Shard(owner);
            frames[usize::from(i)].steer(tags.get(at).bits());
        }
    }
}

/// The shard that a segment names by its echo.
#[inline]
fn claimed(bytes: &[u8], class: Class, stamps: &Stamps) -> Option<ShardId> {
    let at = match class {
        Class::Tcp4(Tcp { l3_offset, .. }) => l3_offset + usize::from(bytes[l3_offset] & 0xf) * 4,
        Class::Tcp6(Tcp { l3_offset, .. }) if bytes[l3_offset + 6] == proto::TCP => l3_offset + 40,
        _ => return None,
    };
    let (flow, flags) = class.segment()?;
    let tcp = bytes.get(at..at + ECHO + 4)?;
    let syn_or_ack = flags.0 & (Flags::SYN.0 | Flags::ACK.0);
    let has_room = tcp[12] >> 4 >= 8;
    if syn_or_ack != Flags::ACK.0 || !has_room || tcp[OPTIONS..OPTIONS + 4] != LAYOUT {
        return None;
    }
    let echo = u32::from_be_bytes([tcp[ECHO], tcp[ECHO + 1], tcp[ECHO + 2], tcp[ECHO + 3]]);
    stamps.owner(&flow, echo).map(ShardId)
}
