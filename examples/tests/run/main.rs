//! Every server and client among the examples, run as a reader would run it: a process of its own, asked over the kernel's sockets,
//! ended by SIGTERM.

#[cfg(feature = "axum")]
mod axum;
mod chat;
mod client;
mod ends;
mod graceful;
#[cfg(feature = "grpc")]
mod grpc;
mod load;
#[cfg(feature = "postgres")]
mod postgres;
mod process;
mod proxy;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "websocket")]
mod websocket;
