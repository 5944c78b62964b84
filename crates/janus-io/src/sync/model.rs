//! `sync.rs` under the model checker: loom's types by the same names.

pub(crate) use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering, fence},
};

/// Whether the model checker runs this code.
pub(crate) const MODELED: bool = true;

/// The owner of memory that somebody else looks at through pointers, its type forgotten.
pub(crate) fn keep_alive(
    memory: impl std::any::Any + Send + Sync,
) -> Arc<dyn std::any::Any + Send + Sync> {
    Arc::from_std(std::sync::Arc::new(memory))
}
