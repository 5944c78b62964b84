//! Every field of a report is a metric, the text is sound by its own grammar and by promtool, and the manual lists what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use janus_io::DeviceLosses;
use janus_mem::DepotStats;
use janus_tcp::{Counters, MemoryReport};

use super::collect::{AdminCounters, Known, RuntimeValues};
use super::families::FAMILIES;
use super::family::{Kind, Read, Unit};
use super::text::{Snapshot, render};
use super::*;
use crate::admission::IoCounters;
use crate::losses::ShortageReport;
use crate::shard::CoreReport;
use crate::shard::{ForwardCounters, LoopReport, OfferCounters};
use crate::task::blocking::BlockingReport;

/// Gives out values that occur nowhere else, and remembers them.
struct Values(u64);

impl Values {
    fn next(&mut self) -> u64 {
        self.0 += 1_001;
        self.0
    }

    fn next_usize(&mut self) -> usize {
        self.next() as usize
    }
}

/// A report all of whose fields differ. Named one by one: a new field does not compile until it is here, and then has to be read.
fn report_of(values: &mut Values, core: usize) -> CoreReport {
    let mut v = || values.next();
    let tcp = Counters {
        accepted: v(),
        frames_in: v(),
        dropped_window: v(),
        dropped_datagrams_unread: v(),
        ..Counters::default()
    };
    let turns = LoopReport {
        turns: v(),
        working_turns: v(),
        busy: Duration::from_nanos(v()),
        longest_turn: Duration::from_nanos(v()),
        asleep: Duration::from_nanos(v()),
        sleeps: v(),
        packets: v(),
        batches: std::array::from_fn(|_| v()),
        task_budget_used_up: v(),
    };
    let forwards = ForwardCounters {
        forwarded: v(),
        dropped_full: v(),
        dropped_syn_room: v(),
        dropped_expired: v(),
        dropped_over: v(),
        moves_refused: v(),
        moves_lost: v(),
        waited: v(),
        dropped_waiting: v(),
    };
    let offers = OfferCounters {
        offered: v(),
        claimed: v(),
        returned: v(),
        late: v(),
    };
    let mut v = || values.next_usize();
    let memory = MemoryReport {
        tcb: v(),
        table: v(),
        hot: v(),
        segments: v(),
        half_open: v(),
        time_wait: v(),
        stubs: v(),
        timers: v(),
    };
    CoreReport {
        core,
        connections: v(),
        resting: v(),
        half_open: v(),
        in_time_wait: v(),
        hot_in_use: v(),
        memory,
        // All cores share these: they are read once, below.
        buffers: DepotStats::default(),
        tcp,
        forwards,
        offers,
        tasks: v(),
        task_bytes: v(),
        tasks_spawned: values.next(),
        task_polls: values.next(),
        tasks_panicked: values.next(),
        tasks_boxed: values.next(),
        task_slots_retired: values.next(),
        turns,
        blocking: BlockingReport::default(),
        messages_spilled: values.next(),
        device: DeviceLosses::default(),
        shortages: ShortageReport::default(),
    }
}

fn buffers(values: &mut Values) -> DepotStats {
    DepotStats {
        capacity: values.next_usize(),
        free: values.next_usize(),
        outstanding: values.next_usize(),
        strays: values.next(),
        late: values.next(),
        committed_bytes: values.next_usize(),
    }
}

fn io_of(values: &mut Values) -> IoCounters {
    let next = |values: &mut Values| {
        let counter = janus_io::Counter::default();
        counter.set(values.next());
        counter
    };
    IoCounters {
        received: next(values),
        delivered: next(values),
        dropped_full: next(values),
        dropped_syn_room: next(values),
        dropped_malformed: next(values),
        dropped_unknown: next(values),
        dropped_martian: next(values),
        dropped_denied: next(values),
        dropped_syn_rate: next(values),
        dropped_no_shard: next(values),
        dropped_no_buffer: next(values),
        sent: next(values),
        completed: next(values),
        slept: next(values),
    }
}

