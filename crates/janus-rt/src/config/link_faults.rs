//! The keys `faults_…` together: a bad link, for trials.

use std::num::NonZeroU64;

use janus_io::faults::Faults;

use super::values::Ways;
use super::{ConfigError, Partial};

/// Faults each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkFaults {
    pub(crate) received: Faults,
    pub(crate) sent: Faults,
}

impl LinkFaults {
    /// There is nothing to be done.
    pub(crate) fn is_none(&self) -> bool {
        self.received.is_none() && self.sent.is_none()
    }

    /// Checksums are to find what is wrong, so no device may see to them.
    pub(crate) fn corrupts(&self) -> bool {
        self.received.corrupt > 0 || self.sent.corrupt > 0
    }
}

impl Partial {
    /// Returns what the keys come to. Of a link that is bad all keys have a value afterwards, so that they can be shown.
    pub(super) fn link_faults(&mut self) -> Result<LinkFaults, ConfigError> {
        let faults = match self.given_faults {
            Some(given) => {
                self.faults_way = Some(Ways::Both);
                given
            }
            None => self.faults()?,
        };
        if faults.is_none() {
            return Ok(LinkFaults::default());
        }
        let way = *self.faults_way.get_or_insert_default();
        self.faults_seed = Some(faults.seed);
        self.faults_loss = Some(faults.loss);
        self.faults_duplicate = Some(faults.duplicate);
        self.faults_corrupt = Some(faults.corrupt);
        self.faults_reorder = Some(faults.reorder);
        self.faults_distance = Some(faults.distance);
        self.faults_delay = Some(faults.delay);
        self.faults_jitter = Some(faults.jitter);
        self.faults_rate = faults.rate.map(NonZeroU64::get);
        self.faults_queue = Some(faults.queue);
        let is = |bad: bool| if bad { faults } else { Faults::default() };
        Ok(LinkFaults {
            received: is(way != Ways::Sent),
            sent: is(way != Ways::Received),
        })
    }

    fn faults(&self) -> Result<Faults, ConfigError> {
        let usual = Faults::default();
        let faults = Faults {
            seed: self.faults_seed.unwrap_or(usual.seed),
            loss: self.faults_loss.unwrap_or(usual.loss),
            duplicate: self.faults_duplicate.unwrap_or(usual.duplicate),
            reorder: self.faults_reorder.unwrap_or(usual.reorder),
            distance: self.faults_distance.unwrap_or(usual.distance),
            corrupt: self.faults_corrupt.unwrap_or(usual.corrupt),
            delay: self.faults_delay.unwrap_or(usual.delay),
            jitter: self.faults_jitter.unwrap_or(usual.jitter),
            rate: self.faults_rate.and_then(NonZeroU64::new),
            queue: self.faults_queue.unwrap_or(usual.queue),
        };
        let lonely = [
            ("faults_seed", self.faults_seed.is_some()),
            ("faults_way", self.faults_way.is_some()),
            ("faults_distance", self.faults_distance.is_some()),
            ("faults_queue", self.faults_queue.is_some()),
        ];
        let problem = "means something only with a fault, such as `faults_loss = \"1%\"`";
        ConfigError::lonely(&lonely, !faults.is_none(), problem)?;
        // One draw decides between these.
        let shares = [faults.loss, faults.duplicate, faults.reorder];
        if shares.map(u32::from).iter().sum::<u32>() > 1_000 {
            let problem = "with `faults_duplicate` and `faults_reorder` is more than all there is";
            return Err(ConfigError::value("faults_loss", problem.into()));
        }
        Ok(faults)
    }
}
