//! The rounds of a cell, and the rows that come of them.

use crate::side::{Figure, Side, is_janus};
use crate::support::Scale;
use crate::support::report::{Report, Value};
use std::time::Duration;

/// Length of a measurement.
#[derive(Clone, Copy)]
pub struct Rounds {
    count: usize,
    warm: Duration,
    time: Duration,
}

/// The figure that a cell gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Nanoseconds of the server.
    Ns,
    /// Gbit/s of payload in the server's time.
    Gbit,
}

type Params<'a> = Vec<(&'a str, Value)>;

impl Rounds {
    /// `count` rounds in which each side works for `warm_ms` and is measured for `time_ms`.
    pub const fn new(count: usize, warm_ms: u64, time_ms: u64) -> Self {
        Self {
            count,
            warm: Duration::from_millis(warm_ms),
            time: Duration::from_millis(time_ms),
        }
    }

    /// Lets all sides work in turns, and reports what they did.
    pub fn compare(
        self,
        report: &mut Report,
        metric: Metric,
        params: &Params<'_>,
        mut sides: Vec<Box<dyn Side>>,
    ) {
        let mut figures: Vec<Vec<Figure>> = vec![Vec::new(); sides.len()];
        for round in 0..self.count {
            for turn in 0..sides.len() {
                let at = (turn + round) % sides.len();
                figures[at].push(sides[at].measure(self.warm, self.time));
            }
        }
        let values = |at: usize| figures[at].iter().map(|figure| figure.value);
        let (name, unit) = match metric {
            Metric::Ns => ("ns", "ns"),
            Metric::Gbit => ("gbit_per_s", "Gbit/s"),
        };
        for (at, side) in sides.iter().enumerate() {
            let params = with(params, &[("side", side.name())]);
            report.median(name, &values(at).collect::<Vec<_>>(), unit, &params);
            let both: Vec<f64> = figures[at].iter().filter_map(|f| f.both_ns).collect();
            if !both.is_empty() {
                report.median("both_ends_ns", &both, unit, &params);
            }
            let bad = side.bad();
            report.row("bad_answers", bad as f64, "count", &params);
            let is_test = Scale::get() == Scale::Smoke;
            assert!(bad == 0 || !is_test, "wrong answers: {params:?}");
        }
        for (at, side) in sides.iter().enumerate() {
            for (other, peer) in sides.iter().enumerate() {
                if !is_janus(side.name()) || is_janus(peer.name()) {
                    continue;
                }
                let ratios: Vec<f64> = values(at).zip(values(other)).map(|(a, b)| a / b).collect();
                let mut params = with(params, &[("side", side.name()), ("peer", peer.name())]);
                params.extend(quartiles(&ratios));
                report.median("janus_to_peer", &ratios, "ratio", &params);
            }
        }
        sides.into_iter().for_each(|side| side.stop());
    }
}

/// Reports that a side is not measured in a cell.
pub fn skipped(report: &mut Report, params: &Params<'_>, side: &str, why: &str) {
    println!("skipped: {side}: {why}");
    let params = with(params, &[("side", side), ("why", why)]);
    report.row("skipped", 1.0, "count", &params);
}

/// Returns what a quarter of the ratios are below, and what a quarter are above.
fn quartiles(ratios: &[f64]) -> [(&'static str, Value); 2] {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quarter = sorted.len() / 4;
    let (low, high) = (sorted[quarter], sorted[sorted.len() - 1 - quarter]);
    [("q25", low.into()), ("q75", high.into())]
}

fn with<'a>(params: &Params<'a>, more: &[(&'a str, &str)]) -> Params<'a> {
    let mut all = params.clone();
    all.extend(more.iter().map(|(name, value)| (*name, (*value).into())));
    all
}
