//! Settings read again while the runtime runs: what can change at once does, the rest is named.

use std::io;
use std::mem::take;
use std::path::PathBuf;
use std::sync::Once;

use crate::admission::Rules;
use crate::config::{self, Change, ConfigError, Effective, KEYS, Key, Partial, Settings};
use crate::lock::Lock;
use crate::shard::core_context;
use crate::shard::shared::Shared;

/// Brings the new values of `change` to where they hold. Returns false if they do not before the next start.
fn apply(change: Change, shared: &Shared, new: &Settings) -> bool {
    let mut next = (*shared.settings.get()).clone();
    let changed = |key: &&Key| key.live == Some(change);
    for key in KEYS.iter().filter(changed) {
        (key.copy)(&mut next, new);
    }
    match change {
        // Cores read these where they need them.
        Change::Backlog | Change::CloseTime | Change::NameServers | Change::SpeculativeAccept => {}
        // Where no policy has watched from the start, what it would look at is not gathered.
        Change::Balance if !shared.watched => return false,
        Change::Balance => shared
            .mailbox
            .want_watch(next.balance, next.balance_interval),
        Change::BlockedLimit => shared.mailbox.want_limit(next.warn_blocked),
        Change::BlockingThreads => shared.blocking.set_threads_max(next.blocking_threads),
        // No window as large can be offered.
        Change::ReceiveBuffers if !next.buffers().can_follow(&shared.first_buffers) => {
            return false;
        }
        Change::ReceiveBuffers | Change::SendBuffers => {
            shared.settings.set(next);
            return resize_buffers(shared);
        }
        Change::Rules => {
            let change = |rules: &mut Rules| {
                *rules = next.rules(shared.leads_outside, take(&mut rules.own));
            };
            shared.ingress.admission.change(change);
        }
        Change::TraceFilter => match &shared.ingress.trace {
            Some(trace) => trace.set_filter(next.trace_filter.clone()),
            None => return false,
        },
    }
    shared.settings.set(next);
    true
}

/// Each core takes them as it comes to read its messages. One that has fallen serves no connections any more.
fn resize_buffers(shared: &Shared) -> bool {
    let job = || {
        core_context::with(|ctx| {
            let sizes = ctx.shared.settings.get().buffers();
            ctx.stack.borrow_mut().resize_buffers(sizes);
        });
    };
    shared.cores.run_on_each(job)
}

/// Where settings come from: what the builder was told, over what is read each time.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) ignore_environment: bool,
    /// The builder's.
    pub(crate) file: Option<PathBuf>,
    pub(crate) builder: Partial,
    /// TCP's configuration, over which all others go.
    pub(crate) tcp: Partial,
}

impl Sources {
    /// Their values now.
    pub(crate) fn read(&self) -> Result<(Settings, Effective), ConfigError> {
        let file = self.file.clone();
        let said = if self.ignore_environment {
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
        let words = said.entries.clone();
        let all = self.tcp.clone().overlay(said);
        let settings = all.overlay(self.builder.clone()).resolve()?;
        let effective = Effective::of(words, without_builder.as_ref(), &settings);
        Ok((settings, effective))
    }
}

/// Says once in the life of the process which variables are no settings.
fn warn_of(strange: &[String]) {
    static SAID: Once = Once::new();
    SAID.call_once(|| eprintln!("janus: no settings, and left alone: {}", strange.join(", ")));
}

/// Result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// Keys whose new values hold from now on (for listeners bound from now on, `backlog`), unless the builder has the last
    /// word on them.
    pub applied: Vec<&'static str>,
    /// Keys whose new values need a new start; the old ones hold.
    pub on_restart: Vec<&'static str>,
}

/// Sources of the settings of a running runtime, and their last words.
#[derive(Default)]
pub(crate) struct Reloading {
    sources: Sources,
    effective: Lock<Effective>,
}

impl Reloading {
    pub(crate) fn new(sources: Sources, effective: Effective) -> Reloading {
        Reloading {
            sources,
            effective: Lock::new(effective),
        }
    }

    /// Reads everything again. With a mistake anywhere nothing changes.
    pub(crate) fn reload(&self, shared: &Shared) -> io::Result<Reloaded> {
        let invalid = |error: ConfigError| io::Error::new(io::ErrorKind::InvalidData, error);
        let (settings, new) = self.sources.read().map_err(invalid)?;
        let mut effective = self.effective.lock();
        let mut done = Reloaded::default();
        for key in new.differs(&effective) {
            match key
                .live
                .is_some_and(|change| apply(change, shared, &settings))
            {
                true => done.applied.push(key.name),
                false => done.on_restart.push(key.name),
            }
        }
        *effective = new;
        Ok(done)
    }
}
