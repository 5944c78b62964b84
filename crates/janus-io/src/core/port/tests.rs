//! Both placements over the wire, with a far side that sends by hand.

mod own_queue;

use super::*;
use crate::backend::wire::{self, Config};
use crate::queue::Backend;
use crate::testing::{
    CLIENT, SERVER, arp, balancer, frame, mark, pool, request, segment, steerer, steerer_of,
};
use janus_csb::{Balancer, Tag};
use janus_mem::{Depot, Growth, LENT};
use janus_wire::Link;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LINK: Link = Link::Ethernet;

/// A fabric of shards, driven by one thread, and the far end of its wire.
struct Fabric {
    balancer: Balancer,
    depot: Arc<Depot>,
    io_cores: Vec<IoCore>,
    ports: Vec<(Port, Pool)>,
    parkers: Vec<Parker>,
    far: Box<dyn Queue>,
    far_pool: Pool,
}

fn fabric(io_cores: Option<usize>, shards: usize, depth: u32) -> Fabric {
    let queues = io_cores.unwrap_or(shards);
    let config = Config {
        link: LINK,
        queues: [queues, 1],
        ..Config::default()
    };
    let (near, far) = wire::pair(config).unwrap();
    let near = Box::new(near).open(queues).unwrap();
    let far = Box::new(far).open(1).unwrap().pop().unwrap();
    let mut balancer = balancer(shards);
    let steerers = (0..queues).map(|_| steerer_of(&mut balancer, LINK));
    let steerers = steerers.collect();
    let depot = Depot::new(16 * 1024, &Growth::Inline).unwrap();
    let parkers: Vec<_> = (0..shards).map(|_| Parker::new().unwrap()).collect();
    let bells: Vec<_> = parkers.iter().map(Parker::unparker).collect();
    let (io_cores, ports) = match io_cores {
        Some(_) => split(
            near,
            (0..queues).map(|_| depot.pool()).collect(),
            steerers,
            &bells,
            depth,
        )
        .unwrap(),
        None => (Vec::new(), combined(near, steerers, &bells, depth)),
    };
    let ports = ports.into_iter().map(|port| (port, depot.pool())).collect();
    Fabric {
        balancer,
        depot,
        io_cores,
        ports,
        parkers,
        far,
        far_pool: pool(4096),
    }
}

impl Fabric {
    fn far_sends(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        for bytes in frames {
            batch.push(frame(&mut self.far_pool, &bytes)).unwrap();
            self.far.tx_burst(&mut self.far_pool, &mut batch, &mut done);
        }
        assert!(batch.is_empty());
    }

    fn at_far(&mut self) -> Vec<u32> {
        let mut marks = Vec::new();
        loop {
            let mut batch = Batch::new();
            self.far.rx_burst(&mut self.far_pool, &mut batch);
            if batch.is_empty() {
                return marks;
            }
            for frame in batch.pull() {
                marks.push(mark(frame.data(), LINK));
                self.far_pool.free(frame.buf);
            }
        }
    }

    /// Turns everything until nothing moves; what each shard got.
    fn settle(&mut self) -> Vec<Vec<Frame>> {
        let mut got: Vec<Vec<Frame>> = self.ports.iter().map(|_| Vec::new()).collect();
        loop {
            let mut moved = self.io_cores.iter_mut().map(IoCore::turn).sum::<usize>();
            for ((port, pool), got) in self.ports.iter_mut().zip(&mut got) {
                let before = got.len();
                port.receive(pool, got);
                moved += got.len() - before;
            }
            if moved == 0 {
                return got;
            }
        }
    }

    fn counters(&self) -> Vec<Arc<IoCounters>> {
        let own = self.ports.iter().filter_map(|(port, _)| port.counters());
        self.io_cores
            .iter()
            .map(IoCore::counters)
            .chain(own)
            .cloned()
            .collect()
    }

    fn sum(&self, of: impl Fn(&IoCounters) -> &crate::counter::Counter) -> u64 {
        self.counters()
            .iter()
            .map(|counters| of(counters).get())
            .sum()
    }

    /// Ends it and finds every buffer home.
    fn finish(self) {
        let Fabric {
            depot,
            io_cores,
            mut ports,
            far,
            ..
        } = self;
        drop((io_cores, far));
        for (_, pool) in &mut ports {
            pool.flush();
        }
        drop(ports);
        assert_eq!(depot.stats().outstanding, 0);
    }
}

fn both(shards: usize, depth: u32, test: impl Fn(Fabric)) {
    for io_cores in [None, Some(1), Some(2)] {
        test(fabric(io_cores, shards, depth));
    }
}

