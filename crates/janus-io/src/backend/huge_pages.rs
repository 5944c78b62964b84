//! The kernel's account of huge pages, from `/proc/meminfo`. Reserves none.

/// Numbers of huge pages, and their size in KiB; all 0 where the kernel has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HugePages {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) size_kib: u64,
}

impl HugePages {
    pub(crate) fn read() -> HugePages {
        HugePages::parse(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())
    }

    fn parse(meminfo: &str) -> HugePages {
        let field = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            number.unwrap_or(0)
        };
        HugePages {
            total: field("HugePages_Total:"),
            free: field("HugePages_Free:"),
            size_kib: field("Hugepagesize:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::HugePages;

    const MEMINFO: &str = "MemTotal: 8 kB\nHugePages_Total:     512\nHugePages_Free:        7\nHugepagesize:       2048 kB\n";

    #[test]
    fn the_kernels_file_is_read() {
        let found = HugePages {
            total: 512,
            free: 7,
            size_kib: 2048,
        };
        assert_eq!(HugePages::parse(MEMINFO), found);
        assert_eq!(HugePages::parse("nonsense"), HugePages::default());
    }
}
