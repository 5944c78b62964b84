//! The trace's filter before other judges: tcpdump and tshark read a trace that we wrote, and pick the same frames of it by
//! the same words. What we see and tcpdump does not (behind VLAN tags and IPv6 extension headers) is tshark's to judge.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use janus_io::filter::Filter;
use janus_io::trace::{Flow, Writer};
use janus_seeds::Random;
use janus_wire::Link;

/// Random expressions that tcpdump is asked about, on each kind of link.
const EXPRESSIONS: usize = 60;
const FRAMES: usize = 300;

fn byte(random: &mut Random) -> u8 {
    random.below(256) as u8
}

const V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(192, 0, 2, 200),
    Ipv4Addr::new(198, 51, 100, 7),
    Ipv4Addr::new(10, 1, 2, 3),
];
const V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7),
];
const PORTS: [u16; 5] = [80, 443, 8080, 40_000, 65_535];

/// What IP carries: TCP, UDP, SCTP, ICMP or something else, with whole headers.
fn transport(random: &mut Random, v6: bool) -> (u8, Vec<u8>) {
    let icmp = if v6 { 58 } else { 1 };
    let protocol = random.one(&[6, 6, 6, 17, 132, icmp, 47]);
    let mut bytes = Vec::new();
    bytes.extend(random.one(&PORTS).to_be_bytes());
    bytes.extend(random.one(&PORTS).to_be_bytes());
    bytes.resize(20, 0);
    bytes[12] = 0x50;
    bytes[13] = byte(random);
    if protocol == icmp {
        // An echo: one that quotes a packet would have two kinds of addresses.
        bytes[0] = if v6 { 128 } else { 8 };
        bytes[1] = 0;
    }
    if protocol == 17 {
        bytes[4..6].copy_from_slice(&20_u16.to_be_bytes());
    }
    (protocol, bytes)
}

fn ip(random: &mut Random) -> Vec<u8> {
    let (protocol, payload) = transport(random, false);
    let options = random.one(&[0, 0, 0, 4, 40]);
    let offset: u16 = random.one(&[0, 0, 0, 0, 0x2000, 0x4000, 0x2005, 7]);
    let mut bytes = vec![0x45 + (options / 4) as u8, byte(random)];
    bytes.extend(((20 + options + payload.len()) as u16).to_be_bytes());
    bytes.extend([byte(random), byte(random)]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend(random.one(&V4).octets());
    bytes.extend(random.one(&V4).octets());
    // No-operations.
    bytes.resize(20 + options, 1);
    bytes.extend(payload);
    bytes
}

fn ip6(random: &mut Random, extensions: &[u8]) -> Vec<u8> {
    let (mut next, payload) = transport(random, true);
    let mut behind = payload;
    for kind in extensions.iter().rev() {
        // Eight bytes each; padding in what has options.
        let header = match kind {
            44 => [next, 0, 0, 0, 0, 0, 0, 9],
            43 => [next, 0, 0, 0, 0, 0, 0, 0],
            _ => [next, 0, 1, 4, 0, 0, 0, 0],
        };
        behind = [&header[..], &behind].concat();
        next = *kind;
    }
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((behind.len() as u16).to_be_bytes());
    bytes.extend([next, 64]);
    bytes.extend(random.one(&V6).octets());
    bytes.extend(random.one(&V6).octets());
    bytes.extend(behind);
    bytes
}

fn arp(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1 + (random.below(2) as u8)];
    bytes.extend([2, 0, 0, 0, 0, 1]);
    bytes.extend(random.one(&V4).octets());
    bytes.extend([0; 6]);
    bytes.extend(random.one(&V4).octets());
    bytes
}

/// A frame of a kind that both sides understand alike.
fn frame(random: &mut Random, link: Link) -> Vec<u8> {
    let (kind, packet) = match random.below(8) {
        0..4 => (0x0800_u16, ip(random)),
        4..7 => (0x86dd, ip6(random, &[])),
        _ if link == Link::Ethernet => (0x0806, arp(random)),
        _ => (0x86dd, ip6(random, &[])),
    };
    on_link(link, &[], kind, &packet)
}

fn on_link(link: Link, tags: &[u8], kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if link == Link::Ethernet {
        bytes.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        bytes.extend(tags);
        bytes.extend(kind.to_be_bytes());
    }
    bytes.extend(packet);
    bytes
}

