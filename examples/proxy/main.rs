//! A reverse proxy: requests go to one of several servers that are alive, bodies pass through piece by piece.
//!
//! ```sh
//! cargo run --release --example hello -- 127.0.0.1:9001 &        # some servers
//! cargo run --release --example hello -- 127.0.0.1:9002 &
//! cargo run --release --example proxy -- 127.0.0.1:8080 127.0.0.1:8081 127.0.0.1:9001 127.0.0.1:9002
//! curl http://127.0.0.1:8080/                                     # the proxy
//! curl http://127.0.0.1:8081/                                     # its servers, and how they are
//! curl -X POST http://127.0.0.1:8081/drain/127.0.0.1:9001         # nothing new to this one; /serve/127.0.0.1:9001: again
//! ```
//!
//! Each core is a proxy of its own, with connections of its own to the servers, so nothing on the way of a request is locked.
//! What all of them know of a server stands in `upstreams.rs`, the connections in `pool.rs`. At SIGTERM the proxy ends in order,
//! as `janus_http` does that by itself; only the idle connections are to be closed.

mod pool;
mod upstreams;

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use janus::net::{TcpListener, TcpStream};
use janus::time::timeout;
use janus_http::{Connection, Error, Options, Request, Responder, Response, Result, Sent};

use pool::Pool;
use upstreams::UPSTREAMS;

/// Time for a server to take a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// Time until the head of its answer, from when it has the request.
const ANSWER: Duration = Duration::from_secs(5);
/// Time for each further piece of a body, either way.
const PIECE: Duration = Duration::from_secs(5);
/// Servers that one request is sent to, at most.
const ATTEMPTS: usize = 3;

/// A body is as long as its server takes, and the date is that server's.
static OPTIONS: Options = Options {
    body_bytes: u64::MAX,
    date: false,
    ..Options::DEFAULT
};

#[janus::main]
async fn main() -> janus::Result<()> {
    let [at, admin] = [1, 2].map(|place| std::env::args().nth(place));
    let (Some(at), Some(admin)) = (at, admin) else {
        return Err("proxy ADDRESS ADMIN-ADDRESS SERVER...".into());
    };
    let listener = TcpListener::bind(at).await?;
    let admin = TcpListener::bind(admin).await?;
    // On one core: the others read what it finds out.
    janus::once(|| {
        println!("curl http://{}/", listener.reachable_at());
        println!("curl http://{}/", admin.reachable_at());
        for upstream in UPSTREAMS.iter() {
            janus::spawn(upstream.watch());
        }
    });
    janus::spawn(upstreams::administer(admin));
    let pool = Rc::new(Pool::default());
    janus::spawn(pool::tend(pool.clone()));
    loop {
        let (stream, peer) = listener.accept().await?;
        let pool = pool.clone();
        let handler = async move |request: Request<'_, _>, response: Responder<'_, _>| {
            forward(&pool, peer.ip(), request, response).await
        };
        janus::spawn(janus_http::serve_with(&OPTIONS, stream, handler));
    }
}

/// Why a request that a server was sent has no answer.
enum Failure {
    /// The connection broke, and how far the request came is unknown.
    Broken,
    /// The server's time was over.
    Late,
    /// The client's side failed, so no answer can be sent.
    Client(Error),
}

async fn forward(
    pool: &Pool,
    client: IpAddr,
    mut request: Request<'_, TcpStream>,
    response: Responder<'_, TcpStream>,
) -> Result<Sent> {
    // Asked twice, these do no more than asked once (RFC 9110 section 9.2.2). A body is gone once it was passed on.
    let idempotent = matches!(
        request.method(),
        "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE"
    );
    let repeatable = idempotent && request.body().is_done();
    let mut tried = Vec::new();
    let mut status = 503;
    while tried.len() < ATTEMPTS
        && let Some(upstream) = upstreams::next(&tried)
    {
        let _counted = upstream.begin();
        status = 502;
        // An idle connection may be closed by now, and only a request that can be repeated may find out.
        let idle = if repeatable {
            pool.take(upstream)
        } else {
            None
        };
        let reused = idle.is_some();
        let mut connection = match idle {
            Some(connection) => connection,
            None => match timeout(CONNECT, Connection::connect(&upstream.address)).await {
                Ok(Ok(connection)) => connection,
                // Nothing of the request has left, so that any may go to the next server.
                _ => {
                    upstream.failed();
                    tried.push(upstream);
                    continue;
                }
            },
        };
        match ask(&mut connection, client, &mut request).await {
            Ok(answer) => {
                let sent = relay(request.method(), answer, response).await?;
                pool.put(upstream, connection);
                return Ok(sent);
            }
            Err(Failure::Client(error)) => return Err(error),
            // Others would be kept waiting by the same request.
            Err(Failure::Late) => {
                status = 504;
                break;
            }
            Err(Failure::Broken) if !repeatable => break,
            // Which says nothing about the server.
            Err(Failure::Broken) if reused => {}
            Err(Failure::Broken) => {
                upstream.failed();
                tried.push(upstream);
            }
        }
    }
    let why = match status {
        503 => "no server is there to answer\n",
        504 => "the server did not answer in time\n",
        _ => "the server did not answer\n",
    };
    response.status(status).send(why).await
}

