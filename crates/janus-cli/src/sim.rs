//! `janus sim`: scripts against the engine, one line a script, the first difference of each that fails.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use janus_sim::run::{Options, run_file};

/// Folders inside folders are followed so deep.
const DEPTH_MAX: usize = 16;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Scripts, or folders of them (`*.pkt`).
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> janus::Result<ExitCode> {
    let mut scripts = Vec::new();
    for path in &args.paths {
        collect(path, &mut scripts, DEPTH_MAX).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    scripts.sort();
    let mut failed = 0;
    for script in &scripts {
        match run_file(script, &Options::default()) {
            Ok(_) => println!("ok      {}", script.display()),
            Err(failure) => {
                failed += 1;
                println!("FAILED  {}\n{failure}", script.display());
            }
        }
    }
    println!("{} passed, {failed} failed", scripts.len() - failed);
    Ok(if failed == 0 && !scripts.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn collect(path: &Path, into: &mut Vec<PathBuf>, depth: usize) -> std::io::Result<()> {
    if !path.is_dir() {
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
