//! A small world to try the walk in: I/O cores, shards with FIFO rings, lagging views, flows that all have one key.
//! No threads and no TCP: a flow is a number that some shard holds.
//!
//! What a world must never see is a live flow reset, or one flow at two shards; it says so at once.

use std::collections::{BTreeSet, VecDeque};

use crate::publish::{Publisher, Reader};
use crate::{HISTORY, Ring, ShardId, Steering, Step, Tag, walk};

/// The key of every flow: the hardest case, and the only one that matters (keys do not touch each other).
const KEY: u32 = 0x5eed;
const PORT: u16 = 80;

/// How a shard finds where to send a packet it does not know. All but `Walk` are wrong, and the tests show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strategy {
    /// The rules: ring by ring.
    Walk,
    /// Straight to the owner of the newest ring.
    JumpToNewest,
    /// Ring by ring, but a hint counts as the ring's own choice.
    TrustHints,
    /// Whoever gets the packet keeps it.
    NeverForward,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Syn,
    Data,
    Fin,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    flow: u32,
    kind: Kind,
    tag: Tag,
    hops: usize,
    /// Whether the flow was live when the packet was sent, and which life it was.
    life: Option<u32>,
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    /// A packet of a live flow ended where the flow is not.
    Reset { flow: u32, at: ShardId },
    /// A second shard created the flow.
    Twice { flow: u32, at: ShardId },
    /// A packet went round more often than there are epochs.
    Hops(usize),
    /// The flow is not where the rules would have created it.
    Misplaced { flow: u32, at: Option<usize> },
}

struct Shard {
    reader: Reader,
    flows: BTreeSet<u32>,
    ring: VecDeque<Packet>,
}

pub(crate) struct World {
    strategy: Strategy,
    publisher: Publisher,
    io: Vec<Reader>,
    shards: Vec<Shard>,
    /// For each flow how often it has been created: a packet of an earlier life may be reset.
    lives: Vec<u32>,
    pub(crate) hops_max: usize,
}

fn constant(owner: u8) -> Ring {
    Ring::from_points(&[(1, ShardId(owner))]).unwrap()
}

impl World {
    /// `owner` owns the key in epoch 0.
    pub(crate) fn new(strategy: Strategy, io: usize, shards: usize, owner: u8) -> World {
        let publisher = Publisher::new(Steering::new(constant(owner)));
        let shard = |_| Shard {
            reader: publisher.reader(),
            flows: BTreeSet::new(),
            ring: VecDeque::new(),
        };
        World {
            strategy,
            io: (0..io).map(|_| publisher.reader()).collect(),
            shards: (0..shards).map(shard).collect(),
            publisher,
            lives: vec![0; 8],
            hops_max: 0,
        }
    }

    /// A packet through an I/O core; `hint` sends it where a filter or the pending opens might, instead of to the owner.
    pub(crate) fn send(&mut self, io: usize, kind: Kind, flow: u32, hint: Option<u8>) {
        let (owner, tag) = self.io[io].current().look_up(KEY, PORT);
        let (to, tag) = match hint {
            Some(shard) => (ShardId(shard), Tag::new(tag.epoch(), true)),
            None => (owner, tag),
        };
        let life = self.holder(flow).map(|_| self.lives[flow as usize]);
        self.shards[to.index()].ring.push_back(Packet {
            flow,
            kind,
            tag,
            hops: 0,
            life,
        });
    }

    /// Shard `s` takes one packet from its ring.
    pub(crate) fn take(&mut self, s: usize) -> Result<(), Broken> {
        let Some(packet) = self.shards[s].ring.pop_front() else {
            return Ok(());
        };
        if self.shards[s].flows.contains(&packet.flow) {
            if packet.kind == Kind::Fin && packet.life == Some(self.lives[packet.flow as usize]) {
                self.shards[s].flows.remove(&packet.flow);
            }
            return Ok(());
        }
        match self.step(s, &packet) {
            Step::Forward { to, tag } => {
                let hops = packet.hops + 1;
                self.hops_max = self.hops_max.max(hops);
                if hops > HISTORY {
                    return Err(Broken::Hops(hops));
                }
                self.shards[to.index()].ring.push_back(Packet {
                    tag,
                    hops,
                    ..packet
                });
                Ok(())
            }
            Step::Stay => self.end(s, &packet),
            Step::Expired => Ok(()),
        }
    }

