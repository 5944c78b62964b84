//! `sync.rs` under the model checker: loom's types by the same names; loom tries every interleaving.

pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
