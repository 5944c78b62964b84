//! Ephemeral ports: Linux's default range, walked from a random place (RFC 6056 section 3.3.1).
//! What never lives here: knowing which ports are taken.

use janus_tcp::PortBlock;

/// First and last ephemeral port, `net.ipv4.ip_local_port_range` as Linux sets it.
const FIRST: u16 = 32_768;
const LAST: u16 = 60_999;
/// Ports in the range; no search looks at more.
pub(crate) const RANGE: u16 = LAST - FIRST + 1;

/// Returns all ephemeral ports, each once, from the one on that `drawn` gives: an unpredictable number. Where others have our addresses too they
/// are those of our block.
pub(crate) fn candidates(drawn: u64, block: Option<PortBlock>) -> impl Iterator<Item = u16> {
    let (first, range) = block.map_or((FIRST, RANGE), |block| (block.first, block.count));
    let start = (drawn % u64::from(range.max(1))) as u16;
    (0..range).map(move |step| first + (start + step) % range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_once_from_the_place_drawn() {
        for drawn in [0, 1, u64::from(RANGE) - 1, u64::MAX] {
            let mut seen: Vec<u16> = candidates(drawn, None).collect();
            assert_eq!(u64::from(seen[0] - FIRST), drawn % u64::from(RANGE));
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(FIRST..=LAST));
        }
        let block = PortBlock {
            first: 40_000,
            count: 4,
        };
        let seen: Vec<u16> = candidates(6, Some(block)).collect();
        assert_eq!(seen, [40_002, 40_003, 40_000, 40_001]);
    }
}
