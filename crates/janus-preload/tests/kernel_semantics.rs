//! The kernel as the oracle of the preloaded library: the sequences of `janus-posix`'s comparison, carried out through libc's functions by
//! two processes, one with the library in front of libc and loopback Janus's, one without. What they print must be the same.

#[path = "../../janus-posix/tests/kernel_semantics/kernel.rs"]
mod kernel;
#[path = "../../janus-posix/tests/kernel_semantics/plan.rs"]
mod plan;
mod twins;

use std::env;
use std::process::Stdio;
use std::thread;

use plan::{Op, Who};

/// Somewhere sockets are.
trait World {
    /// Carries out a call; its value or minus errno.
    fn call(&mut self, op: Op) -> i64;
    /// Lets all that is on its way arrive.
    fn settle(&mut self);
    /// What poll says of a socket, if it is open.
    fn mask(&mut self, who: Who) -> Option<u32>;
}

/// Says what a process is to carry out; in none: it is the judge.
const PART: &str = "SEMANTICS_PART";
const SEEDS: u64 = 150;
/// Microseconds that loopback is given, at first and where that was too little.
const PATIENCE: [u64; 3] = [200, 4_000, 50_000];

/// The plans of a part, each with its name.
fn plans(part: &str) -> Vec<(String, Vec<Op>)> {
    match part {
        "states" => {
            let mut all = Vec::new();
            for (name, setup) in plan::setups() {
                for probe in plan::probes() {
                    let mut plan = setup.clone();
                    plan.push(probe);
                    plan.extend(plan::aftermath(probe.who()));
                    all.push((name.to_owned(), plan));
                }
            }
            all
        }
        "pairs" => plan::pairs()
            .into_iter()
            .map(|plan| ("pair".to_owned(), plan))
            .collect(),
        "urgent" => (0..SEEDS)
            .map(|seed| (format!("seed {seed}"), plan::urgent_walk(seed)))
            .collect(),
        "epoll" => (0..SEEDS)
            .map(|seed| (format!("seed {seed}"), plan::epoll_walk(seed)))
            .collect(),
        other => panic!("there is no part {other}"),
    }
}

/// What a plan shows: a line for each call.
fn run(plan: &[Op], patience_us: u64) -> Vec<String> {
    let mut world = kernel::Kernel::new(patience_us);
    let mut seen = Vec::new();
    for &op in plan {
        let outcome = world.call(op);
        world.settle();
        let masks = Who::ALL.map(|who| world.mask(who));
        seen.push(format!("{op:?} = {outcome}; {masks:x?}"));
    }
    seen
}

/// Carries out a part, some plans at a time, and prints it: a line for each plan.
fn carry_out(part: &str, only: Option<usize>, patience_us: u64) {
    assert!(twins::is_itself());
    let plans = plans(part);
    let chosen: Vec<usize> = match only {
        Some(one) => vec![one],
        None => (0..plans.len()).collect(),
    };
    let threads = 8;
    let lines: Vec<Vec<(usize, String)>> = thread::scope(|scope| {
        let parts = chosen.chunks(chosen.len().div_ceil(threads));
        let started: Vec<_> = parts
            .map(|part| {
                let plans = &plans;
                scope.spawn(move || {
                    let each = part
                        .iter()
                        .map(|&at| (at, run(&plans[at].1, patience_us).join(" | ")));
                    each.collect()
                })
            })
            .collect();
        started
            .into_iter()
            .map(|it| it.join().expect("an end"))
            .collect()
    });
    for (at, line) in lines.concat() {
        println!("{at}: {line}");
    }
}

/// What a process of its own prints when it carries out a part.
fn transcript(part: &str, only: Option<usize>, patience_us: u64, preloaded: bool) -> Vec<String> {
    let mut command = twins::twin(preloaded);
    command
        .env(PART, part)
        .env("SEMANTICS_PATIENCE", patience_us.to_string());
    if let Some(only) = only {
        command.env("SEMANTICS_ONLY", only.to_string());
    }
    let ended = command.stderr(Stdio::inherit()).output().expect("it runs");
    assert!(ended.status.success(), "{part}: {}", ended.status);
    let text = String::from_utf8(ended.stdout).expect("text");
    let lines = text.lines().filter(|line| {
        line.split_once(": ")
            .is_some_and(|(at, _)| at.parse::<usize>().is_ok())
    });
    lines.map(str::to_owned).collect()
}

/// Where both differ although the kernel is given time, and the difference is not known.
fn differences(part: &str) -> Vec<String> {
    let plans = plans(part);
    let (ours, theirs) = (
        transcript(part, None, PATIENCE[0], true),
        transcript(part, None, PATIENCE[0], false),
    );
    assert_eq!(
        (ours.len(), theirs.len()),
        (plans.len(), plans.len()),
        "{part}"
    );
    let mut wrong = Vec::new();
    for (at, (name, plan)) in plans.iter().enumerate() {
        let mut difference = twins::first(&theirs[at], &ours[at]);
        for patience in &PATIENCE[1..] {
            if difference.is_none() {
                break;
            }
            let again = |preloaded| transcript(part, Some(at), *patience, preloaded).concat();
            difference = twins::first(&again(false), &again(true));
        }
        let known = |op: Op| {
            let mut all = plan::DIFFERENCES.iter();
            all.any(|(setup, probes, _)| (*setup == "*" || setup == name) && probes(op))
        };
        if let Some((step, theirs, ours)) = difference
            && !known(plan[step])
        {
            wrong.push(format!(
                "{part} {at}, {name}:\n    kernel: {theirs}\n    janus:  {ours}"
            ));
        }
    }
    println!("{part}: {} sequences, {} differ", plans.len(), wrong.len());
    wrong
}

fn main() {
    if let Ok(part) = env::var(PART) {
        let number = |name: &str| {
            env::var(name)
                .ok()
                .map(|text| text.parse::<u64>().expect("a number"))
        };
        let only = number("SEMANTICS_ONLY").map(|only| only as usize);
        return carry_out(
            &part,
            only,
            number("SEMANTICS_PATIENCE").unwrap_or(PATIENCE[0]),
        );
    }
    if !twins::library().is_file() {
        eprintln!("skipped: {} is not built", twins::library().display());
        return;
    }
    let mut wrong = Vec::new();
    for part in ["states", "pairs", "urgent", "epoll"] {
        wrong.extend(differences(part));
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
