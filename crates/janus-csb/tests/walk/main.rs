//! Traces of whole updates, which the paper's protocol, or a tempting repair of it, does not survive. The walk alone is
//! tried in a small world of its own, beside it (`src/walk/tests`).
#![cfg(not(loom))]

mod paper;
mod repairs;
mod stage;
