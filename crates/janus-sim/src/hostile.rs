//! Whole lives of connections through hostile networks, drawn from a seed: hosts with any settings, links with any
//! trouble, partitions, several connections at once, each with its phases of traffic, silences, and manner of parting.
//! At every step what was delivered is a prefix of what was written and no bound is exceeded; at the end it is all of
//! it, or both ends have an error that the run contains a cause for, and nothing is left behind.
//!
//! A seed is a run: [`run`] with `Network::new(seed)` takes the same course each time. `janus sim hostile --runs 10000`
//! runs many; `JANUS_SEED=17 cargo test -p janus-sim hostile` runs one again.
//! What never lives here: what a network does to packets (`net`).

mod flow;
mod many;
mod moves;
mod plan;
mod rules;
mod side;

use crate::net::{Host, HostId, Network, Partition, Way};
use flow::Flow;
use janus_tcp::{Instant, ListenerId};
pub use many::run_many;
use plan::Plan;
use rules::{Rules, Watch};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Virtual time after which a run hangs.
const PATIENCE: Duration = Duration::from_secs(20_000);
/// Long enough for every timer that is left: retransmissions of an orphan's last data are given up, TIME-WAIT ends.
const AFTERMATH: Duration = Duration::from_secs(4_000);
/// After so long a silence nothing may be left of connections that were let go, whatever state it found them in.
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// After this long without anything to do no timer runs: the longest retransmission timeout.
const STALE_TIMERS_MAX: Duration = Duration::from_secs(121);
/// Connections that may wait to be accepted.
const BACKLOG: usize = 64;
/// Of a thousand events at a host that has few buffers so many take some of them away, or give them back.
const TAKES_BUFFERS: u16 = 30;
/// Buffers are counted once in so many events.
const COUNT_EVERY: u64 = 64;

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of the events in one or many runs.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Tally {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Tally {
            /// Adds another's counts.
            pub fn add(&mut self, other: &Tally) {
                $(self.$name += other.$name;)*
            }

            /// Every count with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

tally! {
    /// Runs.
    runs,
    /// Connections tried.
    connections,
    /// Runs in which all fell silent in the middle.
    silences,
    /// Connections that delivered everything and ended in good order at both ends.
    ended_well,
    /// Ends that learned of a reset.
    reset,
    /// Ends that gave up.
    timed_out,
    /// Ends that were refused.
    refused,
    /// Ends that wrote or shut what was over.
    broken_pipe,
    /// Connections whose listener forgot them because every answer to its SYN-ACKs was lost.
    forgotten,
    /// Times a connection became idle and gave its hot blocks back.
    cooled,
    /// Silences a connection lived through without one.
    gaps,
    /// Times at which no connection of a run was hot, and no hot block, segment or timer was in use.
    all_quiet,
    /// Connections over IPv6.
    over_v6,
    /// Bytes read.
    bytes,
    /// Packets sent.
    packets,
    /// Packets lost.
    lost,
    /// Packets lost to a partition.
    cut_off,
    /// Packets damaged.
    damaged,
    /// Segments that were checked on the wire.
    checked,
    /// Of those, repeats.
    repeats,
    /// Of those, with SACK blocks.
    sacks,
    /// Packets marked with congestion experienced.
    marked,
    /// Packets too long for a link.
    too_big,
    /// Flows that moved to another stack.
    moved,
    /// Of those that an application had, the busy ones.
    moved_busy,
}

struct World<'n> {
    network: &'n mut Network,
    hosts: Vec<HostId>,
    listeners: Vec<(HostId, ListenerId)>,
    plan: Plan,
    flows: Vec<Flow>,
    tally: Tally,
    events: u64,
    /// Since when no connection has anything to do.
    quiet_since: Option<Instant>,
}

/// Draws a run from the network's seed and carries it out.
pub fn run(network: &mut Network) -> Tally {
    let plan = Plan::draw(network.random());
    let mut world = World::new(network, plan);
    let rules = world.watch();
    let done = world.live();
    assert!(done, "not done within {PATIENCE:?}:\n{}", world.describe());
    world.end();
    let rules = rules.borrow();
    let tally = world.network.tally();
    Tally {
        runs: 1,
        connections: world.flows.len() as u64,
        over_v6: world.plan.flows.iter().filter(|flow| flow.v6).count() as u64,
        packets: tally.sent,
        lost: tally.lost,
        cut_off: tally.cut_off,
        damaged: tally.damaged,
        marked: tally.marked,
        too_big: tally.too_big,
        checked: rules.checked,
        repeats: rules.repeats,
        sacks: rules.sacks,
        bytes: world.bytes(),
        ..world.tally
    }
}

impl<'n> World<'n> {
    fn new(network: &'n mut Network, plan: Plan) -> World<'n> {
        let hosts: Vec<HostId> = plan
            .hosts
            .iter()
            .map(|host| network.add_host_with(&host.config, host.mtu, host.buffers))
            .collect();
        for (from, row) in hosts.iter().zip(&plan.links) {
            for (to, model) in hosts.iter().zip(row) {
                network.set_link(*from, *to, model.clone());
            }
        }
        let begin = network.now();
        for partition in &plan.partitions {
            network.partition(Partition {
                hosts: partition.hosts.iter().map(|host| hosts[*host]).collect(),
                during: begin + partition.during.start..begin + partition.during.end,
                way: partition.way,
            });
        }
        let mut listeners = Vec::new();
        for host in &hosts {
            let Host {
                stack,
                address,
                address_v6,
                ..
            } = network.host(*host);
            let here: [SocketAddr; 2] = [
                (*address, flow::PORT).into(),
                (*address_v6, flow::PORT).into(),
            ];
            listeners.extend(here.map(|here| {
                let listener = stack.listen(here, BACKLOG).expect("a free port");
                (*host, listener)
            }));
        }
        let flows = plan.flows.iter().enumerate().map(|(index, flow)| {
            network.set_alarm(begin + flow.starts);
            let may_break = plan.may_break(flow.hosts);
            Flow::new(index, flow.clone(), &hosts, begin, may_break)
        });
        World {
            flows: flows.collect(),
            network,
            hosts,
            listeners,
            plan,
            tally: Tally::default(),
            events: 0,
            quiet_since: None,
        }
    }

    /// From now on every packet must keep the rules.
    fn watch(&mut self) -> Rc<RefCell<Rules>> {
        let rules = Rc::new(RefCell::new(Rules::default()));
        for (index, flow) in self.flows.iter().enumerate() {
            let mtus = flow
                .plan
                .hosts
                .map(|host| usize::from(self.plan.hosts[host].mtu));
            let streams = [index as u64 * 2 + 1, index as u64 * 2 + 2];
            let ends = flow.ends(self.network);
            rules
                .borrow_mut()
                .expect(ends, streams, flow.totals(), mtus);
        }
        self.network.observe(Box::new(Watch(Rc::clone(&rules))));
        rules
    }

    fn live(&mut self) -> bool {
        let begin = self.network.now();
        let limit = begin + PATIENCE;
        let silence = self.plan.silence.map(|after| begin + after);
        loop {
            self.accept();
            if silence.is_some_and(|at| self.network.now() >= at) {
                self.fall_silent();
                return true;
            }
            for flow in &mut self.flows {
                flow.turn(self.network, &mut self.tally);
            }
            self.check_bounds();
            if self.flows.iter().all(Flow::is_done) {
                self.network.flush();
                return true;
            }
            self.check_quiet();
            self.take_buffers();
            self.move_hosts();
            if !self.network.step_until(limit) {
                return false;
            }
        }
    }

    /// Where packet buffers are few, somebody else takes of them now and then, and gives them back. Not before all
    /// connections are open: a SYN that found no buffer would look as if it had never been sent.
    fn take_buffers(&mut self) {
        if self.flows.iter().any(Flow::is_opening) {
            return;
        }
        for (host, plan) in self.hosts.iter().zip(&self.plan.hosts) {
            if !plan.has_few_buffers() || !self.network.random().chance(TAKES_BUFFERS) {
                continue;
            }
            let most = u64::from(plan.buffers);
            let count = match self.network.random().within(0..3) {
                0 => most,
                1 => self.network.random().within(1..most),
                _ => 0,
            };
            self.network.host(*host).hoard(count as usize);
        }
    }

    /// All applications let go, no packet arrives any more, and a day passes.
    fn fall_silent(&mut self) {
        let from = self.network.now();
        for host in &self.hosts {
            self.network.partition(Partition {
                hosts: vec![*host],
                during: from..from + 2 * DAY,
                way: Way::Both,
            });
        }
        for flow in &mut self.flows {
            flow.abandon(self.network);
        }
        self.tally.silences += 1;
        self.network.run_for(DAY);
    }

    fn accept(&mut self) {
        for (host, listener) in &self.listeners {
            while let Ok((conn, peer)) = self.network.host(*host).stack.accept(*listener) {
                let mut flows = self.flows.iter_mut();
                let flow = flows
                    .find(|flow| flow.sides[1].host == *host && flow.ends(self.network)[0] == peer);
                let flow =
                    flow.unwrap_or_else(|| panic!("a connection from {peer}, who opened none"));
                if flow.sides[1].conn.is_some() || flow.sides[1].gone {
                    // A late copy of a SYN, answered, after all is over.
                    let now = self.network.now();
                    self.network.host(*host).stack.close(now, conn);
                } else {
                    flow.accepted(self.network, conn);
                }
            }
        }
    }

    /// No connection and no host holds more than it may.
    fn check_bounds(&mut self) {
        self.events += 1;
        for flow in &self.flows {
            for (side, host) in flow.sides.iter().zip(flow.plan.hosts) {
                let (receive_max, send_max) = self.plan.hosts[host].held_max();
                side.check_bounds(self.network, receive_max, send_max);
            }
        }
        if self.events.is_multiple_of(COUNT_EVERY) {
            for (index, host) in self.hosts.iter().enumerate() {
                let most = self.buffers_max(index);
                let host = self.network.host(*host);
                host.stack.pool().flush();
                let held = host.depot.stats().outstanding - host.hoard.len();
                assert!(held <= most, "{held} packet buffers held, {most} allowed");
            }
        }
    }

    /// Packet buffers a host may hold for all its connections: one for each 512 bytes to send or to read, and what waits
    /// out of order.
    fn buffers_max(&self, host: usize) -> usize {
        const OUT_OF_ORDER: usize = 256;
        const REPLIES: usize = 64;
        let (receive_max, send_max) = self.plan.hosts[host].held_max();
        let ends = self.flows.iter().flat_map(|flow| flow.plan.hosts);
        let ends = ends.filter(|end| *end == host).count();
        let each = (receive_max + send_max) as usize / 512;
        ends * (each + OUT_OF_ORDER) + REPLIES
    }

    /// When nothing is going on, nothing is held for it: connections that are idle have no hot block and no timer.
    fn check_quiet(&mut self) {
        let quiet = self
            .flows
            .iter()
            .all(|flow| flow.is_quiet() || flow.is_done());
        // Those that are over may still wait for their last acknowledgement.
        let over = self.flows.iter().any(Flow::is_done);
        if !quiet || over || !self.flows.iter().any(Flow::is_silent) {
            self.quiet_since = None;
            return;
        }
        self.network.flush();
        let now = self.network.now();
        let since = *self.quiet_since.get_or_insert(now);
        // A block's entry in the timing wheel outlives its use: it fires once, and finds nothing to do.
        let timers_gone = now.saturating_since(since) > STALE_TIMERS_MAX;
        self.tally.all_quiet += 1;
        for host in &self.hosts {
            let stack = &self.network.host(*host).stack;
            let held = (stack.hot_in_use(), stack.segments_in_use());
            assert_eq!(held, (0, 0), "hot blocks and segments of idle connections");
            let deadline = stack.next_deadline().filter(|_| timers_gone);
            assert_eq!(deadline, None, "a timer of idle connections");
        }
    }

    /// Nothing is left once every timer has run down.
    fn end(&mut self) {
        for host in &self.hosts {
            self.network.host(*host).hoard(0);
        }
        self.network.run_for(AFTERMATH);
        self.accept();
        self.network.run_for(AFTERMATH);
        let left = self.network.leftovers();
        assert!(left.is_empty(), "left behind: {}", left.join(", "));
        for host in &self.hosts {
            let deadline = self.network.host(*host).stack.next_deadline();
            assert_eq!(deadline, None, "a timer of nothing");
        }
    }

    fn bytes(&self) -> u64 {
        let sides = self.flows.iter().flat_map(|flow| &flow.sides);
        sides.map(|side| side.read as u64).sum()
    }

    fn describe(&mut self) -> String {
        let flows = self.flows.iter();
        let flows = flows.map(|flow| flow.describe(self.network));
        flows.collect::<Vec<_>>().join("\n")
    }
}
