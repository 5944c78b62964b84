//! hyper 1 over Janus: HTTP/1.1 and HTTP/2 for any tower service, an axum router among them (`examples/axum.rs`). One
//! task of Janus's for each connection, on the core that accepted it, and Janus's timers. Tokio is not needed for that, only
//! for what a service does with it. This crate's own server is [`serve`](crate::serve()) and knows nothing of hyper.
//!
//! The bounds on time are those of [`Options`]; its other limits are this crate's own server's. What is waited for too long ends as
//! there: a head or a body with 408, a connection that is silent without a word (over HTTP/2 with GOAWAY), one whose peer takes
//! nothing of what is written with a reset. A connection that was upgraded, and a tunnel, have no bounds.

use std::io;
use std::net::SocketAddr;

use ::hyper::body::Body;
use ::hyper::rt::{Read, Write};
use ::hyper::{Request, Response};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use janus::BoxError;
use janus::compat::hyper::{Executor, Timer};
use janus::net::TcpListener;
use tower_service::Service;

use crate::Options;
use crate::serve::DEFAULT;
pub use body::RequestBody;
use service::Watched;
use stream::Stream;
use watch::Watch;

mod body;
mod drive;
mod service;
mod stream;
mod watch;

/// Serves what `listener` accepts on this core: `make` gives each connection its service, and is told whose it is. Ends
/// with the error that accepting ends with. When the runtime is told to shut down, connections end in order.
pub async fn serve<S, B>(listener: TcpListener, make: impl FnMut(SocketAddr) -> S) -> io::Result<()>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>>
        + Clone
        + 'static,
    B: Body<Data: 'static, Error: Into<BoxError>> + 'static,
{
    serve_with(&DEFAULT, listener, make).await
}

/// [`serve`] with bounds of your own.
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
            // What breaks one connection is its peer's affair.
            let _ = serve_connection_with(options, stream, service).await;
        });
    }
}

/// Serves one connection until it ends: HTTP/1.1 or HTTP/2, whichever the peer begins, with upgrades. `stream` is a
/// `TcpStream` or a layer over one, such as TLS (`examples/tls.rs`).
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

/// [`serve_connection`] with bounds of your own.
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
    let mut builder = Builder::new(Executor);
    // The stream's matter, which can answer.
    builder.http1().timer(Timer).header_read_timeout(None);
    builder.http2().timer(Timer);
    if let Some(idle) = options.idle_timeout {
        // Also finds a peer that is gone while a service thinks.
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
