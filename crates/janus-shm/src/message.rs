//! The messages by which a member and the daemon agree: what each is, and its bytes. One is a datagram of at most [`LEN_MAX`] bytes, little-endian:
//! its kind, its fields in order, and nothing after them.

mod network;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub use network::{NAME_SERVERS_MAX, Network, ROUTES_MAX};

/// The version of these messages, and of when whom a ring wakes.
pub const VERSION: u16 = 8;
/// Bytes of the longest message.
pub(crate) const LEN_MAX: usize = 2_560;
/// Bytes of the longest name.
pub const NAME_MAX: usize = 64;
/// The most addresses that a device tells.
pub const ADDRESSES_MAX: usize = 8;
/// One router for each family.
const GATEWAYS_MAX: usize = 2;

/// How packets cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Copied, so that no member sees or forges what is another's.
    Isolated,
    /// In memory that the daemon shares with the members of its own user, if it does; else copied.
    Shared,
}

/// Whether a port may be several members'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// It is to be the member's alone.
    Alone,
    /// It joins those that have it under the same name of a group.
    Join,
    /// It joins them, and gets new connections only while none of the others does.
    Reserve,
    /// It has connections there from before, and gets no new ones.
    Left,
}

/// A listener's port, as one may have it whom another program has left it to: as a member of that program's group, with its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The user whose group that is.
    pub user: u32,
    /// The group.
    pub group: String,
    /// The port.
    pub port: u16,
    /// The daemon's proof that it was granted.
    pub seal: u64,
}

/// A member presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest and the newest version of these messages that it speaks.
    pub versions: (u16, u16),
    /// For people.
    pub name: String,
    /// How its packets are to cross.
    pub mode: Mode,
    /// Cores that it has.
    pub cores: u8,
    /// The number that it had before the daemon was gone; 0 if it is new.
    pub member: u32,
    /// Ports for connections that it begins: the first that it had before, or 0, and how many it wants.
    pub ports: (u16, u16),
    /// Buffers that it wants to borrow, in [`Mode::Shared`].
    pub buffers: u32,
    /// Why it is to be taken in although its user may have no port.
    pub permit: Option<Permit>,
}

/// A daemon's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A device with this link address.
    Ethernet([u8; 6]),
    /// The portal, without link headers: connections are the kernel's outside. Ports below this one it offers elsewhere.
    Portal(u16),
}

impl Device {
    /// Its link address, if it has one.
    #[must_use]
    pub fn mac(self) -> Option<[u8; 6]> {
        match self {
            Device::Ethernet(mac) => Some(mac),
            Device::Portal(_) => None,
        }
    }
}

/// The daemon takes it in. Where it lends buffers, two segments come along: the memory that they are in, and the number of each in that memory, a
/// `u32` in the machine's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that is spoken from here on.
    pub version: u16,
    /// Its number.
    pub member: u32,
    /// Its device.
    pub device: Device,
    /// The longest IP packet.
    pub mtu: u16,
    /// Checksums of what it receives are vouched for; those of what it sends may be left to the device.
    pub checksums: (bool, bool),
    /// Ports for connections that it begins, and sockets that do not care: the first, and how many.
    pub ports: (u16, u16),
    /// Addresses of the device, each with the length of its network's prefix; at most [`ADDRESSES_MAX`].
    pub addresses: Vec<(IpAddr, u8)>,
    /// Where all goes that is for other networks: a router of either family.
    pub gateways: Vec<IpAddr>,
    /// Buffers in the memory that the daemon shares, and how many of them the member borrows; 0: none, it brings its own memory.
    pub loan: (u32, u32),
}

