//! The attack list of `janus-tcp` against whole runtimes: one shard; three; three whose rings change every 10 ms. All over
//! both families, in one layout over each. `JANUS_LOCKSTEP_SEED` runs one seed again, `JANUS_ATTACK_SEEDS` says how many are run.

#[macro_use]
#[path = "../../../../janus-tcp/tests/attack_list/list.rs"]
mod list;
mod shards;

use super::updates::seeds;
use super::{COMBINED, Layout, SPLIT};
use list::arena::Arena;
use list::support::family;
use shards::Shards;

const ONE: Layout = Layout {
    shards: 1,
    io_cores: 0,
};
const ONE_SPLIT: Layout = Layout {
    shards: 1,
    io_cores: 1,
};

/// Puts a runtime under `attack`, over IPv4 in the first layout and over IPv6 in the second.
fn fight(layouts: [Layout; 2], changing: bool, depot: u32, buffers: usize, attack: fn(&mut Arena)) {
    let count = std::env::var("JANUS_ATTACK_SEEDS").ok();
    let count = count.map_or(1, |count| count.parse().expect("a number of seeds"));
    for seed in seeds(1, count) {
        for (v6, layout) in [false, true].into_iter().zip(layouts) {
            println!("JANUS_LOCKSTEP_SEED={seed} {layout:?}, IPv6: {v6}");
            family::over(v6, || {
                let host = Shards::new(seed, layout, changing, depot);
                Arena::fight(Box::new(host), buffers, attack);
            });
        }
    }
}

macro_rules! against_runtimes {
    ($against:ident $layouts:tt $changing:tt $when:tt
     $($(#[$doc:meta])* $module:ident::$name:ident, $buffers:expr $(, in $depot:expr)?;)*) => {
        mod $against {
            use super::*;

            $($(#[$doc])* #[test] #$when
            fn $name() {
                let depot = [$($depot,)? list::BUFFERS][0];
                fight($layouts, $changing, depot, $buffers, list::$module::$name);
            })*
        }
    };
}

attacks!(against_runtimes one_shard [ONE, ONE_SPLIT] false [ignore = "three shards ask for more; `.ci/run` asks this too"]);
attacks!(against_runtimes three_shards [SPLIT, COMBINED] false [ignore = "changing rings ask for more; `.ci/run` asks this too"]);
attacks!(against_runtimes changing_rings [COMBINED, SPLIT] true [cfg(test)]);
