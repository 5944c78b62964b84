//! What an action does. The rules are here and in `enabled.rs`; the walk is the crate's.

use janus_csb::{Epoch, ShardId, Step, Tag, walk};

use crate::rules::{Violation, Weak};
use crate::state::*;
use crate::world::{Action, KEY, PORT, World};

type Outcome = Result<(), Violation>;

impl World {
    /// The state after `action`.
    pub(crate) fn apply(&self, state: &State, action: Action) -> Result<State, Violation> {
        let mut next = *state;
        match action {
            Action::Send {
                io,
                flow,
                kind,
                wrong,
            } => self.send(&mut next, io, flow, kind, wrong)?,
            Action::Take(ring) => self.take(&mut next, ring)?,
            Action::Lose(ring) => {
                next.rings.pop(ring);
                next.losses -= 1;
            }
            Action::Adopt(s) => adopt(&mut next, s),
            Action::Slice(s) => self.slice(&mut next, s),
            Action::See(s) => {
                let Phase::Draining(round) = next.phase else {
                    unreachable!("only while rings are drained")
                };
                next.shards[usize::from(s)].round = round;
                next.rings.mark(s);
            }
            Action::IoAdopt(io) => {
                let io = &mut next.io[usize::from(io)];
                io.epoch = next.published;
                if !self.is(Weak::OldFlyFirst) {
                    io.fly = [None; FLOWS];
                }
            }
            Action::Propose => self.propose(&mut next)?,
            Action::Publish => {
                next.published = next.newest;
                next.phase = Phase::Published;
            }
            Action::RollBack => {
                // What some shards have seen is taken back: their view is the published ring again.
                next.phase = Phase::Idle;
                next.newest = next.published;
                for shard in &mut next.shards {
                    shard.view = shard.view.min(next.published);
                    shard.visited = STORES;
                }
            }
            Action::Learn { io, flow, owner } => self.learn(&mut next, io, flow, owner),
            Action::Expire(flow) => next.flows[usize::from(flow)].holder = None,
            Action::Open { shard, flow } => {
                next.flows[usize::from(flow)].opens -= 1;
                self.create(&mut next, shard, flow, Store::Established)?;
            }
            Action::Leave(s) => {
                next.shards[usize::from(s)].gone = true;
                if next.rings.iter().any(|(ring, _)| ring.to == s) {
                    return Err(Violation::Gone);
                }
            }
        }
        self.control(&mut next);
        Ok(next.canonical())
    }

    fn send(&self, state: &mut State, io: u8, flow: u8, kind: Kind, wrong: Nobody) -> Outcome {
        let (to, hint) = self.look_up(state, io, flow, wrong);
        let it = &mut state.flows[usize::from(flow)];
        it.budget[kind as usize] -= 1;
        let packet = Packet {
            flow,
            kind,
            stage: state.io[usize::from(io)].epoch,
            hint,
            hops: 0,
            life: it.holder.map_or(0, |_| it.life),
            marked: false,
        };
        push(state, From::Io(io), to, packet)
    }

    fn take(&self, state: &mut State, ring: RingName) -> Outcome {
        let packet = state.rings.pop(ring);
        let s = ring.to;
        if state.flows[usize::from(packet.flow)].holder == Some(s) {
            self.process(state, s, &packet);
            return Ok(());
        }
        match self.step(state, s, &packet) {
            Step::Forward { to, tag } => {
                let hops = packet.hops + 1;
                if hops > self.config.hops {
                    return Err(Violation::Hops);
                }
                let packet = Packet {
                    stage: tag.epoch().number() as u8,
                    hint: tag.is_hint(),
                    hops,
                    marked: false,
                    ..packet
                };
                push(state, From::Shard(s), to.0, packet)
            }
            Step::Stay => self.end(state, s, &packet),
            Step::Expired => Err(Violation::Freed),
        }
    }

    fn step(&self, state: &State, s: u8, packet: &Packet) -> Step {
        let newest = state.shards[usize::from(s)].view;
        let view = &self.views[usize::from(newest)];
        let hint = packet.hint && !self.is(Weak::TrustHints);
        let tag = Tag::new(Epoch::new(packet.stage.into()), hint);
        if !self.is(Weak::Jump) {
            return walk(view, ShardId(s), KEY, PORT, tag);
        }
        let to = self.owner(newest);
        if to == s || packet.stage >= newest && !packet.hint {
            return Step::Stay;
        }
        Step::Forward {
            to: ShardId(to),
            tag: Tag::new(Epoch::new(newest.into()), false),
        }
    }

    /// Rule 5: the walk ended at `s`, which does not know the flow.
    fn end(&self, state: &mut State, s: u8, packet: &Packet) -> Outcome {
        let it = &state.flows[usize::from(packet.flow)];
        match packet.kind {
            Kind::Syn => self.create(state, s, packet.flow, Store::HalfOpen),
            Kind::Cookie => self.create(state, s, packet.flow, Store::Established),
            Kind::Data | Kind::Fin if it.holder.is_some() && it.life == packet.life => {
                Err(Violation::Reset)
            }
            Kind::Data | Kind::Fin => Ok(()),
        }
    }

