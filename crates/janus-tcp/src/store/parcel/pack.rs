//! All that a busy connection has in the stores, taken out and put in.

use janus_wire::StampBase;

use super::{Busy, Marked};
use crate::store::Store;
use crate::store::cold::NONE;
use crate::store::hot::hot_flag;
use crate::store::keys::{ConnSlot, HotId, Key, RecoveryId, SegId, TuningId};
use crate::store::segment::SegList;

/// Blocks that a busy connection needs, taken before anything is put into them.
pub(crate) struct Reserved {
    pub(crate) hot: HotId,
    segments: Vec<SegId>,
    recovery: [Option<RecoveryId>; 2],
    tuning: Option<TuningId>,
}

impl Store {
    /// Takes out all that hangs on a hot block, for the stack `to`. The block stays, with its
    /// places in queues and in the wheel.
    pub(crate) fn pack(&mut self, id: HotId, to: u16) -> Box<Busy> {
        let (block, blocks) = (&mut self.hot[id], &mut self.blocks);
        let mut hot = core::mem::take(block);
        core::mem::swap(&mut block.timers.timer, &mut hot.timers.timer);
        core::mem::swap(&mut block.timers.timer_at, &mut hot.timers.timer_at);
        block.flags = hot.flags & (hot_flag::QUEUED | hot_flag::STARVED);
        hot.conn = None;
        hot.sender.writer = NONE;

        let segments = &mut blocks.segments;
        let flight: Vec<SegId> = segments.chain(hot.sender.flight.head).collect();
        let unsent = segments.chain(hot.sender.unsent.head);
        let place = |wanted: Option<SegId>| {
            let mut queued = flight.iter().copied();
            queued.position(|id| Some(id) == wanted).map(|at| at as u32)
        };
        let probe = hot.path.probe.take();
        let probe = probe.and_then(|probe| {
            let mut queued = flight.iter().copied().chain(unsent);
            queued.position(|id| id == probe).map(|at| at as u32)
        });
        let mut marked = |id: RecoveryId| {
            let block = core::mem::take(&mut blocks.recovery[id]);
            blocks.recovery.free(id);
            Marked {
                sack_hint: place(block.sack_hint),
                lost_from: place(block.lost_from),
                decided: place(block.decided),
                block,
            }
        };
        let recovery = hot.loss.recovery.take().map(&mut marked);
        let doubt = blocks.doubts.remove(&id).map(marked);
        let tuning = hot.receiver.tuning.take().map(|tuning| {
            let measured = blocks.tunings[tuning];
            blocks.tunings.free(tuning);
            measured
        });
        let mut away = Vec::new();
        let mut take = |list: &mut SegList, away: &mut _| {
            let head = core::mem::take(list).head;
            blocks.segments.pack(head, to, away)
        };
        let flight = take(&mut hot.sender.flight, &mut away);
        let unsent = take(&mut hot.sender.unsent, &mut Vec::new());
        let inbox = take(&mut hot.receiver.inbox, &mut Vec::new());
        let reorder = core::mem::replace(&mut hot.receiver.reorder, NONE);
        let beyond = (reorder != NONE).then(|| {
            let (reorders, mut memory) = blocks.reordering();
            reorders.pack(reorder, &mut memory)
        });
        Box::new(Busy {
            flight,
            unsent,
            inbox,
            away,
            beyond,
            recovery,
            doubt,
            tuning,
            urgent: blocks.urgents.remove(&id),
            account: blocks.accounts.get(id.index() as usize).copied(),
            probe,
            hot,
        })
    }

