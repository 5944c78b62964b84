//! How far connections opened through the portal go: to this machine only, unless the user says otherwise. A program that
//! runs behind the portal to be tried out must not reach into the network by accident.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Once};

use janus_io::ParseError;
use janus_io::policy::Prefix;

/// Peers that connections opened through the portal may reach. Loopback is always among them. As text: `loopback`, `any`, or networks
/// such as `10.0.0.0/8,2001:db8::/32`.
///
/// ```
/// use janus::{PortalReach, admission::Prefix};
///
/// let network: Prefix = "10.0.0.0/8".parse()?;
/// assert_eq!(PortalReach::from(network), "10.0.0.0/8".parse()?);
/// # Ok::<(), janus::ParseError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortalReach {
    /// This machine only.
    #[default]
    Loopback,
    /// Every address that the kernel has a route to.
    Anywhere,
    /// These networks, besides loopback.
    Networks(Arc<[Prefix]>),
}

impl From<Prefix> for PortalReach {
    fn from(network: Prefix) -> PortalReach {
        PortalReach::Networks([network].into())
    }
}

impl FromIterator<Prefix> for PortalReach {
    fn from_iter<I: IntoIterator<Item = Prefix>>(networks: I) -> PortalReach {
        PortalReach::Networks(networks.into_iter().collect())
    }
}

impl PortalReach {
    pub(crate) fn takes_in(&self, address: IpAddr) -> bool {
        // The kernel reaches `::ffff:192.0.2.1` over IPv4.
        let address = address.to_canonical();
        address.is_loopback()
            || match self {
                PortalReach::Loopback => false,
                PortalReach::Anywhere => true,
                PortalReach::Networks(networks) => networks.iter().any(|net| net.contains(address)),
            }
    }

    /// Returns whether `address` is within reach; if not, says once in the life of the process which setting would include it.
    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        static SAID: Once = Once::new();
        let within = self.takes_in(address);
        if !within {
            SAID.call_once(|| {
                eprintln!(
                    "janus: the portal opens no connection to {address}: \
                     `portal_reach = \"{address}\"` (or a network, or \"any\") lets it"
                );
            });
        }
        within
    }
}

impl fmt::Display for PortalReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortalReach::Loopback => f.write_str("loopback"),
            PortalReach::Anywhere => f.write_str("any"),
            PortalReach::Networks(networks) => {
                let networks: Vec<String> = networks.iter().map(Prefix::to_string).collect();
                f.write_str(&networks.join(","))
            }
        }
    }
}

impl FromStr for PortalReach {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<PortalReach, ParseError> {
        match text.trim() {
            "loopback" => Ok(PortalReach::Loopback),
            "any" => Ok(PortalReach::Anywhere),
            list => {
                let networks = list.split(',').map(str::parse::<Prefix>);
                networks.collect::<Result<_, _>>().map_err(|error| {
                    ParseError::new(format!("neither `loopback` nor `any`, and {error}"))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_always_within() {
        let takes = |reach: &str, address: &str| {
            let reach: PortalReach = reach.parse().unwrap();
            reach.takes_in(address.parse().unwrap())
        };
        for reach in [
            "loopback",
            "any",
            "203.0.113.0/24",
            "2001:db8::/32, 198.51.100.7",
        ] {
            assert!(takes(reach, "127.0.0.1") && takes(reach, "127.9.9.9") && takes(reach, "::1"));
        }
        assert!(!takes("loopback", "192.0.2.1") && !takes("loopback", "2001:db8::1"));
        assert!(takes("any", "192.0.2.1") && takes("any", "2001:db8::1"));
        let some = "2001:db8::/32, 198.51.100.7";
        assert!(takes(some, "198.51.100.7") && !takes(some, "198.51.100.8"));
        assert!(takes(some, "2001:db8::1") && !takes(some, "2001:db9::1"));
        assert!(takes("loopback", "::ffff:127.0.0.1") && takes(some, "::ffff:198.51.100.7"));
        assert!(!takes("::/0", "::ffff:192.0.2.1") && takes("0.0.0.0/0", "::ffff:192.0.2.1"));
        for wrong in ["", "all", "10.0.0.0/33", "10.0.0.1/8"] {
            assert!(wrong.parse::<PortalReach>().is_err(), "{wrong}");
        }
    }
}
