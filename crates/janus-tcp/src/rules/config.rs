//! Configuration of a stack, set once: its bounds and times, its secrets. Its device is in `interface`.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use janus_wire::Stamps;

use crate::congestion::CongestionControl;
use crate::time::Instant;

/// When SYNs are answered with cookies: without keeping anything, at the price of a connection that knows less of its
/// peer (RFC 4987 section 3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
/// Exhaustive: literals with `..Default::default()` are how it is made.
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
    /// Packet buffers with out-of-order data, over all connections; a quarter of those there are at most. At the bound the
    /// connection that has waited longest for a gap to be filled makes room.
    pub max_reordered: u32,
    /// Unread bytes a connection may hold at first: the largest window offered.
    pub receive_buffer: u32,
    /// Size that the receive buffer grows to while the application reads all that comes, and more in each round trip. The window
    /// scale is chosen by it. No more than [`Config::receive_buffer`]: no growth.
    pub receive_buffer_max: u32,
    /// Whether it grows at all.
    pub tune_receive_buffer: bool,
    /// Unsent and unacknowledged bytes a connection may hold at first.
    pub send_buffer: u32,
    /// Size that the send buffer grows to; it follows the congestion window, at twice its size.
    pub send_buffer_max: u32,
    /// Count what is written ahead as Linux does, with what surrounds the bytes and in steps of large segments, so that
    /// writes come out as short and writers are woken when they would be there. The send buffers are then budgets
    /// for that. Otherwise bytes are counted.
    pub count_as_linux: bool,
    /// Bytes unsent at which a writer is stopped, so that what it writes is still in the processor's cache when it is sent.
    /// `None`: as many as the send buffer holds (Linux: tcp_notsent_lowat).
    pub not_sent_low: Option<u32>,
    /// How long TIME-WAIT lasts (two maximum segment lifetimes).
    pub time_wait: Duration,
    /// How long a connection whose owner let go waits for the peer's FIN, in whole seconds; 120 at most. `None`: as long as
    /// TIME-WAIT lasts.
    pub fin_wait_2: Option<Duration>,
    /// A reset with the very number that is expected ends TIME-WAIT, as RFC 9293 section 3.10.7.4 says and Linux does; without
    /// it none does (RFC 1337 section 3).
    pub reset_ends_time_wait: bool,
    /// Retransmission timeout before a round trip was measured (RFC 6298 section 2.1).
    pub rto_initial: Duration,
    /// Smallest retransmission timeout.
    pub rto_min: Duration,
    /// Largest retransmission timeout.
    pub rto_max: Duration,
    /// Retransmissions of data before a connection is given up.
    pub max_retries: u8,
    /// Like `max_retries`, but for an orphan: a connection without an owner.
    pub max_orphan_retries: u8,
    /// Repetitions of a SYN-ACK before a half-open record is given up; five at most.
    pub max_syn_ack_retries: u8,
    /// SYNs sent before an active open is given up: 7 wait 127 s, R2 must be 3 minutes at least (MUST-23).
    pub max_syn_retries: u8,
    /// Number of repeated SYNs sent at one interval before it doubles, in addition to `max_syn_retries` (Linux, not RFC 6298).
    pub syn_linear_timeouts: u8,
    /// Send and heed the user timeout option (RFC 5482) on all connections whose socket options do not say otherwise.
    pub uto: bool,
    /// L_LIMIT: what a peer says shortens no connection's patience below this (RFC 9293 section 3.8.3: R2 is to be at
    /// least 100 seconds).
    pub uto_least: Duration,
    /// U_LIMIT: nor does it make a connection wait longer than this; 64 times the least at most.
    pub uto_most: Duration,
    /// How long an orphan (a connection without an owner) may take to deliver what was written, however alive its peer.
    pub orphan_timeout: Duration,
    /// Most orphans: connections without an owner that are not finished; one more is reset.
    pub max_orphans: u32,
    /// How long the acknowledgement of data waits for an answer to carry it, at first; where segments come at longer
    /// intervals it becomes longer, 200 ms at most.
    pub delayed_ack: Duration,
    /// Most ICMP errors sent in a second, about: the exact number is randomized.
    pub icmp_errors_per_second: u32,
    /// Suspect that a path silently drops large packets when only those vanish, and search for what it carries
    /// (RFC 4821). What routers say of packets that do not fit is heeded in any case.
    pub mtu_probing: bool,
    /// Offer and use the timestamps option (RFC 7323).
    pub timestamps: bool,
    /// Drop a segment without the option on a connection that uses it, as RFC 7323 section 3.2 says one should. Linux takes
    /// it: what strips options on the way then costs PAWS, not the connection.
    pub require_timestamps: bool,
    /// Offer and use window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Offer and use selective acknowledgements (RFC 2018), and with them RACK-TLP (RFC 8985) and PRR (RFC 6937).
    pub sack: bool,
    /// Report what came twice (RFC 2883).
    pub dsack: bool,
    /// Take a segment for lost by the time that has gone by since one sent later was delivered (RFC 8985); without it,
    /// when three segments beyond it are SACKed (RFC 6675).
    pub rack: bool,
    /// Probe for the loss of a flight's end before the retransmission timeout (RFC 8985 section 7).
    pub tail_loss_probe: bool,
    /// Doubt a retransmission timeout until the acknowledgements after it show whether something was lost (RFC 5682).
    pub frto: bool,
    /// Find the congestion window anew after an idle retransmission timeout (RFC 5681 section 4.1).
    pub slow_start_after_idle: bool,
    /// Tell the peer with PSH where a burst of at least so many segments ends, besides where what was written does. `None`:
    /// do not.
    pub burst_least: Option<u8>,
    /// Let a connection's path facts, its round trip and slow-start threshold, serve the next one to the same peer
    /// (RFC 9040).
    pub share_path_facts: bool,
    /// Let the next connection reuse the memory of the last one while it is still in cache, and its path facts. False:
    /// nothing is reused before hundreds of thousands of others have come and gone, and nothing is shared. For comparing
    /// the two.
    pub warm_reuse: bool,
    /// Congestion control.
    pub congestion: CongestionControl,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: Ecn,
    /// Segments by which one acknowledgement may widen the congestion window in slow start. With no limit, as in
    /// Linux, all that is acknowledged counts; RFC 3465 says 2, RFC 9406 8.
    pub slow_start_limit: Option<u8>,
    /// Most challenge ACKs in a second over all connections (RFC 5961 section 7), or as few as half of it, which changes
    /// from second to second. `None`, the default as in Linux: no limit but [`Config::invalid_ack_interval`]. A number that
    /// connections share can be counted out: whoever does so learns of connections that are not his (CVE-2016-5696).
    pub challenge_acks_per_second: Option<u32>,
    /// Least time between two answers to segments of one flow that fit nothing: challenge ACKs, acknowledgements of
    /// segments outside the window other than repeated text, SYN-ACKs for repeated SYNs. `None`: no such limit.
    pub invalid_ack_interval: Option<Duration>,
    /// A UDP datagram that came in pieces and has no socket here may have one in another stack: [`Stack::udp_astray`] gives it
    /// to be carried there.
    ///
    /// [`Stack::udp_astray`]: crate::Stack::udp_astray
    pub datagrams_elsewhere: bool,
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
            max_reordered: 1 << 18,
            receive_buffer: 64 << 10,
            receive_buffer_max: 6 << 20,
            tune_receive_buffer: true,
            send_buffer: 64 << 10,
            send_buffer_max: 4 << 20,
            count_as_linux: false,
            not_sent_low: Some(128 << 10),
            time_wait: Duration::from_secs(60),
            fin_wait_2: None,
            reset_ends_time_wait: false,
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            max_retries: 15,
            max_orphan_retries: 15,
            max_syn_ack_retries: 5,
            uto: false,
            uto_least: Duration::from_secs(100),
            uto_most: Duration::from_secs(3_600),
            max_syn_retries: 7,
            syn_linear_timeouts: 0,
            orphan_timeout: Duration::from_secs(900),
            max_orphans: 1 << 16,
            delayed_ack: Duration::from_millis(40),
            icmp_errors_per_second: 1_000,
            mtu_probing: true,
            timestamps: true,
            require_timestamps: true,
            window_scaling: true,
            sack: true,
            dsack: true,
            rack: true,
            tail_loss_probe: true,
            frto: true,
            slow_start_after_idle: true,
            burst_least: Some(2),
            share_path_facts: true,
            warm_reuse: true,
            congestion: CongestionControl::default(),
            ecn: Ecn::default(),
            slow_start_limit: None,
            challenge_acks_per_second: None,
            invalid_ack_interval: Some(Duration::from_millis(500)),
            datagrams_elsewhere: false,
        }
    }
}

