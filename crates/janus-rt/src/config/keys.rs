//! The one table of keys. A key `tap_name` is `tap_name = …` or `[tap] name = …` in `janus.toml` and
//! `JANUS_TAP_NAME` in the environment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use janus_io::filter::FilterError;
use janus_io::{BURST, Batching, xdp};
use janus_tcp::{IpCidr, ROUTES_MAX};

use crate::control::watch::PolicyName;

use super::impair::{delay, frames, rate, share, ways};
use super::policy::{bits, martians, prefixes};
use super::{BackendName, CORES_MAX, KernelAddress, Partial, PlacementName};

/// One thing that can be configured.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) set: fn(&mut Partial, &str) -> Result<(), String>,
}

pub(super) const KEYS: &[Key] = &[
    Key {
        name: "cores",
        set: cores,
    },
    Key {
        name: "placement",
        set: |p, v| store(&mut p.placement, placement(v)),
    },
    Key {
        name: "io_cores",
        set: |p, v| store(&mut p.io_cores, number(v)),
    },
    Key {
        name: "backend",
        set: |p, v| store(&mut p.backend, backend(v)),
    },
    Key {
        name: "tap_name",
        set: |p, v| store(&mut p.tap_name, interface_name(v)),
    },
    Key {
        name: "tap_kernel_address",
        set: |p, v| store(&mut p.tap_kernel_address, kernel_address(v)),
    },
    Key {
        name: "tap_offloads",
        set: |p, v| store(&mut p.tap_offloads, switch(v)),
    },
    Key {
        name: "tap_shared",
        set: |p, v| store(&mut p.tap_shared, switch(v)),
    },
    Key {
        name: "dpdk_device",
        set: |p, v| store(&mut p.dpdk_device, Ok(v.trim().to_owned())),
    },
    Key {
        name: "dpdk_eal",
        set: |p, v| store(&mut p.dpdk_eal, Ok(words(v))),
    },
    Key {
        name: "dpdk_exception",
        set: |p, v| store(&mut p.dpdk_exception, interface_name(v)),
    },
    Key {
        name: "dpdk_sleep_us",
        set: |p, v| store(&mut p.dpdk_sleep, number(v).map(Duration::from_micros)),
    },
    Key {
        name: "xdp_interface",
        set: |p, v| store(&mut p.xdp_interface, interface_name(v)),
    },
    Key {
        name: "xdp_ports",
        set: |p, v| store(&mut p.xdp_ports, v.parse()),
    },
    Key {
        name: "xdp_mode",
        set: |p, v| store(&mut p.xdp_mode, xdp_mode(v)),
    },
    Key {
        name: "address",
        set: set_addresses,
    },
    Key {
        name: "dhcp_wait_ms",
        set: |p, v| store(&mut p.dhcp_wait, number(v).map(Duration::from_millis)),
    },
    Key {
        name: "dhcp_file",
        set: |p, v| store(&mut p.dhcp_file, Ok(v.into())),
    },
    Key {
        name: "gateway",
        set: |p, v| store(&mut p.gateway, gateway(v)),
    },
    Key {
        name: "gateway_v6",
        set: |p, v| store(&mut p.gateway_v6, gateway_v6(v)),
    },
    Key {
        name: "route",
        set: |p, v| store(&mut p.routes, routes(v)),
    },
    Key {
        name: "dns",
        set: |p, v| store(&mut p.name_servers, v.split(',').map(name_server).collect()),
    },
    Key {
        name: "trace",
        set: |p, v| store(&mut p.trace, Ok(v.into())),
    },
    Key {
        name: "trace_filter",
        set: |p, v| {
            store(
                &mut p.trace_filter,
                v.parse().map_err(|e: FilterError| e.to_string()),
            )
        },
    },
    Key {
        name: "seed",
        set: |p, v| store(&mut p.seed, number(v)),
    },
    Key {
        name: "max_connections",
        set: |p, v| store(&mut p.max_connections, at_least_one(v)),
    },
    Key {
        name: "receive_buffer",
        set: |p, v| store(&mut p.receive_buffer, size(v).and_then(some)),
    },
    Key {
        name: "receive_buffer_max",
        set: |p, v| store(&mut p.receive_buffer_max, size(v)),
    },
    Key {
        name: "send_buffer",
        set: |p, v| store(&mut p.send_buffer, size(v).and_then(some)),
    },
    Key {
        name: "send_buffer_max",
        set: |p, v| store(&mut p.send_buffer_max, size(v)),
    },
    Key {
        name: "packet_buffers",
        set: |p, v| store(&mut p.packet_buffers, number(v)),
    },
    Key {
        name: "batch",
        set: |p, v| store(&mut p.batch, batch(v)),
    },
    Key {
        name: "backlog",
        set: |p, v| store(&mut p.backlog, number(v)),
    },
    Key {
        name: "blocking_threads",
        set: |p, v| store(&mut p.blocking_threads, at_least_one(v)),
    },
    Key {
        name: "warn_future_bytes",
        set: |p, v| {
            store(
                &mut p.warn_future_bytes,
                size(v).map(|bytes| bytes as usize),
            )
        },
    },
    Key {
        name: "warn_blocked_ms",
        set: |p, v| store(&mut p.warn_blocked, number(v).map(Duration::from_millis)),
    },
    Key {
        name: "balance",
        set: |p, v| store(&mut p.balance, policy(v)),
    },
    Key {
        name: "owner_bits",
        set: |p, v| store(&mut p.owner_bits, switch(v)),
    },
    Key {
        name: "balance_interval_ms",
        set: |p, v| {
            store(
                &mut p.balance_interval,
                at_least_one(v).map(Duration::from_millis),
            )
        },
    },
    Key {
        name: "tokio",
        set: |p, v| store(&mut p.tokio, switch(v)),
    },
    Key {
        name: "portal_listen",
        set: |p, v| store(&mut p.portal_listen, v.parse()),
    },
    Key {
        name: "portal_reach",
        set: |p, v| store(&mut p.portal_reach, v.parse()),
    },
    Key {
        name: "policy_martians",
        set: |p, v| store(&mut p.policy.martians, martians(v)),
    },
    Key {
        name: "policy_allow",
        set: |p, v| store(&mut p.policy.allow, prefixes(v)),
    },
    Key {
        name: "policy_deny",
        set: |p, v| store(&mut p.policy.deny, prefixes(v)),
    },
    Key {
        name: "policy_syn_rate",
        set: |p, v| store(&mut p.policy.syn_rate, number(v)),
    },
    Key {
        name: "policy_syn_burst",
        set: |p, v| store(&mut p.policy.syn_burst, number(v)),
    },
    Key {
        name: "policy_syn_prefix",
        set: |p, v| store(&mut p.policy.syn_prefix, bits(v, 32)),
    },
    Key {
        name: "policy_syn_prefix_v6",
        set: |p, v| store(&mut p.policy.syn_prefix_v6, bits(v, 128)),
    },
    Key {
        name: "impair_seed",
        set: |p, v| store(&mut p.impair.seed, number(v)),
    },
    Key {
        name: "impair_way",
        set: |p, v| store(&mut p.impair.way, ways(v)),
    },
    Key {
        name: "impair_loss",
        set: |p, v| store(&mut p.impair.loss, share(v)),
    },
    Key {
        name: "impair_duplicate",
        set: |p, v| store(&mut p.impair.duplicate, share(v)),
    },
    Key {
        name: "impair_corrupt",
        set: |p, v| store(&mut p.impair.corrupt, share(v)),
    },
    Key {
        name: "impair_reorder",
        set: |p, v| store(&mut p.impair.reorder, share(v)),
    },
    Key {
        name: "impair_distance",
        set: |p, v| store(&mut p.impair.distance, frames(v)),
    },
    Key {
        name: "impair_delay_ms",
        set: |p, v| store(&mut p.impair.delay, delay(v)),
    },
    Key {
        name: "impair_jitter_ms",
        set: |p, v| store(&mut p.impair.jitter, delay(v)),
    },
    Key {
        name: "impair_rate_kbit",
        set: |p, v| store(&mut p.impair.rate, rate(v)),
    },
    Key {
        name: "impair_queue",
        set: |p, v| store(&mut p.impair.queue, frames(v)),
    },
    Key {
        name: "signals",
        set: |p, v| store(&mut p.signals, switch(v)),
    },
    Key {
        name: "shutdown_ms",
        set: |p, v| store(&mut p.shutdown, number(v).map(Duration::from_millis)),
    },
    Key {
        name: "drain_ms",
        set: |p, v| store(&mut p.drain, number(v).map(Duration::from_millis)),
    },
    Key {
        name: "admin",
        set: |p, v| store(&mut p.admin, admin(v)),
    },
];

