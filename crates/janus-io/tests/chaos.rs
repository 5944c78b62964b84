//! The whole fabric under way on threads of its own, with everything too small: short rings, few buffers, a wire that
//! loses, doubles and reorders, shards that keep frames, lend them, answer twice or drop what they got. Whatever happens,
//! in the end every buffer is home and every frame that was lent came back to the shard that lent it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use janus_csb::{Balancer, Limits, Ring};
use janus_io::faults::{Faults, FaultyBackend};
use janus_io::park::{Parker, Unparker};
use janus_io::steer::Steerer;
use janus_io::{Backend, Batch, IoCore, Port, Queue, combined, split, wire};
use janus_mem::{Depot, Frame, Growth, LENT, Pool};
use janus_seeds::Random;
use janus_wire::{FlowNames, Link, MICROSOFT_KEY, SeqNum, Toeplitz, ipv4, proto, tcp};

const SHARDS: usize = 3;
/// Frames the far side sends; more where the shards got too little of them, because something else ran.
const FRAMES: u64 = 60_000;
/// Frames lent by shards, and come back to the far side.
const ENOUGH: u64 = 1_000;
/// On a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(120);

/// A segment to or from one of our ports.
fn segment(frame: &mut Frame, number: u32) {
    frame.len = (ipv4::LEN + tcp::LEN) as u16;
    let bytes = frame.data_mut();
    let ip = ipv4::Repr {
        src: [198, 51, 100, number as u8].into(),
        dst: [192, 0, 2, 1].into(),
        proto: proto::TCP,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
        payload_len: tcp::LEN as u16,
    };
    ipv4::emit(bytes, &ip);
    let header = tcp::Header {
        src_port: (number >> 8) as u16 | 1,
        dst_port: 80,
        seq: SeqNum(number),
        ack: SeqNum(0),
        flags: tcp::Flags::ACK,
        window: 1000,
        urgent: 0,
        header_len: tcp::LEN,
    };
    tcp::emit(
        &mut bytes[ipv4::LEN..],
        &header,
        &tcp::options::Options::NONE,
    );
}

/// What all threads see.
#[derive(Default)]
struct World {
    /// The far side has sent all it will.
    sent: AtomicBool,
    /// Everybody goes home.
    over: AtomicBool,
    received: AtomicU64,
    lent: AtomicU64,
    completed: AtomicU64,
    back_at_far: AtomicU64,
}

/// A shard that is no stack: what it does with a frame is drawn.
struct Shard {
    me: u32,
    port: Port,
    pool: Pool,
    parker: Parker,
    random: Random,
    leaving: Vec<Frame>,
    kept: Vec<Frame>,
    lent: u64,
}

impl Shard {
    fn judge(&mut self, mut frame: Frame, world: &World) {
        frame.tag = 0;
        match self.random.below(10) {
            // Not to be waited for.
            0 => drop(frame),
            1 => self.pool.free(frame.buf),
            2 if self.kept.len() < 20 => self.kept.push(frame),
            3..=6 => {
                (frame.tag, frame.key) = (LENT, self.me);
                self.lent += 1;
                world.lent.fetch_add(1, Ordering::Relaxed);
                self.leaving.push(frame);
            }
            7 => {
                // Answered twice, where there is a buffer for that.
                if let Some(buf) = self.pool.alloc() {
                    let mut copy = Frame::new(buf, frame.len);
                    copy.data_mut().copy_from_slice(frame.data());
                    self.leaving.push(copy);
                }
                self.leaving.push(frame);
            }
            _ => self.leaving.push(frame),
        }
    }

