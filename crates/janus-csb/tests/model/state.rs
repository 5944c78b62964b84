//! One state of the small world. Plain values of fixed size: a search holds millions of them.

pub(crate) const IO: usize = 2;
pub(crate) const SHARDS: usize = 3;
pub(crate) const FLOWS: usize = 3;
/// Epochs a schedule may have.
pub(crate) const EPOCHS: usize = 5;
/// Packets that may be queued at one moment.
const QUEUED_MAX: usize = 10;

/// A number of a shard, or nobody.
pub(crate) type Nobody = Option<u8>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    /// Opens; the same SYN again, a new one for a tuple that is free, or one that reuses a TIME-WAIT.
    Syn,
    /// Anything that only a holder can use; completes a handshake.
    Data,
    /// The ACK of a valid cookie: creates a connection without a half-open record.
    Cookie,
    /// Ends the connection: TIME-WAIT.
    Fin,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::Syn, Kind::Data, Kind::Cookie, Kind::Fin];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Packet {
    pub(crate) flow: u8,
    pub(crate) kind: Kind,
    pub(crate) stage: u8,
    pub(crate) hint: bool,
    pub(crate) hops: u8,
    /// Which life of the flow it was sent in; 0 when the flow was not there.
    pub(crate) life: u8,
    /// Was in the ring when its shard first saw the round of draining.
    pub(crate) marked: bool,
    /// Came by a stub.
    pub(crate) redirected: bool,
}

/// Who puts packets into a ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum From {
    Io(u8),
    Shard(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RingName {
    pub(crate) to: u8,
    pub(crate) from: From,
}

/// All rings: packets of one ring stand in their order, the rings in that of their names. Packed, because most of a
/// state is this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Rings([u32; QUEUED_MAX]);

const VACANT: u32 = u32::MAX;
const MARKED: u32 = 1;
/// Bits of a packet; those of the ring's name lie above.
const PACKET_BITS: u32 = 16;

impl RingName {
    fn pack(self) -> u32 {
        let from = match self.from {
            From::Io(io) => u32::from(io),
            From::Shard(s) => IO as u32 + u32::from(s),
        };
        (u32::from(self.to) << 3 | from) << PACKET_BITS
    }

    fn unpack(bits: u32) -> RingName {
        let name = bits >> PACKET_BITS;
        let from = (name & 7) as u8;
        RingName {
            to: (name >> 3) as u8,
            from: from
                .checked_sub(IO as u8)
                .map_or(From::Io(from), From::Shard),
        }
    }
}

impl Packet {
    fn pack(self) -> u32 {
        u32::from(self.marked)
            | u32::from(self.hint) << 1
            | u32::from(self.stage) << 2
            | u32::from(self.hops) << 5
            | u32::from(self.life) << 8
            | u32::from(self.flow) << 11
            | (self.kind as u32) << 13
            | u32::from(self.redirected) << 15
    }

    fn unpack(bits: u32) -> Packet {
        Packet {
            marked: bits & MARKED != 0,
            hint: bits >> 1 & 1 != 0,
            stage: (bits >> 2 & 7) as u8,
            hops: (bits >> 5 & 7) as u8,
            life: (bits >> 8 & 7) as u8,
            flow: (bits >> 11 & 3) as u8,
            kind: KINDS[(bits >> 13 & 3) as usize],
            redirected: bits >> 15 & 1 != 0,
        }
    }
}

impl Rings {
    pub(crate) const EMPTY: Rings = Rings([VACANT; QUEUED_MAX]);

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RingName, Packet)> {
        let there = self.0.iter().take_while(|&&slot| slot != VACANT);
        there.map(|&slot| (RingName::unpack(slot), Packet::unpack(slot)))
    }

    /// # Panics
    /// When the bound is reached: the budgets of the configuration are then too large for it.
    pub(crate) fn push(&mut self, ring: RingName, packet: Packet) {
        let name = ring.pack();
        let end = name | ((1 << PACKET_BITS) - 1);
        assert_eq!(
            self.0[QUEUED_MAX - 1],
            VACANT,
            "more packets than rings hold"
        );
        let at = self.0.iter().take_while(|&&slot| slot <= end).count();
        self.0.copy_within(at..QUEUED_MAX - 1, at + 1);
        self.0[at] = name | packet.pack();
    }

    pub(crate) fn pop(&mut self, ring: RingName) -> Packet {
        let name = ring.pack();
        let same = |slot: &u32| *slot != VACANT && slot >> PACKET_BITS == name >> PACKET_BITS;
        let at = self.0.iter().position(same).expect("a packet");
        let packet = Packet::unpack(self.0[at]);
        self.0.copy_within(at + 1.., at);
        self.0[QUEUED_MAX - 1] = VACANT;
        packet
    }

    /// The rings in which a packet waits.
    pub(crate) fn heads(&self) -> impl Iterator<Item = RingName> {
        let names = self.iter().map(|(name, _)| name);
        let mut last = None;
        names.filter(move |&name| last.replace(name) != Some(name))
    }

    /// Marks what waits for `shard`.
    pub(crate) fn mark(&mut self, shard: u8) {
        for slot in &mut self.0 {
            if *slot != VACANT && RingName::unpack(*slot).to == shard {
                *slot |= MARKED;
            }
        }
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.0
            .iter()
            .any(|&slot| slot != VACANT && slot & MARKED != 0)
    }

    pub(crate) fn unmark(&mut self) {
        for slot in self.0.iter_mut().filter(|slot| **slot != VACANT) {
            *slot &= !MARKED;
        }
    }

    fn swapped(&self) -> Rings {
        let mut out = Rings::EMPTY;
        for (mut ring, packet) in self.iter() {
            if let From::Io(io) = &mut ring.from {
                *io = 1 - *io;
            }
            out.push(ring, packet);
        }
        out
    }
}

