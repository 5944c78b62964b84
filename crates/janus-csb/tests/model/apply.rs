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
            Action::Adopt(s) => self.adopt(&mut next, s),
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
            Action::Expire(flow) => ends(&mut next.flows[usize::from(flow)]),
            Action::Die(s) => self.die(&mut next, s),
            Action::Move { flow, to } => {
                let it = &mut next.flows[usize::from(flow)];
                let from = it.holder.take().expect("only who holds it moves it");
                let view = next.shards[usize::from(from)].view;
                it.moves -= 1;
                leave(it, from, to, view, false);
            }
            Action::Refuse(flow) => {
                let it = &mut next.flows[usize::from(flow)];
                let Parcel { from, to, .. } = it.parcel.take().expect("a parcel");
                let view = next.shards[usize::from(to)].view;
                it.refusals = it.refusals.saturating_sub(1);
                leave(it, to, from, view, true);
            }
            Action::Arrive(flow) => {
                let it = &mut next.flows[usize::from(flow)];
                let Parcel { to, .. } = it.parcel.take().expect("a parcel");
                it.stubs[usize::from(to)] = None;
                if next.shards[usize::from(to)].fallen {
                    ends(it);
                } else {
                    it.holder = Some(to);
                    self.moved(&mut next, to, flow);
                }
            }
            Action::Forget { shard, flow } => {
                next.flows[usize::from(flow)].stubs[usize::from(shard)] = None;
            }
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
        self.all_are_reached(&next)?;
        Ok(next.canonical())
    }

    /// When nothing is under way, every live flow is where its packets go.
    fn all_are_reached(&self, state: &State) -> Outcome {
        let same = state.io.iter().all(|io| io.epoch == state.published);
        let still = state.flows.iter().all(|flow| flow.parcel.is_none());
        let moves = self.config.flows.iter().any(|flow| flow.moves > 0);
        let quiet = state.phase == Phase::Idle && same && still && moves;
        if !quiet || state.rings.heads().next().is_some() {
            return Ok(());
        }
        for (flow, it) in (0u8..).zip(&state.flows) {
            let Some(holder) = it.holder else { continue };
            let (mut at, hint) = self.look_up(state, 0, flow, None);
            let mut packet = Packet {
                flow,
                kind: Kind::Data,
                stage: state.published,
                hint,
                hops: 0,
                life: it.life,
                marked: false,
                redirected: false,
            };
            for _ in 0..self.config.hops {
                let stub = it.stubs[usize::from(at)].filter(|_| at != holder);
                at = match stub {
                    Some(stub) => stub.to,
                    None if at == holder => break,
                    None => match self.step(state, at, &packet) {
                        Step::Forward { to, tag } => {
                            packet.stage = tag.epoch().number() as u8;
                            packet.hint = tag.is_hint();
                            to.0
                        }
                        _ => return Err(Violation::Astray),
                    },
                };
            }
            if at != holder {
                return Err(Violation::Astray);
            }
        }
        Ok(())
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
            life: if it.is_live() { it.life } else { 0 },
            marked: false,
            redirected: false,
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
        let hops = packet.hops + 1;
        if let Some(stub) = state.flows[usize::from(packet.flow)].stubs[usize::from(s)] {
            if hops > self.config.hops {
                return Err(Violation::Hops);
            }
            let packet = Packet {
                stage: packet.stage.max(state.shards[usize::from(s)].view),
                hint: false,
                hops,
                marked: false,
                redirected: true,
                ..packet
            };
            return push(state, From::Shard(s), stub.to, packet);
        }
        if packet.redirected && !self.is(Weak::StubsCreate) {
            // Dropped: a peer repeats itself, and is led elsewhere by then.
            let it = &state.flows[usize::from(packet.flow)];
            let lost = it.is_live() && it.life == packet.life && self.config.all_arrive;
            return if lost { Err(Violation::Lost) } else { Ok(()) };
        }
        match self.step(state, s, &packet) {
            Step::Forward { to, tag } => {
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
        let opens = matches!(packet.kind, Kind::Syn | Kind::Cookie);
        if opens && state.shards[usize::from(s)].fallen {
            return Ok(());
        }
        match packet.kind {
            Kind::Syn => self.create(state, s, packet.flow, Store::HalfOpen),
            Kind::Cookie => self.create(state, s, packet.flow, Store::Established),
            Kind::Data | Kind::Fin if it.is_live() && it.life == packet.life => {
                Err(Violation::Reset)
            }
            Kind::Data | Kind::Fin => Ok(()),
        }
    }

    fn create(&self, state: &mut State, s: u8, flow: u8, store: Store) -> Outcome {
        let it = &mut state.flows[usize::from(flow)];
        if it.is_live() {
            return Err(Violation::Twice);
        }
        it.holder = Some(s);
        it.store = store;
        it.life += 1;
        it.events += 1;
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
                it.events += 1;
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

    /// All that the shard holds is lost, and nothing else is: its stubs stay, and parcels that come go back. What it has not looked through
    /// for an update it looks through anew.
    fn die(&self, state: &mut State, s: u8) {
        state.deaths -= 1;
        let shard = &mut state.shards[usize::from(s)];
        shard.fallen = true;
        if shard.visited < STORES {
            shard.visited = 0;
        }
        for (flow, it) in (0u8..).zip(&mut state.flows) {
            state.moved &= !found_bit(flow, s);
            if it.holder == Some(s) {
                ends(it);
            }
            if self.is(Weak::StubsDie) {
                it.stubs[usize::from(s)] = None;
            }
        }
    }

    /// Stubs that an update has told of go first: what was steered by the rings before is processed by then.
    fn forget(&self, state: &mut State, s: u8) {
        let early = self.is(Weak::StubsGoEarly);
        for flow in &mut state.flows {
            let stub = &mut flow.stubs[usize::from(s)];
            if stub.is_some_and(|stub| early || stub.view < state.published) {
                *stub = None;
            }
        }
    }

    fn slice(&self, state: &mut State, s: u8) {
        if state.shards[usize::from(s)].visited == 0 {
            self.forget(state, s);
        }
        let shard = &mut state.shards[usize::from(s)];
        let news = self.tells_news(shard.view);
        if news {
            // Its stubs are all that it looks at.
            shard.visited = STORES - 1;
        }
        let (view, store) = (shard.view, shard.visited);
        shard.visited += 1;
        for flow in 0..FLOWS as u8 {
            let it = &state.flows[usize::from(flow)];
            let bit = found_bit(flow, s);
            let held = it.holder == Some(s);
            let moved = state.moved & bit != 0 && (held || self.is(Weak::TellTheDead));
            if !news && self.owner(view) != s && (moved || held && it.store as u8 == store) {
                let events = it.events;
                match self.is(Weak::AnyReport) {
                    true => state.found[usize::from(view)] |= bit,
                    false => report(state, view, flow, s, events),
                }
            }
            state.moved &= !bit;
            // Stubs are looked at last, and tell where the flow went.
            let stub = state.flows[usize::from(flow)].stubs[usize::from(s)];
            if let Some(Stub { to, at, .. }) = stub
                && store == STORES - 1
                && !self.is(Weak::SilentStubs)
            {
                let it = &state.flows[usize::from(flow)];
                let late = self.is(Weak::StubsTellOfNow);
                let at = if late { it.events } else { at };
                if self.owner(view) != to {
                    report(state, view, flow, to, at);
                } else if news {
                    report_home(state, view, flow, at);
                }
            }
        }
    }

    /// Rule 1: the view only grows, and its traversal starts after the change.
    fn adopt(&self, state: &mut State, s: u8) {
        let shard = &mut state.shards[usize::from(s)];
        shard.known = state.published;
        if shard.view != state.newest {
            shard.view = state.newest;
            shard.visited = 0;
            let all = (0..FLOWS as u8).map(|flow| found_bit(flow, s));
            state.moved &= !all.sum::<u16>();
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
        let (newest, published) = (usize::from(state.newest), usize::from(state.published));
        (state.found[newest], state.found_at[newest]) = match self.tells_news(state.newest) {
            true => (state.found[published], state.found_at[published]),
            false => (0, [0; FLOWS]),
        };
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

/// A flow that differs is told of, as it was after so many events. Of one tuple at two shards the later counts.
fn report(state: &mut State, view: u8, flow: u8, shard: u8, at: u8) {
    let (found, before) = (
        &mut state.found[usize::from(view)],
        &mut state.found_at[usize::from(view)][usize::from(flow)],
    );
    if at >= *before {
        *found = *found & !found_bits(flow) | found_bit(flow, shard);
        *before = at;
    }
}

/// A flow that may have been told of is where the ring says, since so many events.
fn report_home(state: &mut State, view: u8, flow: u8, at: u8) {
    let before = &mut state.found_at[usize::from(view)][usize::from(flow)];
    if at >= *before {
        state.found[usize::from(view)] &= !found_bits(flow);
        *before = at;
    }
}

/// A flow is no more. What stubs lead to it comes back, and they go.
fn ends(flow: &mut Flow) {
    flow.holder = None;
    let stubs = flow.stubs.iter_mut().flatten();
    stubs.for_each(|stub| stub.over = true);
}

/// A flow goes from one shard to another, and leaves a stub.
fn leave(flow: &mut Flow, from: u8, to: u8, view: u8, refused: bool) {
    flow.events += 1;
    let at = flow.events;
    flow.parcel = Some(Parcel { from, to, refused });
    flow.stubs[usize::from(from)] = Some(Stub {
        to,
        view,
        at,
        over: false,
    });
    flow.moved_at = flow.moved_at.max(Some(view));
}

fn push(state: &mut State, from: From, to: u8, packet: Packet) -> Outcome {
    if state.shards[usize::from(to)].gone {
        return Err(Violation::Gone);
    }
    state.rings.push(RingName { to, from }, packet);
    Ok(())
}
