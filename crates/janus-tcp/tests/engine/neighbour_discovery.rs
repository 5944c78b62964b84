//! Neighbour discovery (RFC 4861) on a link where we are one of many: questions, answers, what is believed, and what
//! is not because it did not come from the link.

use core::time::Duration;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::support::Host;
use janus_mem::Frame;
use janus_tcp::{Config, ConnId, Interface, IpCidr};
use janus_wire::icmpv6::{self, Advertised, Message};
use janus_wire::{Link, MacAddr, ethernet, ipv6, proto};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const THEIR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const THEIRS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const SOLICITED: Advertised = Advertised {
    router: false,
    solicited: true,
    r#override: true,
};

fn interface() -> Interface {
    Interface {
        link: Link::Ethernet,
        mac: MAC,
        any_local: false,
        addresses: vec![IpCidr::new(OURS, 64)],
        gateway_v6: Some(GATEWAY),
        ..Interface::ip(1_500)
    }
}

fn host() -> Host {
    Host::new(Config::default(), interface(), 8_192)
}

/// A packet of ICMP in a frame.
struct Sent {
    from: MacAddr,
    to: MacAddr,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    hop_limit: u8,
    message: Vec<u8>,
}

impl Sent {
    fn frame(&self) -> Vec<u8> {
        let mut bytes = vec![0; ethernet::LEN + ipv6::LEN];
        let header = ethernet::Header {
            dst: self.to,
            src: self.from,
            ethertype: ethernet::ethertype::IPV6,
        };
        header.emit(&mut bytes);
        let repr = ipv6::Repr {
            src: self.src,
            dst: self.dst,
            proto: proto::ICMPV6,
            payload_len: self.message.len() as u16,
            hop_limit: self.hop_limit,
            traffic_class: 0,
            flow_label: 0,
        };
        ipv6::emit(&mut bytes[ethernet::LEN..], &repr);
        bytes.extend_from_slice(&self.message);
        bytes
    }
}

/// What they ask when they want to know where `target` is.
fn question(target: Ipv6Addr) -> Sent {
    let dst = icmpv6::solicited_node(target);
    let mut message = vec![0; icmpv6::NEIGHBOUR_LEN];
    icmpv6::emit_solicitation(&mut message, THEIRS, dst, target, THEIR_MAC);
    Sent {
        from: THEIR_MAC,
        to: icmpv6::multicast_mac(dst),
        src: THEIRS,
        dst,
        hop_limit: 255,
        message,
    }
}

/// Their answer that `target` is at `mac`.
fn answer(target: Ipv6Addr, mac: MacAddr, flags: Advertised) -> Sent {
    let mut message = vec![0; icmpv6::NEIGHBOUR_LEN];
    icmpv6::emit_advertisement(&mut message, target, OURS, target, mac, flags);
    Sent {
        from: mac,
        to: MAC,
        src: target,
        dst: OURS,
        hop_limit: 255,
        message,
    }
}

/// Takes the frames that the stack sends.
fn frames(host: &mut Host) -> Vec<Vec<u8>> {
    let mut out: Vec<Frame> = Vec::new();
    host.stack.transmit(host.now, &mut out, 1_000);
    let bytes = out.iter().map(|frame| frame.data().to_vec()).collect();
    host.take_back(out);
    bytes
}

/// The header of a frame, of the packet in it, and the packet's payload.
fn open(frame: &[u8]) -> (ethernet::Header, ipv6::Ipv6<'_>) {
    let (header, packet) = ethernet::Header::parse(frame).expect("a frame");
    (header, ipv6::parse(packet).expect("a packet"))
}

/// For whom the stack asks in these frames.
fn asked_for(frames: &[Vec<u8>]) -> Vec<Ipv6Addr> {
    let targets = frames.iter().filter_map(|frame| {
        let (header, ip) = open(frame);
        if ip.proto != proto::ICMPV6 {
            return None;
        }
        assert!(icmpv6::checksum_ok(ip.src, ip.dst, ip.payload()));
        match icmpv6::parse(ip.payload()) {
            Ok(Message::NeighbourSolicitation { target, source }) => {
                assert_eq!((ip.hop_limit, source), (255, Some(MAC)));
                assert_eq!(ip.dst, icmpv6::solicited_node(target));
                assert_eq!(header.dst, icmpv6::multicast_mac(ip.dst));
                Some(target)
            }
            _ => None,
        }
    });
    targets.collect()
}

