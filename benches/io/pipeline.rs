//! The whole way of a packet but TCP: I/O core (burst, classification, flow key, balancer) → ring → shard, which touches
//! all 64 bytes → ring → I/O core. Over a device that costs nothing, with real TCP segments of many flows. In the split
//! placement two threads share the work, in the combined one a single thread does all of it. The shard turns each packet
//! round and counts its trips inside it, so a packet lost, doubled or changed ends the benchmark.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use janus_csb::{Balancer, Limits, Ring};
use janus_io::park::Parker;
use janus_io::steer::Steerer;
use janus_io::{IoCounters, Port, Queue, RING_DEPTH, combined, split};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_wire::{
    FlowNames, Link, MICROSOFT_KEY, MacAddr, SeqNum, Toeplitz, ethernet, ipv4, proto, tcp,
};

use crate::mirror::Mirror;
use crate::pin::pin;
use crate::support::Scale;
use crate::support::report::{Report, Value};

/// Packets under way: fewer than a ring holds, so that none is dropped.
const PACKETS: usize = 512;
/// Bytes of a frame.
const LEN: usize = 64;
/// Points on the balancer's ring for each shard, as the runtime has.
const POINTS: u16 = 32;

const IP: usize = ethernet::LEN;
const TCP: usize = IP + ipv4::LEN;
const PAYLOAD: usize = TCP + tcp::LEN;

/// A whole TCP segment over IPv4 of its own flow; the payload is its number and its trips.
fn packet(number: u32) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let header = ethernet::Header {
        dst: MacAddr([2, 0, 0, 0, 0, 1]),
        src: MacAddr([2, 0, 0, 0, 0, 2]),
        ethertype: ethernet::ethertype::IPV4,
    };
    header.emit(&mut bytes);
    let ip = ipv4::Repr {
        src: Ipv4Addr::from_bits(0xc633_6401 + number / 8),
        dst: Ipv4Addr::new(192, 0, 2, 1),
        proto: proto::TCP,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
        payload_len: (LEN - TCP) as u16,
    };
    ipv4::emit(&mut bytes[IP..], &ip);
    let segment = tcp::Header {
        src_port: 10_000 + (number % 8) as u16,
        dst_port: 80,
        seq: SeqNum(number),
        ack: SeqNum(0),
        flags: tcp::Flags::ACK,
        window: 1000,
        urgent: 0,
        header_len: tcp::LEN,
    };
    tcp::emit(&mut bytes[TCP..], &segment, &tcp::options::Options::NONE);
    bytes[PAYLOAD..PAYLOAD + 4].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// What a shard does here with its packets.
struct Work {
    trips: Box<[u32; PACKETS]>,
}

impl Work {
    fn new() -> Self {
        Self {
            trips: Box::new([0; PACKETS]),
        }
    }

    /// Turns a packet round: addresses and ports change places, everything is read, the trips are counted.
    #[inline]
    fn touch(&mut self, frame: &mut Frame) {
        let bytes: &mut [u8; LEN] = frame.data_mut().try_into().expect("the frame's length");
        let word = |bytes: &[u8; LEN], at: usize| {
            u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
        };
        let number = word(bytes, PAYLOAD) as usize;
        let trip = word(bytes, PAYLOAD + 4);
        assert_eq!(trip, self.trips[number], "packet {number} on a wrong trip");
        self.trips[number] = trip.wrapping_add(1);
        let (there, back) = bytes.split_at_mut(6);
        there.swap_with_slice(&mut back[..6]);
        let (src, dst) = bytes[IP + 12..].split_at_mut(4);
        src.swap_with_slice(&mut dst[..4]);
        bytes[TCP..TCP + 4].rotate_left(2);
        bytes[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&trip.wrapping_add(1).to_ne_bytes());
        // Not to be sent as LENT, which the lowest bit of the tag would say.
        frame.tag = 0;
    }
}

/// A fabric over a mirror.
struct Fabric {
    ports: Vec<(Port, Pool)>,
    io_core: Option<janus_io::IoCore>,
    counters: Arc<IoCounters>,
    // Shards never sleep here, but their bells must be somebody's.
    _parkers: Vec<Parker>,
    _balancer: Balancer,
}

