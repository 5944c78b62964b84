//! The addresses of the daemon's device as members are told of them, and their bytes in a message.

use std::net::IpAddr;

use super::{ADDRESSES_MAX, GATEWAYS_MAX, LEN_MAX, Malformed, Reader, Writer};

/// The most routes that a device tells.
pub const ROUTES_MAX: usize = 64;
/// The most name servers that a device tells.
pub const NAME_SERVERS_MAX: usize = 3;
/// Bytes of the longest message of this kind.
const BYTES_MAX: usize =
    8 + 4 + ADDRESSES_MAX * 18 + (GATEWAYS_MAX + NAME_SERVERS_MAX) * 17 + ROUTES_MAX * 35;
const _: () = assert!(BYTES_MAX <= LEN_MAX);

/// The addresses of the daemon's device, and what belongs to them. A daemon tells them before the welcome, where that does not say all, and
/// whenever they have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Addresses, each with the length of its network's prefix; at most [`ADDRESSES_MAX`]. Empty: the device has none at present.
    pub addresses: Vec<(IpAddr, u8)>,
    /// A router of either family for all other networks.
    pub gateways: Vec<IpAddr>,
    /// Routes: network, length of its prefix, and neighbor that leads there; at most [`ROUTES_MAX`].
    pub routes: Vec<(IpAddr, u8, IpAddr)>,
    /// Name servers, the best first; at most [`NAME_SERVERS_MAX`].
    pub name_servers: Vec<IpAddr>,
    /// The longest IP packet of the network, in bytes; 0: no other than the device's.
    pub mtu: u16,
    /// Milliseconds within which a program is welcomed or refused that asks while there is no address; else 0.
    pub wait_ms: u32,
}

impl Writer {
    pub(super) fn network(&mut self, it: &Network) -> &mut Writer {
        self.put([11]);
        self.many(&it.addresses, ADDRESSES_MAX, |out, (ip, prefix)| {
            out.ip(*ip).put([*prefix]);
        });
        self.many(&it.gateways, GATEWAYS_MAX, |out, ip| _ = out.ip(*ip));
        self.many(&it.routes, ROUTES_MAX, |out, (ip, prefix, via)| {
            out.ip(*ip).put([*prefix]).ip(*via);
        });
        self.many(&it.name_servers, NAME_SERVERS_MAX, |out, ip| {
            _ = out.ip(*ip);
        });
        self.put(it.mtu.to_le_bytes()).put(it.wait_ms.to_le_bytes())
    }

    /// Up to `most` of something: the rest is left out.
    fn many<T>(&mut self, all: &[T], most: usize, mut one: impl FnMut(&mut Writer, &T)) {
        let all = &all[..all.len().min(most)];
        self.put([all.len() as u8]);
        all.iter().for_each(|it| one(self, it));
    }
}

impl Reader<'_> {
    pub(super) fn network(&mut self) -> Result<Network, Malformed> {
        Ok(Network {
            addresses: self.list(ADDRESSES_MAX, |it| Ok((it.ip()?, it.u8()?)))?,
            gateways: self.list(GATEWAYS_MAX, Self::ip)?,
            routes: self.list(ROUTES_MAX, |it| Ok((it.ip()?, it.u8()?, it.ip()?)))?,
            name_servers: self.list(NAME_SERVERS_MAX, Self::ip)?,
            mtu: self.u16()?,
            wait_ms: self.u32()?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Message;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    pub(in super::super) fn some() -> Network {
        let ip = |text: &str| text.parse().unwrap();
        Network {
            addresses: vec![(ip("192.0.2.77"), 24), (ip("2001:db8::1"), 64)],
            gateways: vec![ip("192.0.2.254")],
            routes: vec![(ip("198.51.100.0"), 24, ip("192.0.2.7"))],
            name_servers: vec![ip("192.0.2.53")],
            mtu: 1_400,
            wait_ms: 30_000,
        }
    }

    fn ip() -> impl Strategy<Value = IpAddr> {
        any::<(bool, [u8; 16])>().prop_map(|(v4, bytes)| match v4 {
            true => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            false => IpAddr::from(bytes),
        })
    }

    #[test]
    fn what_is_too_much_is_left_out() {
        let some = some();
        let many = Network {
            addresses: vec![some.addresses[0]; ADDRESSES_MAX + 1],
            gateways: vec![some.gateways[0]; GATEWAYS_MAX + 1],
            routes: vec![some.routes[0]; ROUTES_MAX + 1],
            name_servers: vec![some.name_servers[0]; NAME_SERVERS_MAX + 1],
            ..some
        };
        let bytes = Message::Network(many).encode();
        assert!(bytes.len() <= BYTES_MAX);
        let Ok(Message::Network(read)) = Message::decode(&bytes) else {
            panic!("a message");
        };
        assert_eq!(read.addresses.len(), ADDRESSES_MAX);
        assert_eq!(read.routes.len(), ROUTES_MAX);
        assert_eq!(read.mtu, 1_400);
    }

    proptest! {
        #[test]
        fn any_network_is_read_as_it_was_written(
            addresses in vec((ip(), any::<u8>()), 0..=ADDRESSES_MAX),
            gateways in vec(ip(), 0..=GATEWAYS_MAX),
            routes in vec((ip(), any::<u8>(), ip()), 0..=ROUTES_MAX),
            name_servers in vec(ip(), 0..=NAME_SERVERS_MAX),
            (mtu, wait_ms) in any::<(u16, u32)>(),
        ) {
            let network = Network { addresses, gateways, routes, name_servers, mtu, wait_ms };
            let message = Message::Network(network);
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }
}
