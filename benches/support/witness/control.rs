//! How many gaps of each size the machine makes in a second of anybody's time, and which of a program's are set aside by it.

use std::ops::Range;

use super::{GAP_MIN_NS, Gap, Place, Record};

/// Sizes of gaps: the first is below twice the smallest gap, each other below twice the one before it.
const SIZES: usize = 16;
/// Gaps of this size are not those of code that is not in the caches: a bare loop has them too.
const LONG: usize = 4;
/// What was due so long before a gap may still be under way when it comes.
const LEAD_NS: u64 = 20_000;
/// The queue that a gap left is gone after so many times what it takes on average.
const DRAIN_CARE: f64 = 2.0;
/// Above this the queue is taken for one that drains as at this load.
const LOAD_MAX: f64 = 0.95;

/// Gaps without proof in straight code, of which none can be the program's.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// For each size, the time in which they were looked for.
    seconds: [f64; SIZES],
    gaps: [f64; SIZES],
    /// Those of the program in all phases, and its time: a size that comes once in some phases has no odds in a single one.
    found: [f64; SIZES],
    program_seconds: f64,
}

/// Some time out of a phase.
#[derive(Clone, Copy, Debug)]
struct Share {
    from_ns: u64,
    to_ns: u64,
    /// In it, for so long nothing was worked off.
    missed_ns: u64,
    /// What came meanwhile needs so long afterwards.
    drain_ns: u64,
}

/// What is set aside of a phase, and what was found in the rest.
#[derive(Debug, Default)]
pub struct Verdict {
    /// In order, and apart.
    aside: Vec<Share>,
    /// When all threads were watched.
    from_ns: u64,
    to_ns: u64,
    /// Gaps of the program that stay in the figures, none of a queue that the machine made.
    own: Vec<Gap>,
}

impl Control {
    /// Of the load of all phases and, for long gaps, of bare loops.
    pub fn of<'a>(
        phases: impl Iterator<Item = &'a Record>,
        bare: impl Iterator<Item = &'a Record>,
    ) -> Self {
        let mut control = Self::default();
        phases.for_each(|record| control.add(record, 0));
        bare.for_each(|record| control.add(record, LONG));
        control
    }

    /// Adds what straight code met of this size and more.
    fn add(&mut self, record: &Record, least: usize) {
        for seconds in &mut self.seconds[least..] {
            *seconds += record.load_ns as f64 / 1e9;
        }
        let unproven = record.gaps.iter().filter(|gap| !gap.is_proven);
        for gap in unproven.filter(|gap| size(gap) >= least) {
            match gap.place {
                Place::Load => self.gaps[size(gap)] += 1.0,
                Place::Program => self.found[size(gap)] += 1.0,
            }
        }
        self.program_seconds += record.program_ns as f64 / 1e9;
    }

    /// Judges what the threads of one phase recorded while the server did `load` of what it can do, 0 to 1.
    pub fn judge(&self, records: &[Record], load: f64, seed: u64) -> Verdict {
        let drain = DRAIN_CARE * load / (1.0 - load.min(LOAD_MAX));
        let mut verdict = Verdict {
            from_ns: records.iter().map(|r| r.from_ns).max().unwrap_or(0),
            to_ns: records.iter().map(|r| r.to_ns).min().unwrap_or(0),
            ..Verdict::default()
        };
        let mut lot = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for record in records {
            let odds = self.odds(record);
            for gap in &record.gaps {
                lot ^= lot << 13;
                lot ^= lot >> 7;
                lot ^= lot << 17;
                let drawn = ((lot >> 11) as f64 / (1u64 << 53) as f64) < odds[size(gap)];
                if gap.place == Place::Load || gap.is_proven || drawn {
                    verdict.aside.push(Share {
                        from_ns: gap.from_ns.saturating_sub(LEAD_NS),
                        to_ns: gap.to_ns,
                        missed_ns: gap.ns(),
                        drain_ns: (gap.ns() as f64 * drain) as u64,
                    });
                } else {
                    verdict.own.push(*gap);
                }
            }
        }
        verdict.join();
        let own = std::mem::take(&mut verdict.own).into_iter();
        verdict.own = own
            .filter(|gap| !verdict.is_disturbed(gap.from_ns))
            .collect();
        verdict
    }

    /// For each size, the part of the program's unproven gaps that the machine made. Of short gaps a phase has enough to be
    /// judged alone; of long ones all phases are taken together.
    fn odds(&self, record: &Record) -> [f64; SIZES] {
        let mut found = [0.0; SIZES];
        let unproven = record.gaps.iter().filter(|gap| !gap.is_proven);
        for gap in unproven.filter(|gap| gap.place == Place::Program) {
            found[size(gap)] += 1.0;
        }
        let mut odds = [0.0; SIZES];
        let seconds = record.program_ns as f64 / 1e9;
        self.fill(&mut odds, 0..LONG, &found, seconds);
        self.fill(&mut odds, LONG..SIZES, &self.found, self.program_seconds);
        odds
    }

    /// The longest come first; those for which the machine's of their size are too few take from the machine's of the size below.
    fn fill(&self, odds: &mut [f64], sizes: Range<usize>, found: &[f64; SIZES], seconds: f64) {
        let mut machine: [f64; SIZES] =
            std::array::from_fn(|at| self.gaps[at] * seconds / self.seconds[at].max(1e-9));
        for at in sizes.clone().rev().filter(|&at| found[at] > 0.0) {
            let mut given = machine[at].min(found[at]);
            if at > sizes.start {
                let more = machine[at - 1].min(found[at] - given);
                machine[at - 1] -= more;
                given += more;
            }
            odds[at] = given / found[at];
        }
    }
}

fn size(gap: &Gap) -> usize {
    let times = (gap.ns() / GAP_MIN_NS).max(1);
    (times.ilog2() as usize).min(SIZES - 1)
}

impl Verdict {
    /// Makes one share of those that touch, each as long as its queue is there. What comes while there is one makes that longer
    /// by the time for which nothing is worked off, and by what it adds.
    fn join(&mut self) {
        self.aside.sort_unstable_by_key(|share| share.from_ns);
        let mut joined: Vec<Share> = Vec::with_capacity(self.aside.len());
        for share in self.aside.drain(..) {
            match joined.last_mut() {
                Some(last) if share.from_ns <= last.to_ns => {
                    let queue_ns = last.to_ns + share.missed_ns;
                    last.to_ns = share.to_ns.max(queue_ns) + share.drain_ns;
                }
                _ => joined.push(Share {
                    to_ns: share.to_ns + share.drain_ns,
                    ..share
                }),
            }
        }
        self.aside = joined;
    }

    /// Whether what was due then is set aside; also when no thread watched.
    pub fn is_disturbed(&self, at_ns: u64) -> bool {
        let at = self.aside.partition_point(|share| share.to_ns <= at_ns);
        let is_aside = self
            .aside
            .get(at)
            .is_some_and(|share| share.from_ns <= at_ns);
        is_aside || at_ns < self.from_ns || at_ns >= self.to_ns
    }

    /// All of the phase.
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }

    /// What is left of it.
    pub fn calm_seconds(&self) -> f64 {
        let within = |share: &Share| {
            let to_ns = share.to_ns.min(self.to_ns);
            to_ns.saturating_sub(share.from_ns.max(self.from_ns))
        };
        let aside_ns: u64 = self.aside.iter().map(within).sum();
        self.seconds() - aside_ns as f64 / 1e9
    }

    /// The lengths of the program's own gaps in what is left.
    pub fn own_ns(&self) -> impl Iterator<Item = u64> {
        self.own.iter().map(Gap::ns)
    }
}
