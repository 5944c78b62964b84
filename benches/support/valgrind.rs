//! Instructions, as valgrind counts them, where it is installed: what a benchmark's own program takes with other arguments. Never
//! time: a program under valgrind runs fifty times slower.

use std::process::Command;

/// Runs this program with these arguments; how many instructions that took, and what it printed.
pub fn instructions(arguments: &[String]) -> Option<(u64, String)> {
    let program = std::env::current_exe().ok()?;
    let name = format!("janus-callgrind-{}.out", std::process::id());
    let out = std::env::temp_dir().join(name);
    let run = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .arg("--bench")
        .args(arguments)
        .output()
        .ok()?;
    let text = std::fs::read_to_string(&out).ok();
    let _ = std::fs::remove_file(&out);
    if !run.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&run.stderr));
        return None;
    }
    let text = text?;
    let line = text.lines().find_map(|line| line.strip_prefix("summary: "));
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    Some((line?.trim().parse().ok()?, said))
}