    /// Takes the blocks that `busy` needs. `None`: there are not so many, and none is taken.
    pub(crate) fn reserve(&mut self, busy: &Busy) -> Option<Reserved> {
        let blocks = &mut self.blocks;
        let beyond = busy.beyond.as_ref().map_or(0, |beyond| beyond.slots());
        if !blocks.reorders.has_room_for(beyond) {
            return None;
        }
        let hot = self.hot.alloc()?;
        let Some(segments) = blocks.segments.reserve(busy.segments()) else {
            self.hot.free(hot);
            return None;
        };
        let marked = [&busy.recovery, &busy.doubt].map(Option::is_some);
        let reserved = Reserved {
            hot,
            segments,
            recovery: marked.map(|is| is.then(|| blocks.recovery.alloc()).flatten()),
            tuning: busy.tuning.and_then(|_| blocks.tunings.alloc()),
        };
        let complete = reserved.recovery.map(|id| id.is_some()) == marked
            && reserved.tuning.is_some() == busy.tuning.is_some();
        if complete {
            return Some(reserved);
        }
        self.give_back(reserved);
        None
    }

    /// Blocks are not needed after all.
    pub(crate) fn give_back(&mut self, reserved: Reserved) {
        let Reserved {
            hot,
            segments,
            recovery,
            tuning,
        } = reserved;
        self.hot.free(hot);
        self.blocks.segments.give_back(segments);
        for block in recovery.into_iter().flatten() {
            self.blocks.recovery.free(block);
        }
        if let Some(tuning) = tuning {
            self.blocks.tunings.free(tuning);
        }
    }

    /// Puts all into reserved blocks that a connection had elsewhere; its timestamps are counted from `stamps`. It has the hot block then,
    /// which stands in no queue.
    pub(crate) fn unpack(
        &mut self,
        conn: ConnSlot,
        busy: Busy,
        reserved: Reserved,
        stamps: StampBase,
    ) {
        let (id, block) = (reserved.hot, &mut self.hot[reserved.hot]);
        let timer = (block.timers.timer, block.timers.timer_at);
        *block = busy.hot;
        (block.timers.timer, block.timers.timer_at) = timer;
        (block.conn, block.timers.stamps) = (Some(conn), stamps);
        block.clear(hot_flag::QUEUED | hot_flag::STARVED);
        self.tcbs[conn].attach(id);

        let blocks = &mut self.blocks;
        let mut ids = reserved.segments.into_iter();
        let segments = &mut blocks.segments;
        block.sender.flight = segments.unpack(busy.flight, &busy.away, &mut ids);
        block.sender.unsent = segments.unpack(busy.unsent, &[], &mut ids);
        block.receiver.inbox = segments.unpack(busy.inbox, &[], &mut ids);
        let sent = segments.chain(block.sender.flight.head);
        let queued = sent.chain(segments.chain(block.sender.unsent.head));
        let queued: Vec<SegId> = queued.collect();
        let named = |place: Option<u32>| place.and_then(|at| queued.get(at as usize).copied());
        block.path.probe = named(busy.probe);
        for ((marked, id), doubts) in [busy.recovery, busy.doubt]
            .into_iter()
            .zip(reserved.recovery)
            .zip([false, true])
        {
            let (Some(marked), Some(place)) = (marked, id) else {
                continue;
            };
            let recovery = &mut blocks.recovery[place];
            *recovery = marked.block;
            recovery.sack_hint = named(marked.sack_hint);
            recovery.lost_from = named(marked.lost_from);
            recovery.decided = named(marked.decided);
            match doubts {
                true => {
                    blocks.doubts.insert(reserved.hot, place);
                }
                false => block.loss.recovery = Some(place),
            }
        }
        if let (Some(tuning), Some(place)) = (busy.tuning, reserved.tuning) {
            blocks.tunings[place] = tuning;
            block.receiver.tuning = Some(place);
        }
        if let Some(urgent) = busy.urgent {
            blocks.urgents.insert(id, urgent);
        }
        if let Some(beyond) = busy.beyond {
            let (reorders, mut memory) = blocks.reordering();
            let waits = reorders.unpack(id, beyond, &mut ids, &mut memory);
            block.receiver.reorder = waits.unwrap_or(NONE);
        }
        blocks.segments.give_back(ids.collect());
    }
}