/// A member asks for a port, or gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its own number for the claim, which the answer names.
    pub number: u32,
    /// Of UDP; else of TCP.
    pub udp: bool,
    /// The address, which may be all of them, and the port; 0 leaves that to the daemon.
    pub address: SocketAddr,
    /// Among whom the connections are divided.
    pub group: String,
    /// Whether there may be others.
    pub share: Share,
    /// It was left the port by a program that has it.
    pub permit: Option<Permit>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// From a member.
    Hello(Hello),
    /// From the daemon.
    Welcome(Welcome),
    /// From a member, with two segments: its memory for packets, unless it borrows, and its rings.
    Memory {
        /// Bytes of the first; 0 without it.
        packets: u64,
        /// Bytes of the other.
        rings: u64,
    },
    /// From a member, after its memory: where a core's four rings are, each of `1 << log2` entries. One end of the core's [`Bell`](crate::Bell) comes
    /// with it.
    Rings {
        /// The core.
        core: u8,
        /// Empty buffers, received packets, packets to send, buffers that were sent.
        offsets: [u64; 4],
        /// Of all four.
        log2: u8,
    },
    /// From a member: packets may come.
    Ready,
    /// From a member.
    Claim(Claim),
    /// From a member: it gives a claim back.
    Release {
        /// Which.
        number: u32,
    },
    /// From the daemon: a claim is granted.
    Granted {
        /// Which.
        number: u32,
        /// The port, as claimed or as chosen.
        port: u16,
        /// For those that it is left to, where others may have it too.
        permit: Option<Permit>,
    },
    /// From the daemon: a claim is refused, or the member itself (0).
    Refused {
        /// Which.
        number: u32,
        /// Linux's error number.
        errno: i32,
        /// Why, for people.
        why: String,
    },
    /// From a member: it goes, and its connections with it, once all is sent.
    Leave {
        /// Another claims its ports of TCP soon: they are to be kept for a moment, as those of one that died.
        keeps: bool,
    },
    /// From the daemon: the addresses of its device, which may be others than before.
    Network(Network),
    /// From the daemon: it has heard of a release, and what opens connections there comes to this member no more, unless it is in its rings already. Or it
    /// has heard where a connection is.
    Heard {
        /// Of which claim, or which word.
        number: u32,
    },
    /// From a member: a connection is here that another of its group had.
    Has {
        /// Its own number for the word, which the answer names.
        number: u32,
        /// The connection's end here, and its peer's.
        ends: (SocketAddr, SocketAddr),
    },
    /// From a member: it goes on in another process. One end of a line comes with it, whose other end is that process's.
    Moves {
        /// The number of the process.
        process: u32,
    },
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no message of this protocol")
    }
}

impl std::error::Error for Malformed {}

/// Bytes that are written.
struct Writer(Vec<u8>);

impl Writer {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> &mut Writer {
        self.0.extend(bytes);
        self
    }

    /// Longer ones are cut.
    fn text(&mut self, text: &str, most: usize) -> &mut Writer {
        let end = (0..=most.min(text.len()))
            .rev()
            .find(|end| text.is_char_boundary(*end));
        let text = &text[..end.unwrap_or(0)];
        self.put([text.len() as u8]);
        self.0.extend(text.as_bytes());
        self
    }

    fn ip(&mut self, ip: IpAddr) -> &mut Writer {
        let (family, ip) = match ip {
            IpAddr::V4(ip) => (4, ip.to_ipv6_mapped()),
            IpAddr::V6(ip) => (6, ip),
        };
        self.put([family]).put(ip.octets())
    }

    fn address(&mut self, address: SocketAddr) -> &mut Writer {
        self.ip(address.ip()).put(address.port().to_le_bytes())
    }

    fn ports(&mut self, (first, count): (u16, u16)) -> &mut Writer {
        self.put(first.to_le_bytes()).put(count.to_le_bytes())
    }

    fn permit(&mut self, permit: Option<&Permit>) -> &mut Writer {
        self.put([permit.is_some().into()]);
        if let Some(it) = permit {
            self.put(it.user.to_le_bytes()).text(&it.group, NAME_MAX);
            self.put(it.port.to_le_bytes()).put(it.seal.to_le_bytes());
        }
        self
    }

