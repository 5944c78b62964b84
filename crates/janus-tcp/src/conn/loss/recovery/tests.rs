//! The books of loss recovery against what they are books of, and one connection's way through both.

use super::*;
use crate::stack::Stack;
use crate::store::hot::Hot;
use crate::store::keys::{HotId, Key};
use crate::store::recovery::Sent;

impl Stack {
    /// Counts by hand what the blocks say they have counted, for every connection.
    pub(crate) fn check_recovery(&self) {
        for id in (0..self.store().hot.high_water()).filter_map(HotId::new) {
            if self.store().hot[id].conn.is_some() {
                self.check_books(&self.store().hot[id]);
            }
        }
    }

    fn check_books(&self, hot: &Hot) {
        let none = Recovery::default();
        let rec = match hot.loss.recovery {
            None => &none,
            Some(block) => &self.store().blocks.recovery[block],
        };
        let now_us = self.now().as_micros() as u32;
        let (mut pipe, mut bytes) = (0, 0);
        let (mut sacked, mut sacked_bytes, mut lost, mut resent) = (0, 0, 0, 0);
        let (mut decided, mut past_hint) = (rec.decided.is_none(), rec.lost_from.is_none());
        let (mut at, mut end, mut last_once) =
            (hot.sender.flight.head, hot.sender.snd_una, None::<Sent>);
        while at.is_some() {
            let seg = &self.store().blocks.segments[at];
            assert_eq!(seg.seq, end, "flight has no gap");
            end = seg.end();
            past_hint |= at == rec.lost_from;
            let len = u32::from(seg.len);
            bytes += len;
            match (seg.has(seg_flag::SACKED), seg.has(seg_flag::LOST)) {
                (true, lost) => {
                    assert!(!lost, "SACKed and lost");
                    (sacked, sacked_bytes) = (sacked + 1, sacked_bytes + len);
                }
                (false, true) => {
                    assert!(past_hint, "lost before the place where the first is");
                    assert!(hot.has(hot_flag::LOSSES));
                    lost += 1;
                }
                (false, false) => {
                    pipe += len;
                    resent += u32::from(seg.has(seg_flag::RESENT));
                    if decided && hot.loss.recovery.is_some() {
                        let sent = Sent::of(seg);
                        assert!(
                            last_once.is_none_or(|last| sent.is_after(last, now_us)),
                            "in order of time"
                        );
                        last_once = Some(sent);
                    }
                }
            }
            decided |= at == rec.decided;
            at = seg.next;
        }
        assert!(decided && past_hint, "places are in flight");
        assert_eq!((pipe, bytes), (hot.sender.pipe, hot.sender.flight.bytes));
        if hot.loss.recovery.is_some() {
            assert_eq!((sacked, sacked_bytes), (rec.sacked, rec.sacked_bytes));
            assert_eq!((lost, resent), (rec.lost, rec.resent));
        } else {
            assert_eq!(sacked, 0);
        }
    }
}
