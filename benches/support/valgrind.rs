//! Instructions, as valgrind counts them, where it is installed: what a benchmark's own program takes with other arguments. Never
//! time: a program under valgrind runs fifty times slower.

use std::process::Command;

/// The C library's copying as every x86-64 processor can do it: which way it takes else depends on the processor.
const PLAIN_COPIES: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-SSSE3,-ERMS,-FSRM",
);

/// Functions that switch the counting: on for what the engine and the application do, off for what is compared in between.
const SWITCHES: [&str; 3] = ["*counted_turn*", "*counted_end*", "*not_counted_compare*"];

/// A run of this program.
pub struct Run {
    pub instructions: u64,
    /// Its standard output.
    pub said: String,
    /// Instructions by source line, as valgrind writes them.
    pub profile: String,
}

/// Runs this program with these arguments; how many instructions that took, and what it printed.
pub fn instructions(arguments: &[String]) -> Option<(u64, String)> {
    let ran = run(&[], arguments)?;
    Some((ran.instructions, ran.said))
}

/// Runs it and counts the engine and the application behind it alone: a benchmark's far end is left out.
pub fn turns(arguments: &[String]) -> Option<Run> {
    let mut switches = SWITCHES
        .map(|name| format!("--toggle-collect={name}"))
        .to_vec();
    switches.extend(["--dump-instr=yes".into(), "--dump-line=yes".into()]);
    run(&switches, arguments)
}

fn run(switches: &[String], arguments: &[String]) -> Option<Run> {
    let program = std::env::current_exe().ok()?;
    let name = format!("janus-callgrind-{}.out", std::process::id());
    let out = std::env::temp_dir().join(name);
    let (name, value) = PLAIN_COPIES;
    let ended = Command::new("valgrind")
        .env(name, value)
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args(switches)
        .arg(program)
        .arg("--bench")
        .args(arguments)
        .output()
        .ok()?;
    let text = std::fs::read_to_string(&out).ok();
    let _ = std::fs::remove_file(&out);
    if !ended.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&ended.stderr));
        return None;
    }
    let profile = text?;
    let line = profile
        .lines()
        .find_map(|line| line.strip_prefix("summary: "));
    Some(Run {
        instructions: line?.trim().parse().ok()?,
        said: String::from_utf8_lossy(&ended.stdout).into_owned(),
        profile,
    })
}