    fn welcome(&mut self, it: &Welcome) -> &mut Writer {
        self.put([2]).put(it.version.to_le_bytes());
        self.put(it.member.to_le_bytes());
        match it.device {
            Device::Ethernet(mac) => self.put([0]).put(mac),
            Device::Portal(first) => self.put([1]).put(first.to_le_bytes()),
        };
        let (rx, tx) = it.checksums;
        self.put(it.mtu.to_le_bytes()).put([rx.into(), tx.into()]);
        self.ports(it.ports);
        let addresses = &it.addresses[..it.addresses.len().min(ADDRESSES_MAX)];
        self.put([addresses.len() as u8]);
        for (ip, prefix) in addresses {
            self.ip(*ip).put([*prefix]);
        }
        let gateways = &it.gateways[..it.gateways.len().min(GATEWAYS_MAX)];
        self.put([gateways.len() as u8]);
        gateways.iter().fold(&mut *self, |out, ip| out.ip(*ip));
        let (slots, lent) = it.loan;
        self.put(slots.to_le_bytes()).put(lent.to_le_bytes())
    }
}

/// Bytes that are read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self, most: usize) -> Result<String, Malformed> {
        let len = usize::from(self.u8()?);
        let (text, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        match (len <= most, std::str::from_utf8(text)) {
            (true, Ok(text)) => Ok(text.to_owned()),
            _ => Err(Malformed),
        }
    }

    fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn ip(&mut self) -> Result<IpAddr, Malformed> {
        let family = self.u8()?;
        let ip = Ipv6Addr::from(self.take::<16>()?);
        match (family, ip.to_ipv4_mapped()) {
            (4, Some(ip)) => Ok(IpAddr::V4(ip)),
            (6, _) => Ok(IpAddr::V6(ip)),
            _ => Err(Malformed),
        }
    }

    fn address(&mut self) -> Result<SocketAddr, Malformed> {
        Ok(SocketAddr::new(self.ip()?, self.u16()?))
    }

    /// Up to `most` of something.
    fn list<T>(
        &mut self,
        most: usize,
        mut one: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        match usize::from(self.u8()?) {
            len if len <= most => (0..len).map(|_| one(self)).collect(),
            _ => Err(Malformed),
        }
    }

    fn permit(&mut self) -> Result<Option<Permit>, Malformed> {
        if !self.bool()? {
            return Ok(None);
        }
        Ok(Some(Permit {
            user: self.u32()?,
            group: self.text(NAME_MAX)?,
            port: self.u16()?,
            seal: self.u64()?,
        }))
    }

    fn welcome(&mut self) -> Result<Welcome, Malformed> {
        Ok(Welcome {
            version: self.u16()?,
            member: self.u32()?,
            device: match self.bool()? {
                false => Device::Ethernet(self.take()?),
                true => Device::Portal(self.u16()?),
            },
            mtu: self.u16()?,
            checksums: (self.bool()?, self.bool()?),
            ports: (self.u16()?, self.u16()?),
            addresses: self.list(ADDRESSES_MAX, |it| Ok((it.ip()?, it.u8()?)))?,
            gateways: self.list(GATEWAYS_MAX, Self::ip)?,
            loan: (self.u32()?, self.u32()?),
        })
    }
}

/// Bytes of the longest reason.
const WHY_MAX: usize = 255;

