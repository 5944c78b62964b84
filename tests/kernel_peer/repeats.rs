//! Data of ours that crossed the wire more than once, by a capture: whether the kernel had said before that it has it, and whether we could
//! know. That is told by the timestamps, not by when a segment was seen: a segment of ours that echoes a later stamp than an acknowledgement
//! of the kernel's has was sent after that one had been taken in. It holds where nothing is lost or late on the way to us.

use std::collections::VecDeque;

use crate::moving::Move;
use crate::space::{Captured, Family};
use crate::support::privileged::run_words;

const FIELDS: [&str; 12] = [
    "ip.src",
    "ipv6.src",
    "tcp.seq",
    "tcp.ack",
    "tcp.len",
    "tcp.flags.reset",
    "tcp.flags.syn",
    "tcp.flags.fin",
    "tcp.options.sack_le",
    "tcp.options.sack_re",
    "tcp.options.timestamp.tsval",
    "tcp.options.timestamp.tsecr",
];

/// Acknowledgements kept for segments that were late on their way.
const PAST_MAX: usize = 4_096;

/// Counts of our segments with data, and of what should never be.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    pub(crate) data: u64,
    /// Segments of either end that reset a connection. What answers the echo of a late copy when both ends are done does not: there is
    /// nothing left then.
    pub(crate) resets: u64,
    /// Blocks that the kernel said it has beyond a gap.
    pub(crate) blocks: u64,
    /// Segments with data of which the kernel had said, as we knew, that it has it.
    pub(crate) known_sacked: u64,
    pub(crate) known_acked: u64,
    /// Segments whose data had all crossed before.
    pub(crate) again: u64,
    /// Of these: none that was in flight at a move.
    pub(crate) again_beyond_moves: u64,
    /// Lines of the first that should not be.
    examples: Vec<String>,
}

/// The kernel's word on what it has, and its timestamp.
struct Word {
    has: (u64, u64),
    stamp: u32,
}

impl Word {
    fn is_known_to(&self, echo: u32) -> bool {
        (echo.wrapping_sub(self.stamp) as i32) > 0
    }
}

/// Both ends as the capture has shown them so far, in places of their streams: 1 is the first byte, behind the SYN.
#[derive(Default)]
struct Wire {
    /// Initial numbers, ours and the kernel's.
    initial: [Option<u32>; 2],
    /// Ends of what has been sent.
    ends: [u64; 2],
    /// Places behind a FIN.
    fins: [Option<u64>; 2],
    /// What each end has said it has of the other's stream.
    acked: [u64; 2],
    /// Data of ours before its end that has not crossed.
    holes: Vec<(u64, u64)>,
    acks: VecDeque<Word>,
    /// Those that we knew by a segment, and the largest place in them.
    past: VecDeque<Word>,
    known_ack: u64,
    sacks: Vec<Word>,
    found: Repeats,
}

pub(crate) fn repeats(capture: &Captured, family: Family, moves: &[Move]) -> Repeats {
    let file = capture.file.display().to_string();
    let mut words = vec!["tshark", "-n", "-r", &file, "-Y", "tcp", "-T", "fields"];
    words.extend(["-o", "tcp.relative_sequence_numbers:FALSE"]);
    words.extend(["-o", "tcp.desegment_tcp_streams:FALSE"]);
    FIELDS.iter().for_each(|field| words.extend(["-e", *field]));
    let text = run_words(&words).expect("a capture that tshark reads");
    judge_lines(&text, family, moves)
}

fn judge_lines(text: &str, family: Family, moves: &[Move]) -> Repeats {
    let ours = family.addresses().0.to_string();
    let mut wire = Wire::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let own = fields[0] == ours || fields[1] == ours;
        wire.take(own, &fields, moves, line);
    }
    wire.found
}

