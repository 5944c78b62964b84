//! Writing: what an application gives goes into segments behind room for their headers, as far as the send buffer lets it.

use janus_mem::{HEADROOM, SLOT_SIZE};

use crate::conn::Conn;
use crate::rules::error::Error;
use crate::rules::profile::WriteFlags;
use crate::store::cold::NONE;
use crate::store::hot::{Ending, hot_flag};
use crate::store::keys::SegId;
use crate::store::pressure::Pressure;
use crate::store::schedule::Token;
use crate::store::segment::{PAYLOAD_MAX, seg_flag};
use crate::time::Instant;

impl Conn<'_> {
    /// Sets the token that is woken when there is room to write.
    pub(crate) fn wait_to_write(&mut self, who: Option<Token>) {
        self.hot.sender.writer = who.map_or(NONE, |t| t.0);
        if who.is_some() && self.blocks.shortage.level == Pressure::Critical {
            // Also one that asked only whether it may write.
            self.await_window();
        }
    }

    /// No cork, no Nagle's algorithm and no wait for more holds what is queued.
    pub(crate) fn push(&mut self) {
        if !self.hot.sender.unsent.is_empty() {
            self.hot.sender.ending = Ending::Push;
            self.queue();
        }
    }

    /// The connection has other socket options: a delayed acknowledgement leaves now if they say so, and so do, when TCP_NODELAY
    /// was set (`pushes`), segments that were held back.
    pub(crate) fn options_changed(&mut self, quick_ack: bool, pushes: bool) {
        if quick_ack && self.hot.timers.ack_at != Instant::NEVER {
            self.hot.set(hot_flag::ACK_NOW);
        }
        if pushes {
            self.cork_is_over();
        }
        // Segments that corks or Nagle's algorithm held back may go.
        if !self.hot.is_idle() {
            self.queue();
        }
    }

    #[inline(always)]
    pub(crate) fn write(&mut self, bytes: &[u8], flags: WriteFlags) -> Result<usize, Error> {
        match self.write_alone(bytes, flags) {
            Some(taken) => Ok(taken),
            None => self.write_in_pieces(bytes, flags),
        }
    }

    /// Makes one segment of all `bytes`, as nearly all answers are: nothing is queued that they could join, and there is room.
    #[inline(always)]
    fn write_alone(&mut self, bytes: &[u8], flags: WriteFlags) -> Option<usize> {
        let mss = self.tcb.payload_mss().min(PAYLOAD_MAX);
        let sender = &self.hot.sender;
        let is_small = bytes.len() <= usize::from(mss) && self.tcb.mss == sender.mss_full;
        let may_have_all = self.blocks.shortage.level != Pressure::Critical;
        if !is_small || !may_have_all || !sender.unsent.is_empty() {
            return None;
        }
        if self.send_room() < bytes.len() {
            return None;
        }
        let (_, taken) = self.queue_segment(bytes)?;
        self.took_room(taken as u32);
        self.finish_write(flags);
        Some(taken)
    }

    #[inline(never)]
    fn write_in_pieces(&mut self, bytes: &[u8], flags: WriteFlags) -> Result<usize, Error> {
        let before = self.hot.sender.unsent.tail;
        let (mut done, mut joined) = (0, false);
        while done < bytes.len() {
            let room = self.send_room().min(bytes.len() - done);
            if room == 0 {
                break;
            }
            let (taken, by_last) = self.append_to(&bytes[done..done + room]);
            self.took_room(taken as u32);
            joined |= by_last && done == 0;
            done += taken;
            if taken < room {
                break;
            }
        }
        if done == 0 {
            if self.send_room() > 0 {
                self.defer_write(bytes.len());
            }
            return Err(Error::WouldBlock);
        }
        // One that was the last and is filled up pushes no more (SHLD-27).
        if joined && before != self.hot.sender.unsent.tail {
            self.blocks.segments[before].flags &= !seg_flag::PSH;
        }
        self.finish_write(flags);
        Ok(done)
    }

    /// Puts bytes behind what is queued, as far as there are packet buffers; how many, and whether the last segment took some.
    #[inline(always)]
    fn append_to(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mss = self.tcb.payload_mss().min(PAYLOAD_MAX);
        let mut done = match self.blocks.shortage.level {
            Pressure::Critical => self.fill_tail(self.what_leaves_too(bytes), mss),
            _ => self.fill_tail(bytes, mss),
        };
        let joined = done > 0;
        // There was room for all of it by its bytes, but each new segment counts more than a few of those.
        let mut room_known = true;
        if self.tcb.mss != self.hot.sender.mss_full {
            done += self.write_probe(&bytes[done..]);
            room_known = self.rules.config().count_as_linux;
        }
        while done < bytes.len() && (room_known || self.send_room() > 0) {
            let n = usize::from(mss).min(bytes.len() - done);
            let Some((_, taken)) = self.queue_segment(&bytes[done..done + n]) else {
                break;
            };
            done += taken;
            room_known = self.rules.config().count_as_linux;
        }
        (done, joined)
    }

    /// Sets how the bytes just written, at the end of the queue, are to leave.
    #[inline(always)]
    pub(crate) fn finish_write(&mut self, flags: WriteFlags) {
        let hot = &mut *self.hot;
        hot.sender.ending = match flags {
            WriteFlags { more: true, .. } => Ending::More,
            _ => Ending::Usual,
        };
        hot.sender.record_ended = flags.end_of_record;
        if !flags.more {
            // MUST-61: the last segment of what is buffered pushes.
            self.blocks.segments[hot.sender.unsent.tail].flags |= seg_flag::PSH;
        }
        if flags.urgent {
            self.end_is_urgent();
        }
        self.queue();
    }

    /// A new unsent segment with a copy of `bytes`, if there is a buffer for it, and how many of them it took: when memory is
    /// short perhaps not all.
    #[inline(always)]
    pub(crate) fn queue_segment(&mut self, bytes: &[u8]) -> Option<(SegId, usize)> {
        let taken = self.may_take_buffer(bytes.len())?;
        let bytes = &bytes[..taken];
        let mut buf = self.blocks.pool.alloc()?;
        // They are written when the segment leaves, after those of all others of this turn.
        buf.prefetch_headers();
        let from = usize::from(HEADROOM);
        buf.bytes_mut()[from..from + bytes.len()].copy_from_slice(bytes);
        let (hot, len) = (&mut *self.hot, bytes.len() as u16);
        let unsent = &mut hot.sender.unsent;
        match self.blocks.segments.append(unsent, buf, (HEADROOM, len), 0) {
            Ok(seg) => {
                (hot.sender.ending, hot.sender.record_ended) = (Ending::Usual, false);
                Some((seg, taken))
            }
            Err(buf) => {
                self.blocks.pool.free(buf);
                None
            }
        }
    }

    /// Small writes join the last unsent segment.
    /// Keeps SHLD-27, SHLD-28.
    #[inline(always)]
    fn fill_tail(&mut self, bytes: &[u8], mss: u16) -> usize {
        match self.hot.sender.unsent.tail {
            Some(_) if !self.hot.sender.record_ended => self.fill_last(bytes, mss),
            _ => 0,
        }
    }

    fn fill_last(&mut self, bytes: &[u8], mss: u16) -> usize {
        let unsent = &mut self.hot.sender.unsent;
        let seg = &mut self.blocks.segments[unsent.tail];
        let end = usize::from(seg.off) + usize::from(seg.len);
        let room = usize::from(mss.saturating_sub(seg.len)).min(SLOT_SIZE - end);
        let n = room.min(bytes.len());
        if let Some(buf) = &mut seg.buf {
            buf.bytes_mut()[end..end + n].copy_from_slice(&bytes[..n]);
            seg.len += n as u16;
            unsent.bytes += n as u32;
            return n;
        }
        0
    }
}
