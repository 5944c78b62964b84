//! Connections of one core to the servers, kept between requests. A handshake less for each request, and no lock: a connection
//! belongs to the core that opened it anyway.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use janus::net::TcpStream;
use janus::time::{Instant, now, timeout};
use janus_http::Connection;

use crate::upstreams::Upstream;

/// Idle connections to one server.
const IDLE_MAX: usize = 64;
/// Servers close what is idle for long; as a rule not after so little.
const IDLE_TIME: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(1);

struct Idle {
    upstream: &'static Upstream,
    connection: Connection<TcpStream>,
    since: Instant,
}

#[derive(Default)]
pub(crate) struct Pool(RefCell<HashMap<&'static str, Vec<Idle>>>);

impl Pool {
    /// The connection that was used last: the others may so grow old.
    pub(crate) fn take(&self, upstream: &Upstream) -> Option<Connection<TcpStream>> {
        let mut idle = self.0.borrow_mut();
        let idle = idle.get_mut(&*upstream.address)?.pop()?;
        Some(idle.connection)
    }

    /// Keeps a connection whose answer was read to its end, if it can be used again.
    pub(crate) fn put(&self, upstream: &'static Upstream, connection: Connection<TcpStream>) {
        let mut idle = self.0.borrow_mut();
        let idle = idle.entry(&upstream.address).or_default();
        let wanted = connection.is_open() && upstream.may_be_asked() && idle.len() < IDLE_MAX;
        // The runtime ends when its last connection has ended: one that is kept for later would take all the time there is.
        if wanted && !janus::is_shutting_down() {
            idle.push(Idle {
                upstream,
                connection,
                since: now(),
            });
        }
    }
}

/// Closes what has grown old, and what leads to a server that is not asked any more; at the end everything.
pub(crate) async fn tend(pool: Rc<Pool>) {
    while timeout(LOOK, janus::shutting_down()).await.is_err() {
        let kept = |idle: &Idle| {
            idle.upstream.may_be_asked() && now().saturating_since(idle.since) < IDLE_TIME
        };
        pool.0
            .borrow_mut()
            .values_mut()
            .for_each(|idle| idle.retain(kept));
    }
    pool.0.borrow_mut().clear();
}