fn connect(host: &mut Host, to: Ipv6Addr, port: u16) -> ConnId {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let to = SocketAddr::from((to, 80));
    host.stack.connect(host.now, any, to).expect("a connection")
}

/// Where the frames with TCP go.
fn segments_go_to(frames: &[Vec<u8>]) -> Vec<MacAddr> {
    let headers = frames.iter().map(|frame| open(frame));
    let tcp = headers.filter(|(_, ip)| ip.proto == proto::TCP);
    tcp.map(|(header, _)| header.dst).collect()
}

#[test]
fn a_question_for_us_is_answered_and_the_asker_remembered() {
    let mut host = host();
    host.feed_frame(&question(OURS).frame());
    let sent = frames(&mut host);
    assert_eq!(sent.len(), 1);
    let (header, ip) = open(&sent[0]);
    assert_eq!((header.dst, header.src), (THEIR_MAC, MAC));
    assert_eq!((ip.src, ip.dst, ip.hop_limit), (OURS, THEIRS, 255));
    assert!(icmpv6::checksum_ok(ip.src, ip.dst, ip.payload()));
    let expected = Message::NeighbourAdvertisement {
        target: OURS,
        mac: Some(MAC),
        flags: SOLICITED,
    };
    assert_eq!(icmpv6::parse(ip.payload()), Ok(expected));
    // Nobody has to be asked for the way back.
    connect(&mut host, THEIRS, 5_000);
    let sent = frames(&mut host);
    assert_eq!(segments_go_to(&sent), [THEIR_MAC]);
    assert!(asked_for(&sent).is_empty());
}

#[test]
fn an_ethernet_interface_has_a_link_local_address() {
    let mut host = host();
    let own = host.stack.interface().addresses.iter().map(|own| own.addr);
    assert!(own.collect::<Vec<_>>().contains(&IpAddr::V6(LINK_LOCAL)));
    host.feed_frame(&question(LINK_LOCAL).frame());
    assert_eq!(frames(&mut host).len(), 1);
    // It is our address towards the link, and only there.
    let source = |to| host.stack.interface().source_for(to);
    assert_eq!(source(GATEWAY), Some(LINK_LOCAL.into()));
    let far = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 1);
    assert_eq!(source(far), Some(OURS.into()));
}

/// RFC 4862 section 5.4: who wants an address asks for it first, from none, and hears that it is taken.
#[test]
fn an_address_of_ours_is_defended_before_the_whole_link() {
    let mut host = host();
    let mut detection = question(OURS);
    detection.src = Ipv6Addr::UNSPECIFIED;
    detection.message.truncate(24);
    checksum(&mut detection);
    host.feed_frame(&detection.frame());
    let sent = frames(&mut host);
    assert_eq!(sent.len(), 1);
    let (header, ip) = open(&sent[0]);
    assert_eq!(header.dst, icmpv6::multicast_mac(ALL_NODES));
    assert_eq!((ip.src, ip.dst, ip.hop_limit), (OURS, ALL_NODES, 255));
    let flags = Advertised {
        solicited: false,
        ..SOLICITED
    };
    let expected = Message::NeighbourAdvertisement {
        target: OURS,
        mac: Some(MAC),
        flags,
    };
    assert_eq!(icmpv6::parse(ip.payload()), Ok(expected));
}

