//! hyper 1 over Janus: HTTP/1.1 and HTTP/2 for any tower service, an axum router among them (`examples/axum.rs`). One
//! task of Janus's for each connection, on the core that accepted it, and Janus's timers. Tokio is not needed for that, only
//! for what a service does with it. This crate's own server is [`serve`](crate::serve()) and knows nothing of hyper.

use std::io;
use std::net::SocketAddr;

use ::hyper::body::{Body, Incoming};
use ::hyper::{Request, Response};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use janus::BoxError;
use janus::compat::hyper::{Executor, Timer};
use janus::net::{TcpListener, TcpStream};
use tower_service::Service;

use leaving::Leaving;

mod leaving;

/// Serves what `listener` accepts on this core: `make` gives each connection its service, and is told whose it is. Ends
/// with the error that accepting ends with. When the runtime is told to shut down, connections end in order.
pub async fn serve<S, B>(
    listener: TcpListener,
    mut make: impl FnMut(SocketAddr) -> S,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>> + Clone + 'static,
    B: Body<Data: 'static, Error: Into<BoxError>> + 'static,
{
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = make(peer);
        janus::spawn(async move {
            // What breaks one connection is its peer's affair.
            let _ = serve_connection(stream, service).await;
        });
    }
}

/// Serves one connection until it ends: HTTP/1.1 or HTTP/2, whichever the peer begins, with upgrades.
pub async fn serve_connection<S, B>(stream: TcpStream, service: S) -> Result<(), BoxError>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>> + Clone + 'static,
    B: Body<Data: 'static, Error: Into<BoxError>> + 'static,
{
    let mut builder = Builder::new(Executor);
    builder.http1().timer(Timer);
    builder.http2().timer(Timer);
    let service = TowerToHyperService::new(Leaving(service));
    let connection = builder.serve_connection_with_upgrades(stream, service);
    leaving::to_the_end(connection, |connection| connection.graceful_shutdown()).await
}
