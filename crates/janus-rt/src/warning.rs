//! Warnings: events that a program should know of although no call failed. Those about a task come once for each kind of task, those about
//! losses at most every few seconds for each kind of loss (`control/alarms`).

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

use crate::lock::Lock;
use crate::losses::BRIDGES_MAX;

/// Most kinds of tasks that are remembered, so that each is reported once.
const REMEMBERED_MAX: usize = 1024;

/// An event that a program should know of, and that is no error of a call.
///
/// [`LargeFuture`](Warning::LargeFuture), [`CoreBlocked`](Warning::CoreBlocked) and [`NeedsTokio`](Warning::NeedsTokio) come once
/// for each kind of task. The others are about losses: the first comes at once, further ones of its kind ten seconds later at
/// the earliest. `count` is the number since the last warning of the kind, `core` the core on which all of them happened, or
/// `None` where there is no such core. The counters beside them, in [`CoreReport`](crate::CoreReport), count on meanwhile.
///
/// ```
/// use janus::{Runtime, Warning};
///
/// let builder = Runtime::builder().on_warning(|warning| match warning {
///     Warning::CoreBlocked { core, time, .. } => eprintln!("core {core} is kept for {time:?}"),
///     other => eprintln!("{other}"),
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A task's future is large: every task of that kind takes so much memory for as long as it lives.
    LargeFuture {
        /// Type of the future.
        task: &'static str,
        /// Its size in bytes.
        bytes: usize,
    },
    /// A task has kept its core for long: no other task ran and no packet was handled meanwhile.
    CoreBlocked {
        /// Number of the core, from 0.
        core: usize,
        /// Type of the future that is being polled.
        task: &'static str,
        /// Least time it has taken so far, without the time its thread waited for a processor.
        time: Duration,
    },
    /// A task panicked because it used what needs tokio's runtime, and there is none.
    NeedsTokio {
        /// Type of the future.
        task: &'static str,
    },
    /// No file descriptor was free. Clients of the portal wait half a second for one, and are reset then; what a task connects to
    /// through the portal is tried again with its next SYN. Counters: `shortages.descriptors`, `shortages.clients_reset`.
    NoDescriptors {
        /// Times a descriptor was wanted in vain.
        count: u64,
        /// Descriptors that the process may have; `None`: the system has the only bound.
        limit: Option<u64>,
    },
    /// The portal has as many connections as it can have, and others wait. Counter: `shortages.portal_full`.
    PortalFull {
        /// Times another connection was wanted.
        count: u64,
    },
    /// The system refused threads for blocking calls. Counter: `blocking.threads_refused`.
    NoThreads {
        /// Threads refused.
        count: u64,
    },
    /// The packet trace could not be written and has a gap. Counter: `shortages.trace_bursts`.
    TraceGap {
        /// Bursts of frames that could not be written when they came.
        count: u64,
        /// Kind of the last error of the file.
        error: Option<ErrorKind>,
    },
    /// Frames were dropped for a wrong checksum. Counters: `tcp.dropped_checksum`, `device.bad_checksum`.
    BadChecksums {
        /// The core, if it was one.
        core: Option<usize>,
        /// Frames dropped.
        count: u64,
    },
    /// No packet buffer was free: frames were lost, or writes had to wait. Counters: `tcp.dropped_no_buffer`,
    /// `tcp.dropped_pressure`, `tcp.starved`, `device.no_buffer`, and `dropped_no_buffer` of
    /// [`IoCounters`](crate::admission::IoCounters).
    NoPacketBuffers {
        /// The core, if it was one.
        core: Option<usize>,
        /// Times a buffer was wanted in vain.
        count: u64,
    },
    /// A neighbor did not answer ARP or neighbor discovery, and packets for it were dropped. Counter: `tcp.dropped_no_neighbor`.
    UnknownNeighbor {
        /// The core, if it was one.
        core: Option<usize>,
        /// Packets dropped.
        count: u64,
        /// The neighbor that did not answer last.
        address: Option<IpAddr>,
    },
    /// SYNs, or the ends of handshakes, found the accept queue of their listener full. Counter: `tcp.dropped_accept_full`.
    AcceptQueueFull {
        /// The core, if it was one.
        core: Option<usize>,
        /// Segments dropped.
        count: u64,
    },
    /// More handshakes were begun than may be half open: SYNs were answered with cookies, or pushed out older ones where there
    /// are no cookies. Counters: `tcp.cookies_sent`, `tcp.half_open_evicted`.
    SynFlood {
        /// The core, if it was one.
        core: Option<usize>,
        /// SYNs answered so.
        count: u64,
    },
    /// Frames were lost on the way to a core that did not take them in time. Counters: `dropped_full` and `dropped_syn_room` of
    /// [`IoCounters`](crate::admission::IoCounters) and of [`ForwardCounters`](crate::ForwardCounters).
    CoreOverrun {
        /// The core that had frames for others, if it was one.
        core: Option<usize>,
        /// Frames lost.
        count: u64,
    },
}

