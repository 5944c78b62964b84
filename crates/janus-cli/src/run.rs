//! `janus run -- PROGRAM ...`: a program that knows nothing of Janus, with the library in front of its own.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::program::Program;

const LIBRARY: &str = "libjanus_preload.so";
/// Says where the library is.
const VARIABLE: &str = "JANUS_PRELOAD_LIBRARY";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Sockets at these places are Janus's though they are on loopback: networks, addresses, ports (key `program_ours`).
    #[arg(long, value_name = "PLACES")]
    ours: Option<String>,
    /// Sockets at these places stay the kernel's (key `program_kernel`).
    #[arg(long, value_name = "PLACES")]
    kernel: Option<String>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

/// Becomes the program.
pub(crate) fn run(args: &Args) -> janus::Result<ExitCode> {
    let (name, arguments) = args.program.split_first().ok_or("no program")?;
    if let Some(why) = Program::look(name)?.unseen {
        return Err(format!("`{name}` cannot run on Janus: {why}").into());
    }
    let library = library()?;
    let mut command = Command::new(name);
    command.args(arguments);
    let others = env::var("LD_PRELOAD").unwrap_or_default();
    let both = format!("{} {others}", library.display());
    command.env("LD_PRELOAD", both.trim_end());
    // It is meant for this command; the program's Janus knows no setting of this name, and would say so.
    command.env_remove(VARIABLE);
    for (key, value) in [
        ("JANUS_PROGRAM_OURS", &args.ours),
        ("JANUS_PROGRAM_KERNEL", &args.kernel),
    ] {
        if let Some(value) = value {
            command.env(key, value);
        }
    }
    Err(format!("{name}: {}", command.exec()).into())
}

/// Beside this program, where libraries are installed, or where the environment says.
fn library() -> janus::Result<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    let own = env::current_exe()?;
    let here = own.parent().unwrap_or(Path::new("."));
    let places = [here.join(LIBRARY), here.join("../lib").join(LIBRARY)];
    let found = places.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        let beside = here.display();
        format!(
            "{LIBRARY} is not in {beside}: `cargo build --release -p janus-preload` makes it; {VARIABLE} says where it is otherwise"
        )
        .into()
    })
}
