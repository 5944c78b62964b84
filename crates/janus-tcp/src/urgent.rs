//! The urgent pointer (RFC 9293 section 3.8.5, RFC 6093): it names the octet behind the urgent data, which may be of any
//! length and is delivered in line with the rest. Kept beside the hot block, and only while such data is queued: an
//! idle connection has nothing urgent. New applications should not use it (SHLD-13); middleboxes clear it.

use std::collections::BTreeMap;

use janus_mem::{Frame, PacketBuf};
use janus_wire::tcp::{self, Flags};
use janus_wire::{FlowKey, SeqNum, ipv4, ipv6};

use crate::cold::{NONE, flag};
use crate::error::Error;
use crate::hot::hot_flag;
use crate::parse::Parsed;
use crate::stack::{ConnId, Stack};
use crate::time::Instant;
use crate::write::Manner;

/// Where flags, checksum and urgent pointer stand in a TCP header.
const FLAGS_AT: usize = 13;
const CHECKSUM_AT: usize = 16;
const POINTER_AT: usize = 18;

/// Connections on which something is urgent at a time; on others it is data like any other.
const MAX_URGENT: usize = 1 << 14;

/// What is urgent, by hot block. Beside them, because hardly anyone uses it.
pub(crate) type Urgents = BTreeMap<u32, Urgent>;

/// What is urgent on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgent {
    /// The end of what we were told to send as urgent, until it is acknowledged.
    pub(crate) sent: Option<SeqNum>,
    /// The end of what the peer called urgent, until it is read.
    pub(crate) received: Option<SeqNum>,
}

impl Stack {
    /// Writes as [`Stack::write`] does, and calls all that is queued up to here urgent.
    pub fn write_urgent(&mut self, now: Instant, id: ConnId, bytes: &[u8]) -> Result<usize, Error> {
        let urgent = Manner {
            urgent: true,
            ..Manner::default()
        };
        self.write_as(now, id, bytes, urgent)
    }

    /// All that is queued is urgent.
    pub(crate) fn end_is_urgent(&mut self, id: u32) {
        let hot = &self.hot[id];
        let end = self.cold[hot.conn].snd_nxt + hot.unsent.bytes;
        if let Some(urgent) = self.urgent_of(id) {
            urgent.sent = Some(end);
        }
    }

    /// How many bytes are still to be read until the urgent data ends (MUST-33): 1 says that the next byte is its last,
    /// the mark of older interfaces. Reading stops before that byte once. `None`: nothing is urgent.
    pub fn urgent(&self, id: ConnId) -> Result<Option<u32>, Error> {
        let conn = self.conn(id)?;
        let left = match self.cold[conn].hot {
            NONE => 0,
            hot => self.urgent_left(conn, hot),
        };
        Ok((left > 0).then_some(left))
    }

    fn urgent_left(&self, conn: u32, hot: u32) -> u32 {
        let Some(end) = self.urgents.get(&hot).and_then(|urgent| urgent.received) else {
            return 0;
        };
        let (cold, hot) = (&self.cold[conn], &self.hot[hot]);
        let fin = u32::from(cold.has(flag::PEER_FIN));
        let read = cold.rcv_nxt + 0u32.wrapping_sub(hot.inbox.bytes + fin);
        (end - read).max(0) as u32
    }

    /// Whether the mark lies in what is still to come: it is remembered in the hot block.
    pub(crate) fn awaits_urgent(&self, conn: u32, hot: u32) -> bool {
        self.cold[conn].state.can_receive()
            && !self.cold[conn].has(flag::ORPHAN)
            && self.urgent_left(conn, hot) > 0
    }

    /// Whether the next segment to be sent is urgent. Such data waits for nothing but windows (Linux: tcp_nagle_test).
    pub(crate) fn sends_urgent(&self, conn: u32, hot: u32) -> bool {
        self.hot[hot].has(hot_flag::URGENT)
            && self
                .urgents
                .get(&hot)
                .and_then(|urgent| urgent.sent)
                .is_some_and(|end| end.gt(self.cold[conn].snd_nxt))
    }

