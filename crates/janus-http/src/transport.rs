//! The stream that HTTP runs over, as a trait. This file knows neither HTTP nor the implementations.

use std::future::Future;
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::Result;
use crate::pace::Stall;

/// A byte stream both ways, polled through a shared reference.
pub trait Transport: 'static {
    /// Received bytes in the buffer they arrived in.
    type Piece: Deref<Target = [u8]> + 'static;
    /// A timer.
    type Sleep: Future<Output = ()> + Unpin + 'static;

    /// Polls for the next received bytes; `None` when the peer has shut down its side.
    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Self::Piece>>>;
    /// Writes at least one of `bytes`; returns how many.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Shuts down the writing side.
    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Returns a timer that ends after `duration`.
    fn sleep(&self, duration: Duration) -> Self::Sleep;
    /// Returns the time since a fixed moment, by the clock of [`sleep`](Self::sleep).
    fn now(&self) -> Duration;
    /// Wakes a task that waits in [`poll_recv`](Self::poll_recv) when nothing has come for `silence`, and from time to time after that;
    /// `None` switches that off. Returns false where the transport cannot: then a timer is used.
    fn wake_reader(&self, silence: Option<Duration>) -> bool {
        let _ = silence;
        false
    }
    /// Returns the bytes written that the peer has not acknowledged, as far as is known.
    fn unacknowledged(&self) -> usize {
        0
    }
    /// Makes dropping the stream a reset: written bytes are not waited for.
    fn abort(&self) {}
    /// Returns whether the server is about to end: requests in hand are answered, further ones hardly waited for. A task that waits is
    /// woken when this becomes true.
    fn is_leaving(&self) -> bool {
        false
    }
}

/// Receives the next bytes.
pub(crate) async fn recv<S: Transport>(stream: &S) -> io::Result<Option<S::Piece>> {
    core::future::poll_fn(|cx| stream.poll_recv(cx)).await
}

/// Writes all of `bytes`, with a limit on the time for which the peer acknowledges none.
pub(crate) async fn write_all<S: Transport>(
    stream: &S,
    timeout: Option<Duration>,
    bytes: &[u8],
) -> Result<()> {
    let (mut stall, mut written) = (Stall::new(timeout), 0);
    core::future::poll_fn(|cx| {
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match stream.poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into()));
                }
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return stall.poll(stream, cx, written as u64).map(Err),
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}

/// Receives the next bytes unless `sleep` ends first.
pub(crate) async fn recv_or<S: Transport>(
    stream: &S,
    mut sleep: Option<&mut S::Sleep>,
) -> Option<io::Result<Option<S::Piece>>> {
    core::future::poll_fn(|cx| match (stream.poll_recv(cx), &mut sleep) {
        (Poll::Ready(received), _) => Poll::Ready(Some(received)),
        (Poll::Pending, Some(sleep)) => Pin::new(&mut **sleep).poll(cx).map(|()| None),
        (Poll::Pending, None) => Poll::Pending,
    })
    .await
}
