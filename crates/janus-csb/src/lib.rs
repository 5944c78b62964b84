//! The consistent stream balancer: which shard owns a connection.
//!
//! Here live the ring that maps a flow's 32-bit key to a shard, the port table (which shards listen where), the
//! steering that I/O cores and shards share by epoch, and the walk that lets a shard which does not know a flow hand
//! the packet on. Never here: packets, sockets, threads, clocks. The crate decides, others carry out.
//!
//! The one idea to keep in mind: **steering is a hint, the rings are the authority, walked in order.** An I/O core's
//! answer may be stale or wrong; the shard that receives the packet finds out, and only the shard where the walk over
//! the rings ends creates a flow or answers with a reset. See [`walk`](walk()) for the rules.
//!
//! Three ends: [`Balancer`] drives updates, [`ShardEnd`] is a shard's part in them and its view for the walk, [`IoEnd`]
//! looks packets up. Which points an update moves, and when one is worth it, [`policy`] decides. The paper's algorithm
//! to the letter, for tests and the benchmark, is in `research`. `docs/csb.md` explains the protocol.
#![forbid(unsafe_code)]
#![cfg_attr(not(loom), warn(missing_debug_implementations))]

mod balancer;
mod draft;
mod epoch;
mod exceptions;
mod flow;
mod flows;
mod io_end;
mod pending_opens;
pub mod policy;
mod ports;
mod publish;
mod reports;
mod ring;
mod shard;
mod shard_end;
mod steering;
#[cfg_attr(loom, path = "sync/model.rs")]
mod sync;
mod walk;

pub use balancer::{Balancer, Limits, Phase, Refused, UpdateReport};
pub use draft::Draft;
pub use epoch::{Epoch, Tag};
pub use flow::{FlowId, Held};
pub use flows::{DivergenceFilter, FlowBatch, Flows};
pub use io_end::{IoEnd, Tags};
pub use ports::PortTable;
pub use publish::Reader;
pub use ring::{MAX_POINTS, Ring, RingError};
pub use shard::{ShardId, ShardSet};
pub use shard_end::{ShardEnd, Work};
pub use steering::{HISTORY, Layout, Steering};
pub use walk::{Step, walk};
