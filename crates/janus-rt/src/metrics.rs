//! The counters and gauges of a whole runtime as text for a monitoring system: OpenMetrics 1.0, or the older text format of
//! Prometheus.
//!
//! The text is served by the runtime itself on an admin port (the setting `admin`), or by a program that asks for it:
//!
//! ```
//! # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
//! use janus::metrics::{Format, gather};
//!
//! let format = Format::accepted("text/plain;version=0.0.4");
//! let body = gather(format).await;
//! assert!(body.contains("janus_connections{core=\"0\"} 0\n"));
//! println!("Content-Type: {}\r\n\r\n{body}", format.content_type());
//! # })?;
//! # Ok::<(), janus::BoxError>(())
//! ```
//!
//! `docs/metrics.md` lists every metric with its unit. The declarations are in `families`, the way in which the cores are asked
//! in `collect`, the two formats in `text`. Nothing here counts anything.

mod collect;
mod families;
mod family;
#[cfg(test)]
mod tests;
mod text;

use std::time::Duration;

pub(crate) use collect::{Collected, Collector};

use crate::shard::core_context;
use crate::time::sleep;

/// Longest time that a core's answer is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two looks for answers, at first and at last.
const LOOK_MIN: Duration = Duration::from_micros(100);
const LOOK_MAX: Duration = Duration::from_millis(10);

/// Text format of the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// OpenMetrics 1.0.
    #[default]
    OpenMetrics,
    /// Prometheus's text format, version 0.0.4.
    Prometheus,
}

impl Format {
    /// Returns the format for a request with this `Accept` header: OpenMetrics, unless the header names `text/plain` and not
    /// OpenMetrics.
    pub fn accepted(accept: &str) -> Format {
        let accept = accept.to_ascii_lowercase();
        let old = accept.contains("text/plain") && !accept.contains("application/openmetrics-text");
        if old {
            Format::Prometheus
        } else {
            Format::OpenMetrics
        }
    }

    /// Returns the `Content-Type` of this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Asks every core of this runtime for its counters and returns the metrics as text.
///
/// A core that does not answer within a second has the values of its last answer, and `janus_core_stalled` is 1 for it. On a
/// clock that [stands](crate::Builder::start_paused) the second does not pass while a core is busy.
///
/// # Panics
/// When polled where no Janus core runs.
pub async fn gather(format: Format) -> String {
    let shared = core_context::shared();
    let shared = shared.expect("janus::metrics::gather was awaited where no Janus core runs");
    let metrics = Collector::of(shared);
    let round = metrics.ask();
    let mut look = LOOK_MIN;
    let mut waited = Duration::ZERO;
    while !metrics.is_answered(&round) && waited < PATIENCE {
        sleep(look).await;
        waited += look;
        look = (look * 2).min(LOOK_MAX);
    }
    metrics.text(&round, format)
}
