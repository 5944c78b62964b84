//! What must hold during and after every attack: others' connections go on, old ones and new ones; memory and work stay
//! within bounds. The streams' bytes are checked where they are read.

use std::net::Ipv4Addr;

use super::target::Target;
use super::{Craft, Peer};

/// Where the witnesses come from: no attacker has this address.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 77);

/// Peers that keep to the protocol beside an attack.
pub(crate) struct Witness {
    /// One that was idle before the attack, and one with timestamps that talks all the time.
    idle: Peer,
    busy: Peer,
    /// Packet buffers held before.
    held: usize,
    next_port: u16,
}

fn syn(port: u16, timestamps: bool) -> Craft {
    let mut syn = Craft::syn((ADDRESS, port));
    syn.seq = janus_wire::SeqNum(u32::MAX - 100);
    syn.options.timestamps = timestamps.then_some((7_000, 0));
    syn
}

impl Witness {
    pub(crate) fn new(host: &mut dyn Target) -> Witness {
        let idle = Peer::open_with(host, &syn(1, false));
        let mut busy = Peer::open_with(host, &syn(2, true));
        busy.expect_unharmed(host);
        let held = host.held();
        Witness {
            idle,
            busy,
            held,
            next_port: 3,
        }
    }

    /// The one that talks all the time.
    pub(crate) fn busy(&self) -> &Peer {
        &self.busy
    }

    /// In the middle of it: the busy one's bytes come and go.
    pub(crate) fn goes_on(&mut self, host: &mut dyn Target) {
        self.busy.clock = self.busy.clock.map(|value| value + 1);
        self.busy.expect_unharmed(host);
    }

    /// The same, and the attack holds no more than `buffers` packet buffers.
    pub(crate) fn goes_on_within(&mut self, host: &mut dyn Target, buffers: usize) {
        self.goes_on(host);
        let held = host.held().saturating_sub(self.held);
        assert!(held <= buffers, "{held} packet buffers are held");
    }

    /// Someone new can connect and be served.
    pub(crate) fn newcomers_are_served(&mut self, host: &mut dyn Target) {
        let mut newcomer = Peer::open_with(host, &syn(self.next_port, false));
        self.next_port += 1;
        newcomer.expect_unharmed(host);
        host.abort(newcomer.conn);
        host.collect();
    }

    /// Afterwards: all the witnesses are unharmed, newcomers are served, and with the attackers' connections closed
    /// nothing is left.
    pub(crate) fn end(mut self, mut host: Box<dyn Target>, attackers: &[Peer]) {
        host.collect();
        self.goes_on(&mut *host);
        self.idle.expect_unharmed(&mut *host);
        self.newcomers_are_served(&mut *host);
        let mut conns = vec![self.idle.conn, self.busy.conn];
        conns.extend(attackers.iter().map(|peer| peer.conn));
        host.end(&conns);
    }
}
