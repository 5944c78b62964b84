//! Why AF_XDP was refused, for people: each error says what to change. Decides nothing.

use std::fmt;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use super::socket::Step;

/// Everything that can stand in the way.
#[derive(Debug)]
pub(super) enum Refusal<'a> {
    /// The interface has an MTU that does not fit a buffer.
    Mtu { mtu: u32, most: u16 },
    /// It is down.
    Down,
    /// It does not carry Ethernet addresses.
    NotEthernet,
    /// It has so many receive queues.
    Queues { has: u32, asked: usize },
    /// The kernel has this address, and no ports say which of its packets are ours.
    KernelsOwn(IpAddr),
    /// More addresses or ranges of ports than a program has room for.
    TooMany { what: &'static str, most: usize },
    /// No address at all.
    NoAddress,
    /// Too few packet buffers.
    Buffers { least: u32 },
    /// A map could not be made.
    Map(Errno),
    /// The program was refused, with what the verifier said.
    Program(Errno, &'a str),
    /// It could not be put onto the interface; which way was tried last.
    Attach(Errno, super::bpf::Attach),
    /// A socket for this queue.
    Socket(Step, Errno, u32),
    /// Multicast groups.
    Groups(Errno),
}

pub(crate) const RIGHTS: &str = "run as root, or give the program the rights: \
     `sudo setcap cap_net_admin,cap_net_raw,cap_bpf,cap_ipc_lock+ep PROGRAM`";
pub(crate) const LINUX: &str = "AF_XDP as Janus uses it needs Linux 5.9 or newer with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL; \
     `backend = \"tap\"` works with any";

impl Refusal<'_> {
    /// As an error about the interface `name`.
    pub(super) fn on(self, name: &str) -> io::Error {
        let kind = match self.errno() {
            Some(errno) => io::Error::from(errno).kind(),
            None => io::ErrorKind::InvalidInput,
        };
        let cause = self.errno().map(io::Error::from);
        let text = Text {
            refusal: self,
            name,
        };
        match cause {
            Some(cause) => io::Error::new(kind, format!("{text} ({cause})")),
            None => io::Error::new(kind, text.to_string()),
        }
    }

    fn errno(&self) -> Option<Errno> {
        match *self {
            Self::Map(errno)
            | Self::Program(errno, _)
            | Self::Attach(errno, _)
            | Self::Socket(_, errno, _)
            | Self::Groups(errno) => Some(errno),
            _ => None,
        }
    }
}

struct Text<'a> {
    refusal: Refusal<'a>,
    name: &'a str,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match &self.refusal {
            Refusal::Mtu { mtu, most } => write!(
                f,
                "{name} has an MTU of {mtu}, at most {most} fits a buffer: `ip link set dev {name} mtu 1500`"
            ),
            Refusal::Down => write!(f, "{name} is down: `ip link set dev {name} up`"),
            Refusal::NotEthernet => {
                write!(f, "{name} is no Ethernet interface: choose another one")
            }
            Refusal::Queues { has, asked } => write!(
                f,
                "{name} has {has} receive queues and {asked} would be polled, so packets would be lost: use {has} I/O cores \
                 (combined: as many shards), or `ethtool -L {name} combined {asked}` (`rx {asked}` where it has no combined ones)"
            ),
            Refusal::KernelsOwn(addr) => write!(
                f,
                "{addr} is the kernel's own address: taking all its packets would cut off SSH and everything else. Give \
                 Janus an address of its own, or say which ports are Janus's: `xdp_ports = \"80,443\"`"
            ),
            Refusal::TooMany { what, most } => {
                write!(f, "AF_XDP takes at most {most} {what}: configure fewer")
            }
            Refusal::NoAddress => f.write_str(
                "AF_XDP needs an address to take packets for: `address = \"192.0.2.2/24\"`",
            ),
            Refusal::Buffers { least } => write!(
                f,
                "{name} needs packet buffers to receive into: `packet_buffers = {least}` or more"
            ),
            Refusal::Map(Errno::PERM | Errno::ACCESS) => {
                write!(
                    f,
                    "AF_XDP on {name} needs CAP_BPF and CAP_NET_ADMIN: {RIGHTS}"
                )
            }
            Refusal::Map(Errno::NOSYS | Errno::INVAL) => f.write_str(LINUX),
            Refusal::Map(_) => write!(f, "a BPF map for {name} cannot be made"),
            Refusal::Program(Errno::PERM, _) => write!(
                f,
                "loading the XDP program for {name} needs CAP_BPF and CAP_NET_ADMIN: {RIGHTS}"
            ),
            Refusal::Program(_, said) => write!(
                f,
                "the kernel refuses the XDP program for {name}; its verifier says: {}",
                said.trim()
            ),
            Refusal::Attach(errno, attach) => text_of_attach(f, *errno, *attach, name),
            Refusal::Socket(step, errno, queue) => text_of_socket(f, *step, *errno, *queue, name),
            Refusal::Groups(_) => write!(
                f,
                "{name} cannot listen to the groups of our IPv6 addresses, which needs CAP_NET_RAW: {RIGHTS}"
            ),
        }
    }
}

