//! Connections that leave the stack as parcels, and those that come. At each moment a connection is in one stack or in a parcel: a stack that
//! has given it away knows nothing of it, and one that refuses it gives the parcel back as it was.

use janus_mem::{Frame, PacketBuf};
use janus_wire::{FlowKey, StampBase};

use crate::rules::error::Error;
use crate::rules::profile::DEFAULT;
use crate::stack::Stack;
use crate::store::cold::{NONE, State, Tcb, flag};
use crate::store::half_open::HalfOpen;
use crate::store::hot::hot_flag;
use crate::store::keys::{ConnId, ConnSlot, HotId};
use crate::store::listener::ListenerId;
use crate::store::parcel::{Connection, Content, Parcel, Place, Refusal, Refused};
use crate::store::records::Record;
use crate::store::rest::Rest;
use crate::store::schedule::Token;
use crate::store::segment::{Homecoming, Ticket};
use crate::store::time_wait::TimeWait;
use crate::time::Instant;

/// A connection that has left its stack, and the tokens of those who waited for it there. The stack wakes them no more.
#[derive(Debug)]
pub struct Detached {
    /// The connection.
    pub parcel: Parcel,
    /// Waker of a reader.
    pub reader: Option<Token>,
    /// Waker of a writer.
    pub writer: Option<Token>,
}

impl From<Parcel> for Detached {
    fn from(parcel: Parcel) -> Detached {
        Detached {
            parcel,
            reader: None,
            writer: None,
        }
    }
}

/// Leaving.
impl Stack {
    /// Takes a connection that an application has out of the stack, be it open or over. Buffers of it that are on the wire come out of
    /// [`Stack::pop_homecoming`] for `to` once they are home.
    pub fn detach(&mut self, now: Instant, id: ConnId, to: u16) -> Result<Detached, Error> {
        self.env.set_now(now);
        let conn = self.conn(id)?;
        Ok(self.detach_connection(conn, Place::Owned, to))
    }

    /// Like [`Stack::detach`], for whatever the stack has of a flow: a connection with or without an owner, one that waits to be accepted,
    /// a handshake that is not done, a record in TIME-WAIT. [`Error::Stale`]: nothing.
    pub fn detach_flow(
        &mut self,
        now: Instant,
        flow: &FlowKey,
        to: u16,
    ) -> Result<Detached, Error> {
        self.env.set_now(now);
        match self.record_of(flow) {
            Some(Record::Connection(conn)) => {
                let orphan = self.store.tcbs[conn].has(flag::ORPHAN);
                let listeners = &mut self.index.listeners;
                let place = match orphan {
                    true => Place::Orphan,
                    false if listeners.withdraw(flow.local_port(), conn) => Place::Waiting,
                    false => Place::Owned,
                };
                Ok(self.detach_connection(conn, place, to))
            }
            Some(Record::HalfOpen(slot)) => {
                let mut record = *self.index.half_open.get(slot);
                self.drop_half_open(slot);
                record.stamps = self.frozen(record.stamps);
                Ok(self.parcel(*flow, Content::HalfOpen(record)).into())
            }
            Some(Record::TimeWait(slot)) => {
                let mut record = *self.index.time_wait.get(slot);
                self.drop_time_wait(slot);
                record.stamps = self.frozen(record.stamps);
                Ok(self.parcel(*flow, Content::TimeWait(record)).into())
            }
            Some(Record::Stub(_)) | None => Err(Error::Stale),
        }
    }

    /// Like [`Stack::detach`], for the connection that has waited longest to be accepted.
    pub fn detach_waiting(
        &mut self,
        now: Instant,
        listener: ListenerId,
        to: u16,
    ) -> Result<Detached, Error> {
        self.env.set_now(now);
        let conn = self.index.listeners.pop(listener)?.conn;
        Ok(self.detach_connection(conn, Place::Waiting, to))
    }

    fn parcel(&mut self, flow: FlowKey, content: Content) -> Parcel {
        self.env.counters.detached += 1;
        let parcel = Parcel {
            flow,
            made: self.env.now,
            content,
        };
        debug_assert!(parcel.is_sound(), "{parcel:?}");
        parcel
    }

    /// The timestamp of this moment, in place of what timestamps are counted from.
    fn frozen(&self, base: StampBase) -> StampBase {
        StampBase::from_bits(self.rules.timestamp(base, self.env.now_ms))
    }

