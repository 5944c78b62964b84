//! The bounds on time of both HTTP servers, this project's own and hyper's, with the defaults of `janus_http::Options`: within
//! each a peer is served, beyond it the connection ends as HTTP says. In a time that jumps, so that hours take none.

use std::fmt::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Frame;
use hyper::{Request, Response, StatusCode};
use janus::net::{TcpListener, TcpStream};
use janus::time::{Instant, Sleep, now, sleep};
use janus::{BackendChoice, BoxError};
use janus_compat_tests::{Running, builder, told};
use janus_http::hyper::RequestBody;
use janus_http::{Options, Responder, Sent};
use janus_io::wire;

mod http2;
mod requests;
mod waiting;
mod writing;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const SERVER: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    80,
);
/// Where the server says what it holds.
const HELD: u16 = 81;
const LARGE: usize = 8 << 20;
const MEDIUM: usize = 1 << 20;
const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// The server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Own,
    Hypers,
}

const BOTH: [Kind; 2] = [Kind::Own, Kind::Hypers];

static DEFAULT: Options = Options::DEFAULT;
static UNBOUNDED: Options = Options {
    first_byte_timeout: None,
    head_timeout: None,
    body_timeout: None,
    body_rate: None,
    idle_timeout: None,
    write_timeout: None,
    ..Options::DEFAULT
};

async fn own(
    mut request: janus_http::Request<'_, TcpStream>,
    response: Responder<'_, TcpStream>,
) -> janus_http::Result<Sent> {
    match request.path() {
        "/count" => {
            let mut count = 0;
            while let Some(bytes) = request.body().next().await? {
                count += bytes.len();
            }
            response.ok().send(count.to_string()).await
        }
        "/think" => {
            sleep(HOUR).await;
            response.ok().send("ok").await
        }
        "/large" => response.ok().send(vec![b'L'; LARGE]).await,
        "/medium" => response.ok().send(vec![b'L'; MEDIUM]).await,
        "/ticks" => {
            let mut body = response.ok().stream().await?;
            for _ in 0..3 {
                body.write(b"tick").await?;
                body.flush().await?;
                sleep(HOUR).await;
            }
            body.finish().await
        }
        _ => response.ok().send("ok").await,
    }
}

/// A body that comes piece by piece.
struct Pieces {
    left: usize,
    piece: &'static [u8],
    every: Duration,
    wait: Sleep,
}

impl Pieces {
    fn new(count: usize, piece: &'static [u8], first: Duration, every: Duration) -> Pieces {
        let (left, wait) = (count, sleep(first));
        Pieces {
            left,
            piece,
            every,
            wait,
        }
    }
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        ready!(Pin::new(&mut self.wait).poll(cx));
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.wait = sleep(self.every);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(self.piece)))))
    }
}

/// A large body in medium pieces.
fn in_pieces() -> Pieces {
    static PIECE: [u8; MEDIUM] = [b'L'; MEDIUM];
    Pieces::new(LARGE / MEDIUM, &PIECE, Duration::ZERO, Duration::ZERO)
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

async fn hypers(request: Request<RequestBody>) -> Result<Answer, BoxError> {
    let full = |bytes: Bytes| Full::new(bytes).map_err(BoxError::from).boxed_unsync();
    let body = match request.uri().path() {
        "/count" => {
            let body = request.into_body().collect().await?.to_bytes();
            full(body.len().to_string().into())
        }
        // As axum's extractors do.
        "/count-or-400" => {
            if request.into_body().collect().await.is_err() {
                let mut refused = Response::new(full(Bytes::new()));
                *refused.status_mut() = StatusCode::BAD_REQUEST;
                return Ok(refused);
            }
            full("all".into())
        }
        "/think" => {
            sleep(HOUR).await;
            full("ok".into())
        }
        "/large" => full(vec![b'L'; LARGE].into()),
        "/medium" => full(vec![b'L'; MEDIUM].into()),
        "/ticks" => Pieces::new(3, b"tick", Duration::ZERO, HOUR).boxed_unsync(),
        "/many" => in_pieces().boxed_unsync(),
        "/trailers" => {
            let trailers = async { Some(Ok(hyper::HeaderMap::new())) };
            in_pieces().with_trailers(trailers).boxed_unsync()
        }
        "/upgrade" => return Ok(writing::upgrade(request, full(Bytes::new()))),
        _ => full("ok".into()),
    };
    Ok(Response::new(body))
}

async fn serve(kind: Kind, options: &'static Options) {
    let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
    match kind {
        Kind::Own => loop {
            let (stream, _) = listener.accept().await.unwrap();
            janus::spawn(janus_http::serve_with(options, stream, own));
        },
        Kind::Hypers => {
            let service = tower::service_fn(hypers);
            let served = janus_http::hyper::serve_with(options, listener, move |_| service);
            served.await.unwrap();
        }
    }
}

/// Tells everyone who connects how many connections there are besides, and how many tasks.
async fn tell_what_is_held() {
    let listener = TcpListener::bind(("0.0.0.0", HELD)).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let report = janus::report().unwrap();
        let text = format!("{} {}", report.connections - 1, report.tasks);
        stream.write_all(text.as_bytes()).await.unwrap();
    }
}

