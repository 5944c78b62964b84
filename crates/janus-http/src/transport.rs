//! What a connection must be able to do for HTTP to run over it. Nothing here knows HTTP, nor whose stream it is.

use std::future::Future;
use std::io;
use std::ops::Deref;
use std::task::{Context, Poll};
use std::time::Duration;

/// A byte stream both ways, polled through a shared reference.
pub trait Transport: 'static {
    /// Received bytes in the buffer they arrived in.
    type Piece: Deref<Target = [u8]> + 'static;
    /// A timer.
    type Sleep: Future<Output = ()> + 'static;

    /// The next received bytes; `None` at the peer's end.
    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Self::Piece>>>;
    /// Hands over at least one of `bytes`; answers how many.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Says that nothing more will be written.
    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ends after `duration`.
    fn sleep(&self, duration: Duration) -> Self::Sleep;
    /// The server is about to end: what is begun is answered, and a further request hardly waited for. A task that waits is woken
    /// when it becomes true.
    fn is_leaving(&self) -> bool {
        false
    }
}

/// Receives the next bytes.
pub(crate) async fn recv<S: Transport>(stream: &S) -> io::Result<Option<S::Piece>> {
    core::future::poll_fn(|cx| stream.poll_recv(cx)).await
}

/// Writes all of `bytes`.
pub(crate) async fn write_all<S: Transport>(stream: &S, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = core::future::poll_fn(|cx| stream.poll_write(cx, bytes)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Receives the next bytes unless `sleep` ends first.
pub(crate) async fn recv_or<S: Transport>(
    stream: &S,
    mut sleep: core::pin::Pin<&mut S::Sleep>,
) -> Option<io::Result<Option<S::Piece>>> {
    core::future::poll_fn(|cx| match stream.poll_recv(cx) {
        Poll::Ready(received) => Poll::Ready(Some(received)),
        Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
    })
    .await
}
