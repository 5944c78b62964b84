//! The admin port of whole runtimes: what it says of traffic that was made, of a core that stalls, of the end; and who comes to it
//! with bad intentions.

use std::future::pending;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream as Plain};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, spawn};

use janus_io::wire;

use super::exchange::{HEAD_MAX, PATIENCE};
use super::*;
use crate::metrics::gather;
use crate::net::{TcpListener, TcpStream};
use crate::{BackendChoice, Builder, Handle, Runtime};

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(120);
const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

fn builder(cores: usize, end: wire::End) -> Builder {
    let builder = Runtime::builder().ignore_environment().cores(cores);
    builder
        .packet_buffers(16 * 1024)
        .backend(BackendChoice::wire(end))
}

fn wire_of(cores: usize) -> (wire::End, wire::End) {
    let config = wire::Config {
        queues: [cores, 1],
        depth: 2048,
        ..wire::Config::default()
    };
    wire::pair(config).expect("a wire")
}

/// A runtime on a thread of its own.
struct Running {
    handle: Handle,
    at: SocketAddr,
    thread: JoinHandle<crate::Result>,
}

impl Running {
    fn start<M, F>(builder: Builder, main: M) -> Running
    where
        M: Fn() -> F + Send + Sync + 'static,
        F: Future<Output: crate::MainResult> + 'static,
    {
        let runtime = builder.admin(ANY).build().expect("a runtime");
        let handle = runtime.handle();
        let at = handle.admin().expect("an admin port");
        assert!(at.ip().is_loopback() && at.port() > 0);
        let thread = spawn(move || runtime.run(main));
        Running { handle, at, thread }
    }

    /// A page, by its path: status and body.
    fn page(&self, path: &str) -> (u16, String) {
        let (head, body) = ask(self.at, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.expect("a status"), body)
    }

    fn health(&self) -> (u16, String) {
        self.page("/healthz")
    }

