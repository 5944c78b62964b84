//! `janus doctor`: what this machine can do, and the step that would bring what it cannot.

use std::process::ExitCode;

use janus_io::machine::Machine;

/// Prints the report. Everything Janus needs to run at all is always there, so this never fails.
pub(crate) fn run() -> ExitCode {
    println!(
        "What this machine has for Janus. `note` is what could be better, `->` the step that makes it so:\n"
    );
    print!("{}", Machine::look());
    println!(
        "\nNone of this is needed to begin: on the portal Janus serves ordinary clients on 127.0.0.1, without any privilege."
    );
    ExitCode::SUCCESS
}
