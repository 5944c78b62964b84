//! A stage for traces of whole updates: I/O cores, three shards with one FIFO ring each, a handful of flows, and one of
//! two protocols: the paper's (`janus_research::reference`) or ours (`Balancer` and its ends). Who speaks when is the
//! script's to say; a live flow that is reset, or one at two shards, ends it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use janus_csb::{
    Balancer, DivergenceFilter, FlowId, Flows, IoEnd, Limits, Phase, Ring, ShardEnd, ShardId, Step,
    Tag, Work, walk,
};
use janus_research::reference::{Filter, IoCore, Tables, Update};

/// The key of the flows the traces are about, and one of a flow that only makes the tables differ.
pub(crate) const KEY: u32 = 10;
const OTHER_KEY: u32 = 20;
pub(crate) const PORT: u16 = 80;
const IO: usize = 2;
const SHARDS: usize = 3;

/// The flow of the other key; all others have [`KEY`].
pub(crate) const OTHER: u32 = 99;

pub(crate) fn key_of(flow: u32) -> u32 {
    if flow == OTHER { OTHER_KEY } else { KEY }
}

/// The ring that gives [`KEY`] and the other key to these shards.
pub(crate) fn ring(owner: u8, of_other: u8) -> Ring {
    Ring::from_points(&[(KEY, ShardId(owner)), (OTHER_KEY, ShardId(of_other))]).unwrap()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Syn,
    /// Of use to a holder only.
    Data,
    /// The ACK of a valid cookie: steered like data, and creates a connection.
    Cookie,
}

/// How a connection is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// A packet of a live flow ended where the flow is not.
    Reset,
    /// A second shard created it.
    Twice,
}

/// What a shard holds: connections are visited first, half-open records second, so that a record which moves from the
/// second store to the first moves behind the cursor.
#[derive(Default)]
pub(crate) struct Store {
    connections: BTreeSet<u32>,
    half_open: BTreeSet<u32>,
    moved: Vec<u32>,
    /// Wrong: who moves a record does not say so.
    pub(crate) silent: bool,
    /// Wrong: a move is told though the flow has ended since.
    pub(crate) tells_the_dead: bool,
}

impl Store {
    pub(crate) fn holds(&self, flow: u32) -> bool {
        self.connections.contains(&flow) || self.half_open.contains(&flow)
    }

    fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections
            .iter()
            .chain(&self.half_open)
            .map(|&flow| key_of(flow))
    }

    pub(crate) fn end(&mut self, flow: u32) {
        self.connections.remove(&flow);
        self.half_open.remove(&flow);
    }

    /// Data completes the handshake.
    fn establish(&mut self, flow: u32) {
        if self.half_open.remove(&flow) {
            self.connections.insert(flow);
            if !self.silent {
                self.moved.push(flow);
            }
        }
    }
}

impl Flows for Store {
    /// One store a slice, whatever the budget.
    fn visit(&mut self, cursor: u64, _: usize, filter: &mut DivergenceFilter<'_>) -> Option<u64> {
        let store = if cursor == 0 {
            &self.connections
        } else {
            &self.half_open
        };
        for &flow in store {
            filter.flow(key_of(flow), PORT, || FlowId(flow.into()));
        }
        (cursor == 0).then_some(1)
    }

    fn take_moved(&mut self, filter: &mut DivergenceFilter<'_>) {
        let moved = std::mem::take(&mut self.moved);
        for flow in moved
            .into_iter()
            .filter(|&flow| self.tells_the_dead || self.holds(flow))
        {
            filter.flow(key_of(flow), PORT, || FlowId(flow.into()));
        }
    }

    fn held(&self) -> usize {
        self.connections.len() + self.half_open.len()
    }
}

/// What a script can ask of either protocol.
pub(crate) trait Protocol {
    fn steer(&mut self, io: usize, kind: Kind, flow: u32) -> (ShardId, Tag);
    /// What a shard does with a packet of a flow it does not know.
    fn unknown(&self, shard: usize, flow: u32, tag: Tag) -> Step;
    fn begin(&mut self, ring: Ring);
    /// An I/O core hears of what is newest.
    fn hears(&mut self, io: usize);
    fn pass_one(&mut self, shard: usize, store: &mut Store);
    fn pass_two(&mut self, shard: usize, store: &mut Store);
    /// The update is finished, and all I/O cores swap.
    fn swap(&mut self, stores: &mut [Store]);
    fn may_open(&self, shard: usize, flow: u32) -> bool;
}

struct Packet {
    flow: u32,
    kind: Kind,
    tag: Tag,
}

pub(crate) struct Stage<P> {
    pub(crate) protocol: P,
    pub(crate) stores: Vec<Store>,
    rings: Vec<VecDeque<Packet>>,
}

