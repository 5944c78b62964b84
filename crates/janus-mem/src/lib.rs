//! Raw memory for the whole house: huge-page regions, `u32`-indexed slabs, packet buffers and their pools, the arena
//! of the tasks, and what a processor does for a table at once (prefetch, sixteen bytes compared). This is the one room that maps memory; nothing here knows what a packet or a
//! connection is.
//!
//! # Who touches a page first
//!
//! The first touch of a huge page costs the kernel 0.2–10 ms, far too long for a packet loop. So every structure here
//! grows through one rule: a big range of addresses is *reserved*, a prefix of it is *committed*, and with
//! [`Growth::Ahead`] a background thread (the [`Toucher`]) commits and touches the next chunk before it is needed.
//! When the thread is late the owner grows the range itself and a counter says so.

// Under the model checker only the lock-free parts are there.
#![cfg_attr(loom, allow(dead_code))]
#![cfg_attr(not(loom), warn(missing_debug_implementations))]

mod buffer_reclaim;
mod stacks;
#[cfg_attr(loom, path = "sync/model.rs")]
mod sync;

#[cfg(not(loom))]
pub use unmodeled::*;

/// All that the model checker does not see, as if it stood in the crate's root.
#[cfg(not(loom))]
#[path = "."]
mod unmodeled {
    pub(crate) mod arena;
    pub(crate) mod depot;
    pub(crate) mod equal;
    pub(crate) mod frame;
    pub(crate) mod growth;
    pub(crate) mod part;
    pub(crate) mod pool;
    pub(crate) mod prefetch;
    pub(crate) mod region;
    pub(crate) mod registry;
    pub(crate) mod rested;
    pub(crate) mod slab;
    pub mod unforked;

    pub use arena::PageArena;
    pub use depot::{Depot, DepotStats, Posted, Slots};
    pub use equal::equal_bytes;
    pub use frame::{
        Frame, HEADROOM, LENT, LOOPED, PacketBuf, RETURNS, SLOT_SIZE, TURNED, TURNED_LOOPED,
    };
    pub use growth::{Growth, Life, TOUCH_QUEUE_MAX, Toucher};
    pub use part::Part;
    pub use pool::{MAGAZINE, Pool, RESERVE_MAX};
    pub use prefetch::prefetch;
    pub use region::{HUGE_PAGE, MemError, Region, RegionKind};
    pub use registry::orphaned_depots;
    pub use rested::Rested;
    pub use slab::Slab;
}
