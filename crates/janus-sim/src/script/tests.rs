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
        Action::Icmp(error) => panic!("{error} is no packet"),
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
        "S. 0:0(0) ack 1 <mss 1460,nop,nop,sackOK,nop,wscale 8>",
        "P. 1:1001(1000) ack 1 win 257",
        ". 1:1(0) ack 1 <nop,nop,sack 2001:3001 4001:5001>",
        "FP. 1:11(10) ack 4294967295 urg 7",
        ". 1:1(0) ack 1 <nop,nop,TS val 100 ecr 4294967295>",
        "- 1:1(0)",
        "R 1:1(0)",
        "SEW 0:0(0) <mss 1460,eol>",
        "(ect0) . 1:1(0) ack 1",
        "[ttl 7] . 1:1(0) ack 1",
        "(tos 0x10) 5000 > 8080 . 4294967290:4(10) ack 1",
    ] {
        assert_eq!(packet(&format!("< {text}")).to_string(), text);
        assert_eq!(packet(&format!("> {text}")).to_string(), text);
    }
    assert_eq!(packet("> S 0:0(0) <...>").options, None);
    assert_eq!(packet("> S 0:0(0)").options, Some(vec![]));
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
        Expr::Address(Ipv4Addr::new(198, 51, 100, 1), 8080)
    );

    let write = call(" write(4, \"ab\\x00\" \"c\\n\", 5) = 5");
    assert_eq!(write.arguments[1], Expr::Bytes(b"ab\0c\n".to_vec()));
}

#[test]
fn comments_lines_and_definitions() {
    let script = Script::parse(
        "// one\n--tolerance_usecs=100 # two\n--define=LEN=10\n--remote_ip=198.51.100.9\n/* three\n four */\n0 > . 1:11(LEN) ack 1\n\n+0 > R 1:1(0)",
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
        error("0 > R 1:1(0)\n`sysctl -q x`").starts_with("line 2: a shell command in backticks")
    );
    assert!(
        error("0 > R 1:1(0)\n\n%{ assert tcpi_snd_cwnd == 10 }%")
            .starts_with("line 3: a code block")
    );
    assert!(error("0 < udp (10)").contains("`udp` packets are not supported"));
    assert!(
        error("--wire_client\n0 > R 1:1(0)").contains("line 1: `--wire_client` is not an option")
    );
    assert!(error("0 > . 1:11(9) ack 1").contains("1:11(9) does not add up"));
    assert!(error("0 > X 1:1(0)").contains("`X` is no TCP flag"));
    assert!(error("0 < . 1:1(0) ack 1 <...>").contains("for outbound packets"));
    assert!(error("0 > . 1:1(0)").contains("without an `ack`"));
    assert!(error("0 > R 1:1(0) ack 1").contains("without the flag `.`"));
    assert!(error("1 > R 1:1(0)").contains("first event must be at time 0"));
    assert!(
        error("0 > R 1:1(0)\n2 > R 1:1(0)\n1 > R 1:1(0)")
            .starts_with("line 3: time runs backwards")
    );
    assert!(error("0 > R 1:1(0) * < R 1:1(0)").contains("for outbound packets only"));
    assert!(error("0 > R 1:1(0) +1000000.1 > R 1:1(0)").contains("beyond a million seconds"));
    assert!(error("").contains("no events"));
    assert!(error("0 read(3, \"abc").contains("never closed"));
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
fn icmp_errors_read_back_as_written() {
    for text in [
        "icmp unreachable frag_needed mtu 1200 [1:1461(1460)]",
        "icmp unreachable port_unreachable [0:0(0)]",
        "icmp unreachable packet_filtered [1:11(10)]",
        "icmp time_exceeded [1:11(10)]",
    ] {
        let both = events(&format!("0 < {text}\n1 > . 1:1(0) ack 1"));
        let Action::Icmp(error) = both[0].action else {
            panic!("{:?} is no ICMP error", both[0].action);
        };
        assert_eq!((error.to_string().as_str(), both.len()), (text, 2));
    }
    assert!(error("0 < icmp unreachable [1:2(3)]").contains("does not add up"));
    assert!(error("0 < icmp redirect [1:2(1)]").contains("time_exceeded"));
}