pub(crate) fn scale_for(buffer: u32) -> u8 {
    let bits = 32 - (buffer >> 16).leading_zeros();
    bits.min(14) as u8
}

/// Keys of the stack's hashes. All shards of one server share them, and each start makes new ones.
#[derive(Clone)]
pub struct Secrets {
    /// Of the keys that are derived for one purpose each, and of single numbers: [`crate::rules::isn`].
    pub(super) draws: (u64, u64),
    table: (u64, u64),
    /// Of its own: timestamps go out to everybody, and must tell nothing about the table's key.
    timestamps: Stamps,
    cookies: (u64, u64),
    /// When a cookie was last sent by any stack that has these keys.
    recent_cookies: Recent,
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
            draws: (word(0), word(1)),
            table: (word(2), word(3)),
            timestamps: Stamps::new((word(4), word(5))),
            cookies: (word(6), word(7)),
            recent_cookies: Recent::default(),
        }
    }

    /// Returns the same keys for one of `shards` shards, whose timestamps name it in their lowest bits. A segment that echoes one
    /// can be led to its shard without a lookup; [`Secrets::stamps`] reads them.
    #[must_use]
    pub fn naming(&self, shard: u8, shards: u16) -> Secrets {
        Secrets {
            timestamps: self.timestamps.naming(shard, shards),
            ..self.clone()
        }
    }

    /// Returns the generator of timestamps.
    #[inline(always)]
    pub fn stamps(&self) -> &Stamps {
        &self.timestamps
    }

    /// Returns the key of the tables of flows, paths and neighbors.
    #[inline]
    pub(crate) fn table_key(&self) -> (u64, u64) {
        self.table
    }

    pub(crate) fn cookie_key(&self) -> (u64, u64) {
        self.cookies
    }

    /// A cookie is sent.
    pub(crate) fn note_cookie(&self, now: Instant) {
        self.recent_cookies.note(now);
    }

    /// Whether a cookie that a stack with these keys has sent can still be good.
    pub(crate) fn cookie_may_be_good(&self, now: Instant) -> bool {
        self.recent_cookies.is_now(now)
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
            draws: (word(), word()),
            table: (word(), word()),
            timestamps: Stamps::new((word(), word())),
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

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ecn {
    /// Neither offered nor accepted.
    Off,
    /// Accepted when the peer offers it, and not offered: what Linux does unless told otherwise.
    #[default]
    Passive,
    /// Offered and accepted.
    On,
}

/// When any shard last sent a cookie. A cookie's acknowledgement may reach another shard than its SYN did, so this
/// goes with the keys, which all shards share; and it is what keeps a forged acknowledgement from being worth a try
/// while there is no flood.
#[derive(Clone, Debug, Default)]
struct Recent(Arc<AtomicU32>);

impl Recent {
    /// A cookie is sent.
    fn note(&self, now: Instant) {
        // Counted from one: zero is never. All shards write the same, and seldom.
        let this = period(now).wrapping_add(1);
        if self.0.load(Ordering::Relaxed) != this {
            self.0.store(this, Ordering::Relaxed);
        }
    }

    /// Whether a cookie that was sent can still be good.
    fn is_now(&self, now: Instant) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last != 0 && period(now).wrapping_add(1).wrapping_sub(last) < 2
    }
}

/// How long a cookie's period is. A cookie is good in its own and in the next one: for one to two of these.
pub(crate) const PERIOD: Duration = Duration::from_secs(64);

pub(crate) fn period(now: Instant) -> u32 {
    (now.as_nanos() / PERIOD.as_nanos() as u64) as u32
}
