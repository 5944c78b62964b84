//! The ioctls that make and describe a network interface. The only place of this crate that speaks the kernel's
//! `ifreq`; it decides nothing.

use std::io;
use std::net::Ipv4Addr;

use janus_wire::MacAddr;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const TUNSETIFF: Opcode = 0x4004_54ca;
const TUNGETFEATURES: Opcode = 0x8004_54cf;
const TUNGETIFF: Opcode = 0x8004_54d2;
const TUNSETOFFLOAD: Opcode = 0x4004_54d0;
const SIOCGIFFLAGS: Opcode = 0x8913;
const SIOCSIFFLAGS: Opcode = 0x8914;
const SIOCSIFADDR: Opcode = 0x8916;
const SIOCSIFNETMASK: Opcode = 0x891c;
const SIOCGIFMTU: Opcode = 0x8921;
const SIOCSIFMTU: Opcode = 0x8922;
const SIOCGIFHWADDR: Opcode = 0x8927;
const SIOCSIFHWADDR: Opcode = 0x8924;
const SIOCGIFTXQLEN: Opcode = 0x8942;
const SIOCSIFTXQLEN: Opcode = 0x8943;
const SIOCETHTOOL: Opcode = 0x8946;
const ETHTOOL_GLINK: u32 = 0xa;

const IFF_UP: u16 = 0x1;
const IFF_TAP: u16 = 0x2;
const IFF_NO_PI: u16 = 0x1000;
const IFF_MULTI_QUEUE: u16 = 0x100;
const IFF_VNET_HDR: u16 = 0x4000;
/// We take frames whose checksum is not filled in, and joined ones of TCP over either family, also with ECN.
const TUN_F_CSUM: usize = 1;
const TUN_F_TSO4: usize = 2;
const TUN_F_TSO6: usize = 4;
const TUN_F_TSO_ECN: usize = 8;
const AF_INET: u16 = 2;
const ARPHRD_ETHER: u16 = 1;
/// The kernel makes its link-local address at random.
const ADDR_GEN_RANDOM: &str = "3";

/// Packets for which there is room in a queue of an interface as the kernel makes it: 500 or 1,000, by its version.
const FEW_PACKETS: u32 = 1_000;
/// Room for a packet of each of as many connections as send at a time, after a pause of ours for example. A core takes half a million a second out.
const MANY_PACKETS: u32 = 16_384;

const NAME_SIZE: usize = 16;

/// The kernel's `struct ifreq`: a name and a union, here as bytes.
#[repr(C, align(8))]
struct IfReq {
    name: [u8; NAME_SIZE],
    value: [u8; 24],
}

const _: () = assert!(size_of::<IfReq>() == 40);

impl IfReq {
    fn new(name: &str) -> Result<Self, Errno> {
        // The kernel wants a terminating zero.
        if name.is_empty() || name.len() >= NAME_SIZE || name.bytes().any(|b| b == 0) {
            return Err(Errno::INVAL);
        }
        let mut req = Self {
            name: [0; NAME_SIZE],
            value: [0; 24],
        };
        req.name[..name.len()].copy_from_slice(name.as_bytes());
        Ok(req)
    }

    fn with<const N: usize>(mut self, bytes: [u8; N]) -> Self {
        self.value[..N].copy_from_slice(&bytes);
        self
    }

    fn call<const OPCODE: Opcode>(mut self, fd: impl AsFd) -> Result<Self, Errno> {
        // SAFETY: every opcode of this file takes a pointer to an `ifreq`, reads and writes only within it, or of SIOCETHTOOL within
        // the value that it points to, which outlives the call.
        unsafe { ioctl(fd, Updater::<OPCODE, Self>::new(&mut self))? };
        Ok(self)
    }

    fn u16(&self) -> u16 {
        u16::from_ne_bytes([self.value[0], self.value[1]])
    }

    fn u32(&self) -> u32 {
        let [a, b, c, d, ..] = self.value;
        u32::from_ne_bytes([a, b, c, d])
    }
}

/// Facts of an interface, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's own address on it.
    pub mac: MacAddr,
    /// The longest packet.
    pub mtu: u32,
    /// Whether it is up.
    pub up: bool,
}

/// Whether something is at the other end of an interface that is up: of a TAP interface, a program.
pub(super) fn has_carrier(name: &str) -> bool {
    /// The kernel's `struct ethtool_value`.
    #[repr(C)]
    struct Link {
        command: u32,
        up: u32,
    }
    let mut link = Link {
        command: ETHTOOL_GLINK,
        up: 0,
    };
    let place = (&raw mut link).expose_provenance();
    let asked = || -> Result<(), Errno> {
        let request = IfReq::new(name)?.with(place.to_ne_bytes());
        request.call::<SIOCETHTOOL>(socket()?).map(drop)
    };
    // Unlike the flag that an interface runs, this is never late.
    asked().is_ok() && link.up != 0
}

/// Reads address, MTU and state of an interface of this thread's network namespace.
pub fn interface(name: &str) -> io::Result<Interface> {
    let look = || -> Result<Interface, Errno> {
        let socket = socket()?;
        let mac = IfReq::new(name)?.call::<SIOCGIFHWADDR>(&socket)?.value;
        let mtu = IfReq::new(name)?.call::<SIOCGIFMTU>(&socket)?.u32();
        let flags = IfReq::new(name)?.call::<SIOCGIFFLAGS>(&socket)?.u16();
        Ok(Interface {
            mac: MacAddr([mac[2], mac[3], mac[4], mac[5], mac[6], mac[7]]),
            mtu,
            up: flags & IFF_UP != 0,
        })
    };
    look().map_err(|errno| {
        let cause = io::Error::from(errno);
        io::Error::new(
            cause.kind(),
            format!("no interface {name} can be read here; `ip link` lists them ({cause})"),
        )
    })
}

