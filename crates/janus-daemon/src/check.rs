//! The judgment of frames that members send: packets come from the device's addresses and the member's own ports, link frames from the device's
//! link address. Judged on a copy that
//! the member cannot change any more.

use std::net::IpAddr;

use janus_shm::Device;
use janus_wire::ethernet::ethertype::{ARP, IPV4, IPV6};
use janus_wire::proto::{ICMP, ICMPV6, TCP, UDP};
use janus_wire::tcp::Flags;
use janus_wire::{MacAddr, ethernet, icmpv6};

use crate::ports::{Owner, Port, Ports, Slot};

/// The device as its packets show it.
pub(crate) struct Identity {
    device: Device,
    addresses: Vec<IpAddr>,
}

/// The judgment of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    /// As [`Verdict::Pass`], a segment of TCP with these flags.
    Segment(Flags),
    /// From an unclaimed port: it becomes the member's.
    Takes(Port),
    Refuse,
}

const FRAGMENT: u8 = 44;
/// Offset of the flags in a segment.
const FLAGS_AT: usize = 13;

impl Identity {
    /// The link-local address that belongs to the device is its too.
    pub(crate) fn new(device: Device, mut addresses: Vec<IpAddr>) -> Identity {
        if let Device::Ethernet(mac) = device {
            addresses.push(icmpv6::link_local(MacAddr(mac)).into());
        }
        Identity { device, addresses }
    }

    pub(crate) fn judge(&self, frame: &[u8], slot: Slot, ports: &Ports) -> Verdict {
        let Device::Ethernet(mac) = self.device else {
            return match frame.first().map(|first| first >> 4) {
                Some(4) => self.ipv4(frame, slot, ports),
                _ => self.ipv6(frame, slot, ports),
            };
        };
        let Some((head, packet)) = frame.split_at_checked(ethernet::LEN) else {
            return Verdict::Refuse;
        };
        if head[6..12] != mac {
            return Verdict::Refuse;
        }
        match u16::from_be_bytes([head[12], head[13]]) {
            ARP => self.arp(packet, mac),
            IPV4 => self.ipv4(packet, slot, ports),
            IPV6 => self.ipv6(packet, slot, ports),
            _ => Verdict::Refuse,
        }
    }

    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// Whether a frame that may pass is for the device's own addresses: then it stays inside. Those of the portal are the kernel's, which
    /// brings back what is for a member.
    pub(crate) fn is_for_us(&self, frame: &[u8]) -> bool {
        if let Device::Portal(_) = self.device {
            return false;
        }
        match frame.get(12..14) {
            Some([8, 0]) => match frame.get(30..34) {
                Some(&[a, b, c, d]) => self.has(IpAddr::from([a, b, c, d])),
                _ => false,
            },
            Some([0x86, 0xdd]) => {
                let to = frame
                    .get(38..54)
                    .and_then(|to| <[u8; 16]>::try_from(to).ok());
                to.is_some_and(|to| self.has(IpAddr::from(to)))
            }
            _ => false,
        }
    }

    /// Questions only, and as the device's: answers are the keeper's.
    fn arp(&self, packet: &[u8], mac: [u8; 6]) -> Verdict {
        let Some(arp) = packet.first_chunk::<28>() else {
            return Verdict::Refuse;
        };
        let asks = arp[6..8] == [0, 1];
        let sender: [u8; 4] = [arp[14], arp[15], arp[16], arp[17]];
        match asks && arp[8..14] == mac && self.has(IpAddr::from(sender)) {
            true => Verdict::Pass,
            false => Verdict::Refuse,
        }
    }

    fn ipv4(&self, packet: &[u8], slot: Slot, ports: &Ports) -> Verdict {
        let Some(ip) = packet.first_chunk::<20>() else {
            return Verdict::Refuse;
        };
        let source: [u8; 4] = [ip[12], ip[13], ip[14], ip[15]];
        let header = usize::from(ip[0] & 15) * 4;
        if ip[0] >> 4 != 4 || header < 20 || !self.has(IpAddr::from(source)) {
            return Verdict::Refuse;
        }
        // A later piece has no ports, and is of no use without the first.
        let later = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff != 0;
        match later {
            true => Verdict::Pass,
            false => transport(ip[9], packet.get(header..), slot, ports),
        }
    }

    fn ipv6(&self, packet: &[u8], slot: Slot, ports: &Ports) -> Verdict {
        let Some(ip) = packet.first_chunk::<40>() else {
            return Verdict::Refuse;
        };
        let mut source = [0; 16];
        source.copy_from_slice(&ip[8..24]);
        if ip[0] >> 4 != 6 || !self.has(IpAddr::from(source)) {
            return Verdict::Refuse;
        }
        if ip[6] != FRAGMENT {
            return transport(ip[6], packet.get(40..), slot, ports);
        }
        let Some(piece) = packet.get(40..48) else {
            return Verdict::Refuse;
        };
        match u16::from_be_bytes([piece[2], piece[3]]) & 0xfff8 {
            0 => transport(piece[0], packet.get(48..), slot, ports),
            _ => Verdict::Pass,
        }
    }
}

