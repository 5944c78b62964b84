//! Packet lines: `P. 1:1001(1000) ack 1 win 257 <nop,nop,TS val 1 ecr 2>`.

use super::parse::{Parser, Result};
use super::token::Token;
use super::{IpInfo, Packet, TosSpec};
use crate::segment::{Flags, PAYLOAD_MAX, TcpOption};

/// Bytes of options a TCP header can hold (RFC 9293 section 3.1: a data offset of at most 15 words).
const OPTIONS_LEN_MAX: usize = 40;

impl Parser {
    /// What follows `<` or `>`.
    pub(super) fn packet(&mut self, inbound: bool) -> Result<Packet> {
        if let Some(Token::Word(word)) = self.peek() {
            let known = matches!(
                word.as_str(),
                "udp" | "icmp" | "gre" | "mpls" | "ipv4" | "ipv6" | "GREv0"
            );
            if known {
                return self.error(format!(
                    "`{word}` packets are not supported; only TCP over one IP header is, and ICMP errors about a segment: \
                     `< icmp unreachable frag_needed mtu 900 [1:1001(1000)]`"
                ));
            }
        }
        let ip = self.ip_info(inbound)?;
        let ports = self.ports()?;
        let flags = self.flags()?;
        let (seq, len) = self.sequence_range()?;
        let mut packet = Packet {
            ip,
            ports,
            flags,
            seq,
            len,
            ack: None,
            window: None,
            urgent: None,
            options: Some(Vec::new()),
        };
        if self.take_word("ack") {
            packet.ack = Some(self.number("an acknowledgement number", u32::MAX)?);
        }
        if self.take_word("win") {
            packet.window = Some(self.number("a window", u16::MAX.into())? as u16);
        }
        if self.take_word("urg") {
            packet.urgent = Some(self.number("an urgent pointer", u16::MAX.into())? as u16);
        }
        if self.take_symbol('<') {
            packet.options = self.options(inbound)?;
        }
        self.check_ack(&packet)?;
        Ok(packet)
    }

    /// `1:1001(1000)`: the first number and the length.
    pub(super) fn sequence_range(&mut self) -> Result<(u32, u16)> {
        let seq = self.number("a sequence number", u32::MAX)?;
        self.symbol(':')?;
        let end = self.number("an end sequence number", u32::MAX)?;
        self.symbol('(')?;
        let len = self.number("a payload length", PAYLOAD_MAX as u32)? as u16;
        self.symbol(')')?;
        if seq.wrapping_add(len.into()) != end {
            return self.error(format!("{seq}:{end}({len}) does not add up"));
        }
        Ok((seq, len))
    }

    fn check_ack(&self, packet: &Packet) -> Result<()> {
        match (packet.flags.contains(Flags::ACK), packet.ack) {
            (false, Some(ack)) => self.error(format!("`ack {ack}` without the flag `.`")),
            (true, None) => self.error("the flag `.` without an `ack`"),
            _ => Ok(()),
        }
    }

    /// `(ect0)`, `[tos 0x10]`, `[ttl 64]`.
    fn ip_info(&mut self, inbound: bool) -> Result<IpInfo> {
        let close = match self.peek() {
            Some(Token::Symbol('(')) => ')',
            Some(Token::Symbol('[')) => ']',
            _ => return Ok(IpInfo::default()),
        };
        self.next();
        let mut info = IpInfo::default();
        if self.take_word("ttl") {
            info.ttl = Some(self.number("a time to live", 255)? as u8);
        } else if self.take_word("tos") {
            info.tos = Some(TosSpec::Tos(self.number("a type of service", 255)? as u8));
        } else {
            info.tos = Some(self.ecn(inbound)?);
        }
        self.symbol(close)?;
        Ok(info)
    }

    fn ecn(&mut self, inbound: bool) -> Result<TosSpec> {
        let names = [("noecn", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)];
        for (name, bits) in names {
            if self.take_word(name) {
                return Ok(TosSpec::Ecn(bits));
            }
        }
        if !inbound && self.take_word("ect01") {
            return Ok(TosSpec::Ect01);
        }
        self.unexpected("noecn, ect0, ect1, ect01 (outbound), ce, tos or ttl")
    }