/// Puts the right checksum into a message that was changed.
fn checksum(sent: &mut Sent) {
    use janus_wire::checksum;
    sent.message[2..4].fill(0);
    let len = sent.message.len() as u32;
    let pseudo = checksum::pseudo_v6(sent.src, sent.dst, proto::ICMPV6, len);
    let sum = checksum::finish(checksum::sum(&sent.message, pseudo));
    sent.message[2..4].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn what_cannot_come_from_the_link_is_not_believed() {
    type Damage = fn(&mut Sent);
    let damages: [(&str, Damage); 9] = [
        ("crossed a router", |q| q.hop_limit = 254),
        ("a code", |q| q.message[1] = 1),
        ("a wrong checksum", |q| q.message[2] ^= 0xff),
        ("an option of length zero", |q| q.message[25] = 0),
        ("half a target", |q| q.message.truncate(20)),
        ("from a group", |q| q.src = ALL_NODES),
        ("from us", |q| q.src = OURS),
        ("from an IPv4 address in disguise", |q| {
            q.src = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0xc000, 0x201);
        }),
        ("from nowhere, with a way back", |q| {
            q.src = Ipv6Addr::UNSPECIFIED;
        }),
    ];
    for (what, damage) in damages {
        let mut host = host();
        let mut bad = question(OURS);
        damage(&mut bad);
        if what != "a wrong checksum" {
            checksum(&mut bad);
        }
        host.feed_frame(&bad.frame());
        assert_eq!(frames(&mut host).len(), 0, "{what}");
        connect(&mut host, THEIRS, 5_000);
        assert_eq!(asked_for(&frames(&mut host)), [THEIRS], "{what}");
    }
}

#[test]
fn a_question_for_somebody_else_is_not_ours() {
    let mut host = host();
    // The same last three bytes, so the same group and frame.
    let other = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 7, 2);
    host.feed_frame(&question(other).frame());
    assert_eq!(frames(&mut host).len(), 0);
    connect(&mut host, THEIRS, 5_000);
    assert_eq!(asked_for(&frames(&mut host)), [THEIRS], "nor remembered");
}

#[test]
fn frames_wait_for_the_answer() {
    let mut host = host();
    connect(&mut host, THEIRS, 5_000);
    let sent = frames(&mut host);
    assert_eq!(asked_for(&sent), [THEIRS]);
    assert_eq!(segments_go_to(&sent), []);
    host.feed_frame(&answer(THEIRS, THEIR_MAC, SOLICITED).frame());
    assert_eq!(segments_go_to(&frames(&mut host)), [THEIR_MAC]);
}

#[test]
fn what_is_far_goes_to_the_gateway() {
    let mut host = host();
    let far = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 1);
    connect(&mut host, far, 5_000);
    assert_eq!(asked_for(&frames(&mut host)), [GATEWAY]);
    host.feed_frame(&answer(GATEWAY, THEIR_MAC, SOLICITED).frame());
    assert_eq!(segments_go_to(&frames(&mut host)), [THEIR_MAC]);
}

#[test]
fn nobody_is_filed_who_was_not_asked_for_and_only_override_changes_what_is_known() {
    let mut host = host();
    let thief = MacAddr([2, 0, 0, 0, 0, 66]);
    host.feed_frame(&answer(THEIRS, thief, SOLICITED).frame());
    connect(&mut host, THEIRS, 5_000);
    assert_eq!(asked_for(&frames(&mut host)), [THEIRS]);
    host.feed_frame(&answer(THEIRS, THEIR_MAC, SOLICITED).frame());
    frames(&mut host);
    let meek = Advertised {
        r#override: false,
        ..SOLICITED
    };
    host.feed_frame(&answer(THEIRS, thief, meek).frame());
    connect(&mut host, THEIRS, 5_001);
    assert_eq!(segments_go_to(&frames(&mut host)), [THEIR_MAC]);
    let moved = MacAddr([2, 0, 0, 0, 0, 10]);
    host.feed_frame(&answer(THEIRS, moved, SOLICITED).frame());
    connect(&mut host, THEIRS, 5_002);
    assert_eq!(segments_go_to(&frames(&mut host)), [moved]);
    // And nobody else has our address.
    host.feed_frame(&answer(OURS, thief, SOLICITED).frame());
    assert_eq!(frames(&mut host).len(), 0);
}

