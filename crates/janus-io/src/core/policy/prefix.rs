//! Networks, and lists of them that are asked for every packet: the prefixes of both lists are cut into ranges that do
//! not overlap, in order, so that one search among where they begin is the answer of the longest prefix.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::parse_error::ParseError;

/// Prefixes in both lists together. A search through so many takes about twenty steps.
pub const LIST_MAX: usize = 1 << 20;

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The addresses that share the first `bits` with `address`; `None` when it has no so many, or further ones are set.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Prefix> {
        let prefix = Prefix { address, bits };
        let whole = width(address);
        (bits <= whole && prefix.first() == to_bits(address)).then_some(prefix)
    }

    /// Where it begins.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits its addresses share.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether an address is one of these.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && (self.first()..=self.last()).contains(&to_bits(address))
    }

    /// Bits that its addresses do not share, set.
    fn rest(self) -> u128 {
        let rest = width(self.address).saturating_sub(self.bits);
        1_u128.checked_shl(rest.into()).unwrap_or(0).wrapping_sub(1)
    }

    fn first(self) -> u128 {
        to_bits(self.address) & !self.rest()
    }

    fn last(self) -> u128 {
        to_bits(self.address) | self.rest()
    }
}

/// Bits of an address of its family.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl From<IpAddr> for Prefix {
    /// Makes a network of one address.
    fn from(address: IpAddr) -> Prefix {
        Prefix {
            address,
            bits: width(address),
        }
    }
}

impl From<Ipv4Addr> for Prefix {
    fn from(address: Ipv4Addr) -> Prefix {
        IpAddr::V4(address).into()
    }
}

impl From<Ipv6Addr> for Prefix {
    fn from(address: Ipv6Addr) -> Prefix {
        IpAddr::V6(address).into()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Prefix {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Prefix, ParseError> {
        let text = text.trim();
        let wrong = || {
            ParseError::new(format!(
                "`{text}` is not a network like 192.0.2.0/24 or 2001:db8::/32, or a single address"
            ))
        };
        let (address, bits) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = match bits {
            "" if text.ends_with('/') => return Err(wrong()),
            "" => width(address),
            bits => bits.parse().map_err(|_| wrong())?,
        };
        if bits > width(address) {
            return Err(wrong());
        }
        let masked = Prefix { address, bits };
        Prefix::new(address, bits).ok_or_else(|| {
            let network = match address {
                IpAddr::V4(_) => IpAddr::V4((masked.first() as u32).into()),
                IpAddr::V6(_) => IpAddr::V6(masked.first().into()),
            };
            ParseError::new(format!(
                "`{text}` has bits behind its prefix: `{network}/{bits}` or `{address}`"
            ))
        })
    }
}

/// Allow and deny lists of source addresses.
#[derive(Debug)]
pub(super) struct Lists {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl Lists {
    /// `None` when both are empty.
    pub(super) fn new(allow: &[Prefix], deny: &[Prefix]) -> Option<Lists> {
        if allow.is_empty() && deny.is_empty() {
            return None;
        }
        // Only an allow list: all others are refused.
        let others = !deny.is_empty();
        let of = |v4: bool| {
            let most = if v4 { u32::MAX.into() } else { u128::MAX };
            let family = move |prefix: &&Prefix| prefix.address.is_ipv4() == v4;
            let allowed = allow.iter().filter(family).map(|prefix| (*prefix, true));
            let denied = deny.iter().filter(family).map(|prefix| (*prefix, false));
            boundaries(allowed.chain(denied).collect(), others, most)
        };
        Some(Lists {
            v4: Ranges::new(of(true), |start| start as u32),
            v6: Ranges::new(of(false), |start| start),
        })
    }

    #[inline]
    pub(super) fn lets_in_v4(&self, source: Ipv4Addr) -> bool {
        self.v4.at(source.to_bits())
    }

    #[inline]
    pub(super) fn lets_in_v6(&self, source: Ipv6Addr) -> bool {
        self.v6.at(source.to_bits())
    }
}

/// A line of numbers in ranges.
#[derive(Debug)]
struct Ranges<A> {
    /// Where each begins, in order; the first at 0.
    starts: Box<[A]>,
    verdicts: Box<[bool]>,
}

impl<A: Ord + Copy> Ranges<A> {
    fn new(boundaries: Vec<(u128, bool)>, narrow: impl Fn(u128) -> A) -> Ranges<A> {
        let (starts, verdicts): (Vec<A>, Vec<bool>) = boundaries
            .into_iter()
            .map(|(start, verdict)| (narrow(start), verdict))
            .unzip();
        Ranges {
            starts: starts.into(),
            verdicts: verdicts.into(),
        }
    }

    #[inline]
    fn at(&self, place: A) -> bool {
        let behind = self.starts.partition_point(|start| *start <= place);
        // The first range begins at 0, so there is always one before.
        self.verdicts[behind - 1]
    }
}

/// Where ranges of equal verdicts begin, for prefixes of one family, whose last address is `most`. They are nested or apart, never
/// partly in one another, so those that hold the place reached so far are a stack whose top is the longest.
fn boundaries(mut prefixes: Vec<(Prefix, bool)>, others: bool, most: u128) -> Vec<(u128, bool)> {
    // Of equal ones the denial comes last, and so counts.
    prefixes.sort_by_key(|(prefix, verdict)| (prefix.first(), prefix.bits, !verdict));
    let mut found: Vec<(u128, bool)> = vec![(0, others)];
    let mut holding: Vec<(u128, bool)> = Vec::new();
    let mut begin = |start: u128, verdict: bool| {
        while found.last().is_some_and(|(last, _)| *last == start) {
            found.pop();
        }
        if found.last().is_none_or(|(_, before)| *before != verdict) {
            found.push((start, verdict));
        }
    };
    let end = |holding: &mut Vec<(u128, bool)>, begin: &mut dyn FnMut(u128, bool)| {
        let Some((last, _)) = holding.pop() else {
            return;
        };
        let outer = holding.last().map_or(others, |(_, verdict)| *verdict);
        if last < most {
            begin(last + 1, outer);
        }
    };
    for (prefix, verdict) in prefixes {
        while holding
            .last()
            .is_some_and(|(last, _)| *last < prefix.first())
        {
            end(&mut holding, &mut begin);
        }
        holding.push((prefix.last(), verdict));
        begin(prefix.first(), verdict);
    }
    while !holding.is_empty() {
        end(&mut holding, &mut begin);
    }
    found
}
