//! Socket options, interned: few connections differ in them, so a connection keeps one byte that names its set, and a
//! set is kept once for all that have it. Which calls change them is in `options`; what an option does, where it
//! does it.

use core::time::Duration;

use crate::coded::coded;
use crate::congestion::CongestionControl;
use crate::rules::config::Config;
use crate::rules::error::Error;

/// The longest wait, which Linux bounds so too (TCP_FIN_TIMEOUT_MAX).
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(120);
/// The set of the stack's defaults, which every connection begins with and which is never counted.
pub(crate) const DEFAULT: u8 = 0;
/// Sets there can be at a time, beside the defaults: what a byte can name.
pub const MAX_OPTION_SETS: usize = 255;
/// Time to live, or hop limit, of those who wish nothing.
pub(crate) const TTL: u8 = 64;
/// The smallest `max_segment`, as in Linux (TCP_MIN_MSS).
const LEAST_MAX_SEGMENT: u16 = 88;
/// Longest time an option can name; the stamps of idle connections go round after 49 days.
const LONGEST: Duration = Duration::from_secs(24 * 24 * 3_600);

/// Options that an application can set for a connection, or for those that a listener will accept. Connections with equal
/// options share one copy of them; a stack holds [`MAX_OPTION_SETS`] different sets.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// No waiting with small segments while others are unacknowledged: Nagle's algorithm is off (MUST-17).
    pub nodelay: bool,
    /// Only full segments leave, until this is taken back, for about 200 ms (Linux: TCP_CORK).
    pub cork: bool,
    /// All data is acknowledged at once.
    pub quick_ack: bool,
    /// Closing is a reset, and what was not sent is dropped: SO_LINGER with a time of zero.
    pub reset_on_close: bool,
    /// How long a connection that its owner has let go of waits for the peer's FIN, in whole seconds up to 120 (Linux: TCP_LINGER2).
    /// `None`: as configured. Zero: not at all, it ends with a reset when its own FIN is acknowledged (Linux: a negative one).
    pub fin_wait_2: Option<Duration>,
    /// Nothing will be read any more: data that comes once our FIN is out is answered with a reset (RFC 9293 section 3.6.1,
    /// SHLD-3), as it is when the owner has let go. Before, it is taken like any (Linux: SHUT_RD).
    pub read_shut: bool,
    /// Ask an idle peer whether it is still there (RFC 9293 section 3.8.4). Off by default (MUST-25).
    pub keepalive: bool,
    /// How long nothing must have come before the first question (MUST-28: two hours by default).
    pub keepalive_idle: Duration,
    /// How long an answer is waited for before the next question.
    pub keepalive_interval: Duration,
    /// Questions without any answer that mean the peer is gone (MUST-29: one is not enough to say so).
    pub keepalive_count: u8,
    /// How long data may stay unacknowledged, or the peer's window shut, before the connection is given up (RFC 5482);
    /// then the number of retransmissions does not count. `None`: it does.
    pub user_timeout: Option<Duration>,
    /// The user timeout option, which tells the peer and hears from it (RFC 5482).
    pub uto: Uto,
    /// A connection on which nothing came for so long is ended.
    pub idle_timeout: Option<Duration>,
    /// A reader that waits is woken, although nothing can be read, when no segment came for so long; again after each further
    /// eighth of it, and at least once in each such time whatever came. The reader finds nothing and looks at its own clock:
    /// a bound on waiting that needs no timer. `None`: only what there is to read wakes.
    pub wake_reader: Option<Duration>,
    /// How often our SYN is repeated before an active open is given up. `None`: as configured.
    pub syn_retries: Option<u8>,
    /// Largest segment sent or asked for; counts in the handshake.
    pub max_segment: Option<u16>,
    /// Unread bytes the connection may hold. A size given here is kept: nothing tunes it.
    pub receive_buffer: Option<u32>,
    /// Unsent and unacknowledged bytes the connection may hold. A size given here is kept: nothing tunes it.
    pub send_buffer: Option<u32>,
    /// No more than so much unsent is taken. `None`: as configured (Linux: TCP_NOTSENT_LOWAT).
    pub not_sent_low: Option<u32>,
    /// No larger window is offered than this (Linux: TCP_WINDOW_CLAMP).
    pub window_clamp: Option<u32>,
    /// Congestion control. `None`: as configured.
    pub congestion: Option<CongestionControl>,
    /// Time to live, or hop limit, of its packets. `None`: 64.
    pub ttl: Option<u8>,
    /// The upper six bits of its packets' type of service, or traffic class (DSCP); the lower two are ECN's.
    pub tos: u8,
}

