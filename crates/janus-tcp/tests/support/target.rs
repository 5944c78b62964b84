//! The host under attack as its peers and its application meet it: one stack alone, or all the shards of a runtime.
//! Attacks and witnesses know it by this only.

use core::time::Duration;
use std::net::SocketAddr;

use janus_tcp::{ConnId, Counters, Error, Info, Instant, Stack};

use super::{Craft, Host, Seen, segments};

/// A host with a listener on [`PORT`](super::PORT). A [`ConnId`] is the target's own name of a connection, and no stack's.
pub(crate) trait Target {
    /// Hands an IP packet in, whatever it is.
    fn feed(&mut self, packet: &[u8]);

    /// Takes the IP packets that were sent.
    fn packets(&mut self) -> Vec<Vec<u8>>;

    /// Lets time pass, and timers expire.
    fn wait(&mut self, time: Duration);

    /// Takes the next connection from the accept queue, and its peer's address.
    fn accept(&mut self) -> Result<(ConnId, SocketAddr), Error>;

    /// Calls `call` with the stack that has `conn`, and the stack's name of it.
    fn on(&mut self, conn: ConnId, call: &mut dyn FnMut(&mut Stack, Instant, ConnId));

    /// Writes as much of `data` to each of `conns` as there is room for and drops their handles, all before anything is
    /// sent.
    fn write_and_close(&mut self, conns: &[ConnId], data: &[u8]);

    /// Shows every stack to `look`, when nothing is under way between them.
    fn each(&mut self, look: &mut dyn FnMut(&Stack));

    /// Checks what must hold at every moment.
    fn check(&mut self);

    /// Number of packet buffers held, those that devices handed in included.
    fn held(&mut self) -> usize;

    /// Closes these connections and the listener, and lets a silent day pass. Checks that nothing is left.
    fn end(self: Box<Self>, conns: &[ConnId]);
}

impl dyn Target + '_ {
    pub(crate) fn send(&mut self, craft: &Craft) {
        self.feed(&craft.packet());
    }

    /// Takes the segments that were sent, checked.
    pub(crate) fn collect(&mut self) -> Vec<Seen> {
        segments(&self.packets())
    }

    /// Sends a segment and takes the answers.
    pub(crate) fn ask(&mut self, craft: &Craft) -> Vec<Seen> {
        self.send(craft);
        self.collect()
    }

    fn with<R>(
        &mut self,
        conn: ConnId,
        mut call: impl FnMut(&mut Stack, Instant, ConnId) -> R,
    ) -> R {
        let mut told = None;
        self.on(conn, &mut |stack, now, conn| {
            told = Some(call(stack, now, conn))
        });
        told.expect("a stack was asked")
    }

    pub(crate) fn read(&mut self, conn: ConnId, into: &mut [u8]) -> Result<usize, Error> {
        self.with(conn, |stack, now, conn| stack.read(now, conn, into))
    }

    pub(crate) fn write(&mut self, conn: ConnId, data: &[u8]) -> Result<usize, Error> {
        self.with(conn, |stack, now, conn| stack.write(now, conn, data))
    }

    pub(crate) fn abort(&mut self, conn: ConnId) {
        self.with(conn, |stack, now, conn| stack.abort(now, conn));
        self.close(conn);
    }

    /// Drops the application's handle of `conn`.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.write_and_close(&[conn], &[]);
    }

    /// Looks at a connection that exists.
    pub(crate) fn info(&mut self, conn: ConnId) -> Info {
        let info = self.with(conn, |stack, _, conn| stack.info(conn));
        info.expect("the connection is there")
    }

    /// The sum of a count over all stacks.
    pub(crate) fn sum(&mut self, of: impl Fn(&Stack) -> usize) -> usize {
        let mut sum = 0;
        self.each(&mut |stack| sum += of(stack));
        sum
    }

    /// The largest of a count over all stacks: each has its own bounds.
    pub(crate) fn most(&mut self, of: impl Fn(&Stack) -> usize) -> usize {
        let mut most = 0;
        self.each(&mut |stack| most = most.max(of(stack)));
        most
    }

    /// The sum of a counter over all stacks.
    pub(crate) fn counted(&mut self, of: impl Fn(&Counters) -> u64) -> u64 {
        let mut sum = 0;
        self.each(&mut |stack| sum += of(stack.counters()));
        sum
    }
}

impl Target for Host {
    fn feed(&mut self, packet: &[u8]) {
        Host::feed(self, packet);
    }

    fn packets(&mut self) -> Vec<Vec<u8>> {
        Host::packets(self)
    }

    fn wait(&mut self, time: Duration) {
        Host::wait(self, time);
    }

    fn accept(&mut self) -> Result<(ConnId, SocketAddr), Error> {
        self.stack.accept(self.listener)
    }

    fn on(&mut self, conn: ConnId, call: &mut dyn FnMut(&mut Stack, Instant, ConnId)) {
        call(&mut self.stack, self.now, conn);
    }

    fn write_and_close(&mut self, conns: &[ConnId], data: &[u8]) {
        for &conn in conns {
            if !data.is_empty() {
                let _may_be_put_off = self.stack.write(self.now, conn, data);
            }
            self.stack.close(self.now, conn);
        }
    }

    fn each(&mut self, look: &mut dyn FnMut(&Stack)) {
        look(&self.stack);
    }

    fn check(&mut self) {
        assert_eq!(self.stack.audit(), Ok(()));
    }

    fn held(&mut self) -> usize {
        Host::held(self)
    }

    fn end(self: Box<Self>, conns: &[ConnId]) {
        Host::end(*self, conns);
    }
}
