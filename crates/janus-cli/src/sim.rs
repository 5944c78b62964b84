//! `janus sim`: runs scripts against the engine, and prints a line for each and the first difference of each that fails; `janus sim
//! hostile`: whole connections through hostile networks, from seeds; `janus sim goodput`: the share of a link that one transfer gets.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use janus_sim::goodput::{ALGORITHMS, Cell, Row, markdown, parse, svg};

mod scripts;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    /// Scripts, or folders of them (`*.pkt`).
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    how: scripts::How,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Connections through networks that lose, reorder, damage and cut off, one network a seed.
    Hostile {
        /// How many.
        #[arg(long, default_value_t = 10_000)]
        runs: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        first: u64,
    },
    /// Goodput over loss, round trip and buffer, of each congestion control, beside theory. Build with `--release`: it is
    /// hours of virtual time.
    Goodput {
        /// Where `goodput.md` and its plots go.
        #[arg(long, default_value = "docs")]
        into: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> janus::Result<ExitCode> {
    match &args.command {
        Some(Command::Goodput { into }) => goodput(into),
        &Some(Command::Hostile { runs, first }) => {
            let tally = janus_sim::hostile::run_many(first..first.saturating_add(runs));
            for (name, count) in tally.iter() {
                println!("{count:>14} {name}");
            }
            Ok(ExitCode::SUCCESS)
        }
        None => Ok(scripts::run(&args.paths, &args.how)),
    }
}

fn goodput(into: &Path) -> janus::Result<ExitCode> {
    let write = |name: &str, text: String| {
        let path = into.join(name);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    let cells: Vec<Cell> = Cell::all().collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut rows = std::thread::scope(|scope| {
        let measure_some = || {
            let mut rows = Vec::new();
            while let Some(&cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                let measured = ALGORITHMS.map(|algorithm| cell.measure(algorithm));
                println!("{cell:?}: {measured:.2?} Mbit/s");
                rows.push(Row { cell, measured });
            }
            rows
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(measure_some)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.flatten().flatten().collect::<Vec<Row>>()
    });
    rows.sort_by_key(|row| cells.iter().position(|cell| *cell == row.cell));
    if rows.len() < cells.len() {
        return Err("some cells could not be measured".into());
    }
    let page = markdown(&rows);
    // The plots show the page's figures, which are rounded.
    let rows = parse(&page);
    write("goodput.md", page)?;
    write("goodput-reno.svg", svg(&rows, ALGORITHMS[0]))?;
    write("goodput-cubic.svg", svg(&rows, ALGORITHMS[1]))?;
    Ok(ExitCode::SUCCESS)
}