/// Passes a request on, its body in the pieces that it comes in, and waits for the head of the answer.
async fn ask<'c>(
    connection: &'c mut Connection<TcpStream>,
    client: IpAddr,
    request: &mut Request<'_, TcpStream>,
) -> Result<Response<'c, TcpStream>, Failure> {
    let way = request.header("x-forwarded-for").unwrap_or_default();
    let way = [String::from_utf8_lossy(way).as_ref(), &client.to_string()].join(", ");
    let way = way.trim_start_matches(", ");
    let mut headers = end_to_end(request.headers());
    // `expect` is answered here, when the body is first read.
    headers.retain(|(name, _)| !is_among(name, &[b"x-forwarded-for", b"expect"]));
    headers.extend([(&b"x-forwarded-for"[..], way.as_bytes()), VIA]);
    let length = request.body().remaining();
    let begun = connection.begin(request.method(), request.target(), headers, length);
    let mut sending = in_time(PIECE, begun).await?;
    loop {
        let piece = timeout(PIECE, request.body().next()).await;
        let piece = piece.map_err(|late| Failure::Client(Error::other(late)))?;
        match piece.map_err(Failure::Client)? {
            Some(piece) => in_time(PIECE, sending.write(piece)).await?,
            None => return in_time(ANSWER, sending.finish()).await,
        }
    }
}

async fn in_time<T>(time: Duration, step: impl Future<Output = Result<T>>) -> Result<T, Failure> {
    match timeout(time, step).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(Failure::Broken),
        Err(_) => Err(Failure::Late),
    }
}

/// Passes an answer back. From its first piece on there is no other: what breaks now, breaks the client's connection.
async fn relay(
    method: &str,
    mut answer: Response<'_, TcpStream>,
    response: Responder<'_, TcpStream>,
) -> Result<Sent> {
    let (status, mut length) = (answer.status(), answer.remaining());
    if method == "HEAD" {
        let said = answer.header("content-length").unwrap_or_default();
        length = str::from_utf8(said).ok().and_then(|said| said.parse().ok());
    }
    let mut head = response.status(status);
    for (name, value) in end_to_end(answer.headers()).into_iter().chain([VIA]) {
        head = head.header(str::from_utf8(name).unwrap_or_default(), value);
    }
    let mut body = match length {
        _ if matches!(status, 204 | 304) => return head.send("").await,
        Some(length) => head.send_sized(length).await?,
        None => head.stream().await?,
    };
    while let Some(piece) = timeout(PIECE, answer.next())
        .await
        .map_err(Error::other)??
    {
        body.write(piece).await?;
        // Whoever sends an event a minute means it to arrive.
        body.flush().await?;
    }
    body.finish().await
}

type Header<'a> = (&'a [u8], &'a [u8]);
const VIA: Header = (b"via", b"1.1 janus");

/// The headers without those that are about one connection (RFC 9110 section 7.6.1), and what frames a body: both sides of the
/// proxy write that themselves.
fn end_to_end<'a>(headers: impl Iterator<Item = Header<'a>>) -> Vec<Header<'a>> {
    let mut headers: Vec<_> = headers.collect();
    let options = headers
        .iter()
        .filter(|(name, _)| is_among(name, &[b"connection"]));
    let options = options.flat_map(|(_, value)| value.split(|byte| *byte == b','));
    let options: Vec<_> = options.map(<[u8]>::trim_ascii).collect();
    headers.retain(|(name, _)| !is_among(name, &options) && !is_among(name, &HOP_BY_HOP));
    headers
}

const HOP_BY_HOP: [&[u8]; 10] = [
    b"connection",
    b"content-length",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

fn is_among(name: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|other| name.eq_ignore_ascii_case(other))
}
