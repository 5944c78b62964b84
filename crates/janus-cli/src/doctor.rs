//! `janus doctor`: what this machine can do, and the step that would bring what it cannot.

use std::process::ExitCode;

use janus_io::machine::Machine;

/// Prints the report. Everything Janus needs to run at all is always there, so this never fails.
pub(crate) fn run() -> ExitCode {
    print!("{}", Machine::look());
    println!(
        "Without any of this Janus runs on the portal: ordinary clients on 127.0.0.1, no privilege."
    );
    ExitCode::SUCCESS
}