    fn turn(&mut self, world: &World) -> bool {
        let mut arrived = Vec::new();
        let moved = self.port.receive(&mut self.pool, &mut arrived);
        world
            .received
            .fetch_add(arrived.len() as u64, Ordering::Relaxed);
        for frame in arrived {
            self.judge(frame, world);
        }
        if self.random.below(8) == 0 {
            self.kept.clear();
        }
        let mut done = Vec::new();
        let before = self.leaving.len();
        self.port.send(&mut self.pool, &mut self.leaving, &mut done);
        let busy = moved + done.len() > 0 || self.leaving.len() < before;
        for frame in done {
            assert!(frame.is_lent() && frame.key == self.me, "not what was lent");
            self.lent -= 1;
            world.completed.fetch_add(1, Ordering::Relaxed);
            self.pool.free(frame.buf);
        }
        busy
    }

    /// As a shard's loop does: turns while there is something, sleeps when there is not.
    fn run(mut self, world: &World) -> Pool {
        let begin = Instant::now();
        while !world.over.load(Ordering::Acquire) || self.lent > 0 || !self.leaving.is_empty() {
            assert!(
                begin.elapsed() < PATIENCE,
                "{} lent and not back",
                self.lent
            );
            if self.turn(world) || self.lent > 0 || !self.leaving.is_empty() || !self.port.arm() {
                std::thread::yield_now();
                continue;
            }
            let (port, parker) = (&self.port, &mut self.parker);
            let fd = port.wait_fd();
            let news = || port.has_waiting() || world.over.load(Ordering::Acquire);
            // Bounded only so that a lost wake is a failure and not a test that hangs.
            parker
                .park(fd.as_slice(), Some(PATIENCE), news)
                .expect("it sleeps");
        }
        self.kept.clear();
        // The device keeps buffers posted until it is gone.
        drop(self.port);
        self.pool
    }
}

/// The far side: sends, and counts what comes back.
fn far_side(mut queue: Box<dyn Queue>, mut pool: Pool, world: &World, mut random: Random) {
    let (mut frames, mut done, mut got) = (Batch::new(), Batch::new(), Batch::new());
    let mut sent = 0;
    let begin = Instant::now();
    while !world.over.load(Ordering::Acquire) {
        assert!(begin.elapsed() < PATIENCE, "it did not come to an end");
        let enough = world.lent.load(Ordering::Relaxed) > ENOUGH
            && world.back_at_far.load(Ordering::Relaxed) > ENOUGH;
        let ended = sent >= FRAMES && enough;
        if !ended && frames.is_empty() {
            for _ in 0..random.below(64) {
                let Some(buf) = pool.alloc() else { break };
                let mut frame = Frame::new(buf, 0);
                segment(&mut frame, random.below(1 << 20) as u32);
                assert!(frames.push(frame).is_ok());
                sent += 1;
            }
        }
        queue.tx_burst(&mut pool, &mut frames, &mut done);
        queue.rx_burst(&mut pool, &mut got);
        world
            .back_at_far
            .fetch_add(got.len() as u64, Ordering::Relaxed);
        got.pull().for_each(|frame| pool.free(frame.buf));
        if ended && frames.is_empty() {
            world.sent.store(true, Ordering::Release);
        }
        if random.below(16) == 0 {
            std::thread::yield_now();
        }
    }
}

