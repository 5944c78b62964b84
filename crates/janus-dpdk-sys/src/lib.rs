//! DPDK for Janus: a C shim of some forty functions and its declarations. Only translation lives here; the backend
//! that drives it is `janus-io`'s.
//!
//! With the feature `dpdk` the shim and DPDK are linked; with `dpdk-dlopen` they are loaded by `load`, which says what
//! is missing where they are not. Without either the crate is empty and its build needs neither a C compiler nor DPDK.
//! With both they are linked.
//!
//! What to know before calling `ffi::jd_eal_init`: it may be called once in a process, it pins the
//! calling thread to a core, and without huge pages and devices it wants `--no-huge --no-shconf --no-pci`. Other threads
//! that poll register themselves (`ffi::jd_thread_register`), else pools give them no cache.
#![cfg_attr(
    not(any(feature = "dpdk", feature = "dpdk-dlopen")),
    forbid(unsafe_code)
)]

#[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
mod error;
#[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
pub mod ffi;
#[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
mod shim;

#[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
pub use error::{Error, check, version};
#[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
pub use shim::{LoadError, load};
