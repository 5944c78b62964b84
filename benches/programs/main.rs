//! Unmodified programs on Janus and on the kernel's sockets: nginx and lighttpd with a small file, redis-server; one process each.
//!
//! * `memory`: on Janus the preloaded library has a load generator in it (`benches/generator`), on a thread of the same process that has
//!   another processor; packets go over a wire in memory, no device and no kernel has a part in them, and the generator's time is left out.
//!   On the kernel's sockets the program is asked over loopback by wrk, ab or redis-benchmark, on the other processor. Loopback has no
//!   device and computes no checksums either; of the kernel's work on a packet the half that brings it to a socket is done in the time of
//!   the one who sent it, so `both_cpu` has the client in it. The generator is no client with sockets, and only `server_cpu` is compared.
//! * `tap`: on Janus over TAP, on the kernel's sockets over veth, asked by the same clients from the kernel's end in a namespace of the
//!   benchmark's own. Each frame over TAP is a system call of the program's process.
//!
//! `server_cpu` is the processor time of the program, all its threads; `both_cpu` that of program and client; `machine_cpu` that of the whole
//! machine, with interrupts and with whatever else runs. `keep`: kept connections; `close`: a connection for each request. `relation` is
//! Janus over the kernel, round by round. Sides take turns; rows are medians of rounds.
//!
//! Needs root, `ip`, `taskset`, and the programs; without one it says what is missing. `cargo bench --bench programs -- memory redis` runs
//! a part, or a program, only.

mod client;
mod memory;
mod server;
mod spaces;
#[path = "../support/mod.rs"]
mod support;
mod tap;

use std::collections::BTreeMap;
use std::path::PathBuf;

use client::Client;
use server::{Folder, Work};
use spaces::{Spaces, run};
use support::Scale;
use support::report::{Report, Value};

/// Connections that are open, or under way, at a time.
const CONNECTIONS: u32 = 50;

/// Figures of one side in one round.
#[derive(Clone, Copy)]
struct Sample {
    per_s: f64,
    per_server_cpu: f64,
    /// Unknown for the generator, which is no client with sockets.
    per_both_cpu: Option<f64>,
    per_machine_cpu: Option<f64>,
}

/// Everything that a part needs.
struct Bench {
    spaces: Spaces,
    folder: Folder,
    works: Vec<Work>,
    preload: PathBuf,
    generator: PathBuf,
    rounds: u32,
    seconds: u32,
}

/// By work, client and side.
#[derive(Default)]
struct Samples(BTreeMap<(Work, Client, bool), Vec<Sample>>);

impl Samples {
    fn add(&mut self, work: Work, client: Client, on_janus: bool, sample: Sample) {
        self.0
            .entry((work, client, on_janus))
            .or_default()
            .push(sample);
    }

    fn rows(&self, report: &mut Report, over: &str) {
        for (&(work, client, on_janus), all) in &self.0 {
            let params = params(over, work, client, &[("on", side(on_janus).into())]);
            for (name, figure) in FIGURES {
                let all: Vec<f64> = all.iter().filter_map(figure).collect();
                if !all.is_empty() {
                    report.median(&format!("requests_per_{name}"), &all, "1/s", &params);
                }
            }
        }
        for (&(work, client, _), janus) in self.0.iter().filter(|((_, _, janus), _)| *janus) {
            for ((_, against, _), kernel) in self.of_the_kernel(work, client) {
                for (name, figure) in FIGURES {
                    let pairs = janus.iter().zip(kernel);
                    let ratios = pairs.filter_map(|(janus, kernel)| {
                        Some(figure(janus).as_ref()? / figure(kernel).as_ref()?)
                    });
                    let ratios: Vec<f64> = ratios.collect();
                    // What the generator finds in a second is how fast it is, and no comparison.
                    if !ratios.is_empty() && (name != "s" || client == *against) {
                        let params = params(over, work, *against, &[("of", name.into())]);
                        report.median("relation", &ratios, "ratio", &params);
                    }
                }
            }
        }
    }

    /// Samples of the kernel's sockets that those of a client on Janus are compared with.
    fn of_the_kernel(
        &self,
        work: Work,
        client: Client,
    ) -> impl Iterator<Item = (&(Work, Client, bool), &Vec<Sample>)> {
        self.0.iter().filter(move |((its, by, on_janus), _)| {
            *its == work && !on_janus && (*by == client || client == Client::Generator)
        })
    }
}

type Figure = (&'static str, fn(&Sample) -> Option<f64>);
const FIGURES: [Figure; 4] = [
    ("s", |it| Some(it.per_s)),
    ("server_cpu_s", |it| Some(it.per_server_cpu)),
    ("both_cpu_s", |it| it.per_both_cpu),
    ("machine_cpu_s", |it| it.per_machine_cpu),
];

fn side(on_janus: bool) -> &'static str {
    if on_janus { "janus" } else { "kernel" }
}

fn params(
    over: &str,
    work: Work,
    client: Client,
    more: &[(&'static str, Value)],
) -> Vec<(&'static str, Value)> {
    let all = [
        ("over", over.into()),
        ("program", work.program.name().into()),
        ("work", work.name.into()),
        ("client", client.name().into()),
    ];
    [&all[..], more].concat()
}

/// The libraries, built as this benchmark is.
fn libraries() -> Result<[PathBuf; 2], String> {
    let cargo = std::env::var("CARGO").unwrap_or("cargo".into());
    run(&format!(
        "{cargo} build --release -p janus-preload -p janus-generator"
    ))?;
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let built = |name: &str| {
        let built = target.with_file_name("release").join(name);
        match built.is_file() {
            true => Ok(built),
            false => Err(format!("{} is not there", built.display())),
        }
    };
    Ok([
        built("libjanus_preload.so")?,
        built("libjanus_generator.so")?,
    ])
}

fn bench(wanted: &[String]) -> Result<Bench, String> {
    let (all, scale) = (Work::all(), Scale::get());
    let named = |work: &&Work| wanted.iter().any(|word| word == work.program.name());
    let mut works: Vec<Work> = all.iter().filter(named).copied().collect();
    if works.is_empty() {
        works.extend(all);
    }
    if scale == Scale::Smoke {
        works.truncate(1);
    }
    for work in &works {
        for needed in work.program.needs() {
            run(&format!("which {needed}")).map_err(|_| format!("{needed} is not there"))?;
        }
    }
    let [preload, generator] = libraries()?;
    Ok(Bench {
        spaces: Spaces::new()?,
        folder: Folder::new(&works)?,
        works,
        preload,
        generator,
        rounds: scale.pick(1, 1, 7),
        seconds: scale.pick(1, 1, 2),
    })
}

type Part = fn(&Bench) -> Result<Samples, String>;
const PARTS: [(&str, Part); 2] = [("memory", memory::run), ("tap", tap::run)];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut report = Report::new("programs");
    let bench = match bench(&wanted) {
        Ok(bench) => bench,
        Err(why) => return println!("skipped: {why}"),
    };
    let is_wanted = |name: &str| wanted.iter().any(|word| word == name);
    let any = PARTS.iter().any(|(name, _)| is_wanted(name));
    for (name, part) in PARTS {
        if any && !is_wanted(name) {
            continue;
        }
        match part(&bench) {
            Ok(samples) => samples.rows(&mut report, name),
            Err(why) => println!("skipped: {name}: {why}"),
        }
    }
    report.finish();
}
