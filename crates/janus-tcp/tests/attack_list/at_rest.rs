//! A stack whose connections are at rest whenever the application does nothing with them: what comes must rouse them. That nothing is
//! there for one at rest, the stack's audit says.

use core::time::Duration;
use std::net::SocketAddr;

use janus_tcp::{ConnId, Error, Instant, Rest, Stack};

use super::list::support::Host;
use super::list::support::target::Target;

pub(crate) struct AtRest(pub(crate) Host);

impl AtRest {
    fn rest(&mut self, conn: ConnId) {
        // One that the application has just let go of does not.
        let _ = self.0.stack.rest(self.0.now, conn, Rest::new(0));
    }

    fn take_roused(&mut self) {
        while self.0.stack.pop_roused().is_some() {}
    }

    fn wake(&mut self, conns: &[ConnId]) {
        for &conn in conns {
            self.0.stack.wait_read(conn, None);
        }
    }
}

impl Target for AtRest {
    fn feed(&mut self, packet: &[u8]) {
        self.0.feed(packet);
        self.take_roused();
    }

    fn packets(&mut self) -> Vec<Vec<u8>> {
        self.0.packets()
    }

    fn wait(&mut self, time: Duration) {
        self.0.wait(time);
        self.take_roused();
    }

    fn accept(&mut self) -> Result<(ConnId, SocketAddr), Error> {
        let (conn, peer) = Target::accept(&mut self.0)?;
        self.rest(conn);
        Ok((conn, peer))
    }

    fn on(&mut self, conn: ConnId, call: &mut dyn FnMut(&mut Stack, Instant, ConnId)) {
        self.0.on(conn, call);
        self.rest(conn);
    }

    fn write_and_close(&mut self, conns: &[ConnId], data: &[u8]) {
        self.wake(conns);
        self.0.write_and_close(conns, data);
    }

    fn each(&mut self, look: &mut dyn FnMut(&Stack)) {
        self.0.each(look);
    }

    fn check(&mut self) {
        self.0.check();
    }

    fn held(&mut self) -> usize {
        self.0.held()
    }

    fn end(mut self: Box<Self>, conns: &[ConnId]) {
        self.wake(conns);
        assert_eq!(self.0.stack.resting(), 0, "each has an owner");
        Box::new(self.0).end(conns);
    }
}