    /// Sixth check of section 3.10.7.4: the pointer moves forward only, and the application is told when it does
    /// (MUST-32), also while our window is shut (MUST-66).
    pub(crate) fn urgent_arrives(&mut self, conn: u32, p: &Parsed, frame: &Frame, now: Instant) {
        let pointer = p.urgent_pointer(frame);
        let end = p.seq + u32::from(pointer);
        let cold = &self.cold[conn];
        if pointer == 0 || !cold.state.can_receive() || cold.has(flag::ORPHAN) {
            return;
        }
        if end.le(cold.rcv_nxt) && p.payload_len == 0 {
            return;
        }
        let Some(hot) = self.heat(conn, now) else {
            return;
        };
        let Some(urgent) = self.urgent_of(hot) else {
            return;
        };
        if urgent.received.is_none_or(|known| end.gt(known)) {
            urgent.received = Some(end);
            self.wake_reader(conn);
        }
    }

    /// What is urgent on the connection of a hot block, if there is room for it.
    fn urgent_of(&mut self, hot: u32) -> Option<&mut Urgent> {
        if self.urgents.len() >= MAX_URGENT && !self.urgents.contains_key(&hot) {
            self.counters.urgent_ignored += 1;
            return None;
        }
        self.hot[hot].set(hot_flag::URGENT);
        Some(self.urgents.entry(hot).or_default())
    }

    /// Nothing is urgent any more.
    pub(crate) fn forget_urgent(&mut self, hot: u32) {
        if self.hot[hot].has(hot_flag::URGENT) {
            self.hot[hot].clear(hot_flag::URGENT);
            self.urgents.remove(&hot);
        }
    }

    /// How many of `wanted` bytes one read may give: it stops right before the last urgent byte, as reads do elsewhere, so
    /// that the application can see where it is.
    pub(crate) fn up_to_mark(&mut self, conn: u32, hot: u32, wanted: usize) -> usize {
        match self.urgent_left(conn, hot) as usize {
            0 => {
                if let Some(urgent) = self.urgents.get_mut(&hot) {
                    urgent.received = None;
                }
                wanted
            }
            1 => wanted,
            left => wanted.min(left - 1),
        }
    }

    /// Puts the pointer into a segment that is written already and begins at `seq`, if urgent data ends behind that.
    /// What lies further away than the field can say is named when it comes nearer.
    pub(crate) fn mark_urgent(
        &mut self,
        id: u32,
        key: &FlowKey,
        seq: SeqNum,
        buf: &mut PacketBuf,
        len: u16,
    ) {
        let Some(urgent) = self.urgents.get_mut(&id) else {
            return;
        };
        let Some(end) = urgent.sent else {
            return;
        };
        if end.le(self.hot[id].snd_una) {
            urgent.sent = None;
            return;
        }
        let Ok(ahead) = u32::try_from(end - seq) else {
            return;
        };
        let ip = match key {
            FlowKey::V4(_) => ipv4::LEN,
            FlowKey::V6(_) => ipv6::LEN,
        };
        let start = usize::from(buf.off());
        let tcp_at = start + self.interface.link.header_len() + ip;
        let segment = &mut buf.bytes_mut()[tcp_at..start + usize::from(len)];
        if ahead == 0 {
            return;
        }
        segment[FLAGS_AT] |= Flags::URG.0;
        let pointer = ahead.min(0xffff) as u16;
        segment[POINTER_AT..POINTER_AT + 2].copy_from_slice(&pointer.to_be_bytes());
        if !self.interface.tx_checksum {
            segment[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
            match key {
                FlowKey::V4(key) => tcp::fill_checksum_v4(segment, key.local, key.peer),
                FlowKey::V6(key) => tcp::fill_checksum_v6(segment, key.local, key.peer),
            };
        }
    }
}
