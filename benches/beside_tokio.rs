//! Janus beside tokio on the kernel's sockets: the same echo server for the same short connections, requests and idle
//! connections, on the same machine in the same run, in turns. A cost is processor time of the serving side.
//!
//! * Janus serves one core over the in-memory wire of the other benchmarks. The whole stack counts: frames in and out,
//!   checksums, TCP, tasks. The far end's time is left out. There is no driver of a device.
//! * tokio is a runtime on one thread, with the kernel's sockets over loopback. Its thread's time counts, in the program and
//!   in the kernel. Loopback has no driver either, and computes no checksums. The kernel also does a part of the server's work
//!   (a SYN, an ACK, a FIN) in the time of the thread that sent the packet, which is the client's: `server_ns` flatters the
//!   kernel, and `both_ends_ns`, with the client's thread in it, is the bound from the other side.
//! * Memory of an idle connection is the growth of resident memory, and for tokio also of the kernel's: what both ends of the
//!   accepted connections take, halved, and what the reactor adds to the server's end alone. tokio holds as many connections
//!   as files may be open, which can be fewer than Janus holds; the runtimes themselves are not counted on either side.
//! * The first answer is what one kernel client sees of connect, request and answer, one connection after the other. Janus
//!   is reached by the portal, thus over the kernel's sockets too, and then over a second Janus stack. Rounds in which the host took
//!   time are set aside (`disturbed_share`). No gap of a single answer is: its threads sleep and wait for each other, so that a
//!   thread which stands still says nothing. What a loop finds that only reads the clock stands beside the result.

mod support;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use janus::{BackendChoice, Runtime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::far::App;
use support::far::plan::{Mode, Phase};
use support::kernel::{self, Kernel, Load, connect, read_answer, send_request};
use support::report::{Report, Value, quantile};
use support::served::{Layout, Server, begin};
use support::witness::bare::Bare;
use support::witness::threads::stolen_ticks;
use support::{Scale, memory};

const QUANTILES: [f64; 2] = [50.0, 99.0];
/// Connections with requests, and requests or short connections in progress at a time.
const WINDOW: u32 = 64;
/// Before each measurement.
const WARM: Duration = Duration::from_millis(100);
/// How long the clock alone is read on each processor before a round.
const BARE: Duration = Duration::from_millis(10);
/// For what the kernel frees late.
const REST: Duration = Duration::from_millis(500);

fn main() {
    let scale = Scale::get();
    let (rounds, run_ms) = scale.pick((1, 50), (7, 400), (15, 1_500));
    let run_time = Duration::from_millis(run_ms);
    let mut report = Report::new("beside_tokio");
    // First, while nothing that was freed is there to be used again.
    idle_memory(&mut report, scale.pick(1_000, 100_000, 100_000));
    for (name, mode) in [("short", Mode::Short), ("request", Mode::Requests)] {
        report.progress(name);
        costs(&mut report, name, mode, rounds, run_time);
    }
    report.progress("the first answer");
    first_answer(&mut report, rounds, scale.pick(5, 400, 1_000));
    report.finish();
}

/// Processor time of the serving side for each piece of work.
fn costs(report: &mut Report, name: &'static str, mode: Mode, rounds: usize, run_time: Duration) {
    let (mut janus, mut tokio, mut both) = (Vec::new(), Vec::new(), Vec::new());
    let server = Kernel::tokio();
    let load = Load {
        mode,
        window: WINDOW,
        held: WINDOW,
    };
    for round in 0..rounds {
        for who in [round % 2, 1 - round % 2] {
            if who == 0 {
                janus.push(janus_cost(mode, run_time));
            } else {
                let cost = server.cost(load, WARM, run_time);
                assert_eq!(cost.wrong, 0, "wrong answers");
                tokio.push(cost.server_ns);
                both.push(cost.both_ns);
            }
        }
    }
    let of = |server: &str| [("work", Value::from(name)), ("server", server.into())];
    report.median("server_ns", &janus, "ns", &of("janus"));
    report.median("server_ns", &tokio, "ns", &of("tokio"));
    report.median("both_ends_ns", &both, "ns", &of("tokio"));
    for (server, costs) in [("janus", &janus), ("tokio", &tokio)] {
        let rates: Vec<f64> = costs.iter().map(|ns| 1e9 / ns).collect();
        report.median("per_core_second", &rates, "1/s", &of(server));
    }
    report.median(
        "tokio_to_janus",
        &ratios(&tokio, &janus),
        "ratio",
        &of("tokio"),
    );
}

/// Of the figures of the same round.
fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(a, b)| a / b).collect()
}

fn janus_cost(mode: Mode, run_time: Duration) -> f64 {
    let held = if mode == Mode::Short { 0 } else { WINDOW };
    let server = Server::start(Layout::COMBINED, App::Echo, held);
    let phase = Phase {
        mode,
        window: WINDOW,
        held,
    };
    server.measure(phase, WARM, run_time).costs[0]
}

