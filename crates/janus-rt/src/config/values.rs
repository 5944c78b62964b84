//! Values of single keys, and how they are written. Forms that many keys share are in `forms`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use janus_csb::policy::Scheme;
use janus_io::faults::DELAY_MAX;
use janus_io::filter::Filter;
use janus_io::policy::Prefix;
use janus_io::{BURST, Batching, ParseError, xdp};

use super::cidr::Cidr;
use super::forms::{Form, List, number, own_forms, words};
use super::place::Place;
use super::{CORES_MAX, processors};
use crate::control::watch::PolicyName;
use crate::portal::{PortalListen, PortalReach};

own_forms! {
    "network, or address": Prefix;
    "network, address, ports": Place;
    "expression": Filter;
    "`loopback`, `any`, networks": PortalReach;
    "`loopback`, `any`, addresses": PortalListen;
    "address with its prefix length": Cidr;
    "network `via` address": Via;
}

words! {
    PlacementName { "combined" => Combined, "split" => Split }
    BackendName { "auto" => Auto, "portal" => Portal, "tap" => Tap, "dpdk" => Dpdk, "xdp" => Xdp, "daemon" => Daemon, "none" => None }
    DaemonMemory { "shared" => Shared, "isolated" => Isolated }
    xdp::Mode { "auto" => Auto, "native" => Native, "generic" => Generic }
    PolicyName { "fixed" => Fixed, "queue" => Queue, "service" => Service }
    SpeculativeAccept {
        "off" => Off, "on" => On, "auto" => Auto,
        "naive" => Naive, "unfiltered_2" => Unfiltered2, "unfiltered_100" => Unfiltered100, "filtered_2" => Filtered2,
        "tournament_2" => Tournament2
    }
    Martians { "drop" => Drop, "pass" => Pass }
    Ways { "both" => Both, "received" => Received, "sent" => Sent }
}

/// Value of `placement`; the number of I/O cores has a key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementName {
    Combined,
    Split,
}

/// A backend that configuration can name. Backends that are values come through the builder only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendName {
    Auto,
    Portal,
    Tap,
    Dpdk,
    Xdp,
    Daemon,
    None,
}

/// Memory of a program's packets that a daemon carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonMemory {
    /// The daemon's own, where that is of the same user and lends some: nothing is copied.
    Shared,
    /// The program's own: no other sees or forges its packets.
    Isolated,
}

/// Whether connections that no task accepts in time go to other cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpeculativeAccept {
    /// They wait.
    Off,
    /// They are offered where a task waits for one.
    On,
    /// They are, except for a while after more than half of the offers were in vain.
    Auto,
    /// By PIKA's scheme of this name ([`Scheme`]): at once, to a core that is drawn whether a task waits there or not.
    Naive,
    /// Likewise.
    Unfiltered2,
    /// Likewise.
    Unfiltered100,
    /// Likewise.
    Filtered2,
    /// Likewise.
    Tournament2,
}

impl SpeculativeAccept {
    /// The scheme by which connections go.
    pub(crate) fn scheme(self) -> Option<Scheme> {
        match self {
            SpeculativeAccept::Off | SpeculativeAccept::On | SpeculativeAccept::Auto => None,
            SpeculativeAccept::Naive => Some(Scheme::Naive),
            SpeculativeAccept::Unfiltered2 => Some(Scheme::Unfiltered2),
            SpeculativeAccept::Unfiltered100 => Some(Scheme::Unfiltered100),
            SpeculativeAccept::Filtered2 => Some(Scheme::Filtered2),
            SpeculativeAccept::Tournament2 => Some(Scheme::Tournament2),
        }
    }
}

/// Treatment of packets from addresses that no host can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Martians {
    Drop,
    Pass,
}

/// Directions of the link that are bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ways {
    #[default]
    Both,
    Received,
    Sent,
}

/// TCP cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) count: usize,
    /// The processor of each core, if they were named.
    pub(crate) on: Option<Vec<usize>>,
}

impl Cores {
    /// As many as there are processors.
    pub(crate) fn auto() -> Cores {
        Cores::count(processors().min(CORES_MAX))
    }

    pub(crate) fn count(count: usize) -> Cores {
        Cores { count, on: None }
    }

    pub(crate) fn on(processors: Vec<usize>) -> Cores {
        Cores {
            count: processors.len(),
            on: Some(processors),
        }
    }
}

impl Form for Cores {
    type Value = Cores;

    fn values() -> String {
        "`4`, `0-3`, `0,2,4-7`, `auto`".into()
    }

    fn read(text: &str) -> Result<Cores, String> {
        match text.trim() {
            "auto" => Ok(Cores::auto()),
            // A minus at the front is a number that does not fit.
            text if text.starts_with('-') || !text.contains(['-', ',']) => {
                number(text).map(Cores::count)
            }
            list => read_processors(list).map(Cores::on),
        }
    }

