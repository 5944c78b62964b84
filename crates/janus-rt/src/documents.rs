//! The Rust programs in README and in `docs/` as doctests: each is compiled, and run unless it serves for ever. Those that need tokio
//! are doctests of `janus-compat-tests`. That no document is missing, and all that is not Rust, is the affair of
//! `examples/tests/documents`.

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../../../docs/from-tokio.md")]
struct FromTokio;

#[doc = include_str!("../../../docs/operating.md")]
struct Operating;
