//! What can happen next in a state.

use crate::rules::Weak;
use crate::state::*;
use crate::world::{Action, World};

impl World {
    /// Everything that can happen in `state`.
    pub(crate) fn actions(&self, state: &State, out: &mut Vec<Action>) {
        out.clear();
        self.sends(state, out);
        for ring in state.rings.heads() {
            if !parcels_wait(state, ring.to) || self.is(Weak::PacketsBeforeParcels) {
                out.push(Action::Take(ring));
            }
            if state.losses > 0 {
                out.push(Action::Lose(ring));
            }
        }
        for (s, shard) in state.living() {
            let free = !parcels_wait(state, s) || self.is(Weak::LooksBeforeParcels);
            if shard.view != state.newest || shard.known != state.published {
                out.push(Action::Adopt(s));
            }
            if free && shard.visited < STORES {
                out.push(Action::Slice(s));
            }
            if matches!(state.phase, Phase::Draining(round) if shard.round < round) {
                out.push(Action::See(s));
            }
            if self.may_leave(state, s) {
                out.push(Action::Leave(s));
            }
            if state.deaths > 0 && !shard.fallen {
                out.push(Action::Die(s));
            }
        }
        for io in 0..IO as u8 {
            if state.io[usize::from(io)].epoch != state.published {
                out.push(Action::IoAdopt(io));
            }
        }
        self.updates(state, out);
        self.flows(state, out);
    }

    fn sends(&self, state: &State, out: &mut Vec<Action>) {
        for (flow, it) in (0u8..).zip(&state.flows[..self.config.flows.len()]) {
            for (kind, left) in KINDS.into_iter().zip(it.budget) {
                let pointless = matches!(kind, Kind::Data | Kind::Fin) && !it.is_live();
                if left == 0 || pointless {
                    continue;
                }
                for io in 0..IO as u8 {
                    out.push(Action::Send {
                        io,
                        flow,
                        kind,
                        wrong: None,
                    });
                    let epoch = state.io[usize::from(io)].epoch;
                    // Where something differs the filter is right and `H_diff` exact.
                    if self.exception(state, epoch, flow).is_some() {
                        continue;
                    }
                    let wrong = self.config.wrong_hints.iter();
                    let living = wrong.filter(|&&s| !state.shards[usize::from(s)].gone);
                    out.extend(living.map(|&s| Action::Send {
                        io,
                        flow,
                        kind,
                        wrong: Some(s),
                    }));
                }
            }
        }
    }

    fn updates(&self, state: &State, out: &mut Vec<Action>) {
        let more = usize::from(state.newest) + 1 < self.config.owners.len();
        let traversing = state.phase == Phase::Traversing;
        let over = state.phase == Phase::Idle || self.is(Weak::BeginEarly) && !traversing;
        let may_supersede = traversing && state.superseded < self.config.supersedes;
        if more && (over || may_supersede) {
            out.push(Action::Propose);
        }
        let looked = |shard: &Shard| shard.visited == STORES || self.is(Weak::PublishEarly);
        let ready = |shard: &Shard| shard.view == state.newest && looked(shard);
        if traversing && state.living().all(|(_, shard)| ready(shard)) {
            out.push(Action::Publish);
        }
        if traversing && self.is(Weak::RollBack) {
            out.push(Action::RollBack);
        }
    }

    fn flows(&self, state: &State, out: &mut Vec<Action>) {
        for (flow, it) in (0u8..).zip(&state.flows[..self.config.flows.len()]) {
            if it.holder.is_some() && it.store == Store::TimeWait {
                out.push(Action::Expire(flow));
            }
            self.moves(state, flow, out);
            for owner in 0..SHARDS as u8 {
                if it.syn_acks & 1 << owner != 0 {
                    out.extend((0..IO as u8).map(|io| Action::Learn { io, flow, owner }));
                }
                if it.opens > 0 && self.may_open(state, owner, flow) {
                    out.push(Action::Open { shard: owner, flow });
                }
            }
        }
    }

    /// Rule 14.
    fn moves(&self, state: &State, flow: u8, out: &mut Vec<Action>) {
        let it = &state.flows[usize::from(flow)];
        if let Some(parcel) = it.parcel {
            let fallen = state.shards[usize::from(parcel.to)].fallen;
            if !fallen || parcel.refused {
                out.push(Action::Arrive(flow));
            }
            if (fallen || it.refusals > 0) && !parcel.refused {
                out.push(Action::Refuse(flow));
            }
        }
        for (shard, stub) in (0u8..).zip(it.stubs) {
            if stub.is_some_and(|stub| stub.over) {
                out.push(Action::Forget { shard, flow });
            }
        }
        let Some(s) = it.holder.filter(|_| it.moves > 0) else {
            return;
        };
        let shard = &state.shards[usize::from(s)];
        let told = it.moved_at.is_none_or(|view| shard.known > view);
        if !told && !self.is(Weak::MoveAgain) {
            return;
        }
        let others = state.living().map(|(to, _)| to);
        let others = others.filter(|&to| to != s && self.config.leaves != Some(to));
        out.extend(others.map(|to| Action::Move { flow, to }));
    }

    /// Rule 10.
    fn may_open(&self, state: &State, s: u8, flow: u8) -> bool {
        let shard = &state.shards[usize::from(s)];
        let it = &state.flows[usize::from(flow)];
        if parcels_wait(state, s) && !self.is(Weak::LooksBeforeParcels) {
            return false;
        }
        if shard.gone || shard.fallen || it.holder == Some(s) || it.stubs[usize::from(s)].is_some()
        {
            return false;
        }
        let hint = self.exception(state, shard.known, flow);
        let differs = hint.is_some_and(|owner| owner != s) && !self.is(Weak::OpenByRings);
        let rings = (shard.known.min(shard.view)..=shard.view).all(|epoch| self.owner(epoch) == s);
        rings && !differs
    }

    /// Rule 12.
    fn may_leave(&self, state: &State, s: u8) -> bool {
        let holds = state.flows.iter().any(|flow| {
            let parcel = flow.parcel;
            let sends = parcel.is_some_and(|parcel| parcel.from == s || parcel.to == s);
            flow.holder == Some(s) || sends || flow.stubs[usize::from(s)].is_some()
        });
        let owns = (state.published..=state.newest).any(|epoch| self.owner(epoch) == s);
        if self.config.leaves != Some(s) || holds || owns {
            return false;
        }
        if self.is(Weak::LeaveEmpty) {
            return true;
        }
        let current = usize::from(state.published);
        let named = (0..FLOWS as u8).any(|flow| state.found[current] & found_bit(flow, s) != 0);
        let flying = state.io.iter().any(|io| io.fly.contains(&Some(s)));
        state.phase == Phase::Idle && !named && !flying
    }
}

/// Whether a parcel is on its way to a shard, which takes it in before anything else.
fn parcels_wait(state: &State, s: u8) -> bool {
    let waits = |flow: &Flow| flow.parcel.is_some_and(|parcel| parcel.to == s);
    state.flows.iter().any(waits)
}