/// Makes `fd`, opened from the TUN device, a queue of the interface. With `headers`, a header that speaks of offloads stands
/// before every frame; all queues of an interface must have it, or none.
pub(super) fn attach(
    fd: &OwnedFd,
    name: &str,
    multi_queue: bool,
    headers: bool,
) -> Result<(), Errno> {
    let mut flags = IFF_TAP | IFF_NO_PI;
    flags |= if multi_queue { IFF_MULTI_QUEUE } else { 0 };
    flags |= if headers { IFF_VNET_HDR } else { 0 };
    IfReq::new(name)?
        .with(flags.to_ne_bytes())
        .call::<TUNSETIFF>(fd)?;
    Ok(())
}

/// An interface that a descriptor is attached to, and how.
pub(super) struct Queue {
    pub(super) interface: String,
    /// Headers that speak of offloads stand before its frames.
    pub(super) headers: bool,
}

/// Asks the kernel for it. BADFD if it is attached to nothing, another error if it is nothing that could be.
pub(super) fn queue_of(fd: impl AsFd) -> Result<Queue, Errno> {
    let nameless = IfReq {
        name: [0; NAME_SIZE],
        value: [0; 24],
    };
    let asked = nameless.call::<TUNGETIFF>(fd)?;
    let name = asked.name.split(|byte| *byte == 0).next();
    Ok(Queue {
        interface: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
        headers: asked.u16() & IFF_VNET_HDR != 0,
    })
}

/// Whether this kernel's TUN device can speak of offloads.
pub(super) fn knows_offloads(fd: &OwnedFd) -> bool {
    let mut features = 0_u32;
    // SAFETY: the opcode writes one `unsigned int` where the pointer says.
    let asked = unsafe { ioctl(fd, Updater::<TUNGETFEATURES, u32>::new(&mut features)) };
    asked.is_ok() && features & u32::from(IFF_VNET_HDR) != 0
}

/// Tells the kernel what the frames it hands over may be: with `large`, joined segments and checksums not filled in; else
/// packets only. It holds for the interface, and longer than this process where the interface does.
pub(super) fn take_large(fd: &OwnedFd, large: bool) -> Result<(), Errno> {
    let offloads = match large {
        true => TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN,
        false => 0,
    };
    // SAFETY: the opcode takes its argument by value, which is no pointer.
    unsafe { ioctl(fd, IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads)) }
}

/// Gives the interface's queues room for many packets, unless somebody has chosen how long they are.
pub(super) fn lengthen_queues(name: &str) -> Result<(), Errno> {
    let socket = socket()?;
    let length = IfReq::new(name)?.call::<SIOCGIFTXQLEN>(&socket)?.u32();
    if length <= FEW_PACKETS {
        IfReq::new(name)?
            .with(MANY_PACKETS.to_ne_bytes())
            .call::<SIOCSIFTXQLEN>(&socket)?;
    }
    Ok(())
}

/// Gives the interface an address, a prefix and an MTU, and brings it up.
pub(super) fn set_up(name: &str, address: Ipv4Addr, prefix: u8, mtu: u16) -> Result<(), Errno> {
    let mask = u32::MAX
        .checked_shl(32 - u32::from(prefix.min(32)))
        .unwrap_or(0);
    let socket = socket()?;
    IfReq::new(name)?
        .with(u32::from(mtu).to_ne_bytes())
        .call::<SIOCSIFMTU>(&socket)?;
    IfReq::new(name)?
        .with(sockaddr(address))
        .call::<SIOCSIFADDR>(&socket)?;
    IfReq::new(name)?
        .with(sockaddr(Ipv4Addr::from_bits(mask)))
        .call::<SIOCSIFNETMASK>(&socket)?;
    bring_up(name, &socket)
}

/// Gives the interface a device's link address and MTU and brings it up. Its IPv6 link-local address is not made of the link
/// address, as that one is the device's owner's.
pub(super) fn stand_for(name: &str, mac: MacAddr, mtu: u16) -> Result<(), Errno> {
    let socket = socket()?;
    let mut address = [0; 16];
    address[..2].copy_from_slice(&ARPHRD_ETHER.to_ne_bytes());
    address[2..8].copy_from_slice(&mac.0);
    IfReq::new(name)?
        .with(address)
        .call::<SIOCSIFHWADDR>(&socket)?;
    IfReq::new(name)?
        .with(u32::from(mtu).to_ne_bytes())
        .call::<SIOCSIFMTU>(&socket)?;
    // Without IPv6 in the kernel there is no such file.
    let how = format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode");
    let _ = std::fs::write(how, ADDR_GEN_RANDOM);
    bring_up(name, &socket)
}

fn bring_up(name: &str, socket: &OwnedFd) -> Result<(), Errno> {
    let flags = IfReq::new(name)?.call::<SIOCGIFFLAGS>(socket)?.u16();
    IfReq::new(name)?
        .with((flags | IFF_UP).to_ne_bytes())
        .call::<SIOCSIFFLAGS>(socket)?;
    Ok(())
}

fn socket() -> Result<OwnedFd, Errno> {
    socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// `struct sockaddr_in` with port 0.
fn sockaddr(address: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&AF_INET.to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
    bytes
}
