//! `struct sockaddr` of IPv4 and IPv6.

use super::memory::UserPtr;
use janus_posix::{Errno, abi};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// `sizeof(struct sockaddr_storage)`.
const LEN_MAX: i32 = 128;
/// `sizeof(struct sockaddr_in)`, and what of `struct sockaddr_in6` is older than its scope (SIN6_LEN_RFC2133).
const V4_LEN: usize = 16;
const V6_LEN_MIN: usize = 24;
const V6_LEN: usize = 28;

/// Address that a program passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    Address(SocketAddr),
    /// AF_UNSPEC: no address.
    Nobody,
}

/// The name at `pointer`.
pub(crate) fn read(pointer: UserPtr, len: u32) -> Result<Name, Errno> {
    decode(&copy(pointer, len)?)
}

/// Its bytes, with the kernel's checks in the kernel's order (move_addr_to_kernel).
pub(crate) fn copy(pointer: UserPtr, len: u32) -> Result<Vec<u8>, Errno> {
    let len = len as i32;
    if !(0..=LEN_MAX).contains(&len) {
        return Err(Errno::EINVAL);
    }
    pointer.bytes(len as usize)
}

fn decode(bytes: &[u8]) -> Result<Name, Errno> {
    let Some((&family, rest)) = bytes.split_first_chunk() else {
        return Err(Errno::EINVAL);
    };
    let port = |rest: &[u8]| u16::from_be_bytes([rest[0], rest[1]]);
    match i32::from(u16::from_ne_bytes(family)) {
        0 => Ok(Name::Nobody),
        abi::AF_INET if bytes.len() >= V4_LEN => {
            let ip = Ipv4Addr::new(rest[2], rest[3], rest[4], rest[5]);
            Ok(Name::Address(SocketAddr::from((ip, port(rest)))))
        }
        abi::AF_INET6 if bytes.len() >= V6_LEN_MIN => {
            let mut ip = [0; 16];
            ip.copy_from_slice(&rest[6..22]);
            let scope = bytes.get(V6_LEN_MIN..V6_LEN);
            let scope = scope.and_then(|scope| scope.first_chunk().copied());
            let ip = Ipv6Addr::from(ip);
            let scope = u32::from_ne_bytes(scope.unwrap_or_default());
            let flow = u32::from_be_bytes([rest[2], rest[3], rest[4], rest[5]]);
            let address = SocketAddrV6::new(ip, port(rest), flow, scope);
            Ok(Name::Address(address.into()))
        }
        abi::AF_INET | abi::AF_INET6 => Err(Errno::EINVAL),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

pub(crate) fn encode(address: SocketAddr) -> Vec<u8> {
    let family = match address {
        SocketAddr::V4(_) => abi::AF_INET,
        SocketAddr::V6(_) => abi::AF_INET6,
    };
    let mut bytes = (family as u16).to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(at) => {
            bytes.extend(at.ip().octets());
            bytes.resize(V4_LEN, 0);
        }
        SocketAddr::V6(at) => {
            bytes.extend(at.flowinfo().to_be_bytes());
            bytes.extend(at.ip().octets());
            bytes.extend(at.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// Writes a name for the caller: as much as there is room for, and its full length (move_addr_to_user). Without a
/// pointer the caller does not want the name.
pub(crate) fn write(address: SocketAddr, pointer: UserPtr, len: UserPtr) -> Result<(), Errno> {
    if pointer.is_null() {
        return Ok(());
    }
    let room = usize::try_from(len.int()?).map_err(|_| Errno::EINVAL)?;
    let bytes = encode(address);
    pointer.write(&bytes[..room.min(bytes.len())])?;
    len.write(&(bytes.len() as u32).to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_went() {
        for address in ["192.0.2.1:8080", "[2001:db8::1]:443", "[::ffff:1.2.3.4]:5"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(decode(&encode(address)), Ok(Name::Address(address)));
        }
    }

    #[test]
    fn short_and_foreign_names_are_refused() {
        let v4 = encode("192.0.2.1:8080".parse().unwrap());
        assert_eq!(decode(&v4[..15]), Err(Errno::EINVAL));
        let v6 = encode("[2001:db8::1]:443".parse().unwrap());
        assert_eq!(decode(&v6[..23]), Err(Errno::EINVAL));
        assert!(decode(&v6[..24]).is_ok());
        assert_eq!(decode(&[1, 0, 0, 0]), Err(Errno::EAFNOSUPPORT));
        assert_eq!(decode(&[0; 16]), Ok(Name::Nobody));
        assert_eq!(decode(&[2]), Err(Errno::EINVAL));
    }
}
