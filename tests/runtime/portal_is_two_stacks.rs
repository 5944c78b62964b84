//! The portal is no byte proxy: its inner wire, captured, shows two Janus stacks shaking hands, carrying the client's
//! bytes in TCP segments with right checksums, and saying goodbye.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::Path;

use crate::support::*;
use janus::BackendChoice;
use janus_wire::tcp::Flags;
use janus_wire::{ipv4, tcp};

in_every_layout!(the_inner_wire_shows_both_stacks);

/// One captured segment.
struct Segment {
    from_client: bool,
    flags: Flags,
    seq: u32,
    ack: u32,
    mss: Option<u16>,
    payload: Vec<u8>,
}

fn the_inner_wire_shows_both_stacks(case: Case) {
    let request = b"a request that crosses both stacks";
    let file = std::env::temp_dir().join(
        format!("janus-portal-{}-{case:?}.pcapng", std::process::id())
            .replace([' ', '{', '}', ':'], ""),
    );
    let builder = case.builder().backend(BackendChoice::Portal).trace(&file);
    let (server, address, _) = serve(builder, 0, echo);
    let mut client = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let client_port = client.local_addr().unwrap().port();
    client.write_all(request).unwrap();
    client.read_exact(&mut vec![0; request.len()]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    server.stop().unwrap();

    let segments = read_capture(&file, client_port, address.port());
    let _ = std::fs::remove_file(&file);
    check_handshake(&segments);
    for from_client in [true, false] {
        let sent = stream_of(&segments, from_client);
        assert_eq!(
            sent, request,
            "the bytes crossed the wire (from the client: {from_client})"
        );
        let ended = segments
            .iter()
            .any(|s| s.from_client == from_client && s.flags.contains(Flags::FIN));
        assert!(ended, "a FIN (from the client: {from_client})");
    }
}

fn check_handshake(segments: &[Segment]) {
    let syn = segments.first().expect("the wire carried something");
    assert!(
        syn.from_client && syn.flags == Flags::SYN,
        "it begins with a SYN: {:?}",
        syn.flags
    );
    let answer = segments.iter().find(|s| !s.from_client).expect("an answer");
    assert_eq!(answer.flags, Flags::SYN | Flags::ACK);
    assert_eq!(answer.ack, syn.seq.wrapping_add(1));
    // The kernel's loopback would have offered 65495.
    assert_eq!((syn.mss, answer.mss), (Some(1866), Some(1866)));
    // The SYN may have been sent again.
    let third = segments
        .iter()
        .find(|s| s.from_client && s.flags != Flags::SYN)
        .expect("a third segment");
    assert_eq!(third.ack, answer.seq.wrapping_add(1));
}

/// The bytes one side sent, put together by sequence number.
fn stream_of(segments: &[Segment], from_client: bool) -> Vec<u8> {
    let mine = || {
        segments
            .iter()
            .filter(move |s| s.from_client == from_client)
    };
    let first = mine()
        .find(|s| s.flags.contains(Flags::SYN))
        .expect("a SYN")
        .seq
        .wrapping_add(1);
    let mut bytes = Vec::new();
    for segment in mine().filter(|s| !s.payload.is_empty()) {
        let at = segment.seq.wrapping_sub(first) as usize;
        let end = at + segment.payload.len();
        bytes.resize(end.max(bytes.len()), 0);
        bytes[at..end].copy_from_slice(&segment.payload);
    }
    bytes
}

/// The segments of one connection in a pcapng file, in the order of their times (each queue wrote its own).
fn read_capture(file: &Path, client: u16, server: u16) -> Vec<Segment> {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut packets = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        // Enhanced packet block: type 6, length, interface, time (two words), captured and original length, data.
        if word(at) == 6 {
            let time = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
            let len = word(at + 20) as usize;
            packets.push((time, &bytes[at + 28..at + 28 + len]));
        }
        at += word(at + 4) as usize;
    }
    packets.sort_by_key(|(time, _)| *time);
    packets
        .into_iter()
        .filter_map(|(_, packet)| segment(packet, client, server))
        .collect()
}

fn segment(packet: &[u8], client: u16, server: u16) -> Option<Segment> {
    let ip = ipv4::parse(packet).expect("the wire carries IPv4");
    let (header, options, payload) = tcp::parse(ip.payload()).expect("and in it TCP");
    assert_eq!((ip.src, ip.dst), (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST));
    assert_eq!(
        janus_wire::checksum::tcp_v4(ip.src, ip.dst, ip.payload()),
        0,
        "a right checksum"
    );
    let from_client = match (header.src_port, header.dst_port) {
        ports if ports == (client, server) => true,
        ports if ports == (server, client) => false,
        _ => return None,
    };
    Some(Segment {
        from_client,
        flags: header.flags,
        seq: header.seq.0,
        ack: header.ack.0,
        mss: tcp::options::parse(options).mss,
        payload: payload.to_vec(),
    })
}
