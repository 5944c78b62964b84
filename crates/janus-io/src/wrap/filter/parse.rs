//! From words to what they ask. Recursive descent, one function a rule of the grammar, its depth bounded by
//! [`DEPTH_MAX`]. An error is the place and what would have been right there.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use janus_wire::proto;

use super::lex::{Placed, Token, tokens};
use super::{DEPTH_MAX, Family, Node, TEXT_MAX, Test, Way};
use crate::core::policy::Prefix;
use crate::parse_error::ParseError;

type Problem = (usize, String);

/// Every word of the language, for those that are nearly one.
const WORDS: &[&str] = &[
    "and",
    "or",
    "not",
    "host",
    "net",
    "port",
    "portrange",
    "src",
    "dst",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "syn",
    "ack",
    "fin",
    "rst",
    "psh",
    "urg",
    "less",
    "greater",
];

/// Kind of value that a primitive asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
}

/// The words before a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Before<'a> {
    protocol: Option<&'a str>,
    way: Option<Way>,
    kind: Option<Kind>,
}

pub(super) fn parse(text: &str) -> Result<Vec<Node>, Problem> {
    if text.len() > TEXT_MAX {
        let problem = format!("{} bytes, of {TEXT_MAX}", text.len());
        return Err((TEXT_MAX, problem));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
        end: text.len(),
        nodes: Vec::new(),
        last: Before::default(),
    };
    if parser.tokens.is_empty() {
        return Ok(Vec::new());
    }
    parser.expression(0)?;
    match parser.peek() {
        None => Ok(parser.nodes),
        Some(Token::Close) => Err(parser.problem("this parenthesis was not opened")),
        Some(Token::Word(word)) => {
            let hint =
                nearest(word).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            Err(parser.problem(&format!("expected `and`, `or` or the end{hint}")))
        }
        Some(_) => Err(parser.problem("expected `and`, `or` or the end")),
    }
}