impl Warning {
    /// Returns the name of the kind, such as `"no_descriptors"`, for logs and metrics.
    pub fn name(&self) -> &'static str {
        self.facts().0
    }

    /// Returns the number of losses since the last warning of the kind; `None` where the warning is about a task.
    pub fn count(&self) -> Option<u64> {
        self.facts().1
    }

    /// Returns the core on which it happened; `None` where that was on several, or on none.
    pub fn core(&self) -> Option<usize> {
        self.facts().2
    }

    /// Returns the type of the future that the warning is about.
    fn task(&self) -> Option<&'static str> {
        match *self {
            Warning::LargeFuture { task, .. }
            | Warning::CoreBlocked { task, .. }
            | Warning::NeedsTokio { task } => Some(task),
            _ => None,
        }
    }

    /// Returns name, count and core.
    fn facts(&self) -> (&'static str, Option<u64>, Option<usize>) {
        match *self {
            Warning::LargeFuture { .. } => ("large_future", None, None),
            Warning::CoreBlocked { core, .. } => ("core_blocked", None, Some(core)),
            Warning::NeedsTokio { .. } => ("needs_tokio", None, None),
            Warning::NoDescriptors { count, .. } => ("no_descriptors", Some(count), None),
            Warning::PortalFull { count } => ("portal_full", Some(count), None),
            Warning::NoThreads { count } => ("no_threads", Some(count), None),
            Warning::TraceGap { count, .. } => ("trace_gap", Some(count), None),
            Warning::BadChecksums { count, core } => ("bad_checksums", Some(count), core),
            Warning::NoPacketBuffers { count, core } => ("no_packet_buffers", Some(count), core),
            Warning::UnknownNeighbor { count, core, .. } => ("unknown_neighbor", Some(count), core),
            Warning::AcceptQueueFull { count, core } => ("accept_queue_full", Some(count), core),
            Warning::SynFlood { count, core } => ("syn_flood", Some(count), core),
            Warning::CoreOverrun { count, core } => ("core_overrun", Some(count), core),
        }
    }
}

/// Advice for a task whose code needs tokio's runtime.
pub(crate) const GET_TOKIO: &str = if cfg!(feature = "tokio") {
    "Janus runs inside of tokio unless `tokio = false` says otherwise, as it does here"
} else {
    "build janus-rt with its feature `tokio` (docs/tokio.md), or use janus::time and janus::net"
};

/// Returns a panic's message, if its payload is text.
pub(crate) fn words_of(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

/// Returns whether a panic was for want of tokio's runtime, by the text of tokio's panic.
pub(crate) fn wants_tokio(panic: &(dyn Any + Send)) -> bool {
    words_of(panic).is_some_and(|text| {
        text.contains("from the context of a Tokio") || text.contains("from the context of Tokio")
    })
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::LargeFuture { task, bytes } => write!(
                f,
                "the future of a task takes {bytes} bytes ({}): keep large values in a Box, and buffers out of what lives \
                 across an await",
                readable(task)
            ),
            Warning::CoreBlocked { core, task, time } => write!(
                f,
                "core {core} has been polling one task for {} ms ({}): what blocks belongs into janus::spawn_blocking, what \
                 takes long should await janus::yield_now now and then",
                time.as_millis(),
                readable(task)
            ),
            Warning::NeedsTokio { task } => write!(
                f,
                "a task panicked for want of tokio's runtime ({}): {GET_TOKIO}",
                readable(task)
            ),
            loss => loss.fmt_loss(f),
        }
    }
}

