//! Every script under `tests/packetdrill` at the root of the repository, each with several seeds, so that nothing
//! hangs on one initial sequence number. `JANUS_SCRIPT=part` runs only those whose path contains `part`.

use janus_sim::run::{Failure, Moves, Options, Whose, read_file, run_file, run_script};
use janus_sim::script::Script;
use std::path::{Path, PathBuf};

mod own;

use own::{all, over_v6};

/// Seeds each script runs with.
const SEEDS: std::ops::Range<u64> = 0..2;

/// Runs each with every seed, and tells what failed.
fn run_all(found: &[PathBuf], run: impl Fn(&Path, &Options) -> Result<(), Failure>) {
    let mut failed = 0;
    for path in found {
        let with_seed = |seed| Options {
            seed,
            ..Options::default()
        };
        let failure = SEEDS
            .map(|seed| run(path, &with_seed(seed)))
            .find_map(Result::err);
        if let Some(failure) = failure {
            eprintln!("{failure}\n");
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "scripts failed, of {}", found.len());
}

#[test]
fn all_scripts_pass() {
    run_all(&all(), |path, options| run_file(path, options).map(|_| ()));
}

#[test]
fn all_scripts_pass_over_ipv6() {
    let all = all();
    let found: Vec<PathBuf> = all
        .iter()
        .filter(|p| over_v6(p).is_some())
        .cloned()
        .collect();
    let most = found.len() * 4 >= all.len() * 3;
    assert!(
        most || std::env::var("JANUS_SCRIPT").is_ok(),
        "only {} of {}",
        found.len(),
        all.len()
    );
    run_all(&found, |path, options| {
        let script = over_v6(path).expect("looked at before");
        let name = format!("{} over IPv6", path.display());
        run_script(&name, &script, options).map(|_| ())
    });
}

/// Scripts about what is the runtime's and not the connection's, so that they pass with moves within one runtime only, and why.
const ONE_RUNTIME: &[(&str, &str)] = &[
    ("cookies/always.pkt", COOKIES),
    ("cookies/data_with_the_acknowledgement.pkt", COOKIES),
    ("cookies/forged.pkt", COOKIES),
    ("cookies/reset_forgets_nothing.pkt", COOKIES),
    ("cookies/size_rounded_down.pkt", COOKIES),
    ("cookies/with_timestamps.pkt", COOKIES),
    ("ipv6/cookie.pkt", COOKIES),
    ("close/linger2_beyond_a_minute.pkt", SECONDS),
    ("close/linger2_in_fin_wait_2.pkt", SECONDS),
    ("close/linger2_seconds.pkt", SECONDS),
    ("settings/fin_timeout.pkt", SECONDS),
];
const COOKIES: &str =
    "a cookie is made with the secrets and the clock of its runtime, and is no connection yet";
const SECONDS: &str = "the wait for a peer's FIN ends with a whole second of the clock";
/// Scripts that do not pass with moves, and why.
const NO_MOVES: &[(&str, &str)] = &[
    (
        "handshake/listener_closes_half_open.pkt",
        "nothing listens any more, so the new stack refuses the handshake",
    ),
    (
        "cookies/full_syn_queue.pkt",
        "who has sent no cookie of late looks at none",
    ),
];
const _: () = assert!(ONE_RUNTIME.len() + NO_MOVES.len() <= 15);

/// Runs a script with moves.
fn run_moved(
    path: &Path,
    script: &Script,
    moves: impl Fn(usize) -> Vec<Moves>,
    options: &Options,
) -> Result<(), Failure> {
    let is_named = |names: &[(&str, &str)]| names.iter().any(|(name, _)| path.ends_with(name));
    if is_named(NO_MOVES) {
        return Ok(());
    }
    let whose = if is_named(ONE_RUNTIME) {
        Whose::Own
    } else {
        Whose::Another
    };
    moves(script.events.len())
        .into_iter()
        .try_for_each(|moves| {
            let name = format!("{}, {moves:?}", path.display());
            run_script(
                &name,
                script,
                &Options {
                    moves,
                    whose,
                    ..options.clone()
                },
            )
            .map(|_| ())
        })
}

/// With all connections in another stack at each line: other secrets, numbers, caches, another clock.
#[test]
fn all_scripts_pass_with_a_move_before_each_line() {
    let always = |_| vec![Moves::Always];
    run_all(&all(), |path, options| {
        run_moved(path, &read_file(path)?, always, options)?;
        over_v6(path).map_or(Ok(()), |script| run_moved(path, &script, always, options))
    });
}

/// With one move, before any of its lines.
#[test]
fn all_scripts_pass_with_a_move_before_any_line() {
    run_all(&all(), |path, options| {
        let each = |events| (0..events).map(Moves::Before).collect();
        run_moved(path, &read_file(path)?, each, options)
    });
}