/// The text of so many cores with one report each, and all values that went in.
fn text_of(cores: usize, format: Format) -> (String, std::ops::RangeInclusive<u64>) {
    let mut values = Values(1_000_000_000_000);
    let of_core = |core| {
        let mut known = Known::default();
        known.take(&report_of(&mut values, core));
        known.values()
    };
    let of_cores = (0..cores).map(of_core).collect();
    let io = [Arc::new(io_of(&mut values))];
    let idle = values.next_usize();
    let shared = RuntimeValues {
        serving: true,
        cores,
        buffers: buffers(&mut values),
        blocking: BlockingReport {
            // The busy ones are told, and they are the rest.
            threads: idle + values.next_usize(),
            idle,
            waiting: values.next_usize(),
            done: values.next(),
            refused: values.next(),
            threads_refused: values.next(),
        },
        device: DeviceLosses {
            no_buffer: values.next(),
            bad_checksum: values.next(),
        },
        shortages: ShortageReport {
            descriptors: values.next(),
            clients_reset: values.next(),
            portal_full: values.next(),
            trace_bursts: values.next(),
        },
        io: &io,
        admin: &AdminCounters::default(),
    };
    let text = render(&Snapshot::new(shared, vec![1; cores], of_cores), format);
    (text, 1_000_000_001_001..=values.0)
}

/// The samples of a text: the name with its labels, and the value.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples: Vec<_> = lines.filter_map(|line| line.rsplit_once(' ')).collect();
    let by_name: BTreeMap<_, _> = samples
        .iter()
        .map(|(name, value)| (*name, value.parse().expect("a number")))
        .collect();
    assert_eq!(by_name.len(), samples.len(), "a sample occurs twice");
    by_name
}

#[test]
fn every_field_of_the_reports_is_a_metric() {
    let (text, range) = text_of(1, Format::OpenMetrics);
    let mut shown: BTreeSet<u64> = BTreeSet::new();
    let mut last = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        // Nanoseconds again.
        let mut value: u64 = value.replace('.', "").parse().expect("a number");
        // Each bucket holds those before it.
        if name.contains("_bucket") {
            (last, value) = (value, value - last);
        }
        shown.insert(value);
    }
    let missing: Vec<u64> = range
        .clone()
        .step_by(1_001)
        .filter(|v| !shown.contains(v))
        .collect();
    assert!(missing.is_empty(), "of {range:?}: {missing:?}\n{text}");
}

#[test]
fn every_counter_of_tcp_is_a_metric_of_its_own_place() {
    let one = |name: &str| {
        let mut counters = Counters::default();
        match name {
            "accepted" => counters.accepted = 7,
            "dropped_window" => counters.dropped_window = 7,
            "resets_in" => counters.resets_in = 7,
            _ => unreachable!(),
        }
        counters
    };
    let before = report_of(&mut Values(0), 0);
    for (name, line) in [
        ("accepted", "janus_tcp_accepted_total"),
        ("resets_in", "janus_tcp_resets_in_total"),
        (
            "dropped_window",
            "janus_tcp_dropped_total{cause=\"window\"}",
        ),
    ] {
        let mut known = Known::default();
        known.take(&CoreReport {
            tcp: one(name),
            ..before
        });
        let shared = RuntimeValues {
            serving: true,
            cores: 1,
            buffers: DepotStats::default(),
            blocking: BlockingReport::default(),
            device: DeviceLosses::default(),
            shortages: ShortageReport::default(),
            io: &[],
            admin: &AdminCounters::default(),
        };
        let cores = vec![known.values()];
        let text = render(&Snapshot::new(shared, vec![0], cores), Format::OpenMetrics);
        let of_tcp = |(name, _): &(&&str, &f64)| {
            name.starts_with("janus_tcp_") && !name.starts_with("janus_tcp_memory")
        };
        let samples = samples(&text);
        let tcp: Vec<_> = samples.iter().filter(of_tcp).collect();
        assert_eq!(tcp.len(), Counters::default().iter().count());
        for (sample, value) in tcp {
            assert_eq!(*value, if *sample == line { 7.0 } else { 0.0 }, "{sample}");
        }
    }
}

