//! hyper 1 over Janus: HTTP/1.1 and HTTP/2 for any tower service, an axum router among them (`examples/axum.rs`). Each connection is a
//! Janus task on the core that accepted it, with Janus's timers. Tokio is not needed, unless a service itself needs it. This crate's own
//! server, [`serve`](crate::serve()), does not use hyper.
//!
//! The time limits are those of [`Options`]; its other limits are only this crate's own server's. Time limits end as there: for a head or
//! a body with 408, for a silent connection without an answer (over HTTP/2 with GOAWAY), for a peer that acknowledges nothing with a
//! reset, over HTTP/2 also of a single stream of which the peer takes nothing. A connection that was upgraded, and a tunnel, have no limits.

use std::io;
use std::net::SocketAddr;

use ::hyper::body::Body;
use ::hyper::rt::{Read, Write};
use ::hyper::{Request, Response};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use janus::BoxError;
use janus::compat::hyper::Timer;
use janus::net::TcpListener;
use tower_service::Service;

use crate::Options;
use crate::serve::DEFAULT;
pub use body::RequestBody;
use outgoing::Streams;
use service::Watched;
use stream::Stream;
use watch::Watch;

mod body;
mod drive;
mod outgoing;
mod service;
mod stream;
mod watch;

/// Serves the connections that `listener` accepts on this core: `make` returns each connection's service, given the peer's address. When
/// the runtime is told to shut down, connections end in order.
///
/// # Errors
/// The error of `accept`.
///
/// # Cancel safety
/// Connections go on when the future is dropped; the port is released.
pub async fn serve<S, B>(listener: TcpListener, make: impl FnMut(SocketAddr) -> S) -> io::Result<()>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>>
        + Clone
        + 'static,
    B: Body<Data: 'static, Error: Into<BoxError>> + 'static,
{
    serve_with(&DEFAULT, listener, make).await
}

/// Like [`serve`], but with time limits of your own.
///
/// # Errors
/// The error of `accept`.
///
/// # Cancel safety
/// Like [`serve`].
pub async fn serve_with<S, B>(
    options: &'static Options,
    listener: TcpListener,
    mut make: impl FnMut(SocketAddr) -> S,
) -> io::Result<()>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>>
        + Clone
        + 'static,
    B: Body<Data: 'static, Error: Into<BoxError>> + 'static,
{
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = make(peer);
        janus::spawn(async move {
            // An error of one connection does not concern the others.
            let _ = serve_connection_with(options, stream, service).await;
        });
    }
}

/// Serves one connection until it ends: HTTP/1.1 or HTTP/2, whichever the peer begins, with upgrades. `stream` is a `TcpStream` or a layer
/// over one, such as TLS (`examples/tls.rs`).
///
/// # Errors
/// hyper's error when the connection ends early.
///
/// # Cancel safety
/// Dropping the future drops the connection, with what is under way.
pub async fn serve_connection<I, S, B>(stream: I, service: S) -> Result<(), BoxError>
where
    I: Read + Write + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>>
        + Clone
        + 'static,
    B: Body<Data: 'static, Error: Into<BoxError>> + 'static,
{
    serve_connection_with(&DEFAULT, stream, service).await
}

/// Like [`serve_connection`], but with time limits of your own.
///
/// # Errors
/// hyper's error when the connection ends early.
///
/// # Cancel safety
/// Like [`serve_connection`].
pub async fn serve_connection_with<I, S, B>(
    options: &'static Options,
    stream: I,
    service: S,
) -> Result<(), BoxError>
where
    I: Read + Write + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>>
        + Clone
        + 'static,
    B: Body<Data: 'static, Error: Into<BoxError>> + 'static,
{
    let watch = Watch::new(options);
    let mut builder = Builder::new(Streams(watch.clone()));
    // The stream bounds this time, and can answer.
    builder.http1().timer(Timer).header_read_timeout(None);
    builder.http2().timer(Timer);
    if let Some(idle) = options.idle_timeout {
        // Also detects a dead peer while a service works.
        let mut http2 = builder.http2();
        http2.keep_alive_interval(idle);
        http2.keep_alive_timeout(options.write_timeout.unwrap_or(idle));
    }
    let stream = Stream::new(stream, watch.clone());
    let service = TowerToHyperService::new(Watched {
        service,
        watch: watch.clone(),
    });
    let connection = builder.serve_connection_with_upgrades(stream, service);
    drive::to_the_end(connection, watch, |connection| {
        connection.graceful_shutdown()
    })
    .await
}
