//! How much the members of a user may send in a second, and how many connections they may begin: token buckets, a pair for each user, since one
//! user's programs could else have as many shares as they join.
//!
//! A frame over the rate is dropped, not held back. Held back it would stay in its member's ring with all that comes behind it: the
//! acknowledgements of connections that are within the rate, frames for other members, the end of the member itself. The daemon would have
//! to wake up for it, and could not sleep before; and it would teach the member nothing. A loss is what TCP slows down for, and a datagram
//! must bear it. It is what the kernel's policing (`tc … police`) does, and has its price: a connection at the rate saws around it. A
//! burst of a tenth of a second's bytes is what that saw has room in.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Instant;

use janus_wire::ethernet;
use janus_wire::proto::TCP;
use janus_wire::tcp::Flags;

use crate::steer::opens;

/// A number in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many in a second, for as long as one likes.
    pub per_second: NonZeroU64,
    /// How many at once, after a while of none.
    pub burst: NonZeroU64,
}

/// A limit on what the members of a user send, all of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// A user; `None`: each that has no limit of its own, and each of them by itself.
    pub user: Option<u32>,
    /// Bytes of frames, link headers included; `None`: as many as they like.
    pub bytes: Option<Rate>,
    /// SYNs of connections that they begin; `None`: as many as they like.
    pub syns: Option<Rate>,
}

/// Users with buckets. Where there are more, those whose buckets are full are forgotten first: theirs would be no others.
const USERS_KEPT: usize = 1_024;
/// Tokens are counted in parts, a nanosecond's worth of one each second.
const PARTS: i128 = 1_000_000_000;

struct Bucket {
    rate: Rate,
    /// Parts of tokens that are there. Below zero where a frame was larger than a burst.
    level: i128,
    filled: Instant,
}

/// A user's buckets; `None`: no such limit.
struct Buckets {
    bytes: Option<Bucket>,
    syns: Option<Bucket>,
}

/// The buckets of all users.
pub(crate) struct Quotas {
    limits: Vec<Limit>,
    users: BTreeMap<u32, Buckets>,
}

/// Whether a frame that has been judged begins a connection. What there is of it may end behind the headers.
fn begins_connection(head: &[u8]) -> bool {
    const FRAGMENT: u8 = 44;
    let at = |at: usize| head.get(at).copied().unwrap_or(0);
    let ip = ethernet::LEN;
    let (proto, segment) = match [at(ip - 2), at(ip - 1)] {
        [8, 0] => (at(ip + 9), ip + usize::from(at(ip) & 15) * 4),
        [0x86, 0xdd] if at(ip + 6) == FRAGMENT => (at(ip + 40), ip + 48),
        [0x86, 0xdd] => (at(ip + 6), ip + 40),
        _ => return false,
    };
    let flags = Flags(at(segment + 13));
    proto == TCP && opens(flags)
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Bucket {
        let level = i128::from(rate.burst.get()) * PARTS;
        Bucket {
            rate,
            level,
            filled: now,
        }
    }

    fn most(&self) -> i128 {
        i128::from(self.rate.burst.get()) * PARTS
    }

    fn fill(&mut self, now: Instant) {
        let nanos = now.saturating_duration_since(self.filled).as_nanos();
        let fresh = (nanos as i128).saturating_mul(self.rate.per_second.get().into());
        self.level = self.level.saturating_add(fresh).min(self.most());
        self.filled = self.filled.max(now);
    }

    /// Whether so many may go now. What is larger than a burst goes when the bucket is full.
    fn has(&self, count: u64) -> bool {
        self.level >= (i128::from(count) * PARTS).min(self.most())
    }

    fn take(&mut self, count: u64) {
        self.level -= i128::from(count) * PARTS;
    }
}

impl Buckets {
    fn of(user: u32, limits: &[Limit], now: Instant) -> Buckets {
        let own = limits.iter().filter(|it| it.user == Some(user));
        let any = limits.iter().filter(|it| it.user.is_none());
        let all: Vec<&Limit> = own.chain(any).collect();
        let bucket = |rate: Option<Rate>| rate.map(|rate| Bucket::new(rate, now));
        Buckets {
            bytes: bucket(all.iter().find_map(|it| it.bytes)),
            syns: bucket(all.iter().find_map(|it| it.syns)),
        }
    }

    fn both(&mut self) -> impl Iterator<Item = &mut Bucket> {
        self.bytes.iter_mut().chain(&mut self.syns)
    }

    fn is_full(&mut self, now: Instant) -> bool {
        self.both().all(|bucket| {
            bucket.fill(now);
            bucket.level == bucket.most()
        })
    }
}

impl Quotas {
    pub(crate) fn new(limits: &[Limit]) -> Quotas {
        Quotas {
            limits: limits.to_vec(),
            users: BTreeMap::new(),
        }
    }

    /// Whether a user's frame of this length may go now, which begins so. Then it counts.
    #[inline]
    pub(crate) fn admits(&mut self, user: u32, head: &[u8], len: u32) -> bool {
        self.limits.is_empty() || self.takes(user, head, len, Instant::now())
    }

