//! The options that the TCP engine carries out: their numbers, units and ranges in Linux's interface, and where they go:
//! to the connection, to a listener for those it accepts, or, before either, into the descriptor.

use core::time::Duration;

use janus_tcp::{CongestionControl, Info, Instant, SocketOptions};

use crate::abi;
use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::table::State;

type Result<T> = std::result::Result<T, Errno>;

/// Largest values Linux takes (MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL; MAX_TCP_KEEPCNT, MAX_TCP_SYNCNT).
const KEEP_SECONDS_MAX: i32 = 32_767;
const COUNT_MAX: i32 = 127;
/// The window that TCP_MAXSEG must stay below (MAX_TCP_WINDOW).
const MAXSEG_MAX: i32 = 32_767;
/// Largest buffers that can be asked for (net.core.rmem_max, wmem_max).
const BUFFER_MAX: u32 = 4 << 20;
/// TCP_RTO_MAX in seconds.
const RTO_MAX: i32 = 120;
/// TCP_FIN_TIMEOUT_MAX in seconds.
const LINGER2_MAX: i32 = 120;
/// The least TCP_WINDOW_CLAMP (SOCK_MIN_RCVBUF / 2).
const CLAMP_MIN: i32 = 1_152;
/// IP_TTL and IPV6_UNICAST_HOPS of those who wish nothing.
const TTL_DEFAULT: i32 = 64;

/// Bytes of `struct tcp_info` that are returned, and the offset of tcpi_unacked.
const INFO_LEN: usize = 104;
const WAITING_AT: usize = 24;

fn ranged(value: i32, from: i32, to: i32) -> Result<u32> {
    if (from..=to).contains(&value) {
        Ok(value as u32)
    } else {
        Err(Errno::EINVAL)
    }
}

fn seconds(value: i32) -> Result<Duration> {
    Ok(Duration::from_secs(
        ranged(value, 1, KEEP_SECONDS_MAX)?.into(),
    ))
}

/// A buffer's size within what Linux allows; a negative one is a huge one.
fn half(value: i32, least: u32) -> u32 {
    (value as u32).min(BUFFER_MAX).max(least)
}

/// TCP_DEFER_ACCEPT as Linux tells it: the seconds that so many SYN-ACKs take as are sent in the time asked for
/// (secs_to_retrans, retrans_to_secs).
pub(crate) fn deferral(seconds: i32) -> i32 {
    let (mut wait, mut sum) = (1, 1);
    if seconds <= 0 {
        return 0;
    }
    while sum < seconds {
        wait = (wait * 2).min(RTO_MAX);
        sum += wait;
    }
    sum
}

/// Returns TCP_LINGER2 in seconds, as `getsockopt` gives it; `usual`: the default, where none was set.
pub(crate) fn linger2(wished: Option<Duration>, usual: Duration) -> i32 {
    match wished {
        Some(Duration::ZERO) => -1,
        wait => wait.unwrap_or(usual).as_secs() as i32,
    }
}

