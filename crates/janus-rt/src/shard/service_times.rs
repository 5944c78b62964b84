//! Times that a core's connections take from being offered to its tasks until a task has done with them, of so many connections at a time as
//! find a place here. Gathered where connections are offered to other cores. Never here: which core gets one (`offers`).

use janus_csb::policy::ServiceWindow;
use janus_tcp::{ConnId, Instant};

/// Connections that are timed at a time.
const PLACES: usize = 128;
/// At most one connection in so many is timed.
const EVERY_MAX: u32 = 1 << 12;
/// Times between two looks at the median.
const BETWEEN: u32 = 16;

/// Connections that are timed, and the times of the last.
pub(crate) struct ServiceTimes {
    /// Each at the place that its number names.
    timed: [Option<(ConnId, Instant)>; PLACES],
    window: ServiceWindow,
    /// One connection in so many is timed, and those left until the next.
    every: u32,
    left: u32,
    /// Of the last, those that ended at their place.
    ended: u32,
    fresh: u32,
}

impl Default for ServiceTimes {
    fn default() -> ServiceTimes {
        ServiceTimes {
            timed: [None; PLACES],
            window: ServiceWindow::new(),
            every: 1,
            left: 1,
            ended: 0,
            fresh: 0,
        }
    }
}

impl ServiceTimes {
    fn place(conn: ConnId) -> usize {
        conn.index as usize % PLACES
    }

    /// A task has accepted a connection that was offered at `offered`.
    pub(crate) fn accepted(&mut self, now: Instant, conn: ConnId, offered: Instant) {
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        self.left = self.every;
        let timed = &mut self.timed[ServiceTimes::place(conn)];
        if let Some((_, since)) = timed.replace((conn, offered)) {
            // That one is still served: it takes so long at least. The more of those, the fewer are timed.
            self.record(now, since);
            self.ended = 0;
            self.every = (2 * self.every).min(EVERY_MAX);
        }
    }

    /// A task has done with a connection.
    pub(crate) fn ended(&mut self, now: Instant, conn: ConnId) {
        let Some(since) = self.take(conn) else { return };
        self.record(now, since);
        self.ended += 1;
        if self.ended as usize == PLACES {
            self.ended = 0;
            self.every = (self.every / 2).max(1);
        }
    }

    /// The connection is served no more, though it has not ended: it rests.
    pub(crate) fn rests(&mut self, conn: ConnId) {
        self.take(conn);
    }

    fn take(&mut self, conn: ConnId) -> Option<Instant> {
        let timed = &mut self.timed[ServiceTimes::place(conn)];
        let (_, since) = timed.take_if(|(timed, _)| *timed == conn)?;
        Some(since)
    }

    fn record(&mut self, now: Instant, since: Instant) {
        let took = now.saturating_since(since);
        self.window.record(took.as_nanos() as u64);
        self.fresh += 1;
    }

    /// The median, now and then, when enough is new.
    pub(crate) fn news(&mut self) -> Option<u64> {
        if self.fresh < BETWEEN {
            return None;
        }
        self.fresh = 0;
        self.window.median()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Serves connections at this rate, each for so long. Returns the median that is found.
    fn median_of(rate: u32, took: Duration) -> Duration {
        let mut times = ServiceTimes::default();
        let (mut ends, mut median) = (std::collections::VecDeque::new(), 0);
        for number in 0..rate {
            let now = Instant::ZERO + Duration::from_secs(1) * number / rate;
            while ends.front().is_some_and(|(at, _)| *at <= now) {
                let (at, conn) = ends.pop_front().expect("it is there");
                times.ended(at, conn);
            }
            // Places are used again as in a stack: the one that was given back last is taken first.
            let index = ends.len() as u32;
            let conn = ConnId {
                index,
                generation: number,
            };
            times.accepted(now, conn, now);
            ends.push_back((now + took, conn));
            median = times.news().unwrap_or(median);
        }
        Duration::from_nanos(median)
    }

    #[test]
    fn the_time_is_found_with_few_connections_at_a_time_and_with_many() {
        for (rate, us) in [(5_000, 100), (50_000, 5_000), (200_000, 50_000)] {
            let took = Duration::from_micros(us);
            let median = median_of(rate, took);
            assert!(
                median >= took * 3 / 4 && median <= took * 5 / 4,
                "{took:?}: {median:?}"
            );
        }
    }

    #[test]
    fn a_connection_that_rests_is_not_timed() {
        let mut times = ServiceTimes::default();
        let conn = ConnId {
            index: 3,
            generation: 1,
        };
        for _ in 0..200 {
            times.accepted(Instant::ZERO, conn, Instant::ZERO);
            times.rests(conn);
            times.ended(Instant::ZERO + Duration::from_secs(3_600), conn);
        }
        assert_eq!(times.news(), None);
    }
}
