//! Random calls of three threads on one table of descriptors, by two processes: one with the library in front of libc and loopback Janus's,
//! one without.
//!
//! `baton`: the threads take turns, so that a seed decides the order of all calls, those that wait included; both must print the same.
//! `free`: they run as they like; each answer must be one that the kernel could give, and each byte where it belongs.
//!
//! `JANUS_FUZZ_SEEDS` says how many seeds, `JANUS_FUZZ_SEED` runs one again.

mod baton;
mod bytes;
mod calls;
mod free;
mod plan;
#[path = "../twins/mod.rs"]
mod twins;
mod waits;

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plan::Step;

/// Says what a process is to carry out; in none: it is the judge.
const PART: &str = "TWO_THREADS_PART";
const SEEDS: u64 = 400;
/// Seeds with a baton for each without.
const BATONS_FOR_FREE: u64 = 8;
/// Random calls of a plan.
const CALLS: usize = 40;
/// Processes for each side of a comparison.
const PROCESSES: u64 = 4;
/// How long a call gets before it counts as one that waits, and loopback to bring what was sent; at first, and where that was too little.
const PATIENCE: [(Duration, Duration); 3] = [
    (Duration::from_millis(2), Duration::from_micros(200)),
    (Duration::from_millis(10), Duration::from_millis(3)),
    (Duration::from_millis(60), Duration::from_millis(50)),
];
/// No plan takes so long.
const LONG: Duration = Duration::from_secs(60);
/// Differences that are looked for, and those of them that are shrunk.
const WRONG_MAX: usize = 10;
const SHRUNK_MAX: usize = 4;

/// Kinds of comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Baton,
    Free,
}

/// Seeds, and which calls of their plans stay.
#[derive(Clone, Copy)]
struct Chosen {
    part: Part,
    first: u64,
    step: u64,
    end: u64,
    /// By its place among the random calls, a bit for each.
    kept: u128,
}

impl Chosen {
    fn one(seed: u64, kept: u128) -> Chosen {
        Chosen {
            part: Part::Baton,
            first: seed,
            step: 1,
            end: seed + 1,
            kept,
        }
    }

    fn seeds(self) -> impl Iterator<Item = u64> {
        (self.first..self.end).step_by(self.step as usize)
    }

    fn plan(self, seed: u64) -> Vec<Step> {
        let all = plan::plan(seed, CALLS);
        let begin = plan::setup().len();
        let steps = all.into_iter().enumerate();
        let kept = steps.filter(|(at, _)| *at < begin || self.kept & 1 << (at - begin) != 0);
        kept.map(|(_, step)| step).collect()
    }

    fn text(self) -> String {
        let part = match self.part {
            Part::Baton => 0,
            Part::Free => 1,
        };
        let Chosen {
            first,
            step,
            end,
            kept,
            ..
        } = self;
        format!("{part} {first} {step} {end} {kept}")
    }

    fn parse(text: &str) -> Chosen {
        let mut words = text.split(' ');
        let mut number = || {
            words
                .next()
                .expect("a word")
                .parse::<u128>()
                .expect("a number")
        };
        Chosen {
            part: if number() == 0 {
                Part::Baton
            } else {
                Part::Free
            },
            first: number() as u64,
            step: number() as u64,
            end: number() as u64,
            kept: number(),
        }
    }
}

/// What a process prints: a line for each seed.
struct Transcript {
    lines: Vec<(u64, String)>,
    process: u32,
    status: Option<ExitStatus>,
}

impl Transcript {
    fn of(&self, seed: u64) -> String {
        let line = self.lines.iter().find(|(of, _)| *of == seed);
        match line {
            Some((_, line)) => line.clone(),
            // Never the same on both sides.
            None => format!(
                "process {} printed nothing: {:?}",
                self.process, self.status
            ),
        }
    }
}

