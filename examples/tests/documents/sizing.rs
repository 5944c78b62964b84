//! The formulas and figures of `docs/sizing.md`: computed again, and held to what runtimes say of themselves.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use janus::net::{TcpListener, TcpStream};
use janus::{BackendChoice, JoinSet, Runtime};
use janus_io::wire;

use crate::root;

const MIB: f64 = 1_048_576.0;
/// Bytes of TCP in a full segment over IPv4 with timestamps.
const SEGMENT: u64 = 1_448;
const BUFFER: u64 = 2_048;
const DESCRIPTOR: u64 = 32;
/// Of the runtimes that are looked at.
const BUFFERS: u32 = 8_192;
/// Connections opened at a time.
const TOGETHER: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);

fn document() -> String {
    fs::read_to_string(root().join("docs/sizing.md")).unwrap()
}

fn base(cores: u64) -> u64 {
    (16 + 3 * cores) << 20
}

/// 160000 as `160,000`.
fn grouped(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}

fn says(text: &str, words: &str) {
    assert!(
        text.contains(words),
        "docs/sizing.md does not say `{words}`"
    );
}

#[test]
fn the_worked_example_is_computed() {
    let text = document();
    let packets = 10_000 * (16_384_u64).div_ceil(SEGMENT);
    let parts = [
        base(4),
        1_000_000 * (88 + 64),
        10_000 * 256,
        packets * (BUFFER + DESCRIPTOR),
    ];
    let mib = |bytes: u64| (bytes as f64 / MIB).round() as u64;
    for ((part, bytes), name) in
        parts
            .iter()
            .enumerate()
            .zip(["base", "connections", "busy", "packets"])
    {
        let begins = format!("| {name} | ");
        let row = text.lines().find(|line| line.starts_with(&begins));
        let row = row.unwrap_or_else(|| panic!("a row {name}"));
        assert!(
            row.ends_with(&format!("| {} |", mib(*bytes))),
            "part {part}: {row}"
        );
    }
    says(&text, &format!("| sum | | {} |", mib(parts.iter().sum())));
    let buffers = packets * 4 / 3;
    says(&text, &format!("= {}.", grouped(buffers)));
    says(
        &text,
        &format!("packet_buffers = {}", grouped(buffers).replace(',', "_")),
    );
    let on_the_way = 10_u64.pow(10) / 8 / 50;
    says(
        &text,
        &format!("{} packets", grouped(on_the_way.div_ceil(SEGMENT))),
    );
    says(&text, &format!("holds {} packets", grouped(65_536 * 3 / 4)));
}

/// The figures of idle connections are those that docs/benchmarks.md shows.
#[test]
fn figures_are_those_of_the_benchmarks() {
    let benchmarks = fs::read_to_string(root().join("docs/benchmarks.md")).unwrap();
    let text = document();
    for (there, here) in [
        (
            "at rest, echo or HTTP | 79 B (over IPv6 104 B)",
            "over IPv6 | 79 bytes; 104",
        ),
        (
            "with its task, echo or HTTP | 145 B (over IPv6 169 B)",
            "over IPv6 | 145 bytes; 169",
        ),
        ("| 1.15 M/s: 870 ns each", "1.15 million short connections"),
        ("| 2.2 M/s, 1.7 M/s", "2.2 million HTTP requests"),
        (
            "| 51 Mpps, 45 Mpps",
            "45 million packets a second on\n  one thread, split 51 million on two",
        ),
    ] {
        assert!(
            benchmarks.contains(there),
            "docs/benchmarks.md does not say `{there}`"
        );
        says(&text, here);
    }
}

/// A process that is killed with the value.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_without_connections_takes_the_base() {
    let mut hello = std::env::current_exe().unwrap();
    hello.pop();
    hello.set_file_name("examples");
    for cores in [1, 4] {
        let mut command = Command::new(hello.join("hello"));
        command.arg("127.0.0.1:0").stdout(Stdio::piped());
        command.env("JANUS_CORES", cores.to_string());
        let mut child = command.spawn().expect("the example is built");
        let mut said = child.stdout.take().unwrap();
        let child = Program(child);
        std::io::Read::read(&mut said, &mut [0; 64]).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", child.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        let share = (kib << 10) as f64 / base(cores) as f64;
        assert!((0.3..1.2).contains(&share), "{cores} cores: {kib} KiB");
    }
}

