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

mod arena;
mod depot;
mod frame;
mod growth;
mod pool;
mod prefetch;
mod region;
mod registry;
mod slab;

pub use arena::{GRANULE, SizeClass, SlotArena};
pub use depot::{Depot, DepotStats, Slots};
pub use frame::{Frame, HEADROOM, LENT, PacketBuf, SLOT_SIZE};
pub use growth::{Growth, TOUCH_QUEUE_MAX, Toucher};
pub use pool::{MAGAZINE, Pool, RESERVE_MAX};
pub use prefetch::prefetch;
pub use region::{HUGE_PAGE, MemError, Region, RegionKind};
pub use registry::orphaned_depots;
pub use slab::Slab;
