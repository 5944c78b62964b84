//! When received data is acknowledged: at once, or a little later, so that an answer can carry it (RFC 9293 section
//! 3.8.6.3, RFC 5681 section 4.2). The freedom that the rules leave is used as Linux does. What comes at the beginning, or
//! after a silence, is acknowledged at once, so that a sender in slow start need not wait; so is what came twice, and
//! what was marked. Where answers have followed data soon, the acknowledgement waits for the next.
//!
//! "At once" is at the end of the turn: an answer that the application gives by then carries the acknowledgement. What is
//! counted is in the hot block, and gone with it; an idle connection keeps whether it is interactive, and whether
//! data ever came. So a connection that is read to the end each time is judged as one that was silent: by whether
//! more than a retransmission timeout has passed.

use janus_wire::tcp::Flags;

use crate::conn::Conn;
use crate::rules::profile::DEFAULT;
use crate::store::arrivals::{PUSHED_ONE, QUICK_MAX};
use crate::store::cold::flag;
use crate::store::hot::{Hot, hot_flag};
use crate::store::rto;
use crate::time::Instant;
use crate::wire::parse::Parsed;

/// Like [`QUICK_MAX`], but after a congestion mark (tcp_ecn_check_ce).
pub(crate) const QUICK_AFTER_MARK: u32 = 2;
/// No acknowledgement waits longer (TCP_DELACK_MAX); half a second is MUST-40's.
const LONGEST_NS: u64 = 200_000_000;
/// The estimate of the time between segments goes no higher, as nothing waits so long.
const ESTIMATE_MAX_MS: u32 = 250;
/// An acknowledgement of everything received is on its way.
#[inline]
pub(crate) fn acknowledged(hot: &mut Hot) {
    hot.clear(hot_flag::ACK_NOW);
    hot.timers.ack_at = Instant::NEVER;
    if hot.receiver.unacked_bytes > 0 {
        hot.receiver.unacked_bytes = 0;
        hot.receiver.arrivals.counts = hot.receiver.arrivals.quick().saturating_sub(1);
    }
}

