use super::*;
use std::net::IpAddr;

fn events(text: &str) -> Vec<Event> {
    Script::parse(text).expect("a sound script").events
}

fn error(text: &str) -> String {
    Script::parse(text)
        .expect_err("a script that must be refused")
        .to_string()
}

fn packet(text: &str) -> Packet {
    match events(&format!("0 {text}")).remove(0).action {
        Action::Inbound(packet) | Action::Outbound(packet) => packet,
        Action::Call(call) => panic!("{call} is no packet"),
        Action::InboundIcmp(message) | Action::OutboundIcmp(message) => {
            panic!("{message} is no packet")
        }
    }
}

fn call(text: &str) -> Call {
    match events(&format!("0{text}")).remove(0).action {
        Action::Call(call) => call,
        other => panic!("{other:?} is no call"),
    }
}

#[test]
fn packets_read_back_as_written() {
    for text in [
        "S 0:0(0) win 32792 <mss 1000,sackOK,nop,nop,nop,wscale 7>",
        "S. 0:0(0) ack 1 win 7 <mss 1460,nop,nop,sackOK,nop,wscale 8>",
        "P. 1:1001(1000) ack 1 win 257",
        "E. 1:1(0) ack 1",
        "SEWA 0:0(0)",
        ". 1:1(0) ack 1 <nop,nop,sack 2001:3001 4001:5001>",
        "FP. 1:11(10) ack 4294967295 urg 7",
        ". 1:1(0) ack 1 <nop,nop,TS val 100 ecr 4294967295>",
        "- 1:1(0)",
        "R 1:1(0)",
        "SEW 0:0(0) <mss 1460,eol,eol,eol,eol>",
        "(ect0) . 1:1(0) ack 1",
        "[ttl 7] . 1:1(0) ack 1",
        "(tos 0x10,flowlabel 0x1a2b3) . 1:1(0) ack 1",
        "(flowlabel 0x5) . 1:1(0) ack 1",
        ". 1:1(0) ack 1 <md5 00112233445566778899aabbccddeeff,nop,nop>",
        "S 0:0(0) <FO 0001,nop,nop,nop,nop>",
        "(tos 0x10) 5000 > 8080 . 4294967290:4(10) ack 1",
    ] {
        assert_eq!(packet(&format!("> {text}")).to_string(), text);
        if text.contains(" win ") {
            assert_eq!(packet(&format!("< {text}")).to_string(), text);
        }
    }
    assert_eq!(packet("> S 0:0(0) <...>").options, None);
    assert_eq!(packet("> S 0:0(0)").options, Some(vec![]));
}

/// AccECN's counter is three flags: its digit stands behind the dot or among the letters.
#[test]
fn flags_as_a_counter() {
    let flags = |text: &str| packet(&format!("> {text} 1:1(0) ack 1")).flags;
    assert_eq!(flags(".5"), Flags::ACK | Flags::AE | Flags::ECE);
    assert_eq!(flags("P.2"), Flags::PSH | Flags::ACK | Flags::CWR);
    assert_eq!(flags("S3"), Flags::SYN | Flags::CWR | Flags::ECE);
    assert!(error("0 > E.5 1:1(0) ack 1").contains("`5` contradicts"));
    assert!(error("0 > .8 1:1(0) ack 1").contains("`8` is no TCP flag"));
}

/// Options that mean nothing here are their bytes, with the kinds that IANA gives them.
#[test]
fn options_as_bytes() {
    let option = |text: &str| {
        let packet = packet(&format!("> S 0:0(0) <{text}>"));
        packet.options.expect("options").remove(0)
    };
    let other = |kind, data: &[u8]| TcpOption::Other {
        kind,
        data: data.to_vec(),
    };
    assert_eq!(option("FO,nop,nop"), other(34, &[]));
    assert_eq!(option("FO 0a0b,nop,nop,nop,nop"), other(34, &[10, 11]));
    assert_eq!(option("FOEXP,nop,nop,nop,nop"), other(254, &[0xf9, 0x89]));
    assert_eq!(option("ECN e0b 1,nop,nop,nop"), other(172, &[0, 0, 1]));
    assert_eq!(
        option("ECN e1b 1 ceb 2 e0b 65536,nop"),
        other(174, &[0, 0, 1, 0, 0, 2, 1, 0, 0])
    );
    assert!(error("0 > S 0:0(0) <FO 0a0>").contains("pairs of hexadecimal digits"));
    assert!(error("0 > S 0:0(0) <ECN>").contains("expected `e0b` or `e1b`"));
    assert!(error("0 > S 0:0(0) <mss 1460,wscale 7>").contains("fill up with `nop`"));
}

