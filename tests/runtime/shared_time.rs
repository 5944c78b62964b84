//! Two runtimes with one time that jumps: what is on its way between them, or through a core that polls the device, holds it;
//! so what two hosts say to each other takes no time at all, however slow the machine is, and hours pass between two words.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::support::*;
use janus::net::{TcpListener, TcpStream};
use janus::time::{now, sleep, timeout};
use janus::{BackendChoice, JoinSet, Runtime};

in_every_layout!(words_take_no_time, who_has_ended_holds_nothing);

const HOUR: Duration = Duration::from_secs(3600);
const CLIENTS: usize = 12;
const WORDS: usize = 8;
const SERVER: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    80,
);

/// A server on `case` and a client, both with the server's time.
fn runtimes(case: Case) -> (Runtime, Runtime) {
    let (near, far) = wire_for(case);
    let server = case
        .builder()
        .start_paused(true)
        .address("192.0.2.1/24".parse().unwrap());
    let server = server.backend(BackendChoice::wire(near)).build().unwrap();
    let client = ONE_COMBINED.builder().time_of(&server.handle());
    let client = client.backend(BackendChoice::wire(far));
    let client = client
        .address("192.0.2.2/24".parse().unwrap())
        .build()
        .unwrap();
    (server, client)
}

/// Segments that this core's stack sent a second time.
fn repeated() -> u64 {
    janus::report().expect("a core").tcp.retransmissions
}

/// Echoes, and says at the end what its core has sent again.
async fn serve(ready: Sender<()>, told: Sender<u64>) -> janus::Result {
    let listener = TcpListener::bind("0.0.0.0:80").await?;
    ready.send(())?;
    loop {
        let (stream, _) = listener.accept().await?;
        let told = told.clone();
        janus::spawn(async move {
            echo(stream).await;
            let _ = told.send(repeated());
        });
    }
}

/// A connection, and words on it with hours between them.
async fn talk(client: usize) {
    let start = now();
    let connected = timeout(Duration::from_millis(1), TcpStream::connect(SERVER)).await;
    let stream = connected.expect("no time passes").expect("it listens");
    assert_eq!(now(), start, "client {client} connects");
    for word in 0..WORDS {
        let start = now();
        let sent = pattern(1 + client * 100 + word, client);
        stream.write_all(&sent).await.unwrap();
        let mut got = vec![0; sent.len()];
        stream.read_exact(&mut got).await.unwrap();
        assert!(got == sent, "client {client}, word {word}");
        assert_eq!(now(), start, "client {client}, word {word}");
        // All at the same time; what is acknowledged late is so meanwhile.
        sleep(HOUR).await;
    }
}

fn words_take_no_time(case: Case) {
    let (server, client) = runtimes(case);
    let ((ready, listens), (told, repeats)) = (channel(), channel());
    let server = Running::start(server, move || serve(ready.clone(), told.clone()));
    let client = Running::start(client, move || async {
        // Not before somebody listens: that the machine takes a while for that is nobody's time.
        let mut talks = JoinSet::new();
        while TcpStream::connect(SERVER).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        (0..CLIENTS).for_each(|client| _ = talks.spawn(talk(client)));
        while let Some(ended) = talks.join_next().await {
            ended?;
        }
        assert_eq!(repeated(), 0);
        janus::Result::<()>::Ok(())
    });
    for _ in 0..case.cores {
        listens.recv_timeout(PATIENCE).expect("every core listens");
    }
    client.join().unwrap();
    for _ in 0..CLIENTS {
        assert_eq!(repeats.recv_timeout(PATIENCE), Ok(0), "segments sent again");
    }
    server.stop().unwrap();
}

/// The client's runtime is gone: the server's time goes on without it.
fn who_has_ended_holds_nothing(case: Case) {
    let (server, client) = runtimes(case);
    let (go_on, goes_on) = channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let goes_on: &'static _ = Box::leak(Box::new(goes_on));
    let server = Running::start(server, move || async move {
        if janus::core_id() == Some(0) {
            janus::spawn_blocking(|| goes_on.lock().unwrap().recv()).await??;
        }
        let start = now();
        timeout(24 * HOUR, sleep(23 * HOUR)).await?;
        assert!(now().saturating_since(start) >= 23 * HOUR);
        janus::Result::<()>::Ok(())
    });
    Running::start(client, || async { sleep(HOUR).await })
        .stop()
        .unwrap();
    go_on.send(()).unwrap();
    server.join().unwrap();
}

#[test]
fn the_machines_time_is_not_shared() {
    let (near, far) = wire_for(ONE_COMBINED);
    let other = ONE_COMBINED.builder().backend(BackendChoice::wire(near));
    let other = other.build().unwrap();
    let wrong = ONE_COMBINED.builder().backend(BackendChoice::wire(far));
    let refused = wrong.time_of(&other.handle()).build().err().unwrap();
    assert!(refused.to_string().contains("not started paused"));
}
