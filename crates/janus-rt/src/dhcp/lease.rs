//! A lease: an address for a time, and its parameters. An answer without a usable address, time or server is rejected; unusable options
//! are ignored one by one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use janus_tcp::{IpCidr, ROUTES_MAX, Route};
use janus_wire::dhcp::{self, Message, OPTION_MAX, option};

/// Lease time that means "forever".
const FOR_EVER: u32 = u32::MAX;
/// Most name servers that are kept.
const NAME_SERVERS_MAX: usize = 3;
/// Least MTU that is accepted (RFC 1122 section 3.3.3): no link has a smaller one, and it would only make packets small.
const MTU_MIN: u16 = 576;

/// An address leased from a DHCP server, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The leased address.
    pub address: Ipv4Addr,
    /// Length of its network prefix in bits.
    pub prefix: u8,
    /// Router for packets to other networks.
    pub gateway: Option<Ipv4Addr>,
    /// Routes: network, length of its prefix in bits, and neighbor that leads there.
    pub routes: Vec<(Ipv4Addr, u8, Ipv4Addr)>,
    /// Name servers, the best first.
    pub name_servers: Vec<Ipv4Addr>,
    /// The link's MTU in bytes, if the server sent one.
    pub mtu: Option<u16>,
    /// The server that gave the lease.
    pub server: Ipv4Addr,
    /// Lease time; `None`: it does not end.
    pub time: Option<Duration>,
    /// Time after which this server is asked for an extension (T1).
    pub renew_after: Duration,
    /// Time after which any server is asked for an extension (T2).
    pub rebind_after: Duration,
}

/// Reason for which an answer is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The address is none that a host can have.
    Address,
    /// It has no lease time.
    Time,
    /// It does not name its server.
    Server,
}

impl Lease {
    pub(super) fn read(message: &Message<'_>) -> Result<Lease, Unfit> {
        let address = message.yours;
        let prefix = message.prefix().unwrap_or_else(|| class_of(address));
        if !is_host(address, prefix) {
            return Err(Unfit::Address);
        }
        let server = message.address(option::SERVER).ok_or(Unfit::Server)?;
        let (time, renew_after, rebind_after) = times(message)?;
        let mut into = [0; OPTION_MAX];
        let mut gateway = message
            .option(option::ROUTERS, &mut into)
            .and_then(|value| dhcp::addresses(value).find(|router| is_host(*router, 0)));
        let mut routes = Vec::new();
        if let Some(value) = message.option(option::ROUTES, &mut into) {
            // With classless routes, the router option is ignored (RFC 3442).
            gateway = None;
            for (network, prefix, router) in dhcp::routes(value) {
                match prefix {
                    _ if !is_host(router, 0) => {}
                    0 => gateway = gateway.or(Some(router)),
                    _ => routes.push((network, prefix, router)),
                }
            }
            routes.truncate(ROUTES_MAX);
        }
        let name_servers = message
            .option(option::NAME_SERVERS, &mut into)
            .map(|value| dhcp::addresses(value).take(NAME_SERVERS_MAX).collect());
        Ok(Lease {
            address,
            prefix,
            gateway,
            routes,
            name_servers: name_servers.unwrap_or_default(),
            mtu: message.mtu().filter(|mtu| *mtu >= MTU_MIN),
            server,
            time,
            renew_after,
            rebind_after,
        })
    }

    pub(super) fn cidr(&self) -> IpCidr {
        IpCidr::new(self.address, self.prefix)
    }

    pub(super) fn stack_routes(&self) -> Vec<Route> {
        self.routes
            .iter()
            .map(|(network, prefix, router)| {
                Route::new(IpCidr::new(*network, *prefix), IpAddr::V4(*router))
            })
            .collect()
    }
}

/// Returns the lease time, T1 and T2 (RFC 2131 section 4.4.5).
fn times(message: &Message<'_>) -> Result<(Option<Duration>, Duration, Duration), Unfit> {
    let secs = message.word(option::LEASE).filter(|secs| *secs > 0);
    let secs = secs.ok_or(Unfit::Time)?;
    if secs == FOR_EVER {
        return Ok((None, Duration::MAX, Duration::MAX));
    }
    let time = Duration::from_secs(secs.into());
    let said = |code| {
        message
            .word(code)
            .map(|secs| Duration::from_secs(secs.into()))
    };
    let rebind = said(option::REBIND).filter(|rebind| *rebind < time && !rebind.is_zero());
    let rebind = rebind.unwrap_or(time * 7 / 8);
    let renew = said(option::RENEW).filter(|renew| *renew < rebind && !renew.is_zero());
    let renew = renew.unwrap_or(rebind.min(time / 2));
    Ok((Some(time), renew, rebind))
}

/// Returns the prefix for a server that sends no netmask: the old class of the address.
fn class_of(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    }
}

/// Returns whether a host can have the address in a network of that prefix.
fn is_host(address: Ipv4Addr, prefix: u8) -> bool {
    let hosts = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    let number = address.to_bits() & hosts;
    // A network of one or two addresses has no network or broadcast address (RFC 3021).
    let named = prefix == 0 || hosts <= 1 || (number != 0 && number != hosts);
    (1..224).contains(&address.octets()[0]) && !address.is_loopback() && named
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} from {}", self.address, self.prefix, self.server)?;
        if let Some(gateway) = self.gateway {
            write!(f, ", gateway {gateway}")?;
        }
        for server in &self.name_servers {
            write!(f, ", name server {server}")?;
        }
        match self.time {
            Some(time) => write!(f, ", for {} s", time.as_secs()),
            None => write!(f, ", for ever"),
        }
    }
}