impl Wire {
    fn take(&mut self, own: bool, fields: &[&str], moves: &[Move], line: &str) {
        let number = |index: usize| fields[index].parse::<u32>().unwrap_or(0);
        let is = |index: usize| matches!(fields[index], "1" | "True");
        let (from, to) = if own { (0, 1) } else { (1, 0) };
        if is(5) && !self.is_over() {
            self.found.resets += 1;
            self.found.note(line);
        }
        if is(5) {
            return;
        }
        if is(6) {
            self.initial[from] = Some(number(2));
            self.ends[from] = self.ends[from].max(1);
            return;
        }
        let (seq, len) = (self.place(from, number(2)), u64::from(number(4)));
        let ack = self.place(to, number(3));
        if own {
            let echo = number(11);
            self.know(echo);
            if len > 0 {
                self.judge((seq, seq + len), echo, moves, line);
            }
        } else {
            let stamp = number(10);
            let edges = |index: usize| {
                fields[index]
                    .split(',')
                    .filter_map(|edge| edge.parse().ok())
            };
            let blocks: Vec<(u32, u32)> = edges(8).zip(edges(9)).collect();
            for (left, right) in blocks {
                let has = (self.place(to, left), self.place(to, right));
                self.found.blocks += u64::from(has.0 > ack);
                self.sacks.push(Word { has, stamp });
            }
            let has = (0, ack);
            self.acks.push_back(Word { has, stamp });
        }
        let end = seq + len + u64::from(is(7));
        self.ends[from] = self.ends[from].max(end);
        self.acked[from] = self.acked[from].max(ack);
        if is(7) {
            self.fins[from] = Some(end);
        }
    }

    /// Whether each end has said that it has the other's FIN.
    fn is_over(&self) -> bool {
        let has = |end: usize| self.fins[1 - end].is_some_and(|fin| self.acked[end] >= fin);
        has(0) && has(1)
    }

    /// The place of a number that is near the end of what has been sent.
    fn place(&self, whose: usize, number: u32) -> u64 {
        let initial = self.initial[whose].unwrap_or(0);
        let end = self.ends[whose];
        let ahead = number.wrapping_sub(initial).wrapping_sub(end as u32) as i32;
        end.saturating_add_signed(ahead.into())
    }

    /// A segment of ours shows that what has an earlier stamp than `echo` is known.
    fn know(&mut self, echo: u32) {
        while self.acks.front().is_some_and(|word| word.is_known_to(echo)) {
            let word = self.acks.pop_front().expect("it was looked at");
            self.known_ack = self.known_ack.max(word.has.1);
            self.past.push_back(word);
        }
        let old = self.past.len().saturating_sub(PAST_MAX);
        self.past.drain(..old);
        let known = self.known_ack;
        self.sacks.retain(|word| word.has.1 > known);
    }

    /// Whether all of it has crossed before. What has not has now.
    fn has_crossed(&mut self, from: u64, to: u64) -> bool {
        let end = self.ends[0];
        if from > end {
            self.holes.push((end, from));
        }
        let mut crossed = to <= end;
        let holes = std::mem::take(&mut self.holes);
        for (left, right) in holes {
            let (behind, ahead) = (to.max(left), from.min(right));
            crossed &= to <= left || right <= from;
            let rest = match to <= left || right <= from {
                true => [(left, right), (0, 0)],
                false => [(left, ahead), (behind, right)],
            };
            self.holes
                .extend(rest.iter().filter(|(left, right)| left < right));
        }
        crossed
    }

    fn judge(&mut self, (from, to): (u64, u64), echo: u32, moves: &[Move], line: &str) {
        self.found.data += 1;
        if !self.has_crossed(from, to) {
            return;
        }
        self.found.again += 1;
        let in_flight = |at: &Move| from < at.to + 1 && to > at.from + 1;
        self.found.again_beyond_moves += u64::from(!moves.iter().any(in_flight));
        // A copy that was held back echoes what it did when it was sent.
        let mut sacks = self.sacks.iter().filter(|word| word.is_known_to(echo));
        let sacked = sacks.any(|word| word.has.0 < to && from < word.has.1);
        let mut acks = self.past.iter().filter(|word| word.is_known_to(echo));
        let acked = acks.any(|word| to <= word.has.1);
        self.found.known_sacked += u64::from(sacked);
        self.found.known_acked += u64::from(acked);
        if sacked || acked {
            self.found.note(line);
        }
    }
}