coded!(SocketOptions {
    nodelay,
    cork,
    quick_ack,
    reset_on_close,
    fin_wait_2,
    read_shut,
    keepalive,
    keepalive_idle,
    keepalive_interval,
    keepalive_count,
    user_timeout,
    uto,
    idle_timeout,
    wake_reader,
    syn_retries,
    max_segment,
    receive_buffer,
    send_buffer,
    not_sent_low,
    window_clamp,
    congestion,
    ttl,
    tos
});

impl Default for SocketOptions {
    /// Keeps MUST-25, MUST-28.
    fn default() -> SocketOptions {
        SocketOptions {
            nodelay: false,
            cork: false,
            quick_ack: false,
            reset_on_close: false,
            fin_wait_2: None,
            read_shut: false,
            keepalive: false,
            keepalive_idle: Duration::from_secs(7_200),
            keepalive_interval: Duration::from_secs(75),
            keepalive_count: 9,
            user_timeout: None,
            uto: Uto::default(),
            idle_timeout: None,
            wake_reader: None,
            syn_retries: None,
            max_segment: None,
            receive_buffer: None,
            send_buffer: None,
            not_sent_low: None,
            window_clamp: None,
            congestion: None,
            ttl: None,
            tos: 0,
        }
    }
}

impl SocketOptions {
    /// Refuses what means nothing.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let time = |t: Duration| !t.is_zero() && t <= LONGEST;
        let sound = time(self.keepalive_idle)
            && time(self.keepalive_interval)
            && self.keepalive_count > 0
            && self.fin_wait_2.is_none_or(|wait| wait <= LINGER_MAX)
            && self.user_timeout.is_none_or(time)
            && self.uto.advertised.is_none_or(time)
            && self.idle_timeout.is_none_or(time)
            && self.wake_reader.is_none_or(time)
            && self.syn_retries != Some(0)
            && self.max_segment.is_none_or(|mss| mss >= LEAST_MAX_SEGMENT)
            && self.receive_buffer != Some(0)
            && self.window_clamp != Some(0)
            && self.send_buffer != Some(0)
            && self.ttl != Some(0)
            && self.tos & 3 == 0;
        sound.then_some(()).ok_or(Error::InvalidOption)
    }

    /// Idle connections with these options must be looked at from time to time.
    pub(crate) fn wants_sweep(&self) -> bool {
        self.keepalive || self.idle_timeout.is_some() || self.wake_reader.is_some()
    }
}

/// One set and how many connections and listeners have it.
struct Slot {
    options: SocketOptions,
    holders: u32,
    /// All that it says beside the defaults is when a reader is woken.
    of_reader: bool,
}

impl Slot {
    fn of(options: SocketOptions) -> Slot {
        let defaults = SocketOptions::default();
        let wake_reader = options.wake_reader;
        Slot {
            options,
            holders: 0,
            of_reader: options
                == SocketOptions {
                    wake_reader,
                    ..defaults
                },
        }
    }
}

/// The sets of a stack. Their number is small, and so is that of the places looked at to find one.
pub(crate) struct Profiles {
    /// The first is the defaults.
    slots: Vec<Slot>,
    /// Connections whose options want them swept.
    swept: usize,
    /// The last change of one option that connections change one by one.
    latest: Option<Change>,
}

/// A set, one with another [`SocketOptions::wake_reader`], and that.
#[derive(Clone, Copy)]
struct Change {
    from: u8,
    wake_reader: Option<Duration>,
    to: u8,
}

impl Profiles {
    pub(crate) fn new() -> Profiles {
        Profiles {
            slots: vec![Slot::of(SocketOptions::default())],
            swept: 0,
            latest: None,
        }
    }

    #[inline]
    pub(crate) fn get(&self, profile: u8) -> &SocketOptions {
        &self.slots[usize::from(profile)].options
    }

    /// Whether a connection without a reader is like one with the defaults.
    #[inline(always)]
    pub(crate) fn is_of_reader(&self, profile: u8) -> bool {
        profile == DEFAULT || self.slots[usize::from(profile)].of_reader
    }

    /// Time to live and type of service of a packet.
    #[inline]
    pub(crate) fn ip(&self, profile: u8) -> (u8, u8) {
        if profile == DEFAULT {
            return (TTL, 0);
        }
        let options = self.get(profile);
        (options.ttl.unwrap_or(TTL), options.tos)
    }

    /// Returns the algorithm that controls a connection's congestion.
    #[inline]
    pub(crate) fn congestion(&self, profile: u8, config: &Config) -> CongestionControl {
        self.get(profile).congestion.unwrap_or(config.congestion)
    }

