//! Segment sizes when a path turns out to carry less, or more, than was agreed: the connection's size follows the path,
//! segments already cut too large are cut again, and silent paths are tried with one larger segment at a time.
//! What is known of paths is in `pmtu`. None of this is on the way of a segment that fits.
//!
//! While a connection has a hot block `Cold::mss` is the size it uses and `Hot::mss_full` what the peer agreed to; when
//! the block goes the latter is put back, and the path is asked again when the next block comes.

use std::net::IpAddr;

use janus_wire::SeqNum;

use crate::conn::Conn;
use crate::rules::interface::LEAST_SEGMENT;
use crate::store::cold::flag;
use crate::store::hot::{Hot, hot_flag};
use crate::store::keys::SegId;
use crate::store::paths::PathKnowledge;
use crate::store::segment::{PAYLOAD_MAX, seg_flag};
use crate::time::Instant;

/// Timeouts in a row of a full-sized segment after which a silent path is suspected (RFC 4821 section 7.7).
const SUSPICIOUS_TIMEOUTS: u8 = 2;

/// Bytes of an IP packet that an MSS does not count: the fixed headers.
fn fixed_headers(peer: IpAddr) -> u16 {
    match peer {
        IpAddr::V4(_) => 40,
        IpAddr::V6(_) => 60,
    }
}

