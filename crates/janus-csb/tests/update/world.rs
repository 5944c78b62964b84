//! A small world around a real balancer: its ends in I/O cores and shards, FIFO rings between them, no threads. What it
//! must never see is a live flow reset, one flow at two shards, a third hop, a packet for a shard that has gone, or
//! packets of one way overtaking each other; it says so at once.

use std::collections::{HashMap, VecDeque};

use janus_csb::{
    Balancer, FlowId, Held, IoEnd, Limits, Phase, Ring, ShardEnd, ShardId, Step, Tag, Work, walk,
};

use crate::store::{State, Store, port_of};

pub(crate) const FLOWS: u32 = 240;
/// On the second port some shards only listen.
pub(crate) const PORTS: [u16; 2] = [80, 81];
pub(crate) const IO: usize = 2;
pub(crate) const SHARDS: usize = 4;
/// A ring that is full drops.
const RING: usize = 40;
const POINTS: u16 = 4;

/// Four flows to a key.
pub(crate) fn key_of(flow: u32) -> u32 {
    (flow / 4).wrapping_mul(0x9e37_79b1)
}

/// What a participant does wrong. Each must be caught.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    /// A shard keeps what it gets (rule 4).
    NeverForwards,
    /// A hint counts as the ring's own choice (rule 4).
    TrustsHints,
    /// A flow that changes its store is not reported (rule 6).
    MovesSilently,
    /// A shard says at once that its rings are drained (rule 9).
    NeverDrains,
    /// An active open asks the newest ring only (rule 10).
    OpensByNewestRing,
    /// A shard leaves with its last flow (rule 12).
    LeavesEarly,
    /// A shard finishes its traversal without having looked (rule 7).
    ReportsNothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Syn,
    Data,
    CookieAck,
    Fin,
}

/// I/O core, epoch, first shard: packets of one way stay in order.
type Way = (usize, u16, ShardId);

#[derive(Clone, Copy, Debug)]
struct Packet {
    flow: u32,
    kind: Kind,
    tag: Tag,
    hops: usize,
    /// The life of the flow that it was sent in, if it lived.
    life: Option<u32>,
    /// The way it took, and its number.
    way: Way,
    number: u64,
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(dead_code)] // What it holds is for whoever reads the failure.
pub(crate) enum Broken {
    Reset { flow: u32, at: ShardId },
    Twice { flow: u32, at: ShardId },
    Hops { flow: u32, hops: usize },
    Expired { flow: u32 },
    Gone { flow: u32, to: ShardId },
    Overtaken { flow: u32 },
    NewAtLeaver { flow: u32, at: ShardId },
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Packet>,
    pushed: u64,
    taken: u64,
}

struct Shard {
    end: ShardEnd,
    store: Store,
    /// From each I/O core, and one from the other shards.
    lanes: [Lane; IO + 1],
    /// The round that is being drained, and how far each lane must be taken.
    mark: Option<(u32, [u64; IO + 1])>,
}

/// What a run came to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) updates: usize,
    pub(crate) held: usize,
    pub(crate) diverged: usize,
    pub(crate) exact: usize,
    pub(crate) forwards: usize,
    pub(crate) hops_max: usize,
    pub(crate) lost: usize,
    pub(crate) opened: usize,
    pub(crate) refused: usize,
    pub(crate) overflows: usize,
    pub(crate) superseded: usize,
    pub(crate) left: usize,
    pub(crate) learned: usize,
}

pub(crate) struct World {
    wrong: Option<Wrong>,
    pub(crate) balancer: Balancer,
    io: Vec<IoEnd>,
    shards: Vec<Option<Shard>>,
    lives: Vec<u32>,
    packets: u64,
    /// The last number that arrived, by way, flow and life.
    arrived: HashMap<(Way, u32, u32), u64>,
    pub(crate) tally: Tally,
}

impl World {
    pub(crate) fn new(wrong: Option<Wrong>, limits: Limits) -> World {
        let mut balancer = Balancer::new(Ring::uniform(SHARDS, POINTS, 1), limits);
        let io = (0..IO).map(|_| balancer.io_end()).collect();
        let mut world = World {
            wrong,
            shards: (0..SHARDS).map(|_| None).collect(),
            io,
            balancer,
            lives: vec![0; FLOWS as usize],
            packets: 0,
            arrived: HashMap::new(),
            tally: Tally::default(),
        };
        (0..SHARDS).for_each(|s| world.join(s));
        let started = world.balancer.start(|draft| {
            (0..SHARDS).for_each(|s| _ = draft.listen(PORTS[0], ShardId(s as u8)));
            (0..2).for_each(|s| _ = draft.listen(PORTS[1], ShardId(s)));
        });
        started.unwrap();
        // Nobody sends to a port before all know who listens there.
        world.settle().unwrap();
        world
    }