fn text_of_attach(
    f: &mut fmt::Formatter<'_>,
    errno: Errno,
    attach: super::bpf::Attach,
    name: &str,
) -> fmt::Result {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            write!(
                f,
                "putting an XDP program onto {name} needs CAP_NET_ADMIN: {RIGHTS}"
            )
        }
        Errno::BUSY | Errno::EXIST => write!(
            f,
            "{name} has an XDP program of somebody else: end that process, or `ip link set dev {name} xdp off`"
        ),
        _ => write!(
            f,
            "{name} takes no XDP program ({} mode): `xdp_mode = \"generic\"` works with any driver on Linux 5.9 or newer",
            match attach {
                super::bpf::Attach::Native => "native",
                super::bpf::Attach::Generic => "generic",
            }
        ),
    }
}

fn text_of_socket(
    f: &mut fmt::Formatter<'_>,
    step: Step,
    errno: Errno,
    queue: u32,
    name: &str,
) -> fmt::Result {
    match (step, errno) {
        (Step::Socket, Errno::PERM | Errno::ACCESS) => {
            write!(f, "an AF_XDP socket needs CAP_NET_RAW: {RIGHTS}")
        }
        (Step::Socket, _) => f.write_str(LINUX),
        (Step::Umem, Errno::NOBUFS | Errno::NOMEM | Errno::PERM) => f.write_str(
            "the packet buffers cannot be locked in memory: `ulimit -l unlimited` as root, or the right cap_ipc_lock, or \
             fewer `packet_buffers`",
        ),
        (Step::Bind, Errno::BUSY) => write!(
            f,
            "queue {queue} of {name} has an AF_XDP socket already: end the process that has it (`ss --xdp -p`)"
        ),
        (Step::Bind, Errno::INVAL) => write!(
            f,
            "{name} has no queue {queue}: use fewer I/O cores, or `ethtool -L {name} combined {}`",
            queue + 1
        ),
        (Step::Bind, Errno::NETDOWN) => {
            write!(f, "{name} is down: `ip link set dev {name} up`")
        }
        (Step::Umem, _) => write!(f, "{name} does not take our packet buffers"),
        (Step::Rings, _) => write!(f, "the rings of queue {queue} of {name} cannot be made"),
        (Step::Bind, _) => write!(f, "queue {queue} of {name} cannot be bound to"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bpf::Attach;
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do() {
        let address = IpAddr::from([192, 0, 2, 1]);
        for (refusal, remedy) in [
            (
                Refusal::Mtu {
                    mtu: 9000,
                    most: 1774,
                },
                "mtu 1500",
            ),
            (Refusal::Down, "ip link set dev eth7 up"),
            (Refusal::NotEthernet, "another one"),
            (
                Refusal::Queues { has: 4, asked: 1 },
                "ethtool -L eth7 combined 1",
            ),
            (Refusal::KernelsOwn(address), "xdp_ports"),
            (
                Refusal::TooMany {
                    what: "addresses",
                    most: 32,
                },
                "at most 32",
            ),
            (Refusal::NoAddress, "address = "),
            (Refusal::Buffers { least: 512 }, "packet_buffers = 512"),
            (
                Refusal::Map(Errno::PERM),
                "setcap cap_net_admin,cap_net_raw,cap_bpf",
            ),
            (Refusal::Map(Errno::NOSYS), "Linux 5.9"),
            (Refusal::Program(Errno::PERM, ""), "CAP_BPF"),
            (
                Refusal::Program(Errno::ACCESS, "R1 !read_ok"),
                "R1 !read_ok",
            ),
            (Refusal::Attach(Errno::BUSY, Attach::Native), "xdp off"),
            (
                Refusal::Attach(Errno::PERM, Attach::Native),
                "CAP_NET_ADMIN",
            ),
            (
                Refusal::Attach(Errno::OPNOTSUPP, Attach::Native),
                "xdp_mode = \"generic\"",
            ),
            (Refusal::Socket(Step::Socket, Errno::PERM, 0), "CAP_NET_RAW"),
            (
                Refusal::Socket(Step::Socket, Errno::AFNOSUPPORT, 0),
                "CONFIG_XDP_SOCKETS",
            ),
            (
                Refusal::Socket(Step::Umem, Errno::NOBUFS, 0),
                "ulimit -l unlimited",
            ),
            (
                Refusal::Socket(Step::Bind, Errno::BUSY, 3),
                "queue 3 of eth7",
            ),
            (Refusal::Socket(Step::Bind, Errno::INVAL, 3), "combined 4"),
            (Refusal::Groups(Errno::PERM), "CAP_NET_RAW"),
        ] {
            let shown = format!("{refusal:?}");
            let text = refusal.on("eth7").to_string();
            assert!(text.contains(remedy), "{shown}: {text}");
        }
        let denied = Refusal::Map(Errno::PERM).on("eth7");
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
    }
}
