//! Admission of frames by an I/O core: the stage between a received burst and the steering. Sources that cannot be (martians), that are on
//! a list, or that open connections too fast are dropped here, each for a counted cause, before they cost a place in a ring. It looks at
//! the class of a frame, which the steering needs anyway; where no rule is set it is not in the code that runs. Never here: what TCP thinks
//! of a segment.

mod martian;
mod prefix;
mod syn_rate;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use janus_wire::classify::Icmp;
use janus_wire::tcp::Flags;
use janus_wire::{Class, TableHash};

use crate::core::cause::Cause;
use crate::debug::opaque;
use martian::MartianTable;
use prefix::Lists;
pub use prefix::{LIST_MAX, Prefix};
pub use syn_rate::SynLimit;
use syn_rate::{SYN_SETS, SynRates};

/// Nanoseconds since whatever a clock calls its beginning; it never goes back.
pub type ClockFn = dyn Fn() -> u64 + Send + Sync;

/// Rules of admission. The default lets everything in.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Drop packets from an address that is impossible on this side: loopback, groups, `0.0.0.0/8`, reserved ones, [`own`](Self::own); and
    /// packets for an address that no packet can be for. For devices that lead outside.
    pub drop_martians: bool,
    /// Our own addresses, from which nothing comes in.
    pub own: Vec<IpAddr>,
    /// Sources that are let in. Of all prefixes in both lists the longest that holds a source decides; a source that none
    /// holds is let in, unless there is only this list.
    pub allow: Vec<Prefix>,
    /// Sources that are not.
    pub deny: Vec<Prefix>,
    /// How fast connections may be opened from one network.
    pub syn_limit: Option<SynLimit>,
}

impl Rules {
    fn is_empty(&self) -> bool {
        !self.drop_martians
            && self.allow.is_empty()
            && self.deny.is_empty()
            && self.syn_limit.is_none()
    }
}

/// The rules of a runtime. Clones are the same; what is set through one counts for all cores from their next burst on.
#[derive(Clone)]
pub struct Policy {
    shared: Arc<Shared>,
}

opaque!(Policy);

struct Shared {
    /// Grows with each change.
    version: AtomicU64,
    compiled: Mutex<Arc<Compiled>>,
    /// Of the table of SYN rates.
    hash: TableHash,
}

impl Policy {
    /// Rules under a secret: who does not know it cannot make networks share a counter.
    #[must_use]
    pub fn new(rules: Rules, secret: [u64; 2]) -> Policy {
        let [k0, k1] = secret;
        Policy {
            shared: Arc::new(Shared {
                version: AtomicU64::new(1),
                compiled: Mutex::new(Arc::new(Compiled::new(rules))),
                hash: TableHash::new(k0, k1),
            }),
        }
    }

    /// Other rules from now on. The rates measured so far are kept while the limit stays as it is.
    pub fn set(&self, rules: Rules) {
        self.change(|now| *now = rules);
    }

