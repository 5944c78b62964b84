//! A family of samples, as it is declared: name, unit, type, help, label, and where its values are read.

use std::borrow::Cow;

use super::collect::RuntimeValues;
use crate::admission::IoCounters;
use crate::shard::CoreReport;

/// Type of a family, by OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// One value for each bucket, not yet cumulative, and the sum at the end.
    Histogram,
}

impl Kind {
    /// Whether its values never fall.
    pub(super) fn grows(self) -> bool {
        self != Kind::Gauge
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Unit of a family; its name ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A number of things.
    Count,
    Bytes,
    /// Values are in nanoseconds.
    Seconds,
}

impl Unit {
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Unit::Count => None,
            Unit::Bytes => Some("bytes"),
            Unit::Seconds => Some("seconds"),
        }
    }
}

/// How values come out of a core's report.
pub(super) enum OfCore {
    One(fn(&CoreReport) -> u64),
    /// One value for each part.
    Parts(fn(&CoreReport) -> Vec<u64>),
    /// These of TCP's counters, by their places.
    Tcp(Vec<usize>),
}

impl OfCore {
    /// Appends the values.
    pub(super) fn values(&self, report: &CoreReport, values: &mut Vec<u64>) {
        match self {
            OfCore::One(read) => values.push(read(report)),
            OfCore::Parts(read) => values.extend(read(report)),
            OfCore::Tcp(places) => {
                let counts: Vec<u64> = report.tcp.iter().map(|(_, count)| count).collect();
                values.extend(places.iter().map(|place| counts[*place]));
            }
        }
    }
}

/// Where the values of a family come from.
pub(super) enum Read {
    Core(OfCore),
    /// Summed over the cores that poll devices.
    Io(fn(&IoCounters) -> Vec<u64>),
    /// From what the cores share.
    Shared(fn(&RuntimeValues) -> Vec<u64>),
    /// Whether each core is stalled.
    Stalled,
}

/// A metric, or several that differ in one label.
pub(super) struct Family {
    /// Without the suffix `_total` of a counter.
    pub(super) name: Cow<'static, str>,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
    /// Whether each core has a sample, labelled `core`; else the cores are summed.
    pub(super) each_core: bool,
    /// Name of the label that tells the parts apart; empty: there is one part.
    pub(super) label: &'static str,
    /// Values of that label, one for each value that is read.
    pub(super) parts: Vec<&'static str>,
    pub(super) read: Read,
}

impl Family {
    pub(super) fn new(
        kind: Kind,
        name: impl Into<Cow<'static, str>>,
        help: &'static str,
        read: Read,
    ) -> Family {
        let name = name.into();
        let unit = match name.rsplit('_').next() {
            Some("bytes") => Unit::Bytes,
            Some("seconds") => Unit::Seconds,
            _ => Unit::Count,
        };
        Family {
            name,
            kind,
            unit,
            help,
            each_core: false,
            label: "",
            parts: vec![""],
            read,
        }
    }

    /// Tells its parts apart by this label.
    pub(super) fn by(mut self, label: &'static str, parts: impl Into<Vec<&'static str>>) -> Family {
        (self.label, self.parts) = (label, parts.into());
        self
    }

    /// Has a sample for each core.
    pub(super) fn each_core(mut self) -> Family {
        self.each_core = true;
        self
    }

    /// Name as it stands in rules and queries.
    pub(super) fn full_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_string(),
        }
    }
}
