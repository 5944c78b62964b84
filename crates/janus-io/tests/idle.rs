//! Spinning and sleeping, looked at from outside: a core with something to do never sleeps, one without uses next to no
//! processor, and what comes in either way wakes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus_csb::{Balancer, Limits, Ring};
use janus_io::park::{Parker, Unparker};
use janus_io::steer::Steerer;
use janus_io::{Backend, Batch, Caps, IoCore, IoCounters, Port, Queue, split, wire};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_wire::{FlowNames, Link, MICROSOFT_KEY, Toeplitz};
use rustix::fd::BorrowedFd;

/// How long a condition may take on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device that always has one more frame: an IPv4 header and nothing that makes sense behind it, or `whole` TCP.
struct Endless {
    caps: Caps,
    given: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Queue for Endless {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        let Some(mut buf) = pool.alloc() else { return };
        let at = usize::from(buf.off());
        buf.bytes_mut()[at..at + 40].fill(0);
        let frame = Frame::new(buf, 40);
        assert!(out.push(frame).is_ok());
        self.given.fetch_add(1, Ordering::Relaxed);
    }

    fn tx_burst(&mut self, _: &mut Pool, _: &mut Batch, _: &mut Batch) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// An I/O core on a thread, with one shard that is not there.
struct Running {
    counters: Arc<IoCounters>,
    bell: Unparker,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(io::Result<()>, Duration)>,
    port: Port,
    _balancer: Balancer,
    _shard: Parker,
}

fn run(queue: Box<dyn Queue>, depot: &Arc<Depot>) -> Running {
    let mut balancer = Balancer::new(Ring::uniform(1, 8, 1), Limits::default());
    let link = queue.caps().link;
    let names = FlowNames::new([1, 2]);
    let steerer = Steerer::new(
        Toeplitz::new(&MICROSOFT_KEY),
        names,
        balancer.io_end(),
        link,
    );
    let shard = Parker::new().unwrap();
    let (mut cores, mut ports) = split(
        vec![queue],
        vec![depot.pool()],
        vec![steerer],
        &[shard.unparker()],
        64,
    )
    .unwrap();
    let mut core: IoCore = cores.remove(0);
    let (counters, bell) = (core.counters().clone(), core.unparker());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        let ended = core.run(&stopped);
        (ended, thread_time())
    });
    Running {
        counters,
        bell,
        stop,
        thread,
        port: ports.remove(0),
        _balancer: balancer,
        _shard: shard,
    }
}

impl Running {
    /// Processor time its thread used.
    fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.wake();
        let (ended, used) = self.thread.join().unwrap();
        ended.unwrap();
        used
    }
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "it did not come to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_busy_core_never_sleeps() {
    let depot = Depot::new(256, &Growth::Inline).unwrap();
    let (given, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (near, _) = wire::pair(wire::Config::default()).unwrap();
    let endless = Endless {
        caps: Caps {
            link: Link::Ip,
            ..near.caps().clone()
        },
        given: given.clone(),
        stop: stop.clone(),
    };
    let core = run(Box::new(endless), &depot);
    // Each of these turns found something, even if it only threw it away, and whatever else the machine did meanwhile.
    wait_until(|| given.load(Ordering::Relaxed) > 20_000);
    assert_eq!(core.counters.slept.get(), 0);
    assert!(core.counters.dropped_malformed.get() >= 20_000);
    // And it is not that it cannot.
    stop.store(true, Ordering::Relaxed);
    wait_until(|| core.counters.slept.get() > 0);
    core.end();
}

#[test]
fn an_idle_core_uses_next_to_no_processor_and_wakes_for_either_side() {
    let depot = Depot::new(1024, &Growth::Inline).unwrap();
    let (near, far) = wire::pair(wire::Config::default()).unwrap();
    let near = Box::new(near).open(1).unwrap().remove(0);
    let mut far = Box::new(far).open(1).unwrap().remove(0);
    let mut core = run(near, &depot);
    let mut pool = Depot::new(256, &Growth::Inline).unwrap().pool();
    let (begin, before) = (Instant::now(), core.counters.received.get());
    std::thread::sleep(Duration::from_secs(2));
    let slept = core.counters.slept.get();
    assert!(slept > 0, "it never slept");

    // From the device.
    let (mut frames, mut done) = (Batch::new(), Batch::new());
    for _ in 0..3 {
        let mut frame = Frame::new(pool.alloc().unwrap(), 40);
        frame.data_mut().fill(0);
        frames.push(frame).unwrap();
    }
    far.tx_burst(&mut pool, &mut frames, &mut done);
    wait_until(|| core.counters.received.get() == before + 3);
    // From the shard.
    let mut leaving = vec![Frame::new(depot.pool().alloc().unwrap(), 40)];
    core.port
        .send(&mut depot.pool(), &mut leaving, &mut Vec::new());
    wait_until(|| core.counters.sent.get() == 1);

    let (idle, used) = (begin.elapsed(), core.end());
    let share = used.as_secs_f64() / idle.as_secs_f64();
    assert!(
        share < 0.01,
        "{:.2} % of a processor while idle",
        share * 100.0
    );
}
