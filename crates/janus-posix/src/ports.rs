//! Ephemeral ports: Linux's default range, walked from a random place (RFC 6056 section 3.3.1).
//! What never lives here: knowing which ports are taken.

/// First and last ephemeral port, `net.ipv4.ip_local_port_range` as Linux sets it.
const FIRST: u16 = 32_768;
const LAST: u16 = 60_999;
/// Ports in the range; no search looks at more.
pub(crate) const RANGE: u16 = LAST - FIRST + 1;

pub(crate) struct Ports {
    random: u64,
}

impl Ports {
    pub(crate) fn new(seed: u64) -> Ports {
        Ports {
            random: seed ^ 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// All ephemeral ports, each once, from a random one on.
    pub(crate) fn candidates(&mut self) -> impl Iterator<Item = u16> + use<> {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let start = ((self.random >> 33) % u64::from(RANGE)) as u16;
        (0..RANGE).map(move |step| FIRST + (start + step) % RANGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_once_from_changing_places() {
        let mut ports = Ports::new(1);
        let mut seen: Vec<u16> = ports.candidates().collect();
        assert_ne!(seen[0], ports.candidates().next().expect("one"));
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(FIRST..=LAST));
    }
}
