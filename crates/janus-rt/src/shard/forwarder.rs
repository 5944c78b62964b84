//! The other shards of a runtime, as one shard sees them: where a frame goes that is theirs. The ways are bounded;
//! a full one drops and counts (rule 13 of the balancer's protocol), it never blocks: loss is safe, TCP repairs it. Before
//! it is full SYNs give way, as in the rings of the polling cores.

use janus_csb::{FlowId, ShardId, Steering, Step, Tag, walk};
use janus_io::KEPT_FROM_SYNS;
use janus_io::mpsc::{SendError, Sender};
use janus_io::park::Unparker;
use janus_io::steer::is_opening;
use janus_mem::{Frame, Pool};
use janus_tcp::{Placement, UnknownFlow};
use janus_wire::{FlowKey, FlowNames, Link, Toeplitz};

use super::leaving::Leaving;
use super::moves::Arrival;

/// Frames that can wait to be taken in by a shard from other shards.
pub(crate) const FORWARDS: u32 = 4096;
/// Frames that are leaving, beyond which none is turned back.
const TURNED_BACK_MAX: usize = 1024;

/// Door of another shard: its ring for forwarded frames and its bell.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) frames: Sender<Frame>,
    pub(crate) arrivals: Sender<Arrival>,
    pub(crate) bell: Unparker,
}

/// Counts of frames handed over, and of those not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForwardCounters {
    /// Frames that went to another shard.
    pub forwarded: u64,
    /// Frames lost because the other shard's ring was full or gone.
    pub dropped_full: u64,
    /// SYNs lost because the other shard's ring was nearly full: its last quarter is for the others.
    pub dropped_syn_room: u64,
    /// Frames whose tag was older than any ring still known.
    pub dropped_expired: u64,
    /// Frames lost because a stub led them to where their flow has ended, too late for a way back.
    pub dropped_over: u64,
    /// Flows that this shard sent home, as they did not find what they need here.
    pub moves_refused: u64,
    /// Flows that another shard refused, and for which this one had no room any more.
    pub moves_lost: u64,
    /// Frames that waited for an update which gives a port to the other shards that listen on it.
    pub waited: u64,
    /// Frames lost because too many waited so.
    pub dropped_waiting: u64,
}

/// All doors, the own one included, which is unused.
pub(crate) struct Forwarder {
    me: ShardId,
    link: Link,
    doors: Vec<Door>,
    /// Shards that got something in this batch and are to be rung at its end.
    touched: Vec<ShardId>,
    pub(crate) leaving: Leaving,
    /// Frames of this batch that stubs led here, where their flows are no more.
    pub(crate) astray: Vec<(FlowKey, Frame)>,
    /// Frames of this batch that may be another program's.
    pub(crate) back: Vec<Frame>,
    pub(crate) counters: ForwardCounters,
}

impl Forwarder {
    pub(crate) fn new(me: ShardId, link: Link, doors: Vec<Door>) -> Forwarder {
        Forwarder {
            me,
            link,
            touched: Vec::with_capacity(doors.len()),
            doors,
            leaving: Leaving::default(),
            astray: Vec::new(),
            back: Vec::new(),
            counters: ForwardCounters::default(),
        }
    }

    pub(super) fn door(&self, shard: ShardId) -> &Door {
        &self.doors[shard.index()]
    }

    /// Hands `frame` to `to`.
    #[inline]
    pub(crate) fn forward(&mut self, to: ShardId, frame: Frame, pool: &mut Pool) {
        #[cfg(test)]
        super::hops::forwarded(&frame);
        let door = &self.doors[to.index()].frames;
        let kept = door.capacity() / KEPT_FROM_SYNS as u32;
        if !door.fits(kept + 1) && is_opening(&frame, self.link) {
            self.counters.dropped_syn_room += 1;
            return pool.free(frame.buf);
        }
        match door.send(frame) {
            Ok(()) => {
                self.counters.forwarded += 1;
                if !self.touched.contains(&to) {
                    self.touched.push(to);
                }
            }
            Err(SendError::Full(frame) | SendError::Closed(frame)) => {
                self.counters.dropped_full += 1;
                pool.free(frame.buf);
            }
        }
    }

    /// Keeps `frame` until an update says whose it is.
    #[cold]
    fn wait(&mut self, frame: Frame, pool: &mut Pool) {
        match self.leaving.hold(frame) {
            Ok(()) => self.counters.waited += 1,
            Err(frame) => {
                self.counters.dropped_waiting += 1;
                pool.free(frame.buf);
            }
        }
    }