    /// Changes the rules that count now, with no other change in between.
    pub fn change(&self, change: impl FnOnce(&mut Rules)) {
        let mut compiled = lock(&self.shared.compiled);
        let mut rules = compiled.rules.clone();
        change(&mut rules);
        if rules != compiled.rules {
            *compiled = Arc::new(Compiled::new(rules));
            self.shared.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The rules that count now.
    #[must_use]
    pub fn rules(&self) -> Rules {
        lock(&self.shared.compiled).rules.clone()
    }

    /// The stage of one core of `cores`, over which a device spreads what comes in: each measures SYNs for itself, by its
    /// share of the limit.
    #[must_use]
    pub fn stage(&self, cores: usize, clock: Arc<ClockFn>) -> Stage {
        let mut stage = Stage {
            shared: self.shared.clone(),
            version: 0,
            compiled: Arc::default(),
            open: true,
            rates: None,
            cores,
            clock,
        };
        stage.refresh();
        stage
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Only a pointer is ever replaced under the lock.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rules as they are asked.
#[derive(Default)]
struct Compiled {
    rules: Rules,
    martians: Option<MartianTable>,
    lists: Option<Lists>,
}

impl Compiled {
    fn new(rules: Rules) -> Compiled {
        Compiled {
            martians: rules.drop_martians.then(|| MartianTable::new(&rules.own)),
            lists: Lists::new(&rules.allow, &rules.deny),
            rules,
        }
    }
}

/// The rules on one core.
pub struct Stage {
    shared: Arc<Shared>,
    version: u64,
    compiled: Arc<Compiled>,
    /// No rule is set.
    open: bool,
    rates: Option<SynRates>,
    cores: usize,
    clock: Arc<ClockFn>,
}

opaque!(Stage);

impl Stage {
    /// Between bursts: adopts other rules if there are any.
    #[inline]
    pub fn refresh(&mut self) {
        if self.shared.version.load(Ordering::Relaxed) != self.version {
            self.adopt();
        }
    }

    #[cold]
    fn adopt(&mut self) {
        // Read before the rules: newer ones that are taken with an old number are taken once more.
        self.version = self.shared.version.load(Ordering::Acquire);
        self.compiled = lock(&self.shared.compiled).clone();
        let rules = &self.compiled.rules;
        self.open = rules.is_empty();
        let limit = rules.syn_limit.map(|limit| limit.share_of(self.cores));
        if self.rates.as_ref().map(SynRates::limit) != limit.as_ref() {
            self.rates = limit.map(|limit| SynRates::new(limit, SYN_SETS, self.shared.hash));
        }
    }

    /// Whether everything is let in.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// A stage for the frames of one burst, which came at the same time.
    #[inline]
    pub(crate) fn burst(&mut self) -> Watched<'_> {
        Watched {
            compiled: &self.compiled,
            rates: self.rates.as_mut(),
            clock: &*self.clock,
            now: None,
        }
    }
}

/// Asked about each frame of a burst: whether to drop it, and why.
pub(crate) trait Gate {
    /// Why a segment over IPv4 is dropped: most frames are such, and only these three things of them are asked.
    fn refuses_v4(&mut self, src: Ipv4Addr, dst: Ipv4Addr, flags: Flags) -> Option<Cause>;

    /// Why a frame of another class is dropped.
    fn refuses(&mut self, class: &Class) -> Option<Cause>;
}

/// Lets everything in, at no cost.
pub(crate) struct Open;

impl Gate for Open {
    #[inline(always)]
    fn refuses_v4(&mut self, _: Ipv4Addr, _: Ipv4Addr, _: Flags) -> Option<Cause> {
        None
    }

    #[inline(always)]
    fn refuses(&mut self, _: &Class) -> Option<Cause> {
        None
    }
}

/// The rules for one burst.
pub(crate) struct Watched<'a> {
    compiled: &'a Compiled,
    rates: Option<&'a mut SynRates>,
    clock: &'a ClockFn,
    /// Read when the first SYN of the burst needs it.
    now: Option<u64>,
}

/// Kind of traffic of a packet: may it be for a group?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// TCP: both ends are single hosts.
    Single,
    /// Others, which may be for a group or a broadcast.
    Any,
}

impl Gate for Watched<'_> {
    #[inline]
    fn refuses_v4(&mut self, src: Ipv4Addr, dst: Ipv4Addr, flags: Flags) -> Option<Cause> {
        if let Some(cause) = self.v4(src, dst, Reach::Single) {
            return Some(cause);
        }
        if opens(flags) && self.rates.is_some() {
            return self.rate(src.into());
        }
        None
    }

    #[inline(never)]
    fn refuses(&mut self, class: &Class) -> Option<Cause> {
        match class {
            Class::Tcp4(tcp) => self.refuses_v4(tcp.flow.peer, tcp.flow.local, tcp.flags),
            Class::Tcp6(tcp) => {
                let refused = self.v6(tcp.flow.peer, tcp.flow.local, Reach::Single);
                refused.or_else(|| opens(tcp.flags).then(|| self.rate(tcp.flow.peer.into()))?)
            }
            // Neighbors must be able to find us, whatever the lists say of them; the stack looks closely at what they send.
            Class::Icmp6(icmp) if icmp.neighbor => None,
            Class::Icmp4(Icmp { src, dst, .. }) | Class::Fragment4 { src, dst, .. } => {
                self.v4(*src, *dst, Reach::Any)
            }
            Class::Icmp6(Icmp { src, dst, .. }) | Class::Fragment6 { src, dst, .. } => {
                self.v6(*src, *dst, Reach::Any)
            }
            Class::Udp4(udp) => self.v4(udp.flow.peer, udp.flow.local, Reach::Any),
            Class::Udp6(udp) => self.v6(udp.flow.peer, udp.flow.local, Reach::Any),
            Class::Arp | Class::Other | Class::Malformed(_) => None,
        }
    }
}

/// Whether a segment with these flags opens a connection.
#[inline]
pub(crate) fn opens(flags: Flags) -> bool {
    flags.0 & (Flags::SYN.0 | Flags::ACK.0) == Flags::SYN.0
}

impl Watched<'_> {
    #[inline]
    fn v4(&self, src: Ipv4Addr, dst: Ipv4Addr, reach: Reach) -> Option<Cause> {
        if let Some(martians) = &self.compiled.martians
            && martians.is_martian_v4(src, dst, reach)
        {
            return Some(Cause::Martian);
        }
        let lists = self.compiled.lists.as_ref();
        let denied = lists.is_some_and(|lists| !lists.lets_in_v4(src));
        denied.then_some(Cause::Denied)
    }

    fn v6(&self, src: Ipv6Addr, dst: Ipv6Addr, reach: Reach) -> Option<Cause> {
        if let Some(martians) = &self.compiled.martians
            && martians.is_martian_v6(src, dst, reach)
        {
            return Some(Cause::Martian);
        }
        let lists = self.compiled.lists.as_ref();
        let denied = lists.is_some_and(|lists| !lists.lets_in_v6(src));
        denied.then_some(Cause::Denied)
    }

    /// A connection is opened from here.
    #[inline(never)]
    fn rate(&mut self, src: IpAddr) -> Option<Cause> {
        let rates = self.rates.as_mut()?;
        let now = *self.now.get_or_insert_with(self.clock);
        (!rates.admits(src, now)).then_some(Cause::TooManySyns)
    }
}

#[cfg(test)]
mod tests;
