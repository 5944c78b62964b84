//! A network of hosts in virtual time. Packets take as long as their link says, get lost, overtaken, doubled and damaged
//! as its model and the seed decide, and nothing sleeps: the clock jumps from one event to the next. The same seed takes
//! the same course, so a failure can be replayed; the packets that led to it can be written as pcapng.
//! What never lives here: applications (those are the tests), and what a stack ought to do.

use crate::frames;
use janus_mem::{Depot, Growth};
use janus_tcp::{Config, Instant, Interface, Ipv4Cidr, Secrets, Stack};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

mod capture;
mod link;
mod pair;
mod random;
mod seeds;
#[cfg(test)]
mod tests;

use capture::Capture;
pub use link::LinkModel;
use link::{Fate, Link};
pub use pair::{Pair, Parting};
pub use random::Random;
pub use seeds::for_each_seed;

/// The clock when a network begins; not zero, as no real clock is.
const ORIGIN: Instant = Instant::from_millis(1_000_000);
/// Packet buffers of each host.
const BUFFERS: u32 = 8_192;
/// Packets under way at a time; beyond them, packets are lost.
const IN_FLIGHT_MAX: usize = 100_000;

/// A host of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostId(usize);

/// A stack, and what it lives on.
pub struct Host {
    /// The stack.
    pub stack: Stack,
    /// Its packet buffers.
    pub depot: Arc<Depot>,
    /// Its address.
    pub address: Ipv4Addr,
}

impl Host {
    /// What the stack still holds, by name; nothing when all is given back.
    pub fn leftovers(&mut self) -> Vec<String> {
        self.stack.pool().flush();
        let counts = [
            ("connections", self.stack.connections()),
            ("hot blocks", self.stack.hot_in_use()),
            ("segments", self.stack.segments_in_use()),
            ("half-open records", self.stack.half_open()),
            ("TIME-WAIT records", self.stack.in_time_wait()),
            ("packet buffers", self.depot.stats().outstanding),
        ];
        let left = counts.into_iter().filter(|(_, count)| *count > 0);
        left.map(|(what, count)| format!("{count} {what}"))
            .collect()
    }
}

/// A packet under way. Ordered by arrival, then by departure.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    at: Instant,
    order: u64,
    to: usize,
    bytes: Vec<u8>,
}

/// What became of the packets so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Packets the stacks sent.
    pub sent: u64,
    /// Packets that arrived, copies and damaged ones included.
    pub arrived: u64,
    /// Packets lost on the way, for want of a queue's room, or for an address nobody has.
    pub lost: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets that arrived damaged.
    pub damaged: u64,
    /// Packets cut in two.
    pub split: u64,
}

/// Hosts and the links between them.
pub struct Network {
    seed: u64,
    now: Instant,
    random: Random,
    hosts: Vec<Host>,
    /// By sender, then by receiver.
    links: Vec<Vec<Link>>,
    /// What links of hosts to come will be like.
    model: LinkModel,
    under_way: BinaryHeap<Reverse<Packet>>,
    /// When applications want to be asked again.
    alarms: BinaryHeap<Reverse<Instant>>,
    order: u64,
    tally: Tally,
    capture: Capture,
}

impl Network {
    /// An empty network.
    pub fn new(seed: u64) -> Network {
        Network {
            seed,
            now: ORIGIN,
            random: Random::new(seed),
            hosts: Vec::new(),
            links: Vec::new(),
            model: LinkModel::default(),
            under_way: BinaryHeap::new(),
            alarms: BinaryHeap::new(),
            order: 0,
            tally: Tally::default(),
            capture: Capture::default(),
        }
    }

    /// The seed that decides everything.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The generator, for applications that should act by chance too.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// What became of the packets so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// What the links of hosts added from now on are like, in both directions.
    pub fn set_model(&mut self, model: LinkModel) {
        self.model = model;
    }

    /// What one direction is like from now on.
    pub fn set_link(&mut self, from: HostId, to: HostId, model: LinkModel) {
        self.links[from.0][to.0].model = model;
    }

    /// One more host, linked to all others. Addresses are documentation addresses (RFC 5737).
    pub fn add_host(&mut self, config: &Config) -> HostId {
        let index = self.hosts.len();
        let address = Ipv4Addr::new(
            192,
            0,
            2,
            u8::try_from(index + 1).expect("a network has at most 254 hosts"),
        );
        let depot = Depot::new(BUFFERS, &Growth::Inline).expect("memory for packet buffers");
        let mut interface = Interface::ip(1_500);
        interface.any_local = false;
        interface.addresses = vec![Ipv4Cidr {
            addr: address,
            prefix: 24,
        }];
        let secrets = Secrets::from_seed(self.random.bits());
        let stack = Stack::new(
            config.clone(),
            interface,
            secrets,
            depot.pool(),
            &Growth::Inline,
        );
        self.hosts.push(Host {
            stack: stack.expect("memory for a stack"),
            depot,
            address,
        });
        let fresh = || Link::new(self.model.clone());
        for row in &mut self.links {
            row.push(fresh());
        }
        let row = (0..=index).map(|_| fresh()).collect();
        self.links.push(row);
        HostId(index)
    }

