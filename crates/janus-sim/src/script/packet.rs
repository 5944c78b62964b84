//! Packet lines: `P. 1:1001(1000) ack 1 win 257 <nop,nop,TS val 1 ecr 2>`.

use super::parse::{Parser, Result};
use super::token::Token;
use super::{Action, IpInfo, Packet, TosSpec};
use crate::segment::{Flags, PAYLOAD_MAX, TcpOption};

/// Bytes of options a TCP header can hold (RFC 9293 section 3.1: a data offset of at most 15 words).
const OPTIONS_LEN_MAX: usize = 40;

impl Parser {
    /// Parses the rest of a line after `<` or `>`.
    pub(super) fn packet_line(&mut self, inbound: bool) -> Result<Action> {
        let ip = self.ip_info(inbound)?;
        if self.take_word("icmp") {
            let message = self.icmp(ip)?;
            return Ok(match inbound {
                true => Action::InboundIcmp(message),
                false => Action::OutboundIcmp(message),
            });
        }
        if let Some(Token::Word(word)) = self.peek() {
            let known = ["udp", "gre", "mpls", "ipv4", "ipv6", "GREv0"];
            if known.contains(&word.as_str()) {
                return self.error(format!(
                    "`{word}` packets are not supported: only TCP and ICMP over one IP header are"
                ));
            }
        }
        let packet = self.packet(ip, inbound)?;
        Ok(match inbound {
            true => Action::Inbound(packet),
            false => Action::Outbound(packet),
        })
    }

    fn packet(&mut self, ip: IpInfo, inbound: bool) -> Result<Packet> {
        let ports = self.ports()?;
        if self.take_word("encap") {
            return self.error("`encap` is not supported: packets are TCP over one IP header");
        }
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
        if inbound && packet.window.is_none() {
            return self.error("an inbound packet needs a window: `win 65535` behind its `ack`");
        }
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
        } else {
            if self.take_word("tos") {
                info.tos = Some(TosSpec::Tos(self.number("a type of service", 255)? as u8));
            } else if !self.at_word("flowlabel") {
                info.tos = Some(self.ecn(inbound)?);
            }
            if info.tos.is_none() || self.take_symbol(',') {
                self.word("flowlabel")?;
                info.flow_label = Some(self.number("a flow label", 0xf_ffff)?);
            }
        }
        self.symbol(close)?;
        Ok(info)
    }

    fn at_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(found)) if found == word)
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
        self.unexpected("noecn, ect0, ect1, ect01 (outbound), ce, tos, flowlabel or ttl")
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

    /// Letters and a dot, or `-` for none; AccECN's counter as a digit, behind the dot or among the letters.
    fn flags(&mut self) -> Result<Flags> {
        if self.take_symbol('-') {
            return Ok(Flags::default());
        }
        let mut text = String::new();
        if matches!(self.peek(), Some(Token::Word(_))) {
            text.push_str(self.text().unwrap_or_default());
            self.next();
        }
        // `.5` reads as a number.
        let dotted = self.text().filter(|dot| dot.starts_with('.'));
        let counter = matches!(self.peek(), Some(Token::Fraction(_)));
        if let Some(dot) = dotted.filter(|dot| counter || *dot == ".") {
            text.push_str(dot);
            self.next();
        }
        if text.is_empty() {
            return self.unexpected("TCP flags");
        }
        let (mut flags, mut ecn) = (Flags::default(), 0);
        for letter in text.chars() {
            flags = match (Flags::from_letter(letter), letter.to_digit(8)) {
                (Some(flag), _) => flags | flag,
                (None, Some(counter)) => flags | Flags::ace(counter as u8),
                (None, None) => {
                    return self.error(format!(
                        "`{letter}` is no TCP flag (F S R P U E W A, `.` for ACK, a digit for AccECN's counter)"
                    ));
                }
            };
            // A counter stands for all three letters; two of them say more than one thing.
            ecn = match letter {
                'E' | 'W' | 'A' if ecn < 8 => ecn + 1,
                '0'..='7' if ecn == 0 => 8,
                'E' | 'W' | 'A' | '0'..='7' => {
                    return self.error(format!(
                        "`{letter}` contradicts the flags before it in `{text}`"
                    ));
                }
                _ => ecn,
            };
        }
        Ok(flags)
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
        if !len.is_multiple_of(4) {
            return self.error(format!(
                "the options take {len} bytes, and a TCP header is made of words of four: fill up with `nop` or `eol`"
            ));
        }
        Ok(Some(options))
    }

    fn option(&mut self) -> Result<TcpOption> {
        let Some(Token::Word(name)) = self.peek().cloned() else {
            return self.unexpected("a TCP option");
        };
        let here = self.error(format!(
            "`{name}` is no TCP option known here (mss wscale sackOK sack TS nop eol md5 FO FOEXP ECN)"
        ));
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
            "md5" => self.hex(19, &[], 16)?,
            "FO" => self.hex(34, &[], 16)?,
            "FOEXP" => self.hex(254, &[0xf9, 0x89], 16)?,
            "ECN" => self.counters()?,
            _ => return here,
        })
    }

    /// An option that is only bytes here: its kind, what it begins with, and the hexadecimal digits that follow, if any.
    fn hex(&mut self, kind: u8, prefix: &[u8], len_max: usize) -> Result<TcpOption> {
        let mut data = prefix.to_vec();
        if matches!(self.peek(), Some(Token::Word(_) | Token::Int(_))) {
            let text = self.text().unwrap_or_default();
            let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
            let bytes =
                digits.filter(|digits| digits.len() % 2 == 0 && digits.len() <= 2 * len_max);
            let Some(digits) = bytes else {
                return self.unexpected(&format!(
                    "at most {len_max} bytes as pairs of hexadecimal digits"
                ));
            };
            data.extend(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8));
            self.next();
        }
        Ok(TcpOption::Other { kind, data })
    }

    /// AccECN's byte counters, `ECN e0b 1 ceb 0 e1b 1`, of 24 bits each; which comes first decides the kind.
    fn counters(&mut self) -> Result<TcpOption> {
        let order = if self.at_word("e1b") {
            (174, ["e1b", "ceb", "e0b"])
        } else {
            (172, ["e0b", "ceb", "e1b"])
        };
        let (kind, names) = order;
        let mut data = Vec::new();
        for name in names {
            if !self.take_word(name) {
                break;
            }
            let counter = self.number("a byte counter", 0xff_ffff)?;
            data.extend_from_slice(&counter.to_be_bytes()[1..]);
        }
        if data.is_empty() {
            return self.unexpected("`e0b` or `e1b`");
        }
        Ok(TcpOption::Other { kind, data })
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
