//! Connecting to a name that has several addresses (RFC 8305): both families in turn, the next address as soon as the last one has failed
//! or has not answered for a quarter of a second. The first that answers becomes the connection; the other attempts are closed.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Connect, TcpStream};
use crate::net::resolver;
use crate::time::{Sleep, sleep};

/// How long an attempt has no other beside it (section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

pub(super) async fn connect_by_name(host: String, port: u16) -> io::Result<TcpStream> {
    let found = resolver::addresses_soon(host, port).await?;
    let mut race = Race {
        rest: in_turn(found).into_iter(),
        under_way: Vec::new(),
        alone: sleep(ATTEMPT_DELAY),
        last: None,
    };
    poll_fn(|cx| race.poll(cx)).await
}

/// Orders addresses so that families alternate, the first address's first (section 4); the order within a family is kept.
fn in_turn(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first = found.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) = found.into_iter().partition(|at| at.is_ipv6() == first);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut ordered = Vec::new();
    loop {
        let both = [one.next(), other.next()];
        if both == [None, None] || ordered.len() >= ADDRESSES_MAX {
            ordered.truncate(ADDRESSES_MAX);
            return ordered;
        }
        ordered.extend(both.into_iter().flatten());
    }
}

struct Race {
    rest: std::vec::IntoIter<SocketAddr>,
    under_way: Vec<Connect>,
    /// Ends when the next attempt is due.
    alone: Sleep,
    /// Error of the last attempt that failed.
    last: Option<io::Error>,
}

impl Race {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        loop {
            let mut failed = false;
            let mut at = 0;
            while let Some(attempt) = self.under_way.get_mut(at) {
                match Pin::new(attempt).poll(cx) {
                    Poll::Pending => at += 1,
                    Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(stream)),
                    Poll::Ready(Err(error)) => {
                        self.last = Some(error);
                        drop(self.under_way.remove(at));
                        failed = true;
                    }
                }
            }
            let due = failed || self.under_way.is_empty();
            if !due && (self.rest.len() == 0 || Pin::new(&mut self.alone).poll(cx).is_pending()) {
                return Poll::Pending;
            }
            match self.rest.next() {
                Some(remote) => {
                    self.under_way.push(TcpStream::connect(remote));
                    self.alone = sleep(ATTEMPT_DELAY);
                }
                None if self.under_way.is_empty() => {
                    let last = self.last.take();
                    return Poll::Ready(Err(last.unwrap_or_else(resolver::no_address)));
                }
                None => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_families_take_turns_and_the_first_ones_begins() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let [a, b, c] = ["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1"].map(at);
        let [x, y] = ["192.0.2.1:1", "192.0.2.2:1"].map(at);
        assert_eq!(in_turn(vec![a, b, c, x, y]), [a, x, b, y, c]);
        assert_eq!(in_turn(vec![x, y, a]), [x, a, y]);
        assert_eq!(in_turn(vec![x, y]), [x, y]);
        assert_eq!(in_turn(Vec::new()), []);
        assert_eq!(in_turn(vec![x; 99]).len(), ADDRESSES_MAX);
    }
}
