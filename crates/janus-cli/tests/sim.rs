//! `janus sim` as a shell sees it: what it prints and how it ends.

use std::path::PathBuf;
use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_janus"));
    command.arg("sim").args(arguments);
    command.output().expect("the command runs")
}

/// A file where Cargo keeps what tests leave behind.
fn file(name: &str, text: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sim");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

const SYN: &str = "
 0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0
+0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)
+0 > S 0:0(0) <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 8>
";

#[test]
fn one_that_passes() {
    let path = file("passes.pkt", SYN);
    let pcap = path.with_extension("pcapng");
    let (script, trace) = (
        path.to_str().expect("a name"),
        pcap.to_str().expect("a name"),
    );
    let out = sim(&["--verbose", "--seed", "7", "--pcap", trace, script]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert!(
        text.contains("0.000000 > S 0:0(0) win 65535 <mss 1460,sackOK"),
        "{text}"
    );
    assert!(text.contains("1 passed, 0 failed"), "{text}");
    let trace = std::fs::read(&pcap).expect("a trace");
    assert_eq!(
        trace[..4],
        [0x0a, 0x0d, 0x0d, 0x0a],
        "a pcapng section header"
    );
}

#[test]
fn one_that_fails() {
    let path = file("fails.pkt", &SYN.replace("wscale 8", "wscale 7"));
    let out = sim(&[path.to_str().expect("a name")]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(
        text.contains("fails.pkt:5: the packet sent is not the packet expected"),
        "{text}"
    );
    assert!(text.contains("0 passed, 1 failed"), "{text}");
}

/// A script, and a setting that makes it pass.
#[test]
fn settings_from_outside() {
    let path = file("settings.pkt", &SYN.replace("wscale 8", "wscale 7"));
    let script = path.to_str().expect("a name");
    let out = sim(&["--so_flags", "tcp_rmem=4096 131072 6291456", script]);
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn one_that_cannot_be_read() {
    let path = file(
        "garbled.pkt",
        "0 socket(..., SOCK_STREAM) = 3\n+0 < S 0:0(0)\n",
    );
    let out = sim(&[path.to_str().expect("a name")]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(
        text.contains("garbled.pkt:2: column 14: an inbound packet needs a window"),
        "{text}"
    );
}

#[test]
fn nothing_to_run() {
    for arguments in [&["no such file.pkt"][..], &["--sead", "1", "x.pkt"], &[]] {
        assert_eq!(sim(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
