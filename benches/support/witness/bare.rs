//! What a loop finds that only reads the clock: the machine's own gaps, on each processor.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::threads::stolen_ticks;
use super::{GAP_MIN_NS, Gap, Readings, Record};
use crate::support::report::{Report, Value};

/// Gaps are counted from these sizes on.
pub const GAPS_NS: [u64; 3] = [GAP_MIN_NS, 50_000, 1_000_000];

/// All that was found so far.
pub struct Bare {
    /// A record of each processor, round by round.
    rounds: Vec<Vec<Record>>,
    stolen: u64,
}

impl Default for Bare {
    fn default() -> Self {
        Self {
            rounds: Vec::new(),
            stolen: stolen_ticks(),
        }
    }
}

impl Bare {
    /// Reads the clock for so long on each processor that this program may use, one after the other.
    pub fn look(&mut self, time: Duration) {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let usable = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let on = |cpu| {
            std::thread::spawn(move || {
                let mut one = CpuSet::new();
                one.set(cpu);
                let _ = sched_setaffinity(None, &one);
                read(time)
            })
        };
        let records = usable.map(|cpu| on(cpu).join().expect("it only reads the clock"));
        self.rounds.push(records.collect());
    }

    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.rounds.iter().flatten()
    }

    /// The longest gap of each processor, how many there were in a second, and what the host says that it took since this was made.
    pub fn rows(&self, report: &mut Report) {
        let stolen = stolen_ticks() - self.stolen;
        report.row("machine_stolen", stolen as f64, "ticks", &[]);
        let processors = self.rounds.first().map_or(0, Vec::len);
        for processor in 0..processors {
            let records = || {
                self.rounds
                    .iter()
                    .filter_map(move |round| round.get(processor))
            };
            let seconds: f64 = records().map(|record| record.load_ns as f64 / 1e9).sum();
            let gaps = || records().flat_map(|record| &record.gaps).map(Gap::ns);
            let of = [("processor", Value::from(processor))];
            let longest = gaps().max().unwrap_or(0) as f64 / 1e3;
            report.row("machine_gap_us", longest, "us", &of);
            for least in GAPS_NS {
                let of = [of[0].clone(), ("from_us", (least / 1_000).into())];
                let rate = gaps().filter(|&ns| ns >= least).count() as f64 / seconds;
                report.row("machine_gaps_per_s", rate, "1/s", &of);
            }
        }
    }
}

fn read(time: Duration) -> Record {
    let start = Instant::now();
    let mut readings = Readings::new(start);
    let mut last = Instant::now();
    while last.saturating_duration_since(start) < time {
        let now = Instant::now();
        let is_gap = readings.leaves(last, now, 0);
        // What noting a gap takes is none.
        last = if is_gap { Instant::now() } else { now };
    }
    readings.finish()
}
