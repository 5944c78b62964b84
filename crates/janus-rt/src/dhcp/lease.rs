//! What a server gives: an address for a while, and what goes with it. Only what can be used is a lease; a server's odder
//! words are left out one by one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use janus_tcp::{IpCidr, ROUTES_MAX, Route};
use janus_wire::dhcp::{self, Message, OPTION_MAX, option};

/// A lease without end.
const FOR_EVER: u32 = u32::MAX;
/// Name servers that are kept.
const NAME_SERVERS_MAX: usize = 3;
/// A smaller MTU is no link's, and would only make packets small (RFC 1122 section 3.3.3: 576).
const MTU_MIN: u16 = 576;

/// An address of a DHCP server's, and what it told with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Our address.
    pub address: Ipv4Addr,
    /// Bits of it that name the network.
    pub prefix: u8,
    /// Where packets for other networks go.
    pub gateway: Option<Ipv4Addr>,
    /// Networks behind other neighbours, with the lengths of their prefixes.
    pub routes: Vec<(Ipv4Addr, u8, Ipv4Addr)>,
    /// Name servers, the best first.
    pub name_servers: Vec<Ipv4Addr>,
    /// The longest packet on this link, if the server said.
    pub mtu: Option<u16>,
    /// Who gave it.
    pub server: Ipv4Addr,
    /// How long it is ours; `None`: for ever.
    pub time: Option<Duration>,
    /// After how much of it this server is asked to prolong it.
    pub renew_after: Duration,
    /// After how much of it any server is asked.
    pub rebind_after: Duration,
}

/// Why an answer holds no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The address is none that a host can have.
    Address,
    /// It does not say for how long.
    Time,
    /// It does not say whose it is.
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
            // Where there are these, the routers do not count (RFC 3442).
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

/// How long, until when the giver is asked, until when anybody is (RFC 2131 section 4.4.5).
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

/// The prefix of a server that tells none: the old class of the address.
fn class_of(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    }
}

/// Whether a host can have the address in a network of that prefix.
fn is_host(address: Ipv4Addr, prefix: u8) -> bool {
    let hosts = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    let number = address.to_bits() & hosts;
    // A network of one or two addresses has neither a name nor a broadcast (RFC 3021).
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
