//! The filter that stands in front of the kernel's own stack: which packets come to us, and which the kernel keeps.
//! It is made for one configuration, addresses and ports written into the instructions; how they are encoded is
//! `asm.rs`, how they get into the kernel `bpf.rs`.
//!
//! An address is **ours alone** or **shared** with the kernel, which has it too:
//!
//! | packet | address ours alone | shared |
//! |---|---|---|
//! | TCP, UDP | to us (if there are ports: those) | our ports to us |
//! | ICMP errors | to us | to us if they quote a packet from one of our ports |
//! | other ICMP | to us | the kernel's |
//! | who has it? (ARP, neighbour discovery) | to us | the kernel answers |
//! | answers to such questions | to us | to us if we asked (the map of questions), else the kernel's |
//! | all else | to us without ports, else the kernel's | the kernel's |
//!
//! A packet for no address of these, one with a VLAN tag, a cut one: the kernel's.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use janus_wire::ethernet::ethertype;
use janus_wire::proto;

use super::asm::{Assembler, Insn, Label, Reg, Size, When};
use super::ports::Ports;
use Reg::{Fp, R0, R1, R2, R3, R4, R6, R7, R8, R9};

/// Bytes of a key of the map of questions: an IPv6 address, or an IPv4 one mapped into it.
pub(crate) const QUESTION: usize = 16;

/// An address that packets are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) addr: IpAddr,
    /// The kernel has it too.
    pub(crate) shared: bool,
}

/// Addresses and ports of ours.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) addresses: Vec<Address>,
    /// Our ports; without any, all of the addresses that are ours alone and none of the shared ones.
    pub(crate) ports: Ports,
}

/// Descriptors of the maps the program looks into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    /// From a receive queue to its socket.
    pub(crate) sockets: i32,
    /// The neighbours we asked for.
    pub(crate) questions: i32,
}

// Return value, and helper functions, of the program.
const PASS: i32 = 2;
const MAP_LOOKUP: i32 = 1;
const REDIRECT_MAP: i32 = 51;

// Fields of the program's context.
const CTX_DATA: i16 = 0;
const CTX_DATA_END: i16 = 4;
const CTX_QUEUE: i16 = 16;

// Where fields of a packet are, from the beginning of the frame.
const ETHERTYPE: i16 = 12;
const IP: i16 = 14;
const ARP_OP: i16 = 20;
const ARP_SENDER: i16 = 28;
const ARP_TARGET: i16 = 38;
const ARP_END: i32 = 42;
const IP4_FRAGMENT: i16 = IP + 6;
const IP4_PROTO: i16 = IP + 9;
const IP4_DST: i16 = IP + 16;
const IP4_END: i32 = 34;
const IP6_NEXT: i16 = IP + 6;
const IP6_DST: i16 = IP + 24;
const IP6_END: i32 = 54;
const IP6_PAYLOAD: i16 = 54;
/// A neighbour message up to the end of its target.
const ND_TARGET: i16 = IP6_PAYLOAD + 8;
const ND_END: i32 = 78;

const IP6_FRAGMENT: u32 = 44;
const ARP_REPLY: u16 = 2;
const SOLICITATION: u32 = 135;
const ADVERTISEMENT: u32 = 136;
/// The first ICMPv6 type that is no error.
const INFORMATIONAL: u32 = 128;
/// ICMP: unreachable, time exceeded, parameter problem.
const ERRORS: [u32; 3] = [3, 11, 12];
const FRAGMENTED: u16 = 0x3fff;
const LATER_FRAGMENT: u16 = 0x1fff;

/// A field of the network's, as a load of the same size reads it.
fn net16(value: u16) -> u32 {
    u32::from(value.to_be())
}

/// The filter for these rules.
pub(crate) fn filter(rules: &Rules, maps: Maps) -> Vec<Insn> {
    let mut asm = Assembler::default();
    let pass = asm.label();
    let redirect = asm.label();
    let ask = asm.label();
    let [tcp_port, udp_port] = [(); 2].map(|()| asm.label());
    let writer = Writer {
        asm,
        rules,
        pass,
        redirect,
        ask,
        tcp_port,
        udp_port,
    };
    writer.write(maps)
}

struct Writer<'a> {
    asm: Assembler,
    rules: &'a Rules,
    /// The packet is the kernel's.
    pass: Label,
    /// It is ours.
    redirect: Label,
    /// It is ours if the address at the end of the stack is one we asked for.
    ask: Label,
    /// It is ours if the port of TCP in R1 is.
    tcp_port: Label,
    /// It is ours if the port of UDP in R1 is.
    udp_port: Label,
}

