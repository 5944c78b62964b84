//! Limits of a slow peer: in sending a body, and in acknowledging a response. Both run only during a wait, so that neither a handler's own
//! time nor a complete request costs anything. The limits of a connection that waits for a request are in [`crate::serve`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::options::Options;
use crate::transport::Transport;
use crate::{Error, Reject, Result};

/// Time that a body's sender has in hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    options: &'static Options,
    /// Time for which its reader may still wait, at most the grace: waiting uses it up, received bytes add to it.
    credit: Duration,
}

impl Pace {
    pub(crate) const fn new(options: &'static Options) -> Self {
        Self {
            options,
            credit: options.body_grace,
        }
    }

    pub(crate) const fn write_timeout(&self) -> Option<Duration> {
        self.options.write_timeout
    }

    /// Returns the time after which the sender is given up, if nothing comes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let credit = self.options.body_rate.map(|_| self.credit);
        credit.into_iter().chain(self.options.body_timeout).min()
    }

    /// Accounts for bytes received after a wait of `waited`.
    pub(crate) fn received(&mut self, bytes: usize, waited: Duration) {
        let Some(rate) = self.options.body_rate else {
            return;
        };
        let behind = self.credit.saturating_sub(waited);
        if behind < self.options.body_grace {
            let nanos = (bytes as u64).saturating_mul(1_000_000_000) / u64::from(rate.get());
            let paid = behind.saturating_add(Duration::from_nanos(nanos));
            self.credit = paid.min(self.options.body_grace);
        }
    }

    /// Receives the next bytes of a body; an error if its sender is too slow.
    pub(crate) async fn recv<S: Transport>(&mut self, stream: &S) -> Result<Option<S::Piece>> {
        let mut wait: Option<(Duration, S::Sleep)> = None;
        let received = std::future::poll_fn(|cx| match stream.poll_recv(cx) {
            Poll::Ready(received) => Poll::Ready(received.map_err(Error::from)),
            Poll::Pending => {
                let Some(patience) = self.patience() else {
                    return Poll::Pending;
                };
                let (_, sleep) = wait.get_or_insert_with(|| (stream.now(), stream.sleep(patience)));
                ready!(Pin::new(sleep).poll(cx));
                Poll::Ready(Err(Reject::BodyTimeout.into()))
            }
        })
        .await?;
        if let Some(piece) = &received {
            let waited = wait.map_or(Duration::ZERO, |(since, _)| {
                stream.now().saturating_sub(since)
            });
            self.received(piece.len(), waited);
        }
        Ok(received)
    }
}

/// Checks of a waiting write in each of its time limits. Progress between two checks counts as made at the later one.
const LOOKS: u32 = 8;
/// Least time between two checks.
const LOOK_LEAST: Duration = Duration::from_millis(1);

/// A stream's report of how much its peer acknowledges.
pub(crate) trait Taker {
    /// A timer.
    type Sleep: Future<Output = ()> + Unpin;

    fn sleep(&self, duration: Duration) -> Self::Sleep;
    fn now(&self) -> Duration;
    fn unacknowledged(&self) -> usize;
    fn abort(&self);
}

impl<S: Transport> Taker for S {
    type Sleep = S::Sleep;

    fn sleep(&self, duration: Duration) -> S::Sleep {
        Transport::sleep(self, duration)
    }

    fn now(&self) -> Duration {
        Transport::now(self)
    }

    fn unacknowledged(&self) -> usize {
        Transport::unacknowledged(self)
    }

    fn abort(&self) {
        Transport::abort(self);
    }
}

/// Wait of one write for a peer that acknowledges nothing.
pub(crate) struct Stall<S: Taker> {
    limit: Option<Duration>,
    wait: Option<Blocked<S>>,
}

struct Blocked<S: Taker> {
    /// Ends at the next check.
    timer: S::Sleep,
    /// Time of the check that last saw progress.
    since: Duration,
    /// Bytes that the peer had acknowledged by then, counted from the write's beginning.
    acknowledged: i64,
}

impl<S: Taker> Stall<S> {
    pub(crate) const fn new(limit: Option<Duration>) -> Self {
        Self { limit, wait: None }
    }

    /// Checks a write of which `written` bytes are handed over; ends, and with it the connection, when the peer has acknowledged nothing
    /// for too long.
    #[cold]
    pub(crate) fn poll(&mut self, stream: &S, cx: &mut Context<'_>, written: u64) -> Poll<Error> {
        let Some(limit) = self.limit else {
            return Poll::Pending;
        };
        let pause = (limit / LOOKS).max(LOOK_LEAST);
        let acknowledged = || written as i64 - stream.unacknowledged() as i64;
        let wait = self.wait.get_or_insert_with(|| Blocked {
            timer: stream.sleep(pause),
            since: stream.now(),
            acknowledged: acknowledged(),
        });
        loop {
            ready!(Pin::new(&mut wait.timer).poll(cx));
            let (now, acknowledged) = (stream.now(), acknowledged());
            if acknowledged > wait.acknowledged {
                (wait.since, wait.acknowledged) = (now, acknowledged);
            } else if now.saturating_sub(wait.since) >= limit {
                stream.abort();
                return Poll::Ready(Error::Stalled);
            }
            wait.timer = stream.sleep(pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    const SECOND: Duration = Duration::from_secs(1);
    static HUNDRED: Options = Options {
        body_timeout: Some(Duration::from_secs(8)),
        body_rate: NonZeroU32::new(100),
        body_grace: Duration::from_secs(10),
        ..Options::DEFAULT
    };
    static SILENCE_ONLY: Options = Options {
        body_rate: None,
        ..HUNDRED
    };

    #[test]
    fn waiting_uses_up_what_bytes_give_back() {
        let mut pace = Pace::new(&HUNDRED);
        assert_eq!(pace.patience(), Some(8 * SECOND));
        pace.received(300, 7 * SECOND);
        assert_eq!(pace.patience(), Some(6 * SECOND));
        pace.received(1, 5 * SECOND);
        assert_eq!(pace.patience(), Some(SECOND + SECOND / 100));
        // Bytes far ahead of time add no more than the grace.
        pace.received(1_000_000, SECOND);
        assert_eq!(pace.patience(), Some(8 * SECOND));
        pace.received(1, 8 * SECOND);
        assert_eq!(pace.patience(), Some(2 * SECOND + SECOND / 100));
        pace.received(usize::MAX, 100 * SECOND);
        assert_eq!(pace.credit, 10 * SECOND);
    }

    #[test]
    fn either_bound_can_be_absent() {
        let mut pace = Pace::new(&SILENCE_ONLY);
        for _ in 0..100 {
            pace.received(1, 7 * SECOND);
            assert_eq!(pace.patience(), Some(8 * SECOND));
        }
        static RATE_ONLY: Options = Options {
            body_timeout: None,
            ..HUNDRED
        };
        assert_eq!(Pace::new(&RATE_ONLY).patience(), Some(10 * SECOND));
        static NONE: Options = Options {
            body_timeout: None,
            ..SILENCE_ONLY
        };
        assert_eq!(Pace::new(&NONE).patience(), None);
    }
}
