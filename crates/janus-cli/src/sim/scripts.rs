//! `janus sim FILE...`: prints each script's outcome in a line, and the first difference of one that fails. Exit status 0: all passed, 1:
//! one failed, 2: there was nothing to run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use janus_sim::run::{Failure, Options, read_file, record_script};

/// Greatest depth of folders inside folders.
const DEPTH_MAX: usize = 16;
/// Exit status for a command line that was not understood.
const USAGE: u8 = 2;

/// How scripts are run.
#[derive(clap::Args)]
pub(crate) struct How {
    /// Decides the stack's secrets: initial sequence numbers, timestamps, ports.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print every packet and call as a script would write it.
    #[arg(long, short)]
    verbose: bool,
    /// Write every packet into a file for Wireshark; with several scripts, those of the last.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Settings of the stack over those of the script, such as `tcp_sack=0,tcp_ecn=1`.
    #[arg(long = "so_flags", value_name = "SETTINGS", default_value = "")]
    so_flags: String,
    /// Judge no more strictly than the original tool: 12.5 % off in time, and nothing after the end is looked at.
    #[arg(long)]
    as_packetdrill: bool,
}

pub(crate) fn run(paths: &[PathBuf], how: &How) -> ExitCode {
    let mut scripts = Vec::new();
    for path in paths {
        if let Err(error) = collect(path, &mut scripts, DEPTH_MAX) {
            eprintln!("janus sim: {}: {error}", path.display());
            return ExitCode::from(USAGE);
        }
    }
    if scripts.is_empty() {
        eprintln!("janus sim: no scripts (`*.pkt`) there");
        return ExitCode::from(USAGE);
    }
    scripts.sort();
    let mut failed = 0;
    for script in &scripts {
        match run_one(script, how) {
            Ok(None) => println!("ok      {}", script.display()),
            Ok(Some(failure)) => {
                failed += 1;
                println!("FAILED  {}\n{failure}", script.display());
            }
            Err(error) => {
                eprintln!("janus sim: {error}");
                return ExitCode::from(USAGE);
            }
        }
    }
    println!("{} passed, {failed} failed", scripts.len() - failed);
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Returns the failure of a script, if it fails; an error when a file cannot be written.
fn run_one(path: &Path, how: &How) -> Result<Option<Failure>, String> {
    let script = match read_file(path) {
        Ok(script) => script,
        Err(failure) => return Ok(Some(failure)),
    };
    let options = Options {
        so_flags: how.so_flags.clone(),
        seed: how.seed,
        as_packetdrill: how.as_packetdrill,
        ..Options::default()
    };
    let recording = record_script(&path.display().to_string(), &script, &options);
    if how.verbose {
        recording.lines.iter().for_each(|line| println!("{line}"));
    }
    if let Some(file) = &how.pcap {
        let written = recording
            .pcapng()
            .and_then(|bytes| std::fs::write(file, bytes));
        written.map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(recording.outcome.err())
}

fn collect(path: &Path, into: &mut Vec<PathBuf>, depth: usize) -> std::io::Result<()> {
    if !path.is_dir() {
        // A missing file is not a failed script.
        std::fs::metadata(path)?;
        into.push(path.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() || path.extension().is_some_and(|e| e == "pkt") {
            collect(&path, into, depth - 1)?;
        }
    }
    Ok(())
}
