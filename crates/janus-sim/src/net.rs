//! A network of hosts in virtual time. Packets take as long as their link says, get lost, overtaken, doubled and damaged
//! as its model and the seed decide, partitions cut hosts off for a while, and nothing sleeps: the clock jumps from one
//! event to the next. The same seed takes the same course, so a failure can be replayed; the packets that led to it can
//! be written as pcapng.
//! What never lives here: applications (those are the tests), and what a stack ought to do.

use janus_mem::{Depot, Growth, PacketBuf, Pool};
use janus_posix::frames;
use janus_tcp::{Config, ConnId, Instant, Interface, IpCidr, Secrets, Stack};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

mod capture;
mod link;
mod packet;
mod pair;
mod partition;
mod random;
mod seeds;
#[cfg(test)]
mod tests;

use capture::Capture;
pub use link::LinkModel;
use link::{Fate, Link};
use packet::TooBig;
pub(crate) use packet::over_v4;
pub(crate) use pair::stream_byte;
pub use pair::{Pair, Parting};
pub use partition::{Partition, Way};
pub use random::Random;
pub use seeds::for_each_seed;

/// The clock when a network begins; not zero, as no real clock is.
const ORIGIN: Instant = Instant::from_millis(1_000_000);
/// Packet buffers of each host.
pub(crate) const BUFFERS: u32 = 8_192;
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
    /// Those that its device receives into, which never run out.
    device: Pool,
    /// Those of its own that somebody else has.
    pub(crate) hoard: Vec<PacketBuf>,
    /// Connections that were at rest, to which something has come.
    pub(crate) roused: HashSet<ConnId>,
    /// Its address.
    pub address: Ipv4Addr,
    /// And its other one.
    pub address_v6: Ipv6Addr,
}

impl Host {
    fn has(&self, address: IpAddr) -> bool {
        address == self.address || address == self.address_v6
    }

    /// Takes so many of the stack's packet buffers away; with 0, gives all back.
    pub fn hoard(&mut self, count: usize) {
        let pool = self.stack.pool();
        if count == 0 {
            self.hoard.drain(..).for_each(|buf| pool.free(buf));
        }
        self.hoard.extend((0..count).map_while(|_| pool.alloc()));
    }