#[test]
fn times_in_every_form() {
    let whens: Vec<When> = events(
        "0 > R 1:1(0)\n0.5 > R 1:1(0) +.1 > R 1:1(0) * > R 1:1(0) 1~1.25 > R 1:1(0)\n+0~+2 > R 1:1(0) +0.0000019 > R 1:1(0)",
    )
    .iter()
    .map(|event| event.when)
    .collect();
    assert_eq!(
        whens,
        [
            When::Absolute(0),
            When::Absolute(500_000),
            When::Relative(100_000),
            When::Any,
            When::AbsoluteRange(1_000_000, 1_250_000),
            When::RelativeRange(0, 2_000_000),
            When::Relative(1),
        ]
    );
}

#[test]
fn calls_with_their_outcome() {
    let accept = call(" accept(3, ..., ...) = -1 EAGAIN (Resource temporarily unavailable)");
    assert_eq!(accept.name, "accept");
    assert_eq!(
        accept.arguments,
        [Expr::Int(3), Expr::Ellipsis, Expr::Ellipsis]
    );
    assert_eq!(
        (accept.result, accept.errno.as_deref()),
        (Expr::Int(-1), Some("EAGAIN"))
    );

    let connect = call("...0.200 connect(3, ..., ...) = 0");
    assert_eq!(connect.end, Some(200_000));

    let fcntl = call(" fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0");
    assert_eq!(fcntl.arguments[2].to_string(), "O_RDWR|O_NONBLOCK");

    let linger = call(" setsockopt(3, SOL_SOCKET, SO_LINGER, {onoff=1, linger=0}, 8) = 0");
    let fields = vec![
        ("onoff".to_owned(), Expr::Int(1)),
        ("linger".to_owned(), Expr::Int(0)),
    ];
    assert_eq!(linger.arguments[3], Expr::Struct(fields));

    let bind = call(
        " bind(3, {sa_family = AF_INET, sin_port = htons(8080), sin_addr = inet_addr(\"198.51.100.1\")}, ...) = 0",
    );
    assert_eq!(
        bind.arguments[1],
        Expr::Address(SocketAddr::from(([198, 51, 100, 1], 8080)))
    );

    let write = call(" write(4, \"ab\\x00\" \"c\\n\", 5) = 5");
    assert_eq!(write.arguments[1], Expr::Bytes(b"ab\0c\n".to_vec()));
}

#[test]
fn comments_lines_and_definitions() {
    let script = Script::parse(
        "// one\n--tolerance_usecs=100 // two\n--define=LEN=10\n--remote_ip=198.51.100.9\n/* three\n four */\n0 > . 1:11(LEN) ack 1\n\n+0 > R 1:1(0)",
    )
    .expect("sound");
    assert_eq!(script.settings.tolerance_micros, 100);
    assert_eq!(script.settings.remote_ip, IpAddr::from([198, 51, 100, 9]));
    assert_eq!(
        script
            .events
            .iter()
            .map(|event| event.line)
            .collect::<Vec<_>>(),
        [7, 9]
    );
}

#[test]
fn what_cannot_be_run_is_refused_with_its_line() {
    assert!(
        error("0 > R 1:1(0)\n`sysctl -q x`")
            .starts_with("line 2, column 1: a shell command is not run")
    );
    assert!(
        error("0 > R 1:1(0)\n\n%{ assert tcpi_snd_cwnd == 10 }%")
            .starts_with("line 3, column 1: code in `%{ }%` is not run")
    );
    assert!(error("0 < udp (10)").contains("`udp` packets are not supported"));
    assert!(
        error("--wire_client\n0 > R 1:1(0)")
            .contains("line 1, column 1: `--wire_client` is not an option")
    );
    assert!(error("0 > . 1:11(9) ack 1").contains("1:11(9) does not add up"));
    assert!(error("0 > X 1:1(0)").contains("`X` is no TCP flag"));
    assert!(error("0 < . 1:1(0) ack 1 <...>").contains("for outbound packets"));
    assert!(error("0 < . 1:1(0) ack 1").contains("needs a window"));
    assert!(error("0 > . 1:1(0) ack 1 wine 5").starts_with("line 1, column 20: expected the time"));
    assert!(error("# no comment\n0 > R 1:1(0)").contains("found `#`"));
    assert!(error("1 > R 1:1(0)").contains("first event must be at time 0"));
    assert!(
        error("0 > R 1:1(0)\n2 > R 1:1(0)\n1 > R 1:1(0)")
            .starts_with("line 3, column 1: time runs backwards")
    );
    assert!(error("0 > R 1:1(0) * < R 1:1(0) win 0").contains("for outbound packets only"));
    assert!(error("0 > R 1:1(0) +1000000.1 > R 1:1(0)").contains("beyond a million seconds"));
    assert!(error("").contains("no events"));
    assert!(error("0 read(3, \"abc").contains("never closed"));
    assert!(error("0 close(3) = -1 EBADF").contains("expected the errno's text"));
    assert!(error("0 > R 1:1(0) <mss 70000>").contains("out of range"));
}