/// In the place of an address: a server is asked for it.
pub(crate) const DHCP: &str = "dhcp";

/// An address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

impl Cidr {
    /// Converts to the stack's type.
    pub(crate) fn network(self) -> IpCidr {
        IpCidr::new(self.address, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let (address, prefix) = text.trim().split_once('/').unwrap_or((text.trim(), ""));
        let wrong = || format!("`{text}` is not an address like 192.0.2.1/24 or 2001:db8::1/64");
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            "" => Some(whole),
            bits => bits.parse::<u8>().ok().filter(|bits| *bits <= whole),
        };
        let prefix = prefix.ok_or_else(wrong)?;
        Ok(Cidr { address, prefix })
    }
}

/// A way to another network than the gateways'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Via {
    pub(crate) to: Cidr,
    pub(crate) gateway: IpAddr,
}

impl FromStr for Via {
    type Err = String;

    fn from_str(text: &str) -> Result<Via, String> {
        let wrong = || format!("`{text}` is not a route like 10.0.0.0/8 via 192.0.2.254");
        let (to, gateway) = text.split_once(" via ").ok_or_else(wrong)?;
        let to: Cidr = to.parse().map_err(|_| wrong())?;
        let gateway: IpAddr = gateway.trim().parse().map_err(|_| wrong())?;
        if to.address.is_ipv4() == gateway.is_ipv4() {
            Ok(Via { to, gateway })
        } else {
            Err(wrong())
        }
    }
}

