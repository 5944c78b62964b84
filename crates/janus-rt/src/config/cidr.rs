//! An address of the interface with the length of its network's prefix: its text, and its form as a value of keys. Whether such an address
//! can be ours is in `addresses`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use janus_io::ParseError;
use janus_tcp::IpCidr;

/// An address and the length of its network's prefix, such as `192.0.2.1/24`. Text without a length, like a plain [`IpAddr`], is an address
/// that is alone in its network.
///
/// ```
/// use janus::Cidr;
///
/// let address: Cidr = "192.0.2.1/24".parse()?;
/// assert_eq!(Cidr::new([192, 0, 2, 1], 24), Some(address));
/// assert_eq!(Cidr::new([192, 0, 2, 1], 33), None);
/// let alone: Cidr = std::net::Ipv6Addr::LOCALHOST.into();
/// assert_eq!(alone.to_string(), "::1/128");
/// # Ok::<(), janus::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Makes an address whose first `prefix` bits name its network; `None` where the address has fewer bits.
    #[must_use]
    pub fn new(address: impl Into<IpAddr>, prefix: u8) -> Option<Cidr> {
        let address = address.into();
        (prefix <= width(address)).then_some(Cidr { address, prefix })
    }

    /// Returns the address.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns how many bits of the address name its network.
    #[must_use]
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Converts to the stack's type.
    pub(crate) fn network(self) -> IpCidr {
        IpCidr::new(self.address, self.prefix)
    }
}

/// Bits of an address of its family.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl From<IpAddr> for Cidr {
    /// Makes an address that is alone in its network.
    fn from(address: IpAddr) -> Cidr {
        Cidr {
            address,
            prefix: width(address),
        }
    }
}

impl From<Ipv4Addr> for Cidr {
    fn from(address: Ipv4Addr) -> Cidr {
        IpAddr::V4(address).into()
    }
}

impl From<Ipv6Addr> for Cidr {
    fn from(address: Ipv6Addr) -> Cidr {
        IpAddr::V6(address).into()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Cidr, ParseError> {
        let wrong = || {
            ParseError::new(format!(
                "`{text}` is not an address like 192.0.2.1/24 or 2001:db8::1/64"
            ))
        };
        let Some((address, prefix)) = text.trim().split_once('/') else {
            let alone = text.trim().parse::<IpAddr>();
            return alone.map(Cidr::from).map_err(|_| wrong());
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        Cidr::new(address, prefix).ok_or_else(|| {
            let most = width(address);
            ParseError::new(format!("{}: /{most} at most", wrong()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_address_says_what_to_write() {
        for (wrong, part) in [
            ("nowhere", "not an address like 192.0.2.1/24"),
            ("192.0.2.1/", "not an address like"),
            ("192.0.2.1/-1", "not an address like"),
            ("192.0.2.1/33", "/32 at most"),
            ("2001:db8::1/129", "/128 at most"),
        ] {
            let error = wrong.parse::<Cidr>().unwrap_err().to_string();
            assert!(error.contains(part), "{wrong}: {error}");
        }
        let alone: Cidr = Ipv4Addr::new(192, 0, 2, 1).into();
        assert_eq!(" 192.0.2.1".parse(), Ok(alone));
        assert_eq!(alone.to_string().parse(), Ok(alone));
    }
}