struct Parser<'a> {
    tokens: Vec<Placed<'a>>,
    next: usize,
    end: usize,
    nodes: Vec<Node>,
    /// The words of the last primitive with a value.
    last: Before<'a>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).map(|(_, token)| *token)
    }

    fn take(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.next += 1;
        token
    }

    /// Takes this word if it comes next.
    fn takes(&mut self, word: &str) -> bool {
        let comes = self.peek() == Some(Token::Word(word));
        self.next += usize::from(comes);
        comes
    }

    /// Something is wrong with what comes next.
    fn problem(&self, text: &str) -> Problem {
        let at = self.tokens.get(self.next).map_or(self.end, |(at, _)| *at);
        (at, text.to_owned())
    }

    /// Something is wrong with what was taken last.
    fn wrong(&self, text: String) -> Problem {
        let at = self.tokens.get(self.next.saturating_sub(1));
        (at.map_or(self.end, |(at, _)| *at), text)
    }

    fn node(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn expression(&mut self, depth: usize) -> Result<usize, Problem> {
        let mut left = self.term(depth)?;
        loop {
            let join: fn(usize, usize) -> Node = match self.peek() {
                Some(Token::And) => Node::And,
                Some(Token::Or) => Node::Or,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.term(depth)?;
            left = self.node(join(left, right));
        }
    }

    fn term(&mut self, depth: usize) -> Result<usize, Problem> {
        if depth == DEPTH_MAX {
            return Err(self.problem(&format!("nested more than {DEPTH_MAX} deep")));
        }
        match self.peek() {
            Some(Token::Not) => {
                self.next += 1;
                let inner = self.term(depth + 1)?;
                Ok(self.node(Node::Not(inner)))
            }
            Some(Token::Open) => {
                self.next += 1;
                let inner = self.expression(depth + 1)?;
                if self.peek() != Some(Token::Close) {
                    return Err(self.problem("expected `)`"));
                }
                self.next += 1;
                Ok(inner)
            }
            Some(Token::Word(_)) => {
                let test = self.primitive()?;
                Ok(self.node(Node::Test(test)))
            }
            _ => Err(self.problem(
                "expected something to ask for, such as `host ADDRESS`, `port NUMBER`, `tcp`",
            )),
        }
    }

    fn primitive(&mut self) -> Result<Test, Problem> {
        let Some(Token::Word(first)) = self.peek() else {
            return Err(self.problem("expected a word"));
        };
        if let Some(bit) = flag(first) {
            self.next += 1;
            return Ok(Test::Flag(bit));
        }
        if matches!(first, "less" | "greater") {
            self.next += 1;
            let len = self.value("a length")?;
            let len = len
                .parse()
                .map_err(|_| self.wrong(format!("`{len}` is not a length in bytes")))?;
            return Ok(if first == "less" {
                Test::Less(len)
            } else {
                Test::Greater(len)
            });
        }
        let mut before = self.words()?;
        if before.protocol.is_some()
            && before.way.is_none()
            && before.kind.is_none()
            && !self.has_value()
        {
            return Ok(alone(first));
        }
        if before == Before::default() {
            // A value alone: what was asked last is asked of it too.
            before = self.last;
        }
        let what = match before.kind {
            Some(Kind::Port) => "a port",
            Some(Kind::PortRange) => "two ports, as 8000-8080",
            Some(Kind::Net) => "a network",
            Some(Kind::Host) => "an address",
            None => "`host`, `net`, `port`, `portrange` or an address",
        };
        let value = self.value(what)?;
        self.last = before;
        self.asked(before, value)
    }

    /// The words that may stand before a value.
    fn words(&mut self) -> Result<Before<'a>, Problem> {
        let mut before = Before::default();
        if let Some(Token::Word(word @ ("ip" | "ip6" | "arp" | "tcp" | "udp" | "icmp" | "icmp6"))) =
            self.peek()
        {
            self.next += 1;
            before.protocol = Some(word);
        }
        before.way = self.way();
        before.kind = match self.peek() {
            Some(Token::Word("host")) => Some(Kind::Host),
            Some(Token::Word("net")) => Some(Kind::Net),
            Some(Token::Word("port")) => Some(Kind::Port),
            Some(Token::Word("portrange")) => Some(Kind::PortRange),
            _ => None,
        };
        self.next += usize::from(before.kind.is_some());
        let applies = match (before.protocol, before.kind) {
            (None, _) | (Some("ip" | "ip6" | "arp"), None | Some(Kind::Host | Kind::Net)) => true,
            (Some("tcp" | "udp"), Some(Kind::Port | Kind::PortRange)) => true,
            // Alone, if no value follows.
            (Some(_), None) => before.way.is_none() && !self.has_value(),
            (Some(_), Some(_)) => false,
        };
        if applies {
            return Ok(before);
        }
        let protocol = before.protocol.unwrap_or_default();
        Err(self.wrong(format!(
            "`{protocol}` cannot say more of this: write `{protocol} and ..`"
        )))
    }

    fn way(&mut self) -> Option<Way> {
        let (one, other) = match self.peek()? {
            Token::Word("src") => (Way::Src, "dst"),
            Token::Word("dst") => (Way::Dst, "src"),
            _ => return None,
        };
        self.next += 1;
        let both = match self.peek() {
            Some(Token::Or) => Way::Either,
            Some(Token::And) => Way::Both,
            _ => return Some(one),
        };
        // `src or dst` is one way; `src 192.0.2.1 or dst ..` would not come here.
        self.next += 1;
        if self.takes(other) {
            return Some(both);
        }
        self.next -= 1;
        Some(one)
    }

    /// Whether a value may come next: a word that is none of the language's.
    fn has_value(&self) -> bool {
        matches!(self.peek(), Some(Token::Word(word)) if !WORDS.contains(&word))
    }

    fn value(&mut self, what: &str) -> Result<&'a str, Problem> {
        match self.peek() {
            Some(Token::Word(word)) if !WORDS.contains(&word) => {
                self.take();
                Ok(word)
            }
            _ => Err(self.problem(&format!("expected {what}"))),
        }
    }

    fn asked(&self, before: Before<'a>, value: &str) -> Result<Test, Problem> {
        let way = before.way.unwrap_or_default();
        let protocol = match before.protocol {
            Some("tcp") => Some(proto::TCP),
            Some("udp") => Some(proto::UDP),
            _ => None,
        };
        let ports = |ports: RangeInclusive<u16>| Test::Port {
            protocol,
            way,
            ports,
        };
        match before.kind {
            Some(Kind::Port) => {
                let port = self.port(value)?;
                Ok(ports(port..=port))
            }
            Some(Kind::PortRange) => {
                let (first, last) = value.split_once('-').unwrap_or((value, value));
                let (first, last) = (self.port(first)?, self.port(last)?);
                // Either order, as tcpdump has it.
                Ok(ports(first.min(last)..=first.max(last)))
            }
            Some(Kind::Host) | None => self.host(before, way, value),
            Some(Kind::Net) => {
                let network = value
                    .parse()
                    .map_err(|error: ParseError| self.wrong(error.to_string()))?;
                self.network(before, way, network)
            }
        }
    }

    fn host(&self, before: Before<'a>, way: Way, value: &str) -> Result<Test, Problem> {
        let address: Result<IpAddr, _> = value.parse();
        let single =
            |address: IpAddr| Prefix::new(address, if address.is_ipv4() { 32 } else { 128 });
        if let Some(host) = address.ok().and_then(single) {
            return self.network(before, way, host);
        }
        if before.kind.is_none() && before.protocol.is_none() && value.contains('/') {
            let network = value
                .parse()
                .map_err(|error: ParseError| self.wrong(error.to_string()))?;
            return self.network(before, way, network);
        }
        let hint = match nearest(value) {
            Some(near) => format!("; did you mean `{near}`?"),
            None if value.parse::<u16>().is_ok() => format!("; a port is `port {value}`"),
            None if value.contains('/') => format!("; a network is `net {value}`"),
            None => "; names are not looked up".to_owned(),
        };
        Err(self.wrong(format!("`{value}` is not an address{hint}")))
    }

    fn network(&self, before: Before<'a>, way: Way, network: Prefix) -> Result<Test, Problem> {
        let family = before.protocol.and_then(family);
        let is_v4 = network.address().is_ipv4();
        let never = match family {
            Some(Family::Ip | Family::Arp) => !is_v4,
            Some(Family::Ip6) => is_v4,
            None => false,
        };
        if never {
            let protocol = before.protocol.unwrap_or_default();
            return Err(self.wrong(format!("`{protocol}` has no such addresses")));
        }
        Ok(Test::Address {
            family,
            way,
            network,
        })
    }

    fn port(&self, text: &str) -> Result<u16, Problem> {
        text.parse().map_err(|_| {
            self.wrong(format!(
                "`{text}` is not a port number up to 65535; names are not looked up"
            ))
        })
    }
}

