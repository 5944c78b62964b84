//! Everything a stack goes by and that no segment changes: the configuration, our addresses, the option profiles, and the
//! secrets behind every number that a stranger must not guess.

pub(crate) mod buffer_sizes;
pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod interface;
pub(crate) mod isn;
pub(crate) mod own_v4;
pub(crate) mod own_v6;
pub(crate) mod profile;
pub(crate) mod routes;
mod syn;
pub(crate) mod waits;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::rules::buffer_sizes::BufferSizes;
use crate::rules::config::{Config, Secrets};
use crate::rules::interface::Interface;
use crate::rules::own_v4::OwnV4;
use crate::rules::own_v6::OwnV6;
use crate::rules::profile::Profiles;
use crate::rules::waits::Waits;

/// The rules of a stack. Connections read them and never change them.
pub(crate) struct Rules {
    config: Config,
    /// Of the configuration its times.
    waits: Waits,
    /// Window scale that SYNs offer, as it was at first: see [`BufferSizes`].
    own_scale: u8,
    interface: Interface,
    /// Of the interface's addresses those of IPv4.
    own_v4: OwnV4,
    own_v6: OwnV6,
    /// The largest segments that fit, over IPv4 and over IPv6.
    largest: [u16; 2],
    secrets: Secrets,
    /// Sets of socket options.
    profiles: Profiles,
    /// Random numbers drawn so far.
    drawn: u64,
}

impl Rules {
    pub(crate) fn new(config: Config, interface: Interface, secrets: Secrets) -> Rules {
        let interface = interface.with_link_local();
        Rules {
            own_scale: config.buffer_sizes().scale(),
            own_v4: OwnV4::new(&interface),
            own_v6: OwnV6::new(&interface),
            largest: [false, true].map(|v6| interface.mss(v6)),
            waits: Waits::of(&config),
            interface,
            profiles: Profiles::new(),
            drawn: 0,
            config,
            secrets,
        }
    }

    /// From now on this is the interface.
    pub(crate) fn set_interface(&mut self, interface: Interface) {
        self.interface = interface.with_link_local();
        self.own_v4 = OwnV4::new(&self.interface);
        self.own_v6 = OwnV6::new(&self.interface);
        self.largest = [false, true].map(|v6| self.interface.mss(v6));
    }

    /// Returns the next hop of packets to `peer`, as [`Interface::next_hop`] does.
    #[inline(always)]
    pub(crate) fn next_hop_v4(&self, peer: Ipv4Addr) -> Ipv4Addr {
        if !self.interface.routes.is_empty()
            && let Some(IpAddr::V4(hop)) = self.interface.routed_hop(peer.into())
        {
            return hop;
        }
        match self.interface.gateway {
            Some(gateway) if !self.own_v4.is_near(peer) => gateway,
            _ => peer,
        }
    }

    /// Like [`next_hop_v4`](Self::next_hop_v4).
    #[inline]
    pub(crate) fn next_hop_v6(&self, peer: Ipv6Addr) -> Ipv6Addr {
        if !self.interface.routes.is_empty()
            && !peer.is_unicast_link_local()
            && let Some(IpAddr::V6(hop)) = self.interface.routed_hop(peer.into())
        {
            return hop;
        }
        match self.interface.gateway_v6 {
            Some(gateway) if !self.own_v6.is_near(peer) => gateway,
            _ => peer,
        }
    }

    /// Whether packets for `peer` come back in: it is one of our addresses. Where every address is ours none does.
    pub(crate) fn loops(&self, peer: IpAddr) -> bool {
        match peer {
            IpAddr::V4(peer) => self.own_v4.has(peer),
            IpAddr::V6(peer) => self.own_v6.has(peer),
        }
    }

    #[inline(always)]
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The configuration's times.
    #[inline(always)]
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    #[inline(always)]
    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    #[inline(always)]
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    #[inline(always)]
    pub(crate) fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// The interface's addresses of IPv4.
    #[inline(always)]
    pub(crate) fn own_v4(&self) -> &OwnV4 {
        &self.own_v4
    }

    /// The interface's addresses of IPv6.
    #[inline(always)]
    pub(crate) fn own_v6(&self) -> &OwnV6 {
        &self.own_v6
    }

    /// Sets of socket options, to register the use of one.
    pub(crate) fn profiles_mut(&mut self) -> &mut Profiles {
        &mut self.profiles
    }

    /// Buffers are of these sizes from now on.
    pub(crate) fn resize_buffers(&mut self, sizes: BufferSizes) {
        self.config = self.config.clone().with_buffer_sizes(sizes);
    }

    /// Returns an unpredictable number: another one each time, and for each `of`, where several stacks have the same secrets.
    pub(crate) fn next_random(&mut self, of: u64) -> u64 {
        /// Other uses of the key have small numbers.
        const DRAWS: u64 = 1 << 63;
        self.drawn += 1;
        isn::keyed(&self.secrets, DRAWS | of << 48 | self.drawn)
    }
}

#[cfg(test)]
mod tests;
