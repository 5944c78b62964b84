//! What a stack is told once: its bounds and times, its interface, its secrets.

use core::time::Duration;
use std::net::Ipv4Addr;

use janus_wire::{Link, MacAddr};

use crate::congestion::Algorithm;
use crate::cookie::Recent;
use crate::parse::may_be_peer;

/// When SYNs are answered with cookies: without keeping anything, at the price of a connection that knows less of its
/// peer (RFC 4987 section 3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynCookies {
    /// When as many handshakes are half done as the listener's backlog, or the stack, allows.
    #[default]
    Pressure,
    /// To every SYN.
    Always,
    /// To none: under a flood the oldest half-open records make room.
    Never,
}

/// Bounds and times of a stack. Every table has its bound here.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections held at a time.
    pub max_connections: u32,
    /// Connections with something in flight, queued or unread at a time.
    pub max_hot: u32,
    /// SYNs answered and not yet acknowledged. At the bound newcomers get cookies; without cookies the oldest makes
    /// room.
    pub max_half_open: u32,
    /// When SYNs are answered with cookies (RFC 4987).
    pub syn_cookies: SynCookies,
    /// Connections in TIME-WAIT; at the bound the oldest makes room.
    pub max_time_wait: u32,
    /// Segments queued, in flight or unread, over all connections.
    pub max_segments: u32,
    /// Unread bytes a connection may hold: the largest window offered.
    pub receive_buffer: u32,
    /// Unsent and unacknowledged bytes a connection may hold.
    pub send_buffer: u32,
    /// How long TIME-WAIT lasts (two maximum segment lifetimes), and how long a connection whose owner let go
    /// waits for the peer's FIN.
    pub time_wait: Duration,
    /// Retransmission timeout before a round trip was measured (RFC 6298 section 2.1).
    pub rto_initial: Duration,
    /// Smallest retransmission timeout.
    pub rto_min: Duration,
    /// Largest retransmission timeout.
    pub rto_max: Duration,
    /// Retransmissions of data before a connection is given up.
    pub max_retries: u8,
    /// SYNs sent before an active open is given up: 7 wait 127 s, R2 must be 3 minutes at least (MUST-23).
    pub max_syn_retries: u8,
    /// Longest wait before in-order data is acknowledged.
    pub delayed_ack: Duration,
    /// Offer and use the timestamps option (RFC 7323).
    pub timestamps: bool,
    /// Offer and use selective acknowledgements (RFC 2018), and with them RACK-TLP (RFC 8985) and PRR (RFC 6937).
    pub sack: bool,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Segments by which one acknowledgement may widen the congestion window in slow start. With no limit, as in
    /// Linux, all that is acknowledged counts; RFC 3465 says 2, RFC 9406 8.
    pub slow_start_limit: Option<u8>,
    /// Most challenge ACKs in a second over all connections (RFC 5961 section 7). How many it is, from half of it,
    /// changes from second to second.
    pub challenge_acks_per_second: u32,
    /// Least time between two answers to segments of one flow that fit nothing: challenge ACKs, acknowledgements of empty
    /// segments outside the window, SYN-ACKs for repeated SYNs. Zero: no such limit.
    pub invalid_ack_interval: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_connections: 1 << 24,
            max_hot: 1 << 22,
            max_half_open: 1 << 18,
            syn_cookies: SynCookies::Pressure,
            max_time_wait: 1 << 18,
            max_segments: 1 << 22,
            receive_buffer: 256 << 10,
            send_buffer: 256 << 10,
            time_wait: Duration::from_secs(60),
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            max_retries: 15,
            max_syn_retries: 7,
            delayed_ack: Duration::from_millis(40),
            timestamps: true,
            sack: true,
            congestion: Algorithm::default(),
            slow_start_limit: None,
            challenge_acks_per_second: 1_000,
            invalid_ack_interval: Duration::from_millis(500),
        }
    }
}

impl Config {
    /// The shift that lets a 16-bit window name the whole receive buffer (RFC 7323 section 2).
    pub(crate) fn window_scale(&self) -> u8 {
        let bits = 32 - (self.receive_buffer >> 16).leading_zeros();
        bits.min(14) as u8
    }
}

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Cidr {
    /// The address.
    pub addr: Ipv4Addr,
    /// Bits of it that name the network.
    pub prefix: u8,
}

impl Ipv4Cidr {
    /// Whether `other` is the broadcast address of the network, or its obsolete form with all bits zero.
    pub(crate) fn is_broadcast(&self, other: Ipv4Addr) -> bool {
        let hosts = u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
        // A network of one or two addresses has no broadcast (RFC 3021).
        hosts > 1
            && self.contains(other)
            && matches!(other.to_bits() & hosts, host if host == 0 || host == hosts)
    }

