//! The keys of a bad link, for trials: as they are said and as they are meant.

use std::time::Duration;

use janus_io::impair::{DELAY_MAX, Faults};

use super::ConfigError;

/// Settings of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImpairPartial {
    pub(crate) seed: Option<u64>,
    pub(crate) way: Option<Ways>,
    pub(crate) loss: Option<u16>,
    pub(crate) duplicate: Option<u16>,
    pub(crate) corrupt: Option<u16>,
    pub(crate) reorder: Option<u16>,
    pub(crate) distance: Option<u16>,
    pub(crate) delay: Option<Duration>,
    pub(crate) jitter: Option<Duration>,
    /// Bits a second.
    pub(crate) rate: Option<u64>,
    pub(crate) queue: Option<u16>,
    /// The builder's, in place of all these.
    pub(crate) given: Option<Impairment>,
}

/// Which directions are bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ways {
    #[default]
    Both,
    Received,
    Sent,
}

/// Everything decided: what happens each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Impairment {
    pub(crate) received: Faults,
    pub(crate) sent: Faults,
}

impl Impairment {
    pub(crate) fn both(faults: Faults) -> Impairment {
        Impairment {
            received: faults,
            sent: faults,
        }
    }

    /// There is nothing to be done.
    pub(crate) fn is_none(&self) -> bool {
        self.received.is_none() && self.sent.is_none()
    }

    /// Checksums are to find what is wrong, so no device may see to them.
    pub(crate) fn corrupts(&self) -> bool {
        self.received.corrupt > 0 || self.sent.corrupt > 0
    }
}

impl ImpairPartial {
    /// Lays `over` on top of `self`.
    pub(super) fn overlay(self, over: ImpairPartial) -> ImpairPartial {
        let ImpairPartial {
            seed,
            way,
            loss,
            duplicate,
            corrupt,
            reorder,
            distance,
            delay,
            jitter,
            rate,
            queue,
            given,
        } = over;
        ImpairPartial {
            seed: seed.or(self.seed),
            way: way.or(self.way),
            loss: loss.or(self.loss),
            duplicate: duplicate.or(self.duplicate),
            corrupt: corrupt.or(self.corrupt),
            reorder: reorder.or(self.reorder),
            distance: distance.or(self.distance),
            delay: delay.or(self.delay),
            jitter: jitter.or(self.jitter),
            rate: rate.or(self.rate),
            queue: queue.or(self.queue),
            given: given.or(self.given),
        }
    }

    pub(super) fn resolve(self) -> Result<Impairment, ConfigError> {
        if let Some(given) = self.given {
            return Ok(given);
        }
        let usual = Faults::default();
        let faults = Faults {
            seed: self.seed.unwrap_or(usual.seed),
            loss: self.loss.unwrap_or(usual.loss),
            duplicate: self.duplicate.unwrap_or(usual.duplicate),
            reorder: self.reorder.unwrap_or(usual.reorder),
            distance: self.distance.unwrap_or(usual.distance),
            corrupt: self.corrupt.unwrap_or(usual.corrupt),
            delay: self.delay.unwrap_or(usual.delay),
            jitter: self.jitter.unwrap_or(usual.jitter),
            rate: self.rate.unwrap_or(usual.rate),
            queue: self.queue.unwrap_or(usual.queue),
        };
        let lonely = [
            ("impair_seed", self.seed.is_some()),
            ("impair_way", self.way.is_some()),
            ("impair_distance", self.distance.is_some()),
            ("impair_queue", self.queue.is_some()),
        ];
        if let Some((key, _)) = lonely
            .into_iter()
            .find(|(_, said)| faults.is_none() && *said)
        {
            let problem = "means something only with a fault, such as `impair_loss = \"1%\"`";
            return Err(ConfigError::value(key, problem.into()));
        }
        // One draw decides between these.
        if u32::from(faults.loss) + u32::from(faults.duplicate) + u32::from(faults.reorder) > 1_000
        {
            let problem = "with `impair_duplicate` and `impair_reorder` is more than all there is";
            return Err(ConfigError::value("impair_loss", problem.into()));
        }
        let none = usual;
        Ok(match self.way.unwrap_or_default() {
            Ways::Both => Impairment::both(faults),
            Ways::Received => Impairment {
                received: faults,
                sent: none,
            },
            Ways::Sent => Impairment {
                received: none,
                sent: faults,
            },
        })
    }
}

pub(super) fn ways(text: &str) -> Result<Ways, String> {
    match text.trim() {
        "both" => Ok(Ways::Both),
        "received" => Ok(Ways::Received),
        "sent" => Ok(Ways::Sent),
        _ => Err(format!("`{text}` is none of `both`, `received`, `sent`")),
    }
}

/// A share of all packets, in thousandths.
pub(super) fn share(text: &str) -> Result<u16, String> {
    let wrong = || format!("`{text}` is not a share like `1%` or `0.1%`");
    let number = text.trim().strip_suffix('%').ok_or_else(wrong)?;
    let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
    let thousandths = percent * 10.0;
    if !(0.0..=1_000.0).contains(&thousandths) {
        return Err(wrong());
    }
    let rounded = thousandths.round();
    if (thousandths - rounded).abs() > 1e-6 {
        return Err(format!("`{text}` is finer than 0.1%"));
    }
    Ok(rounded as u16)
}

/// Milliseconds, also parts of one.
pub(super) fn delay(text: &str) -> Result<Duration, String> {
    let most = DELAY_MAX.as_millis() as f64;
    let ms = text.trim().parse().ok();
    ms.filter(|ms: &f64| (0.0..=most).contains(ms))
        .map(|ms| Duration::from_nanos((ms * 1e6).round() as u64))
        .ok_or_else(|| format!("`{text}` is not a number of milliseconds up to {most}"))
}

/// Kilobits a second, as bits.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    let kilobits = text.trim().replace('_', "").parse::<u32>().ok();
    let kilobits = kilobits.filter(|kilobits| *kilobits > 0);
    kilobits
        .map(|kilobits| u64::from(kilobits) * 1_000)
        .ok_or_else(|| format!("`{text}` is not a number of kilobits a second"))
}

pub(super) fn frames(text: &str) -> Result<u16, String> {
    let frames = text.trim().replace('_', "").parse().ok();
    frames
        .filter(|frames| *frames > 0)
        .ok_or_else(|| format!("`{text}` is not a number from 1 to {}", u16::MAX))
}
