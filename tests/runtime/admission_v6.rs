//! The polling cores' rules over IPv6, in every layout: a server on a switch, and hosts beside it with addresses of their own. Lists
//! decide by the longest prefix in either family; SYNs are counted by network, whichever host of it sends them; neighbour
//! discovery goes on whatever the lists say.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;
use janus::admission::{IoCounters, Prefix, Rules, SynLimit};
use janus::net::TcpStream;
use janus::{BackendChoice, Handle};
use janus_io::wire::switch::{self, Port, switch};

in_every_layout!(
    the_longest_prefix_decides,
    a_network_opens_no_faster_than_it_may,
);

const SERVER: [&str; 2] = ["2001:db8::1/48", "192.0.2.1/24"];
const OVER_V6: &str = "[2001:db8::1]:80";
const OVER_V4: &str = "192.0.2.1:80";

/// A switch for a server and so many hosts; the server, under rules.
fn server(case: Case, hosts: usize, rules: Rules) -> (Running, Handle, Vec<Port>) {
    let config = switch::Config {
        queues: case.queues(),
        depth: 1024,
        ..switch::Config::default()
    };
    let mut ports = switch(1 + hosts, config).unwrap();
    let device = BackendChoice::Custom(Box::new(ports.remove(0)));
    let builder = SERVER.iter().fold(case.builder(), |builder, own| {
        builder.address(own.parse().unwrap())
    });
    let runtime = builder.backend(device).admission(rules).build().unwrap();
    let handle = runtime.handle();
    let (running, ..) = serve_at(runtime, "[::]:80".parse().unwrap(), echo);
    (running, handle, ports)
}

/// A host that opens `count` connections at once and says something over each; how many were answered stands in the second value.
fn host(
    port: Port,
    addresses: [&str; 2],
    count: usize,
    to: &'static str,
) -> (Running, Arc<AtomicUsize>) {
    let builder = addresses
        .iter()
        .fold(ONE_COMBINED.builder(), |builder, own| {
            builder.address(own.parse().unwrap())
        });
    let runtime = builder
        .backend(BackendChoice::Custom(Box::new(port)))
        .build()
        .unwrap();
    let answered = Arc::<AtomicUsize>::default();
    let counted = answered.clone();
    let running = Running::start(runtime, move || {
        let counted = counted.clone();
        async move {
            for _ in 0..count {
                let counted = counted.clone();
                janus::spawn(async move {
                    let server: SocketAddr = to.parse().unwrap();
                    let stream = TcpStream::connect(server).await.unwrap();
                    stream.write_all(b"heard?").await.unwrap();
                    let mut back = [0; 6];
                    stream.read_exact(&mut back).await.unwrap();
                    assert_eq!(&back, b"heard?");
                    counted.fetch_add(1, Ordering::Relaxed);
                });
            }
            std::future::pending::<()>().await;
        }
    });
    (running, answered)
}

fn sum(handle: &Handle, of: fn(&IoCounters) -> u64) -> u64 {
    handle
        .io_counters()
        .iter()
        .map(|counters| of(counters))
        .sum()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(
            begin.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn networks(text: &str) -> Vec<Prefix> {
    text.split(' ')
        .map(|network| network.parse().unwrap())
        .collect()
}

fn the_longest_prefix_decides(case: Case) {
    let rules = Rules {
        // Neighbours speak from link-local addresses too.
        deny: networks("2001:db8::/64 fe80::/10 192.0.2.0/24"),
        allow: networks("2001:db8::1:0/112 192.0.2.64/26"),
        ..Rules::default()
    };
    let (running, handle, mut ports) = server(case, 4, rules);
    let denied = |counters: &IoCounters| counters.dropped_denied.get();
    // Each host has addresses of its own: the server knows the last one's link address.
    let out = [
        ["2001:db8::9/48", "192.0.2.9/24"],
        ["2001:db8::a/48", "192.0.2.10/24"],
    ];
    let inside = [
        ["2001:db8::1:9/48", "192.0.2.70/24"],
        ["2001:db8::1:a/48", "192.0.2.71/24"],
    ];
    for (to, (out, inside)) in [OVER_V6, OVER_V4]
        .into_iter()
        .zip(out.into_iter().zip(inside))
    {
        let before = sum(&handle, denied);
        let (out, answered) = host(ports.remove(0), out, 1, to);
        wait_for("a SYN is denied", || sum(&handle, denied) > before);
        out.stop().unwrap();
        assert_eq!(answered.load(Ordering::Relaxed), 0);
        let (inside, answered) = host(ports.remove(0), inside, 5, to);
        wait_for("all are let in", || answered.load(Ordering::Relaxed) == 5);
        inside.stop().unwrap();
    }
    let others =
        |counters: &IoCounters| counters.dropped_martian.get() + counters.dropped_syn_rate.get();
    assert_eq!(sum(&handle, others), 0);
    running.stop().unwrap();
}

/// Two hosts of one site use up what it may, and no more than that passes; a host of another site is not held back. When the limit
/// goes, all come in by themselves.
fn a_network_opens_no_faster_than_it_may(case: Case) {
    const EACH: usize = 12;
    const BURST: u32 = 6;
    // Of one /56, in two of its networks; and of another.
    const SITE: [[&str; 2]; 2] = [
        ["2001:db8:0:1::2/48", "192.0.2.2/24"],
        ["2001:db8:0:2::2/48", "192.0.2.3/24"],
    ];
    const OTHER: [&str; 2] = ["2001:db8:0:100::2/48", "192.0.2.4/24"];
    let limit = SynLimit {
        burst: BURST,
        ..SynLimit::new(0)
    };
    let rules = Rules {
        syn_limit: Some(limit),
        ..Rules::default()
    };
    let (running, handle, mut ports) = server(case, 3, rules);
    let may = case.queues() * (BURST as usize).div_ceil(case.queues());
    let site = SITE.map(|own| host(ports.remove(0), own, EACH, OVER_V6));
    let came = || {
        site.iter()
            .map(|(_, answered)| answered.load(Ordering::Relaxed))
            .sum::<usize>()
    };
    let dropped = |counters: &IoCounters| counters.dropped_syn_rate.get();
    wait_for("the site is held back", || {
        sum(&handle, dropped) >= (SITE.len() * EACH - may) as u64
    });
    let (other, answered) = host(ports.remove(0), OTHER, 1, OVER_V6);
    wait_for("the other site comes in", || {
        answered.load(Ordering::Relaxed) == 1
    });
    assert!(came() <= may, "{} of {may}", came());
    handle.admission().set(Rules::default());
    wait_for("all come in", || came() == SITE.len() * EACH);
    for (host, _) in site {
        host.stop().unwrap();
    }
    other.stop().unwrap();
    running.stop().unwrap();
}
