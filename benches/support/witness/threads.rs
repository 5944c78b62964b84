//! What the kernel tells of threads that sleep: there no reading of the clock can tell a gap from a sleep.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The threads of this program.
const TASKS: &str = "/proc/self/task";

/// The kernel's accounts of some threads of this program.
pub struct Threads(Vec<File>);

impl Threads {
    /// All that `begin` starts and that still run when it returns, and what it returns.
    pub fn started_by<T>(begin: impl FnOnce() -> T) -> (T, Self) {
        let before = ids();
        let made = begin();
        let new = ids().into_iter().filter(|id| !before.contains(id));
        let open = |id| File::open(Path::new(TASKS).join(id).join("schedstat")).ok();
        (made, Self(new.filter_map(open).collect()))
    }

    /// Nanoseconds, of all together, in which they were ready to run and did not.
    pub fn waited_ns(&self) -> u64 {
        self.0.iter().map(|file| waited_ns(file).unwrap_or(0)).sum()
    }
}

fn waited_ns(file: &File) -> Option<u64> {
    let mut bytes = [0; 96];
    let len = file.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(&bytes[..len]).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

fn ids() -> Vec<OsString> {
    let tasks = std::fs::read_dir(TASKS);
    tasks.map_or(Vec::new(), |tasks| {
        tasks.flatten().map(|task| task.file_name()).collect()
    })
}

/// Ticks (ten milliseconds mostly) that the host took from all processors, as far as it says so.
pub fn stolen_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    let stolen = all.split_ascii_whitespace().nth(8);
    stolen.and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}
