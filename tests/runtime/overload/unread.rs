//! Data for applications that do not read fills all packet buffers there are. Windows close, the others are served from
//! what is kept back, and when the applications read, all that was sent is there.

use janus::net::TcpStream;
use std::net::Shutdown;

use super::others;
use super::scene::{READER, Scene, Stage, at, builders};
use crate::support::Case;
use crate::support::content::{content, hash};
use crate::support::reports::sum;

const SENDERS: u64 = 100;
/// What each sends: together many times what the server has room for.
const SENT: usize = 96 << 10;
/// Packet buffers of the server.
const BUFFERS: u32 = 2 * 1024;

pub(crate) fn data_that_nobody_reads(case: Case) {
    let (server, clients) = builders(case, 256);
    let server = server.packet_buffers(BUFFERS).build().unwrap();
    let clients = clients.packet_buffers(64 * 1024);
    let cores = Scene::start(case, server).play(clients, script);
    let rises = sum(&cores, |core| core.tcp.pressure_rises);
    let dropped = sum(&cores, |core| core.tcp.dropped_pressure);
    println!(
        "{case:?}: memory became short {rises} times, {dropped} segments dropped for want of it"
    );
    assert!(rises > 0, "{cores:?}");
    for core in &cores {
        assert!(core.buffers.committed_bytes <= (BUFFERS as usize + 1_024) * 2_048);
    }
}

async fn script(stage: Stage) {
    let before = stage.warm_up().await;
    let senders: Vec<_> = (0..SENDERS)
        .map(|seed| {
            janus::spawn(async move {
                let stream = TcpStream::connect(at(READER)).await.unwrap();
                let text = content(SENT, seed);
                stream.write_all(&text).await.unwrap();
                stream.shutdown(Shutdown::Write).await.unwrap();
                let mut heard = [0; 8];
                stream.read_exact(&mut heard).await.unwrap();
                assert_eq!(u64::from_le_bytes(heard), hash(&text), "sender {seed}");
            })
        })
        .collect();
    let most = BUFFERS as usize * 15 / 16;
    stage
        .until("full memory", |cores| cores[0].buffers.outstanding > most)
        .await;
    others::are_served().await;
    stage.gate.open();
    for sender in senders {
        sender.await.expect("a sender all of whose bytes were read");
    }
    stage.recovers(before).await;
}