impl Warning {
    fn fmt_loss(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count().unwrap_or_default();
        match self {
            Warning::NoDescriptors { limit, .. } => {
                write!(f, "no file descriptor was free, {}", times(count))?;
                if let Some(limit) = limit {
                    write!(f, " (this process may have {limit})")?;
                }
                f.write_str(
                    ": raise the limit (`ulimit -n`, systemd's LimitNOFILE; fs.file-max for all processes), or close what is \
                     idle; a client of the portal that finds none for half a second is reset",
                )
            }
            Warning::PortalFull { .. } => write!(
                f,
                "the portal has all the {BRIDGES_MAX} connections it can have, and others waited, {}: end idle ones, or serve over \
                 a device (`backend`), which has no such bound",
                times(count)
            ),
            Warning::NoThreads { .. } => write!(
                f,
                "the system refused a thread for blocking calls, {}: raise its limits (`ulimit -u`, `ulimit -v`, systemd's \
                 TasksMax) or lower `blocking_threads`; calls wait for the threads there are, and fail where there is none",
                times(count)
            ),
            Warning::TraceGap { error, .. } => {
                f.write_str("the packet trace has a gap: ")?;
                if let Some(error) = error {
                    write!(f, "{error}, ")?;
                }
                write!(
                    f,
                    "{count} bursts not written; free space where it lies, or narrow it by `trace_filter`; it goes on as soon as \
                     it can"
                )
            }
            Warning::BadChecksums { .. } => {
                write!(f, "{count} frames dropped for a wrong checksum")?;
                self.fmt_core(f)?;
                f.write_str(
                    ": look for a bad cable or memory on the way, and for a sender on this machine that leaves checksums to its \
                     device (`ethtool -K DEVICE tx off`)",
                )
            }
            Warning::NoPacketBuffers { .. } => {
                write!(f, "no packet buffer was free, {}", times(count))?;
                self.fmt_core(f)?;
                f.write_str(
                    ": raise `packet_buffers`, lower `send_buffer` and `receive_buffer`, or read connections sooner; writes wait, \
                     and frames are lost",
                )
            }
            Warning::UnknownNeighbor { address, .. } => {
                write!(f, "{count} packets dropped")?;
                self.fmt_core(f)?;
                match address {
                    Some(address) => write!(
                        f,
                        ", as {address} answers neither ARP nor neighbor discovery"
                    )?,
                    None => f.write_str(", as a neighbor does not answer")?,
                }
                f.write_str(": see whether it is up and on this link, and whether `address`, its prefix length and `gateway` are right")
            }
            Warning::AcceptQueueFull { .. } => {
                write!(f, "{count} handshakes put off by a full accept queue")?;
                self.fmt_core(f)?;
                f.write_str(": accept in a loop that only spawns, raise `backlog`, or give the runtime more cores; clients try again")
            }
            Warning::SynFlood { .. } => {
                write!(f, "{count} SYNs beyond what may be half open")?;
                self.fmt_core(f)?;
                f.write_str(
                    ": if they are no flood, raise `backlog`; if they are, connections are served on by cookies, and \
                     `admission_syn_rate` bounds each network",
                )
            }
            Warning::CoreOverrun { .. } => {
                write!(
                    f,
                    "{count} frames lost because a core did not take them in time"
                )?;
                self.fmt_core(f)?;
                f.write_str(": give the runtime more cores, or look for tasks that keep theirs (`warn_blocked_ms`)")
            }
            Warning::LargeFuture { .. }
            | Warning::CoreBlocked { .. }
            | Warning::NeedsTokio { .. } => Ok(()),
        }
    }

