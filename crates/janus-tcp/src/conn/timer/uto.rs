//! The user timeout option (RFC 5482): either end says how long it keeps a connection that gets nowhere, so that the
//! other can wait as long. Here: what is said and when (section 3), and what is made of what the peer says (section 3.1).
//! What the resulting timeout does is in `patience`; the bytes of the option are in `janus-wire`.
//!
//! It is off unless switched on. Of what the peer last said a connection keeps one of seven steps, in three bits that a
//! smoothed round trip leaves free; another says that the next segment is to carry the option. So a peer can
//! make a stack hold nothing by it.

use core::time::Duration;

use janus_mem::Frame;
use janus_wire::tcp::{Options, UserTimeout};

use crate::conn::Conn;
use crate::rules::Rules;
use crate::rules::config::Config;
use crate::rules::profile::{DEFAULT, SocketOptions};
use crate::store::cold::Tcb;
use crate::wire::parse::Parsed;

/// Timeout advertised where none was chosen: the global default of RFC 9293 section 3.9.1.1.
const ADVERTISED: Duration = Duration::from_secs(300);
/// Above the smoothed round trip, which takes 27 bits: what the peer said, whether data ever came
/// ([`crate::conn::receive::delayed_ack`]), and that the option is to be sent.
const SAID_SHIFT: u32 = 27;
const SAID: u32 = STEPS << SAID_SHIFT;
const RECEIVED: u32 = 1 << 30;
const DUE: u32 = 1 << 31;
const SMOOTHED: u32 = (1 << SAID_SHIFT) - 1;
/// Steps there are between the limits; 0 = the peer has said nothing.
const STEPS: u32 = 7;

impl Tcb {
    /// The smoothed round trip in microseconds; 0 = not measured (RFC 6298).
    #[inline]
    pub(crate) fn srtt_us(&self) -> u32 {
        self.srtt & SMOOTHED
    }

    #[inline]
    pub(crate) fn set_srtt_us(&mut self, srtt_us: u32) {
        debug_assert!(srtt_us <= SMOOTHED);
        self.srtt = self.srtt & !SMOOTHED | srtt_us;
    }

    /// Data has come.
    #[inline]
    pub(crate) fn has_received(&self) -> bool {
        self.srtt & RECEIVED != 0
    }

    #[inline]
    pub(crate) fn set_received(&mut self) {
        self.srtt |= RECEIVED;
    }

    /// The step that stands for REMOTE_UTO; 0 = the peer has said nothing.
    #[inline]
    fn peer_timeout(&self) -> u32 {
        (self.srtt & SAID) >> SAID_SHIFT
    }

    fn set_peer_timeout(&mut self, step: u32) {
        self.srtt = self.srtt & !SAID | step.min(STEPS) << SAID_SHIFT;
    }

    /// The next segment is to carry the option.
    #[inline]
    pub(crate) fn owes_timeout(&self) -> bool {
        self.srtt & DUE != 0
    }

    fn set_owes_timeout(&mut self, owes: bool) {
        self.srtt = self.srtt & !DUE | if owes { DUE } else { 0 };
    }
}

/// How long a step is: L_LIMIT, doubled from step to step, and no more than U_LIMIT.
fn step_time(step: u32, config: &Config) -> Duration {
    let least = config.uto_least.max(Duration::from_secs(1));
    let time = least.saturating_mul(1 << step.saturating_sub(1));
    time.min(config.uto_most)
}

/// The first step that is no shorter than what the peer said, or else the last: rounding up never ends a connection
/// earlier than both ends wished.
fn step_for(said: UserTimeout, config: &Config) -> u32 {
    let said = Duration::from_secs(said.as_secs().into());
    let mut steps = 1..STEPS;
    steps
        .find(|&step| step_time(step, config) >= said)
        .unwrap_or(STEPS)
}

/// ADV_UTO.
fn advertised(options: &SocketOptions) -> Duration {
    let chosen = options.uto.advertised.or(options.user_timeout);
    chosen.unwrap_or(ADVERTISED)
}

/// CHANGEABLE: a wish of the application's is not overridden by a peer (section 3).
/// Keeps 5482-1.
fn is_changeable(options: &SocketOptions) -> bool {
    let wished = options.uto.changeable;
    wished.unwrap_or(options.user_timeout.is_none())
}

impl Tcb {
    /// USER_TIMEOUT: how long the connection is waited for when it gets nowhere, if that is limited.
    /// Keeps 5482-5, 5482-6.
    #[inline]
    pub(crate) fn user_timeout(&self, rules: &Rules) -> Option<Duration> {
        if self.profile == DEFAULT && self.peer_timeout() == 0 {
            return None;
        }
        let options = rules.profiles().get(self.profile);
        let adopts = self.peer_timeout() != 0 && is_changeable(options);
        if !adopts || !rules.uses_uto(self.profile) {
            return options.user_timeout;
        }
        // Section 3.1: min(U_LIMIT, max(ADV_UTO, REMOTE_UTO, L_LIMIT)). A step is no less than L_LIMIT.
        let remote = step_time(self.peer_timeout(), rules.config());
        Some(advertised(options).max(remote).min(rules.config().uto_most))
    }

    /// REMOTE_UTO, rounded up and within the limits, as an application is told it.
    pub(crate) fn said_by_peer(&self, rules: &Rules) -> Option<Duration> {
        let step = self.peer_timeout();
        (step != 0).then(|| step_time(step, rules.config()))
    }

    /// The connection is open, or has a new timeout to tell of: the next segment says so (section 3).
    #[inline]
    pub(crate) fn owe_timeout(&mut self, rules: &Rules) {
        if rules.uses_uto(self.profile) {
            self.set_owes_timeout(true);
        }
    }

