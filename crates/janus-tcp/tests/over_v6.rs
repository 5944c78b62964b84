//! The attacks and the rules, which are written with IPv4 addresses, once more over IPv6 (`support/family.rs`). What is
//! about IPv4 alone says so itself.

#![allow(
    clippy::duplicate_mod,
    reason = "each of the files has the harness as a part of its own"
)]

#[path = "attacks.rs"]
mod attacks;
#[path = "attacks_on_answers.rs"]
mod attacks_on_answers;
#[path = "attacks_on_streams.rs"]
mod attacks_on_streams;
#[path = "cookies.rs"]
mod cookies;
#[path = "keepalive.rs"]
mod keepalive;
#[path = "rfc5482.rs"]
mod rfc5482;
#[path = "rfc5681.rs"]
mod rfc5681;
#[path = "rfc6298.rs"]
mod rfc6298;
#[path = "rfc7323.rs"]
mod rfc7323;
#[path = "rfc8985.rs"]
mod rfc8985;
#[path = "rfc9293_header.rs"]
mod rfc9293_header;
#[path = "rfc9293_sending.rs"]
mod rfc9293_sending;
#[path = "rfc9293_windows.rs"]
mod rfc9293_windows;
#[path = "segment_arrives.rs"]
mod segment_arrives;
#[path = "time_wait.rs"]
mod time_wait;
#[path = "urgent.rs"]
mod urgent;
