//! Where the portal's doors are: on this machine only, unless the user says otherwise, and on ports that this process may bind.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use janus_io::ParseError;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Offset of the port at which a privileged port is offered that this process may not bind.
const PRIVILEGED_SHIFT: u16 = 8_000;
/// Linux's default for the first unprivileged port, used where the system reports none.
const UNPRIVILEGED_FROM: u16 = 1_024;
/// Capability to bind any port, as a bit of the effective set.
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;
/// Most addresses that can be named.
const ADDRESSES_MAX: usize = 64;
/// Kernel's backlog at one door, in clients.
pub(super) const BACKLOG: i32 = 4_096;

/// The kernel's addresses on which the portal offers the ports that are bound. As text: `loopback`, `any`, or addresses such as
/// `192.0.2.5,loopback`.
///
/// ```
/// use janus::PortalListen;
/// use std::net::Ipv4Addr;
///
/// let at = PortalListen::at([Ipv4Addr::new(192, 0, 2, 5).into()])?;
/// assert_eq!(at, "192.0.2.5".parse()?);
/// # Ok::<(), janus::ParseError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortalListen {
    /// This machine only: 127.0.0.1 and ::1.
    #[default]
    Loopback,
    /// All addresses of this machine.
    Anywhere,
    /// These addresses of this machine, as [`PortalListen::at`] has checked them.
    #[non_exhaustive]
    At(Arc<[IpAddr]>),
}

impl PortalListen {
    /// Makes a choice of single addresses; of equal ones the first counts.
    ///
    /// # Errors
    /// When an address is unspecified, or when there are more than 64.
    pub fn at(addresses: impl IntoIterator<Item = IpAddr>) -> Result<PortalListen, ParseError> {
        let mut list = Vec::new();
        for address in addresses {
            if address.is_unspecified() {
                let problem = format!("{address} is `any`, and then all there is to say");
                return Err(ParseError::new(problem));
            }
            if list.len() >= ADDRESSES_MAX && !list.contains(&address) {
                let problem = format!("more than {ADDRESSES_MAX} addresses: `any` offers all");
                return Err(ParseError::new(problem));
            }
            if !list.contains(&address) {
                list.push(address);
            }
        }
        Ok(PortalListen::At(list.into()))
    }

    /// Returns the kernel's addresses for what a program binds as `bound`. One that it binds on loopback stays there; `::` means both
    /// families.
    pub(super) fn addresses(&self, bound: IpAddr) -> Vec<IpAddr> {
        let both = bound == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let families = [bound.is_ipv4() || both, bound.is_ipv6()];
        let any = |[v4, v6]: [IpAddr; 2]| {
            let all = [v4, v6].into_iter().zip(families);
            all.filter_map(|(address, meant)| meant.then_some(address))
                .collect()
        };
        match self {
            PortalListen::Loopback => any([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
            _ if bound.is_loopback() => PortalListen::Loopback.addresses(bound),
            PortalListen::Anywhere => {
                any([Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()])
            }
            PortalListen::At(list) => {
                let meant = |at: &&IpAddr| families[usize::from(at.is_ipv6())];
                list.iter().filter(meant).copied().collect()
            }
        }
    }

    /// Whether the user named this very address.
    pub(super) fn names(&self, address: IpAddr) -> bool {
        matches!(self, PortalListen::At(list) if list.contains(&address))
    }

    /// Returns the address at which a client finds what is bound as `bound` and offered at `port`.
    pub(crate) fn reachable_at(&self, bound: IpAddr, port: u16) -> SocketAddr {
        let addresses = self.addresses(bound);
        let same = |at: &&IpAddr| at.is_ipv4() == bound.is_ipv4();
        let at = addresses.iter().find(same).or(addresses.first());
        let at = match at {
            Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => Ipv4Addr::LOCALHOST.into(),
            Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => Ipv6Addr::LOCALHOST.into(),
            Some(at) => *at,
            None => bound,
        };
        SocketAddr::new(at, port)
    }
}

impl fmt::Display for PortalListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortalListen::Loopback => f.write_str("loopback"),
            PortalListen::Anywhere => f.write_str("any"),
            PortalListen::At(list) => {
                let list: Vec<String> = list.iter().map(IpAddr::to_string).collect();
                f.write_str(&list.join(","))
            }
        }
    }
}

impl FromStr for PortalListen {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<PortalListen, ParseError> {
        let list = match text.trim() {
            "loopback" => return Ok(PortalListen::Loopback),
            "any" => return Ok(PortalListen::Anywhere),
            list => list,
        };
        let addresses = list.split(',').map(|text| match text.trim() {
            "loopback" => Ok(Ipv4Addr::LOCALHOST.into()),
            text => text.parse::<IpAddr>().map_err(|_| {
                ParseError::new(format!(
                    "`{text}` is neither `loopback` nor `any` nor one of this machine's addresses"
                ))
            }),
        });
        PortalListen::at(addresses.collect::<Result<Vec<_>, _>>()?)
    }
}

