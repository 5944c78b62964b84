use super::*;
use proptest::prelude::*;

mod calls;

const SERVER: &str = "
 0     socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0     bind(3, ..., ...) = 0
+0     listen(3, 1) = 0
+0     < S 0:0(0) win 65535 <mss 1000>
+0     > S. 0:0(0) ack 1 <mss 1460>
+.1    < . 1:1(0) ack 1 win 65535
+0     accept(3, ..., ...) = 4
";

fn run(text: &str) -> Result<Passed, Failure> {
    run_script(
        "test.pkt",
        &Script::parse(text).expect("a sound script"),
        &Options::default(),
    )
}

/// The failure of a script that begins with an accepted connection.
fn failure(rest: &str) -> String {
    run(&format!("{SERVER}{rest}"))
        .expect_err("a script that must fail")
        .to_string()
}

#[test]
fn a_script_of_an_hour_takes_no_time() {
    let before = std::time::Instant::now();
    let passed = run(&format!(
        "{SERVER}+3600 write(4, ..., 10) = 10\n+0 > P. 1:11(10) ack 1\n+0 < . 1:1(0) ack 11 win 9"
    ));
    assert_eq!(
        passed,
        Ok(Passed {
            events: 10,
            micros: 3_600_100_000
        })
    );
    assert!(before.elapsed() < std::time::Duration::from_secs(600));
}

#[test]
fn the_same_seed_takes_the_same_course() {
    let script = format!("{SERVER}+0 write(4, ..., 10) = 10\n+0 > P. 1:12(11) ack 1");
    let once = run(&script).expect_err("wrong length").to_string();
    assert_eq!(run(&script).expect_err("wrong length").to_string(), once);
}