    fn join(&mut self, s: usize) {
        self.shards[s] = Some(Shard {
            end: self.balancer.shard_end(ShardId(s as u8)),
            store: Store::new(self.wrong == Some(Wrong::MovesSilently)),
            lanes: Default::default(),
            mark: None,
        });
    }

    fn holder(&self, flow: u32) -> Option<usize> {
        let holds = |shard: &Option<Shard>| {
            shard
                .as_ref()
                .is_some_and(|shard| shard.store.state(flow).is_some())
        };
        self.shards.iter().position(holds)
    }

    pub(crate) fn live(&self) -> usize {
        self.shards.iter().flatten().map(|s| s.store.len()).sum()
    }

    /// A batch of packets through an I/O core.
    pub(crate) fn send(&mut self, io: usize, batch: &[(u32, Kind)]) -> Result<(), Broken> {
        let keys: Vec<u32> = batch.iter().map(|&(flow, _)| key_of(flow)).collect();
        let ports: Vec<u16> = batch.iter().map(|&(flow, _)| port_of(flow)).collect();
        let mut owners = vec![ShardId(0); batch.len()];
        let id = |i: usize| FlowId(u128::from(batch[i].0));
        let tags = self.io[io].look_up_batch(&keys, &ports, id, &mut owners);
        for (i, (&(flow, kind), &to)) in batch.iter().zip(&owners).enumerate() {
            let tag = tags.get(i);
            let life = self.holder(flow).map(|_| self.lives[flow as usize]);
            self.packets += 1;
            let packet = Packet {
                flow,
                kind,
                tag,
                hops: 0,
                life,
                way: (io, tag.epoch().number(), to),
                number: self.packets,
            };
            self.push(to, io, packet)?;
        }
        Ok(())
    }

    fn push(&mut self, to: ShardId, lane: usize, packet: Packet) -> Result<(), Broken> {
        let flow = packet.flow;
        let Some(shard) = &mut self.shards[to.index()] else {
            return Err(Broken::Gone { flow, to });
        };
        let lane = &mut shard.lanes[lane];
        if lane.waiting.len() == RING {
            self.tally.lost += 1;
        } else {
            lane.waiting.push_back(packet);
            lane.pushed += 1;
        }
        Ok(())
    }

    /// Shard `s` takes a packet from one of its rings.
    pub(crate) fn take(&mut self, s: usize, lane: usize) -> Result<(), Broken> {
        let Some(shard) = &mut self.shards[s] else {
            return Ok(());
        };
        let Some(packet) = shard.lanes[lane].waiting.pop_front() else {
            return Ok(());
        };
        shard.lanes[lane].taken += 1;
        if shard.store.state(packet.flow).is_some() {
            return self.process(s, &packet);
        }
        match self.step(s, &packet) {
            Step::Forward { to, tag } => {
                let hops = packet.hops + 1;
                self.tally.forwards += 1;
                self.tally.hops_max = self.tally.hops_max.max(hops);
                // One for each layout kept: two, and one more for each that was superseded.
                let kept = |shard: &Shard| shard.end.steering().history_len();
                if hops > self.shards[s].as_ref().map_or(0, kept).max(2) {
                    let flow = packet.flow;
                    return Err(Broken::Hops { flow, hops });
                }
                self.push(
                    to,
                    IO,
                    Packet {
                        tag,
                        hops,
                        ..packet
                    },
                )
            }
            Step::Stay => self.end(s, &packet),
            Step::Expired => Err(Broken::Expired { flow: packet.flow }),
        }
    }

    fn step(&self, s: usize, packet: &Packet) -> Step {
        let Some(shard) = &self.shards[s] else {
            return Step::Expired;
        };
        let (key, port) = (key_of(packet.flow), port_of(packet.flow));
        let tag = match self.wrong {
            Some(Wrong::NeverForwards) => return Step::Stay,
            Some(Wrong::TrustsHints) => Tag::new(packet.tag.epoch(), false),
            _ => packet.tag,
        };
        walk(shard.end.steering(), ShardId(s as u8), key, port, tag)
    }

