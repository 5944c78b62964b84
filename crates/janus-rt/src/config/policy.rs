//! The keys of the polling cores' policy, as they are said and as they are meant.

use std::net::IpAddr;

use janus_io::policy::{LIST_MAX, Prefix, Rules, SynLimit};

use super::ConfigError;

/// Settings of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyPartial {
    pub(crate) martians: Option<Martians>,
    pub(crate) allow: Option<Vec<Prefix>>,
    pub(crate) deny: Option<Vec<Prefix>>,
    pub(crate) syn_rate: Option<u32>,
    pub(crate) syn_burst: Option<u32>,
    pub(crate) syn_prefix: Option<u8>,
    pub(crate) syn_prefix_v6: Option<u8>,
    /// The builder's, in place of all these.
    pub(crate) given: Option<Rules>,
}

/// Treatment of packets from addresses that no host can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Martians {
    Drop,
    Pass,
}

/// Everything decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicySettings {
    pub(super) martians: Option<Martians>,
    pub(super) allow: Vec<Prefix>,
    pub(super) deny: Vec<Prefix>,
    pub(super) syn_limit: Option<SynLimit>,
    given: Option<Rules>,
}

impl PolicyPartial {
    /// Lays `over` on top of `self`.
    pub(super) fn overlay(self, over: PolicyPartial) -> PolicyPartial {
        let PolicyPartial {
            martians,
            allow,
            deny,
            syn_rate,
            syn_burst,
            syn_prefix,
            syn_prefix_v6,
            given,
        } = over;
        PolicyPartial {
            martians: martians.or(self.martians),
            allow: allow.or(self.allow),
            deny: deny.or(self.deny),
            syn_rate: syn_rate.or(self.syn_rate),
            syn_burst: syn_burst.or(self.syn_burst),
            syn_prefix: syn_prefix.or(self.syn_prefix),
            syn_prefix_v6: syn_prefix_v6.or(self.syn_prefix_v6),
            given: given.or(self.given),
        }
    }

    pub(super) fn resolve(self) -> Result<PolicySettings, ConfigError> {
        let silent = self.syn_rate.is_none();
        let lonely = [
            ("policy_syn_burst", self.syn_burst.is_some()),
            ("policy_syn_prefix", self.syn_prefix.is_some()),
            ("policy_syn_prefix_v6", self.syn_prefix_v6.is_some()),
        ];
        if let Some((key, _)) = lonely.into_iter().find(|(_, said)| silent && *said) {
            let problem = "means something only with `policy_syn_rate`";
            return Err(ConfigError::value(key, problem.into()));
        }
        let syn_limit = self.syn_rate.map(|rate| {
            let usual = SynLimit::new(rate);
            SynLimit {
                burst: self.syn_burst.unwrap_or(usual.burst),
                prefix_v4: self.syn_prefix.unwrap_or(usual.prefix_v4),
                prefix_v6: self.syn_prefix_v6.unwrap_or(usual.prefix_v6),
                ..usual
            }
        });
        Ok(PolicySettings {
            martians: self.martians,
            allow: self.allow.unwrap_or_default(),
            deny: self.deny.unwrap_or_default(),
            syn_limit,
            given: self.given,
        })
    }
}

impl PolicySettings {
    /// The rules for a device. One that leads outside has no martians unless somebody says so; on one that does not, such as the
    /// portal's wire, loopback is what there is.
    pub(crate) fn rules(&self, leads_outside: bool, own: Vec<IpAddr>) -> Rules {
        if let Some(given) = &self.given {
            return given.clone();
        }
        let usual = match leads_outside {
            true => Martians::Drop,
            false => Martians::Pass,
        };
        Rules {
            drop_martians: self.martians.unwrap_or(usual) == Martians::Drop,
            own,
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            syn_limit: self.syn_limit,
        }
    }
}

pub(super) fn martians(text: &str) -> Result<Martians, String> {
    match text.trim() {
        "drop" => Ok(Martians::Drop),
        "pass" => Ok(Martians::Pass),
        _ => Err(format!("`{text}` is neither `drop` nor `pass`")),
    }
}

pub(super) fn prefixes(text: &str) -> Result<Vec<Prefix>, String> {
    let list: Vec<Prefix> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    if list.len() > LIST_MAX {
        return Err(format!("{} networks, of {LIST_MAX}", list.len()));
    }
    Ok(list)
}

/// Bits of a prefix of an address that has `width`.
pub(super) fn bits(text: &str, width: u8) -> Result<u8, String> {
    let bits = text.trim().parse().ok().filter(|bits| *bits <= width);
    bits.ok_or_else(|| format!("`{text}` is not a number of bits up to {width}"))
}
