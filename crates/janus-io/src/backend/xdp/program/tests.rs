//! The filter run on packets by a small machine of our own, which needs no privilege and takes no liberties: a load outside
//! the packet, the context or the stack panics. Whether the kernel's verifier accepts the program is tested in
//! `tests/xdp`.

mod packets;

use super::*;
use packets::*;
use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

const SOCKETS: i32 = 4;
const QUESTIONS: i32 = 5;

// Where the machine keeps things, far from each other.
const CTX: u64 = 0x1000;
const PACKET: u64 = 0x10_0000;
const STACK_END: u64 = 0x20_0200;
const STACK: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ours,
    Kernels,
}
use Verdict::{Kernels, Ours};

struct Machine<'a> {
    regs: [u64; 11],
    packet: &'a [u8],
    stack: [u8; STACK],
    asked: HashSet<[u8; QUESTION]>,
}

impl Machine<'_> {
    fn load(&self, at: u64, len: usize) -> u64 {
        let mut context = [0; 20];
        context[0..4].copy_from_slice(&(PACKET as u32).to_le_bytes());
        context[4..8].copy_from_slice(&(PACKET as u32 + self.packet.len() as u32).to_le_bytes());
        context[16..].copy_from_slice(&3_u32.to_le_bytes());
        let (memory, base): (&[u8], u64) = match at {
            CTX.. if at < CTX + 20 => (&context, CTX),
            PACKET.. if at < PACKET + 0x1_0000 => (self.packet, PACKET),
            _ => (&self.stack, STACK_END - STACK as u64),
        };
        let from = (at - base) as usize;
        let bytes = &memory[from..from + len];
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    fn store(&mut self, at: u64, len: usize, value: u64) {
        let from = (at - (STACK_END - STACK as u64)) as usize;
        self.stack[from..from + len].copy_from_slice(&value.to_le_bytes()[..len]);
    }

    fn call(&mut self, helper: i32) {
        let regs = &mut self.regs;
        regs[0] = match helper {
            MAP_LOOKUP => {
                assert_eq!(regs[1], QUESTIONS as u64);
                let from = (regs[2] - (STACK_END - STACK as u64)) as usize;
                let key: [u8; QUESTION] = self.stack[from..from + QUESTION].try_into().unwrap();
                u64::from(self.asked.contains(&key))
            }
            REDIRECT_MAP => {
                assert_eq!(
                    (regs[1], regs[2], regs[3]),
                    (SOCKETS as u64, 3, PASS as u64)
                );
                4
            }
            _ => panic!("no helper {helper}"),
        };
        // A call leaves nothing in them.
        regs[1..6].fill(0xdead_beef_dead_beef);
    }

    fn run(mut self, program: &[Insn]) -> Verdict {
        self.regs[1] = CTX;
        self.regs[10] = STACK_END;
        let mut at = 0;
        // No loops, so no program runs longer than it is.
        for _ in 0..program.len() {
            let Insn {
                code,
                regs,
                off,
                imm,
            } = program[at];
            let (dst, src) = (usize::from(regs & 15), usize::from(regs >> 4));
            at += 1;
            let operand = if code & 8 != 0 {
                self.regs[src]
            } else {
                imm as i64 as u64
            };
            let len = match code & 0x18 {
                0x00 => 4,
                0x08 => 2,
                _ => 1,
            };
            let place = |reg: u64| reg.wrapping_add(off as i64 as u64);
            match (code & 7, code & 0xf0) {
                (4, 0xd0) => self.regs[dst] = u64::from((self.regs[dst] as u16).swap_bytes()),
                (7, 0xb0) => self.regs[dst] = operand,
                (7, 0x00) => self.regs[dst] = self.regs[dst].wrapping_add(operand),
                (7, 0x50) => self.regs[dst] &= operand,
                (0, _) => {
                    self.regs[dst] = imm as u64;
                    at += 1;
                }
                (1, _) => self.regs[dst] = self.load(place(self.regs[src]), len),
                (2, _) => self.store(place(self.regs[dst]), len, imm as u64),
                (3, _) => self.store(place(self.regs[dst]), len, self.regs[src]),
                (5, 0x80) => self.call(imm),
                (5, 0x90) => {
                    return match self.regs[0] {
                        4 => Ours,
                        2 => Kernels,
                        other => panic!("no verdict {other}"),
                    };
                }
                (class @ (5 | 6), kind) => {
                    let mask = if class == 6 {
                        u64::from(u32::MAX)
                    } else {
                        u64::MAX
                    };
                    let (left, right) = (self.regs[dst] & mask, operand & mask);
                    let taken = match kind {
                        0x00 => true,
                        0x10 => left == right,
                        0x20 => left > right,
                        0x50 => left != right,
                        0xa0 => left < right,
                        _ => panic!("no jump {kind:#x}"),
                    };
                    if taken {
                        at = at.checked_add_signed(off.into()).unwrap();
                    }
                }
                _ => panic!("no instruction {code:#x}"),
            }
        }
        panic!("it does not end")
    }
}

