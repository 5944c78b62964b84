//! SYNs at ten times the rate that the shards take, in both placements. New connections may have to wait until it is over, but
//! those that are open go on meanwhile: what is lost is SYNs, and it is counted.

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use janus::BackendChoice;
use janus::net::TcpStream;
use janus_tcp::Config;

use super::flood::{Flooded, Tide};
use super::scene::{ECHO, Scene, Stage, at};
use crate::support::{Case, ONE_COMBINED, pattern, wire_for};

/// Times what is answered.
const OVERLOAD: u64 = 10;
/// What is answered at least meanwhile.
const ANSWERED: u64 = 2_000;
/// Connections that are open before it begins, and what each of them says and hears at least while it lasts.
const OPEN: usize = 12;
const WORDS: usize = 12;
/// Connections that are tried meanwhile.
const NEW: usize = 4;
/// A core's turn takes so long: that the shards are too slow for the flood is not to be the machine's affair.
const TURN: Duration = Duration::from_millis(1);

in_every_layout!(ten_times_what_they_can_take);

fn ten_times_what_they_can_take(case: Case) {
    let (near, far) = wire_for(case);
    let tcp = Config {
        max_half_open: 256,
        max_syn_ack_retries: 1,
        ..Config::default()
    };
    let server = case.builder().backend(BackendChoice::wire(near));
    let server = server
        .address("192.0.2.1/24".parse().unwrap())
        .gateway([192, 0, 2, 2]);
    let server = server.tcp(tcp).backlog(64).build().unwrap();
    let handle = server.handle();
    let slow = Arc::new(AtomicBool::new(false));
    for core in 0..case.cores {
        let slow = slow.clone();
        drop(handle.spawn_on(core, move || take_time(slow)));
    }
    let scene = Scene::start(case, server);
    let tide = Arc::new(Tide::default());
    tide.is_torrent.store(true, Ordering::Relaxed);
    let flooded = Flooded {
        end: far,
        tide: tide.clone(),
        port: ECHO,
    };
    let clients = ONE_COMBINED.builder();
    let clients = clients.backend(BackendChoice::Custom(Box::new(flooded)));
    let pouring = tide.clone();
    scene.play(clients, move |stage| {
        script(stage, pouring.clone(), slow.clone())
    });
    let sum = |of: fn(&janus::admission::IoCounters) -> u64| -> u64 {
        let counters = handle.io_counters().iter();
        counters.map(|counters| of(counters)).sum()
    };
    let sent = tide.sent.load(Ordering::Relaxed);
    let answered = tide.answered.load(Ordering::Relaxed);
    let gave_way = sum(|counters| counters.dropped_syn_room.get());
    let lost = sum(|counters| counters.dropped_full.get());
    println!(
        "{case:?}: {sent} SYNs, {answered} answered, {gave_way} gave way, {lost} other frames lost"
    );
    assert_eq!(tide.others.load(Ordering::Relaxed), 0, "to strangers");
    assert_eq!(lost, 0, "nothing of a connection's");
    assert!(gave_way > 0, "they were too few");
}

/// Keeps its core for a while in each turn.
async fn take_time(slow: Arc<AtomicBool>) {
    loop {
        if slow.load(Ordering::Relaxed) {
            std::thread::sleep(TURN);
            janus::yield_now().await;
        } else {
            janus::time::sleep(TURN).await;
        }
    }
}

async fn script(stage: Stage, tide: Arc<Tide>, slow: Arc<AtomicBool>) {
    let before = stage.warm_up().await;
    let over = Rc::new(Cell::new(false));
    let mut talks = Vec::new();
    for client in 0..OPEN {
        let stream = TcpStream::connect(at(ECHO)).await.unwrap();
        let (over, said) = (over.clone(), Rc::new(Cell::new(0)));
        let task = janus::spawn(talk(stream, client, over, said.clone()));
        talks.push((task, said));
    }
    slow.store(true, Ordering::Relaxed);
    tide.runs.store(true, Ordering::Release);
    let new: Vec<_> = (OPEN..OPEN + NEW)
        .map(|client| {
            janus::spawn(async move {
                while let Err(error) = open(client).await {
                    // The server may have forgotten it before its answer came through.
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                }
            })
        })
        .collect();
    talks.iter().for_each(|(_, said)| said.set(0));
    stage
        .until("an overload, and those who talk in it", |_| {
            let answered = tide.answered.load(Ordering::Relaxed);
            answered >= ANSWERED
                && tide.sent.load(Ordering::Relaxed) >= OVERLOAD * answered
                && talks.iter().all(|(_, said)| said.get() >= WORDS)
        })
        .await;
    tide.runs.store(false, Ordering::Release);
    slow.store(false, Ordering::Relaxed);
    over.set(true);
    for (talk, _) in talks {
        talk.await.expect("it was answered");
    }
    for client in new {
        client.await.expect("it comes in when it is over");
    }
    stage.recovers(before).await;
}

async fn open(client: usize) -> std::io::Result<()> {
    let stream = TcpStream::connect(at(ECHO)).await?;
    word(&stream, client).await
}

async fn talk(stream: TcpStream, client: usize, over: Rc<Cell<bool>>, said: Rc<Cell<usize>>) {
    while !over.get() {
        word(&stream, client).await.unwrap();
        said.set(said.get() + 1);
    }
}

async fn word(stream: &TcpStream, client: usize) -> std::io::Result<()> {
    let sent = pattern(700, client);
    stream.write_all(&sent).await?;
    let mut got = vec![0; sent.len()];
    stream.read_exact(&mut got).await?;
    assert!(got == sent, "client {client}");
    Ok(())
}