impl<P: Protocol> Stage<P> {
    pub(crate) fn new(protocol: P) -> Stage<P> {
        Stage {
            protocol,
            stores: (0..SHARDS).map(|_| Store::default()).collect(),
            rings: (0..SHARDS).map(|_| VecDeque::new()).collect(),
        }
    }

    pub(crate) fn send(&mut self, io: usize, kind: Kind, flow: u32) {
        let (to, tag) = self.protocol.steer(io, kind, flow);
        self.rings[to.index()].push_back(Packet { flow, kind, tag });
    }

    /// A shard takes one packet.
    pub(crate) fn take(&mut self, shard: usize) -> Result<(), Lost> {
        let Some(packet) = self.rings[shard].pop_front() else {
            return Ok(());
        };
        let Packet { flow, kind, tag } = packet;
        if self.stores[shard].holds(flow) {
            if kind != Kind::Syn {
                self.stores[shard].establish(flow);
            }
            return Ok(());
        }
        match self.protocol.unknown(shard, flow, tag) {
            Step::Forward { to, tag } => {
                self.rings[to.index()].push_back(Packet { tag, ..packet });
                Ok(())
            }
            Step::Expired => Ok(()),
            Step::Stay if kind == Kind::Data && self.holder(flow).is_some() => Err(Lost::Reset),
            Step::Stay if kind == Kind::Data => Ok(()),
            Step::Stay => self.create(shard, flow, kind == Kind::Syn),
        }
    }

    /// Everything queued is taken.
    pub(crate) fn drain(&mut self) -> Result<(), Lost> {
        while let Some(shard) = self.rings.iter().position(|ring| !ring.is_empty()) {
            self.take(shard)?;
        }
        Ok(())
    }

    /// A shard opens the flow from its side, if the protocol lets it; says whether.
    pub(crate) fn open(&mut self, shard: usize, flow: u32) -> Result<bool, Lost> {
        if !self.protocol.may_open(shard, flow) {
            return Ok(false);
        }
        self.create(shard, flow, false).map(|()| true)
    }

    fn create(&mut self, shard: usize, flow: u32, half_open: bool) -> Result<(), Lost> {
        if self.holder(flow).is_some() {
            return Err(Lost::Twice);
        }
        let store = &mut self.stores[shard];
        let place = if half_open {
            &mut store.half_open
        } else {
            &mut store.connections
        };
        place.insert(flow);
        Ok(())
    }

    pub(crate) fn holder(&self, flow: u32) -> Option<usize> {
        self.stores.iter().position(|store| store.holds(flow))
    }

    pub(crate) fn queued(&self, shard: usize) -> usize {
        self.rings[shard].len()
    }

    pub(crate) fn begin(&mut self, ring: Ring) {
        self.protocol.begin(ring);
    }

    pub(crate) fn hears(&mut self, io: usize) {
        self.protocol.hears(io);
    }

    pub(crate) fn pass_one(&mut self, shard: usize) {
        self.protocol.pass_one(shard, &mut self.stores[shard]);
    }

    pub(crate) fn pass_two(&mut self, shard: usize) {
        self.protocol.pass_two(shard, &mut self.stores[shard]);
    }

    /// Both passes at every shard that has not made them, and the swap.
    pub(crate) fn both_passes_and_swap(&mut self) {
        (0..SHARDS).for_each(|shard| self.pass_one(shard));
        (0..SHARDS).for_each(|shard| self.pass_two(shard));
        self.swap();
    }

    pub(crate) fn swap(&mut self) {
        self.protocol.swap(&mut self.stores);
    }
}

/// A filter that takes [`KEY`] for one of its own as soon as it has any, where the trace wants a false positive.
pub(crate) struct Named {
    keys: BTreeSet<u32>,
    wrong: bool,
}

impl Filter for Named {
    fn insert(&mut self, key: u32) {
        self.keys.insert(key);
    }