/// The rules of OpenMetrics that a text of ours could break.
#[test]
fn the_text_keeps_the_rules_of_its_format() {
    for format in [Format::OpenMetrics, Format::Prometheus] {
        let (text, _) = text_of(3, format);
        let open = format == Format::OpenMetrics;
        assert_eq!(text.ends_with("\n# EOF\n"), open);
        assert_eq!(text.matches("# EOF").count(), usize::from(open));
        let mut names = BTreeSet::new();
        let mut family = ("", "");
        for line in text.lines().filter(|line| *line != "# EOF") {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "TYPE", name, kind] => {
                    assert!(names.insert(name), "{name} is there twice");
                    family = (name, kind);
                }
                ["#", "UNIT", name, unit] => {
                    assert!(
                        open && name == family.0 && name.ends_with(&format!("_{unit}")),
                        "{line}"
                    );
                }
                ["#", "HELP", name, help] => {
                    assert!(name == family.0 && help.ends_with('.'), "{line}");
                }
                _ => {
                    let (sample, value) = line.rsplit_once(' ').expect("a value");
                    let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
                    let suffix = name.strip_prefix(family.0).expect("of its family");
                    let right = match (family.1, open) {
                        ("counter", true) => suffix == "_total",
                        ("histogram", _) => ["_bucket", "_count", "_sum"].contains(&suffix),
                        _ => suffix.is_empty(),
                    };
                    assert!(right && labels.ends_with('}'), "{line}");
                    assert!(
                        value.parse::<f64>().is_ok_and(|value| value >= 0.0),
                        "{line}"
                    );
                }
            }
        }
        assert_eq!(names.len(), FAMILIES.len());
        samples(&text);
    }
}

#[test]
fn the_text_of_the_largest_runtime_is_bounded() {
    let (text, _) = text_of(crate::config::CORES_MAX, Format::OpenMetrics);
    assert!(text.len() < 256 * 1024, "{} bytes", text.len());
}