#[test]
fn every_frame_reaches_the_shard_the_steering_names() {
    both(3, 1024, |mut fabric| {
        let _ = fabric.settle();
        let mut owners = HashMap::new();
        for round in 0..5 {
            fabric.far_sends((0..200).map(|port| request(LINK, port, u32::from(port))));
            let got = fabric.settle();
            assert_eq!(
                got.iter().map(Vec::len).sum::<usize>(),
                200,
                "round {round}"
            );
            for (shard, frames) in got.into_iter().enumerate() {
                for frame in frames {
                    assert_eq!(
                        fabric.balancer.current().look_up(frame.key, 80).0.index(),
                        shard
                    );
                    assert_eq!(
                        *owners.entry(mark(frame.data(), LINK)).or_insert(shard),
                        shard
                    );
                    fabric.ports[shard].1.free(frame.buf);
                }
            }
        }
        assert_eq!(fabric.sum(|c| &c.delivered), 1000);
        assert_eq!(fabric.sum(|c| &c.received), 1000);
        fabric.finish();
    });
}

#[test]
fn arp_is_seen_by_every_shard_and_junk_by_none() {
    both(3, 1024, |mut fabric| {
        fabric.far_sends([
            arp(janus_wire::arp::Op::Request),
            vec![0; 30],
            request(LINK, 7, 1)[..30].to_vec(),
        ]);
        let got = fabric.settle();
        for frames in got {
            assert_eq!(frames.len(), 1);
            assert_eq!(frames[0].data(), arp(janus_wire::arp::Op::Request));
        }
        assert_eq!(
            (
                fabric.sum(|c| &c.dropped_unknown),
                fabric.sum(|c| &c.dropped_malformed)
            ),
            (1, 1)
        );
        fabric.finish();
    });
}

#[test]
fn a_shard_that_is_alone_gets_every_frame_unread() {
    let mut fabric = fabric(None, 1, 1024);
    let _ = fabric.settle();
    let sent = [request(LINK, 7, 1), vec![0; 30]];
    fabric.far_sends(sent.clone());
    let got = fabric.settle().remove(0);
    assert!(
        got.iter()
            .map(Frame::data)
            .eq(sent.iter().map(Vec::as_slice))
    );
    let published = fabric.balancer.current().look_up(0, 80).1;
    for frame in got {
        assert_eq!(Tag::from_bits(frame.tag), published);
        fabric.ports[0].1.free(frame.buf);
    }
    assert_eq!(fabric.sum(|c| &c.received), 2);
    assert_eq!(fabric.sum(|c| &c.delivered), 2);
    fabric.finish();
}

#[test]
fn neighbors_that_always_have_something_do_not_keep_a_shard_from_its_queue() {
    let mut fabric = fabric(None, 6, 1024);
    let _ = fabric.settle();
    fabric.far_sends((0..2_000).map(|port| request(LINK, port, 1)));
    let (own, neighbors) = fabric.ports.split_first_mut().unwrap();
    for (port, pool) in neighbors {
        let mut kept = Vec::new();
        while port.receive(pool, &mut kept) > 0 {}
    }
    let (port, pool) = own;
    port.set_batching(Batching::Fixed(BURST));
    let full = port.from.iter_mut().map(Consumer::waiting).min();
    assert!(full.unwrap() >= BURST / 4, "each ring fills its share");
    let before = port.counters().unwrap().received.get();
    let mut frames = Vec::new();
    port.receive(pool, &mut frames);
    assert!((BURST..=2 * BURST).contains(&frames.len()));
    assert!(port.counters().unwrap().received.get() > before);
    drop(frames);
    fabric.finish();
}

#[test]
fn a_full_ring_drops_and_counts() {
    let mut fabric = fabric(Some(1), 1, 16);
    fabric.far_sends((0..100).map(|port| request(LINK, port, 1)));
    while fabric.io_cores[0].turn() > 0 {}
    assert_eq!(
        (
            fabric.sum(|c| &c.dropped_full),
            fabric.sum(|c| &c.delivered)
        ),
        (84, 16)
    );
    assert_eq!(fabric.settle()[0].len(), 16);
    fabric.finish();
}

/// Opens a connection from the client's port.
fn syn(port: u16) -> Vec<u8> {
    let mut bytes = request(LINK, port, u32::MAX);
    bytes[LINK.header_len() + janus_wire::ipv4::LEN + 13] = janus_wire::tcp::Flags::SYN.0;
    bytes
}

