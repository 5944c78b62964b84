//! `axum::serve` over Janus: the listener it takes. It runs connections by `tokio::spawn`, so janus-rt's feature `tokio` comes
//! with this one; [`hyper::serve`](crate::hyper::serve) runs a router in tasks of Janus's, which is cheaper, and ends in order with
//! the runtime by itself. `axum::serve` must be told to, else its connections go on until they are cut off.
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

/// After an error that is not one connection's: what is short may be there again.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener of Janus's as axum knows one.
pub struct Listener(TcpListener);

impl Listener {
    /// Of `listener`, whose core this is.
    #[must_use]
    pub fn new(listener: TcpListener) -> Listener {
        Listener(listener)
    }
}

/// For `with_graceful_shutdown`: ends a second after the runtime was told to shut down. At its end axum closes connections over
/// which nothing goes; until then a request that is on its way is answered. Answers should say meanwhile that they are the last
/// ones, by `connection: close` (see the example `axum`), or a busy client has yet another on its way when the second is over.
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
