use std::net::Ipv4Addr;

use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OURS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];

fn ours() -> impl Iterator<Item = IpAddr> {
    OURS.iter().map(|text| text.parse().unwrap())
}

fn router(asks: bool) -> ExceptionRouter {
    let named = Ours::default();
    named.set(ours());
    ExceptionRouter::new(named, MAC, asks)
}

fn frame(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::LEN];
    let header = ethernet::Header {
        dst: MAC,
        src: MacAddr([2, 0, 0, 0, 0, 9]),
        ethertype,
    };
    header.emit(&mut bytes);
    bytes.extend_from_slice(packet);
    bytes
}

fn v4(dst: &str, proto: u8) -> Vec<u8> {
    let mut packet = vec![0; ipv4::LEN + 8];
    let repr = ipv4::Repr {
        src: Ipv4Addr::new(192, 0, 2, 9),
        dst: dst.parse().unwrap(),
        proto,
        payload_len: 8,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut packet, &repr);
    frame(ethernet::ethertype::IPV4, &packet)
}

fn v6(dst: &str, proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv6::LEN + payload.len()];
    let repr = ipv6::Repr {
        src: "2001:db8::9".parse().unwrap(),
        dst: dst.parse().unwrap(),
        proto,
        payload_len: payload.len() as u16,
        hop_limit: 255,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(&mut packet, &repr);
    packet[ipv6::LEN..].copy_from_slice(payload);
    frame(ethernet::ethertype::IPV6, &packet)
}

fn ask(op: arp::Op, sender: &str, target: &str) -> Vec<u8> {
    let packet = arp::Packet {
        op,
        sender_mac: MacAddr([2, 0, 0, 0, 0, 9]),
        sender_ip: sender.parse().unwrap(),
        target_mac: MAC,
        target_ip: target.parse().unwrap(),
    };
    let mut bytes = [0; arp::LEN];
    packet.emit(&mut bytes);
    frame(ethernet::ethertype::ARP, &bytes)
}

fn solicit(target: &str) -> Vec<u8> {
    let target: std::net::Ipv6Addr = target.parse().unwrap();
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&target.octets());
    v6("ff02::1:ff00:1", proto::ICMPV6, &message)
}

#[test]
fn the_address_decides() {
    let cases = [
        (v4("192.0.2.1", proto::TCP), Whose::Ours),
        (v4("192.0.2.1", proto::UDP), Whose::Ours),
        (v4("192.0.2.2", proto::TCP), Whose::Kernels),
        (v4("255.255.255.255", proto::UDP), Whose::Kernels),
        (v6("2001:db8::1", proto::TCP, &[0; 20]), Whose::Ours),
        (v6("fe80::ff:fe00:1", proto::TCP, &[0; 20]), Whose::Ours),
        (v6("2001:db8::2", proto::TCP, &[0; 20]), Whose::Kernels),
        (v6("ff02::fb", proto::UDP, &[0; 8]), Whose::Kernels),
        // A router's advertisement.
        (v6("ff02::1", proto::ICMPV6, &[134, 0, 0, 0]), Whose::Both),
        (solicit("2001:db8::1"), Whose::Ours),
        (solicit("2001:db8::2"), Whose::Kernels),
        (ask(arp::Op::Request, "192.0.2.9", "192.0.2.1"), Whose::Ours),
        (ask(arp::Op::Reply, "192.0.2.9", "192.0.2.1"), Whose::Ours),
        (
            ask(arp::Op::Request, "192.0.2.9", "192.0.2.2"),
            Whose::Kernels,
        ),
        (
            ask(arp::Op::Reply, "192.0.2.9", "192.0.2.2"),
            Whose::Kernels,
        ),
        (ask(arp::Op::Request, "192.0.2.9", "192.0.2.9"), Whose::Both),
        (frame(0x88cc, &[0; 30]), Whose::Kernels),
        (frame(ethernet::ethertype::IPV4, &[0x45, 0]), Whose::Kernels),
        (vec![0; 6], Whose::Kernels),
    ];
    for (number, (bytes, whose)) in cases.iter().enumerate() {
        assert_eq!(router(false).whose(bytes), *whose, "case {number}");
    }
}

#[test]
fn a_device_without_link_addresses_is_refused() {
    let (near, _far) = crate::backend::wire::pair(crate::backend::wire::Config::default()).unwrap();
    let backend = ExceptionBackend::new(Box::new(near), "jnx0", ours());
    let error = Box::new(backend).open(1).err().unwrap();
    assert!(error.to_string().contains("link addresses"), "{error}");
}

/// A message from a server to a client, at whatever address.
fn offer(dst: &str, from: u16) -> Vec<u8> {
    let mut bytes = v4(dst, proto::UDP);
    let at = ethernet::LEN + ipv4::LEN;
    bytes[at..at + 4].copy_from_slice(&[from.to_be_bytes(), 68_u16.to_be_bytes()].concat());
    bytes
}

#[test]
fn who_asks_for_an_address_hears_what_is_said_of_it() {
    let cases = [
        (offer("255.255.255.255", 67), Whose::Both),
        (offer("192.0.2.77", 67), Whose::Both),
        (offer("192.0.2.77", 66), Whose::Kernels),
        (ask(arp::Op::Reply, "192.0.2.77", "0.0.0.0"), Whose::Both),
        (ask(arp::Op::Request, "0.0.0.0", "192.0.2.77"), Whose::Both),
        (ask(arp::Op::Request, "192.0.2.9", "192.0.2.1"), Whose::Ours),
        (v4("192.0.2.77", proto::TCP), Whose::Kernels),
    ];
    for (number, (bytes, whose)) in cases.iter().enumerate() {
        assert_eq!(router(true).whose(bytes), *whose, "case {number}");
        // Who does not ask is told only what is for it.
        if *whose == Whose::Both {
            assert_eq!(router(false).whose(bytes), Whose::Kernels, "case {number}");
        }
    }
}

#[test]
fn other_addresses_can_be_named_later() {
    let mut router = router(false);
    let of = |router: &ExceptionRouter, addr: &str| router.whose(&v4(addr, proto::TCP));
    router.named.set(["192.0.2.77".parse().unwrap()]);
    assert_eq!(of(&router, "192.0.2.1"), Whose::Ours, "not looked yet");
    router.refresh();
    assert_eq!(of(&router, "192.0.2.1"), Whose::Kernels);
    assert_eq!(of(&router, "192.0.2.77"), Whose::Ours);
    let near = v6("fe80::ff:fe00:1", proto::TCP, &[0; 20]);
    assert_eq!(
        router.whose(&near),
        Whose::Kernels,
        "no address of that family"
    );
    router.named.set(ours());
    router.refresh();
    assert_eq!(router.whose(&near), Whose::Ours);
}