#[test]
fn a_flood_of_syns_that_fills_a_ring_costs_connections_no_frame() {
    for cores in [1, 2] {
        let mut fabric = fabric(Some(cores), 1, 64);
        fabric.ports[0].0.set_batching(Batching::Fixed(16));
        let (mut sent, mut syns, mut got, mut opened) = (0, 0, Vec::new(), 0);
        let mut take = |fabric: &mut Fabric| {
            let (mut frames, (port, pool)) = (Vec::new(), &mut fabric.ports[0]);
            port.receive(pool, &mut frames);
            let taken = frames.len();
            for frame in frames {
                match mark(frame.data(), LINK) {
                    u32::MAX => opened += 1,
                    mark => got.push(mark),
                }
                pool.free(frame.buf);
            }
            taken
        };
        for _ in 0..200 {
            // Three times what the shard takes in a turn.
            let mut burst = Vec::new();
            for place in 0..48u16 {
                if place % 8 == 7 {
                    burst.push(request(LINK, place, sent));
                    sent += 1;
                } else {
                    burst.push(syn(1_000 + place));
                    syns += 1;
                }
            }
            fabric.far_sends(burst);
            while fabric.io_cores.iter_mut().map(IoCore::turn).sum::<usize>() > 0 {}
            take(&mut fabric);
        }
        while take(&mut fabric) > 0 {}
        assert_eq!(fabric.sum(|c| &c.dropped_full), 0);
        got.sort_unstable();
        assert!(got.into_iter().eq(0..sent));
        // They are not kept out either: the others leave room for them.
        let lost = fabric.sum(|c| &c.dropped_syn_room);
        assert!(lost > 0 && opened > 200 && lost + opened == syns);
        fabric.finish();
    }
}

#[test]
fn a_ring_with_room_takes_syns_as_it_takes_others() {
    let mut fabric = fabric(Some(1), 1, 64);
    fabric.far_sends((0..100).map(syn));
    while fabric.io_cores[0].turn() > 0 {}
    let kept = 64 / 4;
    assert_eq!(
        (
            fabric.sum(|c| &c.delivered),
            fabric.sum(|c| &c.dropped_syn_room),
            fabric.sum(|c| &c.dropped_full),
        ),
        (64 - kept, 100 - (64 - kept), 0)
    );
    // What is kept back is for all others, to the last place.
    fabric.far_sends((0..20).map(|port| request(LINK, port, 1)));
    while fabric.io_cores[0].turn() > 0 {}
    assert_eq!(fabric.sum(|c| &c.dropped_full), 20 - kept);
    assert_eq!(fabric.settle()[0].len(), 64);
    fabric.finish();
}

#[test]
fn sent_frames_leave_in_order_and_lent_ones_come_back_to_who_lent_them() {
    both(3, 64, |mut fabric| {
        let _ = fabric.settle();
        for shard in 0..3usize {
            let (port, pool) = &mut fabric.ports[shard];
            let mut frames: Vec<Frame> = (0..60u32)
                .map(|i| {
                    let bytes =
                        segment(LINK, (SERVER, 80), (CLIENT, 7), shard as u32 * 1000 + i, 0);
                    let mut frame = frame(pool, &bytes);
                    if i % 2 == 0 {
                        (frame.tag, frame.key) = (LENT, shard as u32 * 1000 + i);
                    }
                    frame
                })
                .collect();
            assert!(port.send_room() >= 60);
            let mut done = Vec::new();
            port.send(pool, &mut frames, &mut done);
            assert!(frames.is_empty());
            for core in &mut fabric.io_cores {
                core.turn();
            }
            port.send(pool, &mut frames, &mut done);
            let keys = done.iter().map(|frame| frame.key);
            assert!(
                keys.eq((0..60).step_by(2).map(|i| shard as u32 * 1000 + i)),
                "shard {shard}"
            );
            assert!(done.iter().all(Frame::is_lent));
            assert!(
                fabric
                    .at_far()
                    .into_iter()
                    .eq((0..60).map(|i| shard as u32 * 1000 + i))
            );
        }
        assert_eq!(
            (fabric.sum(|c| &c.sent), fabric.sum(|c| &c.completed)),
            (180, 90)
        );
        fabric.finish();
    });
}

/// A device that takes one frame a call and finishes it three calls later.
struct Slow {
    caps: Caps,
    held: std::collections::VecDeque<(u32, Frame)>,
    calls: u32,
}

