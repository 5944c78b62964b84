//! Clients: they connect to a server on the kernel's sockets.

use std::fs;

use crate::peers::{self, BIG, HTTP};
use crate::world::{PEER, Sockets, Transcript, World, compare, compare_by};

fn url(path: &str) -> String {
    format!("http://{PEER}:{HTTP}/{path}")
}

/// curl fetches, many at once, sends, and is refused.
fn curl(world: &World) -> Transcript {
    peers::http();
    let mut said = world
        .run(&["curl", "-sS", "-i", &url("small")])
        .well()
        .to_string();
    let out = world.path("got");
    said += &world
        .run(&["curl", "-sS", "-o", &out, &url("big")])
        .well()
        .to_string();
    said += &peers::told("big", &fs::read(&out).expect("what was fetched"));
    let many = format!("{}?[1-40]", url("small"));
    let many = world
        .run(&["curl", "-sS", "-Z", "--parallel-max", "8", &many])
        .well();
    // How they share the lines of progress is the clock's affair.
    said += &many.out;
    let file = world.file("sent", peers::big());
    said += &world
        .run(&["curl", "-sS", "-T", &file, &url("put")])
        .well()
        .to_string();
    let none = format!("http://{PEER}:7/");
    let refused = world.run(&["curl", "-s", &none]);
    said + &refused.to_string()
}

#[test]
fn curl_fetches_and_sends() {
    compare(&["curl --version"], curl);
}

/// A process that may have few descriptors: Janus's own take none of those that the program counts on.
fn with_few_descriptors(world: &World) -> Transcript {
    peers::http();
    let line = format!("ulimit -n 64; exec curl -sS {}?[1-3]", url("small"));
    world.run(&["bash", "-c", &line]).well().to_string()
}

#[test]
fn curl_with_few_descriptors() {
    compare(&["curl --version", "bash --version"], with_few_descriptors);
}

#[test]
fn curl_by_the_command() {
    compare_by(Sockets::Run, &["curl --version"], curl);
}

/// ab and siege count, wrk does not know how much it will do.
fn loads(world: &World) -> Transcript {
    peers::http();
    let ab = world
        .run(&["ab", "-q", "-n", "400", "-c", "8", &url("small")])
        .well();
    let counts = ab.out.lines().filter(|line| {
        ["Complete requests", "Failed requests", "HTML transferred"]
            .iter()
            .any(|opening| line.starts_with(opening))
    });
    let mut said: String = counts.map(|line| format!("{line}\n")).collect();
    let wrk = world
        .run(&["wrk", "-t2", "-c8", "-d1", &url("small")])
        .well();
    assert!(wrk.out.contains("requests in"), "{wrk}");
    said += &format!("wrk saw errors: {}\n", wrk.out.contains("Socket errors"));
    said
}

#[test]
fn ab_and_wrk() {
    compare(&["ab -V", "wrk --version"], loads);
}

fn siege(world: &World) -> Transcript {
    peers::http();
    let rc = world.file(
        "siege.rc",
        "connection = close\njson_output = true\nshow-logfile = false\nlogging = false\n",
    );
    let siege = world
        .run(&[
            "siege",
            "-R",
            &rc,
            "-q",
            "-b",
            "-c",
            "4",
            "-r",
            "20",
            &url("small"),
        ])
        .well();
    let counts = siege
        .out
        .lines()
        .filter(|line| line.contains("transactions\""));
    counts.map(|line| format!("{line}\n")).collect()
}

#[test]
fn siege_counts_what_the_kernel_counts() {
    compare(&["siege --version"], siege);
}

fn node(world: &World) -> Transcript {
    peers::http();
    let script = world.script("client.js");
    world.run(&["node", &script, &url("")]).well().to_string()
}

#[test]
fn node_as_a_client() {
    compare(&["node --version"], node);
}

fn iperf3(world: &World) -> Transcript {
    let mut said = String::new();
    for way in [&["-P", "2"][..], &["-R"]] {
        let server = world.start_peer(&["iperf3", "-s", "-1", "-B", PEER, "-p", "5201"]);
        let mut words = vec!["iperf3", "-c", PEER, "-p", "5201", "-n", "8M"];
        words.extend(way);
        peers::listens(5201);
        let client = world.run(&words).well();
        assert!(client.out.contains("receiver"), "{client}");
        said += &format!("{way:?} {}\n", server.end().code);
    }
    said
}

#[test]
fn iperf3_as_a_client_both_ways() {
    compare(&["iperf3 --version"], iperf3);
}

/// socat and nc pass what they read on, and what comes back.
fn pipes(world: &World) -> Transcript {
    let server = world.start_peer(&[
        "socat",
        &format!("TCP-LISTEN:9000,bind={PEER},reuseaddr,fork"),
        "EXEC:cat",
    ]);
    peers::listens(9000);
    let mut said = String::new();
    let to = format!("TCP:{PEER}:9000");
    for words in [
        &["socat", "-t20", "-", &to][..],
        &["nc", "-N", PEER, "9000"],
    ] {
        let mut client = world.start(words);
        client.feed(peers::big());
        let ended = client.end().well();
        assert_eq!(ended.out_len, BIG, "{words:?}");
        said += &format!("{} {} {:x}\n", words[0], ended.code, ended.out_sum);
    }
    drop(server);
    said
}

#[test]
fn socat_and_nc_as_clients() {
    compare(&["socat -V", "nc -h"], pipes);
}
