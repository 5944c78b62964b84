//! What this process has in memory, as the kernel counts it.

/// Bytes resident: ordinary pages, transparent huge pages and reserved huge pages. Read from `smaps_rollup`, which
/// walks the page tables; the figure in `statm` lags behind by a batch of pages for each core.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| {
                rest.trim()
                    .trim_end_matches(" kB")
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
            .unwrap_or(0)
    };
    (kib("Rss:") + kib("Private_Hugetlb:") + kib("Shared_Hugetlb:")) * 1024
}

/// Bytes of that in huge pages.
pub fn huge_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("AnonHugePages:"))
        .unwrap_or("");
    line.trim()
        .trim_end_matches(" kB")
        .trim()
        .parse::<u64>()
        .unwrap_or(0)
        * 1024
}

/// Bytes the machine can still give without swapping.
pub fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .unwrap_or("");
    line.trim()
        .trim_end_matches(" kB")
        .trim()
        .parse::<u64>()
        .unwrap_or(0)
        * 1024
}
