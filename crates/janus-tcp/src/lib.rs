//! TCP as a pure state machine: frames and a time go in, frames and wake-ups come out.
//!
//! There is no clock, socket, thread or per-packet allocation in here, so that one engine runs under the
//! real shard loop, the virtual-time simulator, the script runner and the property tests alike.
//! [`Stack`] is the door. A turn of whoever drives it makes these calls, in this order:
//!
//! 1. [`Stack::input`] with the frames that have arrived.
//! 2. [`Stack::pop_ready`] until it is empty: tokens of the tasks to wake, which then call
//!    - [`Stack::listen`], [`Stack::accept`], [`Stack::connect`] to open;
//!    - [`Stack::read`], [`Stack::recv`], [`Stack::write`], [`Stack::send_buf`] on a [`ConnId`], and on
//!      [`Error::WouldBlock`] [`Stack::wait_read`] or [`Stack::wait_write`] with the token to wake;
//!    - [`Stack::shutdown_write`], [`Stack::close`], [`Stack::abort`] to end; the `udp_*` calls for datagrams.
//! 3. [`Stack::advance`]: deadlines that have passed, and [`Stack::pop_ready`] again. [`Stack::next_deadline`] says when the next one is.
//! 4. [`Stack::transmit`]: frames to hand to the device.
//! 5. [`Stack::completed`] for each lent frame that the device is done with.
//! 6. [`Stack::take_looped`]: frames for our own addresses, which go to [`Stack::input`] of the stack that has their flow.
//!
//! The rooms, from the top; each names only those below it. Fields are private, so a room lies inside the one whose fields it works
//! on:
//!
//! | room | what is there | what it may touch |
//! |---|---|---|
//! | `stack::api` | calls of the application, the runtime, the balancer | all parts of the stack |
//! | `stack::parcels` | connections that leave and come | all parts of the stack |
//! | `stack::input` | arrival: batches, handshakes of listeners, TIME-WAIT, refusals and their limits | all parts of the stack |
//! | `stack` | lending a connection, carrying out what rules want, ends, turns | all parts of the stack |
//! | `conn::arrives` | the checks of a segment, what it acknowledges and brings | what `conn` has |
//! | `conn::timer`, `output`, `loss`, `receive` | the rules of one subject each | what `conn` has |
//! | `conn` | the borrowed connection, and the effects that it asks for | its record and hot block, the memory of blocks, paths, counters; no table, queue or other connection |
//! | `ip` | neighbors, ICMP, fragments, UDP, the next hop | the host below TCP, no connection |
//! | `wire` | headers read and written | bytes |
//! | `store` | records, blocks, tables, queues, parcels, and the arithmetic of one record | memory |
//! | `rules` | configuration, option profiles, addresses, secrets | nothing that a segment changes |
//! | `congestion` | the algorithms | a window |
//! | `coded` | how values are spelled in bytes | bytes |

#![forbid(unsafe_code)]

mod coded;
mod congestion;
mod conn;
mod ip;
mod rules;
mod stack;
mod store;
mod time;
mod wire;

#[cfg(test)]
mod testing;

pub use congestion::CongestionControl;
pub use conn::piece::Piece;
pub use conn::receive::urgent::UrgentMark;
pub use ip::udp::{Datagram, UdpId};
pub use rules::buffer_sizes::BufferSizes;
pub use rules::config::Ecn;
pub use rules::config::{Config, Secrets, SynCookies};
pub use rules::error::Error;
pub use rules::interface::{DYNAMIC_FIRST, Interface, IpCidr, PortBlock};
pub use rules::profile::Uto;
pub use rules::profile::WriteFlags;
pub use rules::profile::{MAX_OPTION_SETS, SocketOptions};
pub use rules::routes::{ROUTES_MAX, Route};
pub use stack::api::info::Info;
pub use stack::api::readdress::Addressing;
pub use stack::api::status::Status;
pub use stack::input::{Local, Placement, UnknownFlow};
pub use stack::parcels::Detached;
pub use stack::{MemoryReport, Stack};
pub use store::cold::State;
pub use store::counters::Counters;
pub use store::keys::ConnId;
pub use store::listener::{AcceptDelays, ListenerId};
pub use store::moves::MOVES_MAX;
pub use store::parcel::{Parcel, Refusal, Refused, Unreadable};
pub use store::pressure::Pressure;
pub use store::rest::{REST_HANDLERS, Rest, RestLimits};
pub use store::schedule::Token;
pub use store::segment::{Homecoming, Ticket};
pub use store::stub::{Moved, STUBS_MAX};
pub use store::wheel;
pub use time::Instant;