impl Repeats {
    /// On a link that loses nothing and keeps the order a segment crosses once; elsewhere `explained` times more. A move justifies no repeat but
    /// of what lay in flight at it, and a machine that lets a thread wait for longer than a timeout justifies a few: so few that they come of
    /// no rule about moves.
    pub(crate) fn assert_few(&self, label: &str, moves: usize, explained: u64) {
        let (again, beyond) = (self.again, self.again_beyond_moves);
        let few = again <= explained + 4 + moves as u64 / 4 && beyond <= explained + 4;
        assert!(few, "{label}: {moves} moves, {self:?}");
    }

    /// Where the way to us loses nothing, no segment has data of which we knew that the kernel has it.
    pub(crate) fn assert_none_known(&self, label: &str) {
        let known = (self.known_sacked, self.known_acked);
        assert_eq!(known, (0, 0), "{label}: {self:?}");
    }

    fn note(&mut self, line: &str) {
        if self.examples.len() < 8 {
            self.examples.push(line.to_owned());
        }
    }
}

/// Each thing that should not be is seen, and a copy that was late on its way is none.
#[test]
fn repeats_are_told_from_late_copies() {
    // Number, acknowledged, length, reset, SYN, FIN, edges of a block, stamp, echo.
    let line = |own: bool, rest: &str| {
        let (ours, kernels) = Family::V4.addresses();
        let source = if own { ours } else { kernels };
        format!("{source}\t\t{}\n", rest.replace(' ', "\t").replace('-', ""))
    };
    let mut text = [
        line(true, "4294967295 0 0 0 1 0 - - 10 0"),
        line(false, "99 0 0 0 1 0 - - 20 10"),
        // Places 1 to 300 are sent; the first hundred is late.
        line(true, "100 100 100 0 0 0 - - 11 20"),
        line(true, "200 100 100 0 0 0 - - 11 20"),
        line(false, "100 0 0 0 0 0 100,200 200,300 30 11"),
        line(true, "0 100 100 0 0 0 - - 11 20"),
        // It may not know yet, and then it does.
        line(true, "100 100 100 0 0 0 - - 12 20"),
        line(true, "100 100 100 0 0 0 - - 13 31"),
    ]
    .concat();
    let found = judge_lines(&text, Family::V4, &[]);
    assert_eq!(
        (found.data, found.again, found.known_sacked),
        (5, 2, 1),
        "{found:?}"
    );
    let moves = [Move { from: 150, to: 250 }];
    assert_eq!(judge_lines(&text, Family::V4, &moves).again_beyond_moves, 0);
    text += &line(false, "100 300 0 0 0 0 - - 40 13");
    text += &line(true, "200 100 100 0 0 0 - - 14 39");
    text += &line(true, "200 100 100 0 0 0 - - 15 41");
    // Held back since before that.
    text += &line(true, "200 100 100 0 0 0 - - 14 39");
    text += &line(false, "100 300 0 0 0 1 - - 42 15");
    text += &line(true, "300 101 0 0 0 1 - - 16 42");
    text += &line(true, "301 0 0 1 0 0 - - - -");
    text += &line(false, "101 301 0 0 0 0 - - 43 16");
    // Both are done.
    text += &line(true, "301 0 0 1 0 0 - - - -");
    let found = judge_lines(&text, Family::V4, &[]);
    let wrong = (found.known_sacked, found.known_acked, found.resets);
    assert_eq!(wrong, (2, 1, 1), "{found:?}");
}
