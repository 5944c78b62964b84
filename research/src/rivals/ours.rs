//! The balancer of this project: one I/O core, all shards, the walk between them, with traffic between the steps of an
//! update and views that lag behind.

use janus_csb::{
    Balancer, DivergenceFilter, FlowId, Flows, Held as Flow, IoEnd, Limits, Phase, ShardEnd,
    ShardId, Step, Tag, Work, walk,
};

use super::paper::{first_ring, next_ring};
use super::{BURST, Change, Cost, Held, Packet, Rival, Sent};

const PORT: u16 = 80;
/// Places looked at in one slice of a shard; one in sixteen is its own.
const SLICE: usize = 2048;

/// The whole balancer on one thread.
pub struct Ours {
    balancer: Balancer,
    io: IoEnd,
    ends: Vec<ShardEnd>,
    steps: usize,
    /// The tag of the packet that is being forwarded.
    tag: Tag,
}

/// What one shard holds of the world.
struct View<'a> {
    world: &'a dyn Held,
    shard: ShardId,
    held: usize,
}

impl Flows for View<'_> {
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        let from = cursor as usize;
        let shard = self.shard;
        self.world
            .visit_at(from..from + budget, &mut |packet, holder| {
                if holder == shard {
                    filter.held(flow(packet));
                }
            })?;
        Some(cursor + budget as u64)
    }

    fn take_moved(&mut self, _: &mut DivergenceFilter<'_>) {}

    fn held(&self) -> usize {
        self.held
    }
}

fn id(packet: &Packet) -> FlowId {
    FlowId(u128::from(packet.id))
}

fn flow(packet: &Packet) -> Flow {
    Flow {
        key: packet.key,
        port: PORT,
        id: id(packet),
    }
}

impl Ours {
    /// With so many points of each shard, for so many flows.
    pub fn new(shards: usize, points: u16, flows: usize) -> Ours {
        // No update is refused here: what they cost at worst is to be seen.
        let mut balancer = Balancer::new(
            first_ring(shards, points),
            Limits {
                diverged: flows,
                ..Limits::default()
            },
        );
        let (io, ends) = (
            balancer.io_end(),
            (0..shards)
                .map(|s| balancer.shard_end(ShardId(s as u8)))
                .collect(),
        );
        Ours {
            balancer,
            io,
            ends,
            steps: 0,
            tag: Tag::new(janus_csb::Epoch::default(), false),
        }
    }

    pub fn balancer(&mut self) -> &mut Balancer {
        &mut self.balancer
    }

    /// The part of each shard in the update; some see it later than others.
    fn shards(&mut self, held: &dyn Held, cost: &mut Cost) {
        let slices = held.count() / SLICE / 4 + 1;
        let each = held.count() / self.ends.len();
        for (i, end) in self.ends.iter_mut().enumerate() {
            if (self.steps + i) % 3 == 2 {
                continue;
            }
            end.refresh();
            let mut view = View {
                world: held,
                shard: end.id(),
                held: each,
            };
            match end.work() {
                Work::Nothing => {}
                Work::Traverse => {
                    for _ in 0..slices {
                        if cost.piece(|| end.slice(&mut view, SLICE)) {
                            break;
                        }
                    }
                }
                Work::Drain(round) => end.drained(round),
            }
        }
    }
}

impl Rival for Ours {
    fn name(&self) -> &'static str {
        "csb, ours"
    }

    fn open(&mut self, packet: &Packet) -> Sent {
        let mut owner = [ShardId(0)];
        let tags = self
            .io
            .look_up_batch(&[packet.key], &[PORT], |_| id(packet), &mut owner);
        Sent {
            to: owner[0],
            tag: tags.get(0),
        }
    }

    fn opened(&mut self, packet: &Packet, sent: Sent, holder: Option<ShardId>) -> ShardId {
        let Sent {
            to: mut at,
            mut tag,
        } = sent;
        while Some(at) != holder {
            match walk(self.ends[at.index()].steering(), at, packet.key, PORT, tag) {
                Step::Forward { to, tag: next } => (at, tag) = (to, next),
                Step::Stay => break,
                Step::Expired => panic!("a packet waited for longer than an update may take"),
            }
        }
        // Its SYN-ACK leaves.
        self.io.learn(flow(packet), at);
        at
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        let mut keys = [0; BURST];
        keys.iter_mut()
            .zip(packets)
            .for_each(|(key, packet)| *key = packet.key);
        let n = packets.len();
        self.io.look_up_batch(
            &keys[..n],
            &[PORT; BURST][..n],
            |i| id(&packets[i]),
            &mut owners[..n],
        );
    }

    fn forward(&mut self, packet: &Packet, shard: ShardId, hops: usize) -> Option<ShardId> {
        if hops == 0 {
            let mut owner = [ShardId(0)];
            self.tag = self
                .io
                .look_up_batch(&[packet.key], &[PORT], |_| id(packet), &mut owner)
                .get(0);
        }
        match walk(
            self.ends[shard.index()].steering(),
            shard,
            packet.key,
            PORT,
            self.tag,
        ) {
            Step::Forward { to, tag } => {
                self.tag = tag;
                Some(to)
            }
            Step::Stay | Step::Expired => None,
        }
    }

    fn begin(&mut self, change: &Change, _: &mut dyn Held, _: &mut Cost) {
        let next = next_ring(self.balancer.current().newest().ring(), change);
        self.balancer
            .begin(|draft| draft.set_ring(next))
            .expect("the last update is over, and nothing is refused");
        self.steps = 0;
    }

    fn step(&mut self, held: &mut dyn Held, cost: &mut Cost) -> bool {
        self.steps += 1;
        self.shards(held, cost);
        // The I/O core lags too.
        if self.steps.is_multiple_of(2) {
            self.io.refresh();
        }
        assert!(
            self.steps < 1_000,
            "the update does not end: {:?}",
            self.balancer.phase()
        );
        self.balancer.poll() == Phase::Idle
    }

    fn placement(&self, key: u32) -> Option<ShardId> {
        Some(self.balancer.current().newest().owner(key, PORT))
    }

    fn notes(&self) -> Vec<(&'static str, f64, &'static str)> {
        let last = self.balancer.last();
        let share = last.diverged as f64 / last.held.max(1) as f64;
        vec![
            ("diverged_share", share, "1"),
            ("exact_entries", last.exact as f64, "flows"),
            ("diff_bytes", last.diff_bytes as f64, "B"),
            ("filter_bytes", last.filter_bytes as f64, "B"),
        ]
    }

    fn bytes(&self) -> usize {
        let last = self.balancer.last();
        self.balancer.current().published().ring().bytes()
            + last.diff_bytes
            + last.filter_bytes
            + last.exact_bytes
    }
}
