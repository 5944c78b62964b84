//! Forms in which an address may be given: the address itself, text that contains one, or a name. Names are looked up in
//! `resolver`; no server is asked here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A parsed destination.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// An address.
    Address(SocketAddr),
    /// Several addresses, tried in order.
    Addresses(Vec<SocketAddr>),
    /// A name, which is looked up first.
    Name {
        /// Host name.
        host: String,
        /// Port on the host.
        port: u16,
    },
}

/// A socket address, or text or a pair that contains one or a name: `"0.0.0.0:80"`, `"[::]:80"` (which takes both families),
/// `"localhost:8080"`, `("192.0.2.1", 80)`, `"example.com:443"`; or several addresses.
pub trait ToAddress {
    /// Converts the value to a [`Target`].
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) when text is neither an address with a port nor a name with one.
    fn to_target(&self) -> io::Result<Target>;
}

macro_rules! addresses {
    ($($address:ty),+) => { $(
        impl ToAddress for $address {
            fn to_target(&self) -> io::Result<Target> {
                Ok(Target::Address(SocketAddr::from(*self)))
            }
        }
    )+ };
}

addresses!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16)
);

impl ToAddress for [SocketAddr] {
    fn to_target(&self) -> io::Result<Target> {
        Ok(Target::Addresses(self.to_vec()))
    }
}

impl ToAddress for Vec<SocketAddr> {
    fn to_target(&self) -> io::Result<Target> {
        self.as_slice().to_target()
    }
}

impl ToAddress for (&str, u16) {
    fn to_target(&self) -> io::Result<Target> {
        host(self.0, self.1)
    }
}

impl ToAddress for (String, u16) {
    fn to_target(&self) -> io::Result<Target> {
        host(&self.0, self.1)
    }
}

impl ToAddress for str {
    fn to_target(&self) -> io::Result<Target> {
        if let Ok(address) = self.parse::<SocketAddr>() {
            return Ok(Target::Address(address));
        }
        let Some((name, port)) = self.rsplit_once(':') else {
            return Err(match self.parse::<u16>() {
                Ok(port) => invalid(format!(
                    "`{port}` is a port only: of all addresses it is `0.0.0.0:{port}`, or `[::]:{port}`"
                )),
                Err(_) => unclear(self),
            });
        };
        if let Ok(port) = port.parse::<u64>()
            && port > u64::from(u16::MAX)
        {
            return Err(invalid(format!("`{self}`: ports end at {}", u16::MAX)));
        }
        host(name, port.parse().map_err(|_| unclear(self))?)
    }
}

impl ToAddress for String {
    fn to_target(&self) -> io::Result<Target> {
        self.as_str().to_target()
    }
}

impl<T: ToAddress + ?Sized> ToAddress for &T {
    fn to_target(&self) -> io::Result<Target> {
        (**self).to_target()
    }
}

fn host(name: &str, port: u16) -> io::Result<Target> {
    if name == "localhost" {
        // RFC 6761 section 6.3: this name may be answered without a query.
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        return Ok(Target::Address(SocketAddr::from((address, port))));
    }
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(Target::Address(SocketAddr::from((address, port))));
    }
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // A name whose last part is only digits is a mistyped address, not a name (RFC 3696 section 2).
    let last = name.trim_end_matches('.').rsplit('.').next();
    let numeric = last.is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if name.is_empty() || !name.bytes().all(in_name) || numeric {
        return Err(unclear(name));
    }
    Ok(Target::Name {
        host: name.to_owned(),
        port,
    })
}

fn unclear(text: &str) -> io::Error {
    invalid(format!(
        "`{text}` is neither an address like 192.0.2.1:80 nor a name like example.com:80"
    ))
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_says_the_same() {
        let expected = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
        let forms: [&dyn ToAddress; 6] = [
            &"127.0.0.1:80",
            &"localhost:80",
            &("localhost", 80),
            &(Ipv4Addr::LOCALHOST, 80),
            &expected,
            &String::from("127.0.0.1:80"),
        ];
        for form in forms {
            assert_eq!(form.to_target().unwrap(), Target::Address(expected));
        }
    }

    #[test]
    fn so_does_every_form_of_the_longer_kind() {
        let expected = SocketAddr::from((Ipv6Addr::LOCALHOST, 80));
        let forms: [&dyn ToAddress; 4] = [
            &"[::1]:80",
            &("::1", 80),
            &(Ipv6Addr::LOCALHOST, 80),
            &SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 0, 0),
        ];
        for form in forms {
            assert_eq!(form.to_target().unwrap(), Target::Address(expected));
        }
    }

    #[test]
    fn names_and_lists_are_what_they_are() {
        let name = |host: &str, port| Target::Name {
            host: host.to_owned(),
            port,
        };
        let target = "example.com:80".to_target().unwrap();
        assert_eq!(target, name("example.com", 80));
        let target = ("a-b_c.example.", 1).to_target().unwrap();
        assert_eq!(target, name("a-b_c.example.", 1));
        let both = [
            SocketAddr::from((Ipv4Addr::LOCALHOST, 80)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, 80)),
        ];
        let target = both.as_slice().to_target().unwrap();
        assert_eq!(target, Target::Addresses(both.to_vec()));
    }

    #[test]
    fn the_rest_is_refused_with_a_reason() {
        for (text, reason) in [
            ("80", "`0.0.0.0:80`"),
            ("::1:80:x", "neither an address"),
            ("example.com", "neither an address"),
            (":80", "neither an address"),
            ("a b:80", "neither an address"),
            ("192.0.2.256:80", "neither an address"),
            ("x:99999", "ports end at 65535"),
            ("0.0.0.0:65536", "ports end at 65535"),
        ] {
            let error = text.to_target().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