/// Numbers the frames by four bytes at their ends, so that each can be told from all others.
fn numbered(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for (number, frame) in frames.iter_mut().enumerate() {
        frame.extend((number as u32).to_be_bytes());
    }
    frames
}

fn trace_of(frames: &[Vec<u8>], link: Link) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let interface = writer.interface(link, "judged").unwrap();
    for (number, frame) in frames.iter().enumerate() {
        let direction = if number % 2 == 0 {
            Flow::Sent
        } else {
            Flow::Received
        };
        writer
            .frame(interface, number as u64, direction, frame)
            .unwrap();
    }
    writer.into_inner()
}

/// What a program says when it is given the trace.
fn ask(program: &str, arguments: &[&str], trace: &[u8]) -> Result<Vec<u8>, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let mut input = child.stdin.take().expect("a pipe");
    let trace = trace.to_vec();
    let writing = std::thread::spawn(move || input.write_all(&trace));
    let output = child.wait_with_output().expect("its end");
    let _ = writing.join().expect("the writer does not panic");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    Ok(output.stdout)
}

/// The numbers of the frames in a pcap file.
fn numbers_in(pcap: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut rest = pcap.get(24..).unwrap_or_default();
    while rest.len() >= 16 {
        let len = u32::from_ne_bytes(rest[8..12].try_into().unwrap()) as usize;
        let frame = &rest[16..16 + len];
        numbers.push(u32::from_be_bytes(frame[len - 4..].try_into().unwrap()));
        rest = &rest[16 + len..];
    }
    numbers
}

fn by_us(expression: &str, frames: &[Vec<u8>], link: Link) -> Vec<u32> {
    let filter: Filter = expression.parse().unwrap_or_else(|error| panic!("{error}"));
    let wanted =
        |(number, frame): (usize, &Vec<u8>)| filter.matches(frame, link).then_some(number as u32);
    frames.iter().enumerate().filter_map(wanted).collect()
}

/// A primitive in our words and in tcpdump's.
fn primitive(random: &mut Random) -> (String, String) {
    let way = random.one(&["", "src ", "dst ", "src or dst ", "src and dst "]);
    let host: IpAddr = match random.below(2) {
        0 => random.one(&V4).into(),
        _ => random.one(&V6).into(),
    };
    let own = if host.is_ipv4() { "ip " } else { "ip6 " };
    let same = |text: String| (text.clone(), text);
    match random.below(13) {
        0 => same(
            random
                .one(&["ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6"])
                .to_owned(),
        ),
        1 | 2 => same(format!("{way}host {host}")),
        3 => same(format!("{own}{way}host {host}")),
        4 => same(format!(
            "{way}net {}",
            random.one(&["192.0.2.0/24", "192.0.2.128/25", "0.0.0.0/0", "10.0.0.0/7"])
        )),
        5 => same(format!(
            "{way}net {}",
            random.one(&["2001:db8::/32", "2001:db8:1::/48", "::/0"])
        )),
        6 | 7 => same(format!("{way}port {}", random.one(&PORTS))),
        8 => same(format!(
            "{}{way}port {}",
            random.one(&["tcp ", "udp "]),
            random.one(&PORTS)
        )),
        9 => same(format!(
            "{way}portrange {}",
            random.one(&["80-443", "1-65535", "8080-8080", "500-90"])
        )),
        10 => same(format!("less {}", random.one(&[40, 58, 60, 78]))),
        11 => same(format!("greater {}", random.one(&[40, 58, 60, 78]))),
        _ => {
            let at = random.below(6);
            let (word, bit) = (["fin", "syn", "rst", "psh", "ack", "urg"][at], 1 << at);
            let judge = format!(
                "((ip and tcp[13] & {bit} != 0) or (ip6 and ip6[6] = 6 and ip6[53] & {bit} != 0))"
            );
            (word.to_owned(), judge)
        }
    }
}

fn expression(random: &mut Random) -> (String, String) {
    let (mut ours, mut judges) = term(random, 0);
    for _ in 0..random.below(4) {
        let join = random.one(&[" and ", " or ", " && ", " || "]);
        let (more, more_judged) = term(random, 0);
        ours = ours + join + &more;
        judges = judges + join + &more_judged;
    }
    (ours, judges)
}

fn term(random: &mut Random, depth: usize) -> (String, String) {
    match random.below(6) {
        0 if depth < 3 => {
            let (ours, judges) = term(random, depth + 1);
            (format!("not {ours}"), format!("not {judges}"))
        }
        1 if depth < 3 => {
            let (ours, judges) = expression(random);
            (format!("({ours})"), format!("({judges})"))
        }
        _ => primitive(random),
    }
}

