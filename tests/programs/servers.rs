//! Servers that carry bytes: TLS by openssl, iperf3, socat and nc.

use std::fs;

use crate::peers::{self, BIG};
use crate::world::{PEER, PROGRAM, Transcript, World, compare};

const TLS: u16 = 4433;

fn certificate(world: &World) -> [String; 2] {
    let (key, cert) = (world.path("key.pem"), world.path("cert.pem"));
    let line = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=janus.example";
    let mut words: Vec<&str> = line.split(' ').collect();
    words.extend(["-keyout", &key, "-out", &cert]);
    world.peer(&words).well();
    [key, cert]
}

/// `openssl s_server` and `s_client`, each on Janus once.
fn tls(world: &World) -> Transcript {
    let [key, cert] = certificate(world);
    world.file("big", peers::big());
    let at = format!("{PROGRAM}:{TLS}");
    let words = [
        "openssl", "s_server", "-accept", &at, "-key", &key, "-cert", &cert, "-WWW", "-quiet",
    ];
    let server = world.start(&words);
    peers::answers(TLS);
    let (url, out) = (format!("https://{at}/big"), world.path("got"));
    let mut said = world
        .peer(&["curl", "-sSk", "-o", &out, &url])
        .well()
        .to_string();
    said += &peers::told("big", &fs::read(&out).expect("what was fetched"));
    said += &format!("s_server {}\n", server.terminated().code);

    let at = format!("{PEER}:{TLS}");
    let words = [
        "openssl", "s_server", "-accept", &at, "-key", &key, "-cert", &cert, "-rev", "-quiet",
    ];
    let server = world.start_peer(&words);
    peers::listens(TLS);
    let mut client = world.start(&["openssl", "s_client", "-connect", &at, "-ign_eof"]);
    client.write(b"hello\n");
    client.says("olleh");
    // This word ends the connection by the server of this mode.
    client.write(b"CLOSE\n");
    let ended = client.end();
    let line = |text: &str| ended.out.lines().any(|line| line.starts_with(text));
    said += &format!(
        "s_client {} {} {}\n",
        ended.code,
        line("olleh"),
        line("New, TLSv1.3")
    );
    drop(server);
    said
}

#[test]
fn openssl_serves_and_asks() {
    compare(&["openssl version", "curl --version"], tls);
}

fn iperf3(world: &World) -> Transcript {
    let mut said = String::new();
    for way in [&["-P", "2"][..], &["-R"]] {
        let server = world.start(&["iperf3", "-s", "-1", "-B", PROGRAM, "-p", "5201"]);
        let mut words = vec!["iperf3", "-c", PROGRAM, "-p", "5201", "-n", "8M"];
        words.extend(way);
        let client = world.peer_in_time(&words).well();
        assert!(client.out.contains("receiver"), "{client}");
        said += &format!("{way:?} {}\n", server.end().code);
    }
    said
}

#[test]
fn iperf3_as_a_server_both_ways() {
    compare(&["iperf3 --version"], iperf3);
}

/// What is sent comes back from socat, which serves one connection, by a program (a pipe it writes to itself is one that it waits for, when
/// what it read does not fill whole pages); nc writes what comes, and sends what it reads.
fn pipes(world: &World) -> Transcript {
    let listens = format!("TCP-LISTEN:9001,bind={PROGRAM},reuseaddr");
    let server = world.start(&["socat", "-t20", &listens, "EXEC:cat"]);
    let sent = world.file("sent", peers::big());
    let ask = format!("exec 3<>/dev/tcp/{PROGRAM}/9001 && (cat {sent} >&3 & head -c {BIG} <&3)");
    let back = world.peer_in_time(&["bash", "-c", &ask]);
    let mut said = format!("socat {} {:x}\n", back.out_len, back.out_sum);
    said += &server.end().to_string();

    let mut server = world.start(&["nc", "-N", "-l", PROGRAM, "9002"]);
    server.feed(b"from the server\n".repeat(1000));
    let ask = format!("exec 3<>/dev/tcp/{PROGRAM}/9002 && (cat {sent} >&3 & head -c 16000 <&3)");
    let back = world.peer_in_time(&["bash", "-c", &ask]);
    said += &format!("nc {} {:x}\n", back.out_len, back.out_sum);
    let served = server.end();
    said + &format!("{} {} {:x}\n", served.code, served.out_len, served.out_sum)
}

/// A child for each connection, and a program in each child.
fn forks(world: &World) -> Transcript {
    let (sent, mut said) = (world.file("sent", peers::big()), String::new());
    for (port, serves) in [(9001, "EXEC:cat"), (9002, "SYSTEM:cat")] {
        let listens = format!("TCP-LISTEN:{port},bind={PROGRAM},reuseaddr,fork");
        let server = world.start(&["socat", "-t20", &listens, serves]);
        for _ in 0..3 {
            let ask = format!(
                "exec 3<>/dev/tcp/{PROGRAM}/{port} && (cat {sent} >&3 & head -c {BIG} <&3)"
            );
            let back = world.peer_in_time(&["bash", "-c", &ask]);
            said += &format!("{serves} {} {:x}\n", back.out_len, back.out_sum);
        }
        said += &server.terminated().code;
    }
    said
}

#[test]
fn socat_with_a_child_for_each_connection() {
    compare(&["socat -V", "bash --version"], forks);
}

#[test]
fn socat_and_nc_as_servers() {
    compare(&["socat -V", "nc -h", "bash --version"], pipes);
}
