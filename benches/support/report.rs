//! Figures as data: rows are printed as a table and written to `target/bench-report/<bench>.json` in the form of
//! `{"bench": …, "commit": …, "command": …, "rows": [{"metric": …, "value": …, "unit": …, "params": {…}}]}`. Measuring is
//! done elsewhere.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::Scale;

/// Seconds and MiB of each bench at each scale, as they were on two processors.
const NEEDS: &str = include_str!("../needs.tsv");
/// Longest silence, if there is something to tell.
const SILENCE: Duration = Duration::from_secs(5);

/// The bench that runs.
struct Run {
    bench: &'static str,
    begun: Instant,
    told: Mutex<Instant>,
}

/// Not where it is only seen to work.
static RUN: OnceLock<Run> = OnceLock::new();

/// Tells how far it is, unless something was told a moment ago.
pub fn tell(what: impl FnOnce() -> String) {
    let Some(run) = RUN.get() else {
        return;
    };
    let mut told = run.told.lock().expect("no holder panics");
    if told.elapsed() >= SILENCE {
        *told = Instant::now();
        let seconds = run.begun.elapsed().as_secs();
        eprintln!("{}: {} ({seconds} s)", run.bench, what());
    }
}

/// The table's line of a bench, at this scale: seconds and MiB.
fn needed(bench: &str, scale: &str) -> Option<(u64, u64)> {
    let mut lines = NEEDS.lines().map(|line| line.split('\t'));
    lines.find_map(|mut words| {
        let is_it = words.next()? == bench && words.next()? == scale;
        let mut number = || words.next()?.parse().ok();
        is_it.then(|| Some((number()?, number()?)))?
    })
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(f64),
    Text(String),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number as f64)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(f64::from(number))
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(number as f64)
    }
}

struct Row {
    metric: String,
    value: f64,
    unit: String,
    params: Vec<(String, Value)>,
}

/// The rows of one benchmark.
pub struct Report {
    bench: &'static str,
    rows: Vec<Row>,
    series: Vec<(&'static str, Vec<f64>)>,
}

impl Report {
    /// The first of a program tells what the bench takes, if that is known.
    pub fn new(bench: &'static str) -> Self {
        let report = Self {
            bench,
            rows: Vec::new(),
            series: Vec::new(),
        };
        let scale = match Scale::get() {
            Scale::Smoke => return report,
            Scale::Quick => "quick",
            Scale::Full => "full",
        };
        let now = Instant::now();
        let run = Run {
            bench,
            begun: now,
            told: Mutex::new(now),
        };
        if RUN.set(run).is_ok()
            && let Some((seconds, mib)) = needed(bench, scale)
        {
            report.needs(seconds, mib << 20);
        }
        report
    }

    /// Tells, before anything runs, what the benchmark takes.
    pub fn needs(&self, seconds: u64, bytes: u64) {
        let mib = bytes >> 20;
        eprintln!("{}: about {seconds} s, {mib} MiB", self.bench);
    }

    /// Tells what is measured next.
    pub fn progress(&self, what: &str) {
        eprintln!("{}: {what}", self.bench);
        if let Some(run) = RUN.get() {
            *run.told.lock().expect("no holder panics") = Instant::now();
        }
    }

    /// Adds a figure that was measured once, or is a count.
    pub fn row(&mut self, metric: &str, value: f64, unit: &str, params: &[(&str, Value)]) {
        tell(|| {
            let params = params.iter().take(3);
            let params = params.map(|(name, value)| format!(" {name}={}", plain(value)));
            format!("{metric}{}", params.collect::<String>())
        });
        let params = params
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        self.rows.push(Row {
            metric: metric.to_owned(),
            value,
            unit: unit.to_owned(),
            params,
        });
    }

    /// Adds what was read one time after the other: for the file, not for the table.
    pub fn series(&mut self, name: &'static str, values: Vec<f64>) {
        self.series.push((name, values));
    }

    /// Adds the median of several runs; how many there were and how far they spread become parameters.
    pub fn median(&mut self, metric: &str, runs: &[f64], unit: &str, params: &[(&str, Value)]) {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let mut all: Vec<(&str, Value)> = params.to_vec();
        all.push(("runs", runs.len().into()));
        all.push(("min", sorted.first().copied().unwrap_or(f64::NAN).into()));
        all.push(("max", sorted.last().copied().unwrap_or(f64::NAN).into()));
        self.row(metric, median(&sorted), unit, &all);
    }

    /// Adds the median of the runs in which the machine was the benchmark's alone, and in a row of its own that of the
    /// others, if there are any.
    pub fn medians(
        &mut self,
        metric: &str,
        runs: &[f64],
        disturbed: &[bool],
        unit: &str,
        params: &[(&str, Value)],
    ) {
        for (intervals, is_disturbed) in [("calm", false), ("disturbed", true)] {
            let of_these = runs.iter().zip(disturbed);
            // A run in which the server did nothing has no figure.
            let of_these = of_these.filter(|(run, disturbed)| {
                **disturbed == is_disturbed && run.is_finite() && **run > 0.0
            });
            let runs: Vec<f64> = of_these.map(|(run, _)| *run).collect();
            if !runs.is_empty() {
                let params = [params, &[("intervals", intervals.into())]].concat();
                self.median(metric, &runs, unit, &params);
            }
        }
    }

