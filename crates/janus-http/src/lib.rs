//! HTTP/1.1 (RFC 9110, RFC 9112) on Janus: a server for one connection and a small client. The protocol is plain functions over bytes
//! ([`head`], [`framing`], [`chunked`]); a thin layer carries it over a [`Transport`], usually a `janus::net::TcpStream`. Routing, TLS and
//! everything above one connection are left to other crates.
//!
//! ```no_run
//! # async fn example(stream: janus::net::TcpStream) -> janus_http::Result<()> {
//! janus_http::serve(stream, async |request, response| match request.path() {
//!     "/" => response.ok().header("content-type", "text/plain").send(b"hello\n").await,
//!     _ => response.status(404).send(b"not here\n").await,
//! })
//! .await
//! # }
//! ```
//!
//! A connection between requests is a future of a few words. When bytes arrive, the future that handles them is taken
//! from a pool of its core, parses the head where it was received, and goes back when nothing is left to answer: in
//! steady state a request allocates nothing.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[cfg(feature = "axum")]
pub mod axum;
mod body;
pub mod chunked;
mod client;
mod date;
mod debug;
mod error;
pub mod framing;
pub mod head;
#[cfg(feature = "hyper")]
pub mod hyper;
mod input;
mod options;
mod over_janus;
mod pace;
mod pool;
mod request;
mod response;
mod serve;
mod status;
mod transport;

#[cfg(test)]
mod testing;

pub use body::Body;
pub use client::{Connection, RequestBody, Response};
pub use error::{Error, Reject, Result};
pub use options::Options;
pub use pool::{PoolCounters, counters};
pub use request::Request;
pub use response::{BodyWriter, Responder, ResponseHead, Sent};
pub use serve::{serve, serve_listener, serve_listener_with, serve_with};
pub use status::reason;
pub use transport::Transport;
