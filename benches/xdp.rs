//! AF_XDP over veth, through the backend and through a plain loop over the kernel's rings that does nothing else, alternating
//! in one process: what the backend costs on top of the kernel. One thread does all, the kernel's part included, so a figure
//! is the whole cost of a packet: sending is over when the kernel has given the buffers back, receiving includes a plain
//! sender at the far end, the same for both. Needs root, for namespaces and programs.

#[path = "support/plain_xdp.rs"]
mod plain_xdp;
mod support;

use std::sync::Arc;
use std::time::Instant;

use janus_io::xdp::Xdp;
use janus_io::{Backend, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, Pool};
use plain_xdp::Plain;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use support::Scale;
use support::link::{datagram, ip};
use support::report::Report;

/// Bytes of a frame.
const LENGTHS: [usize; 2] = [64, 1_460];
const OURS: [u8; 4] = [192, 0, 2, 7];
const BURST: usize = 64;
/// A pair for the backend, and one for the plain loop: each near end, then its far one.
const PAIRS: [[&str; 2]; 2] = [["xbjanus0", "xbjanus1"], ["xbplain0", "xbplain1"]];

/// This process's own namespace, with the pairs in it; both end with it.
fn pairs() -> Result<(), String> {
    // SAFETY: a network namespace shares no memory or descriptors with anything, and this process has opened none.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|errno| format!("namespace: {errno}"))?;
    for [near, far] in PAIRS {
        ip(&format!("link add {near} type veth peer name {far}"))?;
        for end in [near, far] {
            // No chatter of the kernel's between the packets that are counted.
            ip(&format!("link set {end} addrgenmode none"))?;
            ip(&format!("link set {end} up"))?;
        }
    }
    Ok(())
}

/// The backend on its pair.
struct Ours {
    queue: Box<dyn Queue>,
    pool: Pool,
    _depot: Arc<Depot>,
}

impl Ours {
    fn open() -> Ours {
        let depot = Depot::new(32 * 1024, &Growth::Inline).expect("memory");
        let backend = Box::new(Xdp::new(PAIRS[0][0], depot.clone()).with_address(OURS.into()));
        let mut queues = backend.open(1).expect("AF_XDP");
        Ours {
            queue: queues.pop().expect("a queue"),
            pool: depot.pool(),
            _depot: depot,
        }
    }

    fn send(&mut self, packet: &[u8], count: usize) {
        let (mut frames, mut done) = (Batch::new(), Batch::new());
        let mut made = 0;
        while made < count || !frames.is_empty() {
            while made < count && !frames.is_full() {
                let buf = self.pool.alloc().expect("a buffer");
                let mut frame = Frame::new(buf, packet.len() as u16);
                // What the stack would write: the headers.
                frame.data_mut()[..42].copy_from_slice(&packet[..42]);
                let _ = frames.push(frame);
                made += 1;
            }
            self.queue.tx_burst(&mut self.pool, &mut frames, &mut done);
        }
    }

    fn receive(&mut self) -> usize {
        let mut batch = Batch::new();
        self.queue.rx_burst(&mut self.pool, &mut batch);
        let received = batch.len();
        batch.pull().for_each(|frame| self.pool.free(frame.buf));
        received
    }
}

/// Nanoseconds a packet when bursts are sent from the far end and taken at the near one.
fn time_receiving(
    far: &mut Plain,
    packet: &[u8],
    count: usize,
    mut receive: impl FnMut() -> usize,
) -> f64 {
    let begin = Instant::now();
    let mut received = 0;
    while received < count {
        far.send(packet, BURST);
        let mut empty = 0;
        let wanted = received + BURST;
        while received < wanted {
            let got = receive();
            received += got;
            empty = if got == 0 { empty + 1 } else { 0 };
            assert!(empty < 100_000_000, "{received} of {wanted} came");
        }
    }
    begin.elapsed().as_nanos() as f64 / received as f64
}

fn main() {
    let scale = Scale::get();
    if let Err(why) = pairs() {
        println!("skipped: {why}");
        return;
    }
    let (rounds, count) = (scale.pick(1, 11, 41), scale.pick(640, 64_000, 320_000));
    let mut report = Report::new("xdp");
    let mut ours = Ours::open();
    let mut plain = Plain::open(PAIRS[1][0]).expect("AF_XDP");
    let mut far = PAIRS.map(|[_, far]| Plain::open(far).expect("AF_XDP"));
    for len in LENGTHS {
        let packet = datagram(len);
        let mut nanos: [[Vec<f64>; 2]; 2] = Default::default();
        for round in 0..=rounds {
            let (mut tx, mut rx) = ([0.0; 2], [0.0; 2]);
            for who in [round % 2, 1 - round % 2] {
                let begin = Instant::now();
                match who {
                    0 => ours.send(&packet, count),
                    _ => plain.send(&packet, count),
                }
                tx[who] = begin.elapsed().as_nanos() as f64 / count as f64;
                // The far end is in the way of what was sent to it.
                while far[who].receive() > 0 {}
                rx[who] = match who {
                    0 => time_receiving(&mut far[0], &packet, count, || ours.receive()),
                    _ => time_receiving(&mut far[1], &packet, count, || plain.receive()),
                };
            }
            // The first round only warms up.
            if round > 0 || rounds == 1 {
                for (all, [janus, plain]) in nanos.iter_mut().zip([tx, rx]) {
                    all[0].push(janus);
                    all[1].push(plain);
                }
            }
        }
        for (dir, [janus, plain]) in ["tx", "rx"].into_iter().zip(&nanos) {
            let params = |who: &'static str| {
                [
                    ("dir", dir.into()),
                    ("bytes", len.into()),
                    ("way", who.into()),
                ]
            };
            let mpps = |all: &[f64]| all.iter().map(|ns| 1e3 / ns).collect::<Vec<f64>>();
            report.median("mpps", &mpps(janus), "Mpps", &params("backend"));
            report.median("mpps", &mpps(plain), "Mpps", &params("plain"));
            let ratios: Vec<f64> = janus
                .iter()
                .zip(plain)
                .map(|(ours, raw)| ours / raw)
                .collect();
            let params = [("dir", dir.into()), ("bytes", len.into())];
            report.median("cost_ratio", &ratios, "x", &params);
        }
    }
    report.finish();
}
