//! The wire and the clock: packets in and out, and what time it is. And the one place where the flags of the command line
//! become a stack.

use super::cabi::memory::UserPtr;
use super::room::Room;
use janus_posix::ORIGIN;
use janus_posix::{Errno, Host, Sent, sysctl};
use janus_tcp::{Instant, Interface, IpCidr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Decides initial sequence numbers, timestamps and ports: a script takes the same course each time.
const SEED: u64 = 1;
/// How long a packet is waited for, in microseconds: longer than any retransmission timeout, and not for ever.
const PATIENCE: u64 = 200_000_000;
/// Of the interface, if nothing else is said.
const MTU: u16 = 1_500;
/// The addresses the tool gives this end when it is told none. Connections begin from these; any address is ours.
const LOCAL: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 0)),
];
/// The largest packet an IP header can speak of.
const PACKET_MAX: usize = 65_575;
/// The clock at the start, in microseconds.
const EPOCH: u64 = ORIGIN.saturating_since(Instant::from_millis(0)).as_micros() as u64;

/// The host that `--so_flags` describe.
pub(super) fn host(flags: &str) -> Result<Host, String> {
    let settings = sysctl::parse(flags).map_err(|error| format!("--so_flags: {error}"))?;
    let mut interface = Interface::ip(settings.mtu.unwrap_or(MTU));
    interface.any_local = settings.local.is_empty();
    let local = match interface.any_local {
        true => LOCAL.to_vec(),
        false => settings.local,
    };
    let network = |ip: IpAddr| IpCidr::new(ip, if ip.is_ipv4() { 16 } else { 48 });
    interface.addresses = local.into_iter().map(network).collect();
    let mut host = Host::new(settings.config, interface, SEED)
        .map_err(|error| format!("no memory for a stack: {error}"))?;
    host.set_default_options(settings.socket);
    Ok(host)
}

/// A packet for the stack. One that it has no room for is lost, as on a real device.
pub(super) fn send(room: &Room, packet: UserPtr, len: usize) -> Result<i32, Errno> {
    if len > PACKET_MAX {
        return Err(Errno::EMSGSIZE);
    }
    room.deliver(&packet.bytes(len)?);
    Ok(0)
}

/// The next packet from the stack.
pub(super) fn receive(
    room: &Room,
    into: UserPtr,
    len: UserPtr,
    time: UserPtr,
) -> Result<i32, Errno> {
    let mut capacity = [0; size_of::<usize>()];
    len.read(&mut capacity)?;
    let Some(Sent { at, bytes }) = room.next_sent(PATIENCE) else {
        len.write(&0_usize.to_ne_bytes())?;
        return Ok(0);
    };
    if bytes.len() > usize::from_ne_bytes(capacity) {
        return Err(Errno::EMSGSIZE);
    }
    into.write(&bytes)?;
    len.write(&bytes.len().to_ne_bytes())?;
    time.write(&((EPOCH + at) as i64).to_ne_bytes())?;
    Ok(0)
}

/// The time, as `struct timeval`.
pub(super) fn time(room: &Room, into: UserPtr) -> Result<i32, Errno> {
    let micros = EPOCH + room.time();
    if into.is_null() {
        return Ok(0);
    }
    let (seconds, micros) = ((micros / 1_000_000) as i64, (micros % 1_000_000) as i64);
    into.write(&[seconds.to_ne_bytes(), micros.to_ne_bytes()].concat())?;
    Ok(0)
}
