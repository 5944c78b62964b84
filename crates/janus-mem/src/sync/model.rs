//! `sync.rs` under the model checker: loom's types by the same names.

pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, Ordering},
};