    /// Frames that may be another program's go out after what is `leaving`. Where much is already, they are lost: who sent them repeats them.
    pub(crate) fn turn_back(&mut self, leaving: &mut Vec<Frame>, pool: &mut Pool) {
        for frame in self.back.drain(..) {
            if leaving.len() < TURNED_BACK_MAX {
                leaving.push(frame);
            } else {
                self.counters.dropped_full += 1;
                pool.free(frame.buf);
            }
        }
    }

    /// Rings for what was handed over since the last time.
    #[inline]
    pub(crate) fn ring(&mut self) {
        for shard in self.touched.drain(..) {
            self.doors[shard.index()].bell.wake();
        }
    }
}

/// Answers the stack for flows it does not know, by walking the rings.
pub(crate) struct Walk<'a> {
    view: &'a Steering,
    toeplitz: &'a Toeplitz,
    names: &'a FlowNames,
    forwarder: &'a mut Forwarder,
    pool: &'a mut Pool,
    /// What the last `place` decided.
    next: Next,
}

/// Where a packet goes that is not for this shard.
#[derive(Clone, Copy, Debug)]
enum Next {
    To(ShardId, Tag),
    /// Nowhere yet: its port is about to be the others'.
    Wait,
    /// It is too old.
    Expired,
    /// A stub has led it here, and its flow is over.
    Over,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        view: &'a Steering,
        toeplitz: &'a Toeplitz,
        names: &'a FlowNames,
        forwarder: &'a mut Forwarder,
        pool: &'a mut Pool,
    ) -> Walk<'a> {
        Walk {
            view,
            toeplitz,
            names,
            forwarder,
            pool,
            next: Next::Expired,
        }
    }

    /// The tag of a frame whose walk has ended here: the newest ring chose, or the one the frame has seen if that is newer.
    fn walked(&self, frame: &Frame) -> Tag {
        let own = Tag::from_bits(frame.tag).epoch();
        let newest = self.view.newest().epoch();
        let epoch = if own.since(newest) > 0 { own } else { newest };
        Tag::new(epoch, false)
    }
}

