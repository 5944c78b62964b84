//! What is fixed in one search: the rings by epoch, what the peers may send, which rule is weakened.

use janus_csb::{Balancer, Draft, Limits, Ring, ShardId, Steering};

use crate::rules::Weak;
use crate::state::*;

/// The key of every flow.
pub(crate) const KEY: u32 = 0x5eed;
pub(crate) const PORT: u16 = 80;

/// What may happen to one flow, each at most so often.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Budget {
    pub(crate) syn: u8,
    pub(crate) data: u8,
    pub(crate) cookie: u8,
    pub(crate) fin: u8,
    pub(crate) opens: u8,
    pub(crate) moves: u8,
    pub(crate) refusals: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The owner of the key on the ring of each epoch.
    pub(crate) owners: &'static [u8],
    pub(crate) flows: &'static [Budget],
    /// Where a false positive of the filter may send a packet, besides the ring's own choice.
    pub(crate) wrong_hints: &'static [u8],
    /// Pending rings that may be given up for the next.
    pub(crate) supersedes: u8,
    pub(crate) losses: u8,
    /// Shards that may die.
    pub(crate) deaths: u8,
    /// The shard that leaves when it may.
    pub(crate) leaves: Nobody,
    /// Where a ring is that before it, shards tell of moves only.
    pub(crate) news: bool,
    /// Whether SYN-ACKs teach the I/O cores.
    pub(crate) fly: bool,
    /// Rounds of draining.
    pub(crate) rounds: u8,
    /// No packet of a flow that lives may be lost to a move: not where a tuple is used twice, and a stub stands of its first life.
    pub(crate) all_arrive: bool,
    /// Hops a packet may make.
    pub(crate) hops: u8,
    pub(crate) weak: Weak,
}

impl Config {
    /// One flow with this budget, and nothing else going on.
    pub(crate) const fn new(owners: &'static [u8], flows: &'static [Budget]) -> Config {
        Config {
            owners,
            flows,
            wrong_hints: &[],
            supersedes: 0,
            losses: 0,
            deaths: 0,
            leaves: None,
            news: false,
            fly: false,
            rounds: 3,
            all_arrive: false,
            hops: 2,
            weak: Weak::Nothing,
        }
    }
}

pub(crate) struct World {
    pub(crate) config: Config,
    /// The crate's steering as a shard has it whose view is that epoch.
    pub(crate) views: Vec<Steering>,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// An I/O core receives a packet and steers it; `wrong` is where a false positive sends it.
    Send {
        io: u8,
        flow: u8,
        kind: Kind,
        wrong: Nobody,
    },
    /// A shard takes a packet.
    Take(RingName),
    /// A packet is lost in a ring.
    Lose(RingName),
    /// A shard adopts what is newest.
    Adopt(u8),
    /// A shard looks through one store.
    Slice(u8),
    /// A shard sees the round of draining.
    See(u8),
    IoAdopt(u8),
    /// The next ring is proposed, after the last update or (superseding it) in the middle of it.
    Propose,
    Publish,
    /// The pending ring is withdrawn.
    RollBack,
    /// An I/O core sends a SYN-ACK and learns the owner.
    Learn {
        io: u8,
        flow: u8,
        owner: u8,
    },
    /// A TIME-WAIT ends.
    Expire(u8),
    /// A shard opens the tuple from its side.
    Open {
        shard: u8,
        flow: u8,
    },
    /// A shard leaves.
    Leave(u8),
    /// A shard loses all that it holds.
    Die(u8),
    /// The shard that holds a flow gives it to another.
    Move {
        flow: u8,
        to: u8,
    },
    /// The parcel of a flow is taken in.
    Arrive(u8),
    /// It is not, and goes back.
    Refuse(u8),
    /// A flow that has ended has a stub here, which goes.
    Forget {
        shard: u8,
        flow: u8,
    },
}

fn constant(owner: u8) -> Ring {
    Ring::from_points(&[(1, ShardId(owner))]).unwrap()
}

