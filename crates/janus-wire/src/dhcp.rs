//! DHCP messages (RFC 2131) and their options (RFC 2132, 3396, 3442): bytes in, plain values out, and back. Nothing of a
//! message is believed here but that its lengths hold; what a client asks for, and when, lives in `janus-rt`.

use crate::{MacAddr, Malformed, Result, be16, be32, ethernet, ipv4, proto};
use core::net::Ipv4Addr;

/// The port of servers and relays.
pub const SERVER_PORT: u16 = 67;
/// The port of clients.
pub const CLIENT_PORT: u16 = 68;
/// Bytes of the fixed part, the magic cookie included.
pub const LEN: usize = 240;
/// Some relays drop what is shorter than the messages of BOOTP were.
pub const LEN_MIN: usize = 300;
/// Most bytes that one option may have, all of its parts together (RFC 3396).
pub const OPTION_MAX: usize = 512;

/// Marks the beginning of the options.
const COOKIE: u32 = 0x6382_5363;
const ETHERNET: u8 = 1;
/// Of the flags: whoever answers is to spread it to all.
const BROADCAST: u16 = 0x8000;

/// Whether an Ethernet frame carries, in one piece, a message for clients: theirs alone, whatever address it was sent to.
#[must_use]
pub fn is_for_client(frame: &[u8]) -> bool {
    let Some(head) = frame.first_chunk::<{ ethernet::LEN + ipv4::LEN }>() else {
        return false;
    };
    let is_udp =
        be16(head, 12) == ethernet::ethertype::IPV4 && head[ethernet::LEN + 9] == proto::UDP;
    let is_fragment = be16(head, ethernet::LEN + 6) & 0x3fff != 0;
    let ports = ethernet::LEN + usize::from(head[ethernet::LEN] & 0x0f) * 4;
    let [server, client] = [SERVER_PORT, CLIENT_PORT].map(u16::to_be_bytes);
    is_udp && !is_fragment && frame.get(ports..ports + 4) == Some([server, client].as_flattened())
}

/// Numbers of options.
pub mod option {
    /// The prefix of the network, as a mask.
    pub const MASK: u8 = 1;
    /// Routers, the best first.
    pub const ROUTERS: u8 = 3;
    /// Name servers, the best first.
    pub const NAME_SERVERS: u8 = 6;
    /// The client's name.
    pub const HOST_NAME: u8 = 12;
    /// The MTU of the link.
    pub const MTU: u8 = 26;
    /// The address the client would like.
    pub const REQUESTED: u8 = 50;
    /// Seconds for which the address may be used.
    pub const LEASE: u8 = 51;
    /// More options stand in the fields of the file (1), the server's name (2), or both.
    pub const OVERLOAD: u8 = 52;
    /// The kind of message.
    pub const KIND: u8 = 53;
    /// The server's address: its name among servers.
    pub const SERVER: u8 = 54;
    /// Options that the client would like.
    pub const WANTED: u8 = 55;
    /// Words for people.
    pub const MESSAGE: u8 = 56;
    /// The longest message the client takes.
    pub const LONGEST: u8 = 57;
    /// Seconds until the lease is to be renewed.
    pub const RENEW: u8 = 58;
    /// Seconds until any server is to be asked.
    pub const REBIND: u8 = 59;
    /// Identifier by which the server knows the client.
    pub const CLIENT: u8 = 61;
    /// Routes to single networks.
    pub const ROUTES: u8 = 121;
    pub(super) const PAD: u8 = 0;
    pub(super) const END: u8 = 255;
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Asks any server for an address.
    Discover,
    /// I have this one.
    Offer,
    /// I take this one; or: may I keep it?
    Request,
    /// Somebody else has it.
    Decline,
    /// It is yours.
    Ack,
    /// It is not.
    Nak,
    /// I need it no more.
    Release,
    /// I have an address; what else is to be known here?
    Inform,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Self::Discover,
        Self::Offer,
        Self::Request,
        Self::Decline,
        Self::Ack,
        Self::Nak,
        Self::Release,
        Self::Inform,
    ];

    /// As it goes on the wire.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    fn from_number(number: u8) -> Option<Kind> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Direction of a message: from a client or from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A client.
    Request,
    /// A server.
    Reply,
}