impl Message {
    /// Its bytes. Names that are too long are cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        match self {
            Message::Hello(it) => {
                let (oldest, newest) = it.versions;
                out.put([1])
                    .put(oldest.to_le_bytes())
                    .put(newest.to_le_bytes());
                out.text(&it.name, NAME_MAX).put([it.mode as u8, it.cores]);
                out.put(it.member.to_le_bytes()).ports(it.ports);
                out.put(it.buffers.to_le_bytes());
                out.permit(it.permit.as_ref())
            }
            Message::Welcome(it) => out.welcome(it),
            Message::Memory { packets, rings } => out
                .put([3])
                .put(packets.to_le_bytes())
                .put(rings.to_le_bytes()),
            Message::Rings {
                core,
                offsets,
                log2,
            } => {
                out.put([4, *core, *log2]);
                offsets
                    .iter()
                    .fold(&mut out, |out, at| out.put(at.to_le_bytes()))
            }
            Message::Ready => out.put([5]),
            Message::Claim(it) => {
                out.put([6])
                    .put(it.number.to_le_bytes())
                    .put([it.udp.into()])
                    .address(it.address);
                out.text(&it.group, NAME_MAX).put([it.share as u8]);
                out.permit(it.permit.as_ref())
            }
            Message::Release { number } => out.put([7]).put(number.to_le_bytes()),
            Message::Granted {
                number,
                port,
                permit,
            } => {
                out.put([8]).put(number.to_le_bytes());
                out.put(port.to_le_bytes()).permit(permit.as_ref())
            }
            Message::Refused { number, errno, why } => {
                out.put([9]).put(number.to_le_bytes());
                out.put(errno.to_le_bytes()).text(why, WHY_MAX)
            }
            Message::Leave { keeps } => out.put([10, (*keeps).into()]),
            Message::Network(it) => out.network(it),
            Message::Heard { number } => out.put([12]).put(number.to_le_bytes()),
            Message::Has {
                number,
                ends: (local, peer),
            } => {
                let out = out.put([14]).put(number.to_le_bytes());
                out.address(*local).address(*peer)
            }
            Message::Moves { process } => out.put([13]).put(process.to_le_bytes()),
        };
        out.0
    }

    /// The message that these bytes are.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        let mut from = Reader(bytes);
        let message = match from.u8()? {
            1 => Message::Hello(Hello {
                versions: (from.u16()?, from.u16()?),
                name: from.text(NAME_MAX)?,
                mode: match from.u8()? {
                    0 => Mode::Isolated,
                    1 => Mode::Shared,
                    _ => return Err(Malformed),
                },
                cores: from.u8()?,
                member: from.u32()?,
                ports: (from.u16()?, from.u16()?),
                buffers: from.u32()?,
                permit: from.permit()?,
            }),
            2 => Message::Welcome(from.welcome()?),
            3 => Message::Memory {
                packets: from.u64()?,
                rings: from.u64()?,
            },
            4 => Message::Rings {
                core: from.u8()?,
                log2: from.u8()?,
                offsets: [from.u64()?, from.u64()?, from.u64()?, from.u64()?],
            },
            5 => Message::Ready,
            6 => Message::Claim(Claim {
                number: from.u32()?,
                udp: from.bool()?,
                address: from.address()?,
                group: from.text(NAME_MAX)?,
                share: match from.u8()? {
                    0 => Share::Alone,
                    1 => Share::Join,
                    2 => Share::Reserve,
                    3 => Share::Left,
                    _ => return Err(Malformed),
                },
                permit: from.permit()?,
            }),
            7 => Message::Release {
                number: from.u32()?,
            },
            8 => Message::Granted {
                number: from.u32()?,
                port: from.u16()?,
                permit: from.permit()?,
            },
            9 => Message::Refused {
                number: from.u32()?,
                errno: i32::from_le_bytes(from.take()?),
                why: from.text(WHY_MAX)?,
            },
            10 => Message::Leave {
                keeps: from.bool()?,
            },
            11 => Message::Network(from.network()?),
            12 => Message::Heard {
                number: from.u32()?,
            },
            13 => Message::Moves {
                process: from.u32()?,
            },
            14 => Message::Has {
                number: from.u32()?,
                ends: (from.address()?, from.address()?),
            },
            _ => return Err(Malformed),
        };
        match from.0 {
            [] => Ok(message),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests;
