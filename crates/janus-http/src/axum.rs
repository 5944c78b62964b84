//! A listener for `axum::serve` over Janus. `axum::serve` runs connections by `tokio::spawn`, so janus-rt's feature `tokio` comes with
//! this one; [`hyper::serve`](crate::hyper::serve) runs a router in Janus tasks, which is cheaper, and ends connections in order when the
//! runtime shuts down. `axum::serve` must be told to, else its connections go on until they are cut off.
//!
//! ```no_run
//! # async fn example(router: axum::Router) -> janus::Result<()> {
//! let listener = janus::net::TcpListener::bind("0.0.0.0:8080").await?;
//! axum::serve(janus_http::axum::Listener::new(listener), router)
//!     .with_graceful_shutdown(janus_http::axum::ending())
//!     .await?;
//! # Ok(())
//! # }
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use janus::net::{TcpListener, TcpStream};

use crate::serve::last_request_is_due;

/// Pause after an error that does not concern one connection: a resource that ran out may be free again.
const PAUSE: Duration = Duration::from_millis(100);

/// A Janus listener that implements axum's trait.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Wraps `listener`, on its own core.
    #[must_use]
    pub fn new(listener: TcpListener) -> Listener {
        Listener(listener)
    }
}

/// Future for `with_graceful_shutdown`: ends a second after the runtime was told to shut down. Then axum closes idle connections; until
/// then a request under way is answered. Answers should carry `connection: close` meanwhile (see the example `axum`), or a busy client has
/// yet another request under way when the second is over.
pub async fn ending() {
    last_request_is_due().await;
}

impl ::axum::serve::Listener for Listener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.0.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    eprintln!("janus: accepting: {error}");
                    janus::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