    fn show(value: &Cores) -> Option<String> {
        let list = |on: &Vec<usize>| {
            on.iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        Some(
            value
                .on
                .as_ref()
                .map_or_else(|| value.count.to_string(), list),
        )
    }
}

/// A list of processors such as `0,2,4-7`, each at most once.
pub(crate) fn read_processors(text: &str) -> Result<Vec<usize>, String> {
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

/// In the place of an address: a server is asked for it.
const DHCP: &str = "dhcp";

/// Our addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// A server gives one more.
    pub(crate) dhcp: bool,
    pub(crate) given: Vec<Cidr>,
}

impl Form for Addresses {
    type Value = Addresses;

    fn values() -> String {
        format!("{}, `dhcp`; also a list", Cidr::values())
    }

    fn read(text: &str) -> Result<Addresses, String> {
        let (asked, given): (Vec<&str>, Vec<&str>) =
            text.split(',').partition(|part| part.trim() == DHCP);
        let given = given
            .into_iter()
            .map(Cidr::read)
            .collect::<Result<_, _>>()?;
        Ok(Addresses {
            dhcp: !asked.is_empty(),
            given,
        })
    }

    fn show(value: &Addresses) -> Option<String> {
        let asked = value.dhcp.then(|| DHCP.to_owned());
        let parts: Vec<String> = asked
            .into_iter()
            .chain(List::<Cidr>::show(&value.given))
            .collect();
        (!parts.is_empty()).then(|| parts.join(","))
    }
}

/// A route to another network than the gateways'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Via {
    pub(crate) to: Cidr,
    pub(crate) gateway: IpAddr,
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} via {}", self.to, self.gateway)
    }
}

impl FromStr for Via {
    type Err = String;

    fn from_str(text: &str) -> Result<Via, String> {
        let wrong = || format!("`{text}` is not a route like 10.0.0.0/8 via 192.0.2.254");
        let (to, gateway) = text.split_once(" via ").ok_or_else(wrong)?;
        let to: Cidr = to.parse().map_err(|_| wrong())?;
        let gateway: IpAddr = gateway.trim().parse().map_err(|_| wrong())?;
        match to.address().is_ipv4() == gateway.is_ipv4() {
            true => Ok(Via { to, gateway }),
            false => Err(wrong()),
        }
    }
}

/// The kernel's own address on a TAP interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelAddress {
    Given(Ipv4Addr, u8),
    /// The interface is configured by other means.
    None,
}

