//! packetdrill's script language: what a script says, once parsed. The grammar is that of the original tool, less what
//! cannot mean anything here (shell lines, code blocks, other protocols), which is refused by name, never skipped.
//! What never lives here: running a script (`run`).

use crate::segment::{Flags, TcpOption};
use std::fmt;
use std::net::SocketAddr;

mod call;
mod icmp;
mod packet;
mod parse;
mod settings;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use icmp::write_names as write_icmp_names;
pub use icmp::{IcmpMessage, Quoted};
pub use settings::Settings;

/// Events a script may have; beyond that it is not a test but an accident.
pub const EVENTS_MAX: usize = 10_000;

/// A parsed script.
#[derive(Clone, PartialEq, Debug)]
pub struct Script {
    /// Settings of its `--option` lines, over the defaults.
    pub settings: Settings,
    /// Its events in the order in which they are written.
    pub events: Vec<Event>,
}

/// One event: a time and what happens then.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// The line on which its time stands.
    pub line: u32,
    /// Time of the event.
    pub when: When,
    /// Action of the event.
    pub action: Action,
}

/// The time of an event, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// `*`: whenever it comes. Outbound packets only.
    Any,
    /// `1.5`: since the start of the script.
    Absolute(u64),
    /// `+.1`: since the event before.
    Relative(u64),
    /// `1~2`: in between. Outbound packets only.
    AbsoluteRange(u64, u64),
    /// `+1~+2`: in between, since the event before. Outbound packets only.
    RelativeRange(u64, u64),
}

/// Action of an event.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// `<`: a packet for the stack.
    Inbound(Packet),
    /// `< icmp`: an ICMP message for the stack.
    InboundIcmp(IcmpMessage),
    /// `>`: a packet the stack must send.
    Outbound(Packet),
    /// `> icmp`: an ICMP message it must send.
    OutboundIcmp(IcmpMessage),
    /// A system call, and what it must return.
    Call(Call),
}

/// A packet as a script writes it: sequence numbers relative to the initial ones except in SYN segments.
#[derive(Clone, PartialEq, Debug)]
pub struct Packet {
    /// `(ect0)`, `(tos 0x10)`, `[ttl 64]`.
    pub ip: IpInfo,
    /// `5000 > 8080`: other ports than the connection's.
    pub ports: Option<(u16, u16)>,
    /// The flag letters.
    pub flags: Flags,
    /// First sequence number.
    pub seq: u32,
    /// Bytes of data.
    pub len: u16,
    /// `ack N`.
    pub ack: Option<u32>,
    /// `win N`; outbound, nothing said is nothing checked.
    pub window: Option<u16>,
    /// `urg N`.
    pub urgent: Option<u16>,
    /// The options; `None` for `<...>`, which is to say unchecked.
    pub options: Option<Vec<TcpOption>>,
}

/// Fields of the IP header that a script names.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IpInfo {
    /// The ECN bits or the whole type-of-service byte.
    pub tos: Option<TosSpec>,
    /// The time to live.
    pub ttl: Option<u8>,
    /// IPv6's flow label. Outbound ones are compared among each other: the same where the script says the same.
    pub flow_label: Option<u32>,
}

/// A demand on the type-of-service byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TosSpec {
    /// `noecn`, `ect0`, `ect1`, `ce`: the low two bits.
    Ecn(u8),
    /// `ect01`: either of the two.
    Ect01,
    /// `tos 0x..`: all eight.
    Tos(u8),
}

/// A system call and the outcome the script expects.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Expr>,
    /// `0...0.2 connect(..)`: it may block, and must return then.
    pub end: Option<u64>,
    /// Expected return value.
    pub result: Expr,
    /// Name of the errno it must fail with.
    pub errno: Option<String>,
}

