//! The I/O core: admission and steering of received bursts, the rings between polling cores and shards in both placements, the loop and
//! when it sleeps. Knows the interface of queues, and no device.

pub(crate) mod batching;
mod cause;
pub(crate) mod core_loop;
pub(crate) mod dispatch;
pub(crate) mod idle;
pub mod policy;
pub(crate) mod port;
pub mod steer;