    /// The options of a connection, which were those of the set `old`, may tell the peer something else now.
    /// Keeps 5482-4.
    pub(crate) fn timeout_options_changed(&mut self, rules: &Rules, old: Option<UserTimeout>) {
        if rules.timeout_option(self.profile) != old {
            self.owe_timeout(rules);
        }
    }

    /// The peer has said something, on opening or since.
    #[inline]
    pub(crate) fn hear_timeout(&mut self, rules: &Rules, said: Option<UserTimeout>) {
        if let (Some(said), true) = (said, rules.uses_uto(self.profile)) {
            self.set_peer_timeout(step_for(said, rules.config()));
        }
    }

    /// An acceptable segment, which may carry the option.
    /// Keeps 5482-2.
    #[inline(always)]
    pub(crate) fn recv_uto_option(&mut self, rules: &Rules, p: &Parsed, frame: Option<&Frame>) {
        if !p.has_more_options() || !rules.uses_uto(self.profile) {
            return;
        }
        if let Some(frame) = frame {
            self.hear_timeout(rules, p.all_options(frame).user_timeout);
        }
    }

    /// The options that keep-alive goes by: where the user timeout option is used, it must not end what the user timeout
    /// would let live (section 4.2).
    /// Keeps 5482-10.
    pub(crate) fn keepalive_options(&self, rules: &Rules) -> SocketOptions {
        let options = *rules.profiles().get(self.profile);
        if !rules.uses_uto(self.profile) {
            return options;
        }
        let after = self.user_timeout(rules).unwrap_or(Duration::ZERO) + Duration::from_millis(1);
        SocketOptions {
            keepalive_idle: options.keepalive_idle.max(after),
            user_timeout: None,
            ..options
        }
    }
}

impl Conn<'_> {
    /// A segment with `len` bytes of data is about to leave, and the option is due: it goes with it if it fits and
    /// pushes out nothing else.
    /// Keeps 5482-3, 5482-7.
    pub(crate) fn add_uto_option(&mut self, len: u16, options: &mut Options) {
        let cold = &*self.tcb;
        let Some(timeout) = self.rules.timeout_option(cold.profile) else {
            self.tcb.set_owes_timeout(false);
            return;
        };
        let more = Options {
            user_timeout: Some(timeout),
            ..*options
        };
        let pushes_out = more.emitted_len() != options.emitted_len() + 4;
        if !pushes_out && more.emitted_len() + usize::from(len) <= usize::from(cold.mss) {
            *options = more;
            self.tcb.set_owes_timeout(false);
        }
    }

    /// Whether the next data is too large to have the option beside it, so that an acknowledgement has to carry it.
    pub(crate) fn timeout_needs_ack(&self) -> bool {
        let head = self.hot.sender.unsent.head;
        let full = self.tcb.payload_mss();
        head.is_some() && self.blocks.segments[head].len.saturating_add(4) > full
    }
}

impl Rules {
    /// ENABLED, for connections with this set of options.
    #[inline]
    pub(crate) fn uses_uto(&self, profile: u8) -> bool {
        if profile == DEFAULT {
            return self.config().uto;
        }
        let wished = self.profiles().get(profile).uto.enabled;
        wished.unwrap_or(self.config().uto)
    }

    /// The option as connections with this set of options send it, if they do.
    pub(crate) fn timeout_option(&self, profile: u8) -> Option<UserTimeout> {
        if !self.uses_uto(profile) {
            return None;
        }
        let time = advertised(self.profiles().get(profile));
        let secs = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        Some(UserTimeout::from_secs(
            u32::try_from(secs).unwrap_or(u32::MAX),
        ))
    }

    /// The option in the first SYN or SYN-ACK. A repeat goes without: some boxes on the way drop what they do not know
    /// (section 4.1), and the first segment without SYN says it in any case.
    #[inline]
    pub(crate) fn timeout_in_syn(&self, profile: u8, repeats: u8) -> Option<UserTimeout> {
        (repeats == 0)
            .then(|| self.timeout_option(profile))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_lie_between_the_limits() {
        let config = Config::default();
        let (least, most) = (config.uto_least, config.uto_most);
        assert_eq!(step_time(1, &config), least);
        assert_eq!(step_time(2, &config), least * 2);
        assert_eq!(step_time(7, &config), most);
        for secs in 1..=UserTimeout::LONGEST_SECS.min(10_000) {
            let said = Duration::from_secs(secs.into());
            let kept = step_time(step_for(UserTimeout::from_secs(secs), &config), &config);
            assert!(kept >= said.clamp(least, most), "{secs} s become {kept:?}");
            assert!(kept <= (said * 2).clamp(least, most), "{secs} s");
        }
        let most_said = UserTimeout::from_secs(u32::MAX);
        assert_eq!(step_time(step_for(most_said, &config), &config), most);
    }

    #[test]
    fn a_round_trip_and_what_the_peer_said_share_a_word() {
        let mut cold = Tcb::default();
        cold.set_srtt_us(120_000_000);
        cold.set_peer_timeout(7);
        cold.set_received();
        cold.set_owes_timeout(true);
        assert_eq!((cold.srtt_us(), cold.peer_timeout()), (120_000_000, 7));
        cold.set_srtt_us(1);
        cold.set_owes_timeout(false);
        assert_eq!((cold.srtt_us(), cold.peer_timeout()), (1, 7));
        assert!(!cold.owes_timeout() && cold.has_received());
        cold.set_peer_timeout(3);
        assert_eq!((cold.srtt_us(), cold.peer_timeout()), (1, 3));
    }
}