/// A filter and the neighbours that were asked for.
struct Filter {
    program: Vec<Insn>,
    asked: HashSet<[u8; QUESTION]>,
}

impl Filter {
    fn new(addresses: &[(&str, bool)], ports: &str) -> Self {
        let addresses = addresses.iter().map(|&(addr, shared)| Address {
            addr: addr.parse().unwrap(),
            shared,
        });
        let rules = Rules {
            addresses: addresses.collect(),
            ports: match ports {
                "" => Ports::default(),
                some => some.parse().unwrap(),
            },
        };
        let maps = Maps {
            sockets: SOCKETS,
            questions: QUESTIONS,
        };
        Self {
            program: filter(&rules, maps),
            asked: HashSet::new(),
        }
    }

    fn asks(mut self, whom: Ipv6Addr) -> Self {
        self.asked.insert(whom.octets());
        self
    }

    fn sees(&self, packet: &[u8]) -> Verdict {
        let machine = Machine {
            regs: [0xdead_beef_dead_beef; 11],
            packet,
            stack: [0xaa; STACK],
            asked: self.asked.clone(),
        };
        machine.run(&self.program)
    }
}

const OWN: &str = "192.0.2.7";
const OWN_V6: &str = "2001:db8::7";
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn all_of_an_address_that_is_ours_alone_comes_to_us_and_nothing_else() {
    let filter = Filter::new(&[(OWN, false), ("192.0.2.8", false), (OWN_V6, false)], "");
    for (dst, verdict) in [(v4(OWN), Ours), (v4("192.0.2.8"), Ours), (OTHER, Kernels)] {
        for proto in [1, 6, 17] {
            assert_eq!(filter.sees(&ip4(dst, proto, 22)), verdict, "{dst} {proto}");
        }
        assert_eq!(filter.sees(&later_fragment(dst)), verdict);
        for op in [1, 2] {
            assert_eq!(filter.sees(&arp(op, OTHER, dst)), verdict, "ARP {op} {dst}");
        }
    }
    for (dst, verdict) in [
        (OWN_V6, Ours),
        ("2001:db8::8", Kernels),
        ("ff02::1", Kernels),
    ] {
        for next in [6, 17, 44, 58] {
            assert_eq!(
                filter.sees(&ip6(v6(dst), next, 22)),
                verdict,
                "{dst} {next}"
            );
        }
    }
    // Questions come to a group, answers to the address.
    let group = v6("ff02::1:ff00:7");
    assert_eq!(filter.sees(&neighbor(135, group, v6(OWN_V6))), Ours);
    assert_eq!(
        filter.sees(&neighbor(135, group, v6("2001:db8:1::7"))),
        Kernels
    );
    assert_eq!(
        filter.sees(&neighbor(136, v6(OWN_V6), v6("2001:db8::9"))),
        Ours
    );
    assert_eq!(
        filter.sees(&neighbor(136, v6("ff02::1"), v6("2001:db8::9"))),
        Kernels
    );
    assert_eq!(filter.sees(&tagged(&ip4(v4(OWN), 6, 80))), Kernels);
}

