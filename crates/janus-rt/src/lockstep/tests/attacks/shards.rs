//! All shards of a runtime as one host under attack: packets come by the wire, a main on every shard accepts connections,
//! and time goes from deadline to deadline. Rings may change all the while.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use janus_io::{Backend, Batch, Queue, wire};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_tcp::{ConnId, Error, Instant, Stack};

use super::list;
use super::list::support::target::Target;
use super::list::support::{HERE, PORT, family};
use crate::lockstep::net::any_queue;
use crate::lockstep::tests::updates::{Changes, held_twice};
use crate::lockstep::{Layout, Outside, World};
use crate::net::{TcpListener, TcpStream};
use crate::shard::hops;

/// Packet buffers of the attackers: they want for none.
const BUFFERS: u32 = 32_768;
/// Frames on the wire from one queue to another: more than all shards send in a turn.
const DEPTH: u32 = 1_024;
/// Nanoseconds of virtual time between two of the attackers' packets, at most.
const APART_NS: u64 = 250_000;
/// Virtual time between two changes of the rings.
const CHANGES: Duration = Duration::from_millis(10);
/// Updates that the listeners' beginning and end may take.
const UPDATES_FOR_LISTENERS: u64 = 4;

/// The attackers' end of the wire.
pub(super) struct Attackers {
    queue: Box<dyn Queue>,
    pool: Pool,
    /// Packets on their way to the wire.
    firing: VecDeque<Vec<u8>>,
    /// Packets from the runtime that were not collected yet.
    seen: Vec<Vec<u8>>,
    /// Number of packets that the runtime has sent.
    sent: usize,
}

impl Attackers {
    fn new(end: wire::End) -> Attackers {
        let depot = Depot::new(BUFFERS, &Growth::Inline).expect("memory");
        Attackers {
            queue: Box::new(end).open(1).expect("one queue").remove(0),
            pool: depot.pool(),
            firing: VecDeque::new(),
            seen: Vec::new(),
            sent: 0,
        }
    }
}