impl Writer<'_> {
    // R6 is the context, R7 the beginning of the packet, R8 its end; the others are scratch.
    fn write(mut self, maps: Maps) -> Vec<Insn> {
        let [arp, v4, v6] = [(); 3].map(|()| self.asm.label());
        self.asm.copy(R6, R1);
        self.asm.load(Size::Word, R7, R6, CTX_DATA);
        self.asm.load(Size::Word, R8, R6, CTX_DATA_END);
        self.need(i32::from(IP), self.pass);
        self.asm.load(Size::Half, R1, R7, ETHERTYPE);
        if self.rules.addresses.iter().any(|own| own.addr.is_ipv4()) {
            self.asm
                .jump_if(R1, When::Equal, net16(ethertype::ARP), arp);
            self.asm
                .jump_if(R1, When::Equal, net16(ethertype::IPV4), v4);
        }
        if self.rules.addresses.iter().any(|own| own.addr.is_ipv6()) {
            self.asm
                .jump_if(R1, When::Equal, net16(ethertype::IPV6), v6);
        }
        self.asm.jump(self.pass);
        self.arp(arp);
        self.v4(v4);
        self.v6(v6);
        let rules = self.rules;
        self.block(self.tcp_port, |this| this.ports(&rules.ports.tcp));
        self.block(self.udp_port, |this| this.ports(&rules.ports.udp));
        self.block(self.ask, |this| {
            this.asm.load_map(R1, maps.questions);
            this.asm.copy(R2, Fp);
            this.asm.add(R2, -(QUESTION as i32));
            this.asm.call(MAP_LOOKUP);
            this.asm.jump_if_some(R0, this.redirect);
            this.asm.jump(this.pass);
        });
        self.block(self.redirect, |this| {
            this.asm.load(Size::Word, R2, R6, CTX_QUEUE);
            this.asm.load_map(R1, maps.sockets);
            // The action for a queue that has no socket (any more).
            this.asm.set(R3, PASS);
            this.asm.call(REDIRECT_MAP);
            this.asm.exit();
        });
        self.asm.bind(self.pass);
        self.asm.set(R0, PASS);
        self.asm.exit();
        self.asm.finish()
    }

    /// Writes the code at a label, if a jump leads there.
    fn block(&mut self, label: Label, body: impl FnOnce(&mut Self)) {
        if self.asm.is_used(label) {
            self.asm.bind(label);
            body(self);
        }
    }

    /// Goes on only if the packet has `len` bytes. Uses R4.
    fn need(&mut self, len: i32, otherwise: Label) {
        self.asm.copy(R4, R7);
        self.asm.add(R4, len);
        self.asm.jump_if_reg(R4, When::Above, R8, otherwise);
    }

    fn arp(&mut self, at: Label) {
        let shared = self.asm.label();
        self.block(at, |this| {
            this.need(ARP_END, this.pass);
            this.match_v4(ARP_TARGET, this.redirect, shared);
        });
        self.block(shared, |this| {
            this.asm.load(Size::Half, R1, R7, ARP_OP);
            this.asm
                .jump_if(R1, When::Different, net16(ARP_REPLY), this.pass);
            this.asm.load(Size::Word, R1, R7, ARP_SENDER);
            // ::ffff:a.b.c.d
            this.asm.store_imm(Size::Word, Fp, -16, 0);
            this.asm.store_imm(Size::Word, Fp, -12, 0);
            this.asm
                .store_imm(Size::Word, Fp, -8, 0xffff_u32.to_be() as i32);
            this.asm.store(Size::Word, Fp, -4, R1);
            this.asm.jump(this.ask);
        });
    }

    fn v4(&mut self, at: Label) {
        let [limited, shared, icmp] = [(); 3].map(|()| self.asm.label());
        let behind = [(); 2].map(|()| self.asm.label());
        let own = if self.rules.ports.is_empty() {
            self.redirect
        } else {
            limited
        };
        self.block(at, |this| {
            this.need(IP4_END, this.pass);
            this.match_v4(IP4_DST, own, shared);
        });
        self.block(limited, |this| {
            this.asm.load(Size::Byte, R1, R7, IP4_PROTO);
            this.asm
                .jump_if(R1, When::Equal, u32::from(proto::ICMP), this.redirect);
            let [tcp, udp] = [(); 2].map(|()| this.asm.label());
            this.by_protocol(R1, [tcp, udp]);
            this.asm.jump(this.pass);
            // A later fragment names no port; the kernel has no use for it, as it does not have the address.
            for (at, behind) in [tcp, udp].into_iter().zip(behind) {
                this.block(at, |this| {
                    this.jump_if_fragment(this.redirect);
                    this.asm.jump(behind);
                });
            }
        });
        self.block(shared, |this| {
            this.jump_if_fragment(this.pass);
            this.asm.load(Size::Byte, R1, R7, IP4_PROTO);
            this.by_protocol(R1, behind);
            this.asm
                .jump_if(R1, When::Equal, u32::from(proto::ICMP), icmp);
            this.asm.jump(this.pass);
        });
        for (at, port) in behind.into_iter().zip([self.tcp_port, self.udp_port]) {
            self.block(at, |this| this.port_behind(IP, 2, port));
        }
        self.block(icmp, Self::quoted_v4);
    }

    /// Goes where packets of a protocol go of which there are ports, TCP's first; `reg` has the protocol.
    fn by_protocol(&mut self, reg: Reg, [tcp, udp]: [Label; 2]) {
        let ports = &self.rules.ports;
        for (number, list, to) in [(proto::TCP, &ports.tcp, tcp), (proto::UDP, &ports.udp, udp)] {
            if !list.is_empty() {
                self.asm.jump_if(reg, When::Equal, u32::from(number), to);
            }
        }
    }

    fn jump_if_fragment(&mut self, to: Label) {
        self.asm.load(Size::Half, R1, R7, IP4_FRAGMENT);
        self.asm.and(R1, net16(FRAGMENTED) as i32);
        self.asm.jump_if(R1, When::Different, 0, to);
    }

    /// An ICMP message: ours if it is an error about a packet from one of our ports. With options in its own header, which
    /// none has, it is the kernel's.
    fn quoted_v4(&mut self) {
        const ICMP: i16 = IP + 20;
        const QUOTED: i16 = ICMP + 8;
        self.asm.load(Size::Byte, R1, R7, IP);
        self.asm.jump_if(R1, When::Different, 0x45, self.pass);
        self.need(i32::from(QUOTED) + 20, self.pass);
        let error = self.asm.label();
        self.asm.load(Size::Byte, R1, R7, ICMP);
        for kind in ERRORS {
            self.asm.jump_if(R1, When::Equal, kind, error);
        }
        self.asm.jump(self.pass);
        self.asm.bind(error);
        self.asm.load(Size::Half, R1, R7, QUOTED + 6);
        self.asm.and(R1, net16(LATER_FRAGMENT) as i32);
        self.asm.jump_if(R1, When::Different, 0, self.pass);
        self.asm.load(Size::Byte, R1, R7, QUOTED + 9);
        let both = [(); 2].map(|()| self.asm.label());
        self.by_protocol(R1, both);
        self.asm.jump(self.pass);
        for (at, port) in both.into_iter().zip([self.tcp_port, self.udp_port]) {
            self.block(at, |this| this.port_behind(QUOTED, 0, port));
        }
    }

    /// Checks the port `off` bytes behind the IPv4 header at `at`. Its length is one of eleven, each with a place of its own
    /// to load from: a place that is calculated the verifier allows only to those who may see kernel memory (CAP_PERFMON).
    fn port_behind(&mut self, at: i16, off: i16, port: Label) {
        self.asm.load(Size::Byte, R3, R7, at);
        self.asm.and(R3, 0xf);
        for words in 5..=15_i16 {
            let next = self.asm.label();
            self.asm.jump_if(R3, When::Different, words as u32, next);
            self.port_at(at + 4 * words + off, port);
            self.asm.bind(next);
        }
        self.asm.jump(self.pass);
    }

    /// Checks the port at `at`, as one of the protocol that `port` is for.
    fn port_at(&mut self, at: i16, port: Label) {
        self.need(i32::from(at) + 2, self.pass);
        self.asm.load(Size::Half, R1, R7, at);
        self.asm.jump(port);
    }

    fn v6(&mut self, at: Label) {
        let [by_address, limited, shared, icmp] = [(); 4].map(|()| self.asm.label());
        let behind = [(); 2].map(|()| self.asm.label());
        let own = if self.rules.ports.is_empty() {
            self.redirect
        } else {
            limited
        };
        self.block(at, |this| {
            this.need(IP6_END, this.pass);
            this.asm.load(Size::Byte, R9, R7, IP6_NEXT);
            // A question comes to a group; whom it is for stands inside.
            this.asm
                .jump_if(R9, When::Different, u32::from(proto::ICMPV6), by_address);
            this.need(ND_END, by_address);
            this.asm.load(Size::Byte, R1, R7, IP6_PAYLOAD);
            this.asm
                .jump_if(R1, When::Different, SOLICITATION, by_address);
            this.match_v6(ND_TARGET, this.redirect, this.pass);
        });
        self.block(by_address, |this| this.match_v6(IP6_DST, own, shared));
        self.block(limited, |this| {
            for ours in [u32::from(proto::ICMPV6), IP6_FRAGMENT] {
                this.asm.jump_if(R9, When::Equal, ours, this.redirect);
            }
            this.by_protocol(R9, behind);
            this.asm.jump(this.pass);
        });
        self.block(shared, |this| {
            this.by_protocol(R9, behind);
            this.asm
                .jump_if(R9, When::Equal, u32::from(proto::ICMPV6), icmp);
            this.asm.jump(this.pass);
        });
        for (at, port) in behind.into_iter().zip([self.tcp_port, self.udp_port]) {
            self.block(at, |this| this.port_at(IP6_PAYLOAD + 2, port));
        }
        self.block(icmp, Self::message_v6);
    }

    /// An ICMPv6 message for a shared address: an answer, or an error.
    fn message_v6(&mut self) {
        const QUOTED: i16 = IP6_PAYLOAD + 8;
        let answer = self.asm.label();
        self.need(ND_END, self.pass);
        self.asm.load(Size::Byte, R1, R7, IP6_PAYLOAD);
        self.asm.jump_if(R1, When::Equal, ADVERTISEMENT, answer);
        self.asm
            .jump_if(R1, When::Above, INFORMATIONAL - 1, self.pass);
        self.asm.load(Size::Byte, R1, R7, QUOTED + 6);
        let both = [(); 2].map(|()| self.asm.label());
        self.by_protocol(R1, both);
        self.asm.jump(self.pass);
        for (at, port) in both.into_iter().zip([self.tcp_port, self.udp_port]) {
            self.block(at, |this| this.port_at(QUOTED + 40, port));
        }
        self.asm.bind(answer);
        for word in 0..4 {
            self.asm.load(Size::Word, R1, R7, ND_TARGET + 4 * word);
            self.asm
                .store(Size::Word, Fp, 4 * word - QUESTION as i16, R1);
        }
        self.asm.jump(self.ask);
    }

    /// Where a packet goes whose IPv4 address at `at` is one of ours; any other is the kernel's.
    fn match_v4(&mut self, at: i16, own: Label, shared: Label) {
        self.asm.load(Size::Word, R1, R7, at);
        for address in &self.rules.addresses {
            if let IpAddr::V4(addr) = address.addr {
                let to = if address.shared { shared } else { own };
                let word = u32::from_ne_bytes(addr.octets());
                self.asm.jump_if(R1, When::Equal, word, to);
            }
        }
        self.asm.jump(self.pass);
    }

    /// Like [`match_v4`](Self::match_v4), but for the IPv6 address at `at`.
    fn match_v6(&mut self, at: i16, own: Label, shared: Label) {
        let regs = [R1, R2, R3, R4];
        for (reg, word) in regs.into_iter().zip(0..) {
            self.asm.load(Size::Word, reg, R7, at + 4 * word);
        }
        for address in &self.rules.addresses {
            let IpAddr::V6(addr) = address.addr else {
                continue;
            };
            let to = if address.shared { shared } else { own };
            let next = self.asm.label();
            for (reg, word) in regs.into_iter().zip(addr.octets().chunks_exact(4)) {
                let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
                self.asm.jump_if(reg, When::Different, word, next);
            }
            self.asm.jump(to);
            self.asm.bind(next);
        }
        self.asm.jump(self.pass);
    }

    /// The packet is ours if the port in R1, as the packet has it, is one of these.
    fn ports(&mut self, ranges: &[RangeInclusive<u16>]) {
        self.asm.swap_16_if_little(R1);
        for range in ranges {
            let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
            if first == last {
                self.asm.jump_if(R1, When::Equal, first, self.redirect);
                continue;
            }
            let next = self.asm.label();
            self.asm.jump_if(R1, When::Below, first, next);
            self.asm.jump_if(R1, When::Above, last, next);
            self.asm.jump(self.redirect);
            self.asm.bind(next);
        }
        self.asm.jump(self.pass);
    }
}

#[cfg(test)]
mod tests;