/// Declares forms of one key each, or of few: the value's type, its description, how it is read and written.
macro_rules! single {
    ($($(#[$doc:meta])* $name:ident $(<const $most:ident: $number:ty>)?: $value:ty, $values:expr, $read:expr, $show:expr;)+) => {$(
        $(#[$doc])*
        pub(crate) struct $name$(<const $most: $number>)?;

        impl$(<const $most: $number>)? Form for $name$(<$most>)? {
            type Value = $value;

            fn values() -> String {
                $values.to_string()
            }

            fn read(text: &str) -> Result<$value, String> {
                let read: fn(&str) -> Result<$value, String> = $read;
                read(text.trim())
            }

            fn show(value: &$value) -> Option<String> {
                let show: fn(&$value) -> String = $show;
                Some(show(value)).filter(|shown| !shown.is_empty())
            }
        }
    )+};
}

single! {
    KernelEnd: KernelAddress, "IPv4 address with its prefix length, `none`", kernel_address, |address| match address {
        KernelAddress::Given(address, prefix) => format!("{address}/{prefix}"),
        KernelAddress::None => "none".into(),
    };
    /// Linux allows 15 bytes, no slash, no space (`IFNAMSIZ` with its terminator is 16).
    Interface: String, "interface", |text| {
        let plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
        match plain && (1..=15).contains(&text.len()) {
            true => Ok(text.to_owned()),
            false => Err(format!("`{text}` is not an interface name of at most 15 bytes")),
        }
    }, String::clone;
    Group: String, "name", |text| Ok(text.to_owned()), String::clone;
    Device: String, "device", |text| Ok(text.to_owned()), String::clone;
    /// One line of arguments. A list would come joined by commas, which are part of some: it is not offered.
    Arguments: Vec<String>, "words", |text| Ok(text.split_whitespace().map(str::to_owned).collect()), |words| words.join(" ");
    Ports: xdp::Ports, "ports, ranges; also a list", |text| text.parse().map_err(|problem: ParseError| problem.to_string()), show_ports;
    Batch: Batching, format!("`adaptive`, number from 1 to {BURST}"), |text| match (text, number(text)) {
        ("adaptive", _) => Ok(Batching::Adaptive),
        (_, Ok(frames)) if (1..=BURST).contains(&frames) => Ok(Batching::Fixed(frames)),
        _ => Err(format!("`{text}` is neither `adaptive` nor a number from 1 to {BURST}")),
    }, |batch| match batch {
        Batching::Adaptive => "adaptive".into(),
        Batching::Fixed(most) => most.to_string(),
    };
    GatewayV4: Ipv4Addr, "IPv4 address", |text| {
        text.parse().map_err(|_| format!("`{text}` is not an IPv4 address; IPv6 has `gateway_v6`"))
    }, Ipv4Addr::to_string;
    GatewayV6: Ipv6Addr, "IPv6 address", |text| {
        text.parse().map_err(|_| format!("`{text}` is not an IPv6 address"))
    }, Ipv6Addr::to_string;
    /// An address, or one with a port.
    NameServer: SocketAddr, "address, or address and port", |text| {
        const PORT: u16 = 53;
        let alone = text.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
        alone.or_else(|_| text.parse()).map_err(|_| {
            format!("`{text}` is not the address of a name server, like 192.0.2.53 or [2001:db8::53]:5353")
        })
    }, SocketAddr::to_string;
    /// An address with a port; a port alone is one of 127.0.0.1.
    Admin: SocketAddr, "port, or address and port", |text| {
        let alone = text.parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
        alone.or_else(|_| text.parse()).map_err(|_| {
            format!("`{text}` is neither a port nor an address with one, like 9464, 192.0.2.1:9464 or [::1]:9464")
        })
    }, SocketAddr::to_string;
    /// Bits of a prefix, of an address that has `WIDTH`.
    Bits<const WIDTH: u8>: u8, format!("bits, up to {WIDTH}"), |text| {
        let bits = text.parse().ok().filter(|bits| *bits <= WIDTH);
        bits.ok_or_else(|| format!("`{text}` is not a number of bits up to {WIDTH}"))
    }, u8::to_string;
    /// A share of all packets, in thousandths.
    Share: u16, "`1%`, `0.1%`", share, |thousandths| format!("{}%", f64::from(*thousandths) / 10.0);
    /// Milliseconds, also parts of one.
    Delay: Duration, "milliseconds, also parts of one in quotes: `\"0.5\"`", |text| {
        let most = DELAY_MAX.as_millis() as f64;
        let ms = text.parse().ok().filter(|ms: &f64| (0.0..=most).contains(ms));
        ms.map(|ms| Duration::from_nanos((ms * 1e6).round() as u64))
            .ok_or_else(|| format!("`{text}` is not a number of milliseconds up to {most}"))
    }, |time| (time.as_nanos() as f64 / 1e6).to_string();
    /// Kilobits a second, as bits.
    Kilobits: u64, "kilobits a second", |text| {
        let kilobits = number::<u32>(text).ok().filter(|kilobits| *kilobits > 0);
        kilobits
            .map(|kilobits| u64::from(kilobits) * 1_000)
            .ok_or_else(|| format!("`{text}` is not a number of kilobits a second"))
    }, |bits| (bits / 1_000).to_string();
}

fn kernel_address(text: &str) -> Result<KernelAddress, String> {
    if text == "none" {
        return Ok(KernelAddress::None);
    }
    let cidr = Cidr::read(text)?;
    match cidr.address() {
        IpAddr::V4(address) => Ok(KernelAddress::Given(address, cidr.prefix())),
        IpAddr::V6(_) => Err(format!(
            "`{text}` is not IPv4; `ip -6 address add` gives the interface an IPv6 address"
        )),
    }
}

fn show_ports(ports: &xdp::Ports) -> String {
    let range = |ports: &RangeInclusive<u16>| match ports.start() == ports.end() {
        true => ports.start().to_string(),
        false => format!("{}-{}", ports.start(), ports.end()),
    };
    let udp = ports
        .udp
        .iter()
        .map(|ports| format!("{}/udp", range(ports)));
    let all: Vec<String> = ports.tcp.iter().map(range).chain(udp).collect();
    all.join(",")
}

fn share(text: &str) -> Result<u16, String> {
    let wrong = || format!("`{text}` is not a share like `1%` or `0.1%`");
    let number = text.strip_suffix('%').ok_or_else(wrong)?;
    let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
    let thousandths = percent * 10.0;
    if !(0.0..=1_000.0).contains(&thousandths) {
        return Err(wrong());
    }
    let rounded = thousandths.round();
    if (thousandths - rounded).abs() > 1e-6 {
        return Err(format!("`{text}` is finer than 0.1%"));
    }
    Ok(rounded as u16)
}
