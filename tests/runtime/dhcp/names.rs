//! The name server that a lease names is the one that is asked.

use std::net::{Ipv4Addr, SocketAddr};

use janus::BackendChoice;
use janus::net::{UdpSocket, lookup_host};
use janus::time::timeout;

use super::server::Server;
use super::{FIRST, asking, ports};
use crate::support::{ONE_COMBINED, PATIENCE, Running};

/// What the server of the test's leases tells.
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
/// Every name's.
const ANSWER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// The question, answered.
fn answer(question: &[u8]) -> Vec<u8> {
    let name: usize = question[12..].iter().position(|byte| *byte == 0).unwrap();
    let mut out = question[..12 + name + 5].to_vec();
    out[2] |= 0x80;
    (out[7], out[11]) = (1, 0);
    out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
    out.extend(ANSWER.octets());
    out
}

async fn answer_all() -> janus::Result {
    let socket = UdpSocket::bind((NAME_SERVER, 53)).await?;
    loop {
        let asked = socket.recv_datagram().await?;
        socket.send_to(&answer(asked.bytes()), asked.peer).await?;
    }
}

#[test]
fn names_are_asked_of_the_server_that_the_lease_names() {
    let [ours, servers, names] = ports(ONE_COMBINED);
    let dhcp = Server::start(servers, FIRST);
    let names = ONE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(names)))
        .address("192.0.2.53/24".parse().unwrap());
    let names = Running::start(names.build().unwrap(), answer_all);
    let runtime = asking(ONE_COMBINED, ours).build().unwrap();
    let client = Running::start(runtime, || async {
        let found = timeout(PATIENCE, lookup_host(("web.example", 80))).await;
        let found: Vec<_> = found.unwrap().unwrap().collect();
        assert_eq!(found, [SocketAddr::from((ANSWER, 80))]);
    });
    client.join().unwrap();
    names.stop().unwrap();
    dhcp.stop();
}