fn store<T>(field: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *field = Some(value?);
    Ok(())
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    let digits = text.trim().replace('_', "");
    digits.parse().map_err(|_| {
        let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match whole {
            true => format!("`{text}` is too large a number"),
            false => format!("`{text}` is not a whole number, without a sign or a unit"),
        }
    })
}

fn switch(text: &str) -> Result<bool, String> {
    match text.trim() {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(format!("`{text}` is neither `on` nor `off`")),
    }
}

fn policy(text: &str) -> Result<PolicyName, String> {
    match text.trim() {
        "fixed" => Ok(PolicyName::Fixed),
        "queue" => Ok(PolicyName::Queue),
        "service" => Ok(PolicyName::Service),
        _ => Err(format!("`{text}` is none of `fixed`, `queue`, `service`")),
    }
}

/// How many, or on which processors: `4`, `0-3`, `0,2,4-7`.
fn cores(partial: &mut Partial, text: &str) -> Result<(), String> {
    let text = text.trim();
    if text == "auto" {
        (partial.cores, partial.processors) = (None, None);
        return Ok(());
    }
    // A minus at the front is a number that does not fit.
    if text.starts_with('-') || !text.contains(['-', ',']) {
        partial.processors = None;
        return store(&mut partial.cores, number(text));
    }
    let list = processors(text)?;
    (partial.cores, partial.processors) = (Some(list.len()), Some(list));
    Ok(())
}

/// A list of processors such as `0,2,4-7`, each at most once.
pub(crate) fn processors(text: &str) -> Result<Vec<usize>, String> {
    let mut list = Vec::new();
    for piece in text.split(',') {
        let piece = piece.trim();
        let wrong = || format!("`{piece}` is not a processor, or a range like 0-3");
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last - first >= CORES_MAX {
            return Err(wrong());
        }
        for processor in first..=last {
            if list.contains(&processor) {
                return Err(format!("processor {processor} is named twice"));
            }
            list.push(processor);
        }
    }
    Ok(list)
}

/// Bytes: a number, or one of KiB (K), MiB (M) or GiB (G).
fn size(text: &str) -> Result<u32, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_');
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let shift = match unit.trim() {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => {
            return Err(format!(
                "`{text}` is not a number of bytes, such as 65536, 64K, 64KiB or 6M"
            ));
        }
    };
    let bytes = number::<u64>(digits)?.checked_mul(1 << shift);
    let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("`{text}` is too large a number"))
}

fn at_least_one<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    some(number(text)?)
}

