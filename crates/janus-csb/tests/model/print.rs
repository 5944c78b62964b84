//! A trace in words, run anew from the beginning.

use std::fmt::Write;

use crate::rules::Violation;
use crate::state::*;
use crate::world::{Action, World};

impl World {
    /// One line for each action of a trace that ends in a violation.
    ///
    /// The I/O cores are interchangeable, and a state's name may have swapped them: their numbers are only right
    /// within one line.
    pub(crate) fn print(&self, violation: Violation, trace: &[Action]) -> String {
        let mut state = self.initial().canonical();
        let mut text = String::new();
        let owners = self.config.owners;
        writeln!(
            text,
            "owners by epoch {owners:?}, {:?} weakened",
            self.config.weak
        )
        .unwrap();
        for &action in trace {
            writeln!(text, "  {}", self.line(&state, action)).unwrap();
            match self.apply(&state, action) {
                Ok(next) => state = next,
                Err(end) => assert_eq!(end, violation, "a trace replays"),
            }
        }
        writeln!(text, "  {violation:?}! {}", live(&state)).unwrap();
        text
    }

    fn line(&self, state: &State, action: Action) -> String {
        match action {
            Action::Send {
                io,
                flow,
                kind,
                wrong,
            } => {
                let epoch = state.io[usize::from(io)].epoch;
                let (to, hint) = self.look_up(state, io, flow, wrong);
                let hint = if hint { ", a hint" } else { "" };
                format!("io{io} sends {kind:?} of flow {flow} to s{to} (stage {epoch}{hint})")
            }
            Action::Take(ring) => taken("takes", state, ring),
            Action::Lose(ring) => taken("loses", state, ring),
            Action::Adopt(s) => format!("s{s} adopts ring {}", state.newest),
            Action::Slice(s) => {
                let store = ["connections", "half-open records", "TIME-WAIT records"]
                    [usize::from(state.shards[usize::from(s)].visited)];
                format!("s{s} looks through its {store}")
            }
            Action::See(s) => format!("s{s} sees the round of draining"),
            Action::IoAdopt(io) => format!("io{io} looks up in ring {}", state.published),
            Action::Propose => format!("update {} begins", state.newest + 1),
            Action::Publish => format!("ring {} is published", state.newest),
            Action::RollBack => format!("ring {} is withdrawn", state.newest),
            Action::Learn { io, flow, owner } => {
                format!("io{io} learns from a SYN-ACK that s{owner} holds flow {flow}")
            }
            Action::Expire(flow) => format!("the TIME-WAIT of flow {flow} ends"),
            Action::Open { shard, flow } => format!("s{shard} opens flow {flow} itself"),
            Action::Leave(s) => format!("s{s} leaves"),
            Action::Die(s) => format!("s{s} dies"),
            Action::Move { flow, to } => {
                let from = state.flows[usize::from(flow)].holder.expect("a holder");
                format!("s{from} gives flow {flow} to s{to}")
            }
            Action::Arrive(flow) => {
                let parcel = state.flows[usize::from(flow)].parcel.expect("a parcel");
                format!("s{} takes flow {flow} in", parcel.to)
            }
            Action::Refuse(flow) => {
                let parcel = state.flows[usize::from(flow)].parcel.expect("a parcel");
                format!(
                    "s{} refuses flow {flow}, which goes back to s{}",
                    parcel.to, parcel.from
                )
            }
            Action::Forget { shard, flow } => format!("s{shard} forgets its stub of flow {flow}"),
        }
    }
}

fn taken(what: &str, state: &State, ring: RingName) -> String {
    let mut rings = state.rings;
    let packet = rings.pop(ring);
    let Packet {
        flow,
        kind,
        stage,
        hint,
        ..
    } = packet;
    let known = state.flows[usize::from(flow)].holder == Some(ring.to);
    format!(
        "s{} {what} {kind:?} of flow {flow} from {:?} (stage {stage}{}), {}",
        ring.to,
        ring.from,
        if hint { ", a hint" } else { "" },
        if known {
            "which it holds"
        } else {
            "unknown to it"
        },
    )
}

fn live(state: &State) -> String {
    let holders = (0..).zip(&state.flows);
    let held = holders
        .filter_map(|(flow, it): (u8, _)| it.holder.map(|s| format!("flow {flow} lives at s{s}")));
    held.collect::<Vec<_>>().join(", ")
}