#[test]
fn with_ports_only_they_are_ours_and_what_belongs_to_them() {
    let filter = Filter::new(&[(OWN, false), (OWN_V6, false)], "80,8000-8080");
    for (port, verdict) in [
        (22, Kernels),
        (79, Kernels),
        (80, Ours),
        (81, Kernels),
        (7999, Kernels),
        (8000, Ours),
        (8042, Ours),
        (8080, Ours),
        (8081, Kernels),
        // 80 with its bytes swapped.
        (0x5000, Kernels),
    ] {
        assert_eq!(filter.sees(&ip4(v4(OWN), 6, port)), verdict, "{port}");
        assert_eq!(
            filter.sees(&with_options(v4(OWN), port)),
            verdict,
            "options, {port}"
        );
        assert_eq!(
            filter.sees(&ip6(v6(OWN_V6), 6, port)),
            verdict,
            "IPv6, {port}"
        );
        assert_eq!(filter.sees(&ip4(v4(OWN), 17, port)), Kernels, "UDP {port}");
    }
    assert_eq!(filter.sees(&ip4(v4(OWN), 1, 0)), Ours);
    assert_eq!(filter.sees(&later_fragment(v4(OWN))), Ours);
    assert_eq!(filter.sees(&ip6(v6(OWN_V6), 58, 0)), Ours);
    assert_eq!(filter.sees(&arp(1, OTHER, v4(OWN))), Ours);
}

#[test]
fn a_shared_address_keeps_its_kernel() {
    let filter = Filter::new(&[(OWN, true), (OWN_V6, true)], "80");
    let (own, own_v6) = (v4(OWN), v6(OWN_V6));
    for (port, verdict) in [(22, Kernels), (80, Ours)] {
        assert_eq!(filter.sees(&ip4(own, 6, port)), verdict);
        assert_eq!(filter.sees(&ip6(own_v6, 6, port)), verdict);
        // An error about what we sent from that port.
        assert_eq!(filter.sees(&icmp_error(own, 3, port)), verdict, "{port}");
        assert_eq!(
            filter.sees(&icmp_error_v6(own_v6, 2, port)),
            verdict,
            "{port}"
        );
    }
    assert_eq!(filter.sees(&icmp_error(own, 8, 80)), Kernels, "echo");
    assert_eq!(
        filter.sees(&icmp_error_v6(own_v6, 128, 80)),
        Kernels,
        "echo"
    );
    assert_eq!(filter.sees(&ip4(own, 17, 80)), Kernels);
    assert_eq!(filter.sees(&ip6(own_v6, 17, 80)), Kernels);
    assert_eq!(filter.sees(&later_fragment(own)), Kernels);
    assert_eq!(
        filter.sees(&arp(1, OTHER, own)),
        Kernels,
        "the kernel answers"
    );
    let group = v6("ff02::1:ff00:7");
    assert_eq!(filter.sees(&neighbor(135, group, own_v6)), Kernels);
}