fn some<N: PartialOrd + From<u8>>(number: N) -> Result<N, String> {
    match number >= N::from(1) {
        true => Ok(number),
        false => Err("must be 1 at least".into()),
    }
}

fn batch(text: &str) -> Result<Batching, String> {
    match (text.trim(), number(text)) {
        ("adaptive", _) => Ok(Batching::Adaptive),
        (_, Ok(frames)) if (1..=BURST).contains(&frames) => Ok(Batching::Fixed(frames)),
        _ => Err(format!(
            "`{text}` is neither `adaptive` nor a number from 1 to {BURST}"
        )),
    }
}

fn placement(text: &str) -> Result<PlacementName, String> {
    match text {
        "combined" => Ok(PlacementName::Combined),
        "split" => Ok(PlacementName::Split),
        _ => Err(format!("`{text}` is neither `combined` nor `split`")),
    }
}

fn backend(text: &str) -> Result<BackendName, String> {
    match text {
        "auto" => Ok(BackendName::Auto),
        "portal" => Ok(BackendName::Portal),
        "tap" => Ok(BackendName::Tap),
        "dpdk" => Ok(BackendName::Dpdk),
        "xdp" => Ok(BackendName::Xdp),
        _ => Err(format!(
            "`{text}` is not one of `auto`, `portal`, `tap`, `dpdk`, `xdp`"
        )),
    }
}

/// Linux allows 15 bytes, no slash, no space (`IFNAMSIZ` with its terminator is 16).
fn interface_name(text: &str) -> Result<String, String> {
    let plain = !text.is_empty()
        && text.len() <= 15
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    if plain {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "`{text}` is not an interface name of at most 15 bytes"
        ))
    }
}

fn kernel_address(text: &str) -> Result<KernelAddress, String> {
    match text {
        "none" => Ok(KernelAddress::None),
        _ => match text.parse()? {
            Cidr {
                address: IpAddr::V4(address),
                prefix,
            } => Ok(KernelAddress::Given(address, prefix)),
            _ => Err(format!(
                "`{text}` is not IPv4; `ip -6 address add` gives the interface an IPv6 address"
            )),
        },
    }
}

fn xdp_mode(text: &str) -> Result<xdp::Mode, String> {
    match text {
        "auto" => Ok(xdp::Mode::Auto),
        "native" => Ok(xdp::Mode::Native),
        "generic" => Ok(xdp::Mode::Generic),
        _ => Err(format!(
            "`{text}` is not one of `auto`, `native`, `generic`"
        )),
    }
}

/// One line of arguments. A list would come joined by commas, which are part of some: it is not offered.
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Addresses, of which one may be `dhcp`: that one a server gives.
fn set_addresses(partial: &mut Partial, text: &str) -> Result<(), String> {
    let (asked, given): (Vec<&str>, Vec<&str>) =
        text.split(',').partition(|part| part.trim() == DHCP);
    partial.dhcp = Some(!asked.is_empty());
    store(
        &mut partial.addresses,
        given.into_iter().map(str::parse).collect(),
    )
}

fn routes(text: &str) -> Result<Vec<Via>, String> {
    let routes: Vec<Via> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    if routes.len() > ROUTES_MAX {
        return Err(format!("{} routes, of {ROUTES_MAX}", routes.len()));
    }
    Ok(routes)
}

fn gateway(text: &str) -> Result<Ipv4Addr, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("`{text}` is not an IPv4 address; IPv6 has `gateway_v6`"))
}

/// An address, or one with a port.
fn name_server(text: &str) -> Result<SocketAddr, String> {
    const PORT: u16 = 53;
    let text = text.trim();
    let alone = text.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
    alone.or_else(|_| text.parse()).map_err(|_| {
        format!(
            "`{text}` is not the address of a name server, like 192.0.2.53 or [2001:db8::53]:5353"
        )
    })
}

/// An address with a port; a port alone is one of 127.0.0.1.
fn admin(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    let alone = text
        .parse()
        .map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    alone.or_else(|_| text.parse()).map_err(|_| {
        format!("`{text}` is neither a port nor an address with one, like 9464, 192.0.2.1:9464 or [::1]:9464")
    })
}

fn gateway_v6(text: &str) -> Result<Ipv6Addr, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("`{text}` is not an IPv6 address"))
}
