//! The other ways to decide which shard gets a packet, beside ours, behind one trait, so that they can be put under
//! the same flows and the same changes ([`world`]). Each is written from its publication, as its authors would run it, and
//! `tests/csb_rivals.rs` shows that it keeps a figure published for it. Measuring and printing is `benches/csb_compare.rs`.

pub mod anchor;
pub mod control;
pub mod exact;
pub mod maglev;
pub mod ours;
pub mod paper;
pub mod pins;
pub mod rss;
pub mod rsspp;
pub mod stamp;
pub mod stamped;
pub mod world;

use janus_csb::{Epoch, ShardId, Tag};

use crate::thread_time::thread_time_us;

/// Packets that an I/O core looks up together.
pub const BURST: usize = 64;
/// Shards that a comparison may have.
pub const SHARDS_MAX: usize = 32;

/// What steering sees of a packet that is not a SYN.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// Equal for equal tuples only.
    pub id: u64,
    /// The Toeplitz hash.
    pub key: u32,
    /// The first twelve bytes of TCP options, where every stack puts its timestamps.
    pub options: [u8; 12],
}

/// A SYN on its way.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub to: ShardId,
    /// What else travels with it.
    pub tag: Tag,
}

impl From<ShardId> for Sent {
    fn from(to: ShardId) -> Sent {
        Sent {
            to,
            tag: Tag::new(Epoch::default(), false),
        }
    }
}

/// What a change of the shards has to know: who takes new flows, and the load measured.
#[derive(Clone, Debug)]
pub struct Change {
    /// Whether each shard takes new flows.
    pub active: Vec<bool>,
    /// The load of each shard since the last change, in cycles.
    pub load: Vec<f64>,
    /// The same as [`load`](Change::load) by bucket of [`rsspp::BUCKETS`], low bits of the key.
    pub bucket_load: Vec<f64>,
}

impl Change {
    /// The shards that take new flows.
    pub fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.active
            .iter()
            .enumerate()
            .filter_map(|(shard, &active)| active.then_some(shard))
    }

    /// What each of the active shards would bear if all bore the same.
    pub fn fair(&self) -> f64 {
        self.load.iter().sum::<f64>() / self.members().count() as f64
    }
}

/// The flows that are held, as the owner of the tables sees them.
pub trait Held {
    /// All flows that are held and by whom.
    fn visit(&self, see: &mut dyn FnMut(&Packet, ShardId));
    /// Those at some of the places, for who visits in slices; `None` past the last place.
    fn visit_at(
        &self,
        places: std::ops::Range<usize>,
        see: &mut dyn FnMut(&Packet, ShardId),
    ) -> Option<()>;
    /// How many there are.
    fn count(&self) -> usize;
    /// Takes what a shard holds to another: everything that `moves` names a new home for. Only for those who can move
    /// connections between shards; says how many moved.
    fn migrate(&mut self, moves: &mut dyn FnMut(&Packet, ShardId) -> Option<ShardId>) -> usize;
}

/// What an update did to those who must not wait.
#[derive(Default, Debug)]
pub struct Cost {
    /// Microseconds of thread time of each piece that a data-path thread had to do or wait for at one stretch.
    pub pieces_us: Vec<f64>,
    /// Flows whose state was moved.
    pub migrated: usize,
}

impl Cost {
    /// A visit of all flows begins.
    pub fn slices(&mut self) -> Slices<'_> {
        Slices {
            cost: self,
            begin: thread_time_us(),
            left: Slices::LENGTH,
        }
    }

    /// Does a piece of work that the data path waits for.
    pub fn piece<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = thread_time_us();
        let done = work();
        self.pieces_us.push(thread_time_us() - begin);
        done
    }
}

/// Divides a visit of all flows into pieces as shards would do it between two batches.
pub struct Slices<'a> {
    cost: &'a mut Cost,
    begin: f64,
    left: usize,
}

impl Slices<'_> {
    /// Flows in a piece.
    const LENGTH: usize = 512;

    /// One more flow was seen.
    #[inline]
    pub fn tick(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            let now = thread_time_us();
            self.cost.pieces_us.push(now - self.begin);
            (self.begin, self.left) = (thread_time_us(), Slices::LENGTH);
        }
    }
}

/// A way to steer packets.
pub trait Rival {
    /// What the tables call it.
    fn name(&self) -> &'static str;
    /// Where a SYN goes when it comes.
    fn open(&mut self, packet: &Packet) -> Sent;
    /// Where that SYN ends, which may have waited since: the shard that holds the flow from then on. A repeated SYN has a
    /// `holder`, which recognizes it.
    fn opened(&mut self, _packet: &Packet, sent: Sent, _holder: Option<ShardId>) -> ShardId {
        sent.to
    }
    /// The options of every later packet of the flow: what its holder sent, echoed.
    fn echo(&self, _packet: &Packet, _holder: ShardId) -> [u8; 12] {
        [0; 12]
    }
    /// A flow is gone.
    fn close(&mut self, _packet: &Packet, _holder: ShardId) {}
    /// Where packets go, at most [`BURST`].
    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]);
    /// Where a packet that came to `shard`, and whose flow is not known there, goes on to. `None`: nowhere, it is reset.
    fn forward(&mut self, _packet: &Packet, _shard: ShardId, _hops: usize) -> Option<ShardId> {
        None
    }
    /// Begins a change.
    fn begin(&mut self, change: &Change, held: &mut dyn Held, cost: &mut Cost);
    /// Takes the change a step further, traffic going on between the steps; whether that was the last.
    fn step(&mut self, _held: &mut dyn Held, _cost: &mut Cost) -> bool {
        true
    }
    /// Where a new flow with this key would go, when that follows from the key.
    fn placement(&self, key: u32) -> Option<ShardId>;
    /// Figures of its own about the last update.
    fn notes(&self) -> Vec<(&'static str, f64, &'static str)> {
        Vec::new()
    }
    /// Bytes that steering needs on each I/O core.
    fn bytes(&self) -> usize;
}
