//! The primitives that publishing stands on: the standard library's. Under `--cfg loom` `sync/model.rs` takes this file's place.

pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