    /// The shard holds the flow.
    fn process(&mut self, s: usize, packet: &Packet) -> Result<(), Broken> {
        let Packet {
            flow,
            kind,
            life,
            way,
            number,
            ..
        } = *packet;
        let now = self.lives[flow as usize];
        if life == Some(now) {
            let last = self.arrived.insert((way, flow, now), number);
            if last.is_some_and(|last| last > number) {
                return Err(Broken::Overtaken { flow });
            }
        }
        let Some(shard) = &mut self.shards[s] else {
            return Ok(());
        };
        match (kind, shard.store.state(flow)) {
            (Kind::Syn, Some(State::TimeWait)) => self.create(s, flow, State::Opening),
            (Kind::Syn, Some(State::Opening)) => self.syn_ack(s, flow),
            (Kind::Data, Some(State::Opening)) if life == Some(now) => {
                shard.store.put(flow, State::Open);
            }
            (Kind::Fin, Some(State::Open)) if life == Some(now) => {
                shard.store.put(flow, State::TimeWait);
            }
            _ => {}
        }
        Ok(())
    }

    /// The walk ended at shard `s`, which does not hold the flow.
    fn end(&mut self, s: usize, packet: &Packet) -> Result<(), Broken> {
        let Packet {
            flow, kind, life, ..
        } = *packet;
        let at = ShardId(s as u8);
        let held = self.holder(flow).is_some();
        match kind {
            Kind::Syn | Kind::CookieAck if held => Err(Broken::Twice { flow, at }),
            Kind::Syn | Kind::CookieAck => {
                // By its own view, or by that of a neighbour who sees further.
                let named = self.shards[s].as_ref().is_some_and(|shard| {
                    [shard.end.steering(), self.balancer.current()]
                        .iter()
                        .any(|view| view.newest().ring().members().contains(at))
                });
                if !named {
                    return Err(Broken::NewAtLeaver { flow, at });
                }
                let state = if kind == Kind::Syn {
                    State::Opening
                } else {
                    State::Open
                };
                self.create(s, flow, state);
                Ok(())
            }
            Kind::Data | Kind::Fin if held && life == Some(self.lives[flow as usize]) => {
                Err(Broken::Reset { flow, at })
            }
            Kind::Data | Kind::Fin => Ok(()),
        }
    }

    fn create(&mut self, s: usize, flow: u32, state: State) {
        self.lives[flow as usize] += 1;
        if let Some(shard) = &mut self.shards[s] {
            shard.store.put(flow, state);
        }
        self.syn_ack(s, flow);
    }

    /// Leaves through an I/O core, which learns.
    fn syn_ack(&mut self, s: usize, flow: u32) {
        let held = Held {
            key: key_of(flow),
            port: port_of(flow),
            id: FlowId(u128::from(flow)),
        };
        let io = self.packets as usize % IO;
        self.io[io].learn(held, ShardId(s as u8));
        self.tally.learned = self.tally.learned.max(self.io[io].learned());
    }

    /// Shard `s` opens the tuple of `flow` itself if it may.
    pub(crate) fn open(&mut self, s: usize, flow: u32) -> Result<(), Broken> {
        let Some(shard) = &self.shards[s] else {
            return Ok(());
        };
        let (key, port, id) = (key_of(flow), port_of(flow), FlowId(u128::from(flow)));
        let me = ShardId(s as u8);
        let may = match self.wrong {
            Some(Wrong::OpensByNewestRing) => shard.end.steering().newest().owner(key, port) == me,
            _ => shard.end.may_open(key, port, id),
        };
        // Its own flows a shard knows.
        if !may || shard.store.state(flow).is_some() {
            return Ok(());
        }
        if self.holder(flow).is_some() {
            return Err(Broken::Twice { flow, at: me });
        }
        self.tally.opened += 1;
        self.create(s, flow, State::Open);
        Ok(())
    }

    /// A flow of shard `s` ends without a packet: its time is over, or the program gave it up.
    pub(crate) fn expire(&mut self, s: usize, random: u64) {
        if let Some(shard) = &mut self.shards[s]
            && let Some(flow) = shard.store.any(random)
        {
            shard.store.remove(flow);
        }
    }

