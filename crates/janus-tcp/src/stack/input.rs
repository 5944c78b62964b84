//! Frames in, a batch at a time, in passes: read all and fetch their table groups; probe all and fetch their
//! records; process all in order. With millions of connections each of those fetches is a cache miss, and a
//! batch pays for them together. This is the main lever of the whole engine's speed. While flows are few, nothing is fetched, and each
//! segment is looked up when its turn has come: then what was filed meanwhile is found at once.

pub(crate) mod arrives;
pub(crate) mod cookie;
pub(crate) mod handshake;
pub(crate) mod passive;
pub(crate) mod time_wait;

use janus_mem::Frame;
use janus_wire::FlowKey;

use crate::ip::icmp_errors::IcmpError;
use crate::stack::Stack;
use crate::store::cold::NONE;
use crate::store::records::Record;
use crate::time::Instant;
use crate::wire::parse::{self, BATCH, Kind, Parsed};

/// With no more flows than this the table and their records are in the second cache of a core.
const NEAR: usize = 4_096;

/// Where a segment that belongs to no flow of this stack should be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// By this stack: it creates the flow, or answers with a reset.
    Here,
    /// By another one: the frame is handed to [`UnknownFlow::forward`].
    Elsewhere,
}

/// Questions of a stack, about a flow it does not know, to the one that knows the other shards.
pub trait UnknownFlow {
    /// Decides by the flow key, the local port and the tag that the frame carries.
    fn place(&mut self, key: u32, port: u16, tag: u16) -> Placement;

    /// Takes a frame that the last [`UnknownFlow::place`] sent elsewhere.
    fn forward(&mut self, frame: Frame);

    /// Takes a frame that [may be another program's](Frame::returns) and is nothing's here, turned back.
    fn give_back(&mut self, frame: Frame) {
        drop(frame);
    }

    /// Takes a frame of a flow that lives at shard `to` by [`Stack::add_stub`], or gives it back, and it is dropped.
    /// Should the flow be over there, the frame must not go round in circles: its tag is to say that it
    /// [was redirected](UnknownFlow::was_redirected), and then it is not placed anywhere else.
    fn redirect(&mut self, to: u16, frame: Frame) -> Option<Frame> {
        let _ = to;
        Some(frame)
    }

    /// Whether a frame with this tag came by a stub of another shard's.
    fn was_redirected(&self, tag: u16) -> bool {
        let _ = tag;
        false
    }

    /// Whether a frame with this tag came to this shard for another reason than its flow's place: then it goes through
    /// [`UnknownFlow::resteer`] before [`UnknownFlow::place`] is asked.
    fn needs_resteer(&self, tag: u16) -> bool {
        let _ = tag;
        false
    }

    /// A segment of `flow` that came to a shard which was not chosen by its flow, in fragments for instance: gives it back,
    /// with the key and tag that [`UnknownFlow::place`] decides by, if this shard is to have it, or takes it.
    fn resteer(&mut self, flow: &FlowKey, frame: Frame) -> Option<Frame> {
        let _ = flow;
        Some(frame)
    }
}

/// A stack that stands alone: every flow is its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local;

impl UnknownFlow for Local {
    fn place(&mut self, _key: u32, _port: u16, _tag: u16) -> Placement {
        Placement::Here
    }

    fn forward(&mut self, _frame: Frame) {}
}

impl Stack {
    /// Takes all of `frames`.
    pub fn input<M: UnknownFlow>(
        &mut self,
        now: Instant,
        frames: &mut Vec<Frame>,
        unknown: &mut M,
    ) {
        self.env.set_now(now);
        self.env.counters.frames_in += frames.len() as u64;
        self.update_pressure();
        self.take_all(frames, unknown);
        if self.host.has_deferred() {
            self.after_batch(unknown);
        }
    }

    fn take_all<M: UnknownFlow>(&mut self, frames: &mut Vec<Frame>, unknown: &mut M) {
        let far = self.index.table.len() > NEAR;
        let mut batch = core::mem::take(&mut self.batch);
        batch.resize(BATCH, Parsed::NONE);
        let mut frames = frames.drain(..);
        while !frames.as_slice().is_empty() {
            let count = frames.len().min(BATCH);
            self.read_batch(&frames.as_slice()[..count], &mut batch, far);
            if far {
                self.probe_batch(&mut batch[..count]);
            }
            for parsed in &mut batch[..count] {
                let mut frame = frames.next();
                match parsed.kind() {
                    Kind::Segment => {
                        if !far {
                            self.probe(parsed);
                        }
                        self.segment(&mut frame, parsed, unknown, far);
                    }
                    kind => self.no_segment(&mut frame, kind),
                }
                if let Some(frame) = frame {
                    self.store.blocks.pool.free(frame.buf);
                }
            }
        }
        drop(frames);
        self.batch = batch;
    }

