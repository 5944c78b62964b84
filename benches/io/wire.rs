//! The in-memory wire: a burst of frames sent by one end and received by the other, on one thread, each side timed on its
//! own. Sending is the copy into the far side's buffers, receiving is everything else; there is no kernel to compare with.

use std::time::{Duration, Instant};

use janus_io::{BURST, Backend, Batch, Queue, wire};
use janus_mem::{Depot, Frame, Growth, Pool};

use crate::pin::pin;
use crate::support::Scale;
use crate::support::report::{Report, Value};

/// Bytes of a frame.
const LENGTHS: [usize; 2] = [64, 1_460];

struct End {
    queue: Box<dyn Queue>,
    pool: Pool,
}

fn ends() -> [End; 2] {
    let (near, far) = wire::pair(wire::Config::default()).expect("a wire");
    [near, far].map(|end| End {
        queue: Box::new(end).open(1).expect("a wire").remove(0),
        pool: Depot::new(8192, &Growth::Inline).expect("memory").pool(),
    })
}

/// Million frames a second, sent and received.
fn measure(near: &mut End, far: &mut End, len: usize, bursts: u32) -> [f64; 2] {
    let (mut frames, mut done, mut got) = (Batch::new(), Batch::new(), Batch::new());
    let (mut sending, mut receiving) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..bursts {
        while !frames.is_full() {
            let buf = near.pool.alloc().expect("a buffer");
            let _ = frames.push(Frame::new(buf, len as u16));
        }
        let begin = Instant::now();
        near.queue.tx_burst(&mut near.pool, &mut frames, &mut done);
        let sent = Instant::now();
        far.queue.rx_burst(&mut far.pool, &mut got);
        let received = Instant::now();
        assert_eq!((frames.len(), got.len()), (0, BURST));
        got.pull().for_each(|frame| far.pool.free(frame.buf));
        sending += sent - begin;
        receiving += received - sent;
    }
    [sending, receiving].map(|time| f64::from(bursts) * BURST as f64 * 1e3 / time.as_nanos() as f64)
}

pub(crate) fn run(scale: Scale, report: &mut Report) {
    let (runs, bursts) = scale.pick((1, 20), (15, 10_000), (31, 50_000));
    let _here = pin(0);
    let [mut near, mut far] = ends();
    // The receiver posts its first buffers.
    far.queue.rx_burst(&mut far.pool, &mut Batch::new());
    for len in LENGTHS {
        let mut figures: [Vec<f64>; 2] = Default::default();
        measure(&mut near, &mut far, len, bursts / 10 + 1);
        for _ in 0..runs {
            let both = measure(&mut near, &mut far, len, bursts);
            for (figures, figure) in figures.iter_mut().zip(both) {
                figures.push(figure);
            }
        }
        for (dir, figures) in ["tx", "rx"].into_iter().zip(&figures) {
            let params: [(&str, Value); 3] = [
                ("backend", "wire".into()),
                ("dir", dir.into()),
                ("bytes", len.into()),
            ];
            report.median("backend_mpps", figures, "Mpps", &params);
        }
    }
}
