//! In memory: the generator within the process beside clients over loopback.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::client::{Client, Place};
use crate::server::{Server, Work};
use crate::{Bench, CONNECTIONS, Sample, Samples};

/// Longest time that the generator takes beside what it measures.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most answers, as a share, that may have come twice.
const TWICE_MAX: f64 = 0.005;
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn run(bench: &Bench) -> Result<Samples, String> {
    let mut samples = Samples::default();
    for round in 0..bench.rounds {
        for &work in &bench.works {
            for on_janus in [round % 2 == 0, round % 2 != 0] {
                match on_janus {
                    true => samples.add(work, Client::Generator, true, generated(bench, work)?),
                    false => over_loopback(bench, work, &mut samples)?,
                }
            }
        }
    }
    Ok(samples)
}

fn over_loopback(bench: &Bench, work: Work, samples: &mut Samples) -> Result<(), String> {
    let place = Place {
        space: &bench.spaces.near,
        host: "127.0.0.1",
        pinned: true,
    };
    let server = Server::start(work.program, &bench.folder, place.space, &[], true)?;
    for &client in Client::of(work.program) {
        let sample = client.measure(work, &server, &place, bench.seconds)?;
        samples.add(work, client, false, sample);
    }
    Ok(())
}

/// What the load within the process measured.
fn generated(bench: &Bench, work: Work) -> Result<Sample, String> {
    let folder = &bench.folder;
    let results = folder.path("results");
    let _none_yet = fs::remove_file(&results);
    let [request, start, end] = work.words();
    for (name, text) in [("request", request), ("start", start), ("end", end)] {
        folder.write(name, &text)?;
    }
    let path = |name: &str| folder.path(name).display().to_string();
    let variables = [
        ("LD_PRELOAD", bench.generator.display().to_string()),
        ("GENERATOR_RESULTS", path("results")),
        ("GENERATOR_REQUEST", path("request")),
        ("GENERATOR_START", path("start")),
        ("GENERATOR_END", path("end")),
        ("GENERATOR_PORT", work.port.to_string()),
        ("GENERATOR_CONNECTIONS", CONNECTIONS.to_string()),
        ("GENERATOR_CLOSE", u8::from(work.closes()).to_string()),
        ("GENERATOR_ROUNDS", "1".into()),
        ("GENERATOR_ROUND_MS", (bench.seconds * 1_000).to_string()),
        ("GENERATOR_PROCESSOR", "1".into()),
    ];
    let server = Server::start(work.program, folder, &bench.spaces.near, &variables, true)?;
    let begin = Instant::now();
    let text = loop {
        if let Ok(text) = fs::read_to_string(&results) {
            break text;
        }
        if begin.elapsed() > PATIENCE {
            let said = fs::read_to_string(folder.path("stderr")).unwrap_or_default();
            return Err(format!("{work:?}: the generator does not end: {said}"));
        }
        sleep(LOOK_EVERY);
    };
    drop(server);
    let numbers = text.split_whitespace().filter_map(|it| it.parse().ok());
    let numbers: Vec<f64> = numbers.collect();
    let [count, server_ns, _, wall_ns, _, wrong, never] = numbers[..] else {
        return Err(format!("{work:?}: {text}"));
    };
    // Where the machine stands still for milliseconds the program sends last segments again, and connections end twice.
    let twice = -never;
    if wrong > 0.0 || never > 0.0 || twice > count * TWICE_MAX || count == 0.0 {
        let said = fs::read_to_string(folder.path("stderr")).unwrap_or_default();
        return Err(format!("{work:?}: wrong answers: {text}{said}"));
    }
    Ok(Sample {
        per_s: count / wall_ns * 1e9,
        per_server_cpu: count / server_ns * 1e9,
        per_both_cpu: None,
        per_machine_cpu: None,
    })
}