    /// Unread bytes that a connection may hold.
    #[inline]
    pub(crate) fn receive_buffer(&self, profile: u8, config: &Config) -> u32 {
        if profile == DEFAULT {
            return config.receive_buffer;
        }
        let options = self.get(profile);
        let buffer = options.receive_buffer.unwrap_or(config.receive_buffer);
        buffer.min(options.window_clamp.unwrap_or(buffer))
    }

    /// Connections that the sweep is for.
    #[inline]
    pub(crate) fn swept(&self) -> usize {
        self.swept
    }

    /// The set with these options, held once more.
    pub(crate) fn intern(&mut self, options: &SocketOptions) -> Result<u8, Error> {
        options.check()?;
        // Each connection has a bit of its own for this one.
        let options = SocketOptions {
            nodelay: false,
            ..*options
        };
        if options == self.slots[0].options {
            return Ok(DEFAULT);
        }
        let held = |slot: &Slot| slot.holders > 0;
        let others = self.slots.iter().enumerate().skip(1);
        let equal = others
            .clone()
            .find(|(_, slot)| held(slot) && slot.options == options);
        let free = || others.clone().find(|(_, slot)| !held(slot));
        let at = match equal.or_else(free) {
            Some((at, _)) => at,
            None if self.slots.len() <= MAX_OPTION_SETS => {
                self.slots.push(Slot::of(options));
                self.slots.len() - 1
            }
            None => return Err(Error::TooManyOptionSets),
        };
        if self.slots[at].holders == 0 {
            // Its number may have had another meaning.
            self.latest = None;
            self.slots[at] = Slot::of(options);
        }
        self.slots[at].holders += 1;
        Ok(at as u8)
    }

    /// Returns the set that is `profile` but for its [`SocketOptions::wake_reader`], held once more. Nearly all who ask make the
    /// change that was made last.
    pub(crate) fn with_wake_reader(
        &mut self,
        profile: u8,
        wake_reader: Option<Duration>,
    ) -> Result<u8, Error> {
        if let Some(latest) = self.latest
            && (latest.from, latest.wake_reader) == (profile, wake_reader)
        {
            self.hold(latest.to);
            return Ok(latest.to);
        }
        let options = SocketOptions {
            wake_reader,
            ..*self.get(profile)
        };
        let to = self.intern(&options)?;
        self.latest = Some(Change {
            from: profile,
            wake_reader,
            to,
        });
        Ok(to)
    }

    /// The set is held once more.
    pub(crate) fn hold(&mut self, profile: u8) {
        if profile != DEFAULT {
            self.slots[usize::from(profile)].holders += 1;
        }
    }

    /// The set is held once less.
    pub(crate) fn let_go(&mut self, profile: u8) {
        if profile != DEFAULT {
            self.slots[usize::from(profile)].holders -= 1;
        }
    }

    /// A connection has the set from now on. Who gives it holds it already.
    pub(crate) fn joined(&mut self, profile: u8) {
        self.swept += usize::from(self.get(profile).wants_sweep());
    }

    /// A connection does not have the set any more; it is still held.
    pub(crate) fn left(&mut self, profile: u8) {
        self.swept -= usize::from(self.get(profile).wants_sweep());
    }
}

/// Flags of a write.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// More will follow soon: a segment that is not full waits for it, for about 200 ms or until the peer says something
    /// (Linux: MSG_MORE).
    pub more: bool,
    /// A record ends here: what is written later does not join its last segment (Linux: MSG_EOR).
    pub end_of_record: bool,
    /// All that is queued up to here is urgent (RFC 9293 section 3.8.5).
    pub urgent: bool,
}

/// Use of the user timeout option by a connection. The names in capitals are those of RFC 5482 section 3.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uto {
    /// ENABLED: the option is sent, and heeded when it comes. `None`: as configured.
    pub enabled: Option<bool>,
    /// ADV_UTO: what the peer is told. `None`: the connection's user timeout or, when it has none, five minutes.
    pub advertised: Option<Duration>,
    /// CHANGEABLE: what the peer says may become the connection's user timeout. `None`: unless the application has chosen
    /// one.
    pub changeable: Option<bool>,
}

coded!(Uto {
    enabled,
    advertised,
    changeable
});

#[cfg(test)]
mod tests {
    use super::*;

    fn with_ttl(ttl: u8) -> SocketOptions {
        SocketOptions {
            ttl: Some(ttl),
            ..SocketOptions::default()
        }
    }