/// Changes the option that `name` is. `None`: it is none of these.
pub(crate) fn change(
    options: &mut SocketOptions,
    level: i32,
    name: i32,
    value: i32,
) -> Result<Option<()>> {
    match (level, name) {
        (abi::SOL_SOCKET, abi::SO_KEEPALIVE) => options.keepalive = value != 0,
        // As Linux, half of what is counted is for what surrounds the bytes; told is the whole (sock_setsockopt).
        (abi::SOL_SOCKET, abi::SO_RCVBUF) => options.receive_buffer = Some(half(value, 1_152)),
        (abi::SOL_SOCKET, abi::SO_SNDBUF) => options.send_buffer = Some(half(value, 2_304)),
        (abi::IPPROTO_IP, abi::IP_TTL) | (abi::IPPROTO_IPV6, abi::IPV6_UNICAST_HOPS) => {
            options.ttl = match value {
                -1 => None,
                _ => Some(ranged(value, 1, 255)? as u8),
            };
        }
        // The lower two bits are ECN's (__ip_sock_set_tos).
        (abi::IPPROTO_IP, abi::IP_TOS) | (abi::IPPROTO_IPV6, abi::IPV6_TCLASS) => {
            options.tos = value as u8 & !3;
        }
        (abi::SOL_TCP, abi::TCP_NODELAY) => options.nodelay = value != 0,
        (abi::SOL_TCP, abi::TCP_CORK) => options.cork = value != 0,
        (abi::SOL_TCP, abi::TCP_KEEPIDLE) => options.keepalive_idle = seconds(value)?,
        (abi::SOL_TCP, abi::TCP_KEEPINTVL) => options.keepalive_interval = seconds(value)?,
        (abi::SOL_TCP, abi::TCP_KEEPCNT) => {
            options.keepalive_count = ranged(value, 1, COUNT_MAX)? as u8;
        }
        (abi::SOL_TCP, abi::TCP_SYNCNT) => {
            options.syn_retries = Some(ranged(value, 1, COUNT_MAX)? as u8);
        }
        (abi::SOL_TCP, abi::TCP_USER_TIMEOUT) => {
            let ms = ranged(value, 0, i32::MAX)?;
            options.user_timeout = (ms > 0).then(|| Duration::from_millis(ms.into()));
        }
        (abi::SOL_TCP, abi::TCP_LINGER2) => {
            options.fin_wait_2 = match value {
                ..0 => Some(Duration::ZERO),
                0 => None,
                1.. => Some(Duration::from_secs(value.min(LINGER2_MAX) as u64)),
            };
        }
        (abi::SOL_TCP, abi::TCP_NOTSENT_LOWAT) => {
            options.not_sent_low = (value != 0).then_some(value as u32);
        }
        (abi::SOL_TCP, abi::TCP_WINDOW_CLAMP) => {
            options.window_clamp = (value != 0).then(|| value.max(CLAMP_MIN) as u32);
        }
        (abi::SOL_TCP, abi::TCP_MAXSEG) => {
            options.max_segment = match value {
                0 => None,
                _ => Some(ranged(value, 88, MAXSEG_MAX)? as u16),
            };
        }
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// The value of the option that `name` is, as `getsockopt` gives it.
pub(crate) fn value(options: &SocketOptions, level: i32, name: i32) -> Option<i32> {
    let doubled = |bytes: Option<u32>| {
        let whole = bytes.unwrap_or(0).saturating_mul(2);
        i32::try_from(whole).unwrap_or(i32::MAX)
    };
    Some(match (level, name) {
        (abi::SOL_SOCKET, abi::SO_KEEPALIVE) => i32::from(options.keepalive),
        (abi::SOL_SOCKET, abi::SO_RCVBUF) => doubled(options.receive_buffer),
        (abi::SOL_SOCKET, abi::SO_SNDBUF) => doubled(options.send_buffer),
        (abi::IPPROTO_IP, abi::IP_TTL) | (abi::IPPROTO_IPV6, abi::IPV6_UNICAST_HOPS) => {
            options.ttl.map_or(TTL_DEFAULT, i32::from)
        }
        (abi::IPPROTO_IP, abi::IP_TOS) | (abi::IPPROTO_IPV6, abi::IPV6_TCLASS) => {
            i32::from(options.tos)
        }
        (abi::SOL_TCP, abi::TCP_NODELAY) => i32::from(options.nodelay),
        (abi::SOL_TCP, abi::TCP_CORK) => i32::from(options.cork),
        (abi::SOL_TCP, abi::TCP_KEEPIDLE) => options.keepalive_idle.as_secs() as i32,
        (abi::SOL_TCP, abi::TCP_KEEPINTVL) => options.keepalive_interval.as_secs() as i32,
        (abi::SOL_TCP, abi::TCP_KEEPCNT) => i32::from(options.keepalive_count),
        (abi::SOL_TCP, abi::TCP_SYNCNT) => options.syn_retries.map_or(6, i32::from),
        (abi::SOL_TCP, abi::TCP_NOTSENT_LOWAT) => options.not_sent_low.unwrap_or(0) as i32,
        (abi::SOL_TCP, abi::TCP_WINDOW_CLAMP) => options.window_clamp.map_or(0, |n| n as i32),
        (abi::SOL_TCP, abi::TCP_USER_TIMEOUT) => options.user_timeout.map_or(0, |time| {
            i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
        }),
        _ => return None,
    })
}

/// TCP_CONGESTION by the names Linux uses.
pub(crate) fn algorithm(name: &[u8]) -> Result<CongestionControl> {
    let end = name.iter().position(|&byte| byte == 0);
    match &name[..end.unwrap_or(name.len())] {
        b"cubic" => Ok(CongestionControl::Cubic),
        b"reno" => Ok(CongestionControl::NewReno),
        _ => Err(Errno::ENOENT),
    }
}

/// The name of an algorithm, padded as Linux does (TCP_CA_NAME_MAX).
pub(crate) fn algorithm_name(algorithm: CongestionControl) -> [u8; 16] {
    let name: &[u8] = match algorithm {
        CongestionControl::Cubic => b"cubic",
        CongestionControl::NewReno => b"reno",
    };
    let mut padded = [0; 16];
    padded[..name.len()].copy_from_slice(name);
    padded
}

impl Sockets<'_> {
    /// Carries the descriptor's options to what it stands for.
    pub(crate) fn apply_options(&mut self, now: Instant, fd: i32) -> Result<()> {
        let socket = self.files.table.peek(fd)?;
        let (state, options) = (socket.state, socket.options.tcp);
        match state {
            State::Idle => {}
            State::Listening(listener) => self.stack.set_listener_options(listener, &options)?,
            State::Connecting(conn) | State::Connected(conn) => {
                self.stack.set_options(now, conn, &options)?;
            }
        }
        Ok(())
    }

    /// Returns SO_RCVBUF where none was set: the stack's buffer, given as Linux does, with the overhead around the
    /// bytes.
    pub(crate) fn receive_budget(&self, state: State) -> Result<i32> {
        let bytes = match state.connection() {
            Some(conn) => self.stack.info(conn)?.receive_buffer,
            None => self.stack.config().receive_buffer,
        };
        Ok(i32::try_from(bytes.saturating_mul(2)).unwrap_or(i32::MAX))
    }

    /// Returns SO_SNDBUF where none was set.
    pub(crate) fn send_budget(&self, state: State) -> Result<i32> {
        let bytes = match state.connection() {
            Some(conn) => self.stack.send_budget(conn)?,
            None => self.stack.config().send_buffer,
        };
        Ok(i32::try_from(bytes).unwrap_or(i32::MAX))
    }
}

/// `struct tcp_info` as far as Linux had it in 2.6.30, 104 bytes. What the engine does not keep is zero.
pub(crate) fn tcp_info(info: &Info) -> Vec<u8> {
    let mss = u32::from(info.mss).max(1);
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    let options = bit(info.timestamps, 1)
        | bit(info.sack, 2)
        | bit(info.window_scaling, 4)
        | bit(info.ecn, 8);
    let mut bytes = vec![
        kernel_state(info.state),
        if info.recovering { 3 } else { 0 },
        info.retries,
        info.probes,
        info.backoff,
        options,
        info.send_scale | info.receive_scale << 4,
        0,
    ];
    let threshold = match info.ssthresh {
        u32::MAX => 0x7fff_ffff,
        bytes => bytes / mss,
    };
    let words = [
        info.rto_us,
        0,
        mss,
        u32::from(info.receive_mss),
        info.unacked_segments,
        info.sacked_segments,
        info.lost_segments,
        info.resent_segments,
        0,
        0,
        0,
        info.silent_ms,
        info.silent_ms,
        u32::from(info.path_mtu),
        info.receive_window,
        info.srtt_us,
        info.rttvar_us,
        threshold,
        info.cwnd / mss,
        u32::from(info.receive_mss),
        3,
        0,
        info.receive_buffer,
        0,
    ];
    bytes.extend(words.into_iter().flat_map(u32::to_ne_bytes));
    bytes
}

/// Like [`tcp_info`], but of a socket without a connection: its state, and of a listener the length and the limit of
/// its accept queue.
pub(crate) fn tcp_info_without(state: i32, waiting: u32, most: u32) -> Vec<u8> {
    let mut bytes = vec![0; INFO_LEN];
    bytes[0] = state as u8;
    bytes[WAITING_AT..WAITING_AT + 4].copy_from_slice(&waiting.to_ne_bytes());
    bytes[WAITING_AT + 4..WAITING_AT + 8].copy_from_slice(&most.to_ne_bytes());
    bytes
}

/// The kernel's number of a state (include/net/tcp_states.h).
fn kernel_state(state: janus_tcp::State) -> u8 {
    use janus_tcp::State as S;
    match state {
        S::Established => 1,
        S::SynSent => 2,
        S::SynReceived => 3,
        S::FinWait1 => 4,
        S::FinWait2 => 5,
        S::TimeWait => 6,
        S::Closed => 7,
        S::CloseWait => 8,
        S::LastAck => 9,
        S::Closing => 11,
    }
}