fn transport(proto: u8, rest: Option<&[u8]>, slot: Slot, ports: &Ports) -> Verdict {
    let udp = match proto {
        TCP => false,
        UDP => true,
        // Not who changes others' ways: redirects, routers, what says whose a link address is.
        ICMP | ICMPV6 => {
            let kind = rest.and_then(|rest| rest.first());
            let changes = |kind: &u8| match proto {
                ICMP => *kind == 5,
                _ => [134, 136, 137].contains(kind),
            };
            return match kind {
                Some(kind) if !changes(kind) => Verdict::Pass,
                _ => Verdict::Refuse,
            };
        }
        _ => return Verdict::Refuse,
    };
    let Some(rest @ [high, low, ..]) = rest else {
        return Verdict::Refuse;
    };
    let passes = match rest.get(FLAGS_AT) {
        Some(flags) if !udp => Verdict::Segment(Flags(*flags)),
        _ => Verdict::Pass,
    };
    let port = Port {
        udp,
        number: u16::from_be_bytes([*high, *low]),
    };
    match ports.owner(port) {
        Owner::Member(of) if of == slot => passes,
        Owner::Group if ports.groups.has(port.number, slot) => passes,
        Owner::Nobody => Verdict::Takes(port),
        Owner::Member(_) | Owner::Group | Owner::Kept | Owner::Keeper => Verdict::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; 4] = [192, 0, 2, 1];
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn identity() -> Identity {
        let addresses = vec![IpAddr::from(OURS), "2001:db8::1".parse().unwrap()];
        Identity::new(Device::Ethernet(MAC), addresses)
    }

    fn frame(kind: u16, packet: &[u8]) -> Vec<u8> {
        let mut all = vec![0xff; 6];
        all.extend(MAC);
        all.extend(kind.to_be_bytes());
        all.extend(packet);
        all
    }

    fn ipv4(source: [u8; 4], proto: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        (packet[0], packet[9]) = (0x45, proto);
        packet[12..16].copy_from_slice(&source);
        packet.extend(rest);
        frame(IPV4, &packet)
    }

    fn ipv6(source: &str, next: u8, rest: &[u8]) -> Vec<u8> {
        let source: std::net::Ipv6Addr = source.parse().unwrap();
        let mut packet = vec![0; 40];
        (packet[0], packet[6]) = (0x60, next);
        packet[8..24].copy_from_slice(&source.octets());
        packet.extend(rest);
        frame(IPV6, &packet)
    }

    #[test]
    fn only_what_is_a_members_own_goes_out() {
        let (identity, mut ports) = (identity(), Ports::new());
        let port = |number: u16| number.to_be_bytes();
        ports
            .claim(
                1,
                Port {
                    udp: false,
                    number: 80,
                },
            )
            .unwrap();
        ports
            .claim(
                2,
                Port {
                    udp: false,
                    number: 443,
                },
            )
            .unwrap();
        let takes = |number| Verdict::Takes(Port { udp: false, number });
        let cases = [
            ("its own", ipv4(OURS, TCP, &port(80)), Verdict::Pass),
            ("another's", ipv4(OURS, TCP, &port(443)), Verdict::Refuse),
            ("nobody's", ipv4(OURS, TCP, &port(7)), takes(7)),
            (
                "another address",
                ipv4([192, 0, 2, 9], TCP, &port(80)),
                Verdict::Refuse,
            ),
            (
                "another protocol",
                ipv4(OURS, 47, &port(80)),
                Verdict::Refuse,
            ),
            ("cut", ipv4(OURS, TCP, &[0]), Verdict::Refuse),
            ("nothing", Vec::new(), Verdict::Refuse),
            ("an error", ipv4(OURS, ICMP, &[3, 3]), Verdict::Pass),
            ("a redirect", ipv4(OURS, ICMP, &[5, 1]), Verdict::Refuse),
            (
                "IPv6, its own",
                ipv6("2001:db8::1", TCP, &port(80)),
                Verdict::Pass,
            ),
            (
                "IPv6, another address",
                ipv6("2001:db8::2", TCP, &port(80)),
                Verdict::Refuse,
            ),
            (
                "whose is it",
                ipv6("2001:db8::1", ICMPV6, &[135]),
                Verdict::Pass,
            ),
            (
                "it is mine",
                ipv6("2001:db8::1", ICMPV6, &[136]),
                Verdict::Refuse,
            ),
            (
                "a router",
                ipv6("2001:db8::1", ICMPV6, &[134]),
                Verdict::Refuse,
            ),
            (
                "in pieces, the first",
                ipv6("2001:db8::1", FRAGMENT, &[TCP, 0, 0, 1, 0, 0, 0, 0, 1, 187]),
                Verdict::Refuse,
            ),
            (
                "in pieces, a later one",
                ipv6("2001:db8::1", FRAGMENT, &[TCP, 0, 1, 0, 0, 0, 0, 0]),
                Verdict::Pass,
            ),
            ("VLAN", frame(0x8100, &[0; 60]), Verdict::Refuse),
        ];
        for (what, frame, verdict) in cases {
            assert_eq!(identity.judge(&frame, 1, &ports), verdict, "{what}");
        }
        let mut forged = ipv4(OURS, TCP, &port(80));
        forged[11] = 9;
        assert_eq!(
            identity.judge(&forged, 1, &ports),
            Verdict::Refuse,
            "another link address"
        );
    }

    #[test]
    fn arp_asks_and_does_not_answer() {
        let (identity, ports) = (identity(), Ports::new());
        let arp = |operation: u8, mac: [u8; 6], sender: [u8; 4]| {
            let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation];
            packet.extend(mac);
            packet.extend(sender);
            packet.extend([0; 10]);
            frame(ARP, &packet)
        };
        let judge = |frame: Vec<u8>| identity.judge(&frame, 1, &ports);
        assert_eq!(judge(arp(1, MAC, OURS)), Verdict::Pass);
        assert_eq!(judge(arp(2, MAC, OURS)), Verdict::Refuse);
        assert_eq!(judge(arp(1, [9; 6], OURS)), Verdict::Refuse);
        assert_eq!(judge(arp(1, MAC, [192, 0, 2, 77])), Verdict::Refuse);
        assert_eq!(judge(frame(ARP, &[0; 27])), Verdict::Refuse);
    }
}
