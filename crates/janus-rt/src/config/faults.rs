//! The keys `impair_…` together: a bad link, for trials.

use janus_io::impair::Faults;

use super::values::Ways;
use super::{ConfigError, Partial};

/// Faults each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Impairment {
    pub(crate) received: Faults,
    pub(crate) sent: Faults,
}

impl Impairment {
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
    pub(super) fn impairment(&mut self) -> Result<Impairment, ConfigError> {
        let faults = match self.given_faults {
            Some(given) => {
                self.impair_way = Some(Ways::Both);
                given
            }
            None => self.faults()?,
        };
        if faults.is_none() {
            return Ok(Impairment::default());
        }
        let way = *self.impair_way.get_or_insert_default();
        self.impair_seed = Some(faults.seed);
        self.impair_loss = Some(faults.loss);
        self.impair_duplicate = Some(faults.duplicate);
        self.impair_corrupt = Some(faults.corrupt);
        self.impair_reorder = Some(faults.reorder);
        self.impair_distance = Some(faults.distance);
        self.impair_delay = Some(faults.delay);
        self.impair_jitter = Some(faults.jitter);
        self.impair_rate = Some(faults.rate).filter(|rate| *rate > 0);
        self.impair_queue = Some(faults.queue);
        let is = |bad: bool| if bad { faults } else { Faults::default() };
        Ok(Impairment {
            received: is(way != Ways::Sent),
            sent: is(way != Ways::Received),
        })
    }

    fn faults(&self) -> Result<Faults, ConfigError> {
        let usual = Faults::default();
        let faults = Faults {
            seed: self.impair_seed.unwrap_or(usual.seed),
            loss: self.impair_loss.unwrap_or(usual.loss),
            duplicate: self.impair_duplicate.unwrap_or(usual.duplicate),
            reorder: self.impair_reorder.unwrap_or(usual.reorder),
            distance: self.impair_distance.unwrap_or(usual.distance),
            corrupt: self.impair_corrupt.unwrap_or(usual.corrupt),
            delay: self.impair_delay.unwrap_or(usual.delay),
            jitter: self.impair_jitter.unwrap_or(usual.jitter),
            rate: self.impair_rate.unwrap_or(usual.rate),
            queue: self.impair_queue.unwrap_or(usual.queue),
        };
        let lonely = [
            ("impair_seed", self.impair_seed.is_some()),
            ("impair_way", self.impair_way.is_some()),
            ("impair_distance", self.impair_distance.is_some()),
            ("impair_queue", self.impair_queue.is_some()),
        ];
        let problem = "means something only with a fault, such as `impair_loss = \"1%\"`";
        ConfigError::lonely(&lonely, !faults.is_none(), problem)?;
        // One draw decides between these.
        let shares = [faults.loss, faults.duplicate, faults.reorder];
        if shares.map(u32::from).iter().sum::<u32>() > 1_000 {
            let problem = "with `impair_duplicate` and `impair_reorder` is more than all there is";
            return Err(ConfigError::value("impair_loss", problem.into()));
        }
        Ok(faults)
    }
}