    /// Whether `other` is in the same network.
    pub fn contains(&self, other: Ipv4Addr) -> bool {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(self.prefix.min(32)))
            .unwrap_or(0);
        (self.addr.to_bits() ^ other.to_bits()) & mask == 0
    }
}

/// What the stack knows of the device its frames go through.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Whether frames begin with an Ethernet or an IP header.
    pub link: Link,
    /// Our hardware address (unused without Ethernet).
    pub mac: MacAddr,
    /// Largest IP packet.
    pub mtu: u16,
    /// Our addresses.
    pub addresses: Vec<Ipv4Cidr>,
    /// Take every unicast destination as ours: for wires that carry one server's traffic only.
    pub any_local: bool,
    /// Where packets for other networks go.
    pub gateway: Option<Ipv4Addr>,
    /// The device fills in checksums.
    pub tx_checksum: bool,
    /// The device has verified checksums.
    pub rx_checksum: bool,
    /// This stack answers ARP requests. Of the stacks that share a device, and all hear them, one does.
    pub answers: bool,
}

impl Interface {
    /// An interface without a link layer that takes every packet for its own.
    pub fn ip(mtu: u16) -> Interface {
        Interface {
            link: Link::Ip,
            mac: MacAddr::default(),
            mtu,
            addresses: Vec::new(),
            any_local: true,
            gateway: None,
            tx_checksum: false,
            rx_checksum: false,
            answers: true,
        }
    }

    #[inline]
    pub(crate) fn is_ours(&self, addr: Ipv4Addr) -> bool {
        self.any_local || self.addresses.iter().any(|own| own.addr == addr)
    }

    /// Whether a packet may come from `addr`: not from a group, a broadcast, a loopback or our own address (MUST-63;
    /// RFC 1122 section 3.2.1.3). Where every destination is ours, no source can be told from one of ours.
    #[inline]
    pub(crate) fn may_be_source(&self, addr: Ipv4Addr) -> bool {
        may_be_peer(addr)
            && (self.any_local
                || !addr.is_loopback()
                    && !self
                        .addresses
                        .iter()
                        .any(|own| own.addr == addr || own.is_broadcast(addr)))
    }

    /// Whether a connection can be opened to `addr`: not to a group, nowhere, or a broadcast of our networks (MUST-46).
    pub(crate) fn may_be_destination(&self, addr: Ipv4Addr) -> bool {
        may_be_peer(addr) && !self.addresses.iter().any(|own| own.is_broadcast(addr))
    }

    /// Our address towards `peer`.
    pub fn source_for(&self, peer: Ipv4Addr) -> Option<Ipv4Addr> {
        let near = self.addresses.iter().find(|own| own.contains(peer));
        near.or(self.addresses.first()).map(|own| own.addr)
    }

    /// The neighbour that packets for `peer` are handed to.
    #[inline]
    pub(crate) fn next_hop(&self, peer: Ipv4Addr) -> Ipv4Addr {
        match self.gateway {
            Some(gateway) if !self.addresses.iter().any(|own| own.contains(peer)) => gateway,
            _ => peer,
        }
    }

    /// The payload of the largest segment that fits (RFC 9293 section 3.7.1).
    pub(crate) fn mss(&self) -> u16 {
        self.mtu.saturating_sub(40)
    }
}

/// Keys of the stack's hashes. All shards of one server share them, and each start makes new ones.
#[derive(Clone)]
pub struct Secrets {
    pub(crate) isn: (u64, u64),
    pub(crate) table: (u64, u64),
    /// Of its own: timestamps go out to everybody, and must tell nothing about the table's key.
    pub(crate) timestamps: (u64, u64),
    pub(crate) cookies: (u64, u64),
    /// When a cookie was last sent by any stack that has these keys.
    pub(crate) recent_cookies: Recent,
}

impl Secrets {
    /// Keys from random bytes.
    pub fn from_bytes(bytes: [u8; 64]) -> Secrets {
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
            u64::from_le_bytes(w)
        };
        Secrets {
            isn: (word(0), word(1)),
            table: (word(2), word(3)),
            timestamps: (word(4), word(5)),
            cookies: (word(6), word(7)),
            recent_cookies: Recent::default(),
        }
    }

    /// Keys from a seed, for runs that must be repeatable. Not for a server that faces strangers.
    pub fn from_seed(seed: u64) -> Secrets {
        let mut state = seed;
        let mut word = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Secrets {
            isn: (word(), word()),
            table: (word(), word()),
            timestamps: (word(), word()),
            cookies: (word(), word()),
            recent_cookies: Recent::default(),
        }
    }
}

impl core::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secrets(..)")
    }
}
