//! The `janus` command: examines a machine, runs programs, serves a folder, runs scripts, queries the balancer, lists a daemon's members, draws what
//! benches found. Each subcommand has a file; this one only reads the command line.

#![forbid(unsafe_code)]

mod csb;
mod daemon;
mod doctor;
mod elf;
mod limit;
mod members;
mod program;
mod report;
mod run;
mod serve;
mod sim;

use std::fmt::Display;
use std::io::{ErrorKind, Write, stdout};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use program::Program;

/// An async runtime with its own TCP stack: tools around it.
#[derive(Parser)]
#[command(name = "janus", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ask the balancer's planner what it would do.
    Csb(csb::Args),
    /// Print what file and environment say, key by key, as a `janus.toml`.
    Config {
        /// Print the manual of all keys instead.
        #[arg(long)]
        manual: bool,
    },
    /// Have a device for several programs, each of which gets what comes for its ports. Which device the configuration says (`backend`); else it is the
    /// portal, which needs no privilege.
    Daemon(daemon::Args),
    /// Say what this machine can do for Janus, and how to enable what is missing; or what to expect of a program on it.
    Doctor {
        /// A program to look at instead of the machine.
        program: Option<String>,
    },
    /// List the programs on a daemon's device, with what each has sent, got and lost. The daemon is not asked.
    Members(members::Args),
    /// Put what benches have written on one page: `cargo bench --bench NAME` first.
    Report(report::Args),
    /// Run a program that knows nothing of Janus on it.
    Run(run::Args),
    /// Serve a folder (or a greeting) over HTTP, from memory.
    Serve(serve::Args),
    /// Run packetdrill-syntax scripts against the engine, in virtual time.
    Sim(sim::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Csb(args) => csb::run(&args),
        Command::Config { manual: true } => print(&janus::manual()),
        Command::Config { manual: false } => janus::Runtime::builder()
            .effective()
            .map_err(Into::into)
            .and_then(|effective| print(&effective)),
        Command::Daemon(args) => daemon::run(args),
        Command::Doctor { program: None } => print(&doctor::Report),
        Command::Doctor {
            program: Some(name),
        } => Program::look(&name).and_then(|program| print(&program)),
        Command::Members(args) => members::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Sim(args) => sim::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("janus: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints `what`. A reader that has ended early, as `head` does, is no failure.
fn print(what: &dyn Display) -> janus::Result<ExitCode> {
    match stdout().lock().write_all(what.to_string().as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