    /// The health once it has this status.
    /// Waits until health says just this; what a busy machine holds up for a moment may say else before.
    fn until_health_says(&self, wanted: (u16, &str)) {
        let begin = Instant::now();
        loop {
            let (status, body) = self.health();
            if (status, &*body) == wanted {
                return;
            }
            assert!(begin.elapsed() < LONG, "still {status}: {body}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the two cores are stalled or not, as `wanted`; returns the metrics that say it.
    fn until_stalled(&self, wanted: [f64; 2]) -> String {
        let begin = Instant::now();
        loop {
            let text = self.metrics();
            let is = [0, 1].map(|core| {
                let name = format!("janus_core_stalled{{core=\"{core}\"}}");
                value(&text, &name)
            });
            if is == wanted {
                return text;
            }
            assert!(begin.elapsed() < LONG, "still {is:?}");
        }
    }

    fn metrics(&self) -> String {
        let (status, text) = self.page("/metrics");
        assert_eq!(status, 200);
        text
    }

    /// Waits for its end; its port is closed then.
    fn join(self) {
        self.thread.join().expect("no panic").expect("a good end");
        assert!(Plain::connect(self.at).is_err(), "the port is still open");
    }
}

/// Says something, and returns head and body of the answer; both empty if there is none.
fn ask(at: SocketAddr, request: &str) -> (String, String) {
    let mut socket = Plain::connect(at).expect("the port is open");
    socket.set_read_timeout(Some(LONG)).expect("a timeout");
    socket.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    socket
        .read_to_string(&mut answer)
        .expect("it ends in order");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.to_owned(), body.to_owned())
}

/// The values of a metric, summed over its labels.
fn value(text: &str, name: &str) -> f64 {
    let of_it = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{']))
    };
    let values = text
        .lines()
        .filter(of_it)
        .filter_map(|line| line.rsplit(' ').next());
    let values: Vec<f64> = values
        .map(|value| value.parse().expect("a number"))
        .collect();
    assert!(!values.is_empty(), "{name} is not in\n{text}");
    values.iter().sum()
}

/// Opens so many connections from the far end, has each say hello and hear it, and tells; they end when `end` does.
fn clients(far: wire::End, count: usize) -> (JoinHandle<crate::Result>, Handle, Receiver<()>) {
    let runtime = builder(1, far)
        .address("192.0.2.2/24".parse().unwrap())
        .build()
        .expect("a runtime");
    let handle = runtime.handle();
    let (tell, told) = channel();
    let thread = spawn(move || {
        let tell = Mutex::new(tell);
        runtime.run(move || {
            let tell: Sender<()> = tell.lock().expect("whole").clone();
            async move {
                let mut held = Vec::new();
                for _ in 0..count {
                    let stream = TcpStream::connect("192.0.2.1:80").await?;
                    stream.write_all(b"hello").await?;
                    stream.read_exact(&mut [0; 5]).await?;
                    held.push(stream);
                }
                tell.send(())?;
                pending::<crate::Result>().await
            }
        })
    });
    (thread, handle, told)
}

async fn echo() -> crate::Result {
    let listener = TcpListener::bind("0.0.0.0:80").await?;
    loop {
        let (stream, _) = listener.accept().await?;
        crate::spawn(async move {
            while let Ok(Some(piece)) = stream.recv().await {
                if stream.send_buf(piece).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Seven connections over three cores: on `/metrics` as in the text that a task asks for.
#[test]
fn the_metrics_are_those_of_the_traffic_that_was_made() {
    let (near, far) = wire_of(3);
    let running = Running::start(
        builder(3, near).address("192.0.2.1/24".parse().unwrap()),
        echo,
    );
    let (client, client_end, told) = clients(far, 7);
    told.recv_timeout(LONG).expect("all were served");
    let text = running.metrics();
    for (name, expected) in [
        ("janus_serving", 1.0),
        ("janus_cores", 3.0),
        ("janus_core_stalled", 0.0),
        ("janus_connections", 7.0),
        ("janus_connections_half_open", 0.0),
        ("janus_tcp_accepted_total", 7.0),
        ("janus_tcp_connected_total", 0.0),
        ("janus_tcp_resets_out_total", 0.0),
        ("janus_tcp_buffers_given_total", 7.0),
        ("janus_tcp_buffers_copied_total", 0.0),
        ("janus_tcp_dropped_total", 0.0),
        ("janus_io_dropped_frames_total", 0.0),
        // Three mains, seven connections.
        ("janus_tasks_spawned_total", 10.0),
        ("janus_tasks", 10.0),
        ("janus_tasks_panicked_total", 0.0),
        ("janus_packet_buffers_capacity", 16.0 * 1024.0),
        ("janus_packet_buffers", 16.0 * 1024.0),
        ("janus_admin_requests_total", 1.0),
    ] {
        assert_eq!(value(&text, name), expected, "{name}");
    }
    for core in 0..3 {
        assert!(value(&text, &format!("janus_turns_total{{core=\"{core}\"}}")) > 0.0);
    }
    assert!(value(&text, "janus_busy_seconds_total") > 0.0);
    // SYN and request at least; the request acknowledges the SYN-ACK, and the answer may not be acknowledged yet.
    assert!(value(&text, "janus_tcp_segments_in_total") >= 14.0);
    assert!(value(&text, "janus_turn_packets_sum") >= 14.0);
    // One broadcast is a frame for each core, and a forwarded frame comes in twice.
    let frames = value(&text, "janus_tcp_frames_in_total");
    let twice = value(&text, "janus_forwarded_frames_total");
    assert!(value(&text, "janus_io_delivered_frames_total") + twice >= frames);
    let inside = running.handle.spawn_on(1, || gather(Format::OpenMetrics));
    let (tell, told_text) = channel();
    running
        .handle
        .spawn_on(0, move || async move { tell.send(inside.await) });
    let inside = told_text
        .recv_timeout(LONG)
        .expect("an answer")
        .expect("a text");
    for name in [
        "janus_connections",
        "janus_tcp_accepted_total",
        "janus_admin_requests_total",
    ] {
        assert_eq!(value(&inside, name), value(&text, name), "{name}");
    }
    client_end.stop();
    client.join().expect("no panic").expect("a good end");
    let begin = Instant::now();
    let text = loop {
        let text = running.metrics();
        if value(&text, "janus_connections") == 0.0 {
            break text;
        }
        assert!(begin.elapsed() < LONG, "{text}");
    };
    assert_eq!(value(&text, "janus_tcp_accepted_total"), 7.0);
    running.handle.stop();
    running.join();
}

#[test]
fn each_format_is_what_was_asked_for() {
    let (near, _far) = wire_of(1);
    let running = Running::start(builder(1, near), pending::<()>);
    let get = |accept| format!("GET /metrics?x=1 HTTP/1.1\r\nhost: x\r\nACCEPT: {accept}\r\n\r\n");
    let (head, open) = ask(running.at, &get("*/*"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(head.contains(
        "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
    ));
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", open.len())));
    assert!(open.ends_with("# EOF\n"));
    let (head, plain) = ask(running.at, &get("text/plain"));
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(plain.contains("# TYPE janus_turns_total counter\n"));
    let (head, none) = ask(running.at, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && none.is_empty());
    running.until_health_says((200, "ok\n"));
    running.handle.stop();
    running.join();
}

/// Time that jumps does not jump past a core's answer.
#[test]
fn a_task_gathers_in_paused_time_too() {
    let (near, _far) = wire_of(2);
    let running = Running::start(builder(2, near).start_paused(true), pending::<()>);
    for core in [0, 1, 0] {
        let (tell, told) = channel();
        running.handle.spawn_on(core, move || async move {
            tell.send(gather(Format::OpenMetrics).await)
        });
        let text = told.recv_timeout(LONG).expect("an answer");
        assert_eq!(value(&text, "janus_core_stalled"), 0.0, "{text}");
        assert!(value(&text, "janus_turns_total{core=\"1\"}") > 0.0);
    }
    running.until_health_says((200, "ok\n"));
    running.handle.stop();
    running.join();
}

/// A core that one task keeps: named by the watchdog, or, where that does not watch, because it does not answer.
fn a_stall_is_told(warn_blocked: Option<Duration>, says: &str) {
    let (near, _far) = wire_of(2);
    let builder = builder(2, near)
        .warn_blocked(warn_blocked)
        .on_warning(|_| {});
    let running = Running::start(builder, pending::<()>);
    running.until_health_says((200, "ok\n"));
    let polls = value(&running.metrics(), "janus_task_polls_total");
    let (end, ends) = channel::<()>();
    running
        .handle
        .spawn_on(1, move || async move { _ = ends.recv() });
    running.until_health_says((503, says));
    let begin = Instant::now();
    running.metrics();
    assert!(begin.elapsed() < LONG / 2);
    let text = running.until_stalled([0.0, 1.0]);
    assert!(
        value(&text, "janus_turns_total{core=\"1\"}") > 0.0,
        "its last answer counts"
    );
    assert!(value(&text, "janus_task_polls_total") >= polls);
    // A task that asks is not held up either.
    let (tell, told) = channel();
    running.handle.spawn_on(0, move || async move {
        tell.send(gather(Format::OpenMetrics).await)
    });
    let inside = told.recv_timeout(LONG).expect("an answer");
    assert_eq!(value(&inside, "janus_core_stalled{core=\"1\"}"), 1.0);
    drop(end);
    running.until_health_says((200, "ok\n"));
    running.until_stalled([0.0, 0.0]);
    running.handle.stop();
    running.join();
}

#[test]
fn a_core_that_a_task_keeps_is_unwell_until_it_goes_on() {
    let says = "stalled: core 1: one task keeps it\n";
    a_stall_is_told(Some(Duration::from_millis(40)), says);
}

#[test]
fn a_core_that_does_not_answer_is_unwell_until_it_does() {
    a_stall_is_told(None, "stalled: core 1: it does not answer\n");
}

/// Load balancers learn of the end while connections are still served, and to the last moment.
#[test]
fn it_says_that_the_runtime_ends_until_it_has_ended() {
    let (near, far) = wire_of(2);
    let running = Running::start(
        builder(2, near).address("192.0.2.1/24".parse().unwrap()),
        echo,
    );
    let (client, client_end, told) = clients(far, 2);
    told.recv_timeout(LONG).expect("all were served");
    running.until_health_says((200, "ok\n"));
    running.handle.shutdown(LONG);
    assert_eq!(running.health(), (503, "shutting down\n".into()));
    let text = running.metrics();
    assert_eq!(value(&text, "janus_serving"), 0.0);
    assert_eq!(value(&text, "janus_connections"), 2.0);
    assert!(!running.thread.is_finished());
    client_end.stop();
    client.join().expect("no panic").expect("a good end");
    running.join();
}

#[test]
fn a_port_that_cannot_be_had_is_an_error_that_names_the_key() {
    let taken = std::net::TcpListener::bind(ANY).expect("a port");
    let at = taken.local_addr().expect("it has one");
    // Where an address is not this machine's.
    for at in [at, ([192, 0, 2, 77], 9464).into()] {
        let (near, _far) = wire_of(1);
        let error = builder(1, near).admin(at).build().expect_err("it is taken");
        let error = error.to_string();
        assert!(
            error.starts_with(&format!("`admin`: {at} cannot be listened on: ")),
            "{error}"
        );
    }
}

#[test]
fn a_runtime_that_never_runs_gives_the_port_back() {
    let (near, _far) = wire_of(1);
    let runtime = builder(1, near).admin(ANY).build().expect("a runtime");
    let handle = runtime.handle();
    let at = handle.admin().expect("a port");
    drop(runtime);
    std::net::TcpListener::bind(at).expect("it is free, although a handle is left");
}

#[test]
fn what_is_no_request_is_refused_and_harms_nobody() {
    let (near, _far) = wire_of(1);
    let running = Running::start(builder(1, near), pending::<()>);
    let long = format!(
        "GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(HEAD_MAX)
    );
    let endless = "y".repeat(4 * HEAD_MAX);
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"),
        ("GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
        ("GET /healthz HTTP/1.0\n\n", "200 OK"),
        (
            "POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
            "405 Method Not Allowed",
        ),
        ("GET /healthz HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (
            "GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
            "400 Bad Request",
        ),
        (
            "GET /healthz HTTP/1.1\r\nHost: x\r\nno field\r\n\r\n",
            "400 Bad Request",
        ),
        (
            "GET /healthz HTTP/2.0\r\n\r\n",
            "505 HTTP Version Not Supported",
        ),
        (
            "GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
            "400 Bad Request",
        ),
        ("\r\n\r\n", "400 Bad Request"),
        ("\u{16}\u{3}\u{1}\u{0}\n\n", "400 Bad Request"),
        (&long, "431 Request Header Fields Too Large"),
        (&endless, "431 Request Header Fields Too Large"),
    ] {
        let (head, _) = ask(running.at, request);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{request:.60}: {head}"
        );
        assert_eq!(head.contains("\r\nAllow: "), status.starts_with("405"));
    }
    // No text at all; and one that ends before it has asked.
    let mut noise = Plain::connect(running.at).expect("it is open");
    noise
        .write_all(b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("it is taken");
    let mut answer = String::new();
    noise.read_to_string(&mut answer).expect("it ends in order");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut cut = Plain::connect(running.at).expect("it is open");
    cut.write_all(b"GET /hea").expect("it is taken");
    cut.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(cut.read(&mut [0]).expect("it ends in order"), 0);
    running.until_health_says((200, "ok\n"));
    running.handle.stop();
    running.join();
}

/// Who says nothing, or too little, or takes no answer, keeps no operator waiting.
#[test]
fn a_crowd_on_the_port_is_bounded_and_an_operator_is_served() {
    let (near, _far) = wire_of(1);
    let running = Running::start(builder(1, near), pending::<()>);
    let crowd: Vec<Plain> = (0..4 * OPEN_MAX)
        .map(|_| {
            let mut slow = Plain::connect(running.at).expect("it is open");
            slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: ")
                .expect("it is taken");
            slow
        })
        .collect();
    let begin = Instant::now();
    let text = running.metrics();
    assert!(
        begin.elapsed() < PATIENCE,
        "it did not wait for their time to be up"
    );
    let crowded = value(
        &text,
        "janus_admin_connections_dropped_total{cause=\"crowded\"}",
    );
    assert!(crowded >= (3 * OPEN_MAX) as f64, "{crowded}");
    let open = |mut slow: &Plain| {
        slow.set_nonblocking(true).expect("it is ours");
        matches!(slow.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    assert!(crowd.iter().filter(|slow| open(slow)).count() < OPEN_MAX);
    // They do not hold up the end either.
    running.handle.stop();
    running.join();
}

/// The loop itself, at times of the test's own.
#[test]
fn every_phase_of_an_exchange_ends_in_time() {
    let (near, _far) = wire_of(1);
    let runtime = builder(1, near).build().expect("a runtime");
    let port = AdminPort::open(ANY.into()).expect("a port");
    let at = port.at();
    let (ends, _end) = pipe().expect("a pipe");
    let metrics = runtime.handle().metrics();
    let mut server = Server {
        listener: port.listener,
        ends,
        metrics: metrics.clone(),
        open: Vec::new(),
        accepts_at: None,
        asked: None,
    };
    let begin = |server: &mut Server, said: &[u8]| {
        let mut peer = Plain::connect(at).expect("it is open");
        peer.write_all(said).expect("it is taken");
        let now = Instant::now();
        while server.open.is_empty() {
            server.accept(now);
        }
        (peer, now)
    };
    let slow = || metrics.collected.counters.slow.get();
    // A head that does not end.
    let (_peer, now) = begin(&mut server, b"GET /healthz HT");
    assert!(server.step(0, now + PATIENCE / 2));
    assert!(!server.step(0, now + PATIENCE));
    assert_eq!(slow(), 1);
    server.open.clear();
    // An answered peer that does not close: no fault of anybody's.
    let (_peer, now) = begin(&mut server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    while server.open[0].is_under_way() {
        assert!(server.step(0, now));
    }
    assert!(!server.step(0, Instant::now() + PATIENCE));
    assert_eq!(slow(), 1);
    server.open.clear();
    // One that takes no answer, which is longer than what sockets hold.
    let (_peer, _) = begin(&mut server, b"");
    let answer = Response::plain("200 OK", "x".repeat(64 << 20));
    server.open[0].answer(&answer, false, Instant::now());
    assert!(server.step(0, Instant::now()));
    assert!(server.open[0].is_under_way());
    assert!(!server.step(0, Instant::now() + PATIENCE));
    assert_eq!(slow(), 2);
}