    fn create(&self, state: &mut State, s: u8, flow: u8, store: Store) -> Outcome {
        let it = &mut state.flows[usize::from(flow)];
        if it.holder.is_some() {
            return Err(Violation::Twice);
        }
        it.holder = Some(s);
        it.store = store;
        it.life += 1;
        if store == Store::HalfOpen && self.config.fly {
            it.syn_acks |= 1 << s;
        }
        Ok(())
    }

    /// Rule 3: the shard knows the flow.
    fn process(&self, state: &mut State, s: u8, packet: &Packet) {
        let it = &mut state.flows[usize::from(packet.flow)];
        let mine = packet.life == it.life;
        let before = it.store;
        match (packet.kind, before) {
            (Kind::Syn, Store::TimeWait) => {
                it.store = Store::HalfOpen;
                it.life += 1;
            }
            (Kind::Data | Kind::Cookie, Store::HalfOpen) if mine => it.store = Store::Established,
            (Kind::Fin, _) if mine => it.store = Store::TimeWait,
            _ => {}
        }
        if it.store != before {
            self.moved(state, s, packet.flow);
        }
    }

    /// Rule 6, for whoever moves a record: noted, and told with the next slice if the flow is still there.
    fn moved(&self, state: &mut State, s: u8, flow: u8) {
        let traversing = state.shards[usize::from(s)].visited < STORES;
        if traversing && !self.is(Weak::SilentMover) {
            state.moved |= found_bit(flow, s);
        }
    }

    fn slice(&self, state: &mut State, s: u8) {
        let shard = &mut state.shards[usize::from(s)];
        let (view, store) = (shard.view, shard.visited);
        shard.visited += 1;
        for flow in 0..FLOWS as u8 {
            let it = &state.flows[usize::from(flow)];
            let bit = found_bit(flow, s);
            let held = it.holder == Some(s);
            let moved = state.moved & bit != 0 && (held || self.is(Weak::TellTheDead));
            if self.owner(view) != s && (moved || held && it.store as u8 == store) {
                let found = &mut state.found[usize::from(view)];
                // Of one tuple at two shards the later report is of the later life.
                if !self.is(Weak::AnyReport) {
                    *found &= !found_bits(flow);
                }
                *found |= bit;
            }
            state.moved &= !bit;
        }
    }

    fn propose(&self, state: &mut State) -> Outcome {
        if state.phase == Phase::Traversing {
            state.superseded += 1;
        } else {
            // From here on only the rings from the published one on are kept.
            let kept = state.published;
            let asks = |packet: &Packet| packet.stage + u8::from(!packet.hint);
            if state.rings.iter().any(|(_, packet)| asks(&packet) < kept) {
                return Err(Violation::Freed);
            }
        }
        state.newest += 1;
        state.found[usize::from(state.newest)] = 0;
        state.phase = Phase::Traversing;
        state.shards.iter_mut().for_each(|shard| shard.round = 0);
        state.rings.unmark();
        Ok(())
    }

    fn learn(&self, state: &mut State, io: u8, flow: u8, owner: u8) {
        state.flows[usize::from(flow)].syn_acks &= !(1 << owner);
        let io = &mut state.io[usize::from(io)];
        // A shard that the ring omits is leaving, or may be.
        let leaving = self.config.leaves == Some(owner) && self.owner(io.epoch) != owner;
        if !leaving {
            io.fly[usize::from(flow)] = Some(owner);
        }
    }

    /// What the control side does by itself as soon as it can; that it may be late is in the actions of the others.
    fn control(&self, state: &mut State) {
        if state.phase == Phase::Published && state.io.iter().all(|io| io.epoch == state.published)
        {
            state.phase = Phase::Draining(1);
        }
        let rounds = self.config.rounds - u8::from(self.is(Weak::FewerRounds));
        while let Phase::Draining(round) = state.phase {
            let seen = state.living().all(|(_, shard)| shard.round == round);
            if !seen || state.rings.is_marked() {
                return;
            }
            state.phase = if round == rounds {
                state.shards.iter_mut().for_each(|shard| shard.round = 0);
                Phase::Idle
            } else {
                Phase::Draining(round + 1)
            };
        }
    }
}

/// Rule 1: the view only grows, and its traversal starts after the change.
fn adopt(state: &mut State, s: u8) {
    let shard = &mut state.shards[usize::from(s)];
    if shard.view != state.newest {
        shard.view = state.newest;
        shard.visited = 0;
        let all = (0..FLOWS as u8).map(|flow| found_bit(flow, s));
        state.moved &= !all.sum::<u16>();
    }
    shard.known = state.published;
}

fn push(state: &mut State, from: From, to: u8, packet: Packet) -> Outcome {
    if state.shards[usize::from(to)].gone {
        return Err(Violation::Gone);
    }
    state.rings.push(RingName { to, from }, packet);
    Ok(())
}
