//! `janus members` as a user calls it, beside a daemon in this process that has one member.

mod place;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use janus::net::TcpListener;
use janus::{BackendChoice, Runtime, wire};
use janus_daemon::{Daemon, Settings, Statistics};
use janus_wire::Link;

use place::Place;

fn members(socket: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_janus"));
    command.arg("members").arg("--socket").arg(socket);
    command.args(words).output().expect("janus runs")
}

#[test]
fn what_is_wrong_is_said() {
    let place = Place::new("wrong");
    let socket = place.0.join("io.sock");
    let fails = || {
        let output = members(&socket, &[]);
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = fails();
    assert!(told.contains("io.sock.stats"), "{told}");
    assert!(told.contains("no daemon is there"), "{told}");
    std::fs::write(place.0.join("io.sock.stats"), [7; 100_000]).expect("a file");
    let told = fails();
    assert!(told.contains("io.sock.stats"), "{told}");
    assert!(told.contains("something else than figures"), "{told}");
}

#[test]
fn a_member_is_listed() {
    let place = Place::new("listed");
    let socket = place.0.join("io.sock");
    let config = wire::Config {
        link: Link::Ethernet,
        ..wire::Config::default()
    };
    let (near, _far) = wire::pair(config).expect("a wire");
    let builder = || Runtime::builder().ignore_environment().cores(1);
    let address = "192.0.2.1/24".parse().expect("an address");
    let settings = Settings {
        socket: socket.clone(),
        allow: Vec::new(),
        limits: Vec::new(),
        lends: 0,
        patience: None,
        signals: false,
    };
    let device = builder()
        .address(address)
        .backend(BackendChoice::wire(near));
    let daemon = Daemon::open(device, &settings).expect("a daemon");
    let stop = daemon.stop();
    let carries = std::thread::spawn(move || daemon.run().expect("it is stopped"));
    let choice = BackendChoice::Daemon {
        socket: socket.clone(),
    };
    let member = builder().packet_buffers(4_096).backend(choice).build();
    let member = member.expect("the daemon takes it in");
    let handle = member.handle();
    let serves = std::thread::spawn(move || {
        let main = || async {
            let _listener = TcpListener::bind("192.0.2.1:80").await.expect("a port");
            std::future::pending::<()>().await;
        };
        member.run(main).expect("it is stopped");
    });
    let begin = Instant::now();
    let lists = |it: &Statistics| it.members.iter().any(|it| it.tcp_ports == [80]);
    while !Statistics::open(Statistics::path_of(&socket)).is_ok_and(|it| lists(&it)) {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "it is not listed"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = |words: &[&str]| {
        let output = members(&socket, words);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (table, json) = (said(&[]), said(&["--json"]));
    let lines: Vec<&str> = table.lines().collect();
    let own = std::process::id().to_string();
    assert!(
        lines[0].starts_with(&format!("janus daemon {own} has run for ")),
        "{table}"
    );
    assert!(lines[1].starts_with("NAME"), "{table}");
    let cells: Vec<&str> = lines[2].split_whitespace().collect();
    assert!(
        cells.contains(&own.as_str()) && cells.contains(&"80"),
        "{table}"
    );
    assert!(lines[3].contains("1 joined, 0 left"), "{table}");
    assert!(
        json.starts_with("{\"running\":true,") && json.ends_with("]}]}\n"),
        "{json}"
    );
    for part in [
        "\"joined\":1",
        "\"tcp_ports\":[80]",
        "\"udp_ports\":[]",
        "\"cores\":1",
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
    handle.stop();
    serves.join().expect("an end");
    stop.stop();
    carries.join().expect("an end");
    assert!(
        !members(&socket, &[]).status.success(),
        "the file has gone with its daemon"
    );
}