impl Queue for Slow {
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn rx_burst(&mut self, _: &mut Pool, _: &mut Batch) {}
    fn tx_burst(&mut self, _: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.calls += 1;
        if let Some(frame) = frames.pull().next() {
            self.held.push_back((self.calls + 3, frame));
        }
        while self.held.front().is_some_and(|(at, _)| *at <= self.calls) {
            done.push(self.held.pop_front().unwrap().1).unwrap();
        }
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn a_device_that_finishes_late_still_brings_frames_home() {
    let caps = wire::pair(Config::default()).unwrap().0.caps().clone();
    let slow = Box::new(Slow {
        caps,
        held: Default::default(),
        calls: 0,
    });
    let depot = Depot::new(1024, &Growth::Inline).unwrap();
    let (_balancer, steerer) = steerer(2, LINK);
    let parkers = [Parker::new().unwrap(), Parker::new().unwrap()];
    let bells = parkers.each_ref().map(Parker::unparker);
    let (mut cores, mut ports) =
        split(vec![slow], vec![depot.pool()], vec![steerer], &bells, 8).unwrap();
    let mut pool = depot.pool();
    let mut left: Vec<Vec<Frame>> = (0..2u32)
        .map(|shard| {
            let lent = |i| Frame {
                tag: LENT,
                key: shard * 100 + i,
                ..Frame::new(pool.alloc().unwrap(), 0)
            };
            (0..50).map(lent).collect()
        })
        .collect();
    let mut back: [Vec<Frame>; 2] = Default::default();
    for _ in 0..1000 {
        for (shard, port) in ports.iter_mut().enumerate() {
            port.send(&mut pool, &mut left[shard], &mut back[shard]);
        }
        cores[0].turn();
    }
    for (shard, back) in back.iter().enumerate() {
        assert!(
            back.iter()
                .map(|frame| frame.key)
                .eq((0..50).map(|i| shard as u32 * 100 + i))
        );
    }
}

#[test]
fn a_sleeping_shard_and_a_sleeping_core_are_rung() {
    for io_cores in [None, Some(1)] {
        let Fabric {
            io_cores,
            mut ports,
            mut parkers,
            mut far,
            mut far_pool,
            balancer,
            ..
        } = fabric(io_cores, 2, 64);
        let stop = Arc::new(AtomicBool::new(false));
        let stoppers: Vec<_> = io_cores.iter().map(IoCore::unparker).collect();
        let counters: Vec<_> = io_cores
            .iter()
            .map(|core| core.counters().clone())
            .collect();
        let cores: Vec<_> = io_cores
            .into_iter()
            .map(|mut core| {
                let stop = stop.clone();
                std::thread::spawn(move || core.run(&stop).unwrap())
            })
            .collect();
        let got = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let shards: Vec<_> = ports
            .drain(..)
            .zip(parkers.drain(..))
            .map(|((mut port, mut pool), mut parker)| {
                let (stop, got) = (stop.clone(), got.clone());
                let bell = parker.unparker();
                let thread = std::thread::spawn(move || {
                    let mut frames = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        port.receive(&mut pool, &mut frames);
                        got.fetch_add(frames.len(), Ordering::Relaxed);
                        frames.drain(..).for_each(|frame| pool.free(frame.buf));
                        if port.arm() {
                            // No time limit: a lost wake-up hangs the test.
                            let ready = || stop.load(Ordering::Relaxed) || port.has_waiting();
                            parker.park(port.wait_fd().as_slice(), None, ready).unwrap();
                        }
                    }
                });
                (thread, bell)
            })
            .collect();
        let mut sent = 0;
        for round in 0..200u16 {
            let (mut batch, mut done) = (Batch::new(), Batch::new());
            batch
                .push(frame(&mut far_pool, &request(LINK, round, 1)))
                .unwrap();
            far.tx_burst(&mut far_pool, &mut batch, &mut done);
            sent += 1;
            while got.load(Ordering::Relaxed) < sent {
                std::thread::yield_now();
            }
            if round % 20 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        // One that never does hangs the test.
        for counters in counters {
            while counters.slept.get() == 0 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        stoppers.iter().for_each(|bell| _ = bell.wake());
        for (thread, bell) in shards {
            bell.wake();
            thread.join().unwrap();
        }
        cores.into_iter().for_each(|core| core.join().unwrap());
        drop(balancer);
    }
}

#[test]
fn one_long_queue_among_many_is_taken_in_growing_batches() {
    // Four polling cores, of which one has a lot for the only shard.
    let mut fabric = fabric(Some(4), 1, 1024);
    let _ = fabric.settle();
    let (port, pool) = &mut fabric.ports[0];
    port.set_batching(Batching::Adaptive);
    let mut rings = Vec::new();
    for ring in &mut port.from {
        let (producer, consumer) = crate::ring::ring(1024);
        *ring = consumer;
        rings.push(producer);
    }
    for _ in 0..300 {
        assert!(rings[2].push(frame(pool, &[0; 40])).is_ok());
    }
    let mut sizes = Vec::new();
    loop {
        let mut got = Vec::new();
        if port.receive(pool, &mut got) == 0 {
            break;
        }
        sizes.push(got.len());
        got.into_iter().for_each(|frame| pool.free(frame.buf));
    }
    // A quarter of 8, of 16, of 32, of 64: others could have come in between.
    assert_eq!(sizes[..5], [2, 4, 8, 16, 16]);
    assert_eq!(sizes.iter().sum::<usize>(), 300);
    port.set_batching(Batching::Fixed(64));
    assert!(rings[0].push(frame(pool, &[0; 40])).is_ok());
    let mut got = Vec::new();
    assert_eq!(port.receive(pool, &mut got), 1);
    got.into_iter().for_each(|frame| pool.free(frame.buf));
    drop(rings);
    fabric.finish();
}