impl Conn<'_> {
    /// Acknowledges what was received, if the application has read it all.
    pub(crate) fn acknowledge_what_was_read(&mut self) {
        if self.hot.receiver.unacked_bytes > 0 && self.hot.receiver.inbox.is_empty() {
            self.acknowledge();
        }
    }

    /// The shortest time that an acknowledgement waits for company (TCP_ATO_MIN).
    #[inline]
    fn ato_least_ms(&self) -> u32 {
        self.rules
            .waits()
            .delayed_ack_ms()
            .clamp(1, ESTIMATE_MAX_MS)
    }

    /// Data came in order: what it says of when the next will come (tcp_event_data_recv).
    #[inline(always)]
    pub(crate) fn data_came(&mut self, p: &Parsed) {
        let least = self.ato_least_ms();
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        cold.set(flag::UNANSWERED);
        let (arrivals, now_ms) = (&mut hot.receiver.arrivals, self.env.now_ms);
        arrivals.mss = arrivals.mss.max(p.payload_len());
        if p.payload_len() < arrivals.mss || p.flags().contains(Flags::PSH) {
            arrivals.push();
        }
        let since = now_ms.wrapping_sub(arrivals.last_ms);
        arrivals.last_ms = now_ms;
        let ato = u32::from(arrivals.ato_ms);
        let is_first = !cold.has_received();
        if is_first || since > least {
            let rto_ms =
                (rto::timeout_ns(cold, self.rules.waits(), hot.timers.backoff) / 1_000_000) as u32;
            if is_first || since > rto_ms {
                // The sender may have begun anew, with a small window.
                arrivals.hurry(cold, QUICK_MAX);
                cold.set_received();
            }
        }
        if ato == 0 && p.flags().contains(Flags::PSH) {
            // The rest of the initial quick acknowledgements is not known any more. An end of a write gets the benefit of the doubt.
            arrivals.hurry(cold, 1);
        }
        let ato = match ato {
            0 => least,
            _ if since <= least / 2 => ato / 2 + least / 2,
            _ if since < ato => ato / 2 + since,
            _ => ato,
        };
        arrivals.ato_ms = ato.min(ESTIMATE_MAX_MS) as u8;
    }

    /// Data is to be acknowledged: now, or a little later (tcp_ack_snd_check).
    /// Keeps 5681-19, 5681-20, MUST-40, SHLD-18, SHLD-19.
    #[inline(always)]
    pub(crate) fn owe_ack(&mut self, p: &Parsed, len: u32) {
        self.data_came(p);
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        hot.receiver.unacked_bytes += len;
        let full = u32::from(cold.mss.saturating_sub(12));
        let quick = hot.receiver.arrivals.quick() > 0 && !cold.is_interactive();
        let more_than_one = hot.receiver.unacked_bytes > u32::from(hot.receiver.arrivals.mss);
        // PSH marks the end of a write; after any other full segment, more comes.
        let in_bulk = hot.receiver.unacked_bytes >= 2 * full
            || quick && len >= full && !p.flags().contains(Flags::PSH);
        if quick || more_than_one || self.acknowledges_all() {
            let first = !self.hot.has(hot_flag::ACK_NOW);
            self.hot.set(hot_flag::ACK_NOW);
            self.queue();
            if in_bulk && first {
                self.receives_in_bulk(p);
            }
        } else {
            self.delay_ack();
        }
    }

    /// The application wants all data of the connection acknowledged at once.
    #[inline]
    fn acknowledges_all(&self) -> bool {
        let profile = self.tcb.profile;
        profile != DEFAULT && self.rules.profiles().get(profile).quick_ack
    }

    /// The acknowledgement waits for company (tcp_send_delayed_ack).
    #[inline(always)]
    fn delay_ack(&mut self) {
        let waits = self.rules.waits();
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let mut wait_ns = waits.delayed_ack_ns();
        if u32::from(hot.receiver.arrivals.ato_ms) > waits.delayed_ack_ms() {
            wait_ns = (u64::from(hot.receiver.arrivals.ato_ms) * 1_000_000).min(LONGEST_NS);
            let srtt_ns = u64::from(cold.srtt_us()) * 1_000;
            if srtt_ns != 0 {
                wait_ns = wait_ns.min(srtt_ns.max(waits.delayed_ack_ns()));
            }
        }
        let at = self.env.now.after_nanos(wait_ns);
        if hot.timers.ack_at == Instant::NEVER {
            hot.timers.ack_at = at;
        } else if hot.timers.ack_at <= self.env.now.after_nanos(wait_ns / 4) {
            // It would be due at any moment.
            hot.set(hot_flag::ACK_NOW);
            self.queue();
        } else {
            hot.timers.ack_at = hot.timers.ack_at.min(at);
        }
    }

    /// The acknowledgement has waited in vain (tcp_delack_timer_handler): for longer next time, or, where answers used to
    /// come, no more.
    pub(crate) fn delayed_in_vain(&mut self) {
        let least = self.ato_least_ms() as u8;
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let arrivals = &mut hot.receiver.arrivals;
        if cold.is_interactive() {
            cold.set_interactive(false);
            arrivals.ato_ms = least;
        } else {
            let rto_ms =
                (rto::timeout_ns(cold, self.rules.waits(), hot.timers.backoff) / 1_000_000) as u32;
            let doubled = 2 * u32::from(arrivals.ato_ms);
            arrivals.ato_ms = doubled.min(rto_ms).min(ESTIMATE_MAX_MS) as u8;
        }
    }

    /// The application has read, which may be all that the peer waits for (tcp_cleanup_rbuf).
    #[inline]
    pub(crate) fn read_acknowledges(&self) -> bool {
        let (cold, hot) = (&*self.tcb, &*self.hot);
        if hot.receiver.unacked_bytes == 0 {
            return false;
        }
        let pushed = match hot.receiver.arrivals.pushed() {
            0 => false,
            PUSHED_ONE => !cold.is_interactive(),
            _ => true,
        };
        pushed && hot.receiver.inbox.is_empty()
    }

    /// New data leaves. When it follows what came soon enough, the connection is interactive (tcp_event_data_sent).
    #[inline]
    pub(crate) fn note_answer(&mut self) {
        let cold = &mut *self.tcb;
        if !cold.has(flag::UNANSWERED) {
            return;
        }
        cold.clear(flag::UNANSWERED);
        let arrivals = &self.hot.receiver.arrivals;
        let since = self.env.now_ms.wrapping_sub(arrivals.last_ms);
        let soon = match arrivals.ato_ms {
            0 => self.rules.waits().delayed_ack_ms(),
            ato => ato.into(),
        };
        if since < soon {
            cold.set_interactive(true);
        }
    }

    /// The next `most` segments, as far as the window goes, are acknowledged at once (tcp_enter_quickack_mode).
    pub(crate) fn acknowledge_quickly(&mut self, most: u32) {
        let least = self.ato_least_ms() as u8;
        let cold = &mut *self.tcb;
        cold.set_interactive(false);
        if cold.hot().is_some() {
            let arrivals = &mut self.hot.receiver.arrivals;
            arrivals.hurry(cold, most);
            arrivals.ato_ms = least;
        }
    }

    /// Something came that had been acknowledged.
    #[inline]
    pub(crate) fn acknowledge_repeats_quickly(&mut self) {
        self.acknowledge_quickly(QUICK_MAX);
    }
}