    /// Returns the figures of a metric whose rows have these parameters, each at the place that the parameter `x` says. Where
    /// the machine was shared in all runs of a place, it is those runs' figure.
    pub fn points(&self, metric: &str, x: &str, with: &[(&str, Value)]) -> Vec<(f64, f64)> {
        let has = |row: &Row, name: &str, value: &Value| {
            row.params.iter().any(|(n, v)| n == name && v == value)
        };
        let mut points: Vec<(f64, f64)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.metric == metric) {
            let at = row.params.iter().find_map(|(name, value)| match value {
                Value::Number(at) if name == x => Some(*at),
                _ => None,
            });
            let wanted = with.iter().all(|(name, value)| has(row, name, value));
            let is_second = has(row, "intervals", &"disturbed".into());
            if let Some(at) = at.filter(|_| wanted)
                && !(is_second && points.iter().any(|point| point.0 == at))
            {
                points.push((at, row.value));
            }
        }
        points
    }

    /// Adds the rows of another report, made elsewhere.
    pub fn append(&mut self, mut other: Report) {
        self.rows.append(&mut other.rows);
    }

    /// Prints the table and writes the file.
    pub fn finish(self) {
        print!("{}", self.table());
        if Scale::get() == Scale::Smoke {
            return;
        }
        if let Some(path) = kept(&format!("{}.json", self.bench), &self.json()) {
            println!("written to {}", path.display());
        }
    }

    /// Writes a picture beside the file.
    pub fn keep_picture(&self, name: &str, svg: &str) {
        if Scale::get() != Scale::Smoke {
            kept(&format!("{}.{name}.svg", self.bench), svg);
        }
    }

    fn table(&self) -> String {
        let mut out = format!("\n{}\n", self.bench);
        for row in &self.rows {
            let params: Vec<String> = row
                .params
                .iter()
                .map(|(name, value)| format!("{name}={}", plain(value)))
                .collect();
            let _ = writeln!(
                out,
                "  {:<22} {:>16} {:<10} {}",
                row.metric,
                figure(row.value),
                row.unit,
                params.join(" ")
            );
        }
        out
    }

    fn json(&self) -> String {
        let mut out = format!(
            "{{\"bench\": {}, \"commit\": {}, \"command\": {}, \"rows\": [\n",
            quoted(self.bench),
            quoted(&commit()),
            quoted(&command(self.bench))
        );
        for (n, row) in self.rows.iter().enumerate() {
            let params: Vec<String> = row
                .params
                .iter()
                .map(|(name, value)| format!("{}: {}", quoted(name), json(value)))
                .collect();
            let comma = if n + 1 < self.rows.len() { "," } else { "" };
            let _ = writeln!(
                out,
                "  {{\"metric\": {}, \"value\": {}, \"unit\": {}, \"params\": {{{}}}}}{comma}",
                quoted(&row.metric),
                number(row.value),
                quoted(&row.unit),
                params.join(", ")
            );
        }
        out.push(']');
        for (name, values) in &self.series {
            let values: Vec<String> = values.iter().map(|value| number(*value)).collect();
            let _ = write!(out, ",\n{}: [{}]", quoted(name), values.join(", "));
        }
        out.push_str("}\n");
        out
    }
}

/// Writes a file of the reports' folder; where it is.
fn kept(name: &str, text: &str) -> Option<PathBuf> {
    let path = report_dir().join(name);
    let folder = std::fs::create_dir_all(report_dir());
    match folder.and_then(|()| std::fs::write(&path, text)) {
        Ok(()) => Some(path),
        Err(error) => {
            eprintln!("cannot write {}: {error}", path.display());
            None
        }
    }
}

/// The middle of a sorted list; of two middles their mean.
fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    match n {
        0 => f64::NAN,
        _ if n % 2 == 1 => sorted[n / 2],
        _ => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The value below which `q` percent of sorted ones are; nothing where there are none.
pub fn quantile(sorted: &[u64], q: f64) -> f64 {
    let at = (sorted.len() as f64 * q / 100.0).ceil() as usize;
    sorted
        .get(at.saturating_sub(1))
        .map_or(f64::NAN, |value| *value as f64)
}

/// The commit that is measured, with `-dirty` behind it where files differ from it; "unknown" outside of a repository.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments);
        let output = git.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain"]).is_none_or(|files| !files.is_empty());
    commit + if changed { "-dirty" } else { "" }
}

/// The command that measures this again.
fn command(bench: &str) -> String {
    let variables = std::env::vars().filter(|(name, _)| name.starts_with("JANUS_"));
    let mut words: Vec<String> = variables.map(|(name, v)| format!("{name}={v}")).collect();
    words.sort();
    words.extend(["cargo bench --bench".to_owned(), bench.to_owned()]);
    // Cargo passes `--bench` itself.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if !arguments.is_empty() {
        words.push("--".to_owned());
        words.extend(arguments);
    }
    words.join(" ")
}

fn report_dir() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    // Of the repository, whichever package of it measures.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package
        .ancestors()
        .find(|dir| dir.join("crates").is_dir())
        .unwrap_or(package);
    root.join(target).join("bench-report")
}

fn figure(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value}")
    } else if value.abs() >= 1000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Number(n) => figure(*n),
        Value::Text(text) => text.clone(),
    }
}

fn json(value: &Value) -> String {
    match value {
        Value::Number(n) => number(*n),
        Value::Text(text) => quoted(text),
    }
}

/// JSON has no way to write what is no number.
fn number(value: f64) -> String {
    if value.is_finite() {
        format!("{value}")
    } else {
        "null".to_owned()
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