    /// Handles what the batch left behind: segments put together from fragments, which may be another shard's, and ICMP errors
    /// about connections that are not known here.
    #[cold]
    fn after_batch<M: UnknownFlow>(&mut self, unknown: &mut M) {
        let mut ours = (self.host).deferred_segments(|flow, frame| unknown.resteer(flow, frame));
        self.take_all(&mut ours, unknown);
        self.host.keep_for_deferred(ours);
        while let Some((flow, frame)) = self.host.pop_astray() {
            if let Some(shard) = self.stub_of(&flow) {
                self.redirect(shard, frame, unknown);
                continue;
            }
            match unknown.place(frame.key, flow.local_port(), frame.tag) {
                Placement::Here => {
                    self.env.counters.icmp_errors_ignored += 1;
                    self.store.blocks.pool.free(frame.buf);
                }
                Placement::Elsewhere => {
                    self.env.counters.forwarded += 1;
                    unknown.forward(frame);
                }
            }
        }
    }

    /// First pass: read, hash, fetch the table's group if it may be `far`.
    #[inline(always)]
    fn read_batch(&mut self, frames: &[Frame], batch: &mut [Parsed], far: bool) {
        for (frame, parsed) in frames.iter().zip(batch) {
            let (rules, counters) = (&self.rules, &mut self.env.counters);
            let kind = parse::read(frame, rules, &self.index.hash, counters, parsed);
            if far && kind == Kind::Segment {
                self.index.table.prefetch(parsed.hash());
            }
        }
    }

    #[inline(never)]
    fn no_segment(&mut self, frame: &mut Option<Frame>, kind: Kind) {
        let Some(arrived) = frame.take() else {
            return;
        };
        match kind {
            Kind::Datagram => self.ip().datagram_arrives(arrived),
            Kind::Other => self.other_arrives(arrived),
            Kind::Fragment => {
                if let Some(error) = self.ip().fragment_arrives(arrived) {
                    // An error too long for one packet says nothing that a shorter one would not.
                    let _known = self.icmp_error_arrives(&error);
                }
            }
            Kind::Drop | Kind::Segment => *frame = Some(arrived),
        }
    }

    /// Takes a packet that is neither TCP nor UDP. An error about a flow of another shard waits for the end of the batch.
    fn other_arrives(&mut self, frame: Frame) {
        let Some((error, frame)) = self.ip().control_arrives(frame) else {
            return;
        };
        if self.icmp_error_arrives(&error) {
            self.store.blocks.pool.free(frame.buf);
        } else {
            self.host.defer_astray(*error.key(), frame);
        }
    }

    /// Looks at the tags. Without a candidate, the flow is not here.
    #[inline(always)]
    fn probe(&self, parsed: &mut Parsed) {
        if let Some(candidate) = self.index.table.candidate(parsed.hash()) {
            parsed.note_candidate(candidate);
        }
    }

    /// Second pass, where records may be far: look at the tags, fetch the record that one of them names.
    #[inline(never)]
    fn probe_batch(&self, batch: &mut [Parsed]) {
        for parsed in batch.iter_mut().filter(|p| p.kind() == Kind::Segment) {
            self.probe(parsed);
            if parsed.candidate() == NONE {
                continue;
            }
            match Record::decode(parsed.candidate()) {
                Record::Connection(i) => self.store.tcbs.prefetch(i),
                Record::HalfOpen(i) => self.index.half_open.prefetch(i),
                Record::TimeWait(i) => self.index.time_wait.prefetch(i),
                Record::Stub(i) => self.index.stubs.prefetch(i),
            }
        }
    }

    /// Third pass: one segment, in order. A consumed frame is taken out of `frame`. `far`: it was probed before others were processed.
    #[inline(always)]
    fn segment<M: UnknownFlow>(
        &mut self,
        frame: &mut Option<Frame>,
        parsed: &Parsed,
        unknown: &mut M,
        far: bool,
    ) {
        self.env.counters.segments_in += 1;
        // Nearly all are of a connection, the one that the second pass found, which has not ended meanwhile.
        let taken = match Record::decode(parsed.candidate()) {
            Record::Connection(conn) => self.arrives(conn, parsed, frame),
            _ => false,
        };
        if !taken {
            self.other_segment(parsed, frame, unknown, far);
        }
    }

