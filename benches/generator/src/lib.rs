//! The library of `janus-preload` with a load in it: the program that it is loaded before is asked by a thread of its own process, over a
//! wire in memory, on another processor. The far end is that of the other benchmarks, and keeps no connections. It measures by itself:
//! processor time of the process without that of its own thread, round by round, as `load.rs` says.
//!
//! Told by `GENERATOR_*` variables (`settings.rs`); without them the library is the preloaded one and no more.

#![allow(
    unsafe_code,
    reason = "a library says by a section what runs when it is loaded"
)]

mod load;
mod settings;

// The files that the load needs, of those that benchmarks share.
#[path = "../../support"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod support {
    pub mod far;
    pub mod report;
    pub mod scale;
    pub mod witness;
    pub use scale::Scale;
}

// Its symbols are this library's too.
use janus_preload as _;

use janus::{BackendChoice, Builder, Runtime, wire};
use janus_wire::Link;

use settings::Settings;

/// Carried out by the loader, before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    if Settings::are_there() {
        janus_c::process::built_by(builder);
    }
}

/// The process's end of the wire. The load begins at the other one.
fn builder() -> Builder {
    let settings = Settings::read();
    let config = wire::Config {
        link: Link::Ethernet,
        ..wire::Config::default()
    };
    let (near, far) = wire::pair(config).expect("a wire");
    let address = format!("{}/24", settings.ends.server.ip());
    let gateway = settings.ends.gateway();
    load::begin(settings, far);
    Runtime::builder()
        .ignore_environment()
        .backend(BackendChoice::wire(near))
        .address(address.parse().expect("an address"))
        .gateway(gateway)
}
