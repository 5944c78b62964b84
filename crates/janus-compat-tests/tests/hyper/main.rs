//! hyper 1 on Janus alone: both versions of HTTP, both sides, by hyper's own servers and clients and by `janus_http::hyper`;
//! hyper's clock is Janus's.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use janus::BoxError;
use janus::compat::hyper::{Executor, Timer};
use janus::net::{TcpListener, TcpStream};
use janus_compat_tests::{Running, dial, over_a_wire, portal, told};
use janus_http::hyper::RequestBody;

mod bounds;

/// Answers with the body it got, and which version of HTTP it came by.
async fn echo<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, BoxError>
where
    B: Body<Error: Into<BoxError>>,
{
    let version = format!("{:?}", request.version());
    let body = request.into_body().collect().await.map_err(Into::into)?;
    let body = body.to_bytes();
    let mut response = Response::new(Full::new(body));
    response
        .headers_mut()
        .insert("by", version.parse().expect("a value"));
    Ok(response)
}

fn post(body: Bytes, version: Version) -> Request<Full<Bytes>> {
    Request::post("http://192.0.2.1/")
        .header("host", "192.0.2.1")
        .version(version)
        .body(Full::new(body))
        .unwrap()
}

fn bytes(length: usize, seed: usize) -> Bytes {
    (0..length).map(|i| (i * 31 + seed) as u8).collect()
}

async fn check(response: Response<Incoming>, body: Bytes, version: Version) {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["by"], format!("{version:?}"));
    assert!(response.into_body().collect().await.unwrap().to_bytes() == body);
}

async fn by_http1(address: SocketAddr) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut requests, connection) = http1::handshake(stream).await.unwrap();
    let connection = janus::spawn(connection);
    for round in 0..20 {
        let body = bytes(round * 10_000, round);
        let response = requests.send_request(post(body.clone(), Version::HTTP_11));
        check(response.await.unwrap(), body, Version::HTTP_11).await;
    }
    drop(requests);
    connection.await.unwrap().unwrap();
}

/// Many at a time on one connection.
async fn by_http2(address: SocketAddr) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (requests, connection) = http2::Builder::new(Executor)
        .timer(Timer)
        .keep_alive_interval(Duration::from_secs(1))
        .handshake(stream)
        .await
        .unwrap();
    let connection = janus::spawn(connection);
    let asked = (0..50).map(|round| {
        let mut requests = requests.clone();
        janus::spawn(async move {
            let body = bytes(round * 3_000, round);
            let response = requests.send_request(post(body.clone(), Version::HTTP_2));
            check(response.await.unwrap(), body, Version::HTTP_2).await;
        })
    });
    for task in asked.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    drop(requests);
    connection.await.unwrap().unwrap();
}

async fn serve_either(listener: TcpListener) {
    let service = tower::service_fn(echo::<RequestBody>);
    janus_http::hyper::serve(listener, move |_peer| service)
        .await
        .unwrap();
}

#[test]
fn both_versions_over_the_wire() {
    for cores in [1, 3] {
        over_a_wire(cores, serve_either, |address| async move {
            by_http1(address).await;
            by_http2(address).await;
        });
    }
}

/// A service that is not `Send` counts on its core.
#[test]
fn hypers_own_server_with_a_service_that_is_not_send() {
    let serve = async |listener: TcpListener| {
        let count = Rc::new(Cell::new(0));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let count = count.clone();
            let service = service_fn(move |_: Request<Incoming>| {
                count.set(count.get() + 1);
                let text = count.get().to_string();
                async move { Ok::<_, Infallible>(Response::new(text)) }
            });
            let connection = hyper::server::conn::http2::Builder::new(Executor)
                .timer(Timer)
                .serve_connection(stream, service);
            janus::spawn(connection);
        }
    };
    over_a_wire(1, serve, |address| async move {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut requests, connection) = http2::handshake(Executor, stream).await.unwrap();
        janus::spawn(connection);
        for round in 1..=10 {
            let request = post(Bytes::new(), Version::HTTP_2);
            let response = requests.send_request(request).await.unwrap();
            let text = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(text, round.to_string());
        }
    });
}

/// Half a head: the connection is closed when hyper's clock, which is Janus's, says so.
#[test]
fn a_head_that_does_not_end_is_given_up() {
    let (tell, address) = told();
    let server = Running::start(portal(1), move || {
        let tell = tell.clone();
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            tell.send(listener.reachable_at())?;
            let (stream, _) = listener.accept().await?;
            let begin = Instant::now();
            let ended = hyper::server::conn::http1::Builder::new()
                .timer(Timer)
                .header_read_timeout(Duration::from_millis(100))
                .serve_connection(stream, service_fn(echo::<Incoming>))
                .await;
            assert!(ended.unwrap_err().is_timeout());
            assert!(begin.elapsed() >= Duration::from_millis(50));
            Ok::<(), janus::BoxError>(())
        }
    });
    let mut client = dial(address.next());
    client.write_all(b"GET / HTTP/1.1\r\nhost: a").unwrap();
    // An end; a reset on a machine so slow that the half head comes after it.
    if let Err(reset) = client.read_to_end(&mut Vec::new()) {
        assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
    }
    server.join();
}

/// As any client of the kernel's sees it.
#[test]
fn a_client_from_outside_keeps_its_connection() {
    let (tell, address) = told();
    let server = Running::start(portal(1), move || {
        let tell = tell.clone();
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            tell.send(listener.reachable_at())?;
            serve_either(listener).await;
            Ok::<(), janus::BoxError>(())
        }
    });
    let mut client = dial(address.next());
    for round in 0..5 {
        let text = format!("number {round}");
        let head = format!(
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
            text.len()
        );
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(text.as_bytes()) {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    server.stop();
}

/// Asks over a connection of the kernel's; the head of the answer, whose body is two bytes.
fn ask(stream: &mut std::net::TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap()
}

/// Requests that come while the runtime ends are answered, with `connection: close`; silent connections are closed.
#[test]
fn a_server_that_is_told_to_end_loses_no_request() {
    async fn answer(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
        if request.uri().path() == "/end" {
            janus::handle().unwrap().shutdown(Duration::from_secs(600));
            // Tasks are told when the portal's doors are closed.
            janus::shutting_down().await;
        }
        Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))
    }
    let (tell, address) = told();
    let server = Running::start(portal(1), move || {
        let tell = tell.clone();
        async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            tell.send(listener.reachable_at())?;
            let service = tower::service_fn(answer);
            janus_http::hyper::serve(listener, move |_peer| service).await?;
            janus::Result::<()>::Ok(())
        }
    });
    let address = address.next();
    let mut all = [0; 3].map(|_| dial(address));
    let [told, asks, silent] = &mut all;
    for stream in [&mut *told, &mut *asks, &mut *silent] {
        assert!(!ask(stream, "/").contains("connection"));
    }
    assert!(ask(told, "/end").contains("connection: close\r\n"));
    assert!(ask(asks, "/").contains("connection: close\r\n"));
    for stream in [told, asks, silent] {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it ends in order");
    }
    server.join();
}