    fn takes(&mut self, user: u32, head: &[u8], len: u32, now: Instant) -> bool {
        if self.users.len() >= USERS_KEPT && !self.users.contains_key(&user) {
            self.users.retain(|_, buckets| !buckets.is_full(now));
            if self.users.len() >= USERS_KEPT {
                self.users.pop_first();
            }
        }
        let limits = &self.limits;
        let buckets = self.users.entry(user);
        let buckets = buckets.or_insert_with(|| Buckets::of(user, limits, now));
        buckets.both().for_each(|bucket| bucket.fill(now));
        let len = len.into();
        let begins = buckets.syns.is_some() && begins_connection(head);
        let has = |bucket: &Option<Bucket>, count| bucket.as_ref().is_none_or(|it| it.has(count));
        // Neither pays for what the other keeps back.
        if !has(&buckets.bytes, len) || begins && !has(&buckets.syns, 1) {
            return false;
        }
        if let Some(bytes) = &mut buckets.bytes {
            bytes.take(len);
        }
        if let Some(syns) = &mut buckets.syns
            && begins
        {
            syns.take(1);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn rate(per_second: u64, burst: u64) -> Option<Rate> {
        Some(Rate {
            per_second: NonZeroU64::new(per_second)?,
            burst: NonZeroU64::new(burst)?,
        })
    }

    fn limit(user: Option<u32>, bytes: Option<Rate>, syns: Option<Rate>) -> Limit {
        Limit { user, bytes, syns }
    }

    /// A segment with these flags, as a frame of 60 bytes.
    fn segment(flags: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend([0x80, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0]);
        frame.resize(60, 0);
        frame
    }

    const SYN: u8 = 2;
    const ACK: u8 = 16;

    /// Frames of so many that go, one after the other in this time.
    fn goes(
        quotas: &mut Quotas,
        user: u32,
        frame: &[u8],
        count: u32,
        from: Instant,
        within: Duration,
    ) -> u32 {
        let times = (0..count).map(|at| from + within * at / count);
        times
            .filter(|now| quotas.takes(user, frame, frame.len() as u32, *now))
            .count() as u32
    }

    #[test]
    fn a_user_sends_at_the_rate_and_a_burst_before() {
        let mut quotas = Quotas::new(&[limit(Some(7), rate(6_000, 1_200), None)]);
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let frame = segment(ACK);
        let at_once = goes(&mut quotas, 7, &frame, 1_000, begin, Duration::ZERO);
        assert_eq!(at_once, 20, "a burst");
        let later = goes(&mut quotas, 7, &frame, 10_000, begin, 10 * second);
        assert!(
            (999..=1_000).contains(&later),
            "ten seconds' worth: {later}"
        );
        // After a while of none it is a burst again, not more.
        let at = begin + 100 * second;
        assert_eq!(goes(&mut quotas, 7, &frame, 1_000, at, Duration::ZERO), 20);
        let other = goes(&mut quotas, 8, &frame, 1_000, begin, Duration::ZERO);
        assert_eq!(other, 1_000, "nothing is said of this one");
    }

    #[test]
    fn only_what_begins_a_connection_counts_as_such() {
        let mut quotas = Quotas::new(&[limit(None, None, rate(10, 5))]);
        let now = Instant::now();
        let mut go =
            |user, flags| goes(&mut quotas, user, &segment(flags), 50, now, Duration::ZERO);
        assert_eq!(go(7, SYN), 5);
        assert_eq!(go(7, SYN | ACK), 50, "it answers");
        assert_eq!(go(7, ACK), 50);
        assert_eq!(go(8, SYN), 5, "each user by itself");
        assert_eq!(go(7, SYN), 0);
    }

    #[test]
    fn own_limits_go_before_those_of_any() {
        let all = [
            limit(None, rate(600, 60), rate(1, 1)),
            limit(Some(7), rate(600, 600), None),
        ];
        let mut quotas = Quotas::new(&all);
        let now = Instant::now();
        let mut go =
            |user, flags| goes(&mut quotas, user, &segment(flags), 50, now, Duration::ZERO);
        assert_eq!(go(7, SYN), 1, "of SYNs nothing is said of it alone");
        assert_eq!(go(7, ACK), 9, "what was refused cost no bytes");
        assert_eq!(go(8, ACK), 1);
    }

    #[test]
    fn a_frame_larger_than_a_burst_goes_and_is_paid_for() {
        let mut quotas = Quotas::new(&[limit(Some(7), rate(1_000, 100), None)]);
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let frame = vec![0; 1_000];
        let gone = goes(&mut quotas, 7, &frame, 1_000, begin, 10 * second);
        assert!((9..=11).contains(&gone), "one each second: {gone}");
    }

    #[test]
    fn users_that_send_no_more_are_forgotten() {
        let mut quotas = Quotas::new(&[limit(None, rate(6_000, 600), None)]);
        let now = Instant::now();
        let frame = segment(ACK);
        for user in 0..5_000_u32 {
            let at = now + Duration::from_millis(user.into());
            assert!(quotas.takes(user, &frame, 60, at));
        }
        assert!(quotas.users.len() <= USERS_KEPT, "{}", quotas.users.len());
    }
}
