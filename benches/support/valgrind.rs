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

/// How a counted run says how many units there were.
const DONE: &str = "done: ";
/// First argument of a counted run.
const COUNTED: &str = "callgrind";

/// In a run that is counted, lets `run` do the work that the arguments name, so many units and a little more; false in any other. It
/// returns how many there were.
pub fn is_counted(run: impl FnOnce(&[String], u64) -> u64) -> bool {
    let arguments: Vec<String> = std::env::args().skip_while(|arg| arg != COUNTED).collect();
    let [_, what @ .., units] = &arguments[..] else {
        return false;
    };
    let done = run(what, units.parse().expect("a number of units"));
    println!("{DONE}{done}");
    true
}

/// Counts the engine and the application behind it in a run with so many units; also returns the units there really were.
pub fn counted(what: &[String], units: u64) -> Option<(Run, u64)> {
    let arguments = [&[COUNTED.into()], what, &[units.to_string()]].concat();
    let ran = turns(&arguments)?;
    let done = units_of(&ran)?;
    Some((ran, done))
}

fn units_of(ran: &Run) -> Option<u64> {
    let done = ran.said.lines().find_map(|line| line.strip_prefix(DONE));
    done?.parse().ok()
}

/// Counts a unit: what is more in the second of two runs, which has more of them.
pub fn each(what: &[String], units: [u64; 2]) -> Option<f64> {
    let [few, many] = units.map(|units| counted(what, units));
    Some(between(&few?, &many?))
}

/// Returns the instructions of a unit that is more in the second run.
pub fn between(few: &(Run, u64), many: &(Run, u64)) -> f64 {
    (many.0.instructions - few.0.instructions) as f64 / (many.1 - few.1) as f64
}

/// Caches that are modelled: a core's own, the same everywhere. Where the program has the turns of several cores on its one thread, each
/// has its part of larger ones, but for code, which is the same for all of them.
fn caches(cores: usize) -> [String; 4] {
    [
        "--cache-sim=yes".into(),
        "--I1=32768,8,64".into(),
        format!("--D1={},8,64", 32_768 * cores),
        format!("--LL={},16,64", 1_048_576 * cores),
    ]
}

/// Events of one function, and of what it calls, in a run with so many units: instructions, and what the cache that valgrind models misses.
#[derive(Clone, Copy, Debug)]
pub struct Events {
    pub instructions: u64,
    /// Misses of the first level, of code and of data, and of the second.
    pub first: u64,
    /// Those of data alone.
    pub first_of_data: u64,
    pub second: u64,
}

/// Counts the events of a function that so many cores run; also returns the units there really were.
pub fn events_of(
    function: &str,
    cores: usize,
    what: &[String],
    units: u64,
) -> Option<(Events, u64)> {
    let arguments = [&[COUNTED.into()], what, &[units.to_string()]].concat();
    let toggle = format!("--toggle-collect={function}");
    let switches = [&[toggle], &caches(cores)[..]].concat();
    let ran = run(&switches, &arguments)?;
    let line = |start: &str| {
        let line = ran
            .profile
            .lines()
            .find_map(|line| line.strip_prefix(start));
        Some(line?.split_whitespace().collect::<Vec<_>>())
    };
    let (names, counts) = (line("events: ")?, line("summary: ")?);
    let sum = |wanted: &[&str]| -> u64 {
        let pairs = names.iter().zip(&counts);
        let wanted = pairs.filter(|(name, _)| wanted.contains(*name));
        wanted
            .filter_map(|(_, count)| count.parse::<u64>().ok())
            .sum()
    };
    let events = Events {
        instructions: sum(&["Ir"]),
        first: sum(&["I1mr", "D1mr", "D1mw"]),
        first_of_data: sum(&["D1mr", "D1mw"]),
        second: sum(&["ILmr", "DLmr", "DLmw"]),
    };
    Some((events, units_of(&ran)?))
}

/// Runs it and counts the engine and the application behind it alone: a benchmark's far end is left out.
fn turns(arguments: &[String]) -> Option<Run> {
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
        instructions: line?.split_whitespace().next()?.parse().ok()?,
        said: String::from_utf8_lossy(&ended.stdout).into_owned(),
        profile,
    })
}
