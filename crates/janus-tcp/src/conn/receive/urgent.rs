//! The urgent pointer (RFC 9293 section 3.8.5, RFC 6093): it names the octet behind the urgent data, which may be of any
//! length and is delivered in line with the rest. Those who want its last octet aside, as old interfaces have it, find it here
//! and pass over it when they read. Kept beside the hot block, and only while such data is queued: an idle connection has
//! nothing urgent. New applications should not use it (SHLD-13); middleboxes clear it.

use janus_mem::Frame;
use janus_wire::SeqNum;

use crate::conn::{Conn, View};
use crate::store::cold::flag;
use crate::store::hot::hot_flag;
use crate::store::outgoing::Outgoing;
use crate::store::urgent::Urgent;
use crate::wire::parse::Parsed;

/// Connections on which something is urgent at a time; on others it is data like any other.
const MAX_URGENT: usize = 1 << 14;

/// Where urgent data ends, as one sees it who takes its last octet aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UrgentMark {
    /// Bytes still to be read until the urgent data ends, the last octet of it among them.
    pub left: u32,
    /// Number of the next bytes that were last octets before the pointer moved on: they are not of the stream for one who
    /// takes such aside (Linux: tcp_check_urg).
    pub passed: u32,
    /// The last octet has come, perhaps before others.
    pub here: bool,
    /// It was taken aside ([`Stack::take_urgent_octet`](crate::Stack::take_urgent_octet)).
    pub taken: bool,
}

impl View<'_> {
    /// Up to where octets that were marks once are to be passed over.
    fn passed(&self, urgent: &Urgent) -> u32 {
        let read = self.read_up_to();
        urgent.passed.map_or(0, |end| (end - read).max(0) as u32)
    }

    /// The number of the next byte that will be read.
    fn read_up_to(&self) -> SeqNum {
        let cold = self.tcb;
        let fin = u32::from(cold.has(flag::PEER_FIN));
        cold.rcv_nxt + 0u32.wrapping_sub(self.hot.receiver.inbox.bytes + fin)
    }

    pub(crate) fn urgent_left(&self) -> u32 {
        let Some(end) = self
            .blocks
            .urgents
            .get(&self.id)
            .and_then(|urgent| urgent.received)
        else {
            return 0;
        };
        (end - self.read_up_to()).max(0) as u32
    }

    pub(crate) fn urgent_mark(&self) -> Option<UrgentMark> {
        let left = self.urgent_left();
        let urgent = self.blocks.urgents.get(&self.id).filter(|_| left > 0)?;
        Some(UrgentMark {
            left,
            passed: self.passed(urgent),
            here: urgent.early.is_some() || left <= self.hot.receiver.inbox.bytes,
            taken: urgent.taken,
        })
    }
}

impl Conn<'_> {
    /// All that is queued is urgent.
    pub(crate) fn end_is_urgent(&mut self) {
        let hot = &*self.hot;
        let end = self.tcb.snd_nxt + hot.sender.unsent.bytes;
        if let Some(urgent) = self.urgent_of() {
            urgent.sent = Some(end);
        }
    }

    /// Whether the mark lies in what is still to come: it is remembered in the hot block.
    pub(crate) fn awaits_urgent(&self) -> bool {
        self.tcb.state.can_receive() && !self.tcb.has(flag::ORPHAN) && self.view().urgent_left() > 0
    }

    /// Whether the next segment to be sent is urgent. Such data waits for nothing but windows (Linux: tcp_nagle_test).
    pub(crate) fn sends_urgent(&self) -> bool {
        self.hot.has(hot_flag::URGENT)
            && self
                .blocks
                .urgents
                .get(&self.id)
                .and_then(|urgent| urgent.sent)
                .is_some_and(|end| end.gt(self.tcb.snd_nxt))
    }

    /// Sixth check of section 3.10.7.4: the pointer moves forward only, and not into what has come already; the
    /// application is told when it does (MUST-32), also while our window is shut (MUST-66).
    /// Keeps MUST-30, MUST-32.
    pub(crate) fn urgent_arrives(&mut self, p: &Parsed, frame: &Frame) {
        let pointer = p.urgent_pointer(frame);
        let end = p.seq() + u32::from(pointer);
        let cold = &*self.tcb;
        if pointer == 0 || !cold.state.can_receive() || cold.has(flag::ORPHAN) {
            return;
        }
        if end.le(cold.rcv_nxt) {
            return;
        }
        // Beyond a gap it is out of reach of those who read, but for one who takes it aside.
        let beyond_gap = p.seq().gt(cold.rcv_nxt) && pointer <= p.payload_len();
        let early = beyond_gap.then(|| {
            let at = usize::from(p.payload_off()) + usize::from(pointer) - 1;
            frame.buf.bytes()[at]
        });
        let left = self.view().urgent_left();
        let Some(urgent) = self.urgent_of() else {
            return;
        };
        let (known, mut new) = (urgent.received, *urgent);
        if known.is_none_or(|known| end.gt(known)) {
            // One that reading stands at is no octet of the stream for those who take it aside (Linux: tcp_check_urg).
            let passed = self.view().passed(&new);
            if left == passed + 1 && self.hot.receiver.inbox.bytes > passed {
                new.passed = known;
            }
            (new.received, new.early, new.taken) = (Some(end), early, false);
        } else if known == Some(end) && new.early.is_none() && early.is_some() {
            new.early = early;
        } else {
            return;
        }
        self.blocks.urgents.insert(self.id, new);
        self.wake_reader();
    }

    /// Returns the urgent data of the connection, made if there is room for it.
    fn urgent_of(&mut self) -> Option<&mut Urgent> {
        if self.blocks.urgents.len() >= MAX_URGENT && !self.blocks.urgents.contains_key(&self.id) {
            self.env.counters.urgent_ignored += 1;
            return None;
        }
        self.hot.set(hot_flag::URGENT);
        Some(self.blocks.urgents.entry(self.id).or_default())
    }

    /// Nothing is urgent any more.
    #[inline(always)]
    pub(crate) fn forget_urgent(&mut self) {
        if self.hot.has(hot_flag::URGENT) {
            self.urgent_is_over();
        }
    }

    #[cold]
    fn urgent_is_over(&mut self) {
        self.hot.clear(hot_flag::URGENT);
        self.blocks.urgents.remove(&self.id);
    }

    /// How many of `wanted` bytes one read may give: it stops right before the last urgent byte, as reads do elsewhere, so
    /// that the application can see where it is.
    pub(crate) fn up_to_mark(&mut self, wanted: usize) -> usize {
        match self.view().urgent_left() as usize {
            0 => {
                if let Some(urgent) = self.blocks.urgents.get_mut(&self.id) {
                    *urgent = Urgent {
                        sent: urgent.sent,
                        ..Urgent::default()
                    };
                }
                wanted
            }
            1 => wanted,
            left => wanted.min(left - 1),
        }
    }

    /// The pointer of a segment that begins at its number, if urgent data ends behind that. What lies further away than the
    /// field can say is named when it comes nearer.
    /// Keeps MUST-62.
    pub(crate) fn point_at_urgent(&mut self, segment: &mut Outgoing) {
        let Some(urgent) = self.blocks.urgents.get_mut(&self.id) else {
            return;
        };
        let Some(end) = urgent.sent else {
            return;
        };
        if end.le(self.hot.sender.snd_una) {
            urgent.sent = None;
            return;
        }
        let ahead = end - segment.seq;
        if ahead > 0 {
            segment.point_at(ahead.min(0xffff) as u16);
        }
    }
}