    fn detach_connection(&mut self, conn: ConnSlot, place: Place, to: u16) -> Detached {
        // Without what only says how it was until now.
        self.release_if_idle(conn);
        let (flow, base) = (self.key_of(conn), self.stamps_of(conn));
        let mut tcb = self.store.tcbs[conn];
        let options = self.rules.profiles().get(tcb.profile);
        let options = (tcb.profile != DEFAULT).then(|| Box::new(*options));
        let answered = self.index.limits.known(conn, tcb.generation);
        let sizes = &self.env.paths.sizes;
        let path = match sizes.is_empty() {
            true => None,
            false => sizes.known(flow.peer(), self.env.now),
        };
        let looked_ms = self.looked_at(conn);
        let rest = Rest::of_word(tcb.reader);
        self.left_rest(tcb.reader);
        let reader = (rest.is_none() && tcb.reader != NONE).then_some(Token(tcb.reader));
        let mut writer = NONE;
        let busy = tcb.hot().map(|id| {
            writer = self.store.hot[id].sender.writer;
            let busy = self.store.pack(id, to);
            self.block_is_left(id);
            busy
        });
        if tcb.state != State::Closed {
            let hash = self.index.hash.flow(&flow);
            let record = Record::Connection(conn).encode();
            self.index.table.remove(hash, record);
        }
        let cold = &mut self.store.tcbs[conn];
        cold.detach(base);
        cold.state = State::Closed;
        self.release(conn);
        if self.index.established == Some(conn) {
            self.index.established = None;
        }
        (tcb.reader, tcb.generation, tcb.profile) = (NONE, 0, DEFAULT);
        tcb.detach(self.frozen(base));
        let content = Content::Connection(Connection {
            tcb,
            place,
            rest,
            options,
            answered,
            looked_ms,
            path: path.map(Box::new),
            busy,
        });
        Detached {
            parcel: self.parcel(flow, content),
            reader,
            writer: (writer != NONE).then_some(Token(writer)),
        }
    }

    /// A hot block serves no connection any more: it goes, or will when the queues that name it have come to it.
    pub(crate) fn block_is_left(&mut self, id: HotId) {
        let hot = &self.store.hot[id];
        if hot.conn.is_none() && !hot.has(hot_flag::QUEUED | hot_flag::STARVED) {
            self.store.hot.free(id);
        }
    }

    /// The next buffer that has come home after its connection had left.
    pub fn pop_homecoming(&mut self) -> Option<Homecoming> {
        self.store.blocks.segments.pop_homecoming()
    }

    /// A parcel that came here goes on to `to` as it is: buffers that come for it follow.
    pub fn pass_on(&mut self, parcel: &Parcel, to: u16) {
        for ticket in parcel.tickets() {
            self.store.blocks.segments.pass_on(ticket, to);
        }
    }

    /// A parcel that was made here goes nowhere: buffers of it on the wire come home for `me`, which this shard is.
    pub fn keep(&mut self, parcel: &Parcel, me: u16) {
        for ticket in parcel.tickets() {
            self.store.blocks.segments.stay(ticket, me);
        }
    }

    /// Whether there is one.
    pub fn has_homecoming(&self) -> bool {
        self.store.blocks.segments.has_homecoming()
    }

    /// Takes in a buffer that was on the wire of the stack that a connection came from.
    pub fn comes_home(&mut self, ticket: Ticket, buf: PacketBuf) {
        let blocks = &mut self.store.blocks;
        blocks.segments.comes_home(ticket, buf, &mut blocks.pool);
    }

    /// Buffers on the wire whose connections have left, or came without them.
    pub fn homes_awaited(&self) -> usize {
        self.store.blocks.segments.homes_awaited()
    }
}

/// Another stack in the place of one whose connections are lost.
impl Stack {
    /// Takes over what the stack before this one owed to connections that live elsewhere: stubs that lead to them, and buffers that the
    /// device still has. This one has had no connection yet.
    pub fn inherit(&mut self, before: &mut Stack) {
        before.each_stub(|flow, shard, moved| {
            let _full = match moved {
                Some(moved) => self.leave_stub(flow, shard, moved),
                None => self.add_stub(flow, shard),
            };
        });
        let owed = before.store.blocks.segments.take_homes();
        self.store.blocks.segments.inherit(owed);
    }

