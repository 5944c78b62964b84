//! The kernel's own TCP as the client: a TAP device whose other end stands in a namespace made for the test, and
//! 10,000 requests over 64 connections from there. Needs root; without it the test says so in one line and passes,
//! unless `JANUS_PRIVILEGED=1` says that the machine must be able to.

mod support;

use std::io::Write;
use std::net::Ipv6Addr;
use std::path::Path;

use janus::BackendChoice;
use janus::net::TcpStream;
use support::privileged::run;
use support::*;

const REQUESTS: usize = 10_000;
const REQUESTS_V6: usize = 2_000;
const CONNECTIONS: usize = 64;
const SERVER: &str = "192.0.2.1";
const CLIENT: &str = "192.0.2.2";
const SERVER_V6: &str = "2001:db8::1";
const CLIENT_V6: &str = "2001:db8::2";

#[test]
fn the_kernel_fetches_ten_thousand_requests() {
    for (index, case) in [ONE_COMBINED, THREE_COMBINED, ONE_SPLIT, THREE_SPLIT]
        .into_iter()
        .enumerate()
    {
        let names = Names {
            space: format!("janus-{}-{index}", std::process::id()),
            device: format!("jt{index}-{}", std::process::id() % 100_000),
        };
        if let Err(why) = fetch(case, &names) {
            let required = std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1");
            assert!(!required, "{case:?}: {why}");
            // Not by `println!`: the test runner keeps what a passing test prints to itself.
            let _ = writeln!(std::io::stderr(), "skipped: {why}");
            return;
        }
    }
}

struct Names {
    space: String,
    device: String,
}

/// A network namespace that goes with the value.
struct Namespace<'a>(&'a str);

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        let _ = run(&format!("ip netns del {}", self.0));
    }
}

/// An error is a want of privilege or tools; what fails after that panics.
fn fetch(case: Case, names: &Names) -> Result<(), String> {
    run("curl --version")?;
    run(&format!("ip netns add {}", names.space))?;
    let space = Namespace(&names.space);
    if !Path::new("/dev/net/tun").exists() {
        return Err("this machine has no /dev/net/tun".into());
    }
    let runtime = case
        .builder()
        .backend(BackendChoice::Tap {
            name: names.device.clone(),
        })
        .address(format!("{SERVER}/24").parse().unwrap())
        .address(format!("{SERVER_V6}/64").parse().unwrap())
        .build()
        .unwrap();
    // The device goes to the namespace with its kernel end; the runtime keeps the other by its descriptor.
    let inside = |command: &str| {
        let line = format!("ip netns exec {} {command}", space.0);
        run(&line).unwrap_or_else(|error| panic!("{case:?}: {error}"))
    };
    run(&format!("ip link set {} netns {}", names.device, space.0)).unwrap();
    inside(&format!("ip address add {CLIENT}/24 dev {}", names.device));
    // Without it the kernel would look for the same address on the link for a second first.
    inside(&format!(
        "ip -6 address add {CLIENT_V6}/64 dev {} nodad",
        names.device
    ));
    inside(&format!("ip link set {} up", names.device));
    let both = (Ipv6Addr::UNSPECIFIED, 80).into();
    let (server, _, _) = serve_at(runtime, both, hello);
    if run("ping -V").is_ok() {
        inside(&format!("ping -c 1 -W 60 {SERVER}"));
        inside(&format!("ping -6 -c 1 -W 60 -s 3000 {SERVER_V6}"));
    }
    for (host, requests) in [(SERVER, REQUESTS), (&format!("[{SERVER_V6}]"), REQUESTS_V6)] {
        let codes = inside(&format!(
            "curl -sS --max-time 300 --parallel --parallel-max {CONNECTIONS} -o /dev/null \
             -w %{{http_code}}:%{{size_download}}\\n http://{host}/[1-{requests}]"
        ));
        let right = codes.lines().filter(|line| *line == "200:6").count();
        assert_eq!(right, requests, "{case:?} {host}");
    }
    server.stop().unwrap();
    Ok(())
}

/// Answers each request; a request here is what ends with an empty line.
async fn hello(stream: TcpStream) {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
    let mut tail = [0; 4];
    while let Ok(Some(piece)) = stream.recv().await {
        for &byte in piece.iter() {
            tail = [tail[1], tail[2], tail[3], byte];
            if &tail == b"\r\n\r\n" && stream.write_all(ANSWER).await.is_err() {
                return;
            }
        }
    }
}
