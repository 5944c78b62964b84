//! Three runtimes on one switch: two servers, and clients of both through a bad port. Addresses are asked for by broadcast, and
//! streams go from port to port.

use std::net::SocketAddr;

use crate::support::*;
use janus::BackendChoice;
use janus::net::TcpStream;
use janus_io::faults::{Faults, FaultyBackend};
use janus_io::wire::switch::{self, switch};

in_every_layout!(streams_go_from_port_to_port);

const SERVERS: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 3]];
const CLIENTS: usize = 40;

fn streams_go_from_port_to_port(case: Case) {
    let config = switch::Config {
        queues: case.queues(),
        depth: 1024,
        ..switch::Config::default()
    };
    let mut ports = switch(3, config).unwrap();
    let client = ports.pop().unwrap();
    let counters = client.switch_counters();
    let servers: Vec<Running> = ports
        .into_iter()
        .zip(SERVERS)
        .map(|(port, [a, b, c, d])| {
            let builder = case
                .builder()
                .backend(BackendChoice::Custom(Box::new(port)))
                .address(format!("{a}.{b}.{c}.{d}/24").parse().unwrap());
            serve(builder, 80, echo).0
        })
        .collect();
    let faults = Faults {
        seed: 11,
        loss: 5,
        duplicate: 5,
        reorder: 10,
        distance: 3,
        ..Faults::default()
    };
    let bad = FaultyBackend::new(Box::new(client), faults);
    let done = bad.counters();
    run_clients_on(
        BackendChoice::Custom(Box::new(bad)),
        CLIENTS,
        |index| async move {
            let server = SocketAddr::from((SERVERS[index % 2], 80));
            let stream = TcpStream::connect(server).await.unwrap();
            let sent = pattern(20_000, index);
            stream.write_all(&sent).await.unwrap();
            let mut got = vec![0; sent.len()];
            stream.read_exact(&mut got).await.unwrap();
            assert!(got == sent, "client {index} of {server}");
        },
    );
    for server in servers {
        server.stop().unwrap();
    }
    let (forwarded, flooded) = (counters.forwarded.get(), counters.flooded.get());
    // Questions for addresses; on a slow machine they are asked again.
    let few = flooded < forwarded / 8;
    assert!(forwarded > 500 && few, "{forwarded} and {flooded}");
    assert!(flooded > 0 && done.sent.lost.get() + done.received.lost.get() > 0);
}