/// Section 7.3: what was not confirmed for long is used on, asked for again, and given up after three questions.
#[test]
fn a_neighbour_that_falls_silent_is_asked_for_and_then_forgotten() {
    let mut host = host();
    connect(&mut host, THEIRS, 5_000);
    frames(&mut host);
    host.feed_frame(&answer(THEIRS, THEIR_MAC, SOLICITED).frame());
    frames(&mut host);
    host.wait(Duration::from_secs(59));
    frames(&mut host);
    connect(&mut host, THEIRS, 6_000);
    let sent = frames(&mut host);
    assert!(asked_for(&sent).is_empty(), "believed for a minute");
    assert_eq!(segments_go_to(&sent), [THEIR_MAC]);
    let mut port = 6_000;
    let mut try_again = |host: &mut Host| {
        host.wait(Duration::from_secs(2));
        port += 1;
        connect(host, THEIRS, port);
        frames(host)
    };
    let mut questions = 0;
    let mut tries = 0;
    loop {
        let sent = try_again(&mut host);
        questions += asked_for(&sent).len();
        tries += 1;
        assert!(tries < 10, "used for ever");
        if segments_go_to(&sent).is_empty() {
            break;
        }
    }
    // The last two: when it is forgotten, and for the next that would go there.
    assert!((4..=5).contains(&questions), "{questions} questions");
    host.feed_frame(&answer(THEIRS, THEIR_MAC, SOLICITED).frame());
    assert!(segments_go_to(&frames(&mut host)).contains(&THEIR_MAC));
    let sent = try_again(&mut host);
    assert!(asked_for(&sent).is_empty(), "found again");
}

/// On a link of 2^64 addresses anybody can make up neighbours (RFC 6583); the gateway stays known.
#[test]
fn neighbours_that_do_not_exist_do_not_push_out_the_gateway() {
    let mut host = host();
    let far = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 1);
    let first = connect(&mut host, far, 5_000);
    frames(&mut host);
    host.feed_frame(&answer(GATEWAY, THEIR_MAC, SOLICITED).frame());
    frames(&mut host);
    host.stack.abort(host.now, first);
    // Not even when nothing was heard of it for longer than of any of them.
    host.wait(Duration::from_secs(61));
    for i in 0..20_000 {
        let nobody = Ipv6Addr::from_bits(OURS.to_bits() + 0x1_0000 + i);
        let mut syn = crate::support::Craft::syn((crate::support::PEER, 4_000));
        syn.dst.1 = crate::support::PORT;
        host.feed(&syn_from(&syn, nobody));
        if i % 64 == 0 {
            frames(&mut host);
        }
    }
    frames(&mut host);
    connect(&mut host, far, 5_001);
    assert_eq!(segments_go_to(&frames(&mut host)), [THEIR_MAC]);
}

