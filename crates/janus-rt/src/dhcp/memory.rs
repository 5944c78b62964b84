//! The leased address in a file, for the next start: a line with the interface, the address, and the end of the lease. The client decides
//! how to use it; a file with any fault counts as absent.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use janus_wire::MacAddr;

use super::lease::Lease;

/// End of a lease without one.
const FOR_EVER: &str = "ever";

/// The file of one interface.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    file: PathBuf,
    mac: MacAddr,
}

impl Memory {
    pub(super) fn new(file: &Path, mac: MacAddr) -> Memory {
        Memory {
            file: file.to_owned(),
            mac,
        }
    }

    /// Returns the address of this interface's lease, if that is not over.
    pub(super) fn recall(&self, now: SystemTime) -> Option<Ipv4Addr> {
        let text = std::fs::read_to_string(&self.file).ok()?;
        let mut words = text.split_whitespace();
        let (mac, address, until) = (words.next()?, words.next()?, words.next()?);
        let lasts = until == FOR_EVER || until.parse::<u64>().ok()? > seconds(now);
        (mac == self.mac.to_string() && lasts && words.next().is_none())
            .then(|| address.parse().ok())
            .flatten()
    }

    /// Writes the lease, atomically.
    pub(super) fn keep(&self, lease: &Lease, now: SystemTime) -> io::Result<()> {
        let until = lease
            .time
            .map_or(FOR_EVER.into(), |time| seconds(now + time).to_string());
        let line = format!("{} {} {until}\n", self.mac, lease.address);
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, line)?;
        std::fs::rename(&beside, &self.file)
    }

    /// Removes the file, so that the address is not requested again.
    pub(super) fn forget(&self) {
        // It may not be there.
        let _ = std::fs::remove_file(&self.file);
    }
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

    fn lease(time: Option<Duration>) -> Lease {
        Lease {
            address: Ipv4Addr::new(192, 0, 2, 77),
            prefix: 24,
            gateway: None,
            routes: Vec::new(),
            name_servers: Vec::new(),
            mtu: None,
            server: Ipv4Addr::new(192, 0, 2, 1),
            time,
            renew_after: Duration::MAX,
            rebind_after: Duration::MAX,
        }
    }

    #[test]
    fn an_address_is_remembered_as_long_as_its_lease_and_for_its_interface() {
        let file = std::env::temp_dir().join(format!("janus-lease-{}", std::process::id()));
        let memory = Memory::new(&file, MAC);
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(memory.recall(now), None);
        let hour = Duration::from_secs(3_600);
        memory.keep(&lease(Some(hour)), now).unwrap();
        let address = Some(lease(None).address);
        assert_eq!(memory.recall(now), address);
        assert_eq!(memory.recall(now + hour - Duration::from_secs(1)), address);
        assert_eq!(memory.recall(now + hour), None);
        let other = Memory::new(&file, MacAddr([2, 0, 0, 0, 0, 8]));
        assert_eq!(other.recall(now), None);
        memory.keep(&lease(None), now).unwrap();
        assert_eq!(memory.recall(now + 1_000_000 * hour), address);
        let line = std::fs::read_to_string(&file).unwrap();
        for wrong in [
            "",
            "x",
            &line[..20],
            &format!("{line} more"),
            &line.replace("ever", "never"),
        ] {
            std::fs::write(&file, wrong).unwrap();
            assert_eq!(memory.recall(now), None, "{wrong:?}");
        }
        memory.forget();
        memory.forget();
        assert!(!file.exists());
    }
}