    /// [`Stack::completed`] for a frame that the stack before this one sent. This one must not have lent any.
    #[cold]
    pub fn completed_before(&mut self, frame: Frame) {
        let blocks = &mut self.store.blocks;
        let segments = &mut blocks.segments;
        segments.inherited_came_home(frame.key, frame.buf, &mut blocks.pool);
    }
}

/// Coming.
impl Stack {
    /// Takes in a connection, which goes on as if it had always been here. Returns its name, if it is more than a record; an application
    /// that has it wakes for nothing that came before: it looks, and waits anew. Where a stub stands for the flow, it goes.
    pub fn adopt(&mut self, now: Instant, parcel: Parcel) -> Result<Option<ConnId>, Box<Refused>> {
        self.env.set_now(now);
        let Parcel {
            flow,
            made,
            content,
        } = parcel;
        let refused = |content, why| {
            let parcel = Parcel {
                flow,
                made,
                content,
            };
            Box::new(Refused { parcel, why })
        };
        let adopted = match content {
            Content::Connection(conn) => self
                .adopt_connection(&flow, made, conn)
                .map(Some)
                .map_err(|(conn, why)| refused(Content::Connection(conn), why))?,
            Content::HalfOpen(record) => self
                .adopt_half_open(&flow, made, record)
                .map(|()| None)
                .map_err(|why| refused(Content::HalfOpen(record), why))?,
            Content::TimeWait(record) => self
                .adopt_time_wait(&flow, made, record)
                .map(|()| None)
                .map_err(|why| refused(Content::TimeWait(record), why))?,
        };
        self.env.counters.adopted += 1;
        Ok(adopted)
    }

    /// Whether the flow may live here.
    fn may_come(&self, flow: &FlowKey, hash: u64) -> Result<(), Refusal> {
        if !self.rules.interface().is_ours(flow.local()) {
            return Err(Refusal::NotOurs);
        }
        match self.find(flow, hash) {
            None | Some(Record::Stub(_)) => Ok(()),
            Some(_) => Err(Refusal::Taken),
        }
    }

    /// A buffer on a wire comes home to one segment: another with its number would wait for ever.
    fn may_buffers_come(&self, conn: &Connection) -> Result<(), Refusal> {
        let segments = &self.store.blocks.segments;
        let mut away = conn.busy.iter().flat_map(|busy| &busy.away);
        match away.any(|(_, ticket)| segments.is_expected(*ticket)) {
            true => Err(Refusal::Taken),
            false => Ok(()),
        }
    }

    /// Files a flow that comes, in place of a stub if there is one.
    fn file_newcomer(&mut self, flow: &FlowKey, hash: u64, record: Record) -> Result<(), Refusal> {
        if let Some(shard) = self.stub_of(flow) {
            self.remove_stub(flow, shard);
        }
        let filed = self.file(hash, record);
        filed.then(|| self.moved(flow)).ok_or(Refusal::Full)
    }

    /// Timestamps go on from `frozen`, which were sent at `made`.
    fn resumed(&self, flow: &FlowKey, made: Instant, frozen: StampBase) -> StampBase {
        let stamps = self.rules.secrets().stamps();
        let hash = stamps.hash(flow);
        stamps.resume(hash, frozen.to_bits(), made.as_millis() as u32)
    }

    fn adopt_half_open(
        &mut self,
        flow: &FlowKey,
        made: Instant,
        record: HalfOpen,
    ) -> Result<(), Refusal> {
        let hash = self.index.hash.flow(flow);
        self.may_come(flow, hash)?;
        let listener = self.index.listeners.find(flow, hash);
        let listener = listener.ok_or(Refusal::NoListener)?;
        let stamps = self.resumed(flow, made, record.stamps);
        let record = HalfOpen {
            stamps,
            listener: HalfOpen::of(listener).listener,
            ..record
        };
        let half_open = &mut self.index.half_open;
        let slot = half_open.adopt(flow, record).ok_or(Refusal::Full)?;
        if let Err(full) = self.file_newcomer(flow, hash, Record::HalfOpen(slot)) {
            self.index.half_open.remove(slot);
            return Err(full);
        }
        self.index.listeners.half_opened(listener);
        if record.tries > 1 {
            self.index.listeners.half_open_aged(listener);
        }
        Ok(())
    }

