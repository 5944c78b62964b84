//! How idle the machine was while something was measured: from what the kernel counts for all processors together, those
//! of other programs among it. Measures nothing itself.

use std::time::Instant;

use crate::support::report::{Report, Value};

/// A reading at the beginning.
pub(crate) struct Stillness {
    counts: Counts,
    at: Instant,
}

/// Ticks of all processors, and how often one changed what it ran.
#[derive(Clone, Copy, Default)]
struct Counts {
    all: u64,
    idle: u64,
    stolen: u64,
    switches: u64,
}

impl Counts {
    fn read() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let numbers = |name: &str| -> Vec<u64> {
            let line = stat.lines().find(|line| line.starts_with(name));
            let words = line.unwrap_or_default().split_ascii_whitespace().skip(1);
            words.filter_map(|word| word.parse().ok()).collect()
        };
        // user, nice, system, idle, iowait, irq, softirq, steal; the rest is counted in the first two already.
        let ticks = numbers("cpu ");
        let tick = |at: usize| ticks.get(at).copied().unwrap_or(0);
        Self {
            all: ticks.iter().take(8).sum(),
            idle: tick(3) + tick(4),
            stolen: tick(7),
            switches: numbers("ctxt ").first().copied().unwrap_or(0),
        }
    }
}

impl Stillness {
    pub(crate) fn begin() -> Self {
        Self {
            counts: Counts::read(),
            at: Instant::now(),
        }
    }

    /// Says what it was like since.
    pub(crate) fn rows(self, report: &mut Report, phase: &'static str) {
        let (then, now) = (self.counts, Counts::read());
        let seconds = self.at.elapsed().as_secs_f64();
        let share = |part: u64| part as f64 * 100.0 / (now.all - then.all).max(1) as f64;
        let params: [(&str, Value); 2] = [("while", phase.into()), ("seconds", seconds.into())];
        let idle = share(now.idle - then.idle);
        report.row("machine_idle", idle, "%", &params);
        let stolen = share(now.stolen - then.stolen);
        report.row("machine_stolen", stolen, "%", &params);
        let switches = (now.switches - then.switches) as f64 / seconds;
        report.row("machine_switches", switches, "1/s", &params);
    }
}
