//! DPDK for Janus: a C shim of about thirty functions and its declarations. Only translation lives here; the backend
//! that drives it is `janus-io`'s.
//!
//! Without the feature `dpdk` the crate is empty and its build needs neither a C compiler nor DPDK.
//!
//! What to know before calling `ffi::jd_eal_init`: it may be called once in a process, it pins the
//! calling thread to a core, and without huge pages and devices it wants `--no-huge --no-shconf --no-pci`. Other threads
//! that poll register themselves (`ffi::jd_thread_register`), else pools give them no cache.
#![cfg_attr(not(feature = "dpdk"), forbid(unsafe_code))]

#[cfg(feature = "dpdk")]
mod error;
#[cfg(feature = "dpdk")]
pub mod ffi;

#[cfg(feature = "dpdk")]
pub use error::{Error, check, version};
