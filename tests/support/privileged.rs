//! What tests against the kernel need: a network namespace of a thread's own, programs run in it, and a visible line
//! where they cannot run.

use std::io::Write;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Says that a test cannot run, past what the test runner keeps to itself; with `JANUS_PRIVILEGED=1` that is a failure.
pub fn skip(why: &str) {
    let required = std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1");
    assert!(!required, "JANUS_PRIVILEGED=1, but {why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Runs a command line whose words hold no spaces; what it says, or why it failed.
pub fn run(line: &str) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    run_words(&words)
}

/// [`run`] with words that may hold anything.
pub fn run_words(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .map_err(|error| format!("{}: {error}", words[0]))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {said}{}", words.join(" "), complaint.trim()));
    }
    Ok(said)
}

/// The first of these programs that is not there, as the reason not to run.
pub fn tools(lines: &[&str]) -> Result<(), String> {
    let present = |line: &&str| {
        let words: Vec<&str> = line.split(' ').collect();
        Command::new(words[0]).args(&words[1..]).output().is_ok()
    };
    match lines.iter().find(|line| !present(line)) {
        Some(line) => Err(format!("there is no `{line}`")),
        None => Ok(()),
    }
}

/// Runs a test on a thread that is alone in a network namespace, which goes with it and with what it started. An error
/// is a want of privilege.
pub fn in_own_space<T: Send + 'static>(
    test: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let alone = std::thread::spawn(move || {
        // SAFETY: a network namespace shares no memory or descriptors with anything, and this thread opened none.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|errno| format!("no network namespace of its own ({errno}); run as root"))?;
        Ok(test())
    });
    alone
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