    /// A host.
    pub fn host(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0]
    }

    /// Puts everything the stacks have to say on its way.
    pub fn flush(&mut self) {
        for from in 0..self.hosts.len() {
            let mut said = Vec::new();
            frames::collect(&mut self.hosts[from].stack, self.now, |bytes| {
                said.push(bytes.to_vec())
            });
            for bytes in said {
                self.send(from, bytes);
            }
        }
    }

    fn send(&mut self, from: usize, bytes: Vec<u8>) {
        self.tally.sent += 1;
        self.capture.sent(self.now, from, &bytes);
        let destination = bytes
            .get(16..20)
            .map(|octets| Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]));
        let to = self
            .hosts
            .iter()
            .position(|host| Some(host.address) == destination);
        let Some(to) = to.filter(|_| self.under_way.len() < IN_FLIGHT_MAX) else {
            self.lose(bytes);
            return;
        };
        let pieces = match self.random.chance(self.links[from][to].model.split) {
            true => link::split(&bytes, &mut self.random),
            false => None,
        };
        match pieces {
            Some(pieces) => {
                self.tally.split += 1;
                pieces
                    .into_iter()
                    .for_each(|piece| self.carry(from, to, piece));
            }
            None => self.carry(from, to, bytes),
        }
    }

    fn carry(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let fates = self.links[from][to].carry(self.now, bytes.len(), &mut self.random);
        self.tally.duplicated += u64::from(fates[1].is_some());
        for fate in fates.into_iter().flatten() {
            match fate {
                Fate::Lost => self.lose(bytes.clone()),
                Fate::Arrives { at, damage } => {
                    let mut bytes = bytes.clone();
                    if let Some((place, change)) = damage {
                        bytes[place] ^= change;
                        self.tally.damaged += 1;
                    }
                    self.order += 1;
                    self.under_way.push(Reverse(Packet {
                        at,
                        order: self.order,
                        to,
                        bytes,
                    }));
                }
            }
        }
    }

    fn lose(&mut self, bytes: Vec<u8>) {
        self.tally.lost += 1;
        self.capture.lost(self.now, &bytes);
    }

    /// Makes that moment an event, for an application that wants to do something then.
    pub fn set_alarm(&mut self, at: Instant) {
        self.alarms.push(Reverse(at));
    }

    /// When something happens next: a packet arrives, a stack's timer runs out, or an alarm was set for then.
    pub fn next_event(&self) -> Option<Instant> {
        let arrival = self.under_way.peek().map(|Reverse(packet)| packet.at);
        let deadlines = self
            .hosts
            .iter()
            .filter_map(|host| host.stack.next_deadline());
        let alarm = self.alarms.peek().map(|Reverse(at)| *at);
        deadlines.chain(arrival).chain(alarm).min()
    }

    /// Moves to the next event, if there is one until `limit`, and lets it happen. Else moves to `limit` and says false.
    pub fn step_until(&mut self, limit: Instant) -> bool {
        self.flush();
        let Some(at) = self.next_event().filter(|at| *at <= limit) else {
            self.now = self.now.max(limit);
            return false;
        };
        self.now = self.now.max(at);
        while let Some(Reverse(packet)) = self.under_way.peek() {
            if packet.at > self.now {
                break;
            }
            let Some(Reverse(packet)) = self.under_way.pop() else {
                break;
            };
            self.tally.arrived += 1;
            self.capture.arrived(self.now, packet.to, &packet.bytes);
            frames::deliver(&mut self.hosts[packet.to].stack, self.now, &packet.bytes);
        }
        while self
            .alarms
            .peek()
            .is_some_and(|Reverse(at)| *at <= self.now)
        {
            self.alarms.pop();
        }
        for host in &mut self.hosts {
            host.stack.advance(self.now);
            while host.stack.pop_ready().is_some() {}
        }
        self.flush();
        true
    }

    /// Lets everything happen that happens within `time`.
    pub fn run_for(&mut self, time: Duration) {
        let limit = self.now + time;
        while self.step_until(limit) {}
    }

    /// Lets things happen until `done` says so, asked after each event. Whether it did, within `time`.
    pub fn run_until(
        &mut self,
        time: Duration,
        mut done: impl FnMut(&mut Network) -> bool,
    ) -> bool {
        let limit = self.now + time;
        loop {
            if done(self) {
                self.flush();
                return true;
            }
            if !self.step_until(limit) {
                return false;
            }
        }
    }

    /// What the hosts still hold, by name.
    pub fn leftovers(&mut self) -> Vec<String> {
        let each = self
            .hosts
            .iter_mut()
            .map(|host| (host.address, host.leftovers()));
        each.flat_map(|(address, left)| {
            left.into_iter()
                .map(move |what| format!("{address}: {what}"))
        })
        .collect()
    }

    /// The last packets as a pcapng file: an interface for each host, and one for what was lost.
    pub fn pcapng(&self) -> Vec<u8> {
        let names: Vec<String> = self
            .hosts
            .iter()
            .map(|host| host.address.to_string())
            .collect();
        self.capture.pcapng(&names)
    }
}
