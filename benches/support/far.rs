//! The far end of the wire: a load generator that keeps no connections. What it sends next follows from the packet it
//! got: the acknowledgement number tells how far the client is, the timestamp echo where the server's sequence began. On a wire
//! without timestamps a table tells that.
//! Every answer is validated. The time spent in here is measured, so that it can be taken off the server's account.

mod again;
pub mod app;
pub mod device;
mod due;
mod idle;
pub mod pace;
pub mod packet;
pub mod plan;
pub mod six;

use again::{Again, Waiting};
use app::echo_words;
pub use app::{App, ECHO_LEN};
use due::{Due, What, wake_up};
use idle::{Idle, Lengths, Parked};
use janus_mem::{Frame, HEADROOM, Pool};
use janus_wire::tcp::Flags;
use pace::Pace;
use packet::{Answer, Crafter, Ends, Segment, Wrong};
use plan::{Counts, Kind, Mode, Phase, Plan};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Bits of the server's first sequence number that travel in our timestamps. A step of less than 2^31 keeps them
/// monotonic for PAWS.
const SEQ_BITS: u32 = (1 << 30) - 1;
/// Answers to questions for addresses that wait at a time.
const TOLD_MAX: usize = 16;
const FRAME_MIN: usize = 64;
/// A whole frame of the server's.
const FRAME_MAX: usize = 1514;
/// Timestamp of a SYN; those of later segments are larger.
const TS_SYN: u32 = 1;

/// A frame that tells the server an address.
struct Told {
    bytes: [u8; six::ADVERTISEMENT_LEN],
    len: usize,
}

/// One queue's far end.
pub struct Far {
    ends: Ends,
    crafter: Crafter,
    app: App,
    plan: Arc<Plan>,
    index: usize,
    queues: u32,
    epoch: u64,
    phase: Phase,
    /// What may still be begun.
    credit: u32,
    interleaved: bool,
    in_pieces: bool,
    due: VecDeque<Due>,
    idle: Idle,
    /// Answers to the server's questions for addresses.
    told: VecDeque<Told>,
    /// Short connections, or requests, come at a rate.
    pace: Option<Pace>,
    /// Requests that came at a rate.
    again: Option<Again<Due>>,
    /// Whether something is under way on each connection, where what ends twice counts once.
    once: Option<Waiting>,
    /// Timestamp that each connection would have, on a wire without timestamps.
    untimed: Option<Vec<u32>>,
    counts: Counts,
}

impl Far {
    /// The far end number `index` of as many as the plan counts. Room for `held_max` idle connections is made, and
    /// touched, now.
    pub fn new(ends: Ends, app: App, plan: Arc<Plan>, index: usize, held_max: u32) -> Self {
        let queues = plan.ends.len() as u32;
        let firsts = || plan.firsts(held_max);
        let idle = Idle::new(held_max, index, plan.ends.len(), firsts);
        plan.keeps(idle.bytes());
        Self {
            crafter: Crafter::new(&ends),
            untimed: (!ends.timestamps).then(Vec::new),
            ends,
            app,
            index,
            queues,
            epoch: 0,
            phase: Phase {
                mode: Mode::Idle,
                window: 0,
                held: 0,
            },
            credit: 0,
            interleaved: false,
            in_pieces: false,
            due: due::nothing(),
            idle,
            told: VecDeque::with_capacity(TOLD_MAX),
            pace: None,
            again: None,
            once: None,
            counts: Counts::default(),
            plan,
        }
    }

    /// Hands the server up to `room` frames.
    #[inline(never)]
    pub fn give(&mut self, pool: &mut Pool, room: usize, mut out: impl FnMut(Frame)) {
        let start = Instant::now();
        self.clock_in(start);
        self.follow_plan();
        self.begin(room);
        self.repeat();
        let mut given = 0;
        while given < room && (!self.due.is_empty() || !self.told.is_empty()) {
            let Some(buf) = pool.alloc() else { break };
            let mut frame = Frame::new(buf, 0);
            let slot = &mut frame.buf.bytes_mut()[HEADROOM as usize..];
            match self.told.pop_front() {
                Some(Told { bytes, len }) => {
                    slot[..len].copy_from_slice(&bytes[..len]);
                    frame.len = len as u16;
                }
                None => {
                    frame.len = self.write_next(slot);
                    if self.ends.six {
                        six::to_six(&mut frame);
                    }
                }
            }
            out(frame);
            given += 1;
        }
        self.counts.add(Kind::FramesIn, given as u64);
        self.clock_out(start, given as u64);
    }

