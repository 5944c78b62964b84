//! What the cores of a server say of themselves while a test runs: each writes its report on a board from time to time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use janus::CoreReport;

use super::PATIENCE;

/// How often a core writes.
const EVERY: Duration = Duration::from_millis(5);

/// A core's last report, and when it was written.
type Written = Option<(Instant, CoreReport)>;

/// The last report of each core.
#[derive(Clone, Default)]
pub struct Reports {
    board: Arc<Mutex<Vec<Written>>>,
}

impl Reports {
    /// Writes this core's report for as long as the core lives.
    pub async fn keep(self) {
        let core = janus::core_id().expect("this is a core");
        loop {
            let report = janus::report().expect("this is a core");
            {
                let mut board = self.board.lock().unwrap();
                if board.len() <= core {
                    board.resize(core + 1, None);
                }
                board[core] = Some((Instant::now(), report));
            }
            janus::time::sleep(EVERY).await;
        }
    }

    /// What every core wrote last.
    pub fn last(&self) -> Vec<CoreReport> {
        let board = self.board.lock().unwrap();
        board.iter().flatten().map(|(_, report)| *report).collect()
    }

    /// What every core wrote last, of those that wrote since then.
    pub fn since(&self, then: Instant) -> Vec<CoreReport> {
        let board = self.board.lock().unwrap();
        let written = board.iter().flatten().filter(|(at, _)| *at > then);
        written.map(|(_, report)| *report).collect()
    }

    /// A report of each of `cores` cores, written from now on.
    pub fn fresh(&self, cores: usize) -> Vec<CoreReport> {
        let begin = Instant::now();
        loop {
            let reports = self.since(begin);
            if reports.len() == cores {
                return reports;
            }
            assert!(begin.elapsed() < PATIENCE, "a core does not report");
            std::thread::sleep(EVERY);
        }
    }

    /// Waits until the reports are such.
    pub fn wait(&self, cores: usize, what: &str, such: impl Fn(&[CoreReport]) -> bool) {
        let begin = Instant::now();
        loop {
            let reports = self.fresh(cores);
            if such(&reports) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{what} never: {reports:?}");
        }
    }
}

/// A number over all cores.
pub fn sum(reports: &[CoreReport], of: fn(&CoreReport) -> u64) -> u64 {
    reports.iter().map(of).sum()
}
