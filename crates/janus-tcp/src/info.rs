//! A look at a connection from outside, as Linux's `tcp_info` gives it. What an idle connection keeps is exact; what lives
//! in the hot block is as of now, and zero without one. Nothing is counted over a connection's whole life (bytes
//! carried, segments sent again): an idle connection has no room for it.

use core::time::Duration;

use crate::cold::{NONE, State, flag};
use crate::error::Error;
use crate::hot::hot_flag;
use crate::rto;
use crate::segment::seg_flag;
use crate::stack::{ConnId, Stack};

/// A look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Stack {
    /// A look at the connection.
    pub fn info(&self, id: ConnId) -> Result<Info, Error> {
        let conn = self.conn(id)?;
        let tuned = self.view(conn).map(|view| view.receive_buffer());
        let cold = &self.store.tcbs[conn];
        let key = self.store.tcbs.key(conn);
        let options = cold.mss.saturating_sub(cold.payload_mss());
        let on_path = self.paths.size_on_path(key.peer(), cold.mss, self.now);
        let mss = on_path - options;
        let hot = (cold.hot != NONE).then(|| &self.store.hot[cold.hot]);
        let idle_cwnd = cold.idle_window() * u32::from(mss);
        let threshold = cold.idle_threshold();
        let idle_ssthresh = threshold.map_or(u32::MAX, |segments| segments * u32::from(mss));
        let backoff = hot.map_or_else(|| rto::kept_backoff(cold), |h| h.timers.backoff);
        let timeout = rto::timeout(cold, &self.rules.config, backoff).as_micros();
        let marked = |flag: u8| self.count_in_flight(cold.hot, flag);
        let live = cold.state != State::Closed;
        Ok(Info {
            state: cold.state,
            srtt_us: cold.srtt_us(),
            rttvar_us: rto::variation(cold),
            rto_us: u32::try_from(timeout).unwrap_or(u32::MAX),
            backoff,
            retries: hot.map_or(0, |h| h.timers.retries),
            probes: hot.map_or(0, |h| h.timers.probes),
            cwnd: hot.map_or(idle_cwnd, |h| h.congestion.cwnd),
            ssthresh: hot.map_or(idle_ssthresh, |h| h.congestion.ssthresh),
            recovering: hot.is_some_and(|h| h.has(hot_flag::RECOVERY)),
            mss,
            receive_mss: self.rules.largest_segment(&key, cold.profile),
            path_mtu: on_path.saturating_add(if key.is_v6() { 60 } else { 40 }),
            unread: hot.map_or(0, |h| h.receiver.inbox.bytes),
            unsent: hot.map_or(0, |h| h.sender.unsent.bytes),
            in_flight: hot.map_or(0, |h| h.sender.flight.bytes),
            unacked_segments: hot.map_or(0, |h| h.sender.flight.count),
            sacked_segments: marked(seg_flag::SACKED),
            lost_segments: marked(seg_flag::LOST),
            resent_segments: marked(seg_flag::RESENT),
            timestamps: cold.has(flag::TIMESTAMPS),
            sack: live && cold.has(flag::SACK),
            window_scaling: cold.scales != 0,
            ecn: live && cold.has(flag::ECN),
            send_scale: cold.send_scale(),
            receive_scale: cold.receive_scale(),
            receive_window: cold.receive_window(),
            send_window: cold.snd_wnd(),
            receive_buffer: tuned.unwrap_or_else(|| {
                let rules = &self.rules;
                rules.profiles.receive_buffer(cold.profile, &rules.config)
            }),
            silent_ms: (self.now.as_millis() as u32).wrapping_sub(cold.last_heard_ms),
            keepalive: self.rules.profiles.get(cold.profile).keepalive,
            user_timeout: cold.user_timeout(&self.rules),
            peer_user_timeout: cold.said_by_peer(&self.rules),
            hot: hot.is_some(),
        })
    }

    /// Segments in flight that have a mark. Goes over all of them: this is for those who look, not for the engine.
    fn count_in_flight(&self, hot: u32, flag: u8) -> u32 {
        if hot == NONE {
            return 0;
        }
        let (mut at, mut count) = (self.store.hot[hot].sender.flight.head, 0);
        while at != NONE {
            count += u32::from(self.store.blocks.segments[at].has(flag));
            at = self.store.blocks.segments[at].next;
        }
        count
    }
}
