//! TCP as a pure state machine: frames and a time go in, frames and wake-ups come out.
//!
//! There is no clock, socket, thread or per-packet allocation in here, so that one engine runs under the
//! real shard loop, the virtual-time simulator, the script runner and the property tests alike.
//! [`Stack`] is the door; a reader who knows an RFC finds its file by name.

#![forbid(unsafe_code)]

mod arrives;
mod bursts;
mod challenge;
mod cold;
mod config;
mod congestion;
mod control;
mod cookie;
mod counters;
mod cubic;
mod delayed_ack;
mod ecn;
mod emit;
mod ending;
mod error;
mod fifo;
mod flows;
mod fragments;
mod frto;
mod given;
mod half_open;
mod handshake;
mod hot;
mod hystart;
mod icmp;
mod icmp_errors;
mod icmp_out;
mod icmpv6;
mod info;
mod input;
mod interface;
mod isn;
mod keepalive;
mod listener;
mod moves;
mod nd;
mod neighbor;
mod open;
mod options;
mod output;
mod parse;
mod passive;
mod patience;
mod pmtu;
mod pressure;
mod profile;
mod prr;
mod rack;
mod readdress;
mod reassembly;
mod records;
mod recovery;
mod reno;
mod reorder;
mod resend;
mod resize;
mod reuse;
mod routes;
mod rto;
mod rttm;
mod sack;
mod sack_blocks;
mod segment;
mod send_buffer;
mod sharing;
mod siphash;
mod socket;
mod source_port;
mod stack;
mod status;
mod stub;
mod table;
mod time;
mod time_wait;
mod timers;
mod tlp;
mod traverse;
mod tuning;
mod udp;
mod undo;
mod urgent;
mod uto;
pub mod wheel;
mod write;

#[cfg(test)]
mod pair;

pub use cold::State;
pub use config::{Config, Secrets, SynCookies};
pub use congestion::Algorithm;
pub use counters::Counters;
pub use ecn::Ecn;
pub use error::Error;
pub use given::Piece;
pub use info::Info;
pub use input::{Local, Miss, Placement};
pub use interface::{Interface, IpCidr};
pub use listener::ListenerId;
pub use moves::MOVES_MAX;
pub use pressure::Pressure;
pub use profile::{MAX_OPTION_SETS, SocketOptions};
pub use readdress::Addressing;
pub use routes::{ROUTES_MAX, Route};
pub use stack::{ConnId, MemoryReport, Stack, Token};
pub use status::Status;
pub use stub::STUBS_MAX;
pub use time::Instant;
pub use udp::{Datagram, UdpId};
pub use uto::Uto;
pub use write::Manner;