/// Runs `client` against a server of one core, both by the same time, which jumps.
fn with<F: Future<Output = ()> + 'static>(
    kind: Kind,
    options: &'static Options,
    client: impl Fn(Kind) -> F + Send + Sync + 'static,
) {
    let (near, far) = wire::pair(wire::Config::default()).unwrap();
    let server = builder(1)
        .address("192.0.2.1/24".parse().unwrap())
        .backend(BackendChoice::wire(near))
        .start_paused(true)
        .build()
        .unwrap();
    let runtime = builder(1)
        .address("192.0.2.2/24".parse().unwrap())
        .backend(BackendChoice::wire(far))
        .time_of(&server.handle())
        .build()
        .unwrap();
    let (tell, ready) = told();
    let server = Running::run(server, move || {
        let tell = tell.clone();
        async move {
            janus::spawn(tell_what_is_held());
            janus::spawn(serve(kind, options));
            // Both listen by then.
            janus::yield_now().await;
            tell.send(())?;
            std::future::pending::<Result<(), BoxError>>().await
        }
    });
    ready.next();
    let client = Running::run(runtime, move || client(kind));
    client.join();
    server.stop();
}

/// Runs `client` against both servers.
fn with_both<F: Future<Output = ()> + 'static>(client: fn(Kind) -> F) {
    for kind in BOTH {
        with(kind, &DEFAULT, client);
    }
}

/// Connections and tasks of the server.
async fn held() -> (usize, usize) {
    let stream = TcpStream::connect((SERVER.ip(), HELD)).await.unwrap();
    let text = Peer::of(stream).rest().await.0;
    let (connections, tasks) = text.split_once(' ').unwrap();
    (connections.parse().unwrap(), tasks.parse().unwrap())
}

/// A client that says what it likes, when it likes.
struct Peer {
    stream: TcpStream,
    /// When it last began to do something.
    since: Instant,
}

impl Peer {
    async fn open() -> Peer {
        Peer::of(TcpStream::connect(SERVER).await.unwrap())
    }

    fn of(stream: TcpStream) -> Peer {
        let since = now();
        Peer { stream, since }
    }

    /// Says `text`; times count from here.
    async fn say(&mut self, text: &str) {
        self.since = now();
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Says a byte of `text` each `every`, until it is told something or the connection ends; how many it said.
    async fn drip(&mut self, text: &str, every: Duration) -> usize {
        self.since = now();
        for (said, byte) in text.bytes().enumerate() {
            let mut heard = [0];
            let heard = janus::time::timeout(every, self.stream.peek(&mut heard));
            if heard.await.is_ok() || self.stream.write_all(&[byte]).await.is_err() {
                return said;
            }
        }
        text.len()
    }

    /// Hears up to the end of `text`.
    async fn hear(&mut self, text: &str) -> String {
        let mut heard = String::new();
        while !heard.ends_with(text) {
            let mut piece = [0; 4096];
            let count = self.stream.read(&mut piece).await.expect("no reset");
            assert!(count > 0, "ended after {heard:?}");
            write!(heard, "{}", std::str::from_utf8(&piece[..count]).unwrap()).unwrap();
        }
        heard
    }

    /// Asks, and is answered.
    async fn ask(&mut self) {
        self.say(GET).await;
        assert!(self.hear("ok").await.starts_with("HTTP/1.1 200 "));
    }

    /// Hears all up to the end, which is in order; and after how long it came.
    async fn rest(&mut self) -> (String, Duration) {
        let mut heard = Vec::new();
        loop {
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece).await.expect("no reset") {
                0 => break,
                count => heard.extend_from_slice(&piece[..count]),
            }
        }
        (
            String::from_utf8(heard).unwrap(),
            now().saturating_since(self.since),
        )
    }
}

/// Longest duration of a wait limited by `limit`: an eighth longer by the sweep; never shorter, to the millisecond.
fn assert_bounded(took: Duration, limit: Duration) {
    assert!(
        took + SECOND / 1_000 >= limit && took <= limit + limit / 8 + SECOND / 10,
        "{took:?}, not {limit:?}"
    );
}

/// The answer to what took too long, with which the connection ends.
fn assert_408(text: &str) {
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    assert!(
        text.to_lowercase().contains("\r\nconnection: close\r\n"),
        "{text}"
    );
}
