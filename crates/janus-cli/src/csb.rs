//! `janus csb plan`: the balancer's plan for a ring and a load. It only computes, and changes nothing.

use std::process::ExitCode;

use janus_csb::policy::{Bounds, Change, Planned, Shares, Targets, plan};
use janus_csb::{Ring, ShardId};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Which points would move for these weights, and what every shard would have then.
    Plan(Plan),
}

#[derive(clap::Args)]
struct Plan {
    /// Shards on the ring.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    shards: u16,
    /// Points of each shard.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    points: u16,
    /// Where the points are.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// The share each shard should have, in any unit; shards that are not named have 1, and 0 takes a shard off.
    #[arg(long, value_delimiter = ',')]
    weights: Vec<f64>,
    /// Flows that live, to say how many would differ from the ring.
    #[arg(long, default_value_t = 1_000_000)]
    flows: u64,
    /// Every point that changes.
    #[arg(long)]
    changes: bool,
}

/// Accepted relative distance of the plan from the weights.
const TOLERANCE: f64 = 0.01;

pub(crate) fn run(args: &Args) -> janus::Result<ExitCode> {
    let Command::Plan(asked) = &args.command;
    let ring = Ring::uniform(usize::from(asked.shards), asked.points, asked.seed);
    let shards: Vec<ShardId> = (0..=u8::MAX)
        .take(usize::from(asked.shards))
        .map(ShardId)
        .collect();
    let weights: Vec<f64> = (0..shards.len())
        .map(|n| asked.weights.get(n).copied().unwrap_or(1.0))
        .collect();
    if asked.weights.len() > shards.len() || !weights.iter().all(|&weight| weight >= 0.0) {
        return Err("--weights takes one number of 0 or more for each shard at most".into());
    }
    let total: f64 = weights.iter().sum();
    if total == 0.0 || !total.is_finite() {
        return Err(
            "--weights leaves nobody to own the keys; give at least one shard more than 0".into(),
        );
    }
    let mut targets = Targets::default();
    for (&shard, &weight) in shards.iter().zip(&weights) {
        targets.set(shard, weight);
    }
    let bounds = Bounds {
        tolerance: TOLERANCE,
        steps: 16 * 1024,
        moved: 1.0,
        points: 256,
    };
    let planned = plan(&ring, &targets, None, &bounds).map_err(|e| e.to_string())?;
    print(&ring, &planned, &shards, &weights, asked);
    Ok(ExitCode::SUCCESS)
}

fn print(ring: &Ring, planned: &Planned, shards: &[ShardId], weights: &[f64], asked: &Plan) {
    let (before, after) = (Shares::of(ring, None), planned.shares());
    let total: f64 = weights.iter().sum();
    println!("shard   should      has     will   points");
    for (&shard, weight) in shards.iter().zip(weights) {
        let points = planned.ring().points().filter(|&(_, owner)| owner == shard);
        println!(
            "{:>5}  {:>6.2} %  {:>5.2} %  {:>5.2} %  {:>7}",
            shard.to_string(),
            weight / total * 100.0,
            before[shard] * 100.0,
            after[shard] * 100.0,
            points.count()
        );
    }
    let over = |shares: &Shares| {
        let wanted = shards
            .iter()
            .zip(weights)
            .filter(|&(_, &weight)| weight > 0.0);
        let over = wanted.map(|(&shard, weight)| shares[shard] / (weight / total));
        over.fold(0.0, f64::max)
    };
    println!(
        "\nmost over its share: {:.3} times, then {:.3}",
        over(&before),
        over(after)
    );
    println!(
        "{} points change, {:.2} % of the circle moves: of {} flows about {:.0} would differ from the ring",
        planned.changes().len(),
        planned.load_moved() * 100.0,
        asked.flows,
        planned.load_moved() * asked.flows as f64
    );
    if asked.changes {
        planned.changes().iter().for_each(tell);
    }
}

fn tell(change: &Change) {
    match *change {
        Change::Move { shard, from, to } => println!("  move {shard} {from:#010x} -> {to:#010x}"),
        Change::Give { at, from, to } => println!("  give {at:#010x} {from} -> {to}"),
        Change::Add { at, shard } => println!("  add {shard} {at:#010x}"),
        Change::Remove { at, shard } => println!("  remove {shard} {at:#010x}"),
    }
}
