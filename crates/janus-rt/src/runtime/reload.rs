//! Settings read again while the runtime runs: what can change at once does, the rest is named.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, PoisonError};

use janus_tcp::BufferSizes;

use super::BoxError;
use crate::config::{self, Effective, Live, Partial, Settings};
use crate::control::desk::Desk;
use crate::policy::Entrance;
use crate::shard::here;
use crate::task::Cores;
use crate::task::blocking::Blocking;

/// What of a runtime can be changed while it runs.
pub(crate) struct Levers {
    pub(crate) live: Arc<Live>,
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) blocking: Arc<Blocking>,
    pub(crate) cores: Arc<Cores>,
    /// Where the settings say nothing of them, and as the stacks began with them.
    pub(crate) usual: BufferSizes,
    pub(crate) first: BufferSizes,
    /// The device does: what is usual for the polling cores' rules depends on it.
    pub(crate) leads_outside: bool,
    /// A policy has watched the load from the start: where none does, nobody gathers what it would look at.
    pub(crate) watched: bool,
}

/// How a key's new value comes to hold; false: not before the next start.
type Apply = fn(&Levers, &Settings) -> bool;

/// Keys whose values can change live.
const LIVE: &[(&str, Apply)] = &[
    ("drain_ms", |levers, new| {
        levers.live.set_drain(new.drain);
        true
    }),
    ("backlog", |levers, new| {
        levers.live.set_backlog(new.backlog);
        true
    }),
    ("dns", |levers, new| {
        levers.live.set_name_servers(&new.name_servers);
        true
    }),
    ("blocking_threads", |levers, new| {
        levers.blocking.set_threads_max(new.blocking_threads);
        true
    }),
    ("warn_blocked_ms", |levers, new| {
        levers.desk.want_limit(new.warn_blocked);
        true
    }),
    ("receive_buffer", receive_buffers),
    ("receive_buffer_max", receive_buffers),
    ("send_buffer", send_buffers),
    ("send_buffer_max", send_buffers),
    ("balance", watch),
    ("balance_interval_ms", watch),
    ("trace_filter", |levers, new| {
        let trace = levers.entrance.trace.as_ref();
        let filter = || new.trace_filter.clone();
        trace.map(|trace| trace.set_filter(filter())).is_some()
    }),
    ("policy_martians", rules),
    ("policy_allow", rules),
    ("policy_deny", rules),
    ("policy_syn_rate", rules),
    ("policy_syn_burst", rules),
    ("policy_syn_prefix", rules),
    ("policy_syn_prefix_v6", rules),
];

fn watch(levers: &Levers, new: &Settings) -> bool {
    if levers.watched {
        levers.desk.want_watch(new.balance, new.balance_interval);
    }
    levers.watched
}

/// Both sizes together, unless no window as large can be offered.
fn receive_buffers(levers: &Levers, new: &Settings) -> bool {
    let wanted = new.buffers(levers.usual);
    let sizes = BufferSizes {
        receive: wanted.receive,
        receive_max: wanted.receive_max,
        ..levers.live.buffers()
    };
    sizes.can_follow(&levers.first) && resize_buffers(levers, sizes)
}

fn send_buffers(levers: &Levers, new: &Settings) -> bool {
    let wanted = new.buffers(levers.usual);
    let sizes = BufferSizes {
        send: wanted.send,
        send_max: wanted.send_max,
        ..levers.live.buffers()
    };
    resize_buffers(levers, sizes)
}

/// Each core takes them as it comes to read its messages. One that has fallen serves nobody any more.
fn resize_buffers(levers: &Levers, sizes: BufferSizes) -> bool {
    levers.live.set_buffers(sizes);
    let job = || {
        here::with(|here| {
            let sizes = here.live.buffers();
            here.stack.borrow_mut().resize_buffers(sizes);
        });
    };
    levers.cores.run_on_each(job)
}

/// All of them together: each is a part of one set.
fn rules(levers: &Levers, new: &Settings) -> bool {
    let policy = &levers.entrance.policy;
    let own = policy.rules().own;
    policy.set(new.policy.rules(levers.leads_outside, own));
    true
}

/// Where settings come from: what the builder was told, over what is read each time.
pub(crate) struct Sources {
    pub(crate) alone: bool,
    /// The builder's.
    pub(crate) file: Option<PathBuf>,
    pub(crate) builder: Partial,
}

impl Sources {
    /// What they say now.
    pub(crate) fn read(&self) -> Result<(Settings, Effective), BoxError> {
        let file = self.file.clone();
        let said = if self.alone {
            let file = file.map(|file| config::from_file(Some(&file)));
            file.transpose()?.unwrap_or_default()
        } else {
            let named = || std::env::var_os("JANUS_CONFIG").filter(|name| !name.is_empty());
            let file = file.or_else(|| named().map(PathBuf::from));
            // A name or value that is no text is no name of ours.
            let variables = std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
            let environment = config::from_environment(variables, warn_of)?;
            config::from_file(file.as_deref())?.overlay(environment)
        };
        // What the builder says may be what makes sense of the rest.
        let without_builder = said.clone().resolve().ok();
        let words = said.said.clone();
        let settings = said.overlay(self.builder.clone()).resolve()?;
        let effective = Effective::of(words, without_builder.as_ref(), &settings);
        Ok((settings, effective))
    }
}

/// Says once in the life of the process which variables are no settings.
fn warn_of(strange: &[String]) {
    static SAID: Once = Once::new();
    SAID.call_once(|| eprintln!("janus: no settings, and left alone: {}", strange.join(", ")));
}

/// What a reload came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Keys whose new values hold from now on (for listeners bound from now on, `backlog`), unless the builder has the last
    /// word on them.
    pub applied: Vec<&'static str>,
    /// Keys whose new values need a new start; the old ones hold.
    pub on_restart: Vec<&'static str>,
}

/// The settings of a running runtime.
pub(crate) struct Reloading {
    sources: Sources,
    effective: Mutex<Effective>,
    levers: Levers,
}

impl Reloading {
    pub(crate) fn new(sources: Sources, effective: Effective, levers: Levers) -> Reloading {
        Reloading {
            sources,
            effective: Mutex::new(effective),
            levers,
        }
    }

    /// Reads everything again. With a mistake anywhere nothing changes.
    pub(crate) fn reload(&self) -> io::Result<Reloaded> {
        let invalid = |error: BoxError| io::Error::new(io::ErrorKind::InvalidData, error);
        let (settings, new) = self.sources.read().map_err(invalid)?;
        let mut effective = self
            .effective
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut done = Reloaded::default();
        for key in new.differs(&effective) {
            let apply = LIVE.iter().find(|(live, _)| *live == key);
            match apply.is_some_and(|(_, apply)| apply(&self.levers, &settings)) {
                true => done.applied.push(key),
                false => done.on_restart.push(key),
            }
        }
        *effective = new;
        Ok(done)
    }
}
