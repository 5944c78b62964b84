//! Nothing lives here: this package exists for the cross-crate `benches/` and `tests/`.
//! The library a user adds is `janus-rt` (imported as `janus`).
