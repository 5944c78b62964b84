//! How long a benchmark runs, as its caller asks for.

/// How much a benchmark does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// `cargo test` started it: only see that it works; nothing is written.
    Smoke,
    /// `JANUS_BENCH=quick`: most end within a minute.
    Quick,
    /// As long as it takes, up to 18 GB.
    Full,
}

impl Scale {
    pub fn get() -> Self {
        // Cargo passes `--bench` when it benchmarks and leaves it out when it tests.
        if !std::env::args().any(|a| a == "--bench") {
            Self::Smoke
        } else if std::env::var("JANUS_BENCH").is_ok_and(|v| v == "quick") {
            Self::Quick
        } else {
            Self::Full
        }
    }

    /// Numbers that the arguments name by their millions (`100m`); these where none is named.
    pub fn named_or(numbers: &[u32]) -> Vec<u32> {
        let millions = |name: String| name.strip_suffix('m')?.parse::<u32>().ok();
        let named = std::env::args().filter_map(millions);
        let named: Vec<u32> = named.map(|millions| millions * 1_000_000).collect();
        if named.is_empty() {
            numbers.to_vec()
        } else {
            named
        }
    }

    /// One of three, by scale.
    pub fn pick<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}