impl World {
    pub(crate) fn new(config: Config) -> World {
        assert!(config.owners.len() <= EPOCHS && config.flows.len() <= FLOWS);
        let mut balancer = Balancer::new(constant(config.owners[0]), Limits::default());
        let _ends: Vec<_> = (0..SHARDS as u8)
            .map(|shard| balancer.shard_end(ShardId(shard)))
            .collect();
        let mut views = vec![balancer.current().clone()];
        for (epoch, &owner) in config.owners.iter().enumerate().skip(1) {
            let change = |draft: &mut Draft| draft.set_ring(constant(owner));
            // Nothing is published in between, so that every layout stays known.
            let proposed = match epoch {
                1 => balancer.begin(change),
                _ => balancer.supersede(change),
            };
            proposed.unwrap();
            views.push(balancer.current().clone());
        }
        World { config, views }
    }

    pub(crate) fn owner(&self, epoch: u8) -> u8 {
        self.config.owners[usize::from(epoch)]
    }

    /// Whether shards tell only what has moved since the ring before, which was the same.
    pub(crate) fn tells_news(&self, epoch: u8) -> bool {
        let rings = &self.config.owners;
        let before = usize::from(epoch)
            .checked_sub(1)
            .map(|before| rings[before]);
        let same = before == Some(self.owner(epoch)) || self.is(Weak::NewsOfRings);
        self.config.news && same
    }

    pub(crate) fn is(&self, weak: Weak) -> bool {
        self.config.weak == weak
    }

    pub(crate) fn initial(&self) -> State {
        let flow = |f: usize| {
            let budget = self.config.flows.get(f).copied().unwrap_or_default();
            Flow {
                holder: None,
                store: Store::HalfOpen,
                life: 0,
                budget: [budget.syn, budget.data, budget.cookie, budget.fin],
                opens: budget.opens,
                syn_acks: 0,
                moves: budget.moves,
                refusals: budget.refusals,
                parcel: None,
                stubs: [None; SHARDS],
                events: 0,
                moved_at: None,
            }
        };
        let shard = Shard {
            view: 0,
            known: 0,
            visited: STORES,
            round: 0,
            gone: false,
            fallen: false,
        };
        State {
            newest: 0,
            published: 0,
            phase: Phase::Idle,
            superseded: 0,
            losses: self.config.losses,
            deaths: self.config.deaths,
            io: [Io {
                epoch: 0,
                fly: [None; FLOWS],
            }; IO],
            shards: [shard; SHARDS],
            flows: std::array::from_fn(flow),
            found: [0; EPOCHS],
            found_at: [[0; FLOWS]; EPOCHS],
            moved: 0,
            rings: Rings::EMPTY,
        }
    }

    /// Where filter, exact map and `H_diff` of an epoch send a flow: all flows have one key, so the filter affirms it
    /// as soon as one of them differs.
    pub(crate) fn exception(&self, state: &State, epoch: u8, flow: u8) -> Nobody {
        let found = state.found[usize::from(epoch)];
        let holds = |shard: u8| (0..FLOWS as u8).any(|f| found & found_bit(f, shard) != 0);
        let mut holders = (0..SHARDS as u8).filter(|&shard| holds(shard));
        let first = holders.next()?;
        if holders.next().is_none() || self.is(Weak::NoExactMap) {
            return Some(first);
        }
        (0..SHARDS as u8).find(|&shard| found & found_bit(flow, shard) != 0)
    }

    /// Rule 2: where an I/O core sends a packet of the flow, and whether that is a hint.
    pub(crate) fn look_up(&self, state: &State, io: u8, flow: u8, wrong: Nobody) -> (u8, bool) {
        let Io { epoch, fly } = state.io[usize::from(io)];
        let exception = self.exception(state, epoch, flow);
        let fly = fly[usize::from(flow)];
        let known = if self.is(Weak::OldFlyFirst) {
            fly.or(exception)
        } else {
            exception.or(wrong).or(fly)
        };
        match known {
            Some(shard) => (shard, true),
            None => (self.owner(epoch), false),
        }
    }
}
