//! Things that threads share, by name: the model of the rota (`tests/rota`) puts a model checker's in their place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use std::thread::{Builder, JoinHandle, sleep as pause, yield_now};
pub(crate) use std::thread_local;
