//! The attacks and the rules, which are written with IPv4 addresses, once more over IPv6 (`support/family.rs`). What is
//! about IPv4 alone says so itself.

mod support;

#[path = "engine/attacks.rs"]
mod attacks;
#[path = "engine/attacks_on_answers.rs"]
mod attacks_on_answers;
#[path = "engine/attacks_on_streams.rs"]
mod attacks_on_streams;
#[path = "engine/cookies.rs"]
mod cookies;
#[path = "engine/keepalive.rs"]
mod keepalive;
#[path = "engine/rfc5482.rs"]
mod rfc5482;
#[path = "engine/rfc5681.rs"]
mod rfc5681;
#[path = "engine/rfc6298.rs"]
mod rfc6298;
#[path = "engine/rfc7323.rs"]
mod rfc7323;
#[path = "engine/rfc8985.rs"]
mod rfc8985;
#[path = "engine/rfc9293_header.rs"]
mod rfc9293_header;
#[path = "engine/rfc9293_sending.rs"]
mod rfc9293_sending;
#[path = "engine/rfc9293_windows.rs"]
mod rfc9293_windows;
#[path = "engine/segment_arrives.rs"]
mod segment_arrives;
#[path = "engine/time_wait.rs"]
mod time_wait;
#[path = "engine/urgent.rs"]
mod urgent;
