//! tonic's own server over Janus's streams: `serve_with_incoming` takes them, and a request knows where it comes from.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures_util::stream;
use hyper::body::Body as _;
use hyper::client::conn::http2;
use hyper::{Request, Response, StatusCode};
use janus::compat::hyper::Executor;
use janus::net::{TcpListener, TcpStream};
use janus_compat_tests::over_a_wire;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpConnectInfo;
use tower::Service;

/// Answers without a message; a header says by which addresses it was asked.
#[derive(Clone)]
struct Whence;

impl NamedService for Whence {
    const NAME: &'static str = "janus.Whence";
}

impl Service<Request<Body>> for Whence {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let info = request.extensions().get::<TcpConnectInfo>();
        let info = info.expect("tonic's server puts it there");
        let (from, to) = (info.remote_addr().unwrap(), info.local_addr().unwrap());
        let response = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "0")
            .header("addresses", format!("{from} {to}"));
        ready(Ok(response.body(Body::empty()).unwrap()))
    }
}

async fn serve(listener: TcpListener) {
    let incoming = stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    Server::builder()
        .add_service(Whence)
        .serve_with_incoming(Box::pin(incoming))
        .await
        .unwrap();
}

async fn ask(server: SocketAddr) {
    let stream = TcpStream::connect(server).await.unwrap();
    let addresses = format!("{} {server}", stream.local_addr().unwrap());
    let (mut requests, connection) = http2::handshake(Executor, stream).await.unwrap();
    janus::spawn(connection);
    let request = Request::post("http://192.0.2.1/janus.Whence/Ask")
        .header("content-type", "application/grpc")
        .body(Body::empty())
        .unwrap();
    let response = requests.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["grpc-status"], "0");
    assert_eq!(response.headers()["addresses"], addresses);
    assert!(response.body().is_end_stream());
}

#[test]
fn its_server_takes_our_streams() {
    over_a_wire(2, serve, |server| async move {
        for _ in 0..8 {
            ask(server).await;
        }
    });
}