/// Where a flow's record is. The traversal visits the stores in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Store {
    Established,
    HalfOpen,
    TimeWait,
}

pub(crate) const STORES: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Flow {
    pub(crate) holder: Nobody,
    pub(crate) store: Store,
    /// How often it has been created.
    pub(crate) life: u8,
    /// Packets of each kind still to be sent.
    pub(crate) budget: [u8; 4],
    /// Active opens still to be tried.
    pub(crate) opens: u8,
    /// Shards whose SYN-ACK is on its way out, one bit each.
    pub(crate) syn_acks: u8,
    /// Moves still to be made, and parcels that may be refused.
    pub(crate) moves: u8,
    pub(crate) refusals: u8,
    /// Its parcel is on the way.
    pub(crate) parcel: Option<Parcel>,
    /// What stands at each shard that it has left.
    pub(crate) stubs: [Option<Stub>; SHARDS],
    /// How often it has begun or moved.
    pub(crate) events: u8,
    /// The view with which it was last moved.
    pub(crate) moved_at: Nobody,
}

/// A flow between two shards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Parcel {
    pub(crate) from: u8,
    pub(crate) to: u8,
    /// It was refused, and comes home.
    pub(crate) refused: bool,
}

/// Packets of a flow that has left are handed on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Stub {
    pub(crate) to: u8,
    /// The view with which it was made.
    pub(crate) view: u8,
    /// How often the flow had been touched by then.
    pub(crate) at: u8,
    /// The flow that it stands for has ended. Its shard learns of that at any time, be there another flow of the tuple by then.
    pub(crate) over: bool,
}

impl Flow {
    /// Somewhere it is.
    pub(crate) fn is_live(&self) -> bool {
        self.holder.is_some() || self.parcel.is_some()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Io {
    /// The published epoch it looks up in.
    pub(crate) epoch: u8,
    /// `Set_fly`.
    pub(crate) fly: [Nobody; FLOWS],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Shard {
    /// The newest ring it has adopted.
    pub(crate) view: u8,
    /// The published epoch it knows of.
    pub(crate) known: u8,
    /// Stores the traversal for `view` has visited.
    pub(crate) visited: u8,
    /// The last round of draining it has seen, and then all that is marked goes first.
    pub(crate) round: u8,
    pub(crate) gone: bool,
    /// It has died: what it held is lost, and it takes no flow in.
    pub(crate) fallen: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    Idle,
    /// A ring is pending: shards adopt it and look through what they hold.
    Traversing,
    /// Published; I/O cores adopt it.
    Published,
    /// All have; the rings are drained of what came before.
    Draining(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) newest: u8,
    pub(crate) published: u8,
    pub(crate) phase: Phase,
    /// Rings given up so far.
    pub(crate) superseded: u8,
    pub(crate) losses: u8,
    /// Shards that may still die.
    pub(crate) deaths: u8,
    pub(crate) io: [Io; IO],
    pub(crate) shards: [Shard; SHARDS],
    pub(crate) flows: [Flow; FLOWS],
    /// What the traversal of each epoch has reported: a bit for each (flow, shard).
    pub(crate) found: [u16; EPOCHS],
    /// For each, what had happened to the flow by the time of which that is told.
    pub(crate) found_at: [[u8; FLOWS]; EPOCHS],
    /// Flows that changed their store and are not yet reported: a bit for each (flow, shard).
    pub(crate) moved: u16,
    pub(crate) rings: Rings,
}

pub(crate) fn found_bit(flow: u8, shard: u8) -> u16 {
    1 << (usize::from(flow) * SHARDS + usize::from(shard))
}

/// The bits of a flow, one for each shard.
pub(crate) fn found_bits(flow: u8) -> u16 {
    (found_bit(0, SHARDS as u8) - 1) << (usize::from(flow) * SHARDS)
}

impl State {
    /// The shards that are still there.
    pub(crate) fn living(&self) -> impl Iterator<Item = (u8, &Shard)> {
        (0u8..).zip(&self.shards).filter(|(_, shard)| !shard.gone)
    }

    /// One name for all states that behave alike: the I/O cores are interchangeable, and of the reports only those
    /// matter that somebody still looks up in.
    pub(crate) fn canonical(mut self) -> State {
        let known = self.living().map(|(_, shard)| shard.known);
        let oldest = known
            .chain(self.io.iter().map(|io| io.epoch))
            .min()
            .unwrap_or(0);
        for epoch in 0..EPOCHS as u8 {
            if epoch < oldest || self.published < epoch && epoch < self.newest {
                self.found[usize::from(epoch)] = 0;
                self.found_at[usize::from(epoch)] = [0; FLOWS];
            }
        }
        let mut other = self;
        other.io.swap(0, 1);
        other.rings = self.rings.swapped();
        self.min(other)
    }
}