fn chaos(io_cores: Option<usize>, seed: u64) {
    println!("seed {seed}");
    let queues = io_cores.unwrap_or(SHARDS);
    let (near, far) = wire::pair(wire::Config {
        queues: [queues, 1],
        depth: 64,
        ..wire::Config::default()
    })
    .unwrap();
    let faults = Faults {
        seed,
        loss: 20,
        duplicate: 30,
        reorder: 50,
        distance: 20,
        ..Faults::default()
    };
    let near = FaultyBackend::new(Box::new(near), faults);
    let near = Box::new(near).open(queues).unwrap();
    let far = Box::new(far).open(1).unwrap().remove(0);
    let mut balancer = Balancer::new(Ring::uniform(SHARDS, 16, 1), Limits::default());
    let names = FlowNames::new([1, 2]);
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
    let steerers = (0..queues)
        .map(|_| Steerer::new(toeplitz.clone(), names, balancer.io_end(), Link::Ip))
        .collect();
    // Fewer than all would like to have.
    let depot = Depot::new(700, &Growth::Inline).unwrap();
    let far_depot = Depot::new(512, &Growth::Inline).unwrap();
    let parkers: Vec<Parker> = (0..SHARDS).map(|_| Parker::new().unwrap()).collect();
    let bells: Vec<Unparker> = parkers.iter().map(Parker::unparker).collect();
    let (cores, ports): (Vec<IoCore>, Vec<Port>) = match io_cores {
        Some(_) => {
            let pools = (0..queues).map(|_| depot.pool()).collect();
            split(near, pools, steerers, &bells, 32).unwrap()
        }
        None => (Vec::new(), combined(near, steerers, &bells, 32)),
    };
    let counters: Vec<_> = cores
        .iter()
        .map(IoCore::counters)
        .chain(ports.iter().filter_map(Port::counters))
        .cloned()
        .collect();
    let world = World::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let far_pool = far_depot.pool();
        let world = &world;
        scope.spawn(move || far_side(far, far_pool, world, Random::new(seed | 1)));
        let polling: Vec<_> = cores
            .into_iter()
            .map(|mut core| {
                let (stop, bell) = (&stop, core.unparker());
                let thread = scope.spawn(move || {
                    core.run(stop).expect("it polls");
                    drop(core);
                });
                (thread, bell)
            })
            .collect();
        let shards: Vec<_> = ports
            .into_iter()
            .zip(parkers)
            .enumerate()
            .map(|(me, (port, parker))| {
                let shard = Shard {
                    me: me as u32,
                    port,
                    pool: depot.pool(),
                    parker,
                    random: Random::new(seed ^ (me as u64 + 2) << 20),
                    leaving: Vec::new(),
                    kept: Vec::new(),
                    lent: 0,
                };
                scope.spawn(move || shard.run(world))
            })
            .collect();
        let begin = Instant::now();
        while !world.sent.load(Ordering::Acquire) {
            assert!(begin.elapsed() < PATIENCE, "the far side got stuck");
            std::thread::sleep(Duration::from_millis(1));
        }
        world.over.store(true, Ordering::Release);
        bells.iter().for_each(|bell| _ = bell.wake());
        for shard in shards {
            drop(shard.join().expect("a shard ends well"));
        }
        stop.store(true, Ordering::Relaxed);
        for (thread, bell) in polling {
            bell.wake();
            thread.join().expect("an I/O core ends well");
        }
    });
    let stats = depot.stats();
    assert_eq!((stats.outstanding, stats.free), (0, 700), "{stats:?}");
    assert_eq!(far_depot.stats().outstanding, 0);
    let lent = world.lent.load(Ordering::Relaxed);
    assert_eq!(world.completed.load(Ordering::Relaxed), lent);
    assert!(lent > ENOUGH && world.back_at_far.load(Ordering::Relaxed) > ENOUGH);
    let sum = |of: fn(&janus_io::IoCounters) -> u64| -> u64 {
        counters.iter().map(|counters| of(counters)).sum()
    };
    // Each frame an I/O core took went to a shard or is counted as lost.
    assert_eq!(
        sum(|c| c.received.get()),
        sum(|c| c.delivered.get()) + sum(|c| c.dropped_full.get()),
        "{counters:?}"
    );
    assert!(world.received.load(Ordering::Relaxed) <= sum(|c| c.delivered.get()));
}

fn seed() -> u64 {
    let given = std::env::var("JANUS_CHAOS_SEED").ok();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| std::process::id().into())
}

#[test]
fn every_buffer_comes_home_in_the_split_placement() {
    chaos(Some(1), seed());
    chaos(Some(2), seed());
}

#[test]
fn every_buffer_comes_home_in_the_combined_placement() {
    chaos(None, seed());
}
