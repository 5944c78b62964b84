//! Sockets as users see them, one file for each behaviour: a server and a client, each a runtime of its own, on the two ends
//! of an in-memory wire.

mod buffered;
mod futures_traits;
mod names;
mod ready;
mod socket;
mod split;
mod tokio_traits;
mod udp;
mod vectored;

use std::future::Future;
use std::net::SocketAddr;

use crate::support::*;
use janus::BackendChoice;
use janus::net::TcpStream;

/// Where the server listens.
fn server_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 80))
}

/// Runs `client` with a connection to a server that runs `server` with it. The client's word counts: it asserts.
fn between<S, SF, C, CF>(server: S, client: C)
where
    S: Fn(TcpStream) -> SF + Send + Sync + Copy + 'static,
    SF: Future<Output = ()> + 'static,
    C: Fn(TcpStream) -> CF + Send + Sync + Copy + 'static,
    CF: Future<Output = ()> + 'static,
{
    let (near, far) = wire_for(ONE_COMBINED);
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, _) = serve(builder, 80, server);
    run_clients(far, 1, move |_| async move {
        client(TcpStream::connect(server_address()).await.unwrap()).await;
    });
    server.stop().unwrap();
}
