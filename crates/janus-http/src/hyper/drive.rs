//! A connection that hyper serves, from its first byte to its last: one timer for the time limit that applies while it waits for a
//! request. The timer is moved only to an earlier time, and checked when it ends, so that a request does not touch it. When the runtime
//! ends, an idle connection is kept for a request that may be under way, as in [`serve`](crate::serve()).

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use janus::BoxError;
use janus::time::{Sleep, now, sleep_until};

use super::watch::{Bound, Watch};
use crate::serve::last_request_is_due;
use crate::{Error, Reject};

/// Time until the timer's next check while no wait is limited.
const LOOK: Duration = Duration::from_secs(60);

/// How the connection's end has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Not,
    /// HTTP/2: the peer was told. Contains the bytes written by then, or by the last check.
    Told(u64),
    /// A head that took too long is being answered.
    Refused,
}

/// Action that is due when the timer ends.
enum Due {
    Close,
    Refuse,
    Over,
}

struct Bounds<'a> {
    watch: &'a Watch,
    timer: Sleep,
    ending: Ending,
}

impl Bounds<'_> {
    fn new(watch: &Watch) -> Bounds<'_> {
        Bounds {
            timer: sleep_until(watch.deadline().map_or(now() + LOOK, |(at, _)| at)),
            watch,
            ending: Ending::Not,
        }
    }

    /// Moves the timer if it would come too late.
    fn hurry(&mut self) {
        if self.ending == Ending::Not
            && let Some((at, _)) = self.watch.deadline()
            && self.timer.deadline().is_some_and(|set| at < set)
        {
            self.timer.reset(at);
        }
    }

    /// Returns how the connection ended, if it ended by itself as `ended`.
    fn outcome(&self, ended: Result<(), BoxError>) -> Result<(), BoxError> {
        match self.ending {
            Ending::Refused => Err(Error::from(Reject::HeadTimeout).into()),
            Ending::Not | Ending::Told(_) => ended,
        }
    }

    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<Due> {
        let options = self.watch.options();
        loop {
            ready!(Pin::new(&mut self.timer).poll(cx));
            let wait = self.watch.deadline();
            let over = wait.filter(|(at, _)| *at <= now()).map(|(_, bound)| bound);
            let (ending, next, due) = match (self.ending, over) {
                (Ending::Refused, _) => return Poll::Ready(Due::Over),
                (Ending::Not, Some(Bound::Head)) => {
                    (Ending::Refused, options.linger, Some(Due::Refuse))
                }
                (Ending::Not, Some(Bound::Silent)) if !self.watch.is_http2() => {
                    return Poll::Ready(Due::Over);
                }
                (Ending::Not, Some(Bound::Silent)) => {
                    let next = options.write_timeout.unwrap_or(LOOK);
                    let told = Ending::Told(self.watch.written());
                    (told, next, Some(Due::Close))
                }
                // Responses may still be under way.
                (Ending::Told(before), Some(_)) => match options.write_timeout {
                    Some(_) if before == self.watch.written() => return Poll::Ready(Due::Over),
                    limit => (
                        Ending::Told(self.watch.written()),
                        limit.unwrap_or(LOOK),
                        None,
                    ),
                },
                (ending, None) => {
                    let next = wait.map_or(LOOK, |(at, _)| at.saturating_since(now()));
                    (ending, next, None)
                }
            };
            self.ending = ending;
            self.timer.reset(now() + next);
            if let Some(due) = due {
                return Poll::Ready(due);
            }
        }
    }
}

/// Drives `connection` to its end, which `close` begins in order.
pub(super) async fn to_the_end<C>(
    connection: C,
    watch: Arc<Watch>,
    close: impl Fn(Pin<&mut C>),
) -> Result<(), BoxError>
where
    C: Future<Output = Result<(), BoxError>>,
{
    let mut connection = pin!(connection);
    let mut ends = pin!(last_request_is_due());
    let mut closed = false;
    let mut bounds = Bounds::new(&watch);
    std::future::poll_fn(|cx| {
        if !closed && ends.as_mut().poll(cx).is_ready() {
            closed = true;
            close(connection.as_mut());
        }
        loop {
            let ended = connection.as_mut().poll(cx);
            if ended.is_pending() {
                bounds.hurry();
                match ready!(bounds.poll_due(cx)) {
                    Due::Close => close(connection.as_mut()),
                    Due::Refuse => watch.refuse(),
                    Due::Over => return Poll::Ready(bounds.outcome(Ok(()))),
                }
            } else {
                return ended.map(|ended| bounds.outcome(ended));
            }
        }
    })
    .await
}
