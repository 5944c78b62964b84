//! What this process and the kernel have in memory, as the kernel counts it.

/// Bytes resident: ordinary pages, transparent huge pages and reserved huge pages. Read from `smaps_rollup`, which
/// walks the page tables; the figure in `statm` lags behind by a batch of pages for each core.
pub fn resident_bytes() -> u64 {
    let text = read(ROLLUP);
    bytes(&text, "Rss:") + bytes(&text, "Private_Hugetlb:") + bytes(&text, "Shared_Hugetlb:")
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
