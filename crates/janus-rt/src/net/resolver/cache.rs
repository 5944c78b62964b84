//! Cache of name servers' answers for their time to live: shared by the cores of a runtime, and bounded. Cleared when the circumstances
//! change (other servers, other addresses of ours).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::MutexGuard;
use std::time::Duration;

use janus_tcp::Instant;

use super::Ways;
use super::ask::Known;
use crate::lock::Lock;

/// Most names in the cache.
const NAMES_MAX: usize = 1_024;
/// Longest time in the cache, whatever the time to live; also for names without an address.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const LONGEST_NOTHING: Duration = Duration::from_secs(300);

/// Answers of name servers.
#[derive(Default)]
pub(super) struct NameCache {
    inner: Lock<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Circumstances in which the answers came.
    ways: Ways,
    /// Keyed by the name in lower case as written: with a dot at its end it is another key.
    names: HashMap<String, Entry>,
}

struct Entry {
    /// Empty: the name has no address.
    addresses: Vec<IpAddr>,
    until: Instant,
}

impl NameCache {
    /// Returns the cached addresses of a name; empty when it is known to have none.
    pub(super) fn get(&self, ways: &Ways, name: &str, now: Instant) -> Option<Vec<IpAddr>> {
        let inner = self.under(ways);
        let entry = inner.names.get(&name.to_ascii_lowercase())?;
        (now < entry.until).then(|| entry.addresses.clone())
    }

    /// Caches a result, if it has a time to live.
    pub(super) fn put(&self, ways: &Ways, name: &str, known: &Known, now: Instant) {
        let longest = match known.addresses.is_empty() {
            true => LONGEST_NOTHING,
            false => LONGEST,
        };
        let Some(ttl) = known.ttl.filter(|ttl| *ttl > 0) else {
            return;
        };
        let until = now + Duration::from_secs(ttl.into()).min(longest);
        let mut inner = self.under(ways);
        let name = name.to_ascii_lowercase();
        if inner.names.len() >= NAMES_MAX && !inner.names.contains_key(&name) {
            inner.make_room(now);
        }
        let addresses = known.addresses.clone();
        inner.names.insert(name, Entry { addresses, until });
    }

    fn under(&self, ways: &Ways) -> MutexGuard<'_, Inner> {
        // Nothing in a lock's scope can be left half done.
        let mut inner = self.inner.lock();
        if inner.ways != *ways {
            *inner = Inner {
                ways: ways.clone(),
                names: HashMap::new(),
            };
        }
        inner
    }
}

impl Inner {
    /// Removes the expired entries, or else the one that expires next.
    fn make_room(&mut self, now: Instant) {
        self.names.retain(|_, entry| now < entry.until);
        if self.names.len() < NAMES_MAX {
            return;
        }
        let first = self.names.iter().min_by_key(|(_, entry)| entry.until);
        if let Some(name) = first.map(|(name, _)| name.clone()) {
            self.names.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_millis(1_000);

    fn after(secs: u64) -> Instant {
        START + Duration::from_secs(secs)
    }

    fn known(addresses: &[[u8; 4]], ttl: Option<u32>) -> Known {
        Known {
            addresses: addresses.iter().copied().map(IpAddr::from).collect(),
            ttl,
        }
    }

    #[test]
    fn an_answer_is_remembered_as_long_as_it_holds() {
        let (cache, ways) = (NameCache::default(), Ways::default());
        let one = known(&[[192, 0, 2, 1]], Some(10));
        cache.put(&ways, "Web.example", &one, START);
        let got = |name, at| cache.get(&ways, name, at);
        assert_eq!(got("wEB.example", after(9)), Some(one.addresses.clone()));
        assert_eq!(got("web.example", after(10)), None);
        assert_eq!(got("web.example.", after(1)), None);
        let ever = known(&[[192, 0, 2, 2]], Some(u32::MAX));
        cache.put(&ways, "ever.example", &ever, START);
        assert!(got("ever.example", after(LONGEST.as_secs() - 1)).is_some());
        assert_eq!(got("ever.example", START + LONGEST), None);
        cache.put(&ways, "none.example", &known(&[], Some(u32::MAX)), START);
        assert_eq!(got("none.example", after(299)), Some(Vec::new()));
        assert_eq!(got("none.example", after(300)), None);
        for ttl in [None, Some(0)] {
            cache.put(&ways, "now.example", &known(&[[192, 0, 2, 3]], ttl), START);
            assert_eq!(got("now.example", START), None);
        }
    }

    #[test]
    fn it_forgets_when_others_are_asked() {
        let (cache, ways) = (NameCache::default(), Ways::default());
        cache.put(&ways, "a", &known(&[[192, 0, 2, 1]], Some(10)), START);
        let other = Ways {
            leased: vec![([192, 0, 2, 53], 53).into()],
            ..Ways::default()
        };
        assert_eq!(cache.get(&other, "a", START), None);
        assert_eq!(cache.get(&ways, "a", START), None);
    }

    #[test]
    fn the_first_to_end_makes_room() {
        let (cache, ways) = (NameCache::default(), Ways::default());
        let put = |n: usize, ttl| {
            let one = known(&[[192, 0, 2, 1]], Some(ttl));
            cache.put(&ways, &format!("n{n}"), &one, START);
        };
        (0..NAMES_MAX).for_each(|n| put(n, 1_000 - n as u32 % 900));
        put(899, 50);
        put(NAMES_MAX, 10);
        let there = |n: usize| cache.get(&ways, &format!("n{n}"), START).is_some();
        assert!(!there(899) && there(NAMES_MAX) && there(0) && there(898));
        assert_eq!(cache.inner.lock().names.len(), NAMES_MAX);
        // All but a few have ended by then, and go together.
        let late = known(&[[192, 0, 2, 1]], Some(1_000));
        cache.put(&ways, "late", &late, after(999));
        assert!(cache.inner.lock().names.len() < 10);
    }
}
