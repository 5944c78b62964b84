//! The primitives of the lock-free parts, in one place so that the loom model checker can stand in for them (`sync/model.rs`, under
//! `--cfg loom`). Never holds logic: only names for `std`'s types.

pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, Ordering},
};