    #[test]
    fn a_set_is_the_readers_alone_if_it_says_nothing_else() {
        let mut profiles = Profiles::new();
        assert!(profiles.is_of_reader(DEFAULT));
        let waking = SocketOptions {
            wake_reader: Some(Duration::from_secs(1)),
            ..SocketOptions::default()
        };
        let alone = profiles.intern(&waking).expect("a place");
        assert!(profiles.is_of_reader(alone));
        profiles.let_go(alone);
        // In the same place.
        let ttl = Some(9);
        let both = profiles.intern(&SocketOptions { ttl, ..waking });
        assert_eq!(both, Ok(alone));
        assert!(!profiles.is_of_reader(alone));
    }

    #[test]
    fn equal_options_are_kept_once_and_the_defaults_never() {
        let mut profiles = Profiles::new();
        let plain = SocketOptions {
            nodelay: true,
            ..SocketOptions::default()
        };
        assert_eq!(profiles.intern(&plain), Ok(DEFAULT));
        let first = profiles.intern(&with_ttl(1)).expect("a place");
        assert_eq!(profiles.intern(&with_ttl(1)), Ok(first));
        let second = profiles.intern(&with_ttl(2)).expect("a place");
        assert_ne!(first, second);
        assert_eq!(profiles.get(first).ttl, Some(1));
        // Its place is another's when no connection holds it any more, and not before.
        profiles.let_go(first);
        let third = profiles.intern(&with_ttl(3)).expect("a place");
        assert_ne!(third, first);
        profiles.let_go(first);
        assert_eq!(profiles.intern(&with_ttl(4)), Ok(first));
    }

    #[test]
    fn the_latest_change_is_forgotten_when_a_number_gets_another_meaning() {
        let second = Some(Duration::from_secs(1));
        let mut profiles = Profiles::new();
        let plain = profiles.intern(&with_ttl(1)).expect("a place");
        let waking = profiles.with_wake_reader(plain, second).expect("a place");
        let expected = SocketOptions {
            wake_reader: second,
            ..with_ttl(1)
        };
        assert_eq!(*profiles.get(waking), expected);
        profiles.let_go(waking);
        // Held by none, and had again.
        assert_eq!(profiles.with_wake_reader(plain, second), Ok(waking));
        profiles.let_go(waking);
        // Now its number is another's.
        assert_eq!(profiles.intern(&with_ttl(2)), Ok(waking));
        let anew = profiles.with_wake_reader(plain, second).expect("a place");
        assert_ne!(anew, waking);
        assert_eq!(*profiles.get(anew), expected);
        // And that of the set that was changed too.
        profiles.let_go(plain);
        assert_eq!(profiles.intern(&with_ttl(3)), Ok(plain));
        let other = profiles.with_wake_reader(plain, second).expect("a place");
        assert_eq!(profiles.get(other).ttl, Some(3));
        let back = profiles.with_wake_reader(other, None);
        assert_eq!(back, Ok(plain));
    }

    #[test]
    fn one_set_too_many_is_refused() {
        let mut profiles = Profiles::new();
        for ttl in 1..=255 {
            assert!(profiles.intern(&with_ttl(ttl)).is_ok());
        }
        let other = SocketOptions {
            tos: 4,
            ..SocketOptions::default()
        };
        assert_eq!(profiles.intern(&other), Err(Error::TooManyOptionSets));
        assert!(profiles.intern(&with_ttl(77)).is_ok());
        profiles.let_go(1);
        assert!(profiles.intern(&other).is_ok());
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let change = |f: fn(&mut SocketOptions)| {
            let mut options = SocketOptions::default();
            f(&mut options);
            options.check()
        };
        let wrong: [fn(&mut SocketOptions); 10] = [
            |o| o.ttl = Some(0),
            |o| o.tos = 3,
            |o| o.max_segment = Some(87),
            |o| o.keepalive_count = 0,
            |o| o.keepalive_idle = Duration::ZERO,
            |o| o.idle_timeout = Some(Duration::from_secs(1 << 40)),
            |o| o.wake_reader = Some(Duration::ZERO),
            |o| o.receive_buffer = Some(0),
            |o| o.syn_retries = Some(0),
            |o| o.fin_wait_2 = Some(Duration::from_secs(121)),
        ];
        for wrong in wrong {
            assert_eq!(change(wrong), Err(Error::InvalidOption));
        }
        assert_eq!(change(|o| o.max_segment = Some(88)), Ok(()));
        assert_eq!(change(|o| o.fin_wait_2 = Some(Duration::ZERO)), Ok(()));
    }
}
