//! Options that are numbers: what setting them says and what is told afterwards, on a new socket of the kernel and one of these.

use janus_posix::{Host, abi, sysctl};
use janus_tcp::Interface;
use rustix::fd::OwnedFd;
use rustix::io::Result;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::time::Duration;

/// An option: how the kernel's is set and read, and its level and name.
struct Known {
    name: &'static str,
    set: fn(&OwnedFd, u32) -> Result<()>,
    get: fn(&OwnedFd) -> Result<i64>,
    here: (i32, i32),
    values: &'static [u32],
}

fn seconds(value: u32) -> Duration {
    Duration::from_secs(value.into())
}

const BUFFERS: &[u32] = &[0, 1, 1_152, 1_153, 2_304, 2_305, 5_000, 100_000];
const SWITCH: &[u32] = &[0, 1];

fn known() -> Vec<Known> {
    let option = |name, set, get, here, values| Known {
        name,
        set,
        get,
        here,
        values,
    };
    let socket = |name| (abi::SOL_SOCKET, name);
    let tcp = |name| (abi::SOL_TCP, name);
    vec![
        option(
            "SO_RCVBUF",
            |fd, n| sockopt::set_socket_recv_buffer_size(fd, n as usize),
            |fd| sockopt::socket_recv_buffer_size(fd).map(|n| n as i64),
            socket(abi::SO_RCVBUF),
            BUFFERS,
        ),
        option(
            "SO_SNDBUF",
            |fd, n| sockopt::set_socket_send_buffer_size(fd, n as usize),
            |fd| sockopt::socket_send_buffer_size(fd).map(|n| n as i64),
            socket(abi::SO_SNDBUF),
            BUFFERS,
        ),
        option(
            "SO_REUSEADDR",
            |fd, n| sockopt::set_socket_reuseaddr(fd, n != 0),
            |fd| sockopt::socket_reuseaddr(fd).map(i64::from),
            socket(abi::SO_REUSEADDR),
            SWITCH,
        ),
        option(
            "SO_REUSEPORT",
            |fd, n| sockopt::set_socket_reuseport(fd, n != 0),
            |fd| sockopt::socket_reuseport(fd).map(i64::from),
            socket(abi::SO_REUSEPORT),
            SWITCH,
        ),
        option(
            "SO_KEEPALIVE",
            |fd, n| sockopt::set_socket_keepalive(fd, n != 0),
            |fd| sockopt::socket_keepalive(fd).map(i64::from),
            socket(abi::SO_KEEPALIVE),
            SWITCH,
        ),
        option(
            "TCP_NODELAY",
            |fd, n| sockopt::set_tcp_nodelay(fd, n != 0),
            |fd| sockopt::tcp_nodelay(fd).map(i64::from),
            tcp(abi::TCP_NODELAY),
            SWITCH,
        ),
        option(
            "TCP_CORK",
            |fd, n| sockopt::set_tcp_cork(fd, n != 0),
            |fd| sockopt::tcp_cork(fd).map(i64::from),
            tcp(abi::TCP_CORK),
            SWITCH,
        ),
        option(
            "TCP_KEEPIDLE",
            |fd, n| sockopt::set_tcp_keepidle(fd, seconds(n)),
            |fd| sockopt::tcp_keepidle(fd).map(|t| t.as_secs() as i64),
            tcp(abi::TCP_KEEPIDLE),
            &[1, 30, 32_767, 32_768, 100_000],
        ),
        option(
            "TCP_KEEPINTVL",
            |fd, n| sockopt::set_tcp_keepintvl(fd, seconds(n)),
            |fd| sockopt::tcp_keepintvl(fd).map(|t| t.as_secs() as i64),
            tcp(abi::TCP_KEEPINTVL),
            &[1, 30, 32_767, 32_768],
        ),
        option(
            "TCP_KEEPCNT",
            |fd, n| sockopt::set_tcp_keepcnt(fd, n),
            |fd| sockopt::tcp_keepcnt(fd).map(i64::from),
            tcp(abi::TCP_KEEPCNT),
            &[0, 1, 127, 128],
        ),
        option(
            "TCP_USER_TIMEOUT",
            |fd, n| sockopt::set_tcp_user_timeout(fd, n),
            |fd| sockopt::tcp_user_timeout(fd).map(i64::from),
            tcp(abi::TCP_USER_TIMEOUT),
            &[0, 1, 2_500, i32::MAX as u32, u32::MAX],
        ),
        option(
            "IP_TTL",
            |fd, n| sockopt::set_ip_ttl(fd, n),
            |fd| sockopt::ip_ttl(fd).map(i64::from),
            (abi::SOL_IP, abi::IP_TTL),
            &[0, 1, 9, 255, 256, u32::MAX],
        ),
        option(
            "IP_TOS",
            |fd, n| sockopt::set_ip_tos(fd, n as u8),
            |fd| sockopt::ip_tos(fd).map(i64::from),
            (abi::SOL_IP, abi::IP_TOS),
            &[0, 3, 0x10, 0x13, 0xfc],
        ),
        option(
            "IP_FREEBIND",
            |fd, n| sockopt::set_ip_freebind(fd, n != 0),
            |fd| sockopt::ip_freebind(fd).map(i64::from),
            (abi::SOL_IP, abi::IP_FREEBIND),
            SWITCH,
        ),
        option(
            "IPV6_V6ONLY",
            |fd, n| sockopt::set_ipv6_v6only(fd, n != 0),
            |fd| sockopt::ipv6_v6only(fd).map(i64::from),
            (abi::SOL_IPV6, abi::IPV6_V6ONLY),
            SWITCH,
        ),
        option(
            "IP_MTU",
            |_, _| Ok(()),
            |fd| sockopt::ip_mtu(fd).map(i64::from),
            (abi::SOL_IP, abi::IP_MTU),
            &[],
        ),
    ]
}

#[test]
fn options_are_told_as_the_kernel_tells_them() {
    let settings = sysctl::parse("").expect("the profile");
    let mut host = Host::new(settings.config, Interface::ip(1_500), 1).expect("memory");
    let number = |outcome: Result<i64>| outcome.unwrap_or_else(|e| -i64::from(e.raw_os_error()));
    let mut wrong = Vec::new();
    for option in known() {
        let theirs = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket");
        let ours = host
            .sockets()
            .socket(abi::AF_INET, abi::SOCK_STREAM, 0)
            .expect("a socket");
        let (level, name) = option.here;
        // What nobody has chosen is a matter of settings for buffers.
        let first = if option.values == BUFFERS {
            None
        } else {
            Some(None)
        };
        for value in first.into_iter().chain(option.values.iter().map(Some)) {
            let mut told = (0, 0);
            if let Some(&value) = value {
                told.0 = number((option.set)(&theirs, value).map(|()| 0));
                let bytes = (value as i32).to_ne_bytes();
                let now = host.now();
                let set = host.sockets().setsockopt(now, ours, level, name, &bytes);
                told.1 = set.map_or_else(|errno| -i64::from(errno.0), |()| 0);
            }
            let mut bytes = [0; 4];
            let got = host.sockets().getsockopt(ours, level, name, &mut bytes);
            let got = got.map_or_else(
                |errno| -i64::from(errno.0),
                |_| i32::from_ne_bytes(bytes).into(),
            );
            let (kernel, janus) = ((told.0, number((option.get)(&theirs))), (told.1, got));
            if kernel != janus {
                let name = option.name;
                wrong.push(format!(
                    "{name} {value:?}: kernel {kernel:?}, janus {janus:?}"
                ));
            }
        }
        let now = host.now();
        host.sockets().close(now, ours).expect("open");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
