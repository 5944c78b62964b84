//! Which frames somebody wants to see, said in a small language in the manner of tcpdump's: `host 192.0.2.7 and tcp port 80`,
//! `net 2001:db8::/32 and not icmp6`, `syn and not ack`. What can be said in both means the same, down to the precedence (`and`
//! and `or` bind equally, from left to right; `not` binds tighter), except that we look behind VLAN tags and IPv6 extension
//! headers. Names are not looked up. Never here: what is done with the frames.
//!
//! ```text
//! expression  term, or terms joined by `and` (&&) and `or` (||)
//! term        `not` (!) term  |  ( expression )  |  primitive  |  a value alone: with the words of the one before
//! primitive   [ip|ip6|arp] [src|dst|src or dst|src and dst] host ADDRESS      `host` may be left out
//!             [ip|ip6|arp] [src|dst|..] net ADDRESS/BITS
//!             [tcp|udp] [src|dst|..] port NUMBER  |  .. portrange FIRST-LAST
//!             ip | ip6 | arp | tcp | udp | icmp | icmp6
//!             syn | ack | fin | rst | psh | urg                               this flag of TCP is set
//!             less LENGTH | greater LENGTH                                    of the whole frame, itself included
//! ```

mod lex;
mod parse;
mod seen;

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use janus_wire::Link;

use crate::core::policy::Prefix;
use seen::Seen;

/// Bytes that an expression may have.
pub const TEXT_MAX: usize = 4096;
/// How deep parentheses and `not` may be nested.
pub const DEPTH_MAX: usize = 64;

/// An expression that was understood.
#[derive(Clone, PartialEq, Eq)]
pub struct Filter {
    text: String,
    /// The last is the root; nothing refers to what stands behind it. Empty: everything is wanted.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Test(Test),
    Not(usize),
    And(usize, usize),
    Or(usize, usize),
}

/// Condition of a primitive.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Address {
        family: Option<Family>,
        way: Way,
        network: Prefix,
    },
    Port {
        protocol: Option<u8>,
        way: Way,
        ports: RangeInclusive<u16>,
    },
    Family(Family),
    /// A protocol over IPv4 and IPv6, or over one of them.
    Protocol(u8, Option<Family>),
    /// This bit of TCP's flags.
    Flag(u8),
    Less(usize),
    Greater(usize),
}

/// Protocol that a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Ip,
    Ip6,
    Arp,
}

/// Which of two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    Src,
    Dst,
    #[default]
    Either,
    Both,
}

impl Way {
    fn of<T>(self, (src, dst): (T, T), holds: impl Fn(T) -> bool) -> bool {
        match self {
            Way::Src => holds(src),
            Way::Dst => holds(dst),
            Way::Either => holds(src) || holds(dst),
            Way::Both => holds(src) && holds(dst),
        }
    }
}

impl Filter {
    /// Whether a frame is wanted.
    #[must_use]
    pub fn matches(&self, frame: &[u8], link: Link) -> bool {
        let Some(root) = self.nodes.len().checked_sub(1) else {
            return true;
        };
        self.holds(root, &Seen::new(frame, link))
    }

    /// As deep as the text is long, at most: joined terms are nested to the left.
    fn holds(&self, node: usize, seen: &Seen) -> bool {
        match &self.nodes[node] {
            Node::Test(test) => test.holds(seen),
            Node::Not(inner) => !self.holds(*inner, seen),
            Node::And(left, right) => self.holds(*left, seen) && self.holds(*right, seen),
            Node::Or(left, right) => self.holds(*left, seen) || self.holds(*right, seen),
        }
    }
}

impl Test {
    fn holds(&self, seen: &Seen) -> bool {
        match self {
            Test::Address {
                family,
                way,
                network,
            } => {
                family.is_none_or(|family| seen.family == Some(family))
                    && seen
                        .addresses
                        .is_some_and(|ends| way.of(ends, |end: IpAddr| network.contains(end)))
            }
            Test::Port {
                protocol,
                way,
                ports,
            } => {
                protocol.is_none_or(|protocol| seen.protocol == Some(protocol))
                    && seen
                        .ports
                        .is_some_and(|ends| way.of(ends, |end| ports.contains(&end)))
            }
            Test::Family(family) => seen.family == Some(*family),
            Test::Protocol(protocol, family) => {
                seen.protocol == Some(*protocol)
                    && family.is_none_or(|family| seen.family == Some(family))
            }
            Test::Flag(bit) => seen.tcp_flags.is_some_and(|flags| flags & bit != 0),
            Test::Less(len) => seen.len <= *len,
            Test::Greater(len) => seen.len >= *len,
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let nodes = parse::parse(text).map_err(|(at, problem)| FilterError {
            text: text.chars().take(TEXT_MAX).collect(),
            at,
            problem,
        })?;
        let text = text.trim().to_owned();
        Ok(Filter { text, nodes })
    }
}

/// As it was said.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({:?})", self.text)
    }
}

/// Why an expression was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterError {
    text: String,
    at: usize,
    problem: String,
}

impl FilterError {
    /// The byte of the expression at which the reader gave up.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.text.get(self.at..).map(str::trim_start) {
            None | Some("") => "at its end".to_owned(),
            Some(rest) => {
                let word = rest.split_whitespace().next().unwrap_or(rest);
                format!("at `{word}`")
            }
        };
        write!(f, "filter `{}`, {place}: {}", self.text, self.problem)
    }
}

impl std::error::Error for FilterError {}

#[cfg(test)]
mod tests;
