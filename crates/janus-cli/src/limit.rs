//! `--limit` of `janus daemon`: how much a user's programs may send, as it is written.

use std::num::NonZeroU64;
use std::str::FromStr;

use janus_daemon::{Limit, Rate};

use crate::daemon::number_of;

/// The least burst of bytes: some frames of the largest size.
const BURST_MIN: u64 = 64 << 10;

/// A limit, as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Limited(pub(crate) Limit);

impl FromStr for Limited {
    type Err = String;

    fn from_str(text: &str) -> Result<Limited, String> {
        let hint = || {
            format!(
                "`{text}` is no limit such as `www-data:bytes=100M/s,syns=1000/s` or `any:bytes=1G/s,bytes-burst=4M`"
            )
        };
        let (user, words) = text.split_once(':').ok_or_else(hint)?;
        let user = match user {
            "any" => None,
            name => Some(number_of(name)?),
        };
        let (mut bytes, mut syns) = ((None, None), (None, None));
        for word in words.split(',') {
            let (key, value) = word.split_once('=').ok_or_else(hint)?;
            let (into, value) = match key {
                "bytes" => (&mut bytes.0, value.strip_suffix("/s").ok_or_else(hint)?),
                "bytes-burst" => (&mut bytes.1, value),
                "syns" => (&mut syns.0, value.strip_suffix("/s").ok_or_else(hint)?),
                "syns-burst" => (&mut syns.1, value),
                _ => return Err(hint()),
            };
            if into.replace(number(value).ok_or_else(hint)?).is_some() {
                return Err(format!("`{text}` says `{key}` twice"));
            }
        }
        let bytes = rate(bytes, |rate| (rate / 10).max(BURST_MIN)).ok_or_else(hint)?;
        let syns = rate(syns, |rate| rate).ok_or_else(hint)?;
        match (bytes, syns) {
            (None, None) => Err(hint()),
            (bytes, syns) => Ok(Limited(Limit { user, bytes, syns })),
        }
    }
}

/// A rate with its burst, or that there is none. `None`: a burst of no rate.
fn rate(
    said: (Option<NonZeroU64>, Option<NonZeroU64>),
    usual: impl Fn(u64) -> u64,
) -> Option<Option<Rate>> {
    match said {
        (None, None) => Some(None),
        (None, Some(_)) => None,
        (Some(per_second), burst) => {
            let usual = NonZeroU64::new(usual(per_second.get()))?;
            let burst = burst.unwrap_or(usual);
            Some(Some(Rate { per_second, burst }))
        }
    }
}

/// A number above 0, in thousands with a K, and so on.
fn number(text: &str) -> Option<NonZeroU64> {
    let units = [("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
    let unit = units.into_iter().find(|(unit, _)| text.ends_with(unit));
    let (digits, times) = unit.map_or((text, 1), |(unit, times)| {
        (text.strip_suffix(unit).unwrap_or(text), times)
    });
    NonZeroU64::new(digits.parse::<u64>().ok()?.checked_mul(times)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Result<Limit, String> {
        text.parse::<Limited>().map(|Limited(limit)| limit)
    }

    fn pair(per_second: u64, burst: u64) -> Option<Rate> {
        Some(Rate {
            per_second: NonZeroU64::new(per_second)?,
            burst: NonZeroU64::new(burst)?,
        })
    }

    #[test]
    fn limits_say_who_may_send_how_much() {
        let both = Limit {
            user: Some(0),
            bytes: pair(1_000_000_000, 100_000_000),
            syns: pair(1_000, 1_000),
        };
        assert_eq!(limit("root:bytes=1G/s,syns=1K/s"), Ok(both));
        let bytes = Limit {
            user: None,
            bytes: pair(9_000, 65_536),
            syns: None,
        };
        assert_eq!(limit("any:bytes=9000/s"), Ok(bytes));
        let syns = Limit {
            user: Some(1_234),
            bytes: None,
            syns: pair(5, 50),
        };
        assert_eq!(limit("1234:syns-burst=50,syns=5/s"), Ok(syns));
        for wrong in [
            "root",
            "root:",
            "root:bytes=1G",
            "root:bytes=/s",
            "root:bytes=0/s",
            "root:bytes=1T/s",
            "root:bytes=1GG/s",
            "root:bytes=99999999999G/s",
            "root:bytes-burst=5",
            "root:packets=5/s",
            "root:syns=5/s,syns=6/s",
            "nobody at all:syns=5/s",
        ] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
