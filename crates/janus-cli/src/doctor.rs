//! `janus doctor`: the machine's capabilities, and the step that enables each missing one.

use std::fmt;

use janus_io::machine::Machine;

/// The report. The machine is examined when it is printed; everything that Janus needs to run at all always exists, so nothing fails.
pub(crate) struct Report;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "What this machine has for Janus. `note` is what could be better, `->` the step that makes it so:\n"
        )?;
        write!(f, "{}", Machine::look())?;
        writeln!(
            f,
            "\nNone of this is needed to begin: on the portal Janus serves ordinary clients on 127.0.0.1, without any privilege."
        )
    }
}
