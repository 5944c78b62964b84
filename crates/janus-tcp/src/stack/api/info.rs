//! A look at a connection from outside, as Linux's `tcp_info` gives it. What an idle connection keeps is exact; what lives
//! in the hot block is as of now, and zero without one. Nothing is counted over a connection's whole life (bytes
//! carried, segments sent again): an idle connection has no room for it.

use core::time::Duration;

use crate::store::cold::State;

/// A look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Its state.
    pub state: State,
    /// Smoothed round trip in microseconds; 0 = not measured.
    pub srtt_us: u32,
    /// Its variation.
    pub rttvar_us: u32,
    /// The retransmission timeout as it stands, backed off.
    pub rto_us: u32,
    /// How often it is doubled.
    pub backoff: u8,
    /// Timeouts in a row without progress.
    pub retries: u8,
    /// Window probes since the peer last answered.
    pub probes: u8,
    /// Congestion window in bytes.
    pub cwnd: u32,
    /// Slow-start threshold in bytes; `u32::MAX` = not known.
    pub ssthresh: u32,
    /// A loss is being repaired.
    pub recovering: bool,
    /// Payload per segment.
    pub mss: u16,
    /// The largest segment we ask the peer for.
    pub receive_mss: u16,
    /// The largest packet that the way to the peer is believed to carry.
    pub path_mtu: u16,
    /// Bytes received and not read.
    pub unread: u32,
    /// Bytes written and not sent.
    pub unsent: u32,
    /// Bytes sent and not acknowledged.
    pub in_flight: u32,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// Of these: those the peer says it has.
    pub sacked_segments: u32,
    /// Of these: those believed lost.
    pub lost_segments: u32,
    /// Of these: those sent more than once.
    pub resent_segments: u32,
    /// Both sides use timestamps.
    pub timestamps: bool,
    /// Both sides use selective acknowledgements.
    pub sack: bool,
    /// Both sides scale their windows.
    pub window_scaling: bool,
    /// Both sides speak ECN.
    pub ecn: bool,
    /// The shift of the peer's window.
    pub send_scale: u8,
    /// The shift of ours.
    pub receive_scale: u8,
    /// Bytes the peer may still send.
    pub receive_window: u32,
    /// Bytes we may have in flight by the peer's window.
    pub send_window: u32,
    /// Unread bytes that the connection may hold.
    pub receive_buffer: u32,
    /// Milliseconds since a segment last came in, at the latest time that the stack was told.
    pub silent_ms: u32,
    /// Idle peers are asked whether they are there.
    pub keepalive: bool,
    /// How long the connection is waited for when it gets nowhere. `None`: as long as retransmissions go on.
    pub user_timeout: Option<Duration>,
    /// User timeout that the peer has advertised (RFC 5482), rounded up and within our limits.
    pub peer_user_timeout: Option<Duration>,
    /// Holds a hot block.
    pub hot: bool,
}