/// Whether a program can be asked at all; says so where not, and fails where it must be there.
fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    let required = std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1");
    assert!(there || !required, "{program} is not installed");
    if !there {
        // Not by `println!`: the test runner keeps what a passing test prints to itself.
        let _ = writeln!(std::io::stderr(), "skipped: {program} is not installed");
    }
    there
}

#[test]
fn tcpdump_picks_the_same_frames() {
    if !is_there("tcpdump") {
        return;
    }
    let seed = std::env::var("JANUS_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let mut random = Random::new(seed.unwrap_or(7));
    for link in [Link::Ethernet, Link::Ip] {
        let frames = numbered((0..FRAMES).map(|_| frame(&mut random, link)).collect());
        let trace = trace_of(&frames, link);
        // Judgements that pick some and leave some: without them this would show nothing.
        let mut telling = 0;
        for _ in 0..EXPRESSIONS {
            let (ours, judges) = expression(&mut random);
            if link == Link::Ip && judges.contains("arp") {
                continue;
            }
            // Optimised, tcpdump refuses what can never hold; as it is, it answers.
            let arguments = ["-O", "-Z", "root", "-r", "-", "-w", "-", &judges];
            let picked = ask("tcpdump", &arguments, &trace).unwrap();
            let expected = numbers_in(&picked);
            assert_eq!(
                by_us(&ours, &frames, link),
                expected,
                "seed {seed:?}: {ours}"
            );
            telling += usize::from(!expected.is_empty() && expected.len() < FRAMES);
        }
        assert!(telling > EXPRESSIONS / 3, "{telling} of {EXPRESSIONS}");
    }
}

#[test]
fn tshark_picks_the_same_frames_behind_tags_and_extensions() {
    if !is_there("tshark") {
        return;
    }
    let mut random = Random::new(11);
    let mut frames = Vec::new();
    for number in 0..FRAMES {
        let tags: &[u8] = match number % 3 {
            0 => &[],
            1 => &[0x81, 0, 0, 7],
            _ => &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7],
        };
        let extensions: &[u8] =
            random.one(&[&[][..], &[0], &[60], &[0, 43, 60], &[44], &[0, 44, 60]]);
        let frame = match random.below(3) {
            0 => on_link(Link::Ethernet, tags, 0x0800, &ip(&mut random)),
            _ => on_link(Link::Ethernet, tags, 0x86dd, &ip6(&mut random, extensions)),
        };
        frames.push(frame);
    }
    let frames = numbered(frames);
    let trace = trace_of(&frames, Link::Ethernet);
    let whole = "!(ip.frag_offset > 0)";
    for (ours, judges) in [
        (
            "tcp",
            "ip.proto == 6 || ipv6.nxt == 6 || ipv6.fraghdr.nxt == 6 || ipv6.dstopts.nxt == 6 || ipv6.hopopts.nxt == 6 || ipv6.routing.nxt == 6",
        ),
        ("tcp port 80", &format!("tcp.port == 80 && {whole}")),
        (
            "udp dst port 443 or tcp src port 8080",
            &format!("(udp.dstport == 443 || tcp.srcport == 8080) && {whole}"),
        ),
        ("host 192.0.2.1", "ip.addr == 192.0.2.1"),
        (
            "src net 2001:db8:1::/48 and syn",
            "ipv6.src == 2001:db8:1::/48 && tcp.flags.syn == 1",
        ),
        (
            "ip6 and ack and not fin",
            "ipv6 && tcp.flags.ack == 1 && tcp.flags.fin == 0",
        ),
    ] {
        // Without its guesses at what a port carries, and fragments as they are.
        let arguments = [
            "-o",
            "ip.defragment:FALSE",
            "-o",
            "ipv6.defragment:FALSE",
            "-r",
            "-",
            "-Y",
            judges,
            "-T",
            "fields",
            "-e",
            "frame.number",
        ];
        let picked = ask("tshark", &arguments, &trace).unwrap();
        let picked = String::from_utf8(picked).unwrap();
        // Its frames are counted from 1.
        let expected: Vec<u32> = picked
            .lines()
            .map(|line| line.trim().parse::<u32>().unwrap() - 1)
            .collect();
        assert!(!expected.is_empty(), "{judges}");
        assert_eq!(by_us(ours, &frames, Link::Ethernet), expected, "{ours}");
    }
}