    fn contains(&self, key: u32) -> bool {
        self.keys.contains(&key) || self.wrong && key == KEY && !self.keys.is_empty()
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// The paper's protocol.
pub(crate) struct Paper {
    io: Vec<IoCore<Named>>,
    now: Arc<Ring>,
    next: Arc<Ring>,
    update: Option<Update<Named>>,
    /// Shards that have made their first and second pass.
    passed: [BTreeSet<usize>; 2],
    wrong: bool,
}

impl Paper {
    /// `wrong`: whether the filter has its false positive.
    pub(crate) fn new(ring: Ring, wrong: bool) -> Paper {
        let now = Arc::new(ring);
        let tables = Arc::new(Tables::new(now.clone(), named(wrong)));
        Paper {
            io: (0..IO).map(|_| IoCore::new(tables.clone())).collect(),
            next: now.clone(),
            now,
            update: None,
            passed: Default::default(),
            wrong,
        }
    }
}

fn named(wrong: bool) -> Named {
    Named {
        keys: BTreeSet::new(),
        wrong,
    }
}

fn shard(index: usize) -> ShardId {
    ShardId(index as u8)
}

impl Protocol for Paper {
    fn steer(&mut self, io: usize, kind: Kind, flow: u32) -> (ShardId, Tag) {
        let key = key_of(flow);
        let to = match kind {
            Kind::Syn => self.io[io].steer_syn(key),
            Kind::Data | Kind::Cookie => self.io[io].steer(key),
        };
        (to, Tag::default())
    }

    fn unknown(&self, _: usize, _: u32, _: Tag) -> Step {
        Step::Stay
    }

    fn begin(&mut self, ring: Ring) {
        self.next = Arc::new(ring);
        self.passed = Default::default();
        self.update = Some(Update::new(self.next.clone(), named(self.wrong)));
    }

    fn hears(&mut self, io: usize) {
        self.io[io].begin(self.next.clone());
    }

    fn pass_one(&mut self, s: usize, store: &mut Store) {
        let update = self.update.as_mut().expect("an update");
        if self.passed[0].insert(s) {
            update.pass_one(shard(s), store.keys());
        }
    }

    fn pass_two(&mut self, s: usize, store: &mut Store) {
        let update = self.update.as_mut().expect("an update");
        if self.passed[1].insert(s) {
            update.pass_two(shard(s), store.keys());
        }
    }

    fn swap(&mut self, _: &mut [Store]) {
        let tables = Arc::new(self.update.take().expect("an update").finish());
        self.io.iter_mut().for_each(|io| io.swap(tables.clone()));
        self.now = self.next.clone();
    }

    /// The paper does not say; what packets of the tuple are steered by at the moment is all that can be asked.
    fn may_open(&self, s: usize, flow: u32) -> bool {
        self.now.owner(key_of(flow)) == shard(s)
    }
}

/// The balancer of this crate.
pub(crate) struct Ours {
    pub(crate) balancer: Balancer,
    pub(crate) shards: Vec<ShardEnd>,
    pub(crate) io: Vec<IoEnd>,
    /// Where a false positive sends [`KEY`].
    wrong: Option<ShardId>,
}

impl Ours {
    pub(crate) fn new(ring: Ring, wrong: Option<u8>) -> Ours {
        let mut balancer = Balancer::new(ring, Limits::default());
        Ours {
            shards: (0..SHARDS).map(|s| balancer.shard_end(shard(s))).collect(),
            io: (0..IO).map(|_| balancer.io_end()).collect(),
            wrong: wrong.map(ShardId),
            balancer,
        }
    }

    /// One slice at one shard, after it has adopted what is newest.
    pub(crate) fn slice(&mut self, s: usize, store: &mut Store) {
        self.shards[s].refresh();
        if self.shards[s].work() == Work::Traverse {
            self.shards[s].slice(store, 1);
        }
    }

    /// The last update is brought to its end. Rings must be empty.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100 {
            self.io.iter_mut().for_each(|io| _ = io.refresh());
            for end in &mut self.shards {
                end.refresh();
                if let Work::Drain(round) = end.work() {
                    end.drained(round);
                }
            }
            if self.balancer.poll() == Phase::Idle {
                return;
            }
        }
        panic!("the update does not end");
    }
}

impl Protocol for Ours {
    fn steer(&mut self, io: usize, _: Kind, flow: u32) -> (ShardId, Tag) {
        let mut owner = [ShardId(0)];
        let id = FlowId(flow.into());
        let tags = self.io[io].look_up_batch(&[key_of(flow)], &[PORT], |_| id, &mut owner);
        let ([owner], tag) = (owner, tags.get(0));
        match self.wrong {
            Some(wrong) if !tag.is_hint() && flow != OTHER => (wrong, Tag::new(tag.epoch(), true)),
            _ => (owner, tag),
        }
    }

    fn unknown(&self, s: usize, flow: u32, tag: Tag) -> Step {
        walk(self.shards[s].steering(), shard(s), key_of(flow), PORT, tag)
    }

    fn begin(&mut self, ring: Ring) {
        self.settle();
        self.balancer.begin(|draft| draft.set_ring(ring)).unwrap();
    }

    fn hears(&mut self, io: usize) {
        self.io[io].refresh();
    }

    fn pass_one(&mut self, s: usize, store: &mut Store) {
        for _ in 0..4 {
            self.slice(s, store);
        }
    }

    /// There is only one.
    fn pass_two(&mut self, _: usize, _: &mut Store) {}

    fn swap(&mut self, stores: &mut [Store]) {
        while !matches!(self.balancer.poll(), Phase::Publishing | Phase::Grace(_)) {
            for (s, store) in stores.iter_mut().enumerate() {
                self.pass_one(s, store);
            }
        }
        self.io.iter_mut().for_each(|io| _ = io.refresh());
    }

    fn may_open(&self, s: usize, flow: u32) -> bool {
        self.shards[s].may_open(key_of(flow), PORT, FlowId(flow.into()))
    }
}