    /// Whether there is something to hand to the server.
    pub fn has_work(&self) -> bool {
        !self.due.is_empty()
            || !self.told.is_empty()
            || self.epoch != self.plan.epoch()
            || self.pace.is_some()
            || self.again.as_ref().is_some_and(|again| !again.is_empty())
            || self.can_begin()
    }

    /// Takes frames that the server sent; they stay the caller's.
    #[inline(never)]
    pub fn take<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>) {
        let start = Instant::now();
        self.clock_in(start);
        let mut n = 0;
        for frame in frames {
            self.receive(frame);
            n += 1;
        }
        self.counts.add(Kind::FramesOut, n);
        self.clock_out(start, n);
    }

    /// Takes back the frames that a server is done with which has no buffers of its own.
    #[inline(never)]
    pub fn take_back(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) {
        let start = Instant::now();
        self.clock_in(start);
        let n = frames.len() as u64;
        for frame in frames.drain(..) {
            pool.free(frame.buf);
        }
        self.clock_out(start, n);
    }

    fn clock_in(&mut self, start: Instant) {
        if let Some(pace) = &mut self.pace {
            pace.readings.enters(start);
        }
    }

    /// Ends a call that began at `start` and was about so many frames.
    fn clock_out(&mut self, start: Instant, frames: u64) {
        let now = Instant::now();
        let inside = now.saturating_duration_since(start);
        self.counts.add(Kind::InsideNs, inside.as_nanos() as u64);
        self.plan.ends[self.index].publish(&self.counts);
        if let Some(pace) = &mut self.pace {
            pace.readings.leaves(start, now, frames);
        }
    }

    fn follow_plan(&mut self) {
        let epoch = self.plan.epoch();
        if epoch == self.epoch {
            return;
        }
        let acknowledged = self.acknowledges_at_once();
        self.epoch = epoch;
        self.phase = self.plan.phase();
        self.interleaved = self.plan.is_interleaved();
        self.in_pieces = self.plan.is_in_pieces();
        self.once = self.once.take().or_else(|| self.plan.once());
        self.follow_pace();
        let share = self.phase.window / self.queues;
        self.credit = share + u32::from((self.index as u32) < self.phase.window % self.queues);
        if !acknowledged {
            // Responses that the next request would have acknowledged.
            let (app, plan) = (&self.app, &self.plan);
            let lengths = lengths(app, plan);
            self.idle
                .each(|parked| self.due.push_back(wake_up(parked, lengths, What::Ack)));
        }
    }

    fn follow_pace(&mut self) {
        if let Some(pace) = self.pace.take() {
            let (samples, record) = pace.finish();
            self.plan.hand_in(samples, record);
        }
        let rate = self.plan.rate() / f64::from(self.queues);
        if rate > 0.0 && matches!(self.phase.mode, Mode::Short | Mode::Requests) {
            let samples = self.plan.take_room();
            let seed = self.index as u64 + 1;
            let (since, due) = (self.plan.since(), self.plan.due());
            self.pace = Some(Pace::new(since, due, rate, samples, seed));
        }
        if self.phase.mode == Mode::Requests {
            self.again = (rate > 0.0).then(|| Again::new(self.plan.waiting()));
        }
    }

    /// Sends requests again that have waited for too long.
    fn repeat(&mut self) {
        let Some(again) = &mut self.again else { return };
        let now_ns = self.plan.since().now_ns();
        while let Some(request) = again.next(now_ns) {
            self.due.push_back(request);
            self.counts.add(Kind::Again, 1);
        }
    }

    /// Short connections, or requests, whose time has come.
    fn begin_by_pace(&mut self, mut left: usize) {
        let requests = self.phase.mode == Mode::Requests;
        if !requests {
            // One window for all ends: what this one has begun ends at another where the shard is another's.
            left = left.min(self.plan.room(self.phase.window));
        }
        let Some(pace) = &mut self.pace else { return };
        while left > 0 {
            let Some(due_ns) = pace.next_due() else {
                return;
            };
            let due = if requests {
                let lengths = lengths(&self.app, &self.plan);
                let opened = self.plan.held_begun();
                let Some(parked) = self.idle.wake(lengths, opened) else {
                    return;
                };
                wake_up(&parked, lengths, What::Request)
            } else {
                Self::syn(self.plan.take_short())
            };
            pace.began(due.conn, due_ns);
            if let Some(once) = &self.once {
                once.begins(due.conn);
            }
            if let Some(again) = &mut self.again {
                again.begins(due.conn, due_ns, due);
            }
            self.due.push_back(due);
            self.counts.add(Kind::Begun, 1);
            left -= 1;
        }
    }

    /// With more connections than are in use at a time, a response would wait for its acknowledgement until its
    /// connection's next turn; a client sends one of its own then. Else the next request carries it.
    fn acknowledges_at_once(&self) -> bool {
        self.phase.mode != Mode::Requests || self.phase.held > self.phase.window
    }

    fn can_begin(&self) -> bool {
        self.credit > 0
            && match self.phase.mode {
                Mode::Idle => false,
                Mode::Open => self.plan.held_begun() < self.phase.held,
                Mode::Short => true,
                Mode::Requests | Mode::Close => !self.idle.is_empty(),
            }
    }

    /// Begins what the phase asks for, as far as the window allows.
    fn begin(&mut self, room: usize) {
        let mut left = if self.interleaved {
            usize::MAX
        } else {
            room.saturating_sub(self.due.len())
        };
        if self.pace.is_some() {
            return self.begin_by_pace(left);
        }
        while left > 0 && self.credit > 0 {
            left -= 1;
            let due = match self.phase.mode {
                Mode::Idle => return,
                Mode::Open => match self.plan.take_held(self.phase.held) {
                    Some(conn) => Self::syn(conn),
                    None => return,
                },
                Mode::Short => Self::syn(self.plan.take_short()),
                Mode::Requests | Mode::Close => {
                    let lengths = lengths(&self.app, &self.plan);
                    let opened = self.plan.held_begun();
                    let Some(parked) = self.idle.wake(lengths, opened) else {
                        return;
                    };
                    let what = if self.phase.mode == Mode::Close {
                        What::Fin
                    } else {
                        What::Request
                    };
                    wake_up(&parked, lengths, what)
                }
            };
            if let Some(once) = &self.once {
                once.begins(due.conn);
            }
            self.due.push_back(due);
            self.credit -= 1;
            self.counts.add(Kind::Begun, 1);
        }
    }

    /// Whether what ends there has ended before.
    fn is_over(&self, conn: u32) -> bool {
        self.once.as_ref().is_some_and(|once| !once.ends(conn))
    }

    fn end(&mut self) {
        self.credit += 1;
        self.counts.add(Kind::Ended, 1);
    }

    fn syn(conn: u32) -> Due {
        Due {
            conn,
            seq: first_seq(conn),
            ack: 0,
            ts_val: TS_SYN,
            ts_echo: 0,
            what: What::Syn,
        }
    }

    /// Writes the packet that is due next; returns its length.
    fn write_next(&mut self, slot: &mut [u8]) -> u16 {
        let Some(due) = self.due.pop_front() else {
            return 0;
        };
        let flags = match due.what {
            What::Syn => Flags::SYN,
            What::Ack => Flags::ACK,
            What::Request | What::Rest => Flags::ACK | Flags::PSH,
            What::Fin => Flags::ACK | Flags::FIN,
        };
        let segment = Segment {
            conn: due.conn,
            seq: due.seq,
            ack: due.ack,
            flags,
            ts_val: due.ts_val,
            ts_echo: due.ts_echo,
        };
        let len = match (due.what, &self.app) {
            (What::Syn, _) => self.crafter.syn(slot, &segment),
            (What::Request, App::Echo | App::Sized(_)) => {
                self.crafter
                    .segment(slot, &segment, &echo_payload(&segment))
            }
            (What::Request, App::Http { request, .. }) => {
                let halves = request.split_at(request.len() / 2);
                if self.in_pieces && due.is_tenth() {
                    self.due.push_back(Due {
                        seq: due.seq.wrapping_add(halves.0.len() as u32),
                        what: What::Rest,
                        ..due
                    });
                    self.crafter.segment(slot, &segment, halves.0)
                } else {
                    self.crafter.segment(slot, &segment, request)
                }
            }
            (What::Rest, App::Http { request, .. }) => {
                let rest = &request[request.len() / 2..];
                self.crafter.segment(slot, &segment, rest)
            }
            _ => self.crafter.segment(slot, &segment, &[]),
        };
        len as u16
    }

    fn receive(&mut self, frame: &[u8]) {
        if self.ends.six {
            return self.receive_six(frame);
        }
        let read = packet::read(&self.ends, frame);
        self.look_at(read, frame);
    }

    #[inline(never)]
    fn receive_six(&mut self, frame: &[u8]) {
        let mut four = [0; FRAME_MAX];
        let read = six::to_four(frame, &mut four);
        let read = read.and_then(|len| packet::read(&self.ends, &four[..len]));
        self.look_at(read, frame);
    }

    #[inline]
    fn look_at(&mut self, read: Result<Answer<'_>, Wrong>, frame: &[u8]) {
        match read {
            Ok(answer) => {
                if let Err(kind) = self.answer(&answer) {
                    self.counts.add(kind, 1);
                }
            }
            Err(Wrong::Checksum) => self.counts.add(Kind::BadChecksum, 1),
            Err(Wrong::NotOurs) => self.tell(frame),
        }
    }

    /// Answers the server's question for an address.
    fn tell(&mut self, frame: &[u8]) {
        let mut bytes = [0; six::ADVERTISEMENT_LEN];
        let len = if self.ends.six {
            six::advertisement(&self.ends, frame, &mut bytes)
        } else {
            // Padded to what Ethernet carries at least.
            let reply = self.crafter.arp_reply(frame, &mut bytes);
            reply.map(|len| len.max(FRAME_MIN))
        };
        match len {
            Some(len) if self.told.len() < TOLD_MAX => self.told.push_back(Told { bytes, len }),
            _ => self.counts.add(Kind::BadOther, 1),
        }
    }

    /// Validates a segment of the server and decides what the client does about it. The error names what is wrong.
    fn answer(&mut self, a: &Answer<'_>) -> Result<(), Kind> {
        if a.flags.contains(Flags::RST) {
            return Err(Kind::Reset);
        }
        let ts = match self.untimed {
            None => a.ts,
            Some(_) => self.stands_for_timestamps(a),
        };
        let Some((ts_val, ts_echo)) = ts else {
            return Err(Kind::BadOther);
        };
        // How many bytes of ours the server has, its own SYN apart.
        let done = a.ack.wrapping_sub(first_seq(a.conn).wrapping_add(1));
        let due = |what, seq: u32, ack: u32, mine: u32| Due {
            conn: a.conn,
            seq,
            ack,
            ts_val: mine,
            ts_echo: ts_val,
            what,
        };
        if a.flags.contains(Flags::SYN) {
            if done != 0 || ts_echo != TS_SYN || !a.payload.is_empty() {
                return Err(Kind::BadSequence);
            }
            if let Some(pace) = &mut self.pace {
                pace.answered(a.conn);
            }
            let next = a.seq.wrapping_add(1);
            if self.plan.is_held(a.conn) {
                self.idle.opens(a.conn, next);
            }
            self.due.push_back(due(What::Ack, a.ack, next, ts_of(next)));
            self.due
                .push_back(due(What::Request, a.ack, next, ts_of(next)));
            return Ok(());
        }
        if a.payload.is_empty() && !a.flags.contains(Flags::FIN) {
            self.counts.add(Kind::PureAcks, 1);
            return Ok(());
        }
        let served = self.app.requests_in(done);
        let after_fin = done.wrapping_sub(served.wrapping_mul(self.app.request_len()));
        let has_part = !a.payload.is_empty() && matches!(self.app, App::Sized(_));
        let before = if has_part {
            // Where the server's numbers begin is known but for the highest bits.
            a.seq.wrapping_sub(ts_echo.wrapping_sub(TS_SYN + 1)) & SEQ_BITS
        } else {
            let served = served.wrapping_sub(u32::from(!a.payload.is_empty()));
            served.wrapping_mul(self.response_len())
        };
        if ts_of(a.seq.wrapping_sub(before)) != ts_echo || after_fin > 1 {
            return Err(Kind::BadSequence);
        }
        let next = a
            .seq
            .wrapping_add(a.payload.len() as u32)
            .wrapping_add(u32::from(a.flags.contains(Flags::FIN)));
        if !a.payload.is_empty() {
            if after_fin != 0 || served == 0 {
                return Err(Kind::BadSequence);
            }
            let is_right = if has_part {
                self.app.is_part(a, before)
            } else {
                self.app.is_response(a, served, self.learn_response_len(a))
            };
            if !is_right {
                return Err(Kind::BadPayload);
            }
            if has_part {
                let len = a.payload.len() as u32;
                self.counts.add(Kind::AnswerBytes, u64::from(len));
                if before + len < self.response_len() {
                    // Every second one is acknowledged at once, as a client that delays does.
                    if before / len % 2 == 1 {
                        self.due.push_back(due(What::Ack, a.ack, next, ts_echo));
                    }
                    return Ok(());
                }
            }
            if !a.flags.contains(Flags::FIN) {
                self.served(a, next, ts_echo, ts_val);
                return Ok(());
            }
        }
        // The server's FIN: after ours it is the end, before ours it takes ours along.
        let what = if after_fin == 1 { What::Ack } else { What::Fin };
        self.due.push_back(due(what, a.ack, next, ts_echo));
        if !self.is_over(a.conn) {
            self.end();
        }
        Ok(())
    }

    /// Returns the timestamps that a segment without any would carry, if its connection is known. A SYN makes it known.
    #[inline(never)]
    fn stands_for_timestamps(&mut self, a: &Answer<'_>) -> Option<(u32, u32)> {
        let table = self.untimed.as_mut()?;
        let at = a.conn as usize;
        if a.ts.is_some() {
            return None;
        }
        if !a.flags.contains(Flags::SYN) {
            return table.get(at).map(|mine| (0, *mine));
        }
        if at >= table.len() {
            table.resize((at + 1).next_power_of_two(), 0);
        }
        table[at] = ts_of(a.seq.wrapping_add(1));
        Some((0, TS_SYN))
    }

    fn response_len(&self) -> u32 {
        lengths(&self.app, &self.plan).response
    }

    /// The length of responses; that of this one when it is the first.
    fn learn_response_len(&self, a: &Answer<'_>) -> u32 {
        let known = self.response_len();
        if known > 0 {
            return known;
        }
        let len = a.payload.len() as u32;
        match self
            .plan
            .response_len
            .compare_exchange(0, len, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => len,
            Err(known) => known,
        }
    }

    /// A request was served: a held connection goes to rest, a short one is closed.
    fn served(&mut self, a: &Answer<'_>, next: u32, mine: u32, theirs: u32) {
        let due = |what| Due {
            conn: a.conn,
            seq: a.ack,
            ack: next,
            ts_val: mine,
            ts_echo: theirs,
            what,
        };
        if self.plan.is_held(a.conn) {
            if self.acknowledges_at_once() {
                self.due.push_back(due(What::Ack));
            }
            let parked = Parked {
                conn: a.conn,
                seq: a.ack,
                ack: next,
                ts_echo: theirs,
            };
            if self.again.as_ref().is_some_and(|it| !it.ends(a.conn)) || self.is_over(a.conn) {
                // The server sends it again, as it saw no acknowledgement.
                return;
            }
            self.idle.park(parked, self.phase.mode == Mode::Open);
            if let Some(pace) = &mut self.pace {
                pace.answered(a.conn);
            }
            self.end();
        } else {
            self.due.push_back(due(What::Fin));
        }
    }
}

/// Bytes of a request and of its answer; those of an answer may have to be learned.
fn lengths(app: &App, plan: &Plan) -> Lengths {
    Lengths {
        request: app.request_len(),
        response: app
            .answer_len()
            .unwrap_or_else(|| plan.response_len.load(Ordering::Relaxed)),
    }
}

/// Our initial sequence number on a connection: known from its number alone.
#[inline]
fn first_seq(conn: u32) -> u32 {
    conn.wrapping_mul(0x9e37_79b1) ^ 0x5bd1_e995
}

/// Our timestamp once the server's first sequence number is known.
#[inline]
fn ts_of(server_first: u32) -> u32 {
    TS_SYN + 1 + (server_first & SEQ_BITS)
}

fn echo_payload(segment: &Segment) -> [u8; ECHO_LEN] {
    echo_words(segment.conn, segment.seq, segment.ack)
}