/// The packet of a SYN from `src` to us.
fn syn_from(syn: &crate::support::Craft, src: Ipv6Addr) -> Vec<u8> {
    use janus_wire::tcp;
    let mut segment = vec![0; 60];
    let header = tcp::Header {
        src_port: syn.src.1,
        dst_port: syn.dst.1,
        seq: syn.seq,
        ack: syn.ack,
        flags: syn.flags,
        window: syn.window,
        urgent: 0,
        header_len: 0,
    };
    let len = tcp::emit(&mut segment, &header, &syn.options);
    segment.truncate(len);
    tcp::fill_checksum_v6(&mut segment, src, OURS);
    let mut packet = vec![0; ipv6::LEN];
    let repr = ipv6::Repr {
        src,
        dst: OURS,
        proto: proto::TCP,
        payload_len: len as u16,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(&mut packet, &repr);
    packet.extend_from_slice(&segment);
    packet
}

/// A ping to one of our addresses or to a group.
fn ping(dst: Ipv6Addr) -> Sent {
    let mut message = vec![0; icmpv6::LEN + 5];
    icmpv6::emit_echo_request(&mut message, THEIRS, dst, 7, 9, b"hello");
    Sent {
        from: THEIR_MAC,
        to: if dst == OURS {
            MAC
        } else {
            icmpv6::multicast_mac(dst)
        },
        src: THEIRS,
        dst,
        hop_limit: 64,
        message,
    }
}

/// With several shards the ping may be here before the question is from which its sender would be known.
#[test]
fn the_answer_to_a_ping_waits_until_its_sender_is_found() {
    let mut host = host();
    host.feed_frame(&ping(OURS).frame());
    assert_eq!(asked_for(&frames(&mut host)), [THEIRS]);
    host.feed_frame(&answer(THEIRS, THEIR_MAC, SOLICITED).frame());
    let sent = frames(&mut host);
    assert_eq!(sent.len(), 1);
    let (header, ip) = open(&sent[0]);
    assert_eq!(header.dst, THEIR_MAC);
    assert!(matches!(
        icmpv6::parse(ip.payload()),
        Ok(Message::EchoReply { .. })
    ));
}

#[test]
fn a_ping_is_answered_but_not_one_to_everybody() {
    let mut host = host();
    host.feed_frame(&question(OURS).frame());
    frames(&mut host);
    for (dst, answers) in [(OURS, 1), (ALL_NODES, 0)] {
        host.feed_frame(&ping(dst).frame());
        let sent = frames(&mut host);
        assert_eq!(sent.len(), answers, "{dst}");
        for frame in &sent {
            let (header, ip) = open(frame);
            assert_eq!((header.dst, ip.src, ip.dst), (THEIR_MAC, OURS, THEIRS));
            assert!(icmpv6::checksum_ok(ip.src, ip.dst, ip.payload()));
            let expected = Message::EchoReply {
                ident: 7,
                sequence: 9,
                data: b"hello",
            };
            assert_eq!(icmpv6::parse(ip.payload()), Ok(expected));
        }
    }
}

/// RFC 1122 section 3.3.6, for IPv6: a frame for a group does not carry a segment to one of our addresses.
#[test]
fn a_segment_in_a_frame_for_a_group_is_dropped() {
    let mut host = host();
    let syn = crate::support::Craft::syn((crate::support::PEER, 4_000));
    let mut frame = vec![0; ethernet::LEN];
    let header = ethernet::Header {
        dst: icmpv6::multicast_mac(ALL_NODES),
        src: THEIR_MAC,
        ethertype: ethernet::ethertype::IPV6,
    };
    header.emit(&mut frame);
    frame.extend(syn_from(&syn, THEIRS));
    host.feed_frame(&frame);
    assert_eq!(host.stack.half_open(), 0);
    assert_eq!(host.stack.counters().dropped_address, 1);
}

/// RFC 6980: what came in fragments is no neighbour message, whatever it says when it is put together.
#[test]
fn a_question_in_fragments_is_not_heard() {
    let mut host = host();
    let whole = question(OURS);
    for (offset, more) in [(0, true), (24, false)] {
        let part = if more {
            &whole.message[..24]
        } else {
            &whole.message[24..]
        };
        let repr = ipv6::Repr {
            src: whole.src,
            dst: OURS,
            proto: proto::ICMPV6,
            payload_len: (ipv6::FRAGMENT_LEN + part.len()) as u16,
            hop_limit: 255,
            traffic_class: 0,
            flow_label: 0,
        };
        let mut packet = vec![0; ipv6::LEN + ipv6::FRAGMENT_LEN];
        let fragment = ipv6::Fragment {
            offset,
            more,
            id: 7,
        };
        ipv6::emit_fragment(&mut packet, &repr, fragment);
        packet.extend_from_slice(part);
        host.feed(&packet);
    }
    assert_eq!(frames(&mut host).len(), 0);
    assert_eq!(host.stack.counters().dropped_malformed, 1);
}

/// From `::` comes nothing but the question whether an address is taken.
#[test]
fn nothing_else_comes_from_nowhere() {
    let mut host = host();
    let mut message = vec![0; icmpv6::LEN];
    icmpv6::emit_echo_request(&mut message, Ipv6Addr::UNSPECIFIED, OURS, 7, 9, b"");
    let ping = Sent {
        from: THEIR_MAC,
        to: MAC,
        src: Ipv6Addr::UNSPECIFIED,
        dst: OURS,
        hop_limit: 64,
        message,
    };
    host.feed_frame(&ping.frame());
    assert_eq!(frames(&mut host).len(), 0);
    assert_eq!(host.stack.counters().dropped_address, 1);
}