/// An argument or result.
#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    /// `...`: the runner chooses.
    Ellipsis,
    /// A number.
    Int(i64),
    /// A name, such as `SOCK_STREAM`.
    Word(String),
    /// Quoted bytes.
    Bytes(Vec<u8>),
    /// `A|B`: flags combined.
    Or(Box<Expr>, Box<Expr>),
    /// `[a, b]`.
    List(Vec<Expr>),
    /// `{field=value, ..}`.
    Struct(Vec<(String, Expr)>),
    /// A socket address.
    Address(SocketAddr),
}

/// Why a script cannot be run, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    /// The line.
    pub line: u32,
    /// Where on it, in characters from 1.
    pub column: u32,
    /// Description of the error, and where it helps, what to write instead.
    pub message: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for ScriptError {}

impl Script {
    /// Parses the text of a script.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        parse::script(text)
    }
}

/// Microseconds as a script writes seconds.
pub(crate) fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            When::Any => f.write_str("*"),
            When::Absolute(at) => f.write_str(&seconds(at)),
            When::Relative(after) => write!(f, "+{}", seconds(after)),
            When::AbsoluteRange(from, to) => write!(f, "{}~{}", seconds(from), seconds(to)),
            When::RelativeRange(from, to) => write!(f, "+{}~+{}", seconds(from), seconds(to)),
        }
    }
}

impl fmt::Display for IpInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.tos {
            Some(TosSpec::Ecn(bits)) => {
                parts.push(["noecn", "ect1", "ect0", "ce"][usize::from(bits & 3)].to_owned());
            }
            Some(TosSpec::Ect01) => parts.push("ect01".into()),
            Some(TosSpec::Tos(tos)) => parts.push(format!("tos {tos:#04x}")),
            None => {}
        }
        parts.extend(self.flow_label.map(|label| format!("flowlabel {label:#x}")));
        if !parts.is_empty() {
            write!(f, "({}) ", parts.join(","))?;
        }
        self.ttl.map_or(Ok(()), |ttl| write!(f, "[ttl {ttl}] "))
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ip)?;
        if let Some((source, destination)) = self.ports {
            write!(f, "{source} > {destination} ")?;
        }
        write!(
            f,
            "{} {}:{}({})",
            self.flags,
            self.seq,
            self.seq.wrapping_add(self.len.into()),
            self.len
        )?;
        self.ack.map_or(Ok(()), |ack| write!(f, " ack {ack}"))?;
        self.window
            .map_or(Ok(()), |window| write!(f, " win {window}"))?;
        self.urgent
            .map_or(Ok(()), |urgent| write!(f, " urg {urgent}"))?;
        match &self.options {
            None => f.write_str(" <...>"),
            Some(options) => crate::segment::write_options(f, options),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Ellipsis => f.write_str("..."),
            Expr::Int(number) => write!(f, "{number}"),
            Expr::Word(word) => f.write_str(word),
            Expr::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Expr::Or(left, right) => write!(f, "{left}|{right}"),
            Expr::List(items) => {
                f.write_str("[")?;
                write_separated(f, items, |f, item| write!(f, "{item}"))?;
                f.write_str("]")
            }
            Expr::Struct(fields) => {
                f.write_str("{")?;
                write_separated(f, fields, |f, (name, value)| write!(f, "{name}={value}"))?;
                f.write_str("}")
            }
            Expr::Address(address) => {
                let family = if address.is_ipv4() {
                    "AF_INET"
                } else {
                    "AF_INET6"
                };
                let (port, ip) = (address.port(), address.ip());
                write!(
                    f,
                    "{{sa_family={family}, sin_port=htons({port}), sin_addr=inet_addr(\"{ip}\")}}"
                )
            }
        }
    }
}

impl Call {
    /// The call without its outcome.
    pub(crate) fn invocation(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(Expr::to_string).collect();
        format!("{}({})", self.name, arguments.join(", "))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.invocation(), self.result)?;
        self.errno
            .as_ref()
            .map_or(Ok(()), |errno| write!(f, " {errno}"))
    }
}

fn write_separated<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    write_one: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write_one(f, item)?;
    }
    Ok(())
}
