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
//! What is there now: fixed rings by epoch, port sets, the walk, publishing; beside them, for tests and the benchmark,
//! the paper's algorithm to the letter ([`reference`](mod@reference)). Not yet: `H_diff`, the Bloom filter,
//! `Set_fly`, the traversal of a live update and the balancing policies; `docs/csb.md` keeps the list.
#![forbid(unsafe_code)]

mod epoch;
mod ports;
mod publish;
pub mod reference;
mod ring;
mod shard;
mod steering;
mod walk;

pub use epoch::{Epoch, Tag};
pub use ports::PortTable;
pub use publish::{Publisher, Reader};
pub use ring::{MAX_POINTS, Ring, RingError};
pub use shard::{ShardId, ShardSet};
pub use steering::{Draft, HISTORY, Layout, Steering};
pub use walk::{Step, walk};
