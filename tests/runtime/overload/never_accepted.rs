//! A port whose connections nobody accepts: as many wait as its backlog says, the rest stay outside and are counted.
//! The others are served, and when somebody accepts at last, those inside and outside are.

use janus::net::TcpStream;
use janus_tcp::Config;

use super::others;
use super::scene::{DESERTED, Scene, Stage, at, builders};
use crate::support::reports::sum;
use crate::support::{Case, pattern};

/// Connections that may wait on each core.
const BACKLOG: usize = 8;
/// Times what may wait on all cores.
const OVERLOAD: usize = 5;

pub(crate) fn connections_that_nobody_accepts(case: Case) {
    let (server, clients) = builders(case, 256);
    // However long it takes a busy machine until somebody accepts, neither side gives up before.
    let patient = Config {
        max_syn_retries: 10,
        max_syn_ack_retries: 10,
        ..Config::default()
    };
    let clients = clients.tcp(patient.clone());
    let server = server.tcp(patient).backlog(BACKLOG).build().unwrap();
    let cores = Scene::start(case, server).play(clients, script);
    let refused = sum(&cores, |core| core.tcp.dropped_accept_full);
    println!("{case:?}: {refused} times there was no place left to wait");
    // That nobody was sent away the clients have seen. Resets are no sign of it: a segment that was sent twice, as happens where
    // the machine is slow, may come when its connection is over.
    assert!(refused > 0, "{cores:?}");
}

async fn script(stage: Stage) {
    let before = stage.warm_up().await;
    let waiting: Vec<_> = (0..OVERLOAD * BACKLOG * stage.cores)
        .map(|client| {
            janus::spawn(async move {
                let stream = TcpStream::connect(at(DESERTED)).await.unwrap();
                let sent = pattern(500, client);
                stream.write_all(&sent).await.unwrap();
                let mut got = vec![0; sent.len()];
                stream.read_exact(&mut got).await.unwrap();
                assert!(got == sent, "client {client}");
            })
        })
        .collect();
    stage
        .until("every core's backlog full", |cores| {
            cores.iter().all(|core| core.tcp.dropped_accept_full > 0)
        })
        .await;
    others::are_served().await;
    // When the others' last ends are acknowledged, nobody is inside but those who wait.
    let bound = |core: &janus::CoreReport| {
        core.connections <= BACKLOG && core.half_open <= BACKLOG + others::OTHERS
    };
    stage
        .until("as many as may wait and no more", |cores| {
            cores.iter().all(bound)
        })
        .await;
    stage.gate.open();
    for client in waiting {
        client.await.expect("it is served in the end");
    }
    stage.recovers(before).await;
}
