//! The transport over Janus's own stream: translates its futures into polls.

use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::transport::Transport;

// The stream's own futures keep nothing from one poll to the next but their arguments, so they can be made anew for
// each poll: the connection's future then holds none of them.
impl Transport for janus::net::TcpStream {
    type Piece = janus::net::RecvBuf;
    type Sleep = janus::time::Sleep;

    #[inline]
    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Self::Piece>>> {
        pin!(self.recv()).poll(cx)
    }

    #[inline]
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        pin!(self.write(bytes)).poll(cx)
    }

    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(self.shutdown(Shutdown::Write)).poll(cx)
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        janus::time::sleep(duration)
    }

    #[inline]
    fn now(&self) -> Duration {
        Duration::from_nanos(janus::time::now().as_nanos())
    }

    fn wake_reader(&self, silence: Option<Duration>) -> bool {
        self.set_wake_reader(silence).is_ok()
    }

    fn unacknowledged(&self) -> usize {
        self.info()
            .map_or(0, |info| info.unsent as usize + info.in_flight as usize)
    }

    fn abort(&self) {
        // A connection that is over needs no reset.
        let _ = self.set_zero_linger();
    }

    #[inline]
    fn is_leaving(&self) -> bool {
        janus::is_shutting_down()
    }
}