/// Bytes for each connection that was used once and rests now.
fn idle_memory(report: &mut Report, wanted: u32) {
    let conns = room_for(wanted);
    let params = |server: &str, part: &str, conns: u32| {
        [
            ("server", Value::from(server)),
            ("part", part.into()),
            ("conns", conns.into()),
        ]
    };
    let tokio = match tokio_memory(conns) {
        Ok(parts) => parts,
        Err(why) => {
            println!("skipped: idle memory: {why}");
            return;
        }
    };
    let server = Server::start(Layout::COMBINED, App::Echo, wanted);
    let before = memory::resident_bytes();
    server.open(wanted);
    std::thread::sleep(REST);
    let janus = grown(before, memory::resident_bytes(), wanted);
    server.stop();
    let mut row = |server, part, conns, bytes| {
        report.row("bytes_per_conn", bytes, "B", &params(server, part, conns));
    };
    row("janus", "total", wanted, janus);
    row("tokio", "program", conns, tokio.program);
    row("tokio", "kernel", conns, tokio.kernel);
    let total = tokio.program + tokio.kernel;
    row("tokio", "total", conns, total);
    report.row(
        "tokio_to_janus",
        total / janus,
        "ratio",
        &params("tokio", "total", conns),
    );
}

/// Bytes for each of `conns`.
fn grown(before: u64, after: u64, conns: u32) -> f64 {
    (after as f64 - before as f64) / f64::from(conns)
}

/// Bytes of an idle connection of tokio's.
struct TokioMemory {
    program: f64,
    kernel: f64,
}

fn tokio_memory(conns: u32) -> Result<TokioMemory, String> {
    if memory::slab_bytes() == 0 {
        return Err("the kernel does not say what its slabs hold".into());
    }
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0));
    let listener = listener.map_err(|error| format!("a listener: {error}"))?;
    let port = listener.local_addr().expect("bound").port();
    let runtime = kernel::one_thread();
    let look = || {
        std::thread::sleep(REST);
        (memory::resident_bytes(), memory::slab_bytes())
    };
    let before = look();
    let pairs: Vec<(TcpStream, TcpStream)> = (0..conns)
        .map(|number| {
            let client = connect(port, number);
            (client, listener.accept().expect("a connection").0)
        })
        .collect();
    let between = look();
    let mut clients = Vec::with_capacity(pairs.len());
    runtime.block_on(async {
        for (client, server) in pairs {
            server.set_nonblocking(true).expect("a socket");
            tokio::spawn(kernel::echo(
                tokio::net::TcpStream::from_std(server).expect("a socket"),
            ));
            send_request(&client);
            client.set_nonblocking(true).expect("a socket");
            let mut first = [0];
            while client.peek(&mut first).is_err() {
                tokio::task::yield_now().await;
            }
            read_answer(&client);
            clients.push(client);
        }
    });
    let after = look();
    Ok(TokioMemory {
        program: grown(before.0, after.0, conns),
        kernel: grown(before.1, between.1, conns) / 2.0 + grown(between.1, after.1, conns),
    })
}

/// Raises the limit of open files as far as it goes, and returns how many of `wanted` connections there is room for.
fn room_for(wanted: u32) -> u32 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    // Two ends each, and what else is open.
    let most = files.map_or(wanted.into(), |files| files.saturating_sub(500) / 2);
    wanted.min(most as u32)
}

/// Time from `connect` to the whole answer, as a client of the kernel's sees it.
fn first_answer(report: &mut Report, rounds: usize, each: u32) {
    let (told, port) = channel();
    let built = Runtime::builder()
        .ignore_environment()
        .cores(1)
        .backend(BackendChoice::Portal)
        .build();
    let runtime = built.expect("a runtime");
    let handle = runtime.handle();
    let serving = std::thread::spawn(move || runtime.run(move || accept_all(told.clone())));
    let ports = [port.recv().expect("bound"), Kernel::tokio().port];
    let mut took = [const { [const { Vec::new() }; QUANTILES.len()] }; 2];
    let (mut bare, mut disturbed) = (Bare::default(), 0);
    for round in 0..rounds {
        bare.look(BARE);
        let stolen = stolen_ticks();
        let kept = took[0][0].len();
        for who in [round % 2, 1 - round % 2] {
            let mut times: Vec<u64> = (0..each).map(|_| answer_ns(ports[who])).collect();
            times.sort_unstable();
            for (at, q) in QUANTILES.into_iter().enumerate() {
                took[who][at].push(quantile(&times, q) / 1e3);
            }
        }
        // One round is kept whatever happens.
        if stolen_ticks() > stolen && round + 1 - disturbed > 1 {
            disturbed += 1;
            took.iter_mut()
                .flatten()
                .for_each(|runs| runs.truncate(kept));
        }
    }
    let aside = disturbed as f64 / rounds as f64;
    report.row(
        "disturbed_share",
        aside,
        "ratio",
        &[("work", "first answer".into())],
    );
    bare.rows(report);
    handle.stop();
    serving
        .join()
        .expect("the server's thread")
        .expect("the server ends");
    for (at, q) in QUANTILES.into_iter().enumerate() {
        let of = |server: &str| [("server", Value::from(server)), ("q", q.into())];
        report.median("first_answer_us", &took[0][at], "us", &of("janus, portal"));
        report.median("first_answer_us", &took[1][at], "us", &of("tokio"));
        let ratios = ratios(&took[0][at], &took[1][at]);
        report.median("janus_to_tokio", &ratios, "ratio", &of("janus, portal"));
    }
}

fn answer_ns(port: u16) -> u64 {
    let start = Instant::now();
    let stream = connect(port, 0);
    send_request(&stream);
    read_answer(&stream);
    start.elapsed().as_nanos() as u64
}

async fn accept_all(told: Sender<u16>) -> janus::Result {
    let listener = janus::net::TcpListener::bind("127.0.0.1:0").await?;
    let _ = told.send(listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        begin(&App::Echo, stream);
    }
}
