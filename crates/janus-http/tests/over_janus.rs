//! HTTP over Janus's own stack: kernel sockets through the portal, and this crate's client over the in-memory wire,
//! against servers of one and three cores in both placements.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::num::NonZeroU16;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use janus::net::{TcpListener, TcpStream};
use janus::{BackendChoice, Builder, Handle, Placement, Runtime};
use janus_http::{Connection, Error, Options, Request, Responder, Sent};
use janus_io::wire;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const PATIENCE: Duration = Duration::from_secs(120);
const LAYOUTS: [(usize, Placement); 4] = [
    (1, Placement::Combined),
    (3, Placement::Combined),
    (1, Placement::Split { io_cores: 1 }),
    (3, Placement::Split { io_cores: 2 }),
];

fn builder(cores: usize, placement: Placement) -> Builder {
    Runtime::builder()
        .ignore_environment()
        .cores(cores)
        .placement(placement)
        .packet_buffers(16 * 1024)
}

async fn handler(
    mut request: Request<'_, TcpStream>,
    response: Responder<'_, TcpStream>,
) -> janus_http::Result<Sent> {
    match request.path() {
        "/echo" => {
            let mut body = response.ok().stream().await?;
            while let Some(bytes) = request.body().next().await? {
                body.write(bytes).await?;
            }
            body.finish().await
        }
        "/count" => {
            let mut bytes = 0;
            while let Some(more) = request.body().next().await? {
                bytes += more.len();
            }
            response.ok().send(bytes.to_string()).await
        }
        "/large" => response.ok().send(pattern(300_000)).await,
        path if path.starts_with("/slow") => {
            janus::time::sleep(Duration::from_millis(5)).await;
            response.ok().send(path).await
        }
        path => {
            response
                .ok()
                .header("content-type", "text/plain")
                .send(path)
                .await
        }
    }
}

/// Ways to serve a listener.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// With a task for each connection.
    Tasks,
    /// With connections that rest between requests.
    AtRest,
}

/// Each layout with each way to serve.
fn servers() -> impl Iterator<Item = (usize, Placement, Way)> {
    let ways = [Way::Tasks, Way::AtRest];
    LAYOUTS
        .into_iter()
        .flat_map(move |(cores, placement)| ways.map(|way| (cores, placement, way)))
}

async fn serve(port: u16, way: Way, ready: Sender<SocketAddr>) -> janus::Result {
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    let _ = ready.send(listener.local_addr()?);
    if let Way::AtRest = way {
        return Ok(janus_http::serve_listener(listener, handler).await?);
    }
    loop {
        let (stream, _) = listener.accept().await?;
        let serving = janus_http::serve(stream, handler);
        assert!(
            size_of_val(&serving) <= 40,
            "a waiting connection takes {} bytes",
            size_of_val(&serving)
        );
        janus::spawn(serving);
    }
}

/// A runtime on a thread of its own.
struct Running {
    handle: Handle,
    thread: JoinHandle<janus::Result>,
}

impl Running {
    fn server(builder: Builder, port: u16, way: Way) -> (Self, SocketAddr) {
        let runtime = builder.build().unwrap();
        let (ready, address) = channel();
        let handle = runtime.handle();
        let thread =
            std::thread::spawn(move || runtime.run(move || serve(port, way, ready.clone())));
        (
            Self { handle, thread },
            address.recv_timeout(PATIENCE).unwrap(),
        )
    }

