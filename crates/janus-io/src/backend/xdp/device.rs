//! Facts of an interface that must be known before packets are taken from it: its number, its driver, how many receive queues it has, which
//! addresses the kernel has itself; and the groups it must listen to for us. Changes nothing that outlives the process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use janus_wire::icmpv6;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::socket::{raw_socket, set_at};

const SIOCETHTOOL: Opcode = 0x8946;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GDRVINFO: u32 = 3;

/// Drivers that hand to the program of an interface what their senders have not finished.
const VIRTUAL: [&[u8]; 2] = [b"veth", b"tun"];

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u32; 40],
}

const _: () = assert!(size_of::<DriverInfo>() == 196);

/// An `ifreq` whose union is a pointer.
#[repr(C, align(8))]
struct Request<T> {
    name: [u8; 16],
    data: *mut T,
    rest: [u8; 16],
}

const _: () = assert!(size_of::<Request<Channels>>() == 40);

/// A socket to ask the kernel about interfaces with.
pub(super) fn any_socket() -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

/// Receive queues of an interface; `None` where the driver does not say.
pub(super) fn receive_queues(name: &str) -> Result<Option<u32>, Errno> {
    let mut channels = Channels {
        command: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    // SAFETY: with this command the call reads and writes channels.
    match unsafe { ethtool(name, &mut channels) } {
        Ok(()) => Ok(Some(channels.rx + channels.combined).filter(|queues| *queues > 0)),
        Err(Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns true if frames of an interface may come with their checksums left out: their sender, on this machine, has left them to
/// an interface that has no hardware.
pub(super) fn leaves_checksums(name: &str) -> Result<bool, Errno> {
    let mut info = DriverInfo {
        command: ETHTOOL_GDRVINFO,
        driver: [0; 32],
        rest: [0; 40],
    };
    // SAFETY: with this command the call reads and writes what is known of a driver.
    match unsafe { ethtool(name, &mut info) } {
        Ok(()) => {
            let driver = info.driver.split(|byte| *byte == 0).next();
            Ok(driver.is_some_and(|driver| VIRTUAL.contains(&driver)))
        }
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// # Safety
/// `what` begins with a command, and is what the call reads and writes with it.
unsafe fn ethtool<T>(name: &str, what: &mut T) -> Result<(), Errno> {
    let socket = any_socket()?;
    let mut request = Request {
        name: [0; 16],
        data: &raw mut *what,
        rest: [0; 16],
    };
    let len = name.len().min(15);
    request.name[..len].copy_from_slice(&name.as_bytes()[..len]);
    // SAFETY: the call reads and writes an `ifreq` and what it points to, which by the caller is of the command.
    unsafe { ioctl(&socket, Updater::<SIOCETHTOOL, _>::new(&mut request)) }
}

/// The addresses the kernel has, on any interface: it answers for all of them on each.
pub(super) fn kernel_addresses() -> Result<Vec<IpAddr>, Errno> {
    let mut list: *mut libc::ifaddrs = core::ptr::null_mut();
    // SAFETY: the call writes one pointer, to a list that is ours until it is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(super::bpf::last_error());
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: a node of the list, which is not freed yet.
        let node = unsafe { &*at };
        // SAFETY: the node's address is null or as long as its family says.
        found.extend(unsafe { address(node.ifa_addr) });
        at = node.ifa_next;
    }
    // SAFETY: freed once; nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// `at` is null or a socket address as long as its family says.
unsafe fn address(at: *const libc::sockaddr) -> Option<IpAddr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: by the caller; the family tells which type it is. Read unaligned, as nothing promises more.
    unsafe {
        match i32::from((&raw const (*at).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let found = at.cast::<libc::sockaddr_in>().read_unaligned();
                let bits = u32::from_be(found.sin_addr.s_addr);
                Some(Ipv4Addr::from_bits(bits).into())
            }
            libc::AF_INET6 => {
                let found = at.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(found.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// Has the interface take in questions for these IPv6 addresses, which come to a group of their own: for as long as the
/// socket is open.
pub(super) fn listen_to_groups(interface: u32, own: &[Ipv6Addr]) -> Result<OwnedFd, Errno> {
    // Protocol 0: it receives nothing itself.
    let socket = raw_socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    for address in own {
        let group = icmpv6::multicast_mac(icmpv6::solicited_node(*address));
        let mut request = libc::packet_mreq {
            mr_ifindex: interface as i32,
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: 6,
            mr_address: [0; 8],
        };
        request.mr_address[..6].copy_from_slice(&group.0);
        set_at(
            &socket,
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &request,
        )?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_the_kernels() {
        assert!(
            kernel_addresses()
                .unwrap()
                .contains(&Ipv4Addr::LOCALHOST.into())
        );
    }
}
