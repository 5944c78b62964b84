//! The polling cores' rules and the trace's filter in a running server, in every layout: what is not let in never reaches a
//! shard and is counted by its cause; both can be changed under way.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::support::*;
use janus::BackendChoice;
use janus::admission::{IoCounters, Rules, SynLimit};
use janus::net::{TcpListener, TcpStream};

in_every_layout!(
    rules_are_kept_and_can_change,
    a_network_opens_no_faster_than_it_may,
    the_trace_has_what_its_filter_matches,
);

const SERVER: &str = "192.0.2.1/24";
/// What [`run_clients_on`] gives its clients.
const CLIENT: &str = "192.0.2.2";
const PORT: u16 = 80;

fn denied(counters: &IoCounters) -> u64 {
    counters.dropped_denied.get()
}

fn syns(counters: &IoCounters) -> u64 {
    counters.dropped_syn_rate.get()
}

fn sum(handle: &janus::Handle, of: fn(&IoCounters) -> u64) -> u64 {
    handle
        .io_counters()
        .iter()
        .map(|counters| of(counters))
        .sum()
}

/// A server over the wire with these rules, and what its clients are built on.
fn server(case: Case, rules: Rules) -> (Running, janus::Handle, BackendChoice) {
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .address(SERVER.parse().unwrap())
        .admission(rules);
    let runtime = builder.backend(BackendChoice::wire(near)).build().unwrap();
    let handle = runtime.handle();
    let (ready, listens) = channel();
    let running = Running::start(runtime, move || serve_port(ready.clone()));
    listens.recv_timeout(PATIENCE).expect("the server listens");
    (running, handle, BackendChoice::wire(far))
}

async fn serve_port(ready: Sender<()>) -> janus::Result {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
    let _ = ready.send(());
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(echo(stream));
    }
}

async fn says_the_same(text: &[u8]) {
    let stream = TcpStream::connect(SocketAddr::from(([192, 0, 2, 1], PORT)))
        .await
        .unwrap();
    stream.write_all(text).await.unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(back, text);
}

fn rules_are_kept_and_can_change(case: Case) {
    let deny = || Rules {
        deny: vec![CLIENT.parse().unwrap()],
        ..Rules::default()
    };
    let (running, handle, device) = server(case, deny());
    assert_eq!(handle.io_counters().len(), case.queues());
    let opens = handle.clone();
    // The client's SYN is dropped; when it comes again a second later, the list is another.
    let opener = std::thread::spawn(move || {
        let begin = std::time::Instant::now();
        while sum(&opens, denied) == 0 {
            assert!(begin.elapsed() < PATIENCE, "no SYN was denied");
            std::thread::sleep(Duration::from_millis(1));
        }
        opens.admission().set(Rules::default());
    });
    run_clients_on(device, 1, |_| says_the_same(b"in the end"));
    opener.join().unwrap();
    assert_eq!(handle.admission().rules(), Rules::default());
    running.stop().unwrap();
}

/// Of fourteen SYNs at once some pass; the others come in when they are sent again, and nothing is lost in the end. Again, if
/// the machine was so slow that they did not come at once.
fn a_network_opens_no_faster_than_it_may(case: Case) {
    const CLIENTS: usize = 14;
    let limit = SynLimit {
        burst: 8,
        ..SynLimit::new(20)
    };
    let rules = Rules {
        syn_limit: Some(limit),
        ..Rules::default()
    };
    let (running, handle, device) = server(case, rules);
    let server: &'static janus::Handle = Box::leak(Box::new(handle.clone()));
    run_clients_on(device, 1, move |_| async move {
        let begin = std::time::Instant::now();
        while sum(server, syns) == 0 {
            assert!(begin.elapsed() < PATIENCE, "fourteen are more than eight");
            let each = |_| janus::spawn(says_the_same(b"patience"));
            let clients: Vec<_> = (0..CLIENTS).map(each).collect();
            for client in clients {
                client.await.expect("it comes in at last");
            }
        }
    });
    assert_eq!(sum(&handle, denied), 0);
    running.stop().unwrap();
}

/// The trace has one connection of many, and from when the filter is another, what that one matches.
fn the_trace_has_what_its_filter_matches(case: Case) {
    let file = std::env::temp_dir().join(
        format!("janus-filter-{}-{case:?}.pcapng", std::process::id())
            .replace([' ', '{', '}', ':'], ""),
    );
    let filter = "tcp dst port 80 and syn and not ack";
    let builder = case.builder().backend(BackendChoice::Portal);
    let builder = builder.trace(&file).trace_filter(filter.parse().unwrap());
    let runtime = builder.build().unwrap();
    let handle = runtime.handle();
    let (server, address, _) = serve_on(runtime, 0, echo);
    let talk = || {
        let mut client = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"hello").unwrap();
        std::io::Read::read_exact(&mut client, &mut [0; 5]).unwrap();
        client.local_addr().unwrap().port()
    };
    // Not to port 80: nothing.
    talk();
    assert_eq!(packets(&file).len(), 0);
    let port = address.port();
    let syns = format!("dst port {port} and syn");
    assert!(handle.set_trace_filter(Some(syns.parse().unwrap())));
    let clients: BTreeSet<u16> = (0..5).map(|_| talk()).collect();
    // A SYN may be there twice: where the machine was slow it was sent again.
    let traced: BTreeSet<u16> = packets(&file)
        .iter()
        .map(|packet| ports(packet)[0])
        .collect();
    assert_eq!(traced, clients);
    assert!(handle.set_trace_filter(None));
    let last = talk();
    // The last of it may not be written yet when it is heard.
    let traced: BTreeSet<[u16; 2]> = packets(&file).iter().map(|packet| ports(packet)).collect();
    let both_ways = [[last, port], [port, last]];
    assert!(
        both_ways.iter().all(|way| traced.contains(way)),
        "all of it"
    );
    server.stop().unwrap();
    let _ = std::fs::remove_file(&file);
}

/// Packets in a pcapng file.
fn packets(file: &std::path::Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut found) = (0, Vec::new());
    while at + 8 <= bytes.len() {
        // An enhanced packet block: its length is the sixth word, and the packet follows the seventh.
        if word(at) == 6 {
            found.push(bytes[at + 28..at + 28 + word(at + 20)].to_vec());
        }
        at += word(at + 4);
    }
    found
}

/// The ports that a segment over IPv4 comes from and goes to.
fn ports(packet: &[u8]) -> [u16; 2] {
    let ip = janus_wire::ipv4::parse(packet).unwrap();
    let (header, ..) = janus_wire::tcp::parse(ip.payload()).unwrap();
    [header.src_port, header.dst_port]
}