    fn stop(self) {
        self.handle.stop();
        self.thread.join().unwrap().unwrap();
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Sends `request` from a kernel socket and reads to the end.
fn ask(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

#[test]
fn kernel_clients_through_the_portal() {
    for (cores, placement, way) in servers() {
        let portal = builder(cores, placement).backend(BackendChoice::Portal);
        let (server, address) = Running::server(portal, 0, way);
        let address = SocketAddr::from(([127, 0, 0, 1], address.port()));

        // Pipelined: in order, and a slow one does not change that.
        let targets = ["/a", "/slow/b", "/c", "/slow/d", "/e"];
        let request: String = targets
            .map(|t| format!("GET {t} HTTP/1.1\r\nHost: x\r\n\r\n"))
            .concat();
        let answer = String::from_utf8(ask(address, request.as_bytes())).unwrap();
        let bodies: Vec<&str> = answer
            .split("\r\n\r\n")
            .skip(1)
            .map(|rest| rest.split("HTTP/").next().unwrap())
            .collect();
        assert_eq!(bodies, targets, "{cores} {placement:?} {way:?}: {answer}");

        let large = ask(address, b"GET /large HTTP/1.0\r\n\r\n");
        let head = find(&large, b"\r\n\r\n").unwrap() + 4;
        assert!(find(&large[..head], b"content-length: 300000\r\n").is_some());
        assert!(large[head..] == pattern(300_000));

        let head = ask(address, b"HEAD /large HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            head.ends_with(b"\r\n\r\n") && find(&head, b"content-length: 300000\r\n").is_some()
        );

        let mut upload =
            b"POST /count HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in pattern(200_000).chunks(7001) {
            upload.extend(format!("{:x}\r\n", chunk.len()).bytes());
            upload.extend_from_slice(chunk);
            upload.extend_from_slice(b"\r\n");
        }
        upload.extend_from_slice(b"0\r\n\r\n");
        assert!(ask(address, &upload).ends_with(b"\r\n\r\n200000"));

        // The answer to what is refused arrives although the client goes on sending.
        let mut smuggled = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        smuggled.extend(pattern(20_000));
        let refused = ask(address, &smuggled);
        assert!(
            refused.starts_with(b"HTTP/1.1 400 Bad Request\r\n"),
            "{}",
            String::from_utf8_lossy(&refused)
        );
        server.stop();
    }
}

/// A server that is told to end waits for no further request of the connections that are kept.
#[test]
fn kept_connections_do_not_hold_up_the_end() {
    for (cores, placement, way) in servers() {
        let portal = builder(cores, placement).backend(BackendChoice::Portal);
        let (server, address) = Running::server(portal, 0, way);
        let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
        let mut kept = std::net::TcpStream::connect(address).unwrap();
        kept.set_read_timeout(Some(PATIENCE)).unwrap();
        kept.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n/a") {
            let mut piece = [0; 1024];
            let count = kept.read(&mut piece).unwrap();
            assert!(count > 0, "the server keeps the connection");
            answer.extend_from_slice(&piece[..count]);
        }
        server.handle.shutdown(10 * PATIENCE);
        assert_eq!(kept.read(&mut [0]).unwrap(), 0, "ended in order");
        server.thread.join().unwrap().unwrap();
    }
}

/// Runs `client` `count` times at once at the far end of the wire, each in a task, until all have ended.
fn run_clients<F: Future<Output = ()> + 'static>(
    end: wire::End,
    count: usize,
    client: fn(usize) -> F,
) {
    let runtime = builder(1, Placement::Combined)
        .backend(BackendChoice::wire(end))
        .address("192.0.2.2/24".parse().unwrap())
        .build()
        .unwrap();
    let handle = runtime.handle();
    let thread = std::thread::spawn(move || {
        runtime.run(move || async move {
            let left = Rc::new(Cell::new(count));
            for index in 0..count {
                let left = left.clone();
                janus::spawn(async move {
                    client(index).await;
                    left.set(left.get() - 1);
                    if left.get() == 0 {
                        janus::handle().unwrap().stop();
                    }
                });
            }
            std::future::pending::<()>().await;
        })
    });
    let begin = std::time::Instant::now();
    while !thread.is_finished() {
        if begin.elapsed() > PATIENCE {
            handle.stop();
            panic!("the clients did not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap().unwrap();
}

async fn converse(index: usize) {
    let mut connection =
        Connection::connect(("192.0.2.1".parse::<std::net::IpAddr>().unwrap(), 80))
            .await
            .unwrap();
    for round in 0..20 {
        let target = format!("/{index}/{round}");
        let mut response = connection.get("x", &target).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.header("content-type"), Some(&b"text/plain"[..]));
        let mut body = Vec::new();
        response.read_to_end(&mut body).await.unwrap();
        assert_eq!(body, target.as_bytes());
    }
    let sent = pattern(50_000);
    let mut response = connection
        .send("POST", "/echo", &[("host", "x")], &sent)
        .await
        .unwrap();
    let mut body = Vec::new();
    response.read_to_end(&mut body).await.unwrap();
    assert!(body == sent, "{} bytes of {}", body.len(), sent.len());
    let closing = connection
        .send(
            "GET",
            "/bye",
            &[("host", "x"), ("connection", "close")],
            b"",
        )
        .await
        .unwrap();
    assert_eq!(closing.status(), 200);
    assert!(!connection.is_open());
    assert!(matches!(
        connection.get("x", "/").await,
        Err(Error::Misuse(_))
    ));
}

#[test]
fn janus_clients_over_the_wire() {
    for (cores, placement, way) in servers() {
        let queues = match placement {
            Placement::Combined => cores,
            Placement::Split { io_cores } => io_cores,
        };
        let (near, far) = wire::pair(wire::Config {
            queues: [queues, 1],
            depth: 2048,
            ..wire::Config::default()
        })
        .unwrap();
        let builder = builder(cores, placement)
            .backend(BackendChoice::wire(near))
            .address("192.0.2.1/24".parse().unwrap());
        let (server, _) = Running::server(builder, 80, way);
        run_clients(far, 32, converse);
        server.stop();
    }
}

static LIMITS: Options = Options {
    requests: NonZeroU16::new(3),
    ..Options::DEFAULT
};

/// A connection that is silent, one that sends what is no request, and one whose client has had what it may.
#[test]
fn limits_hold_at_rest_as_in_a_task() {
    for way in [Way::Tasks, Way::AtRest] {
        let (near, far) = wire::pair(wire::Config::default()).unwrap();
        let side = |end, address: &str| {
            let builder = builder(1, Placement::Combined).backend(BackendChoice::wire(end));
            builder.address(address.parse().unwrap())
        };
        let server = side(near, "192.0.2.1/24")
            .start_paused(true)
            .build()
            .unwrap();
        // One time for both: what is under way between them holds it.
        let client = side(far, "192.0.2.2/24").time_of(&server.handle());
        let client = client.build().unwrap();
        let handle = server.handle();
        let serving = std::thread::spawn(move || server.run(move || limited(way)));
        client.run(move || ask_within_limits(way)).unwrap();
        handle.stop();
        serving.join().unwrap().unwrap();
    }
}

async fn limited(way: Way) -> janus::Result {
    let listener = TcpListener::bind("0.0.0.0:80").await?;
    if let Way::AtRest = way {
        return Ok(janus_http::serve_listener_with(&LIMITS, listener, handler).await?);
    }
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(janus_http::serve_with(&LIMITS, stream, handler));
    }
}

async fn ask_within_limits(way: Way) -> janus::Result {
    let at: SocketAddr = "192.0.2.1:80".parse()?;
    while TcpStream::connect(at).await.is_err() {
        janus::time::sleep(Duration::from_millis(1)).await;
    }
    for (before, after, seconds) in [
        (&b""[..], &b""[..], 20),
        (b"", b"\r\n", 20),
        (GET, b"", 60),
        (GET, b"\r\n", 60),
    ] {
        let stream = TcpStream::connect(at).await?;
        stream.write_all(before).await?;
        if !before.is_empty() {
            assert_ne!(stream.read(&mut [0; 512]).await?, 0);
        }
        let start = janus::time::now();
        let lasted = loop {
            // What is no request, now and then: it does not lengthen the wait.
            let mut byte = [0];
            let end = janus::time::timeout(Duration::from_secs(5), stream.read(&mut byte));
            match end.await {
                Ok(end) => {
                    assert_eq!(end?, 0, "without a word");
                    break janus::time::now().saturating_since(start).as_secs_f64();
                }
                Err(_) => stream.write_all(after).await?,
            }
        };
        let limit = f64::from(seconds);
        // A task that is never left in silence looks at its clock once in each such time.
        let most = match way {
            Way::Tasks if !after.is_empty() => 2.0,
            _ => 1.13,
        };
        assert!(
            (limit - 0.01..limit * most + 1.0).contains(&lasted),
            "{way:?}, {after:?}: {lasted} s"
        );
    }
    let mut connection = Connection::connect(at).await?;
    for number in 1..=3 {
        let mut response = connection.get("x", "/").await?;
        response.read_to_end(&mut Vec::new()).await?;
        assert_eq!(connection.is_open(), number < 3);
    }
    Ok(())
}