#[test]
fn every_difference_is_named() {
    let text = failure("+0 write(4, ..., 10) = 10\n+.3 > . 1:21(20) ack 2 win 1 <nop,nop,sackOK>");
    for part in [
        "test.pkt:10: the packet sent is not the packet expected",
        "expected: +0.300000 > . 1:21(20) ack 2 win 1 <nop,nop,sackOK>",
        "actual:   0.100000 > P. 1:11(10) ack 1 win 65535",
        "flags: expected ., actual P.",
        "payload length: expected 20, actual 10",
        "ack: expected 2, actual 1",
        "window: expected 1, actual 65535",
        "options: expected <nop,nop,sackOK>, actual <>",
        "time: expected 0.400000, actual 0.100000, tolerance 0.004000",
        "Established, 0 unsent, 10 in flight",
        "0.000000 < S 0:0(0) win 65535 <mss 1000>",
        "0.100000 write(4, ..., 10) = 10",
    ] {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
}

#[test]
fn a_packet_that_never_comes() {
    let text = failure("+0 > P. 1:11(10) ack 1");
    assert!(
        text.contains("the packet expected was not sent, until 2.100000"),
        "{text}"
    );
    assert!(text.contains("no timer is running"), "{text}");
}

#[test]
fn a_packet_too_many_at_the_end() {
    let text = failure("+0 write(4, ..., 10) = 10");
    assert!(
        text.contains("the script ended, but the stack had sent something more"),
        "{text}"
    );
    assert!(text.contains("> P. 1:11(10) ack 1"), "{text}");
    let lenient = Options {
        lenient_end: true,
        ..Options::default()
    };
    let script = Script::parse(&format!("{SERVER}+0 write(4, ..., 10) = 10")).expect("sound");
    assert!(run_script("test.pkt", &script, &lenient).is_ok());
}

#[test]
fn a_call_with_another_outcome() {
    assert!(
        failure("+0 close(4) = -1 EBADF (Bad file descriptor)")
            .contains("test.pkt:9: close: expected -1 EBADF, actual 0")
    );
    assert!(
        failure("+0 close(9) = 0")
            .contains("close: expected 0, actual -1 EBADF (Bad file descriptor)")
    );
    assert!(failure("+0 accept(3, ..., ...) = 4").contains("accept would block"));
    assert!(
        failure("+0 getsockopt(4, SOL_TCP, TCP_NODELAY, [1], [4]) = 0")
            .contains("expected 1, actual 0")
    );
}

#[test]
fn a_call_that_waits_too_long_or_too_short() {
    assert!(failure("+0...0.5 read(4, ..., 10) = 10").contains("read has not returned, at 2.6"));
    let early = failure("+0...0.5 read(4, ..., 10) = 10\n+.1 < P. 1:11(10) ack 1 win 9");
    assert!(
        early.contains("test.pkt:9: read returned at 0.200000, expected at 0.600000"),
        "{early}"
    );
}

#[test]
fn calls_that_do_not_exist_or_do_not_fit() {
    assert!(
        failure("+0 frobnicate(4) = 0").contains("`frobnicate` is not a system call known here")
    );
    assert!(
        failure("+0 epoll_wait(4) = 0").contains("`epoll_wait` cannot be called with 1 arguments")
    );
    assert!(failure("+0 splice(4, 0, 5, 0, 1, 0) = 0").contains("without files and pipes"));
    assert!(failure("+0 read(4) = 0").contains("`read` cannot be called with 1 arguments"));
    assert!(
        failure("+0 shutdown(4, SHUT_SIDEWAYS) = 0")
            .contains("`SHUT_SIDEWAYS` is not a name known here")
    );
    assert!(failure("+0 write(4, \"ab\", 3) = 3").contains("is not 3 bytes"));
}

#[test]
fn timestamps_must_be_known() {
    let text = failure("+0 < . 1:1(0) ack 1 win 9 <nop,nop,TS val 1 ecr 77>");
    assert!(
        text.contains("no outbound packet before this one had `TS val 77`"),
        "{text}"
    );
}

#[test]
fn large_writes_are_put_together_unless_segments_are_strict() {
    let script = format!(
        "{SERVER}+0 write(4, ..., 2500) = 2500\n+0 > P. 1:2501(2500) ack 1\n+0 < . 1:1(0) ack 2501 win 9"
    );
    assert!(run(&script).is_ok());
    let strict = run(&format!("--strict_segments\n{script}"))
        .expect_err("three segments")
        .to_string();
    assert!(
        strict.contains("payload length: expected 2500, actual 1000"),
        "{strict}"
    );
}

#[test]
fn several_connections_by_their_ports() {
    let passed = run("
 0     socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0     bind(3, ..., ...) = 0
+0     listen(3, 2) = 0
+0     < 5001 > 8080 S 0:0(0) win 65535 <mss 1000>
+0     > 8080 > 5001 S. 0:0(0) ack 1 <mss 1460>
+0     < 5002 > 8080 S 7000:7000(0) win 65535 <mss 1000>
+0     > 8080 > 5002 S. 0:0(0) ack 7001 <mss 1460>
+0     < 5002 > 8080 . 1:1(0) ack 1 win 65535
+0     < 5001 > 8080 . 1:1(0) ack 1 win 65535
+0     accept(3, ..., ...) = 4
+0     accept(3, ..., ...) = 5
+0     write(4, \"to 5002\", 7) = 7
+0     > 8080 > 5002 P. 1:8(7) ack 1
+0     write(5, \"to 5001\", 7) = 7
+0     > 8080 > 5001 P. 1:8(7) ack 1
");
    assert!(passed.is_ok(), "{}", passed.expect_err("failed"));
}

#[test]
fn the_time_of_an_event_that_has_gone_by() {
    let text = failure(
        ".2 write(4, ..., 10) = 10\n.2~.3 > P. 1:11(10) ack 1\n* > P. 1:11(10) ack 1\n.3 read(4, ..., 1) = 0",
    );
    assert!(
        text.contains("this event is due at 0.300000, and it is 0."),
        "{text}"
    );
}

/// A line of a script: some packet for an open connection, or some call on it.
fn line() -> impl Strategy<Value = String> {
    let near = prop_oneof![0u32..3_000, Just(u32::MAX), any::<u32>()];
    let flags = prop_oneof![
        Just("."),
        Just("P."),
        Just("F."),
        Just("S"),
        Just("S."),
        Just("R"),
        Just("R."),
        Just("FPU.")
    ];
    let packet = (flags, near.clone(), 0u16..1_500, near, any::<u16>()).prop_map(
        |(flags, seq, len, ack, window)| {
            let ack = if flags.ends_with('.') {
                format!("ack {ack}")
            } else {
                String::new()
            };
            format!(
                "+.01 < {flags} {seq}:{}({len}) {ack} win {window}",
                seq.wrapping_add(len.into())
            )
        },
    );
    let call = prop_oneof![
        Just("+0 read(4, ..., 700) = ..."),
        Just("+0 write(4, ..., 3000) = ..."),
        Just("+1 write(4, ..., 10) = ..."),
        Just("+0 shutdown(4, SHUT_WR) = ..."),
        Just("+70 close(4) = ..."),
    ];
    prop_oneof![3 => packet, 1 => call.prop_map(str::to_owned)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever a peer sends and an application does: no panic, and at the end nothing is left behind.
    #[test]
    fn no_course_of_events_leaves_anything_behind(lines in proptest::collection::vec(line(), 1..40)) {
        let text = format!("{SERVER}+0 fcntl(4, F_SETFL, O_NONBLOCK) = 0\n{}", lines.join("\n"));
        let options = Options { lenient_end: true, ..Options::default() };
        let outcome = run_script("test.pkt", &Script::parse(&text).expect("a sound script"), &options);
        if let Err(failure) = outcome {
            prop_assert!(false, "{text}\n{failure}");
        }
    }
}

/// The largest window that is offered while an application reads all of 90 segments in three round trips.
fn largest_window(so_flags: &str) -> u32 {
    let mut text = String::from(
        "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
         +0 < S 0:0(0) win 65535 <mss 1000,nop,wscale 7>\n+0 > S. 0:0(0) ack 1 <mss 1460,nop,wscale 8>\n\
         +.1 < . 1:1(0) ack 1 win 512\n+0 accept(3, ..., ...) = 4\n+0 fcntl(4, F_SETFL, O_NONBLOCK) = 0\n",
    );
    for round in 0..90 {
        let (from, after) = (round * 1_000 + 1, if round % 30 == 0 { ".1" } else { "0" });
        text += &format!("+{after} < . {from}:{}(1000) ack 1 win 512\n", from + 1_000);
        text += "+0 read(4, ..., 10000) = ...\n";
    }
    let script = Script::parse(&text).expect("sound");
    let options = Options {
        so_flags: so_flags.into(),
        as_packetdrill: true,
        ..Options::default()
    };
    let recording = record_script("test.pkt", &script, &options);
    recording.outcome.expect("nothing is expected");
    let sent = recording.packets.iter().filter(|packet| packet.sent);
    let segments = sent.map(|packet| crate::segment::decode(&packet.bytes).expect("sound"));
    let windows = segments
        .skip(1)
        .map(|segment| u32::from(segment.window) << 8);
    windows.max().expect("acknowledgements")
}

#[test]
fn a_receive_buffer_that_is_told_to_stay_as_it_is() {
    assert!(largest_window("") > 65_536);
    assert!(largest_window("tcp_moderate_rcvbuf=0") <= 65_536);
}
