//! The engine by subject, one file each, in one program: linking forty took longer than running them.

#[path = "../support/mod.rs"]
mod support;

mod attacks;
mod attacks_on_addresses;
mod attacks_on_answers;
mod attacks_on_links;
mod attacks_on_recovery;
mod attacks_on_streams;
mod cookies;
mod forgotten;
mod fragments;
mod icmp_errors;
mod icmp_errors_v6;
mod identifications;
mod keepalive;
mod many_at_once;
mod memory_pressure;
mod neighbour_discovery;
mod neighbours_v4;
mod options;
mod patience;
mod random_peer;
mod reuse;
mod rfc3168;
mod rfc5482;
mod rfc5681;
mod rfc6298;
mod rfc7323;
mod rfc8985;
mod rfc9040;
mod rfc9293_failures;
mod rfc9293_header;
mod rfc9293_opening;
mod rfc9293_sending;
mod rfc9293_windows;
mod sack_negotiation;
mod sack_receive;
mod segment_arrives;
mod silent_readers;
mod smoltcp_peer;
mod time_wait;
mod turned_back;
mod urgent;