/// A message, read. Options are looked for when they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    bytes: &'a [u8],
    /// Direction: from a client or from a server.
    pub op: Op,
    /// The number by which a client knows its answers.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The answer is to be spread to all.
    pub broadcast: bool,
    /// The client's address, if it has one that it may use.
    pub client: Ipv4Addr,
    /// The address that the server gives the client.
    pub yours: Ipv4Addr,
    /// The relay that the message came through.
    pub relay: Ipv4Addr,
    /// The client's link address.
    pub mac: MacAddr,
}

/// Reads a message for a client on Ethernet.
pub fn parse(bytes: &[u8]) -> Result<Message<'_>> {
    let h = bytes.first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
    let op = match h[0] {
        1 => Op::Request,
        2 => Op::Reply,
        _ => return Err(Malformed::Version),
    };
    if h[1] != ETHERNET || h[2] != 6 || be32(h, 236) != COOKIE {
        return Err(Malformed::Version);
    }
    let addr = |at| Ipv4Addr::from_bits(be32(h, at));
    let message = Message {
        bytes,
        op,
        xid: be32(h, 4),
        secs: be16(h, 8),
        broadcast: be16(h, 10) & BROADCAST != 0,
        client: addr(12),
        yours: addr(16),
        relay: addr(24),
        mac: MacAddr([h[28], h[29], h[30], h[31], h[32], h[33]]),
    };
    // Once for all: an option that leads beyond its field spoils the message.
    for field in message.fields() {
        for item in Items(field) {
            item?;
        }
    }
    Ok(message)
}

/// The options of one field.
struct Items<'a>(&'a [u8]);

impl<'a> Iterator for Items<'a> {
    type Item = Result<(u8, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&code, rest) = self.0.split_first()?;
            match code {
                option::PAD => self.0 = rest,
                option::END => return None,
                _ => {
                    let item = rest
                        .split_first()
                        .and_then(|(&len, rest)| rest.split_at_checked(usize::from(len)));
                    let Some((value, rest)) = item else {
                        self.0 = &[];
                        return Some(Err(Malformed::Length));
                    };
                    self.0 = rest;
                    return Some(Ok((code, value)));
                }
            }
        }
    }
}

impl<'a> Message<'a> {
    /// The fields with options, in the order in which they count (RFC 3396 section 5).
    fn fields(&self) -> [&'a [u8]; 3] {
        let options = &self.bytes[LEN..];
        let overload = Items(options)
            .flatten()
            .find(|(code, _)| *code == option::OVERLOAD)
            .and_then(|(_, value)| value.first().copied())
            .unwrap_or(0);
        let file = if overload & 1 != 0 {
            &self.bytes[108..236]
        } else {
            &[][..]
        };
        let name = if overload & 2 != 0 {
            &self.bytes[44..108]
        } else {
            &[][..]
        };
        [options, file, name]
    }

    /// The value of an option, its parts put together in `into`. `None`: it is not there, or longer than `into`.
    pub fn option<'b>(&self, code: u8, into: &'b mut [u8; OPTION_MAX]) -> Option<&'b [u8]> {
        let (mut len, mut found) = (0, false);
        for (_, part) in self
            .fields()
            .into_iter()
            .flat_map(|field| Items(field).flatten())
            .filter(|(its, _)| *its == code)
        {
            found = true;
            into.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        found.then_some(&into[..len])
    }

    /// Returns the kind; `None` for a message of BOOTP, or of an unknown kind.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        match self.option(option::KIND, &mut [0; OPTION_MAX])? {
            [number] => Kind::from_number(*number),
            _ => None,
        }
    }

    /// An option that is one number of 32 bits.
    #[must_use]
    pub fn word(&self, code: u8) -> Option<u32> {
        let mut into = [0; OPTION_MAX];
        let value = self.option(code, &mut into)?;
        Some(u32::from_be_bytes(value.try_into().ok()?))
    }

    /// An option that is one address.
    #[must_use]
    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        self.word(code).map(Ipv4Addr::from_bits)
    }

    /// The MTU of the link.
    #[must_use]
    pub fn mtu(&self) -> Option<u16> {
        let mut into = [0; OPTION_MAX];
        let value = self.option(option::MTU, &mut into)?;
        Some(u16::from_be_bytes(value.try_into().ok()?))
    }

    /// Bits of the network's prefix; `None` where the mask has holes.
    #[must_use]
    pub fn prefix(&self) -> Option<u8> {
        let mask = self.word(option::MASK)?;
        let bits = mask.leading_ones();
        (mask.checked_shl(bits).unwrap_or(0) == 0).then_some(bits as u8)
    }
}