    pub(crate) fn refresh_io(&mut self, io: usize, sleep: bool) {
        if sleep {
            self.io[io].park();
        }
        self.io[io].refresh();
    }

    pub(crate) fn refresh_shard(&mut self, s: usize) {
        if let Some(shard) = &mut self.shards[s] {
            shard.end.refresh();
        }
    }

    /// Shard `s` does a little for the update.
    pub(crate) fn work(&mut self, s: usize, budget: usize) {
        let wrong = self.wrong;
        let Some(shard) = &mut self.shards[s] else {
            return;
        };
        shard.end.report_held(shard.store.len());
        match shard.end.work() {
            Work::Nothing => {}
            Work::Traverse if wrong == Some(Wrong::ReportsNothing) => {
                _ = shard.end.slice(&mut Store::default(), budget);
            }
            Work::Traverse => _ = shard.end.slice(&mut shard.store, budget),
            Work::Drain(round) => {
                let lanes = &shard.lanes;
                let marks = match shard.mark {
                    Some((of, marks)) if of == round => marks,
                    _ => lanes.each_ref().map(|lane| lane.pushed),
                };
                shard.mark = Some((round, marks));
                let done = lanes.iter().zip(marks).all(|(lane, at)| lane.taken >= at);
                if done || wrong == Some(Wrong::NeverDrains) {
                    shard.end.drained(round);
                }
            }
        }
    }

    pub(crate) fn poll(&mut self) -> Phase {
        let before = self.balancer.last().updates;
        let phase = self.balancer.poll();
        let report = self.balancer.last();
        if report.updates > before {
            self.tally.updates += 1;
            self.tally.held += report.held;
            self.tally.diverged += report.diverged;
            self.tally.exact += report.exact;
            self.tally.overflows += report.overflows as usize;
        }
        phase
    }

    /// The shard is taken off the ring, or, once it may, leaves; a shard that has left comes back.
    pub(crate) fn leave_or_come(&mut self, s: usize, seed: u32) -> Result<(), Broken> {
        let id = ShardId(s as u8);
        let Some(shard) = &self.shards[s] else {
            if self.balancer.phase() == Phase::Idle {
                self.join(s);
                let back = self.balancer.begin(|draft| {
                    draft.add_points(id, POINTS, seed);
                    draft.listen(PORTS[0], id);
                });
                self.tally.refused += usize::from(back.is_err());
            }
            return Ok(());
        };
        let ring = self.balancer.current().newest().ring();
        if ring.members().contains(id) {
            if ring.members().len() > 2 {
                let _ = self.balancer.begin(|draft| {
                    draft.remove_shard(id);
                    // Somebody goes on listening on the second port.
                    if draft.ports().get(PORTS[1]).is_none() {
                        draft.listen(PORTS[1], ShardId((s as u8 + 1) % SHARDS as u8));
                    }
                });
            }
            return Ok(());
        }
        let early = self.wrong == Some(Wrong::LeavesEarly) && shard.store.len() == 0;
        if self.balancer.may_go(id) || early {
            let waits = shard.lanes.iter().flat_map(|lane| &lane.waiting).next();
            let flow = waits.map(|packet| packet.flow).or(shard.store.any(0));
            if let Some(flow) = flow {
                return Err(Broken::Gone { flow, to: id });
            }
            self.shards[s] = None;
            self.tally.left += 1;
        } else {
            let _ = self.balancer.begin(|_| {});
        }
        Ok(())
    }

    /// Everything comes to rest: views are adopted, the update ends, rings are empty.
    pub(crate) fn settle(&mut self) -> Result<(), Broken> {
        for turn in 0..1000 {
            for s in 0..SHARDS {
                // An update that found too many flows goes on when some have ended.
                if turn > 100 {
                    self.expire(s, turn);
                }
                self.refresh_shard(s);
                self.work(s, 1000);
                for lane in 0..=IO {
                    for _ in 0..RING {
                        self.take(s, lane)?;
                    }
                }
            }
            (0..IO).for_each(|io| self.refresh_io(io, false));
            let waits = self.shards.iter().flatten().flat_map(|shard| &shard.lanes);
            let quiet = waits.map(|lane| lane.waiting.len()).sum::<usize>() == 0;
            if self.poll() == Phase::Idle && quiet {
                return Ok(());
            }
        }
        panic!(
            "the world does not come to rest: {:?}",
            self.balancer.phase()
        );
    }
}
