//! Addresses that come and go while the stack runs, as a lease does. A flow of an address that is not ours any more ends without
//! a word to its peer: a word would come from that address (RFC 2131 section 4.4.5). How the addresses are come by is no
//! matter of the stack's.

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::rules::interface::IpCidr;
use crate::rules::routes::Route;

/// Addresses of an interface, and the routes out of its own networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addressing {
    /// Our addresses, of both families.
    pub addresses: Vec<IpCidr>,
    /// Where IPv4 packets for other networks go.
    pub gateway: Option<Ipv4Addr>,
    /// Where IPv6 packets for other networks go.
    pub gateway_v6: Option<Ipv6Addr>,
    /// Other ways than the gateways', to single networks.
    pub routes: Vec<Route>,
    /// Largest IP packet.
    pub mtu: u16,
}