    /// Returns the resources that the stack still holds, by name; empty when all are given back.
    pub fn leftovers(&mut self) -> Vec<String> {
        self.stack.pool().flush();
        self.device.flush();
        let received = self.device.depot().stats().outstanding;
        let counts = [
            ("connections", self.stack.connections()),
            ("hot blocks", self.stack.hot_in_use()),
            ("segments", self.stack.segments_in_use()),
            ("half-open records", self.stack.half_open()),
            ("TIME-WAIT records", self.stack.in_time_wait()),
            ("packet buffers", self.depot.stats().outstanding),
            ("packet buffers of the device", received),
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

/// Counts of the packets' fates so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Packets the stacks sent.
    pub sent: u64,
    /// Packets that arrived, copies and damaged ones included.
    pub arrived: u64,
    /// Packets lost on the way, for want of a queue's room, or for an address that no host has.
    pub lost: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets that arrived damaged.
    pub damaged: u64,
    /// Packets cut in two.
    pub split: u64,
    /// Packets marked with congestion experienced.
    pub marked: u64,
    /// Packets lost to a partition; they count as lost too.
    pub cut_off: u64,
    /// Packets too long for a link, whether lost, reported or cut in fragments.
    pub too_big: u64,
}

/// Hears of every packet as it leaves a host and as it arrives at one: for rules that hold on the wire.
pub trait Observer {
    /// A host sent it.
    fn sent(&mut self, now: Instant, from: HostId, packet: &[u8]);

    /// A host gets it, perhaps damaged.
    fn arrives(&mut self, now: Instant, to: HostId, packet: &[u8]) {
        let _ = (now, to, packet);
    }
}

/// Hosts and the links between them.
pub struct Network {
    seed: u64,
    now: Instant,
    random: Random,
    hosts: Vec<Host>,
    /// By sender, then by receiver.
    links: Vec<Vec<Link>>,
    /// Model for the links of hosts added later.
    model: LinkModel,
    under_way: BinaryHeap<Reverse<Packet>>,
    /// When applications want to be asked again.
    alarms: BinaryHeap<Reverse<Instant>>,
    order: u64,
    partitions: Vec<Partition>,
    observer: Option<Box<dyn Observer>>,
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
            partitions: Vec::new(),
            observer: None,
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

    /// Returns the counts of the packets' fates so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Sets the model for the links of hosts added from now on, in both directions.
    pub fn set_model(&mut self, model: LinkModel) {
        self.model = model;
    }

    /// Sets the model of one direction from now on.
    pub fn set_link(&mut self, from: HostId, to: HostId, model: LinkModel) {
        self.links[from.0][to.0].model = model;
    }

    /// Cuts hosts off for a while. Several partitions may hold at once.
    pub fn partition(&mut self, partition: Partition) {
        self.partitions.push(partition);
    }

    /// Has somebody hear of every packet from now on.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// One more host, linked to all others. Addresses are documentation addresses (RFC 5737, RFC 3849).
    pub fn add_host(&mut self, config: &Config) -> HostId {
        self.add_host_with(config, 1_500, BUFFERS)
    }

    /// One more host whose interface takes packets up to `mtu` bytes, with so many packet buffers.
    pub fn add_host_with(&mut self, config: &Config, mtu: u16, buffers: u32) -> HostId {
        let index = self.hosts.len();
        let address = Ipv4Addr::new(
            192,
            0,
            2,
            u8::try_from(index + 1).expect("a network has at most 254 hosts"),
        );
        let depot = Depot::new(buffers, &Growth::Inline).expect("memory for packet buffers");
        let mut interface = Interface::ip(mtu);
        interface.any_local = false;
        let address_v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, index as u16 + 1);
        interface.addresses = vec![IpCidr::new(address, 24), IpCidr::new(address_v6, 64)];
        let secrets = Secrets::from_seed(self.random.bits());
        let stack = Stack::new(
            config.clone(),
            interface,
            secrets,
            depot.pool(),
            &Growth::Inline,
        );
        let received = Depot::new(BUFFERS, &Growth::Inline).expect("memory for packet buffers");
        self.hosts.push(Host {
            stack: stack.expect("memory for a stack"),
            depot,
            device: received.pool(),
            hoard: Vec::new(),
            roused: HashSet::new(),
            address,
            address_v6,
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
        if let Some(observer) = &mut self.observer {
            observer.sent(self.now, HostId(from), &bytes);
        }
        let destination = packet::destination(&bytes);
        let to = self
            .hosts
            .iter()
            .position(|host| destination.is_some_and(|to| host.has(to)));
        let Some(to) = to.filter(|_| self.under_way.len() < IN_FLIGHT_MAX) else {
            self.lose(bytes);
            return;
        };
        let now = self.now;
        if self.partitions.iter().any(|cut| cut.cuts(now, from, to)) {
            self.tally.cut_off += 1;
            self.lose(bytes);
        } else if bytes.len() > self.links[from][to].model.mtu {
            self.send_too_big(from, to, bytes);
        } else {
            self.send_marked_or_split(from, to, bytes);
        }
    }

    /// A packet that is longer than the link takes.
    fn send_too_big(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        self.tally.too_big += 1;
        let model = &self.links[from][to].model;
        if model.black_hole {
            self.lose(bytes);
            return;
        }
        // The router stands half way: its error takes as long as a packet to the far end.
        let at = self.now + model.delay;
        match packet::too_big(&bytes, model.mtu) {
            TooBig::Pieces(pieces) => pieces
                .into_iter()
                .for_each(|piece| self.carry(from, to, piece)),
            TooBig::Error(error) => {
                self.lose(bytes);
                self.enqueue(at, from, error);
            }
        }
    }

    fn send_marked_or_split(&mut self, from: usize, to: usize, mut bytes: Vec<u8>) {
        let (mark, split) = {
            let model = &self.links[from][to].model;
            (model.mark, model.split)
        };
        let congested = self.links[from][to].is_congested(self.now);
        if (self.random.chance(mark) || congested) && packet::mark(&mut bytes) {
            self.tally.marked += 1;
        }
        let pieces = match self.random.chance(split) {
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
                    self.enqueue(at, to, bytes);
                }
            }
        }
    }

    fn enqueue(&mut self, at: Instant, to: usize, bytes: Vec<u8>) {
        self.order += 1;
        self.under_way.push(Reverse(Packet {
            at,
            order: self.order,
            to,
            bytes,
        }));
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
            if let Some(observer) = &mut self.observer {
                observer.arrives(self.now, HostId(packet.to), &packet.bytes);
            }
            let Host { stack, device, .. } = &mut self.hosts[packet.to];
            let alloc = |_: &mut Stack| device.alloc();
            frames::deliver_in(stack, self.now, &packet.bytes, alloc);
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
            while let Some((conn, _)) = host.stack.pop_roused() {
                host.roused.insert(conn);
            }
            if let Err(forgotten) = host.stack.audit() {
                panic!("forgotten at {}: {forgotten}", host.address);
            }
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

    /// Returns the resources that the hosts still hold, by name.
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
