//! Hours of everything at once, for those who want to see whether anything is lost or grows: a server on several cores
//! and a crowd of clients on a bad wire that open, echo, half close, break off, read slowly, wait, and begin anew, while
//! the cores' weights change every ten milliseconds. Every ten seconds it says how things stand; at the end nothing may
//! be left, and memory must not have grown since the first part of the run.
//!
//! `cargo run --release --example soak -- [seconds, 600] [cores, 2] [seed, 1]`

use std::cell::Cell;
use std::net::{Shutdown, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use janus::net::{TcpListener, TcpStream};
use janus::{BackendChoice, CoreReport, Placement, Runtime};
use janus_io::faults::{Faults, FaultyBackend};
use janus_io::wire;

/// Clients at a time.
const CLIENTS: usize = 200;
/// Between two changes of the weights.
const CHANGE: Duration = Duration::from_millis(10);
const SAY: Duration = Duration::from_secs(10);
/// How long the last connections may take to end, TIME-WAIT not counted.
const END: Duration = Duration::from_secs(60);
/// Bytes by which memory may grow after the first part.
const GROWTH_MAX: u64 = 64 << 20;
/// No client waits for anything longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Counters of the clients.
#[derive(Default)]
struct Tally {
    connections: AtomicU64,
    bytes: AtomicU64,
    resets: AtomicU64,
    wrong: Mutex<Vec<String>>,
    over: AtomicBool,
    clients_left: AtomicU64,
}

type Board = Arc<Mutex<Vec<Option<CoreReport>>>>;

struct Draw(Cell<u64>);

impl Draw {
    fn below(&self, bound: u64) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }
}