    fn adopt_time_wait(
        &mut self,
        flow: &FlowKey,
        made: Instant,
        record: TimeWait,
    ) -> Result<(), Refusal> {
        let hash = self.index.hash.flow(flow);
        self.may_come(flow, hash)?;
        let stamps = self.resumed(flow, made, record.stamps);
        let record = TimeWait { stamps, ..record };
        let (now, whole) = (self.env.now, self.rules.config().time_wait);
        let time_wait = &mut self.index.time_wait;
        let slot = time_wait.adopt(flow, record, now, whole);
        let slot = slot.ok_or(Refusal::Full)?;
        let filed = self.file_newcomer(flow, hash, Record::TimeWait(slot));
        filed.inspect_err(|_| self.index.time_wait.remove(slot))
    }

    fn adopt_connection(
        &mut self,
        flow: &FlowKey,
        made: Instant,
        parcel: Connection,
    ) -> Result<ConnId, (Connection, Refusal)> {
        let over = parcel.tcb.state == State::Closed;
        let hash = self.index.hash.flow(flow);
        let may = match over {
            true => Ok(()),
            false => self.may_come(flow, hash),
        };
        let may = may.and_then(|()| self.may_buffers_come(&parcel));
        let acceptable = may.and_then(|()| self.room_to_wait(flow, hash, parcel.place));
        let listener = match acceptable {
            Ok(listener) => listener,
            Err(why) => return Err((parcel, why)),
        };
        let profile = match &parcel.options {
            Some(options) => self.rules.profiles_mut().intern(options),
            None => Ok(DEFAULT),
        };
        let Ok(profile) = profile else {
            return Err((parcel, Refusal::TooManyOptionSets));
        };
        let Some(conn) = self.store.tcbs.alloc(flow) else {
            self.rules.profiles_mut().let_go(profile);
            return Err((parcel, Refusal::Full));
        };
        let stamps = self.resumed(flow, made, parcel.tcb.stamps());
        let cold = &mut self.store.tcbs[conn];
        let generation = cold.generation;
        *cold = Tcb {
            generation,
            ..parcel.tcb
        };
        cold.detach(stamps);
        let reserved = match &parcel.busy {
            Some(busy) => self.store.reserve(busy).map(Some),
            None => Some(None),
        };
        let Some(reserved) = reserved else {
            self.unadopt(conn, profile);
            return Err((parcel, Refusal::Full));
        };
        if !over && let Err(why) = self.file_newcomer(flow, hash, Record::Connection(conn)) {
            if let Some(reserved) = reserved {
                self.store.give_back(reserved);
            }
            self.unadopt(conn, profile);
            return Err((parcel, why));
        }
        let Connection {
            place,
            answered,
            looked_ms,
            path,
            busy,
            ..
        } = parcel;
        if profile != DEFAULT {
            self.join(conn, profile);
            self.look_soon(conn, looked_ms);
        }
        if !answered.is_none() {
            *self.index.limits.of_connection(conn, generation) = answered;
        }
        if let Some(path) = path {
            self.env.paths.sizes.learn(*path, self.env.now);
        }
        if let (Some(busy), Some(reserved)) = (busy, reserved) {
            let queued = busy.hot.has(hot_flag::QUEUED | hot_flag::STARVED);
            let account = busy.account;
            self.store.unpack(conn, *busy, reserved, stamps);
            self.with(conn, |c| c.settles(queued, account));
        }
        match place {
            Place::Owned => {}
            Place::Orphan => self.orphans += 1,
            Place::Waiting => {
                if let Some(listener) = listener {
                    self.queue_up(listener, 0, conn);
                }
            }
        }
        Ok(self.store.tcbs.id_of(conn))
    }

    /// There is no memory for a connection that has its record and its options already.
    #[cold]
    fn unadopt(&mut self, conn: ConnSlot, profile: u8) {
        self.rules.profiles_mut().let_go(profile);
        self.store.tcbs[conn].flags = 0;
        self.unmake(conn);
    }

    /// The listener in whose queue a connection is to wait, if it is.
    fn room_to_wait(
        &mut self,
        flow: &FlowKey,
        hash: u64,
        place: Place,
    ) -> Result<Option<ListenerId>, Refusal> {
        if place != Place::Waiting {
            return Ok(None);
        }
        let listener = self.index.listeners.find(flow, hash);
        let id = listener.ok_or(Refusal::NoListener)?;
        match self.index.listeners.get(id) {
            Some(listener) if listener.queue.len() < listener.backlog => Ok(Some(id)),
            _ => Err(Refusal::Full),
        }
    }
}

#[cfg(test)]
mod tests;