impl Outside for Attackers {
    fn turn(&mut self, _: Instant) -> bool {
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        let before = self.seen.len();
        loop {
            self.queue.rx_burst(&mut self.pool, &mut batch);
            if batch.is_empty() {
                break;
            }
            for frame in batch.pull() {
                self.seen.push(frame.data().to_vec());
                self.pool.free(frame.buf);
            }
        }
        while !batch.is_full()
            && let Some(packet) = self.firing.pop_front()
        {
            let buf = self.pool.alloc().expect("attackers have buffers");
            let mut frame = Frame::new(buf, packet.len() as u16);
            frame.data_mut().copy_from_slice(&packet);
            let _ = batch.push(frame);
        }
        let came = self.seen.len() - before;
        self.sent += came;
        let any = !batch.is_empty() || came > 0;
        self.queue.tx_burst(&mut self.pool, &mut batch, &mut done);
        any
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

/// Connections that the mains have accepted, with the shard of each.
type Accepted = Rc<RefCell<VecDeque<(usize, TcpStream, SocketAddr)>>>;

async fn accept(accepted: Accepted) -> crate::Result {
    let listener = TcpListener::bind(family::socket(Ipv4Addr::UNSPECIFIED, PORT)).await?;
    let shard = crate::core_id().unwrap_or_default();
    loop {
        let (stream, peer) = listener.accept().await?;
        accepted.borrow_mut().push_back((shard, stream, peer));
    }
}

/// A runtime under attack.
pub(super) struct Shards {
    world: World<Attackers>,
    depot: Arc<Depot>,
    accepted: Accepted,
    /// Connections with their shards, by the index of the target's name for them. `None`: closed.
    conns: Vec<Option<(usize, TcpStream)>>,
    /// `None`: rings stay as they are.
    changes: Option<Changes>,
    /// Number of packets handed in.
    fed: usize,
    /// Number of packets handed in and sent until the last change of rings.
    until_change: usize,
}

impl Shards {
    /// A runtime in this layout, over IPv6 with owner bits, with `buffers` packet buffers beside those that it posts to the
    /// wire; `changing`: its rings change every 10 ms.
    pub(super) fn new(seed: u64, layout: Layout, changing: bool, buffers: u32) -> Shards {
        hops::take();
        let accepted = Accepted::default();
        let mut world = World::around(
            seed,
            layout,
            |rng| wire::Config {
                depth: DEPTH,
                // Half of the devices know no flows.
                spread: rng.one_in(2).then(|| any_queue(rng.next())),
                ..wire::Config::default()
            },
            |builder| {
                builder
                    .tcp(list::small())
                    .backlog(4_096)
                    .owner_bits(family::is_v6())
                    .packet_buffers(buffers)
                    .address(format!("{HERE}/24").parse().unwrap())
                    .address(format!("{}/120", family::v6_of(HERE)).parse().unwrap())
            },
            || accept(accepted.clone()),
            |_, end| Attackers::new(end),
        );
        for shard in &mut world.shards {
            // Short slices, so that packets come between two of them.
            (shard.work.update.places, shard.work.update.places_max) = (16, 16);
        }
        world.come_to_rest();
        let depot = world.shards[0].ctx.pool.borrow().depot().clone();
        Shards {
            world,
            depot,
            accepted,
            conns: Vec::new(),
            changes: changing.then(|| Changes::of_rings(seed, CHANGES)),
            fed: 0,
            until_change: 0,
        }
    }

    /// Gives a few turns, in which an update may go on. Begins the next update when it is time, unless no packet has come or gone since
    /// the last: without packets a change shows nothing.
    fn turns(&mut self) {
        let world = &mut self.world;
        for _ in 0..world.rng.below(2 * world.actors.len() as u64) {
            world.turn_of_somebody();
        }
        let packets = self.fed + world.peer.sent;
        if let Some(changes) = &mut self.changes
            && packets > self.until_change
            && changes.go_on(world)
        {
            self.until_change = packets;
        }
    }
}

impl Target for Shards {
    fn feed(&mut self, packet: &[u8]) {
        let world = &mut self.world;
        world.peer.firing.push_back(packet.to_vec());
        let apart_ns = world.rng.below(APART_NS);
        world.pass(apart_ns);
        self.fed += 1;
        self.turns();
    }

    fn packets(&mut self) -> Vec<Vec<u8>> {
        self.world.settle();
        core::mem::take(&mut self.world.peer.seen)
    }

    fn wait(&mut self, time: Duration) {
        let end = self.world.now() + time;
        loop {
            self.turns();
            self.world.settle();
            if self.world.now() >= end {
                return;
            }
            let next = self.world.next_deadline();
            self.world
                .pass_until(next.map_or(end, |next| next.min(end)));
        }
    }

    fn accept(&mut self) -> Result<(ConnId, SocketAddr), Error> {
        self.world.settle();
        let accepted = self.accepted.borrow_mut().pop_front();
        let (shard, stream, peer) = accepted.ok_or(Error::WouldBlock)?;
        let name = ConnId {
            index: self.conns.len() as u32,
            generation: 0,
        };
        self.conns.push(Some((shard, stream)));
        Ok((name, peer))
    }

    fn on(&mut self, conn: ConnId, call: &mut dyn FnMut(&mut Stack, Instant, ConnId)) {
        self.world.settle();
        let (shard, stream) = self.conns[conn.index as usize].as_ref().expect("is open");
        let ctx = &self.world.shards[*shard].ctx;
        ctx.on_stack(|stack, now| call(stack, now, stream.conn()));
    }

    fn write_and_close(&mut self, conns: &[ConnId], data: &[u8]) {
        self.world.settle();
        for conn in conns {
            let closed = self.conns[conn.index as usize].take();
            let (shard, stream) = closed.expect("is open");
            let shard = &self.world.shards[shard];
            if !data.is_empty() {
                let write = |stack: &mut Stack, now| stack.write(now, stream.conn(), data);
                let _may_be_put_off = shard.ctx.on_stack(write);
            }
            let _entered = shard.enter();
            drop(stream);
        }
    }

    fn each(&mut self, look: &mut dyn FnMut(&Stack)) {
        self.world.settle();
        for shard in &self.world.shards {
            look(&shard.ctx.stack.borrow());
        }
    }

    fn check(&mut self) {
        self.world.settle();
        self.world.audit();
        assert_eq!(held_twice(&self.world), Vec::<String>::new());
    }

    fn held(&mut self) -> usize {
        self.world.settle();
        for io_core in &mut self.world.io_cores {
            io_core.give_stock_back();
        }
        for shard in &self.world.shards {
            shard.ctx.stack.borrow_mut().pool().flush();
            shard.ctx.pool.borrow_mut().flush();
        }
        self.depot.stats().outstanding
    }

    fn end(mut self: Box<Self>, conns: &[ConnId]) {
        self.check();
        self.write_and_close(conns, &[]);
        self.world.end();
        let (most, forwards) = hops::take();
        // A timestamp that names another shard costs one more.
        let bound = if family::is_v6() { 3 } else { 2 };
        assert!(most <= bound, "{most} hops of a packet");
        let updates = self.world.conductor.mailbox.done().updates;
        println!("{updates} updates, {forwards} packets forwarded");
        assert_eq!(self.changes.is_some(), updates > UPDATES_FOR_LISTENERS);
        assert_eq!(self.world.lost(), 0, "the wire itself loses nothing");
        let Shards { world, depot, .. } = *self;
        drop(world);
        assert_eq!(depot.stats().outstanding, 0, "packet buffers are left");
    }
}
