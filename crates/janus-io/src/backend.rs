//! Backends: devices that frames come from and go to, each a [`Backend`](crate::Backend) that opens into queues, and the parts that several
//! of them share (checksums left undone, frames larger than a packet, huge pages). Knows the interface of queues; never the steering, the
//! shards, or what is wrapped around a device.

#[cfg(feature = "_dpdk")]
pub mod dpdk;
mod held;
pub(crate) mod huge_pages;
mod large;
pub mod loans;
pub mod member;
mod places;
mod sound;
pub mod tap;
pub mod wire;
pub mod xdp;