#[test]
fn a_request_gets_the_format_that_it_takes() {
    let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for (accept, format) in [
        ("", Format::OpenMetrics),
        ("*/*", Format::OpenMetrics),
        (prometheus, Format::OpenMetrics),
        ("Text/Plain", Format::Prometheus),
        ("text/plain;version=0.0.4, */*", Format::Prometheus),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
}

/// At the end its tasks go before the core does, and after a panic of its loop it has a new stack.
#[test]
fn what_a_core_has_counted_stays_counted() {
    let mut known = Known::default();
    let place = |name: &str| {
        let cores = FAMILIES
            .iter()
            .filter(|family| matches!(family.read, Read::Core(_)));
        let before = cores.take_while(|family| family.name != name);
        before.map(|family| family.parts.len()).sum::<usize>()
    };
    let (spawned, alive) = (place("janus_tasks_spawned"), place("janus_tasks"));
    let first = report_of(&mut Values(0), 0);
    for (counted, living, sum) in [(10, 4, 10), (12, 5, 12), (0, 0, 12), (3, 3, 15), (4, 1, 16)] {
        known.take(&CoreReport {
            tasks_spawned: counted,
            tasks: living,
            ..first
        });
        assert_eq!(known.values()[spawned], sum);
        assert_eq!(known.values()[alive], living as u64, "a gauge falls");
    }
}

/// Runs promtool; `None` where there is none.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        let required = std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1");
        assert!(!required, "JANUS_PRIVILEGED=1, but there is no promtool");
        let _ = writeln!(std::io::stderr(), "skipped: no promtool");
        return None;
    };
    let mut to = child.stdin.take().expect("a pipe");
    to.write_all(input.as_bytes()).expect("it reads");
    drop(to);
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    Some((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

#[test]
fn promtool_finds_nothing_to_mend() {
    let (text, _) = text_of(2, Format::Prometheus);
    if let Some((fine, said)) = promtool(&["check", "metrics"], &text) {
        assert!(fine && said.is_empty(), "{said}");
        // It does judge.
        let (fine, _) =
            promtool(&["check", "metrics"], &text.replace("# HELP", "#")).expect("again");
        assert!(!fine);
    }
}

/// Its reader of OpenMetrics is that of Prometheus; it wants a time with each sample.
#[test]
fn prometheus_reads_the_openmetrics_text() {
    let (text, _) = text_of(2, Format::OpenMetrics);
    let timed = |line: &str| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => format!("{line} 1700000000\n"),
    };
    let text: String = text.lines().map(timed).collect();
    let folder = std::env::temp_dir().join(format!("janus-metrics-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("text");
    let path = |path: &std::path::Path| path.display().to_string();
    let judge = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        let arguments = [
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            &path(&file),
            &path(&folder),
        ];
        promtool(&arguments, "")
    };
    if let Some((fine, said)) = judge(&text) {
        assert!(fine, "{said}");
        let (fine, _) = judge(&text.replace("# EOF\n", "")).expect("again");
        assert!(!fine, "it does judge");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// The alerts that the manual proposes are ones that Prometheus takes.
#[test]
fn prometheus_takes_the_alerts_of_the_manual() {
    let Ok(page) = std::fs::read_to_string(PAGE) else {
        return;
    };
    let (_, rest) = page.split_once("## What to watch").expect("a section");
    let (section, _) = rest.split_once("\n## ").expect("another");
    let mut rules = String::from("groups:\n- name: janus\n  rules:\n");
    let mut count = 0;
    for row in section.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (alert, _) = row.split_once('`').expect("a condition");
        let alert = alert.replace("\\|", "|");
        count += 1;
        writeln!(rules, "  - alert: A{count}\n    expr: '{alert}'").expect("a string");
    }
    assert!(count >= 10, "{section}");
    let name = format!("janus-alerts-{}.yml", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, rules).expect("a file");
    let judged = promtool(&["check", "rules", &file.display().to_string()], "");
    std::fs::remove_file(&file).expect("it is ours");
    if let Some((fine, said)) = judged {
        assert!(
            fine && said.contains(&format!("{count} rules found")),
            "{said}"
        );
    }
}

/// The manual; the crate can be tested without the repository around it.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
const BEGIN: &str =
    "<!-- Made by the test `the_manual_lists_every_metric`; JANUS_WRITE=1 writes it anew. -->\n";
const END: &str = "<!-- To here. -->\n";

/// The two tables of the manual.
fn tables() -> String {
    let mut text = String::from("\n| metric | labels | type | what it is |\n|---|---|---|---|\n");
    for family in FAMILIES.iter() {
        let labels = match (family.each_core, family.label, &*family.parts) {
            (true, ..) => "`core`".into(),
            (false, "", _) => String::new(),
            (false, "le", _) => "`le`".into(),
            (false, label @ "version", _) => format!("`{label}`"),
            (false, label, _) if family.name == "janus_tcp_dropped" => format!("`{label}`: below"),
            (false, label, parts) => format!("`{label}`: {}", parts.join(", ")),
        };
        let (name, kind) = (family.full_name(), family.kind.name());
        writeln!(text, "| `{name}` | {labels} | {kind} | {} |", family.help).expect("a string");
    }
    text.push_str(
        "\nThe causes of `janus_tcp_dropped_total`:\n\n| `cause` | dropped |\n|---|---|\n",
    );
    for (name, help) in Counters::descriptions() {
        if let Some(cause) = name.strip_prefix("dropped_") {
            let help = help.strip_prefix("Dropped: ").unwrap_or(help);
            writeln!(text, "| `{cause}` | {help} |").expect("a string");
        }
    }
    text.push('\n');
    text
}

#[test]
fn the_manual_lists_every_metric() {
    let Ok(page) = std::fs::read_to_string(PAGE) else {
        return;
    };
    let (head, rest) = page.split_once(BEGIN).expect("where the tables begin");
    let (listed, tail) = rest.split_once(END).expect("where they end");
    if std::env::var_os("JANUS_WRITE").is_some() {
        let page = [head, BEGIN, &tables(), END, tail].concat();
        std::fs::write(PAGE, page).expect("it can be written");
        return;
    }
    assert!(
        listed == tables(),
        "JANUS_WRITE=1 cargo test -p janus-rt --lib the_manual_lists writes it anew"
    );
    // What the prose speaks of is there.
    let names: BTreeSet<String> = FAMILIES.iter().map(|family| family.full_name()).collect();
    for text in [head, tail] {
        let spoken = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for word in spoken.filter(|word| word.starts_with("janus_") && !word.ends_with('_')) {
            let word = ["_bucket", "_count", "_sum"]
                .iter()
                .fold(word, |word, suffix| word.trim_end_matches(suffix));
            assert!(names.contains(word), "{word}");
        }
    }
}

#[test]
fn names_say_their_units_and_no_counter_its_suffix_twice() {
    for family in FAMILIES.iter() {
        let name = &*family.name;
        assert!(
            name.starts_with("janus_") && !name.ends_with("_total"),
            "{name}"
        );
        assert_eq!(
            family.unit == Unit::Seconds,
            name.ends_with("_seconds"),
            "{name}"
        );
        assert_eq!(
            family.unit == Unit::Bytes,
            name.ends_with("_bytes"),
            "{name}"
        );
        assert_eq!(
            family.full_name().ends_with("_total"),
            family.kind == Kind::Counter
        );
    }
}
