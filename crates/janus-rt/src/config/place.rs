//! Places that a program's sockets may be at: a network, ports, or both.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use janus_io::ParseError;
use janus_io::policy::Prefix;

const ANY: &str = "any";

/// A network and ports of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// `None`: all, of both families.
    network: Option<Prefix>,
    ports: RangeInclusive<u16>,
}

impl Place {
    pub(crate) fn has(&self, at: SocketAddr) -> bool {
        let ip = at.ip().to_canonical();
        let network = self.network.as_ref();
        self.ports.contains(&at.port()) && network.is_none_or(|network| network.contains(ip))
    }

    fn has_all_ports(&self) -> bool {
        self.ports == (0..=u16::MAX)
    }
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some(first..=last)
}

impl FromStr for Place {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Place, ParseError> {
        let wrong = || {
            let forms = "`10.0.0.0/8`, `127.0.0.1:80`, `[::1]:80-90`, `:8080` or `any`";
            ParseError::new(format!("`{text}` is no place: {forms} is one"))
        };
        // An address of IPv6 has colons of its own: with ports it stands in brackets.
        let (network, ports_text) = match text.strip_prefix('[') {
            Some(rest) => {
                let (network, rest) = rest.split_once(']').ok_or_else(wrong)?;
                let ports = match rest {
                    "" => None,
                    rest => Some(rest.strip_prefix(':').ok_or_else(wrong)?),
                };
                (network, ports)
            }
            None => match text.split_once(':') {
                Some((network, rest)) if !rest.contains(':') => (network, Some(rest)),
                _ => (text, None),
            },
        };
        let ports = match ports_text {
            Some(text) => ports(text).ok_or_else(wrong)?,
            None => 0..=u16::MAX,
        };
        let network = match network {
            ANY => None,
            "" if ports_text.is_some() => None,
            network => Some(network.parse().map_err(|_| wrong())?),
        };
        Ok(Place { network, ports })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = self.network.map(|network| network.to_string());
        // An address alone is written as one.
        let network = network.as_deref().map(|text| {
            let alone = if text.contains(':') { "/128" } else { "/32" };
            text.strip_suffix(alone).unwrap_or(text)
        });
        if self.has_all_ports() {
            return f.write_str(network.unwrap_or(ANY));
        }
        match network {
            Some(network) if network.contains(':') => write!(f, "[{network}]:")?,
            Some(network) => write!(f, "{network}:")?,
            None => f.write_str(":")?,
        }
        let (first, last) = (self.ports.start(), self.ports.end());
        match first == last {
            true => write!(f, "{first}"),
            false => write!(f, "{first}-{last}"),
        }
    }
}

/// Whether a socket at `at`, or connected to it, is ours: what `ours` has is, what `kernel` has is not, and of the rest what is not on
/// loopback.
pub(crate) fn is_ours(ours: &[Place], kernel: &[Place], at: SocketAddr) -> bool {
    let is_in = |places: &[Place]| places.iter().any(|place| place.has(at));
    is_in(ours) || !(is_in(kernel) || at.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Place {
        text.parse().unwrap()
    }

    #[test]
    fn places_are_written_as_they_are_read() {
        for text in [
            "10.0.0.0/8",
            "127.0.0.1:80",
            "[::1]:80-90",
            "2001:db8::/32",
            "::1",
            "192.0.2.1",
            ":8080",
            "any",
        ] {
            assert_eq!(place(text).to_string(), text);
        }
        for wrong in [
            "",
            "80",
            ":",
            ":90-80",
            "[::1",
            "[::1]80",
            "10.0.0.0/8:",
            "x:1",
            ":65536",
        ] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn loopback_is_the_kernels_unless_it_is_said_to_be_ours() {
        let at = |text: &str| text.parse().unwrap();
        assert!(is_ours(&[], &[], at("0.0.0.0:80")) && is_ours(&[], &[], at("192.0.2.1:80")));
        assert!(!is_ours(&[], &[], at("127.0.0.1:80")) && !is_ours(&[], &[], at("[::1]:80")));
        assert!(!is_ours(&[], &[], at("[::ffff:127.0.0.1]:80")));
        let ours = [place("127.0.0.1:80")];
        assert!(
            is_ours(&ours, &[], at("127.0.0.1:80")) && !is_ours(&ours, &[], at("127.0.0.1:81"))
        );
        let kernel = [place(":22"), place("192.0.2.0/24")];
        assert!(
            !is_ours(&ours, &kernel, at("0.0.0.0:22")) && !is_ours(&[], &kernel, at("192.0.2.9:1"))
        );
        assert!(is_ours(&ours, &[place("any")], at("127.0.0.1:80")));
    }
}