fn main() -> ExitCode {
    let number = |at, default| {
        let text = std::env::args().nth(at);
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let (seconds, cores, seed) = (number(1, 600), number(2, 2) as usize, number(3, 1));
    println!("{seconds} s, {cores} cores, seed {seed}");
    let (near, far) = wire::pair(wire::Config {
        queues: [cores, 1],
        depth: 1_024,
        ..wire::Config::default()
    })
    .expect("a wire");
    let server = Runtime::builder()
        .ignore_environment()
        .cores(cores)
        .placement(Placement::Combined)
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .build()
        .expect("a server");
    let faults = Faults {
        seed,
        loss: 2,
        duplicate: 2,
        reorder: 5,
        distance: 4,
        ..Faults::default()
    };
    let bad = FaultyBackend::new(Box::new(far), faults);
    let clients = Runtime::builder()
        .ignore_environment()
        .cores(1)
        .backend(BackendChoice::Custom(Box::new(bad)))
        .address("192.0.2.2/24".parse().unwrap())
        .build()
        .expect("clients");
    let (tally, board) = (Arc::new(Tally::default()), Board::default());
    let (stop_server, balance) = (server.handle(), server.handle().balance());
    let stop_clients = clients.handle();
    let of_cores = board.clone();
    let serving = std::thread::spawn(move || server.run(move || serve(of_cores.clone())));
    let of_clients = tally.clone();
    let asking = std::thread::spawn(move || clients.run(move || ask(of_clients.clone(), seed)));
    let changed = tally.clone();
    let changing = std::thread::spawn(move || {
        let mut drawn = seed as u32;
        while !changed.over.load(Ordering::Relaxed) {
            // Drawn, not in turn: of weights wanted while an update runs only the last count, and turns could meet the
            // same ones again each time.
            drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let small = (drawn >> 16) as usize % cores;
            let points = (0..cores).map(|core| if core == small { 32 } else { 128 });
            let points: Vec<u16> = points.collect();
            balance.set_weights(&points).expect("weights that can be");
            std::thread::sleep(CHANGE);
        }
        balance.report()
    });
    let grown = watch(Duration::from_secs(seconds), &tally, &board);
    tally.over.store(true, Ordering::Relaxed);
    let updates = changing.join().expect("it only changes weights");
    println!("{updates:?}");
    let left = wait_for_the_end(&tally, &board);
    stop_clients.stop();
    stop_server.stop();
    for ended in [asking.join(), serving.join()] {
        ended.expect("no thread panics").expect("a good end");
    }
    verdict(&tally, grown, left)
}

async fn serve(board: Board) -> janus::Result {
    let listener = TcpListener::bind("0.0.0.0:7").await?;
    janus::spawn(async move {
        let core = janus::core_id().expect("this is a core");
        loop {
            {
                let mut board = board.lock().expect("no holder panics");
                if board.len() <= core {
                    board.resize(core + 1, None);
                }
                board[core] = janus::report();
            }
            janus::time::sleep(Duration::from_millis(100)).await;
        }
    });
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(async move {
            while let Ok(Some(piece)) = stream.recv().await {
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn ask(tally: Arc<Tally>, seed: u64) -> janus::Result {
    for client in 0..CLIENTS as u64 {
        let tally = tally.clone();
        tally.clients_left.fetch_add(1, Ordering::Relaxed);
        janus::spawn(async move {
            let draw = Draw(Cell::new(seed << 32 | client));
            while !tally.over.load(Ordering::Relaxed) {
                let one = janus::time::timeout(PATIENCE, connection(&tally, &draw)).await;
                let problem = match one {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some(format!("nothing for {PATIENCE:?}")),
                };
                if let Some(problem) = problem {
                    let mut wrong = tally.wrong.lock().expect("no holder panics");
                    wrong.push(format!("client {client}: {problem}"));
                }
                tally.connections.fetch_add(1, Ordering::Relaxed);
            }
            tally.clients_left.fetch_sub(1, Ordering::Relaxed);
        });
    }
    std::future::pending().await
}

/// A connection of one of the kinds.
async fn connection(tally: &Tally, draw: &Draw) -> std::io::Result<()> {
    let server = SocketAddr::from(([192, 0, 2, 1], 7));
    let stream = TcpStream::connect(server).await?;
    match draw.below(6) {
        // Breaks off with answers on their way.
        0 => {
            tally.resets.fetch_add(1, Ordering::Relaxed);
            stream
                .write_all(&vec![7; 1 + draw.below(20_000) as usize])
                .await
        }
        // All at once, half closed, and read to the end, slowly or not.
        1 | 2 => {
            let sent = text(1 + draw.below(200_000) as usize, draw.below(u64::MAX));
            let slowly = draw.below(3) == 0;
            let writer = async {
                stream.write_all(&sent).await?;
                stream.shutdown(Shutdown::Write).await
            };
            let reader = async {
                let mut got = Vec::with_capacity(sent.len());
                while let Some(piece) = stream.recv().await? {
                    got.extend_from_slice(&piece);
                    if slowly {
                        janus::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                Ok::<_, std::io::Error>(got)
            };
            let (written, got) = both(writer, reader).await;
            written?;
            compare(tally, &sent, &got?)
        }
        // Questions and answers, with pauses.
        _ => {
            for _ in 0..1 + draw.below(8) {
                let sent = text(1 + draw.below(3_000) as usize, draw.below(u64::MAX));
                stream.write_all(&sent).await?;
                let mut got = vec![0; sent.len()];
                stream.read_exact(&mut got).await?;
                compare(tally, &sent, &got)?;
                janus::time::sleep(Duration::from_micros(draw.below(30_000))).await;
            }
            Ok(())
        }
    }
}

/// Two futures at once, to the end of both.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(|cx| {
        if of_a.is_none()
            && let std::task::Poll::Ready(output) = a.as_mut().poll(cx)
        {
            of_a = Some(output);
        }
        if of_b.is_none()
            && let std::task::Poll::Ready(output) = b.as_mut().poll(cx)
        {
            of_b = Some(output);
        }
        match (of_a.is_some(), of_b.is_some()) {
            (true, true) => std::task::Poll::Ready(()),
            _ => std::task::Poll::Pending,
        }
    })
    .await;
    (of_a.expect("it is over"), of_b.expect("it is over"))
}

fn text(len: usize, seed: u64) -> Vec<u8> {
    let draw = Draw(Cell::new(seed));
    (0..len.div_ceil(8))
        .flat_map(|_| draw.below(u64::MAX).to_le_bytes())
        .take(len)
        .collect()
}

fn compare(tally: &Tally, sent: &[u8], got: &[u8]) -> std::io::Result<()> {
    tally.bytes.fetch_add(got.len() as u64, Ordering::Relaxed);
    if sent == got {
        return Ok(());
    }
    let text = format!("{} bytes came back wrong, of {}", got.len(), sent.len());
    Err(std::io::Error::other(text))
}

/// Says how things stand until the time is over; gives what memory has grown by since a quarter of it.
fn watch(time: Duration, tally: &Tally, board: &Board) -> u64 {
    let begin = Instant::now();
    let mut settled = 0;
    while begin.elapsed() < time {
        std::thread::sleep(SAY.min(time));
        let memory = resident();
        if settled == 0 && begin.elapsed() > time / 4 {
            settled = memory;
        }
        let cores = board.lock().expect("no holder panics").clone();
        let sum = |of: fn(&CoreReport) -> u64| cores.iter().flatten().map(of).sum::<u64>();
        println!(
            "{:>6.0} s: {} connections ({} broken off), {} MB checked, {} held now, {} hot, {} forwards, \
             {} repeats, {} buffers, {} MB resident, {} wrong",
            begin.elapsed().as_secs_f64(),
            tally.connections.load(Ordering::Relaxed),
            tally.resets.load(Ordering::Relaxed),
            tally.bytes.load(Ordering::Relaxed) >> 20,
            sum(|core| core.connections as u64),
            sum(|core| core.hot_in_use as u64),
            sum(|core| core.forwards.forwarded),
            sum(|core| core.tcp.retransmissions),
            cores
                .iter()
                .flatten()
                .map(|core| core.buffers.outstanding)
                .max()
                .unwrap_or(0),
            memory >> 20,
            tally.wrong.lock().expect("no holder panics").len(),
        );
    }
    resident().saturating_sub(settled)
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kb.unwrap_or(0) * 1024
}

/// Waits until the clients have finished and the server holds nothing any more; what is left.
fn wait_for_the_end(tally: &Tally, board: &Board) -> Option<String> {
    let begin = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let cores = board.lock().expect("no holder panics").clone();
        let clients = tally.clients_left.load(Ordering::Relaxed);
        let idle = |core: &CoreReport| {
            core.connections == 0 && core.half_open == 0 && core.hot_in_use == 0
        };
        if clients == 0 && cores.iter().flatten().all(idle) {
            return None;
        }
        if begin.elapsed() > END + PATIENCE {
            return Some(format!("{clients} clients, {cores:?}"));
        }
    }
}

fn verdict(tally: &Tally, grown: u64, left: Option<String>) -> ExitCode {
    let wrong = tally.wrong.lock().expect("no holder panics");
    wrong
        .iter()
        .take(20)
        .for_each(|text| println!("wrong: {text}"));
    if let Some(left) = &left {
        println!("left at the end: {left}");
    }
    println!("memory grew by {} MB since the first quarter", grown >> 20);
    if wrong.is_empty() && left.is_none() && grown <= GROWTH_MAX {
        println!("all is well");
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}
