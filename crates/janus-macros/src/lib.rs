//! `#[janus::main]` and `#[janus::test]`: an `async fn` becomes a plain one that builds a runtime and runs it. This file has only the two
//! entry points; `expand` makes the code, `options` parses the attributes' arguments.
#![forbid(unsafe_code)]

mod expand;
mod options;

use proc_macro::TokenStream;

/// Runs an `async fn main` on a Janus runtime: **one copy of it on every TCP core**, so that a plain accept loop scales by itself. The
/// program ends when all copies have ended, or with the first error or panic of one.
///
/// The attribute takes these arguments:
///
/// * `cores = 4`: this number of TCP cores, in place of the configuration's; `cores = "0-3"`: one on each of these processors (a list such
///   as `"0,2,4-7"`), to which their threads are pinned; `cores = "auto"`: as configured, else one for each processor (also the default);
/// * `config = "server.toml"`: the file to read, instead of `janus.toml` or the one `JANUS_CONFIG` names;
/// * `start_paused = true`: time stands still while anything can be done, and jumps to the next timer when nothing can;
/// * `crate = "path"`: the path of the `janus` crate, if it was renamed.
///
/// The function takes no arguments and returns nothing or a `Result<(), E>`. Everything else about the runtime is
/// configuration; build it by hand with `janus::Runtime::builder()` to decide in code.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Door::Main, options.into(), item.into()).into()
}

/// Runs an `async fn` as a test on a Janus runtime of its own, on one core unless `cores` says otherwise; then one copy
/// of the test runs on each. Neither `janus.toml` nor the environment is read. An error or a panic in any copy fails
/// the test; `#[should_panic]` and `#[ignore]` work as usual.
///
/// The arguments are those of `main`; `cores = "auto"` is one for each processor, and a file named by `config` is read. `start_paused =
/// true` is for tests of timeouts, retries and backoff: a day takes no time.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Door::Test, options.into(), item.into()).into()
}
