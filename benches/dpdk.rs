//! Frames per second through the DPDK backend, beside the ceiling: a loop in C that receives a burst and sends it back, with
//! nothing in between. On `net_ring`, which passes pointers, it is the backend's own cost; on `net_null` every frame also
//! takes a buffer from the pool and returns it, ours from the runtime's depot, the plain loop's from DPDK's own cached pool.
//! Both sides alternate in one process, on the same thread. Needs the feature `dpdk` or `dpdk-dlopen`.

mod support;

#[cfg(not(any(feature = "dpdk", feature = "dpdk-dlopen")))]
fn main() {
    eprintln!("skipped: built without the features `dpdk` and `dpdk-dlopen`");
}

#[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
fn main() {
    over::main();
}

#[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
mod over {
    use std::ffi::CString;
    use std::sync::Arc;
    use std::time::Instant;

    use janus_dpdk_sys::{check, ffi};
    use janus_io::dpdk::Dpdk;
    use janus_io::{BURST, Backend, Batch, Queue};
    use janus_mem::{Depot, Frame, Growth, Pool};

    use super::support::Scale;
    use super::support::report::Report;

    /// The longest frame here has so many bytes behind its 54 of headers.
    const PAYLOADS: [u16; 2] = [64 - 54, 1_460];
    const HEADERS: u16 = 54;

    /// Our side: a queue and what it needs.
    struct Ours {
        queue: Box<dyn Queue>,
        pool: Pool,
        batch: Batch,
        done: Batch,
    }

    impl Ours {
        fn open(device: &str) -> Ours {
            let depot: Arc<Depot> = Depot::new(16_384, &Growth::Inline).expect("memory");
            // The plain side's pools are DPDK's memory.
            let backend = Dpdk::new(device, depot.clone()).with_eal(["-m", "512"]);
            let queues = Box::new(backend).open(1);
            let mut queues = queues.unwrap_or_else(|error| panic!("{error}"));
            Ours {
                queue: queues.remove(0),
                pool: depot.pool(),
                batch: Batch::new(),
                done: Batch::new(),
            }
        }

        /// Puts a burst of frames into the ring, to go round.
        fn prime(&mut self, len: u16) {
            for _ in 0..BURST {
                let frame = Frame::new(self.pool.alloc().expect("a buffer"), len);
                self.batch.push(frame).expect("room");
            }
            self.queue
                .tx_burst(&mut self.pool, &mut self.batch, &mut self.done);
            assert!(self.batch.is_empty());
        }

        /// Million frames a second, each received and sent.
        fn run(&mut self, bursts: u64) -> f64 {
            let (mut moved, begin) = (0, Instant::now());
            for _ in 0..bursts {
                self.queue.rx_burst(&mut self.pool, &mut self.batch);
                moved += self.batch.len();
                self.queue
                    .tx_burst(&mut self.pool, &mut self.batch, &mut self.done);
                debug_assert!(self.batch.is_empty() && self.done.is_empty());
            }
            assert_eq!(moved as u64, bursts * BURST as u64);
            moved as f64 / begin.elapsed().as_micros() as f64
        }
    }

    /// The plain side: a port with a pool of DPDK's own.
    struct Plain {
        port: u16,
    }

    impl Plain {
        /// DPDK runs: our side was opened before.
        fn open(device: &str, number: usize) -> Plain {
            let word = |text: &str| CString::new(text).expect("no zero in it");
            let name = word(device.split(',').next().expect("a name"));
            let (mut port, mut error, mut on) = (0, 0, 0);
            let config = ffi::jd_port_config {
                hash_key: std::ptr::null(),
                offloads: 0,
                hash_key_len: 0,
                rx_queues: 1,
                tx_queues: 1,
                rx_descriptors: 1024,
                tx_descriptors: 1024,
                mtu: 0,
                promiscuous: 0,
                interrupts: 0,
                reserved: [0; 6],
            };
            // SAFETY: DPDK runs; zero-terminated names, places that can be written, one pool for one queue.
            unsafe {
                let pool = word(&format!("plain{number}"));
                let pool =
                    ffi::jd_pool_create(pool.as_ptr(), 4095, 256, 128 + 2048, -1, &raw mut error);
                check(error).expect("a pool");
                check(ffi::jd_device_add(word(device).as_ptr())).expect("a device");
                check(ffi::jd_port_by_name(name.as_ptr(), &raw mut port)).expect("its port");
                let set_up =
                    ffi::jd_port_setup(port, &raw const config, &raw const pool, &raw mut on);
                check(set_up).expect("a port");
                check(ffi::jd_port_start(port)).expect("started");
                let mut frames = [ffi::jd_frame::NONE; BURST];
                check(ffi::jd_frames_alloc(
                    pool,
                    frames.as_mut_ptr(),
                    BURST as u16,
                ))
                .expect("buffers");
                // Into the ring, to go round; `net_null` drops them.
                ffi::jd_tx_burst(port, 0, frames.as_ptr(), BURST as u16);
            }
            Plain { port }
        }

        fn run(&self, bursts: u64) -> f64 {
            let begin = Instant::now();
            // SAFETY: the port is started and polled by this thread only.
            let moved = unsafe { ffi::jd_raw_loop(self.port, 0, bursts) };
            assert_eq!(moved, bursts * BURST as u64);
            moved as f64 / begin.elapsed().as_micros() as f64
        }
    }

    pub(super) fn main() {
        let scale = Scale::get();
        let (rounds, bursts) = (scale.pick(1, 15, 41), scale.pick(100, 50_000, 100_000));
        let mut report = Report::new("dpdk");
        let mut number = 0;
        for driver in ["net_ring", "net_null"] {
            for payload in PAYLOADS {
                let len = payload + HEADERS;
                let device = |number: usize| match driver {
                    "net_null" => format!("net_null{number},size={len}"),
                    _ => format!("{driver}{number}"),
                };
                let mut ours = Ours::open(&device(number));
                let plain = Plain::open(&device(number + 1), number);
                number += 2;
                if driver == "net_ring" {
                    ours.prime(len);
                }
                // Both once, unmeasured.
                ours.run(bursts / 10 + 1);
                plain.run(bursts / 10 + 1);
                let (mut here, mut there, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
                for _ in 0..rounds {
                    let (us, them) = (ours.run(bursts), plain.run(bursts));
                    here.push(us);
                    there.push(them);
                    ratios.push(us / them);
                }
                let on = |who: &'static str| {
                    [
                        ("driver", driver.into()),
                        ("frame_bytes", u64::from(len).into()),
                        ("side", who.into()),
                    ]
                };
                report.median("rx_and_tx", &here, "Mpps", &on("janus"));
                report.median("rx_and_tx", &there, "Mpps", &on("plain loop in C"));
                report.median("of_the_ceiling", &ratios, "x", &on("ratio"));
            }
        }
        report.finish();
    }
}