/// Returns the kernel's port under which the portal offers `port`: itself, where its process may bind it.
pub(crate) fn offered(port: u16, first: u16) -> u16 {
    if port == 0 || port >= first || port > u16::MAX - PRIVILEGED_SHIFT {
        port
    } else {
        port + PRIVILEGED_SHIFT
    }
}

/// Returns the first port that this process may bind.
pub(crate) fn first_port() -> u16 {
    static FIRST: OnceLock<u16> = OnceLock::new();
    *FIRST.get_or_init(find_first_port)
}

fn find_first_port() -> u16 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let in_force = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    if in_force.is_some_and(|bits| bits & CAP_NET_BIND_SERVICE != 0) {
        return 0;
    }
    let said = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = said.ok().and_then(|text| text.trim().parse().ok());
    first.unwrap_or(UNPRIVILEGED_FROM)
}

/// Opens a listener of the kernel's, of its address's family only.
pub(super) fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &at)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Makes the kernel begin no further handshake at a listener, by a filter that drops SYNs; handshakes that have begun end as usual. A
/// listener that closes while one is in progress resets that client, which may know already that it is connected. Clients whose SYN is
/// dropped retransmit it a second later, and are refused then if the listener has closed.
pub(super) fn refuse_handshakes(listener: &TcpListener) -> io::Result<()> {
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    let step = |code: u32, jump_false: u8, operand: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_false,
        k: operand,
    };
    // A filter of a TCP socket sees each segment from its TCP header on, and returns how much of it is kept.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, FLAGS_AT),
        step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 1, SYN),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the value is a `sock_fprog` and as long as said; its steps live until the call is over, and the kernel copies them.
    let done = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(text: &str) -> PortalListen {
        text.parse().unwrap()
    }

    fn doors(listen: &PortalListen, bound: &str) -> Vec<String> {
        let addresses = listen.addresses(bound.parse().unwrap());
        addresses.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn doors_are_where_they_were_said_to_be() {
        let (local, any) = (listen("loopback"), listen("any"));
        let some = listen("192.0.2.5, 2001:db8::5,loopback");
        assert_eq!(doors(&local, "0.0.0.0"), ["127.0.0.1"]);
        assert_eq!(doors(&local, "::"), ["127.0.0.1", "::1"]);
        assert_eq!(doors(&any, "0.0.0.0"), ["0.0.0.0"]);
        assert_eq!(doors(&any, "::"), ["0.0.0.0", "::"]);
        assert_eq!(doors(&any, "127.0.0.1"), ["127.0.0.1"], "its own wish");
        assert_eq!(doors(&some, "0.0.0.0"), ["192.0.2.5", "127.0.0.1"]);
        assert_eq!(doors(&some, "::1"), ["::1"]);
        assert_eq!(doors(&some, "2001:db8::9"), ["2001:db8::5"]);
        assert_eq!(some.to_string(), "192.0.2.5,2001:db8::5,127.0.0.1");
        for wrong in ["", "all", "0.0.0.0", "::", "192.0.2.0/24", "192.0.2.1:80"] {
            assert!(wrong.parse::<PortalListen>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_is_sent_where_it_is_answered() {
        let at = |text: &str, bound: &str| {
            let at = listen(text).reachable_at(bound.parse().unwrap(), 80);
            at.to_string()
        };
        assert_eq!(at("loopback", "0.0.0.0"), "127.0.0.1:80");
        assert_eq!(at("any", "::"), "[::1]:80");
        assert_eq!(at("192.0.2.5", "0.0.0.0"), "192.0.2.5:80");
        assert_eq!(at("192.0.2.5", "::"), "192.0.2.5:80");
    }

    #[test]
    fn ports_that_need_a_privilege_are_offered_elsewhere() {
        assert_eq!(offered(80, 1_024), 8_080);
        assert_eq!(offered(1_023, 1_024), 9_023);
        assert_eq!(offered(1_024, 1_024), 1_024);
        assert_eq!(offered(0, 1_024), 0);
        assert_eq!([offered(80, 0), offered(80, 80)], [80, 80]);
        assert_eq!(offered(60_000, 65_535), 60_000);
    }

    /// A client that comes later is not told that it is connected, and one that was told is accepted.
    #[test]
    fn a_listener_that_refuses_handshakes_keeps_those_that_came() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = listener(any.parse().unwrap()) else {
                continue;
            };
            let at = listener.local_addr().unwrap();
            let came = std::net::TcpStream::connect(at).unwrap();
            refuse_handshakes(&listener).unwrap();
            let patience = std::time::Duration::from_millis(200);
            let late = std::net::TcpStream::connect_timeout(&at, patience);
            assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
            let (let_in, from) = listener.accept().unwrap();
            assert_eq!(from, came.local_addr().unwrap());
            drop(listener);
            drop(came);
            assert_eq!(io::Read::read(&mut &let_in, &mut [0]).unwrap(), 0);
        }
    }
}