/// Ports of each protocol are its own; where there are none of one, all of it is the kernel's.
#[test]
fn ports_of_udp_are_told_from_those_of_tcp() {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    for shared in [false, true] {
        let both = Filter::new(
            &[(OWN, shared), (OWN_V6, shared)],
            "80,53/udp,5000-5010/udp",
        );
        let udp = Filter::new(&[(OWN, shared), (OWN_V6, shared)], "53/udp");
        for (filter, proto, port, verdict) in [
            (&both, TCP, 80, Ours),
            (&both, TCP, 53, Kernels),
            (&both, TCP, 5000, Kernels),
            (&both, UDP, 53, Ours),
            (&both, UDP, 5010, Ours),
            (&both, UDP, 5011, Kernels),
            (&both, UDP, 80, Kernels),
            (&udp, UDP, 53, Ours),
            (&udp, TCP, 53, Kernels),
            (&udp, UDP, 54, Kernels),
        ] {
            let what = format!("shared {shared}, protocol {proto}, port {port}");
            let (own, own_v6) = (v4(OWN), v6(OWN_V6));
            assert_eq!(filter.sees(&ip4(own, proto, port)), verdict, "{what}");
            assert_eq!(
                filter.sees(&ip6(own_v6, proto, port)),
                verdict,
                "{what}, IPv6"
            );
            // An address of our own has no other owner for errors.
            let errors = if shared { verdict } else { Ours };
            let error = icmp_error_of(proto, own, 3, port);
            assert_eq!(filter.sees(&error), errors, "{what}, error");
            let error = icmp_error_v6_of(proto, own_v6, 1, port);
            assert_eq!(filter.sees(&error), errors, "{what}, error, IPv6");
        }
        // Nor for the later parts of what was cut, of a protocol that has ports here.
        let own = if shared { Kernels } else { Ours };
        assert_eq!(both.sees(&later_fragment_of(UDP, v4(OWN))), own);
        assert_eq!(udp.sees(&later_fragment_of(UDP, v4(OWN))), own);
        assert_eq!(udp.sees(&later_fragment_of(TCP, v4(OWN))), Kernels);
    }
}

#[test]
fn answers_at_a_shared_address_are_ours_if_we_asked() {
    let filter = Filter::new(&[(OWN, true), (OWN_V6, true)], "80")
        .asks(OTHER.to_ipv6_mapped())
        .asks(v6("2001:db8::9"));
    let (own, own_v6) = (v4(OWN), v6(OWN_V6));
    assert_eq!(filter.sees(&arp(2, OTHER, own)), Ours);
    assert_eq!(filter.sees(&arp(2, v4("192.0.2.10"), own)), Kernels);
    assert_eq!(filter.sees(&arp(1, OTHER, own)), Kernels, "a question");
    assert_eq!(filter.sees(&neighbor(136, own_v6, v6("2001:db8::9"))), Ours);
    assert_eq!(
        filter.sees(&neighbor(136, own_v6, v6("2001:db8::a"))),
        Kernels
    );
}

/// Cut anywhere, a packet is never read beyond its end (the machine would panic), and comes to us only if it still says
/// whom it is for.
#[test]
fn cut_packets_are_the_kernels() {
    let filters = [
        Filter::new(&[(OWN, false), (OWN_V6, false)], ""),
        Filter::new(&[(OWN, false), (OWN_V6, false)], "80"),
        Filter::new(&[(OWN, true), (OWN_V6, true)], "80").asks(OTHER.to_ipv6_mapped()),
        Filter::new(&[(OWN, false), (OWN_V6, true)], "80,80/udp"),
    ];
    let (own, own_v6) = (v4(OWN), v6(OWN_V6));
    let packets = [
        ip4(own, 6, 80),
        with_options(own, 80),
        ip6(own_v6, 6, 80),
        ip4(own, 17, 80),
        ip6(own_v6, 17, 80),
        arp(2, OTHER, own),
        icmp_error(own, 3, 80),
        icmp_error_of(17, own, 3, 80),
        icmp_error_v6(own_v6, 1, 80),
        neighbor(135, v6("ff02::1:ff00:7"), own_v6),
        neighbor(136, own_v6, v6("2001:db8::9")),
    ];
    for filter in &filters {
        for packet in &packets {
            for len in 0..packet.len() {
                let verdict = filter.sees(&packet[..len]);
                assert!(verdict == Kernels || len >= 34, "{len} of {packet:02x?}");
            }
        }
    }
}

#[test]
fn one_family_alone_leaves_the_other_to_the_kernel() {
    let only_v4 = Filter::new(&[(OWN, false)], "");
    let only_v6 = Filter::new(&[(OWN_V6, false)], "");
    assert_eq!(only_v4.sees(&ip6(v6(OWN_V6), 6, 80)), Kernels);
    assert_eq!(only_v6.sees(&ip4(v4(OWN), 6, 80)), Kernels);
    assert_eq!(only_v6.sees(&arp(1, OTHER, v4(OWN))), Kernels);
}