    fn step(&self, s: usize, packet: &Packet) -> Step {
        let view = self.shards[s].reader.current();
        let me = ShardId(s as u8);
        match self.strategy {
            Strategy::Walk => walk(view, me, KEY, PORT, packet.tag),
            Strategy::TrustHints => walk(view, me, KEY, PORT, Tag::new(packet.tag.epoch(), false)),
            Strategy::NeverForward => Step::Stay,
            Strategy::JumpToNewest => {
                let (to, epoch) = (view.newest().owner(KEY, PORT), view.newest().epoch());
                let done = packet.tag.epoch().since(epoch) >= 0 && !packet.tag.is_hint();
                if to == me || done {
                    Step::Stay
                } else {
                    Step::Forward {
                        to,
                        tag: Tag::new(epoch, false),
                    }
                }
            }
        }
    }

    fn end(&mut self, s: usize, packet: &Packet) -> Result<(), Broken> {
        let Packet {
            flow, kind, life, ..
        } = *packet;
        let at = ShardId(s as u8);
        match (kind, self.holder(flow)) {
            (Kind::Syn, Some(_)) => Err(Broken::Twice { flow, at }),
            (Kind::Syn, None) => {
                self.shards[s].flows.insert(flow);
                self.lives[flow as usize] += 1;
                Ok(())
            }
            (_, Some(_)) if life == Some(self.lives[flow as usize]) => {
                Err(Broken::Reset { flow, at })
            }
            _ => Ok(()),
        }
    }

    /// Everything queued is taken, shard by shard.
    pub(crate) fn drain(&mut self) -> Result<(), Broken> {
        while let Some(s) = self.shards.iter().position(|shard| !shard.ring.is_empty()) {
            self.take(s)?;
        }
        Ok(())
    }

    fn holder(&self, flow: u32) -> Option<usize> {
        self.shards
            .iter()
            .position(|shard| shard.flows.contains(&flow))
    }

    /// The flow must be at shard `s` now.
    pub(crate) fn expect(&self, flow: u32, s: usize) -> Result<(), Broken> {
        let at = self.holder(flow);
        if at == Some(s) {
            Ok(())
        } else {
            Err(Broken::Misplaced { flow, at })
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.shards.iter().map(|shard| shard.ring.len()).sum()
    }

    pub(crate) fn propose(&mut self, owner: u8) {
        self.publisher
            .propose(|draft| draft.set_ring(constant(owner)))
            .unwrap();
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.publisher.current().is_pending()
    }

    /// Rule 7 without `H_diff`: every shard has adopted the newest ring, and no flow differs from it.
    pub(crate) fn may_publish(&self) -> bool {
        let newest = self.publisher.current().newest();
        let owner = newest.owner(KEY, PORT).index();
        self.is_pending()
            && self.shards.iter().enumerate().all(|(s, shard)| {
                shard.reader.current().newest().epoch() == newest.epoch()
                    && (s == owner || shard.flows.is_empty())
            })
    }

    /// Rule 9: the last update is over, every I/O core has adopted it, nothing older is queued.
    pub(crate) fn may_propose(&self) -> bool {
        let now = self.publisher.current().published().epoch();
        !self.is_pending()
            && self
                .io
                .iter()
                .all(|io| io.current().published().epoch() == now)
            && self
                .shards
                .iter()
                .flat_map(|shard| &shard.ring)
                .all(|packet| packet.tag.epoch() == now)
    }

    pub(crate) fn publish(&mut self) {
        self.publisher.publish();
    }

    pub(crate) fn refresh_io(&mut self, io: usize) {
        self.io[io].refresh();
    }

    pub(crate) fn refresh_shard(&mut self, s: usize) {
        self.shards[s].reader.refresh();
    }
}