proptest::proptest! {
    #[test]
    fn no_text_can_panic_the_parser(text in "[ -~\n]{0,80}") {
        let _ = Script::parse(&text);
    }

    #[test]
    fn no_garbled_script_can_panic_the_parser(cut in 0usize..300, put in "[ -~]{0,6}") {
        let script = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+.1...2 connect(3, {sa_family=AF_INET}, [1]) = -1 EAGAIN (no)\n\
            +0 < (ect0) 1 > 2 SP. 0:10(10) ack 1 win 5 urg 1 <mss 9,sack 1:2 3:4,TS val 1 ecr 2,...>\n1~2 > - 1:1(0) <...>";
        let cut = cut.min(script.len());
        let _ = Script::parse(&format!("{}{put}{}", &script[..cut], &script[(cut + 1).min(script.len())..]));
    }
}

#[test]
fn option_lines_are_those_of_the_original_grammar() {
    let settings = |text: &str| {
        Script::parse(&format!("{text}\n0 > R 1:1(0)"))
            .expect("a sound script")
            .settings
    };
    let flags = settings("--so_flags=\"tcp_sack=0,tcp_rmem=4096 131072 6291456\"").so_flags;
    assert_eq!(flags, "tcp_sack=0,tcp_rmem=4096 131072 6291456");
    let refused = |text: &str| error(&format!("{text}\n0 > R 1:1(0)"));
    assert!(refused("--so_flags=tcp_sack=0,tcp_ecn=1").contains("stands in quotes"));
    assert!(refused("--so_flags=\"tcp_sacks=0\"").contains("`tcp_sacks` is not a setting"));
    assert!(refused("--mtu=").contains("expected a value after `=`"));
    let v6 = settings("--ip_version=ipv6\n--local_ip=fd00::1\n--remote_ip=fd00::2");
    assert_eq!(v6.local_ip.to_string(), "fd00::1");
    assert!(settings("--ip_version=ipv4-mapped-ipv6").mapped);
    let define = "--define=CC=\"reno\"\n0 setsockopt(3, SOL_TCP, TCP_CONGESTION, CC, 4) = 0";
    let Action::Call(call) = events(define).remove(0).action else {
        panic!("no call");
    };
    assert_eq!(call.arguments[3], Expr::Bytes(b"reno".to_vec()));
}

#[test]
fn icmp_messages_read_back_as_written() {
    let message = |header: &str, text: &str| {
        let both = events(&format!("{header}0 < {text}\n1 > . 1:1(0) ack 1"));
        match both[0].action {
            Action::InboundIcmp(message) if both.len() == 2 => message.to_string(),
            ref other => panic!("{other:?} is no ICMP message"),
        }
    };
    for text in [
        "icmp packet_too_big mtu 1280 [1:1441(1440)]",
        "icmp unreachable admin_prohibited [1:11(10)]",
        "icmp time_exceeded exceeded_frag_time [1:11(10)]",
        "icmp parameter_problem unknown_next_header [1:11(10)]",
    ] {
        assert_eq!(message("--ip_version=ipv6\n", text), text);
    }
    for text in [
        "(ect0) icmp echo_request id 7 [raw (64)]",
        "[ttl 1] icmp unreachable port_unreachable [udp (8)]",
        "icmp type_99 code_3 [raw (8)]",
        "icmp redirect code_1 [0:0(0)]",
        "icmp unreachable frag_needed mtu 1200 [1:1461(1460)]",
        "icmp unreachable port_unreachable [0:0(0)]",
        "icmp unreachable packet_filtered [1:11(10)]",
        "icmp time_exceeded [1:11(10)]",
    ] {
        assert_eq!(message("", text), text);
    }
    assert!(error("0 < icmp unreachable [1:2(3)]").contains("does not add up"));
    assert!(error("0 < icmp packet_too_big mtu 9").contains("time_exceeded"));
    assert!(error("0 < icmp unreachable no_route").contains("net_unreachable"));
    assert!(error("0 < icmp time_exceeded mtu 9").contains("carries an MTU"));
}