    /// `5000 > 8080`.
    fn ports(&mut self) -> Result<Option<(u16, u16)>> {
        if self.peek_at(1) != Some(&Token::Symbol('>')) {
            return Ok(None);
        }
        let source = self.number("a source port", u16::MAX.into())? as u16;
        self.symbol('>')?;
        let destination = self.number("a destination port", u16::MAX.into())? as u16;
        Ok(Some((source, destination)))
    }

    /// Letters, a dot, letters and a dot, or `-` for none.
    fn flags(&mut self) -> Result<Flags> {
        if self.take_symbol('-') {
            return Ok(Flags::default());
        }
        let mut flags = Flags::default();
        let mut any = false;
        if let Some(Token::Word(word)) = self.peek().cloned() {
            for letter in word.chars() {
                match Flags::from_letter(letter) {
                    Some(flag) => flags = flags | flag,
                    None => {
                        return self.error(format!(
                            "`{letter}` is no TCP flag (F S R P U E W, `.` for ACK)"
                        ));
                    }
                }
            }
            self.next();
            any = true;
        }
        if self.take_symbol('.') {
            flags = flags | Flags::ACK;
            any = true;
        }
        if any {
            Ok(flags)
        } else {
            self.unexpected("TCP flags")
        }
    }

    /// After `<`: the list up to `>`, or `...`.
    fn options(&mut self, inbound: bool) -> Result<Option<Vec<TcpOption>>> {
        if self.peek() == Some(&Token::Ellipsis) {
            if inbound {
                return self.error(
                    "`<...>` is for outbound packets: an inbound packet must say its options",
                );
            }
            self.next();
            self.symbol('>')?;
            return Ok(None);
        }
        let mut options = vec![self.option()?];
        while self.take_symbol(',') {
            options.push(self.option()?);
        }
        self.symbol('>')?;
        let len: usize = options.iter().map(TcpOption::wire_len).sum();
        if len > OPTIONS_LEN_MAX {
            return self.error(format!(
                "the options take {len} bytes, of {OPTIONS_LEN_MAX}"
            ));
        }
        Ok(Some(options))
    }

    fn option(&mut self) -> Result<TcpOption> {
        let Some(Token::Word(name)) = self.peek().cloned() else {
            return self.unexpected("a TCP option");
        };
        let at = self.line();
        self.next();
        Ok(match name.as_str() {
            "eol" => TcpOption::Eol,
            "nop" => TcpOption::Nop,
            "sackOK" => TcpOption::SackPermitted,
            "mss" => TcpOption::Mss(self.number("an MSS", u16::MAX.into())? as u16),
            "wscale" => TcpOption::WindowScale(self.number("a window scale", 255)? as u8),
            "sack" => TcpOption::Sack(self.sack_blocks()?),
            "TS" => {
                self.word("val")?;
                let val = self.number("a timestamp", u32::MAX)?;
                self.word("ecr")?;
                TcpOption::Timestamps {
                    val,
                    ecr: self.number("a timestamp echo", u32::MAX)?,
                }
            }
            _ => {
                let message = format!(
                    "`{name}` is no TCP option known here (mss sackOK sack TS nop wscale eol)"
                );
                return Err(super::ScriptError { line: at, message });
            }
        })
    }

    fn word(&mut self, word: &str) -> Result<()> {
        if self.take_word(word) {
            Ok(())
        } else {
            self.unexpected(&format!("`{word}`"))
        }
    }

    fn sack_blocks(&mut self) -> Result<Vec<(u32, u32)>> {
        let mut blocks = Vec::new();
        while blocks.is_empty() || matches!(self.peek(), Some(Token::Int(_))) {
            let left = self.number("the left edge of a SACK block", u32::MAX)?;
            self.symbol(':')?;
            blocks.push((
                left,
                self.number("the right edge of a SACK block", u32::MAX)?,
            ));
        }
        Ok(blocks)
    }
}
