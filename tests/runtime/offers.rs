//! Speculative accept: a core's connections when nothing on it accepts them.

use std::future::pending;
use std::sync::mpsc::{Sender, channel};

use janus::BackendChoice;
use janus::balance::SpeculativeAccept;
use janus::net::{TcpListener, TcpStream};

use crate::support::*;

in_every_layout!(connections_go_where_they_are_accepted);

const CLIENTS: usize = 60;

fn connections_go_where_they_are_accepted(case: Case) {
    if case.cores == 1 {
        return;
    }
    let (near, far) = wire_for(case);
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .speculative_accept(SpeculativeAccept::On)
        .build()
        .unwrap();
    let (ready, listens) = channel();
    let server = Running::start(runtime, move || serve(ready.clone()));
    for _ in 0..case.cores {
        listens.recv_timeout(PATIENCE).expect("every core listens");
    }
    run_clients(far, 1, move |_| async move {
        for client in 0..CLIENTS {
            let stream = TcpStream::connect("192.0.2.1:80").await.unwrap();
            let said = pattern(1 + client, client);
            stream.write_all(&said).await.unwrap();
            let mut got = vec![0; said.len()];
            stream.read_exact(&mut got).await.unwrap();
            assert!(got == said, "client {client}");
        }
    });
    let offers = claimed(&server, case.cores);
    server.stop().unwrap();
    assert!(offers > 5, "{offers} of {CLIENTS}");
}

/// Core 0 accepts nothing.
async fn serve(ready: Sender<()>) -> janus::Result {
    let listener = TcpListener::bind(("0.0.0.0", 80)).await?;
    ready.send(())?;
    if janus::core_id() == Some(0) {
        pending::<()>().await;
    }
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(async move {
            let mut word = [0; 100];
            let read = stream.read(&mut word).await.unwrap();
            stream.write_all(&word[..read]).await.unwrap();
        });
    }
}

/// Connections that cores have taken from others.
fn claimed(server: &Running, cores: usize) -> u64 {
    let of_core = |core| {
        let (tell, told) = channel();
        let ask = move || async move { tell.send(janus::report().expect("a core").offers.claimed) };
        drop(server.handle().spawn_on(core, ask));
        told.recv_timeout(PATIENCE).expect("it answers")
    };
    (0..cores).map(of_core).sum()
}
