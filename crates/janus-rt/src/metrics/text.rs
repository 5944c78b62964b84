//! The text of the metrics. OpenMetrics and Prometheus's older format differ in three things here: the older one names counters
//! with their suffix in `HELP` and `TYPE`, has no `UNIT`, and no line at the end.

use std::fmt::{self, Write};

use super::Format;
use super::collect::RuntimeValues;
use super::families::FAMILIES;
use super::family::{Family, Kind, Read, Unit};

/// Values of one moment.
pub(super) struct Snapshot<'a> {
    shared: RuntimeValues<'a>,
    /// 1 for each core that is stalled.
    stalled: Vec<u64>,
    /// Of each core the values of all families that are read from cores, in order; none of a core that has never answered.
    cores: Vec<Vec<u64>>,
}

impl<'a> Snapshot<'a> {
    pub(super) fn new(
        shared: RuntimeValues<'a>,
        stalled: Vec<u64>,
        cores: Vec<Vec<u64>>,
    ) -> Snapshot<'a> {
        Snapshot {
            shared,
            stalled,
            cores,
        }
    }

    /// The values of a family: one row for each core, or one row in all. `place`: where its values begin in those of a core.
    fn rows(&self, family: &Family, place: usize) -> Vec<Vec<u64>> {
        let parts = family.parts.len();
        match &family.read {
            Read::Stalled => self.stalled.iter().map(|stalled| vec![*stalled]).collect(),
            Read::Shared(read) => vec![read(&self.shared)],
            Read::Io(read) => {
                let each = self.shared.io.iter().map(|io| read(io));
                vec![sum(each, parts)]
            }
            Read::Core(_) => {
                let of_core = |core: &Vec<u64>| match core.get(place..place + parts) {
                    Some(values) => values.to_vec(),
                    None => vec![0; parts],
                };
                let each = self.cores.iter().map(of_core);
                match family.each_core {
                    true => each.collect(),
                    false => vec![sum(each, parts)],
                }
            }
        }
    }
}

fn sum(rows: impl Iterator<Item = Vec<u64>>, parts: usize) -> Vec<u64> {
    rows.fold(vec![0; parts], |mut sum, row| {
        sum.iter_mut()
            .zip(row)
            .for_each(|(sum, value)| *sum = sum.saturating_add(value));
        sum
    })
}

/// The whole text.
pub(super) fn render(snapshot: &Snapshot, format: Format) -> String {
    let mut text = String::with_capacity(32 * 1024);
    let mut place = 0;
    for family in FAMILIES.iter() {
        // A string takes whatever is written.
        let _ = write_family(&mut text, family, &snapshot.rows(family, place), format);
        if let Read::Core(_) = family.read {
            place += family.parts.len();
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn write_family(
    text: &mut String,
    family: &Family,
    rows: &[Vec<u64>],
    format: Format,
) -> fmt::Result {
    let full = family.full_name();
    let described = match format {
        Format::OpenMetrics => &*family.name,
        Format::Prometheus => &full,
    };
    writeln!(text, "# TYPE {described} {}", family.kind.name())?;
    if let (Format::OpenMetrics, Some(unit)) = (format, family.unit.name()) {
        writeln!(text, "# UNIT {described} {unit}")?;
    }
    writeln!(text, "# HELP {described} {}", escaped(family.help, format))?;
    for (core, row) in rows.iter().enumerate() {
        if family.kind == Kind::Histogram {
            write_histogram(text, family, row)?;
            continue;
        }
        for (part, value) in family.parts.iter().zip(row) {
            text.push_str(&full);
            match (family.each_core, family.label) {
                (true, _) => write!(text, "{{core=\"{core}\"}}")?,
                (false, "") => {}
                (false, label) => write!(text, "{{{label}=\"{part}\"}}")?,
            }
            write_value(text, *value, family.unit)?;
        }
    }
    Ok(())
}

/// Buckets count what is at most so large, so each has those before it in it.
fn write_histogram(text: &mut String, family: &Family, row: &[u64]) -> fmt::Result {
    let name = &family.name;
    let Some((sum, buckets)) = row.split_last() else {
        return Ok(());
    };
    let mut count = 0;
    for (part, bucket) in family.parts.iter().zip(buckets) {
        count += bucket;
        writeln!(text, "{name}_bucket{{le=\"{part}\"}} {count}")?;
    }
    writeln!(text, "{name}_count {count}\n{name}_sum {sum}")
}

fn write_value(text: &mut String, value: u64, unit: Unit) -> fmt::Result {
    const SECOND: u64 = 1_000_000_000;
    match unit {
        Unit::Seconds => writeln!(text, " {}.{:09}", value / SECOND, value % SECOND),
        Unit::Count | Unit::Bytes => writeln!(text, " {value}"),
    }
}

/// Both formats escape backslashes and line feeds in a help text, OpenMetrics quotation marks too.
fn escaped(help: &str, format: Format) -> String {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    match format {
        Format::OpenMetrics => help.replace('"', "\\\""),
        Format::Prometheus => help,
    }
}
