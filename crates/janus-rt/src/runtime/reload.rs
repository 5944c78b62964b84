//! Settings read again while the runtime runs: what can change at once does, the rest is named.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::BoxError;
use crate::config::{self, Effective, Live, Partial, Settings};

/// How a key's new value comes to hold.
type Apply = fn(&Live, &Settings);

/// Keys whose values can change live.
const LIVE: &[(&str, Apply)] = &[
    ("drain_ms", |live, new| live.set_drain(new.drain)),
    ("backlog", |live, new| live.set_backlog(new.backlog)),
];

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
            let file = file.or_else(|| std::env::var_os("JANUS_CONFIG").map(PathBuf::from));
            // A name or value that is no text is no name of ours.
            let variables = std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
            config::from_file(file.as_deref())?.overlay(config::from_environment(variables)?)
        };
        let effective = Effective::new(said.said.clone());
        let settings = said.overlay(self.builder.clone()).resolve()?;
        Ok((settings, effective))
    }
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
    live: Arc<Live>,
}

impl Reloading {
    pub(crate) fn new(sources: Sources, effective: Effective, live: Arc<Live>) -> Reloading {
        Reloading {
            sources,
            effective: Mutex::new(effective),
            live,
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
            match LIVE.iter().find(|(live, _)| *live == key) {
                Some((_, apply)) => {
                    apply(&self.live, &settings);
                    done.applied.push(key);
                }
                None => done.on_restart.push(key),
            }
        }
        *effective = new;
        Ok(done)
    }
}