/// A protocol without more.
fn alone(word: &str) -> Test {
    match (family(word), word) {
        (Some(family), _) => Test::Family(family),
        (None, "tcp") => Test::Protocol(proto::TCP, None),
        (None, "udp") => Test::Protocol(proto::UDP, None),
        (None, "icmp") => Test::Protocol(proto::ICMP, Some(Family::Ip)),
        (None, _) => Test::Protocol(proto::ICMPV6, Some(Family::Ip6)),
    }
}

fn family(word: &str) -> Option<Family> {
    match word {
        "ip" => Some(Family::Ip),
        "ip6" => Some(Family::Ip6),
        "arp" => Some(Family::Arp),
        _ => None,
    }
}

fn flag(word: &str) -> Option<u8> {
    let bit = ["fin", "syn", "rst", "psh", "ack", "urg"]
        .iter()
        .position(|flag| *flag == word)?;
    Some(1 << bit)
}

/// The word of the language that is one slip away.
fn nearest(word: &str) -> Option<&'static str> {
    let slips = |known: &&&str| {
        let (a, b) = (word.as_bytes(), known.as_bytes());
        let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let (a, b) = (&a[same..], &b[same..]);
        // One letter other, missing, too many, or two exchanged.
        match (a, b) {
            ([_, rest @ ..], [_, other @ ..]) if rest == other => true,
            ([_, rest @ ..], other) if rest == other => true,
            (rest, [_, other @ ..]) if rest == other => true,
            ([x, y, rest @ ..], [u, v, other @ ..]) => x == v && y == u && rest == other,
            _ => false,
        }
    };
    WORDS.iter().find(slips).copied()
}
