//! Bulk through the portal: a client of the kernel's loopback talks to a Janus server, beside a plain server of the kernel's,
//! in turns. Each figure is what one connection carries one way; the ratio is that of neighboring turns. What the portal's
//! thread and the shard use of a processor is told beside it, as both share the machine with the client.

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use janus::{BackendChoice, Runtime};
use support::Scale;
use support::meter::thread_cpu;
use support::report::Report;

/// Bytes of a piece that client and plain server hand to the kernel.
const PIECE: usize = 64 * 1024;
/// Answered when all has arrived.
const DONE: u8 = b'!';

#[derive(Clone, Copy)]
enum Way {
    In,
    Out,
}

fn main() {
    let scale = Scale::get();
    let (rounds, bytes) = scale.pick((1, 1 << 20), (11, 256 << 20), (31, 1 << 30));
    let (told, address) = channel();
    let runtime = Runtime::builder()
        .ignore_environment()
        .cores(1)
        .backend(BackendChoice::Portal)
        .build()
        .expect("a runtime");
    let handle = runtime.handle();
    let serving = std::thread::spawn(move || runtime.run(move || accept_all(told.clone())));
    let janus = SocketAddr::from((Ipv4Addr::LOCALHOST, address.recv().expect("bound").port()));
    let plain = plain_server();

    let mut report = Report::new("portal");
    for (name, way) in [("in", Way::In), ("out", Way::Out)] {
        let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        let mut costs = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            let mut rate = [0.0; 2];
            let mut cost = [0.0; 2];
            for who in [round % 2, 1 - round % 2] {
                let before = ["janus-portal", "janus-shard"].map(thread_cpu);
                rate[who] = carry([janus, plain][who], way, bytes);
                if who == 0 {
                    let after = ["janus-portal", "janus-shard"].map(thread_cpu);
                    for (cost, (before, after)) in cost.iter_mut().zip(before.iter().zip(after)) {
                        *cost = (after - *before).as_nanos() as f64 * 1024.0 / bytes as f64;
                    }
                }
            }
            // The first round only warms up.
            if round > 0 || rounds == 1 {
                (0..2).for_each(|who| rates[who].push(rate[who]));
                (0..2).for_each(|at| costs[at].push(cost[at]));
                ratios.push(rate[0] / rate[1]);
            }
        }
        let way = |who: &'static str| [("way", name.into()), ("server", who.into())];
        report.median("bulk", &rates[0], "Gbit/s", &way("janus"));
        report.median("bulk", &rates[1], "Gbit/s", &way("kernel"));
        report.median("bulk_to_kernel", &ratios, "ratio", &[("way", name.into())]);
        let thread = |who: &'static str| [("way", name.into()), ("thread", who.into())];
        report.median("cpu_per_kib", &costs[0], "ns", &thread("portal"));
        report.median("cpu_per_kib", &costs[1], "ns", &thread("core"));
    }
    handle.stop();
    serving
        .join()
        .expect("the server's thread")
        .expect("the server ends");
    report.finish();
}

/// The number that a connection begins with says what it is for: bytes to be sent back, or with the topmost bit set, bytes that
/// come.
const COMES: u64 = 1 << 63;

async fn accept_all(told: Sender<SocketAddr>) -> janus::Result {
    let listener = janus::net::TcpListener::bind("127.0.0.1:0").await?;
    let _ = told.send(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(serve(stream));
    }
}

async fn serve(stream: janus::net::TcpStream) -> std::io::Result<()> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).await?;
    let asked = u64::from_be_bytes(head);
    if asked & COMES == 0 {
        let piece = vec![7; PIECE];
        let mut left = asked as usize;
        while left > 0 {
            left -= stream.write(&piece[..left.min(PIECE)]).await?;
        }
        return Ok(());
    }
    let mut left = (asked & !COMES) as usize;
    while left > 0 {
        let Some(piece) = stream.recv().await? else {
            break;
        };
        left -= piece.len();
    }
    stream.write_all(&[DONE]).await
}

fn plain_server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut piece = vec![7; PIECE];
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut head = [0; 8];
            let _ = stream.read_exact(&mut head);
            let asked = u64::from_be_bytes(head);
            let mut left = (asked & !COMES) as usize;
            while left > 0 {
                let most = left.min(PIECE);
                let moved = match asked & COMES {
                    0 => stream.write(&piece[..most]),
                    _ => stream.read(&mut piece[..most]),
                };
                left -= moved.expect("the client goes on");
            }
            let _ = stream.write_all(&[DONE]);
        }
    });
    address
}

/// Gbit/s of one connection that carries `bytes` one way.
fn carry(to: SocketAddr, way: Way, bytes: usize) -> f64 {
    let mut stream = TcpStream::connect(to).expect("connected");
    let mut piece = vec![7; PIECE];
    let begin = Instant::now();
    let mut left = bytes;
    match way {
        Way::In => {
            stream
                .write_all(&(COMES | bytes as u64).to_be_bytes())
                .expect("sent");
            while left > 0 {
                left -= stream.write(&piece[..left.min(PIECE)]).expect("sent");
            }
            stream.read_exact(&mut piece[..1]).expect("an answer");
        }
        Way::Out => {
            stream
                .write_all(&(bytes as u64).to_be_bytes())
                .expect("sent");
            while left > 0 {
                left -= match stream.read(&mut piece[..left.min(PIECE)]).expect("bytes") {
                    0 => panic!("{left} bytes are missing"),
                    n => n,
                };
            }
        }
    }
    bytes as f64 * 8.0 / begin.elapsed().as_nanos() as f64
}