/// Figures of a server's core: connections, bytes of idle ones, packet buffers out of the depot.
#[derive(Clone, Copy, Debug, Default)]
struct Grown {
    connections: u64,
    idle: u64,
    buffers: u64,
}

/// Returns the growth of a server's core by `count` connections, each with so many full `segments` that it does not read.
fn grown(count: usize, segments: usize) -> Grown {
    let (near, far) = wire::pair(wire::Config {
        depth: 256,
        ..wire::Config::default()
    })
    .unwrap();
    let start = |end, address: &str| {
        let builder = Runtime::builder()
            .ignore_environment()
            .cores(1)
            .address(address.parse().unwrap());
        let builder = builder.packet_buffers(BUFFERS);
        builder.backend(BackendChoice::wire(end)).build().unwrap()
    };
    let (server, clients) = (start(near, "192.0.2.1/24"), start(far, "192.0.2.2/24"));
    let (of_server, of_clients) = (server.handle(), clients.handle());
    let (tell, told) = channel();
    let serving = thread::spawn(move || {
        server.run(move || {
            let tell = tell.clone();
            async move {
                tell.send(serve(count, segments).await?)?;
                janus::Result::<()>::Ok(())
            }
        })
    });
    let asking =
        thread::spawn(move || clients.run(move || send(count, segments * SEGMENT as usize)));
    let grown = told
        .recv_timeout(2 * PATIENCE)
        .expect("the server has looked");
    of_clients.stop();
    of_server.stop();
    for ended in [asking.join(), serving.join()] {
        ended.unwrap().unwrap();
    }
    grown
}

fn look() -> Grown {
    let report = janus::report().expect("this is a core");
    let memory = report.memory;
    Grown {
        connections: report.connections as u64,
        idle: (memory.tcb + memory.table + report.task_bytes) as u64,
        buffers: report.buffers.outstanding as u64,
    }
}

/// A task waits with each stream, in 64 bytes, and reads nothing.
async fn serve(count: usize, segments: usize) -> janus::Result<Grown> {
    let (before, came) = (look(), segments_in());
    let listener = TcpListener::bind("0.0.0.0:7").await?;
    for _ in 0..count {
        let (stream, _) = listener.accept().await?;
        janus::spawn(async move {
            std::future::pending::<()>().await;
            drop(stream);
        });
    }
    // A SYN went before; the acknowledgement of ours may come with data.
    let all = count * (segments + 1);
    let begin = Instant::now();
    while segments_in() - came < all as u64 {
        assert!(begin.elapsed() < PATIENCE, "all segments come");
        janus::time::sleep(Duration::from_millis(5)).await;
    }
    let now = look();
    Ok(Grown {
        connections: now.connections - before.connections,
        idle: now.idle - before.idle,
        buffers: now.buffers - before.buffers,
    })
}

fn segments_in() -> u64 {
    janus::report().expect("this is a core").tcp.segments_in
}

async fn send(count: usize, bytes: usize) -> janus::Result {
    let mut open = Vec::new();
    while open.len() < count {
        let mut some = JoinSet::new();
        for _ in 0..TOGETHER.min(count - open.len()) {
            some.spawn(async move {
                let stream = TcpStream::connect("192.0.2.1:7").await?;
                stream.write_all(&vec![7; bytes]).await?;
                std::io::Result::Ok(stream)
            });
        }
        for stream in some.join_all().await {
            open.push(stream?);
        }
    }
    std::future::pending().await
}

#[test]
fn what_nobody_reads_takes_a_buffer_for_each_segment() {
    let grown = grown(200, 10);
    assert_eq!(grown.connections, 200);
    // A thread's stock, an eighth of all buffers at most, is added, and may have been there before.
    let stock = u64::from(BUFFERS) / 8;
    assert!(
        (2_000 - stock..2_000 + stock).contains(&grown.buffers),
        "{grown:?}"
    );
}

#[test]
fn idle_connections_take_what_the_formula_says() {
    let count = 6_000;
    let grown = grown(count, 0);
    assert_eq!(grown.connections, count as u64);
    let formula = count as u64 * (88 + 64);
    // Each of the three stores grows by up to as much as it has, and has its next chunk beforehand.
    assert!(
        (formula * 8 / 10..formula * 4).contains(&grown.idle),
        "{grown:?}, the formula says {formula}"
    );
}
