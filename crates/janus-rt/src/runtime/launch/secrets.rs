//! Secrets of a runtime: random ones, or repeatable ones from a seed.

use janus_csb::Limits;
use janus_tcp::Secrets;
use janus_wire::FlowNames;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::runtime::BoxError;

/// Returns the stack's keys, and the key of the hash that chooses the shard. That one is secret too, so that no stranger can aim
/// all connections at one core.
/// Keeps 6528-2.
pub(super) fn secrets(seed: Option<u64>) -> Result<(Secrets, [u8; 40]), BoxError> {
    let mut key = [0; 40];
    if let Some(seed) = seed {
        let mut state = seed;
        for byte in &mut key {
            // Knuth's multiplier; the top byte is the one that varies well.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        return Ok((Secrets::from_seed(seed), key));
    }
    let mut bytes = [0; 64];
    fill(&mut bytes)?;
    fill(&mut key)?;
    Ok((Secrets::from_bytes(bytes), key))
}

/// Names of flows under a secret of their own: who could make two flows of one name could have one of them led astray.
pub(super) fn names(seed: Option<u64>) -> Result<FlowNames, BoxError> {
    if let Some(seed) = seed {
        return Ok(FlowNames::new([seed, !seed]));
    }
    Ok(FlowNames::new([drawn()?, drawn()?]))
}

/// The secret of the table of SYN rates.
pub(super) fn rates_secret(seed: Option<u64>) -> Result<[u64; 2], BoxError> {
    match seed {
        Some(seed) => Ok([!seed, seed]),
        None => Ok([drawn()?, drawn()?]),
    }
}

/// Bounds of the balancer's updates. Strangers have a say in the keys, so the filter's seed is not to be guessed. All connections of a core
/// differ from the ring by which it is drained, so that many may.
pub(super) fn limits(seed: Option<u64>, connections: u32) -> Result<Limits, BoxError> {
    let seed = match seed {
        Some(seed) => seed,
        None => drawn()?,
    };
    let limits = Limits::default();
    Ok(Limits {
        seed,
        diverged: limits.diverged.max(connections as usize),
        ..limits
    })
}

/// What the client of DHCP draws its numbers from: strangers must not guess them.
pub(super) fn lease_seed(seed: Option<u64>) -> Result<u64, BoxError> {
    seed.map_or_else(drawn, |seed| Ok(seed.rotate_left(32)))
}

fn drawn() -> Result<u64, BoxError> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Fills `bytes` with random ones. By getrandom(2) and not from `/dev/urandom`: an image or a chroot need not have `/dev`.
fn fill(mut bytes: &mut [u8]) -> Result<(), BoxError> {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("the kernel gives no random numbers: {errno}").into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6528 section 4, RFC 4086: unless runs must be repeatable, each start has keys of the system's randomness.
    #[test]
    fn two_starts_have_no_key_in_common() {
        let key = |seed| secrets(seed).expect("the system's randomness").1;
        assert_ne!(key(None), key(None));
        assert_ne!(key(None), [0; 40]);
        assert_eq!(key(Some(7)), key(Some(7)));
        assert_ne!(key(Some(7)), key(Some(8)));
    }
}
