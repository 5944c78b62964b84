//! The primitives of the lock-free parts, in one place so that the loom model checker can stand in for them. Never holds
//! logic: only names for `std`'s types, or loom's under `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, Ordering},
};
