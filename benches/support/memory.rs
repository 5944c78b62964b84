//! What this process and the kernel have in memory, as the kernel counts it.

use std::process::Command;

/// First argument of a run of the program that only reads what another has in memory.
pub const OF_ANOTHER: &str = "resident";

/// Bytes resident: ordinary pages, transparent huge pages and reserved huge pages. Read from `smaps_rollup`, which
/// walks the page tables; the figure in `statm` lags behind by a batch of pages for each core.
pub fn resident_bytes() -> u64 {
    resident_in(&read(ROLLUP))
}

fn resident_in(text: &str) -> u64 {
    bytes(text, "Rss:") + bytes(text, "Private_Hugetlb:") + bytes(text, "Shared_Hugetlb:")
}

/// Bytes resident, as another process reads them: this program with [`OF_ANOTHER`], which its main leaves to [`print_of`].
pub fn resident_seen_by_another() -> u64 {
    let program = std::env::current_exe().expect("this program has a path");
    let id = std::process::id().to_string();
    let output = Command::new(program).args([OF_ANOTHER, &id]).output();
    let output = output.expect("a process of this program");
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes = text.trim().parse();
    bytes.unwrap_or_else(|_| panic!("no figure in {text:?}"))
}

/// Prints the bytes resident in a process.
pub fn print_of(pid: &str) {
    println!(
        "{}",
        resident_in(&read(&format!("/proc/{pid}/smaps_rollup")))
    );
}

/// Bytes of that in huge pages.
pub fn huge_bytes() -> u64 {
    bytes(&read(ROLLUP), "AnonHugePages:")
}

/// Bytes the machine can still give without swapping.
pub fn available_bytes() -> u64 {
    bytes(&read("/proc/meminfo"), "MemAvailable:")
}

/// Bytes of the kernel's slabs; zero where it does not say.
pub fn slab_bytes() -> u64 {
    bytes(&read("/proc/meminfo"), "Slab:")
}

const ROLLUP: &str = "/proc/self/smaps_rollup";

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The figure on the line that begins with `name`, which the kernel gives in kB.
fn bytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| {
        rest.trim()
            .trim_end_matches(" kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kib.unwrap_or(0) * 1024
}
