//! What may be written where an address is wanted. No name is resolved here: that would block the core.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address, or text or a pair that says one: `"0.0.0.0:80"`, `"[::]:80"` (which takes
/// both families), `"localhost:8080"`, `("192.0.2.1", 80)`.
pub trait ToAddress {
    /// The address meant.
    fn to_address(&self) -> io::Result<SocketAddr>;
}

impl ToAddress for SocketAddrV4 {
    fn to_address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::V4(*self))
    }
}

impl ToAddress for SocketAddrV6 {
    fn to_address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::V6(*self))
    }
}

impl ToAddress for SocketAddr {
    fn to_address(&self) -> io::Result<SocketAddr> {
        Ok(*self)
    }
}

impl ToAddress for (Ipv4Addr, u16) {
    fn to_address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from(*self))
    }
}

impl ToAddress for (Ipv6Addr, u16) {
    fn to_address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from(*self))
    }
}

impl ToAddress for (IpAddr, u16) {
    fn to_address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from(*self))
    }
}

impl ToAddress for (&str, u16) {
    fn to_address(&self) -> io::Result<SocketAddr> {
        host(self.0, self.1)
    }
}

impl ToAddress for str {
    fn to_address(&self) -> io::Result<SocketAddr> {
        if let Ok(address) = self.parse::<SocketAddr>() {
            return Ok(address);
        }
        let (name, port) = self.rsplit_once(':').ok_or_else(|| unclear(self))?;
        host(name, port.parse().map_err(|_| unclear(self))?)
    }
}

impl ToAddress for String {
    fn to_address(&self) -> io::Result<SocketAddr> {
        self.as_str().to_address()
    }
}

impl<T: ToAddress + ?Sized> ToAddress for &T {
    fn to_address(&self) -> io::Result<SocketAddr> {
        (**self).to_address()
    }
}

fn host(name: &str, port: u16) -> io::Result<SocketAddr> {
    let address = match name {
        // RFC 6761 section 6.3: this name may be answered without asking anyone.
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => name.parse().map_err(|_| unclear(name))?,
    };
    Ok(SocketAddr::from((address, port)))
}

fn unclear(text: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("`{text}` is not an address like 192.0.2.1:80; names are not resolved here"),
    )
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
            assert_eq!(form.to_address().unwrap(), expected);
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
            assert_eq!(form.to_address().unwrap(), expected);
        }
    }

    #[test]
    fn the_rest_is_refused_with_a_reason() {
        for (text, part) in [
            ("example.com:80", "not resolved"),
            ("80", "not an address"),
            ("::1:80:x", "not an address"),
        ] {
            let error = text.to_address().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
