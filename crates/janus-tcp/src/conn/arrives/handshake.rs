//! Opening: the answer to our own SYN, SYNs that cross, and what both sides of the handshake share. RFC 9293 sections 3.10.7.3
//! and 3.10.7.4. The listening side is in `stack/input/passive.rs`.

use core::time::Duration;

use janus_mem::Frame;
use janus_wire::SeqNum;
use janus_wire::tcp::{Flags, Options};

use crate::congestion;
use crate::conn::Conn;
use crate::conn::loss::ecn;
use crate::rules::Rules;
use crate::store::cold::{EndReason, State, flag};
use crate::store::hot::hot_flag;
use crate::store::rto;
use crate::time::Instant;
use crate::wire::parse::Parsed;

/// Between a reset that ends the peer's old connection and our SYN again; Linux waits about as long.
const SYN_AFTER_RESET: Duration = Duration::from_millis(10);

impl Conn<'_> {
    /// The connection opens: its SYN, whose number is `iss`, goes out.
    pub(crate) fn open(&mut self, iss: SeqNum) {
        self.hot.sender.snd_una = iss;
        self.hot.set(hot_flag::SYN);
        self.queue();
    }

    /// The SYN-SENT state (section 3.10.7.3).
    /// Keeps 5961-5, MUST-10.
    pub(crate) fn syn_sent_arrives(&mut self, p: &Parsed, frame: &Frame) {
        let iss = self.tcb.snd_nxt + u32::MAX;
        // First, ACK: it can only be for our SYN.
        let acked = p.flags().contains(Flags::ACK);
        if acked && p.ack() != iss + 1 {
            if !p.flags().contains(Flags::RST) {
                self.reset_reply(p);
                self.repeat_syn_soon();
            }
            return;
        }
        // Second, RST: with a good ACK the peer refuses.
        if p.flags().contains(Flags::RST) {
            if acked {
                self.env.counters.resets_in += 1;
                self.end(EndReason::Refused);
            }
            return;
        }
        // Fourth, SYN.
        if !p.flags().contains(Flags::SYN) {
            return;
        }
        self.take_syn(p, frame);
        self.size_agreed();
        let block = &mut *self.hot;
        if acked {
            block.timers.due_at = Instant::NEVER;
            block.clear(hot_flag::SYN);
            block.set(hot_flag::ACK_NOW);
            let first_try = block.timers.backoff == 0;
            let window = congestion::first_window(block.timers.backoff);
            (block.timers.backoff, block.timers.retries) = (0, 0);
            let sent_us = core::mem::take(&mut block.timers.rtt_off_max);
            block.sender.snd_una = p.ack();
            let cold = &mut *self.tcb;
            cold.state = State::Established;
            cold.set_idle_window(window);
            if first_try {
                let rtt_us = self.env.now_us.wrapping_sub(sent_us);
                rto::sample(cold, rtt_us);
                block.note_rtt(rtt_us, self.env.now_ms);
            } else {
                rto::handshake_lost(cold);
            }
            let facts = &mut self.env.paths.facts;
            if facts.recall(&self.key.get(), self.tcb, self.rules, self.env.now) {
                self.env.counters.paths_recalled += 1;
            }
            self.begin_congestion_control();
            self.hot.sender.max_snd_wnd = self.tcb.snd_wnd();
            self.tcb.owe_timeout(self.rules);
            self.env.counters.connected += 1;
            self.wake_reader();
            self.wake_writer();
        } else {
            // SYNs crossed: answer with SYN-ACK and wait for the acknowledgement of ours.
            self.tcb.state = State::SynReceived;
            block.set(hot_flag::SYN);
            // The timer runs from here (RFC 6298 section 5.1).
            block.timers.due_at = Instant::NEVER;
        }
        self.queue();
    }

    /// The reset has ended what the peer still held under our numbers: the SYN that this stood in the way of goes out again
    /// (figure 9 of section 3.5.1), once, and not so soon that it could overtake the reset.
    fn repeat_syn_soon(&mut self) {
        if self.hot.timers.retries > 0 {
            return;
        }
        let (hot, soon) = (&mut *self.hot, self.env.now + SYN_AFTER_RESET);
        if hot.timers.due_at != Instant::NEVER && hot.timers.due_at > soon {
            hot.timers.due_at = soon;
        }
    }

    /// Takes over the options and numbers of the peer's SYN.
    /// Keeps 7323-1, 7323-14, 7323-3, 7323-5, 7323-9.
    fn take_syn(&mut self, p: &Parsed, frame: &Frame) {
        let options = p.all_options(frame);
        let profile = self.tcb.profile;
        let mss = self.rules.usable_mss(p.key(), &options, profile);
        let agreed = self.rules.agreed(&options) | ecn::agreed(self.rules.config(), p);
        let scale = self.rules.window_scale(profile);
        let window = u32::from(self.rules.first_window(profile));
        let cold = &mut *self.tcb;
        cold.rcv_nxt = p.seq() + 1;
        cold.rcv_adv = p.seq() + 1 + window;
        cold.mss = mss;
        cold.set_snd_wnd(u32::from(p.window()));
        cold.scales = options
            .window_scale
            .filter(|_| self.rules.config().window_scaling)
            .map_or(0, |peer| scale << 4 | peer.min(14));
        cold.clear(flag::TIMESTAMPS | flag::SACK | flag::ECN);
        cold.set(agreed);
        if let (true, Some((value, _))) = (cold.has(flag::TIMESTAMPS), options.timestamps) {
            cold.ts_recent = value;
        }
        self.tcb.hear_timeout(self.rules, options.user_timeout);
    }

    /// The peer's acknowledgement of our SYN in a simultaneous open.
    pub(crate) fn syn_received_acked(&mut self, p: &Parsed) -> bool {
        let cold = &mut *self.tcb;
        if p.ack() != cold.snd_nxt {
            self.reset_reply(p);
            return false;
        }
        cold.state = State::Established;
        // The window of a SYN is never scaled (RFC 7323 section 2.2).
        let scale = if p.flags().contains(Flags::SYN) {
            0
        } else {
            cold.send_scale()
        };
        cold.set_snd_wnd(u32::from(p.window()) << scale);
        let block = &mut *self.hot;
        block.sender.snd_una = p.ack();
        block.timers.due_at = Instant::NEVER;
        block.timers.rtt_off_max = 0;
        cold.set_idle_window(congestion::first_window(block.timers.backoff));
        (block.timers.backoff, block.timers.retries) = (0, 0);
        block.clear(hot_flag::SYN);
        block.sender.max_snd_wnd = cold.snd_wnd();
        self.begin_congestion_control();
        if self.tcb.has(flag::FIN_QUEUED) {
            // It was closed while it opened.
            self.tcb.state = State::FinWait1;
            self.queue();
        }
        self.tcb.owe_timeout(self.rules);
        self.env.counters.connected += 1;
        self.wake_reader();
        self.wake_writer();
        true
    }
}

impl Rules {
    /// Returns the options, of those a SYN can offer, that both sides use: bits of [`flag`].
    pub(crate) fn agreed(&self, offered: &Options) -> u8 {
        let bit = |both: bool, bit: u8| if both { bit } else { 0 };
        bit(
            self.config().timestamps && offered.timestamps.is_some(),
            flag::TIMESTAMPS,
        ) | bit(self.config().sack && offered.sack_permitted, flag::SACK)
    }
}
