//! Weights of the cores that change every ten milliseconds while a test runs, and what the updates came to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus::Runtime;
use janus::balance::{Balance, BalanceReport};

use super::{Case, PATIENCE};

/// Between two changes.
const INTERVAL: Duration = Duration::from_millis(10);
/// With fewer updates than this nothing was tried.
const UPDATES_LEAST: u64 = 10;

/// Changes the weights until told to stop.
pub struct Changing {
    stop: Arc<AtomicBool>,
    balance: Balance,
    thread: JoinHandle<()>,
}

impl Changing {
    pub fn start(runtime: &Runtime, cores: usize) -> Changing {
        let stop = Arc::new(AtomicBool::new(false));
        let balance = runtime.handle().balance();
        let (stopped, changed) = (stop.clone(), balance.clone());
        let thread = std::thread::spawn(move || {
            let mut drawn = 1_u32;
            while !stopped.load(Ordering::Relaxed) {
                // One core has a quarter of the others' share. It is drawn: of weights wanted while an update runs only
                // the last count, and with the cores in turn an update of as many intervals would meet the same one again.
                drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let small = (drawn >> 16) as usize % cores;
                let points = |core| if core == small { 32 } else { 128 };
                let points: Vec<u16> = (0..cores).map(points).collect();
                changed.set_weights(&points).unwrap();
                std::thread::sleep(INTERVAL);
            }
        });
        Changing {
            stop,
            balance,
            thread,
        }
    }

    /// For clients, which go on until then: whether enough has been changed, or the test's time is over and nothing more is
    /// to be waited for. How many updates fit into the time that clients take is the machine's affair.
    pub fn enough(&self, case: Case) -> impl Fn() -> bool + Clone + Send + Sync + 'static {
        let (balance, begin) = (self.balance.clone(), Instant::now());
        move || is_enough(&balance.report(), case) || begin.elapsed() > PATIENCE / 2
    }

    /// Stops, and says what the updates came to: they were many, and really gave living flows to other cores' shares.
    pub fn stop(self, case: Case) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        let report = self.balance.report();
        println!("{case:?}: {report:?}");
        assert!(is_enough(&report, case), "{report:?}");
    }
}

fn is_enough(report: &BalanceReport, case: Case) -> bool {
    let more_than_a_percent = report.diverged * 100 > report.held;
    report.updates > UPDATES_LEAST && report.held > 0 && (case.cores == 1 || more_than_a_percent)
}