/// Lets a process carry out plans.
fn transcript(chosen: Chosen, patience: usize, preloaded: bool) -> Transcript {
    let mut child = twins::twin(preloaded)
        .env(PART, chosen.text())
        .env("TWO_THREADS_PATIENCE", patience.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let printed = BufReader::new(child.stdout.take().expect("a pipe"));
    let watched = child.id();
    let (tells, told) = std::sync::mpsc::channel();
    let reads = thread::spawn(move || {
        for line in printed.lines().map_while(Result::ok) {
            let _ended = tells.send(line);
        }
    });
    let mut lines = Vec::new();
    loop {
        match told.recv_timeout(LONG) {
            Ok(line) => {
                let seed = line
                    .split_once(": ")
                    .and_then(|(seed, line)| Some((seed.parse().ok()?, line)));
                match seed {
                    Some((seed, line)) => lines.push((seed, line.to_owned())),
                    None => eprintln!("{line}"),
                }
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                eprintln!("process {watched} stands still");
                child.kill().expect("it runs");
            }
            Err(_) => break,
        }
    }
    reads.join().expect("an end");
    let status = child.wait().ok();
    Transcript {
        lines,
        process: watched,
        status,
    }
}

/// Both transcripts: the kernel's, Janus's.
fn both(chosen: Chosen, patience: usize) -> (Transcript, Transcript) {
    thread::scope(|scope| {
        let kernel = scope.spawn(move || transcript(chosen, patience, false));
        let ours = transcript(chosen, patience, true);
        (kernel.join().expect("an end"), ours)
    })
}

/// Where both differ although they are given time.
fn difference(chosen: Chosen) -> Option<(usize, String, String)> {
    let seed = chosen.first;
    let mut difference = None;
    for patience in 1..PATIENCE.len() {
        let (kernel, ours) = both(chosen, patience);
        difference = twins::first(&kernel.of(seed), &ours.of(seed));
        difference.as_ref()?;
    }
    difference
}

/// Leaves out calls, as long as both still differ.
fn shrink(seed: u64, found: usize) -> u128 {
    let begin = plan::setup().len();
    // What comes after the difference has no part in it.
    let mut kept = match (found + 1).checked_sub(begin) {
        Some(calls) if calls < CALLS => (1 << calls) - 1,
        _ => (1 << CALLS) - 1,
    };
    if difference(Chosen::one(seed, kept)).is_none() {
        kept = (1 << CALLS) - 1;
    }
    let mut size = CALLS / 2;
    while size > 0 {
        for first in (0..CALLS).step_by(size).rev() {
            let without = kept & !(((1_u128 << size) - 1) << first);
            if without != kept && difference(Chosen::one(seed, without)).is_some() {
                kept = without;
            }
        }
        size /= 2;
    }
    kept
}

fn report(seed: u64, kept: u128) -> String {
    let chosen = Chosen::one(seed, kept);
    let (kernel, ours) = both(chosen, PATIENCE.len() - 1);
    let (kernel, ours) = (kernel.of(seed), ours.of(seed));
    let mut text = format!("seed {seed}, calls {kept:#x}:\n");
    for (theirs, ours) in kernel.split(" | ").zip(ours.split(" | ")) {
        match theirs == ours {
            true => text += &format!("      both: {ours}\n"),
            false => {
                text += &format!("    kernel: {theirs}\n    janus:  {ours}\n");
                break;
            }
        }
    }
    text
}

/// Seeds whose transcripts differ, each with the place of the difference.
fn compare(seeds: u64) -> Vec<(u64, usize)> {
    let parts = (0..PROCESSES).map(|first| Chosen {
        part: Part::Baton,
        first,
        step: PROCESSES,
        end: seeds,
        kept: u128::MAX,
    });
    let run: Vec<_> = parts
        .map(|part| thread::spawn(move || (part, both(part, 0))))
        .collect();
    let mut suspects = Vec::new();
    for it in run {
        let (part, (kernel, ours)) = it.join().expect("an end");
        let differ = part
            .seeds()
            .filter(|seed| twins::first(&kernel.of(*seed), &ours.of(*seed)).is_some());
        suspects.extend(differ);
    }
    suspects.sort_unstable();
    println!("{} of {seeds} are looked at again", suspects.len());
    let again = suspects.into_iter().filter_map(|seed| {
        let (at, ..) = difference(Chosen::one(seed, u128::MAX))?;
        Some((seed, at))
    });
    again.take(WRONG_MAX).collect()
}

/// Carries out plans and prints what they show.
fn carry_out(chosen: Chosen, patience: usize) {
    assert!(twins::is_itself());
    baton::interrupts();
    baton::close_all();
    for seed in chosen.seeds() {
        if chosen.part == Part::Free {
            println!("{seed}: {}", free::run(seed));
            continue;
        }
        let table = calls::Table::new(plan::is_numbered(seed));
        let table = if plan::is_anchored(seed) {
            table.anchored()
        } else {
            table
        };
        let seen = baton::run(&chosen.plan(seed), table, PATIENCE[patience]);
        println!("{seed}: {}", seen.join(" | "));
    }
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

fn main() {
    if let Ok(part) = env::var(PART) {
        let patience = number("TWO_THREADS_PATIENCE").unwrap_or(0) as usize;
        return carry_out(Chosen::parse(&part), patience);
    }
    if !twins::library().is_file() {
        eprintln!("skipped: {} is not built", twins::library().display());
        return;
    }
    let one = number("JANUS_FUZZ_SEED");
    let seeds = number("JANUS_FUZZ_SEEDS").unwrap_or(SEEDS);
    compared(one, seeds);
    ran_free(one, seeds.div_ceil(BATONS_FOR_FREE));
}

fn compared(one: Option<u64>, seeds: u64) {
    let begin = Instant::now();
    let wrong: Vec<(u64, usize)> = match one {
        Some(seed) => difference(Chosen::one(seed, u128::MAX))
            .map(|(at, ..)| (seed, at))
            .into_iter()
            .collect(),
        None => compare(seeds),
    };
    println!(
        "baton: {seeds} seeds, {} differ, {:?}",
        wrong.len(),
        begin.elapsed()
    );
    let each = wrong.iter().take(SHRUNK_MAX);
    let told: Vec<String> = each
        .map(|(seed, at)| report(*seed, shrink(*seed, *at)))
        .collect();
    let seeds: Vec<u64> = wrong.iter().map(|(seed, _)| *seed).collect();
    assert!(
        wrong.is_empty(),
        "seeds {seeds:?} differ:\n{}",
        told.join("\n")
    );
}

/// Lets threads run freely; on the kernel too, which shows what the test may ask for.
fn ran_free(one: Option<u64>, seeds: u64) {
    let begin = Instant::now();
    let (first, end) = one.map_or((0, seeds), |seed| (seed, seed + 1));
    let chosen = Chosen {
        part: Part::Free,
        first,
        step: 1,
        end,
        kept: u128::MAX,
    };
    let (kernel, ours) = both(chosen, 0);
    for (whose, it) in [("the kernel's", kernel), ("Janus's", ours)] {
        let missing = chosen
            .seeds()
            .find(|seed| it.lines.iter().all(|(of, _)| of != seed));
        let ended = it.status.is_some_and(|status| status.success());
        assert!(
            missing.is_none() && ended,
            "free, {whose} sockets: seed {missing:?} went wrong, {:?}",
            it.status
        );
    }
    println!("free: {seeds} seeds, {:?}", begin.elapsed());
}