fn fabric(shards: usize, is_split: bool) -> Fabric {
    let depot = Depot::new(8192, &Growth::Inline).expect("memory");
    let mut pool = depot.pool();
    let frames: Vec<Frame> = (0..PACKETS as u32)
        .map(|number| {
            let mut frame = Frame::new(pool.alloc().expect("a buffer"), LEN as u16);
            frame.data_mut().copy_from_slice(&packet(number));
            frame
        })
        .collect();
    let queues: Vec<Box<dyn Queue>> = vec![Box::new(Mirror::new(frames))];
    let ring = Ring::uniform(shards, POINTS, 7);
    let mut balancer = Balancer::new(ring, Limits::default());
    let steerers = vec![Steerer::new(
        Toeplitz::new(&MICROSOFT_KEY),
        FlowNames::new([1, 2]),
        balancer.io_end(),
        Link::Ethernet,
    )];
    let parkers: Vec<Parker> = (0..shards)
        .map(|_| Parker::new().expect("an eventfd"))
        .collect();
    let bells: Vec<_> = parkers.iter().map(Parker::unparker).collect();
    let (io_core, ports) = if is_split {
        let pools = vec![depot.pool()];
        let (mut cores, ports) =
            split(queues, pools, steerers, &bells, RING_DEPTH).expect("a fabric");
        (cores.pop(), ports)
    } else {
        (None, combined(queues, steerers, &bells, RING_DEPTH))
    };
    let counters = match &io_core {
        Some(core) => core.counters().clone(),
        None => ports[0].counters().expect("it polls").clone(),
    };
    Fabric {
        ports: ports.into_iter().map(|port| (port, depot.pool())).collect(),
        io_core,
        counters,
        _parkers: parkers,
        _balancer: balancer,
    }
}

/// Shards in turn on this thread until told to stop.
fn shards(ports: &mut [(Port, Pool)], work: &mut Work, until: impl Fn() -> bool) {
    let (mut frames, mut done) = (Vec::with_capacity(256), Vec::new());
    while !until() {
        for _ in 0..64 {
            for (port, pool) in &mut *ports {
                port.receive(pool, &mut frames);
                for frame in &mut frames {
                    work.touch(frame);
                }
                while !frames.is_empty() {
                    port.send(pool, &mut frames, &mut done);
                }
                assert!(done.is_empty(), "nothing was lent");
            }
        }
    }
}

/// Million packets a second through all of it.
fn measure(shard_count: usize, is_split: bool, time: Duration) -> f64 {
    let Fabric {
        mut ports,
        io_core,
        counters,
        _parkers,
        _balancer,
    } = fabric(shard_count, is_split);
    let stop = AtomicBool::new(false);
    let mpps = std::thread::scope(|scope| {
        let polling = io_core.map(|mut core| {
            let (stop, bell) = (&stop, core.unparker());
            let thread = scope.spawn(move || {
                let _there = pin(1);
                core.run(stop).expect("it polls");
                core
            });
            (thread, bell)
        });
        let _here = pin(0);
        // A flow and the flow that turns it round may belong to different shards, so they count together.
        let mut work = Work::new();
        // Warm, and both sides awake.
        let warm = Instant::now();
        shards(&mut ports, &mut work, || warm.elapsed() > time / 10);
        let (begin, before) = (Instant::now(), counters.sent.get());
        shards(&mut ports, &mut work, || begin.elapsed() > time);
        let sent = counters.sent.get() - before;
        let mpps = sent as f64 * 1e3 / begin.elapsed().as_nanos() as f64;
        stop.store(true, Ordering::Relaxed);
        if let Some((thread, bell)) = polling {
            bell.wake();
            drop(thread.join().expect("it ends"));
        }
        mpps
    });
    let lost = counters.dropped_full.get()
        + counters.dropped_malformed.get()
        + counters.dropped_unknown.get()
        + counters.dropped_no_shard.get();
    assert_eq!(lost, 0, "packets lost: {counters:?}");
    mpps
}

pub(crate) fn run(scale: Scale, report: &mut Report) {
    let (runs, time) = scale.pick((1, 5), (9, 200), (15, 1000));
    let time = Duration::from_millis(time);
    for (placement, is_split, shards) in [
        ("split", true, 1),
        ("split", true, 4),
        ("combined", false, 1),
    ] {
        let figures: Vec<f64> = (0..runs).map(|_| measure(shards, is_split, time)).collect();
        let params: [(&str, Value); 4] = [
            ("placement", placement.into()),
            ("threads", (1 + u32::from(is_split)).into()),
            ("shards", shards.into()),
            ("frame_bytes", LEN.into()),
        ];
        report.median("pipeline_mpps", &figures, "Mpps", &params);
    }
}