impl UnknownFlow for Walk<'_> {
    fn place(&mut self, key: u32, port: u16, tag: u16) -> Placement {
        if Tag::from_bits(tag).is_redirected() {
            self.next = Next::Over;
            return Placement::Elsewhere;
        }
        self.next = match walk(self.view, self.forwarder.me, key, port, Tag::from_bits(tag)) {
            Step::Stay if self.forwarder.leaving.has(port) => Next::Wait,
            Step::Stay => return Placement::Here,
            Step::Forward { to, tag } => Next::To(to, tag),
            Step::Expired => Next::Expired,
        };
        Placement::Elsewhere
    }

    fn forward(&mut self, mut frame: Frame) {
        match std::mem::replace(&mut self.next, Next::Expired) {
            Next::To(to, tag) => {
                frame.steer(tag.bits());
                self.forwarder.forward(to, frame, self.pool);
            }
            Next::Wait => {
                frame.steer(self.walked(&frame).bits());
                self.forwarder.wait(frame, self.pool);
            }
            Next::Expired => {
                self.forwarder.counters.dropped_expired += 1;
                self.pool.free(frame.buf);
            }
            Next::Over => {
                self.forwarder.counters.dropped_over += 1;
                self.pool.free(frame.buf);
            }
        }
    }

    fn give_back(&mut self, frame: Frame) {
        self.forwarder.back.push(frame);
    }

    fn was_redirected(&self, tag: u16) -> bool {
        Tag::from_bits(tag).is_redirected()
    }

    /// A shard at which the flow is over sends it back, and word of that before it.
    fn redirect(&mut self, to: u16, mut frame: Frame) -> Option<Frame> {
        let Ok(to) = u8::try_from(to).map(ShardId) else {
            return Some(frame);
        };
        if to == self.forwarder.me || to.index() >= self.forwarder.doors.len() {
            return Some(frame);
        }
        frame.steer(Tag::redirected(self.walked(&frame).epoch()).bits());
        self.forwarder.forward(to, frame, self.pool);
        None
    }

    #[inline]
    fn needs_resteer(&self, tag: u16) -> bool {
        let tag = Tag::from_bits(tag);
        tag.is_claim() || tag.is_redirected()
    }

    /// As a polling core would have done, had the segment come in one piece, or without a claim. What a stub has led astray waits for
    /// [`CoreContext::send_back`](super::CoreContext::send_back).
    fn resteer(&mut self, flow: &FlowKey, mut frame: Frame) -> Option<Frame> {
        if Tag::from_bits(frame.tag).is_redirected() {
            // No ring chose the shard that it goes to.
            frame.steer(Tag::new(self.walked(&frame).epoch(), true).bits());
            self.forwarder.astray.push((*flow, frame));
            return None;
        }
        let key = self.toeplitz.key_of(flow);
        let name = || FlowId(self.names.of(flow));
        let (owner, tag) = self.view.look_up_flow(key, flow.local_port(), name);
        frame.key = key;
        frame.steer(tag.bits());
        if owner == self.forwarder.me {
            return Some(frame);
        }
        self.forwarder.forward(owner, frame, self.pool);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use janus_csb::{Balancer, Limits, Reader, Ring, ShardEnd};
    use janus_io::mpsc;
    use janus_io::park::Parker;
    use janus_mem::{Depot, Growth};
    use janus_wire::tcp::{self, Flags};
    use janus_wire::{FlowKeyV4, MICROSOFT_KEY, ipv4, proto};

    use super::super::leaving::WAITING_MAX;
    use super::*;

    const NAMES: FlowNames = FlowNames::new([1, 2]);
    static TOEPLITZ: LazyLock<Toeplitz> = LazyLock::new(|| Toeplitz::new(&MICROSOFT_KEY));

    /// A walk by the steering that `reader` adopted last.
    fn walk_by<'a>(
        reader: &'a Reader,
        forwarder: &'a mut Forwarder,
        pool: &'a mut Pool,
    ) -> Walk<'a> {
        Walk::new(reader.current(), &TOEPLITZ, &NAMES, forwarder, pool)
    }

    /// A balancer of two shards, which must have their ends.
    fn balancer() -> (Balancer, [ShardEnd; 2]) {
        let mut balancer = Balancer::new(Ring::uniform(2, 16, 1), Limits::default());
        let ends = [0, 1].map(|shard| balancer.shard_end(ShardId(shard)));
        (balancer, ends)
    }

    /// What shard `me` of two has of other shards, and where frames for them come out.
    fn two_shards(me: ShardId) -> ([Parker; 2], Forwarder, Vec<mpsc::Receiver<Frame>>) {
        two_shards_with(me, 2)
    }

    fn two_shards_with(
        me: ShardId,
        capacity: u32,
    ) -> ([Parker; 2], Forwarder, Vec<mpsc::Receiver<Frame>>) {
        let parkers = [Parker::new().unwrap(), Parker::new().unwrap()];
        let (senders, receivers): (Vec<_>, Vec<_>) = parkers
            .iter()
            .map(|_| mpsc::inbox::<Frame>(capacity))
            .unzip();
        let doors = senders.into_iter().zip(&parkers);
        let doors = doors.map(|(frames, parker)| Door {
            frames,
            arrivals: mpsc::inbox(1).0,
            bell: parker.unparker(),
        });
        let forwarder = Forwarder::new(me, Link::Ip, doors.collect());
        (parkers, forwarder, receivers)
    }

    #[test]
    fn a_frame_goes_on_to_the_next_owner_and_a_full_ring_counts() {
        const PORT: u16 = 80;
        let (me, other) = (ShardId(0), ShardId(1));
        let (mut balancer, _ends) = balancer();
        let mut reader = balancer.reader();
        // A packet was steered here when no core listened; since then only the other shard does.
        let mut keys = (0..1000u32).map(|i| i.wrapping_mul(0x9e37_79b9));
        let key = keys.find(|key| balancer.current().look_up(*key, PORT).0 == me);
        let key = key.expect("each shard owns keys");
        let (_, tag) = balancer.current().look_up(key, PORT);
        let listens = balancer.start(|draft| _ = draft.listen(PORT, other));
        listens.expect("nothing is pending");
        reader.refresh();

        let (_parkers, mut forwarder, mut receivers) = two_shards(me);
        let mut pool = Depot::new(64, &Growth::Inline).unwrap().pool();

        for _ in 0..3 {
            let mut frame = Frame::new(pool.alloc().unwrap(), 60);
            (frame.key, frame.tag) = (key, tag.bits());
            let mut walk = walk_by(&reader, &mut forwarder, &mut pool);
            assert_eq!(walk.place(key, PORT, tag.bits()), Placement::Elsewhere);
            walk.forward(frame);
            // Its own port stays: no core listens there, and the ring says it is this shard's.
            let mut walk = walk_by(&reader, &mut forwarder, &mut pool);
            assert_eq!(walk.place(key, 81, tag.bits()), Placement::Here);
        }
        forwarder.ring();
        let counted = ForwardCounters {
            forwarded: 2,
            dropped_full: 1,
            ..ForwardCounters::default()
        };
        assert_eq!(forwarder.counters, counted);
        assert!(receivers[0].pop().is_none());
        let passed = receivers[1].pop().expect("it came");
        // Tagged with the epoch that named the other shard: there it stays.
        let there = walk(
            reader.current(),
            other,
            passed.key,
            PORT,
            Tag::from_bits(passed.tag),
        );
        assert_eq!(there, Step::Stay);
    }

    /// A TCP packet of a minute's making with these flags.
    fn packet(pool: &mut Pool, flags: Flags) -> Frame {
        let mut bytes = [0; ipv4::LEN + tcp::LEN];
        let (ip, segment) = bytes.split_at_mut(ipv4::LEN);
        let repr = ipv4::Repr {
            src: [192, 0, 2, 2].into(),
            dst: [192, 0, 2, 1].into(),
            proto: proto::TCP,
            payload_len: segment.len() as u16,
            ttl: 64,
            tos: 0,
            id: 0,
            dont_fragment: true,
        };
        ipv4::emit(ip, &repr);
        segment[12..14].copy_from_slice(&[5 << 4, flags.0]);
        let mut frame = Frame::new(pool.alloc().unwrap(), bytes.len() as u16);
        frame.data_mut().copy_from_slice(&bytes);
        frame
    }

    #[test]
    fn syns_leave_the_last_places_to_others() {
        const CAPACITY: u32 = 16;
        let (me, other) = (ShardId(0), ShardId(1));
        let (_parkers, mut forwarder, mut receivers) = two_shards_with(me, CAPACITY);
        let mut pool = Depot::new(256, &Growth::Inline).unwrap().pool();
        let mut send = |forwarder: &mut Forwarder, flags, count: u64| {
            for _ in 0..count {
                let frame = packet(&mut pool, flags);
                forwarder.forward(other, frame, &mut pool);
            }
            forwarder.counters
        };
        // More than once around, so that places are had again.
        for lap in 1..=3 {
            let after = send(&mut forwarder, Flags::SYN, 16);
            assert_eq!(after.forwarded, (lap - 1) * 16 + 12);
            assert_eq!(
                (after.dropped_syn_room, after.dropped_full),
                (lap * 4, lap - 1)
            );
            let after = send(&mut forwarder, Flags::SYN | Flags::ACK, 2);
            assert_eq!(
                (after.forwarded, after.dropped_syn_room),
                ((lap - 1) * 16 + 14, lap * 4)
            );
            let after = send(&mut forwarder, Flags::ACK, 3);
            assert_eq!((after.forwarded, after.dropped_full), (lap * 16, lap));
            let mut taken = 0;
            while let Some(frame) = receivers[other.index()].pop() {
                drop(frame);
                taken += 1;
            }
            assert_eq!(taken, CAPACITY);
        }
    }

    #[test]
    fn a_segment_that_came_in_pieces_goes_where_a_whole_one_would_have_gone() {
        let (me, other) = (ShardId(0), ShardId(1));
        let (balancer, _ends) = balancer();
        let reader = balancer.reader();
        let (_parkers, mut forwarder, mut receivers) = two_shards(me);
        let mut pool = Depot::new(64, &Growth::Inline).unwrap().pool();
        let flows = (1..200).map(|port| FlowKeyV4 {
            peer_port: port,
            local_port: 81,
            ..FlowKeyV4::default()
        });
        let (mut kept, mut sorted) = (0, 0);
        for flow in flows {
            let frame = Frame::new(pool.alloc().unwrap(), 60);
            let key = TOEPLITZ.key_of_v4(&flow);
            let (owner, tag) = reader.current().look_up(key, 81);
            let mut walk = walk_by(&reader, &mut forwarder, &mut pool);
            let (home, frame) = match walk.resteer(&flow.into(), frame) {
                Some(frame) => (me, frame),
                None => (other, receivers[1].pop().expect("it came")),
            };
            assert_eq!((home, frame.key, frame.tag), (owner, key, tag.bits()));
            (kept, sorted) = (kept + u32::from(home == me), sorted + 1);
            pool.free(frame.buf);
        }
        assert!(kept > 0 && kept < sorted);
    }

    /// As if the walk had ended only now, once there is somebody else to go to; no more than there is room for.
    #[test]
    fn what_ends_at_a_port_that_is_being_left_waits() {
        let (me, other) = (ShardId(0), ShardId(1));
        let (mut balancer, _ends) = balancer();
        let listens = balancer.start(|draft| _ = draft.listen(80, me));
        listens.expect("nothing is pending");
        let mut reader = balancer.reader();
        let (_parkers, mut forwarder, mut receivers) = two_shards(me);
        forwarder.leaving.add(80);
        let mut pool = Depot::new(1024, &Growth::Inline).unwrap().pool();
        let epoch = reader.current().newest().epoch();
        for i in 0..WAITING_MAX as u64 + 1 {
            let mut frame = Frame::new(pool.alloc().unwrap(), 60);
            // A hint, or a ring before this one, sent it here.
            frame.tag = Tag::new(epoch, i % 2 == 0).bits();
            let mut walk = walk_by(&reader, &mut forwarder, &mut pool);
            assert_eq!(walk.place(7, 80, frame.tag), Placement::Elsewhere);
            walk.forward(frame);
        }
        assert_eq!(forwarder.counters.waited, WAITING_MAX as u64);
        assert_eq!(forwarder.counters.dropped_waiting, 1);
        let moves = balancer.start(|draft| {
            draft.listen(80, other);
            draft.unlisten(80, me);
        });
        moves.expect("nothing is pending");
        reader.refresh();
        let waited: Vec<Frame> = forwarder.leaving.take().collect();
        for frame in waited {
            assert_eq!(Tag::from_bits(frame.tag), Tag::new(epoch, false));
            let mut walk = walk_by(&reader, &mut forwarder, &mut pool);
            assert_eq!(walk.place(7, 80, frame.tag), Placement::Elsewhere);
            walk.forward(frame);
            if let Some(frame) = receivers[other.index()].pop() {
                pool.free(frame.buf);
            }
        }
        assert_eq!(forwarder.counters.forwarded, WAITING_MAX as u64);
    }

    #[test]
    fn what_a_stub_hands_on_never_goes_back_an_epoch() {
        let me = ShardId(0);
        let (mut balancer, _ends) = balancer();
        let mut reader = balancer.reader();
        let before = reader.current().newest().epoch();
        let listens = balancer.start(|draft| _ = draft.listen(80, ShardId(1)));
        listens.expect("nothing is pending");
        reader.refresh();
        let newest = reader.current().newest().epoch();
        assert!(newest.since(before) > 0);
        let (_parkers, mut forwarder, mut receivers) = two_shards(me);
        let mut pool = Depot::new(64, &Growth::Inline).unwrap().pool();
        for (came, leaves) in [
            (before, newest),
            (newest, newest),
            (newest.next(), newest.next()),
        ] {
            for hint in [false, true] {
                let mut frame = Frame::new(pool.alloc().unwrap(), 60);
                frame.tag = Tag::new(came, hint).bits();
                let mut walk = walk_by(&reader, &mut forwarder, &mut pool);
                assert!(walk.redirect(1, frame).is_none());
                let frame = receivers[1].pop().expect("it came");
                assert_eq!(Tag::from_bits(frame.tag), Tag::redirected(leaves));
                // Where its flow is over it ends.
                let mut walk = walk_by(&reader, &mut forwarder, &mut pool);
                assert_eq!(walk.place(frame.key, 80, frame.tag), Placement::Elsewhere);
                walk.forward(frame);
            }
        }
        assert_eq!(forwarder.counters.dropped_over, 6);
        // To oneself, or to no core, nothing goes.
        for to in [0, 2, 256, u16::MAX] {
            let frame = Frame::new(pool.alloc().unwrap(), 60);
            let mut walk = walk_by(&reader, &mut forwarder, &mut pool);
            let back = walk.redirect(to, frame).expect("given back");
            pool.free(back.buf);
        }
        assert!(receivers.iter_mut().all(|r| r.pop().is_none()));
    }
}
