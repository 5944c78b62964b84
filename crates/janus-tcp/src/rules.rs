//! Everything a stack goes by and that no segment changes: the configuration, our addresses, the option profiles, and the
//! secrets behind every number that a stranger must not guess.

pub(crate) mod buffer_sizes;
pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod interface;
pub(crate) mod isn;
pub(crate) mod profile;
pub(crate) mod routes;

use crate::rules::config::{Config, Secrets};
use crate::rules::interface::Interface;
use crate::rules::profile::Profiles;

/// The rules of a stack. Connections read them and never change them.
pub(crate) struct Rules {
    pub(crate) config: Config,
    /// Window scale that SYNs offer, as it was at first: see [`BufferSizes`](crate::BufferSizes).
    pub(crate) own_scale: u8,
    pub(crate) interface: Interface,
    pub(crate) secrets: Secrets,
    /// Sets of socket options.
    pub(crate) profiles: Profiles,
    /// Random numbers drawn so far.
    drawn: u64,
}

impl Rules {
    pub(crate) fn new(config: Config, interface: Interface, secrets: Secrets) -> Rules {
        Rules {
            own_scale: config.buffer_sizes().scale(),
            interface: interface.with_link_local(),
            profiles: Profiles::new(),
            drawn: 0,
            config,
            secrets,
        }
    }

    /// Returns an unpredictable number: another one each time, and for each `of`, where several stacks have the same secrets.
    pub(crate) fn next_random(&mut self, of: u64) -> u64 {
        /// Other uses of the key have small numbers.
        const DRAWS: u64 = 1 << 63;
        self.drawn += 1;
        isn::keyed(&self.secrets, DRAWS | of << 48 | self.drawn)
    }
}
