//! Whole packets into and out of a stack, as bytes: what a device's DMA does, without the device.
//! What never lives here: a decision about what happens to a packet in between.

use crate::offload;
use janus_mem::{Frame, HEADROOM, PacketBuf, SLOT_SIZE};
use janus_tcp::{Instant, Local, Stack};

/// Frames taken from a stack at once.
const BURST: usize = 64;
/// Bursts a stack may hand out at one moment. A stack that has more to say says it for ever.
const BURSTS_MAX: usize = 100_000;
/// The largest packet that fits a buffer.
pub const PACKET_MAX: usize = SLOT_SIZE - HEADROOM as usize;

/// Hands `packet` to the stack. False when no buffer is free or it fits none: as on a real device, it is lost. What comes
/// in one packet and fits several is handed over at once.
pub fn deliver(stack: &mut Stack, now: Instant, packet: &[u8]) -> bool {
    deliver_in(stack, now, packet, |stack| stack.pool().alloc())
}

/// Does what [`deliver`] does, in buffers that `alloc` finds: those of a device, for instance.
pub fn deliver_in(
    stack: &mut Stack,
    now: Instant,
    packet: &[u8],
    alloc: impl FnMut(&mut Stack) -> Option<PacketBuf>,
) -> bool {
    if packet.len() <= PACKET_MAX {
        return input(stack, now, &[packet], alloc);
    }
    offload::cut(packet, PACKET_MAX).is_some_and(|parts| input(stack, now, &parts, alloc))
}

fn input(
    stack: &mut Stack,
    now: Instant,
    packets: &[impl AsRef<[u8]>],
    mut alloc: impl FnMut(&mut Stack) -> Option<PacketBuf>,
) -> bool {
    let mut frames = Vec::with_capacity(packets.len());
    for packet in packets {
        let packet = packet.as_ref();
        let Some(mut buf) = alloc(stack) else {
            break;
        };
        let at = usize::from(buf.off());
        buf.bytes_mut()[at..at + packet.len()].copy_from_slice(packet);
        frames.push(Frame::new(buf, packet.len() as u16));
    }
    let all = frames.len() == packets.len();
    stack.input(now, &mut frames, &mut Local);
    all
}

/// Takes all that the stack has to send now. Buffers that are lent go home at once. What is for the stack's own addresses does not come out:
/// it goes in again, and is answered, at the same moment.
pub fn collect(stack: &mut Stack, now: Instant, mut each: impl FnMut(&[u8])) {
    let mut frames = Vec::with_capacity(BURST);
    for _ in 0..BURSTS_MAX {
        if stack.has_looped() {
            stack.take_looped(&mut frames, BURST);
            stack.input(now, &mut frames, &mut Local);
        } else if !stack.wants_transmit() {
            return;
        }
        stack.transmit(now, &mut frames, BURST);
        for frame in frames.drain(..) {
            each(frame.data());
            if frame.is_lent() {
                stack.completed(frame);
            } else {
                stack.pool().free(frame.buf);
            }
        }
    }
    panic!(
        "the stack wants to send without end, at {} ns",
        now.as_nanos()
    );
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    use janus_tcp::{Config, Interface, IpCidr};

    use crate::{Errno, Host, abi};

    const OWN: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    ];

    fn host() -> Host {
        let interface = Interface {
            any_local: false,
            addresses: vec![IpCidr::new(OWN[0], 24), IpCidr::new(OWN[1], 64)],
            ..Interface::ip(1_500)
        };
        Host::new(Config::default(), interface, 7).expect("memory")
    }

    /// A host talks to itself, in no time, and says nothing to others.
    #[test]
    fn what_is_for_the_host_itself_does_not_come_out() {
        for (own, family) in OWN.into_iter().zip([abi::AF_INET, abi::AF_INET6]) {
            let mut host = host();
            let now = host.now();
            let mut sockets = host.sockets();
            let mut socket = || sockets.socket(family, abi::SOCK_STREAM, 0).unwrap();
            let (listener, client, refused) = (socket(), socket(), socket());
            let there = SocketAddr::new(own, 80);
            host.sockets().bind(listener, there).unwrap();
            host.sockets().listen(listener, 8).unwrap();
            let nobody = SocketAddr::new(own, 81);
            for (fd, to) in [(client, there), (refused, nobody)] {
                let begun = host.sockets().connect(now, fd, to);
                assert_eq!(begun, Err(Errno::EINPROGRESS));
            }
            host.settle();
            let answer = host.sockets().connect(now, refused, nobody);
            assert_eq!(answer, Err(Errno::ECONNREFUSED));
            assert_eq!(host.sockets().connect(now, client, there), Ok(()));
            let (server, peer) = host.sockets().accept(listener).unwrap();
            assert_eq!(host.sockets().getsockname(client), Ok(peer));
            assert_eq!(peer.ip(), own);
            assert_eq!(host.sockets().write(now, client, b"to myself"), Ok(9));
            host.settle();
            let mut got = [0; 16];
            assert_eq!(host.sockets().read(now, server, &mut got), Ok(9));
            assert_eq!(&got[..9], b"to myself");
            assert!(!host.has_sent());
            assert_eq!(host.leftovers(), Vec::<String>::new());
        }
    }
}
