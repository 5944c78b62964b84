//! Living with others: what lets code written for other libraries run on Janus. Each part is a feature, and each is only
//! a translation: nothing below knows of it.
//!
//! * `futures-io` and `tokio-io`: the streams of [`net`](crate::net) are `AsyncRead` and `AsyncWrite`;
//! * `hyper`: they are hyper's `Read` and `Write`, and `compat::hyper` has its `Executor` and `Timer`;
//! * `tower`: `compat::tower` bounds the time of a service;
//! * `tonic`: streams are its `Connected`, so that `Server::serve_with_incoming` takes them (with `tokio`);
//! * `tokio`: every core's loop runs inside a tokio runtime of the same thread, so that `tokio::spawn`, `tokio::time`,
//!   `tokio::net` and everything built on them work inside a Janus task, and Janus's streams inside one of tokio's. There is
//!   nothing to call; [`Builder::tokio`](crate::Builder::tokio) or the key `tokio` switches it off.

#[cfg(feature = "tokio")]
pub(crate) mod bridge;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tower")]
pub mod tower;
