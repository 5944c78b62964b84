//! Connections to which the server has more to say than their readers take: what it may say ahead fills its memory.
//! The others are served from what is kept back, and when the readers read, all of them get all.

use janus::net::TcpStream;
use janus_tcp::Config;

use super::others;
use super::scene::{Scene, Stage, WRITER, WRITERS, WRITTEN, at, builders};
use crate::support::Case;
use crate::support::content::stretch;
use crate::support::reports::sum;

/// Readers without `JANUS_SLOW_READERS`.
const READERS: u64 = 100;
/// Opened at a time.
const WAVE: u64 = 50;
/// Packet buffers of the server: what it would say ahead is many times that.
const BUFFERS: u32 = 4 * 1024;
/// What a reader's window takes.
const WINDOW: u32 = 4_096;
/// What TCP may take beside packet buffers: chunks of memory for each purpose, and so much for each connection.
const BYTES_MAX: usize = 48 << 20;
const BYTES_EACH: usize = 1_024;

pub(crate) fn readers_that_do_not_read(case: Case) {
    let readers = std::env::var("JANUS_SLOW_READERS").map_or(READERS, |text| {
        text.parse()
            .expect("JANUS_SLOW_READERS is a number of connections")
    });
    let (server, clients) = builders(case, 512);
    let server = server.packet_buffers(BUFFERS).build().unwrap();
    let clients = clients
        .tcp(Config {
            receive_buffer: WINDOW,
            receive_buffer_max: WINDOW,
            ..Config::default()
        })
        .packet_buffers(16 * 1024 + 6 * readers as u32);
    let cores = Scene::start(case, server).play(clients, move |stage| script(stage, readers));
    let connections = readers as usize;
    for core in &cores {
        let memory = core.memory;
        let bytes = memory.tcb + memory.table + memory.hot + memory.segments + memory.timers;
        let bound = BYTES_MAX + BYTES_EACH * connections;
        assert!(bytes <= bound, "{bytes} of {bound}: {memory:?}");
        assert!(core.buffers.committed_bytes <= (BUFFERS as usize + 1_024) * 2_048);
    }
    let rises = sum(&cores, |core| core.tcp.pressure_rises);
    let starved = sum(&cores, |core| core.tcp.starved);
    println!(
        "{case:?}: {readers} readers; memory became short {rises} times, {starved} writes put off"
    );
    assert!(rises > 0 && starved > 0, "{cores:?}");
}

async fn script(stage: Stage, readers: u64) {
    let before = stage.warm_up().await;
    let mut waiting = Vec::new();
    for reader in 0..readers {
        let gate = stage.gate.clone();
        waiting.push(janus::spawn(async move {
            let port = WRITER + (reader % u64::from(WRITERS)) as u16;
            let stream = TcpStream::connect(at(port)).await.unwrap();
            stream.write_all(&reader.to_le_bytes()).await.unwrap();
            gate.opened().await;
            read_slowly(stream, reader).await;
        }));
        if (reader + 1).is_multiple_of(WAVE) {
            let so_many = reader as usize + 1;
            let open = |core: &janus::CoreReport| core.connections;
            stage
                .until("open connections", |cores| {
                    cores.iter().map(open).sum::<usize>() >= so_many
                })
                .await;
        }
    }
    let starved = |cores: &[janus::CoreReport]| sum(cores, |core| core.tcp.starved) > 0;
    stage.until("a write that is put off", starved).await;
    others::are_served().await;
    stage.gate.open();
    for reader in waiting {
        reader.await.expect("a reader that got all");
    }
    stage.recovers(before).await;
}

async fn read_slowly(stream: TcpStream, seed: u64) {
    let mut got = 0;
    let mut piece = [0; 700];
    loop {
        let read = stream.read(&mut piece).await.unwrap();
        if read == 0 {
            break;
        }
        let right = piece[..read] == stretch(got..got + read, seed);
        assert!(right, "reader {seed}: the {read} bytes at {got}");
        got += read;
        janus::yield_now().await;
    }
    assert_eq!(got, WRITTEN, "reader {seed}");
}