    fn fmt_core(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.core() {
            Some(core) => write!(f, " on core {core}"),
            None => Ok(()),
        }
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// Returns a type's name without parts that only Janus's own types add.
fn readable(task: &str) -> String {
    const OURS: [&str; 2] = [
        "janus::runtime::main_task::MainTask<",
        "janus::task::spawn_on::Sent<",
    ];
    let ours = OURS.iter().find_map(|ours| task.strip_prefix(ours));
    let inner = ours.and_then(|rest| rest.strip_suffix('>'));
    inner.unwrap_or(task).replace("::{{closure}}", "")
}

/// Callback of the program.
pub(crate) type Hook = Box<dyn Fn(&Warning) + Send + Sync>;

/// Destination of a runtime's warnings.
pub(crate) struct Warnings {
    hook: Hook,
    /// Kinds of warnings about tasks, with the tasks, that were reported.
    told: Lock<BTreeSet<(&'static str, &'static str)>>,
}

impl Warnings {
    /// Reports to the program's callback, if it has one; else to `tracing`, where the crate is built with it, or to standard error.
    pub(crate) fn new(hook: Option<Hook>) -> Warnings {
        Warnings {
            hook: hook.unwrap_or_else(|| Box::new(emit)),
            told: Lock::default(),
        }
    }

    /// Reports a warning: about a task once for its kind, about losses always, since their counters keep the pauses.
    pub(crate) fn tell(&self, warning: &Warning) {
        if warning
            .task()
            .is_none_or(|task| self.is_new(warning.name(), task))
        {
            (self.hook)(warning);
        }
    }

    fn is_new(&self, name: &'static str, task: &'static str) -> bool {
        let mut told = self.told.lock();
        told.len() < REMEMBERED_MAX && told.insert((name, task))
    }
}

#[cfg(not(feature = "tracing"))]
fn emit(warning: &Warning) {
    eprintln!("janus: {warning}");
}

/// Makes an event of a warning. Fields that it does not have are left out.
#[cfg(feature = "tracing")]
fn emit(warning: &Warning) {
    let (core, task) = (warning.core(), warning.task().map(readable));
    let bytes = match *warning {
        Warning::LargeFuture { bytes, .. } => Some(bytes),
        _ => None,
    };
    let milliseconds = match *warning {
        Warning::CoreBlocked { time, .. } => Some(time.as_millis() as u64),
        _ => None,
    };
    tracing::warn!(
        target: "janus",
        kind = warning.name(),
        core,
        count = warning.count(),
        task = task.as_deref(),
        bytes,
        milliseconds,
        "{warning}"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn each_kind_is_told_of_once() {
        let heard: Arc<Mutex<Vec<Warning>>> = Arc::default();
        let to = heard.clone();
        let hook: Hook = Box::new(move |warning| to.lock().unwrap().push(warning.clone()));
        let warnings = Warnings::new(Some(hook));
        let large = |task| Warning::LargeFuture { task, bytes: 9000 };
        let blocked = |task| Warning::CoreBlocked {
            core: 1,
            task,
            time: Duration::from_millis(120),
        };
        for _ in 0..3 {
            warnings.tell(&large("a"));
            warnings.tell(&blocked("a"));
            warnings.tell(&large("b"));
        }
        assert_eq!(
            *heard.lock().unwrap(),
            [large("a"), blocked("a"), large("b")]
        );
    }

    #[test]
    fn the_text_names_the_program_s_own_code() {
        let warning = Warning::CoreBlocked {
            core: 2,
            task: "janus::runtime::main_task::MainTask<shop::main::{{closure}}>",
            time: Duration::from_millis(150),
        };
        let text = warning.to_string();
        assert!(text.starts_with("core 2 has been polling one task for 150 ms (shop::main):"));
        let warning = Warning::LargeFuture {
            task: "shop::serve::{{closure}}",
            bytes: 20_000,
        };
        assert!(warning.to_string().contains("20000 bytes (shop::serve)"));
    }

    /// Warnings as a subscriber sees them.
    #[cfg(feature = "tracing")]
    mod events {
        use tracing::field::{Field, Visit};
        use tracing::span::{Attributes, Id, Record};
        use tracing::{Event, Level, Metadata, Subscriber};

        use super::*;

        type Fields = Vec<(&'static str, String)>;
        /// Level, target, and fields in the order of their names.
        type Seen = (Level, &'static str, Fields);

        /// Keeps what it is told.
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<Seen>>>);

        struct Visited<'a>(&'a mut Fields);

        impl Visit for Visited<'_> {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                self.0.push((field.name(), format!("{value:?}")));
            }
        }

        impl Subscriber for Kept {
            fn enabled(&self, _: &Metadata<'_>) -> bool {
                true
            }

            fn new_span(&self, _: &Attributes<'_>) -> Id {
                Id::from_u64(1)
            }

            fn record(&self, _: &Id, _: &Record<'_>) {}

            fn record_follows_from(&self, _: &Id, _: &Id) {}

            fn event(&self, event: &Event<'_>) {
                let mut fields = Fields::new();
                event.record(&mut Visited(&mut fields));
                fields.sort();
                let about = event.metadata();
                let kept = (*about.level(), about.target(), fields);
                self.0.lock().unwrap().push(kept);
            }

            fn enter(&self, _: &Id) {}

            fn exit(&self, _: &Id) {}
        }

        /// What becomes of these warnings, with the hook or without.
        fn events(warnings: &[Warning], hook: Option<Hook>) -> Vec<Seen> {
            let kept = Kept::default();
            tracing::subscriber::with_default(kept.clone(), || {
                let told = Warnings::new(hook);
                warnings.iter().for_each(|warning| told.tell(warning));
            });
            let events = kept.0.lock().unwrap();
            events.clone()
        }

        #[test]
        fn warnings_are_events_where_there_is_no_hook() {
            let lost = Warning::NoPacketBuffers {
                core: Some(3),
                count: 41,
            };
            let blocked = Warning::CoreBlocked {
                core: 2,
                task: "shop::serve::{{closure}}",
                time: Duration::from_millis(150),
            };
            let warnings = [lost.clone(), lost.clone(), blocked.clone(), blocked.clone()];
            let field = |name, value: &str| (name, value.to_owned());
            let lost = vec![
                field("core", "3"),
                field("count", "41"),
                field("kind", "\"no_packet_buffers\""),
                field("message", &lost.to_string()),
            ];
            let blocked = vec![
                field("core", "2"),
                field("kind", "\"core_blocked\""),
                field("message", &blocked.to_string()),
                field("milliseconds", "150"),
                field("task", "\"shop::serve\""),
            ];
            let event = |fields: &Fields| (Level::WARN, "janus", fields.clone());
            let expected = [event(&lost), event(&lost), event(&blocked)];
            assert_eq!(events(&warnings, None), expected, "of a task once");
            assert_eq!(events(&warnings, Some(Box::new(|_| {}))), []);
        }
    }
}