    /// A segment of a flow that is no connection yet, or not any more, or that is filed elsewhere than the second pass looked.
    #[inline(never)]
    fn other_segment<M: UnknownFlow>(
        &mut self,
        parsed: &Parsed,
        frame: &mut Option<Frame>,
        unknown: &mut M,
        far: bool,
    ) {
        let (candidate, key) = (parsed.candidate(), parsed.key());
        let returns = frame.as_ref().is_some_and(Frame::returns);
        self.unwanted = returns.then_some(false);
        let record = match candidate {
            NONE if !far => None,
            // It was filed since then, or never.
            NONE => self.find(key, parsed.hash()),
            _ if self.is_record_of(candidate, key) => Some(Record::decode(candidate)),
            // Its handshake ended in this batch, and data follows.
            _ => match self.index.established {
                Some(conn) if self.is_connection_of(conn, key) => Some(Record::Connection(conn)),
                _ => self.record_of(key),
            },
        };
        match record {
            Some(Record::Connection(conn)) => {
                self.arrives(conn, parsed, frame);
            }
            Some(Record::HalfOpen(slot)) => {
                if let Some(conn) = self.half_open_arrives(slot, parsed) {
                    self.arrives(conn, parsed, frame);
                }
            }
            Some(Record::TimeWait(slot)) if self.opens_anew(slot, parsed) => {
                self.unknown(parsed, frame, Some(slot), unknown);
            }
            Some(Record::TimeWait(slot)) if self.is_of_another(slot, parsed) => {
                self.goes_back();
            }
            Some(Record::TimeWait(slot)) => self.time_wait_arrives(slot, parsed),
            Some(Record::Stub(slot)) => {
                if let Some(frame) = frame.take() {
                    self.redirect(self.index.stubs.get(slot).shard, frame, unknown);
                }
            }
            None => self.unknown(parsed, frame, None, unknown),
        }
        if self.unwanted.take() == Some(true)
            && let Some(mut frame) = frame.take()
        {
            frame.turn_back();
            unknown.give_back(frame);
        }
    }

    /// No flow here, or only what is left of an `old` one in TIME-WAIT: perhaps at another shard. (One that reopens there
    /// does not know how far the old connection had sent; the clock that all shards share has to do.)
    fn unknown<M: UnknownFlow>(
        &mut self,
        parsed: &Parsed,
        frame: &mut Option<Frame>,
        old: Option<u32>,
        unknown: &mut M,
    ) {
        // The stub of a flow has led it to the flow's old life.
        let stays = |f: &Frame| old.is_some() && unknown.was_redirected(f.tag);
        if frame
            .as_ref()
            .is_some_and(|f| unknown.needs_resteer(f.tag) && !stays(f))
        {
            *frame = frame.take().and_then(|f| unknown.resteer(parsed.key(), f));
            self.env.counters.forwarded += u64::from(frame.is_none());
        }
        // A frame that is gone already is at another shard.
        let place = frame.as_ref().map_or(Placement::Elsewhere, |f| {
            match old.is_some() && unknown.was_redirected(f.tag) {
                true => Placement::Here,
                false => unknown.place(f.key, parsed.key().local_port(), f.tag),
            }
        });
        if let (Placement::Here, Some(slot)) = (place, old)
            && self.opens_nothing(slot, parsed)
        {
            return;
        }
        let old = old.map(|slot| self.end_time_wait(slot));
        let Some(arrived) = frame else { return };
        match place {
            Placement::Here => {
                if let Some(conn) = self.no_flow(parsed, arrived, old) {
                    self.arrives(conn, parsed, frame);
                }
            }
            Placement::Elsewhere => {
                self.env.counters.forwarded += 1;
                if let Some(frame) = frame.take() {
                    unknown.forward(frame);
                }
            }
        }
    }

    /// An error whose checksum holds. False when it quotes a flow that is not here.
    /// Keeps MUST-54.
    pub(crate) fn icmp_error_arrives(&mut self, error: &IcmpError) -> bool {
        self.env.counters.icmp_errors_in += 1;
        let heeded = match self.record_of(error.key()) {
            None | Some(Record::Stub(_)) => return false,
            Some(Record::Connection(conn)) => self
                .with(conn, |c| c.blamed(error))
                // Nothing is on its way.
                .unwrap_or(false),
            Some(Record::HalfOpen(slot)) => self.half_open_blamed(slot, error),
            // Nothing is asked of the peer any more.
            Some(Record::TimeWait(_)) => false,
        };
        self.env.counters.icmp_errors_ignored += u64::from(!heeded);
        true
    }

    /// Handles an error about a SYN-ACK. No task waits for the answer, so the record goes as soon as it is clear that none
    /// will come; other errors change nothing.
    fn half_open_blamed(&mut self, slot: u32, error: &IcmpError) -> bool {
        let ends = error.ends_half_open() && self.index.half_open.get(slot).iss == error.seq();
        if ends {
            self.env.counters.icmp_refusals += 1;
            self.drop_half_open(slot);
        }
        ends
    }
}
