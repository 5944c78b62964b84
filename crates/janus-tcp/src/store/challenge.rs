//! Limit of the answers to segments that fit nothing: challenge ACKs (RFC 5961) and the acknowledgements that tell a
//! peer which is out of step where we are. A flow gets one of each [`Kind`] in
//! [`Config::invalid_ack_interval`](crate::Config), as with Linux's `tcp_invalid_ratelimit`: two confused ends cannot keep
//! each other busy, nor can a forger make one flow's traffic grow. Text that an honest peer repeats, because our
//! acknowledgement was lost, is answered each time and does not come here.
//!
//! The time of a flow's last answer is kept with its record, and nothing of it is shared. So an observer cannot learn from the
//! answers that his own connections get whether forged segments were answered on another's, or whether there is one (CVE-2016-5696).
//! A half-open or TIME-WAIT record has a field for it. A connection's line has no byte to spare, so it
//! has an entry beside it, at its slot's number, which exists once a connection nearby was challenged. Each record
//! begins without a memory of the one before it: neither of another flow's in the same slot, nor of the same flow's in
//! another state, whose answer says something new.
//!
//! A limit of the whole stack (RFC 5961 section 7) would be such a shared count however it is hidden. There is none unless
//! it is configured (as in Linux): an answer is a segment without text, and each takes one that arrives.

use crate::coded::{Coded, Garbled, Shift, Source};
use crate::store::flows::V6;
use crate::store::keys::{ConnSlot, Key};

/// Connections whose entries are made together.
const CHUNK: usize = 256;

/// Answers that are limited one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Challenge ACKs, and acknowledgements of what lies outside the window.
    Challenge,
    /// Answers to what an honest peer asks again: acknowledgements of probes of a window or of our being alive, SYN-ACKs
    /// for repeated SYNs. Strays must not make it believe us dead.
    Repeat,
}

/// When a flow was last given an answer of each kind: milliseconds, wrapping; 0 = never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    at_ms: [u32; 2],
}

impl Coded for Answered {
    fn put(&self, to: &mut Vec<u8>) {
        self.at_ms.put(to);
    }

    fn take(from: &mut Source<'_>) -> Result<Answered, Garbled> {
        Coded::take(from).map(|at_ms| Answered { at_ms })
    }

    fn shift(&mut self, by: &Shift) {
        for at in self.at_ms.iter_mut().filter(|at| **at != 0) {
            by.ms(at);
            *at = (*at).max(1);
        }
    }
}

impl Answered {
    /// Whether there never was one.
    pub(crate) fn is_none(&self) -> bool {
        self.at_ms == [0; 2]
    }

    /// Whether the last answer of this kind is `pause_ms` ago; if so the next is given now.
    pub(crate) fn again(&mut self, kind: Kind, pause_ms: u32, now_ms: u32) -> bool {
        let now_ms = now_ms.max(1);
        let last = &mut self.at_ms[kind as usize];
        let may = *last == 0 || now_ms.wrapping_sub(*last) >= pause_ms;
        if may {
            *last = now_ms;
        }
        may
    }
}

/// The entry of a connection.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// [`Tcb::generation`](crate::store::cold::Tcb::generation) of the connection it is about: that of another one is void.
    generation: u32,
    answered: Answered,
}

/// The memory of the limits.
#[derive(Default)]
pub(crate) struct Limits {
    /// Second (since the start) that `sent` counts.
    pub(crate) second: Option<u64>,
    pub(crate) sent: u32,
    /// Entries of connections by slot, IPv4's and IPv6's.
    entries: [Vec<Option<Box<[Entry; CHUNK]>>>; 2],
}

impl Limits {
    pub(crate) fn of_connection(&mut self, conn: ConnSlot, generation: u32) -> &mut Answered {
        let place = conn.index();
        let (family, slot) = (usize::from(place & V6 != 0), (place & !V6) as usize);
        let chunks = &mut self.entries[family];
        if chunks.len() <= slot / CHUNK {
            chunks.resize_with(slot / CHUNK + 1, || None);
        }
        let chunk = chunks[slot / CHUNK].get_or_insert_with(|| Box::new([Entry::default(); CHUNK]));
        let entry = &mut chunk[slot % CHUNK];
        if entry.generation != generation {
            *entry = Entry {
                generation,
                ..Entry::default()
            };
        }
        &mut entry.answered
    }

    /// Of a connection, without making room for it.
    pub(crate) fn known(&self, conn: ConnSlot, generation: u32) -> Answered {
        let place = conn.index();
        let (family, slot) = (usize::from(place & V6 != 0), (place & !V6) as usize);
        let chunk = self.entries[family].get(slot / CHUNK);
        let chunk = chunk.and_then(Option::as_ref);
        let entry = chunk.map(|chunk| chunk[slot % CHUNK]);
        let own = entry.filter(|entry| entry.generation == generation);
        own.map_or(Answered::default(), |entry| entry.answered)
    }

    /// Bytes that entries of connections take.
    pub(crate) fn bytes(&self) -> usize {
        let chunks = self.entries.iter().flatten().flatten().count();
        chunks * size_of::<[Entry; CHUNK]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_answered_once_in_the_interval() {
        let mut answered = Answered::default();
        let mut ask = |ms: u64| answered.again(Kind::Challenge, 500, ms as u32);
        for start in [0, 10_000, 10_500, 11_200, 70_000, 70_700, 1 << 32] {
            assert!(ask(start));
            for after in [0, 1, 250, 499] {
                assert!(!ask(start + after));
            }
        }
    }

    #[test]
    fn refusals_do_not_prolong_the_wait_and_kinds_are_apart() {
        let mut answered = Answered::default();
        for kind in [Kind::Challenge, Kind::Repeat] {
            let yes = (10_000..15_000)
                .filter(|&ms| answered.again(kind, 500, ms))
                .count();
            assert_eq!(yes, 10);
        }
    }

    #[test]
    fn an_entry_is_of_one_connection_and_takes_memory_only_near_it() {
        let mut limits = Limits::default();
        let mut ask = |conn, generation| {
            let answered = limits.of_connection(conn, generation);
            answered.again(Kind::Challenge, 500, 10_000)
        };
        let places = [0, 1, 255, 256, 5_000, V6, V6 | 1, V6 | 70_000];
        for conn in places.into_iter().filter_map(ConnSlot::new) {
            for generation in [0, 1, u32::MAX, 0] {
                assert!(ask(conn, generation));
                assert!(!ask(conn, generation));
            }
        }
        assert_eq!(limits.bytes(), 5 * CHUNK * 12);
    }
}