impl Conn<'_> {
    fn peer_of(&self) -> IpAddr {
        self.key.get().peer()
    }

    /// The IP packet that a segment with so much payload is, as long as it carries no more options than usual.
    pub(crate) fn packet_len(&self, payload: u16) -> u16 {
        let cold = &*self.tcb;
        let options = cold.mss - cold.payload_mss().min(cold.mss);
        let headers = fixed_headers(self.peer_of()) + options;
        payload.saturating_add(headers)
    }

    /// The peer's SYN has said what it takes, while the hot block is there already.
    pub(crate) fn size_agreed(&mut self) {
        self.hot.sender.mss_full = self.tcb.mss;
        if !self.env.paths.sizes.is_empty() {
            self.fit_to_path();
        }
    }

    /// The size in use is what was agreed, or less if the path is known to carry less.
    pub(crate) fn fit_to_path(&mut self) {
        self.tcb.mss = self.fitting_size();
    }

    /// The largest segment that the path is known to carry, of those that were agreed.
    pub(crate) fn fitting_size(&self) -> u16 {
        let agreed = self.hot.sender.mss_full;
        let paths = &self.env.paths;
        paths.size_on_path(self.key.get().peer(), agreed, self.env.now)
    }

    /// The path is known to carry less: all in flight that does not fit is cut and sent again. The congestion window
    /// stays; the network is not congested (RFC 1191 section 6.4).
    pub(crate) fn path_shrank(&mut self) {
        self.fit_to_path();
        let most = self.tcb.payload_mss();
        if self.tcb.has(flag::SACK) {
            // No matter if there is no memory for it: what is lost is sent again all the same.
            self.attach_recovery();
        }
        let mut at = self.hot.sender.flight.head;
        while at.is_some() {
            let seg = &self.blocks.segments[at];
            if seg.len > most && !seg.has(seg_flag::LOST | seg_flag::SACKED) {
                self.mark_lost(at);
            }
            at = self.blocks.segments[at].next;
        }
        self.queue();
    }

    /// Cuts a segment of `flight` that does not fit the path, before it is sent again. The rest is behind it and counts
    /// as lost too. False when there is no buffer for that: then nothing is sent.
    pub(crate) fn cut_before_resend(&mut self, at: Option<SegId>) -> bool {
        if at == self.hot.path.probe {
            self.probe_lost();
        }
        let most = self.tcb.payload_mss();
        let flight = &mut self.hot.sender.flight;
        let len = self.blocks.segments[at].len;
        if len <= most {
            return true;
        }
        // Whoever has the path shrink again and again by little must not leave us with a buffer for every few bytes.
        let rest = len % most;
        let first = match rest > 0 && rest < most / 4 {
            true => len.div_ceil(len.div_ceil(most)),
            false => most,
        };
        let cut = self
            .blocks
            .segments
            .split(flight, at, first, &mut self.blocks.pool);
        match cut {
            None => self.wait_for_buffer(),
            Some(rest) => {
                self.env.counters.segments_cut += 1;
                self.note_cut(rest);
            }
        }
        cut.is_some()
    }

    /// Cuts the first unsent segment to what fits the path. A probe is meant to be too large. False when there is no
    /// buffer for that: then nothing is sent.
    pub(crate) fn cut_before_send(&mut self, at: Option<SegId>) -> bool {
        let most = self.tcb.payload_mss();
        at == self.hot.path.probe || self.cut_unsent(at, most)
    }

    /// Cuts an unsent segment after `len` bytes. False when there is no buffer for the rest: then the connection waits for
    /// one, with a timer.
    pub(crate) fn cut_unsent(&mut self, at: Option<SegId>, len: u16) -> bool {
        let unsent = &mut self.hot.sender.unsent;
        let cut = self
            .blocks
            .segments
            .split(unsent, at, len, &mut self.blocks.pool);
        match cut {
            None => self.wait_for_buffer(),
            Some(_) => self.env.counters.segments_cut += 1,
        }
        cut.is_some()
    }

    /// The retransmission timer has fired again. Large segments that vanish, and no word from any router: perhaps only
    /// their size is wrong (RFC 4821 section 7.7; RFC 8899's black hole). They need not be full: a piece of a write may
    /// be too large for the path all the same.
    pub(crate) fn suspect_path(&mut self) {
        let hot = &*self.hot;
        let head = hot.sender.flight.head;
        let suspicious =
            self.rules.config().mtu_probing && hot.timers.retries >= SUSPICIOUS_TIMEOUTS;
        if !suspicious || head.is_none() {
            return;
        }
        let lost = self.packet_len(self.blocks.segments[head].len);
        let peer = self.peer_of();
        if self
            .env
            .paths
            .sizes
            .silent(peer, lost, self.env.now)
            .is_some()
        {
            self.env.counters.black_holes += 1;
            self.fit_to_path();
        }
    }

    /// A writer's connection uses less than was agreed: perhaps what was known of the path is forgotten by now; or a
    /// probe is due, and there are bytes enough for one. Gives how many it took.
    #[cold]
    pub(crate) fn write_probe(&mut self, bytes: &[u8]) -> usize {
        self.fit_to_path();
        let (cold, hot) = (&*self.tcb, &*self.hot);
        let busy =
            hot.path.probe.is_some() || hot.timers.retries > 0 || hot.has(hot_flag::RECOVERY);
        if busy || cold.mss == hot.sender.mss_full {
            return 0;
        }
        let peer = self.peer_of();
        let full = hot.sender.mss_full + fixed_headers(peer);
        let Some(size) = self.env.paths.sizes.probe_due(peer, full, self.env.now) else {
            return 0;
        };
        let headers = self.packet_len(0);
        let len = usize::from(size.saturating_sub(headers).min(PAYLOAD_MAX));
        let Some(payload) = bytes.get(..len).filter(|payload| !payload.is_empty()) else {
            return 0;
        };
        let Some((seg, taken)) = self.queue_segment(payload) else {
            return 0;
        };
        if taken < len {
            return taken;
        }
        let hot = &mut *self.hot;
        (hot.path.probe, hot.path.probe_size, hot.path.probe_out) = (Some(seg), size, false);
        self.env.counters.path_probes += 1;
        len
    }

    /// All before `ack` has arrived, and a probe is out: was it among that?
    #[cold]
    pub(crate) fn probe_acknowledged(&mut self) {
        let hot = &mut *self.hot;
        if (hot.sender.snd_una - hot.path.probe_end) < 0 {
            return;
        }
        let size = hot.path.probe_size;
        hot.forget_probe();
        let peer = self.peer_of();
        self.env
            .paths
            .sizes
            .probe_arrived(peer, size, self.rules.interface().mtu, self.env.now);
        self.fit_to_path();
    }

    fn probe_lost(&mut self) {
        let size = self.hot.path.probe_size;
        self.hot.forget_probe();
        let peer = self.peer_of();
        self.env.paths.sizes.probe_lost(peer, size, self.env.now);
    }
}

impl PathKnowledge {
    /// How much of an MSS of `full` the path lets through, as far as is known.
    pub(crate) fn size_on_path(&self, peer: IpAddr, full: u16, now: Instant) -> u16 {
        match self.sizes.mtu(peer, now) {
            Some(mtu) => full.min(mtu.saturating_sub(fixed_headers(peer)).max(LEAST_SEGMENT)),
            None => full,
        }
    }
}

impl Hot {
    /// The segment before `end` goes out larger than the path is known to carry.
    #[cold]
    pub(crate) fn probe_leaves(&mut self, end: SeqNum) {
        self.path.probe_end = end;
        self.path.probe_out = true;
    }

    /// No probe of the path is on its way.
    pub(crate) fn forget_probe(&mut self) {
        self.path.probe = None;
        self.path.probe_out = false;
    }
}