/// Addresses one after the other, as several options have them; what is left over at the end is nothing.
pub fn addresses(value: &[u8]) -> impl Iterator<Item = Ipv4Addr> + '_ {
    let (words, _) = value.as_chunks::<4>();
    words.iter().map(|word| Ipv4Addr::from(*word))
}

/// Routes as RFC 3442 writes them: network, bits of its prefix, router. Ends at the first that makes no sense.
pub fn routes(value: &[u8]) -> impl Iterator<Item = (Ipv4Addr, u8, Ipv4Addr)> + '_ {
    let mut rest = value;
    core::iter::from_fn(move || {
        let (&prefix, after) = rest.split_first()?;
        let (significant, after) = after.split_at_checked(usize::from(prefix).div_ceil(8))?;
        let (router, after) = after.split_first_chunk::<4>()?;
        let mut network = [0; 4];
        network
            .get_mut(..significant.len())?
            .copy_from_slice(significant);
        rest = after;
        Some((Ipv4Addr::from(network), prefix, Ipv4Addr::from(*router)))
    })
}

/// A message to be written.
#[derive(Clone, Copy, Debug)]
pub struct Repr<'a> {
    /// Direction: from a client or from a server.
    pub op: Op,
    /// The kind.
    pub kind: Kind,
    /// The number by which a client knows its answers.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The answer is to be spread to all.
    pub broadcast: bool,
    /// The client's address, if it may use it.
    pub client: Ipv4Addr,
    /// The address that the server gives.
    pub yours: Ipv4Addr,
    /// The client's link address.
    pub mac: MacAddr,
    /// More options; each at most 255 bytes.
    pub options: &'a [(u8, &'a [u8])],
}

/// Writes a message at the start of `out` and returns its length, [`LEN_MIN`] at least. `None` where it does not fit.
#[must_use]
pub fn emit(out: &mut [u8], repr: &Repr<'_>) -> Option<usize> {
    let (h, rest) = out.split_first_chunk_mut::<LEN>()?;
    *h = [0; LEN];
    h[..3].copy_from_slice(&[if repr.op == Op::Request { 1 } else { 2 }, ETHERNET, 6]);
    h[4..8].copy_from_slice(&repr.xid.to_be_bytes());
    h[8..10].copy_from_slice(&repr.secs.to_be_bytes());
    let flags = if repr.broadcast { BROADCAST } else { 0 };
    h[10..12].copy_from_slice(&flags.to_be_bytes());
    h[12..16].copy_from_slice(&repr.client.octets());
    h[16..20].copy_from_slice(&repr.yours.octets());
    h[28..34].copy_from_slice(&repr.mac.0);
    h[236..240].copy_from_slice(&COOKIE.to_be_bytes());
    let mut at = 0;
    let kind = [repr.kind.number()];
    for (code, value) in [(option::KIND, &kind[..])].iter().chain(repr.options) {
        let place = rest.get_mut(at..at + 2 + value.len())?;
        place[0] = *code;
        place[1] = u8::try_from(value.len()).ok()?;
        place[2..].copy_from_slice(value);
        at += 2 + value.len();
    }
    *rest.get_mut(at)? = option::END;
    at += 1;
    let least = LEN_MIN - LEN;
    if at < least {
        rest.get_mut(at..least)?.fill(option::PAD);
        at = least;
    }
    Some(LEN + at)
}

#[cfg(test)]
mod tests;
