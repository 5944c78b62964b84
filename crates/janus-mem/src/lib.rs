//! Raw memory for the whole house: huge-page regions, `u32`-indexed slabs, packet buffers and their pools, the arena
//! of the tasks, and prefetch. This is the one room that maps memory; nothing here knows what a packet or a
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

#[cfg(not(loom))]
mod arena;
mod buffer_reclaim;
#[cfg(not(loom))]
mod depot;
#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
mod growth;
#[cfg(not(loom))]
mod part;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod prefetch;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod rested;
#[cfg(not(loom))]
mod slab;
mod stacks;
mod sync;

#[cfg(not(loom))]
pub use {
    arena::PageArena,
    depot::{Depot, DepotStats, Posted, Slots},
    frame::{Frame, HEADROOM, LENT, PacketBuf, SLOT_SIZE},
    growth::{Growth, TOUCH_QUEUE_MAX, Toucher},
    part::Part,
    pool::{MAGAZINE, Pool, RESERVE_MAX},
    prefetch::prefetch,
    region::{HUGE_PAGE, MemError, Region, RegionKind},
    registry::orphaned_depots,
    rested::Rested,
    slab::Slab,
};
