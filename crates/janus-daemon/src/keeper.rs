//! The keeper: a stack of the daemon's own, on a wire in memory, that answers for everything no member has: questions for link addresses,
//! pings, unclaimed ports.

use std::io;
use std::thread::JoinHandle;

use crate::Stop;
use janus::signal::{SignalKind, signal};
use janus::{BackendChoice, BoxError, Handle, OpenDevice, Runtime};
use janus_io::{Backend, Batch, Caps, Queue, wire};
use janus_mem::Pool;
use rustix::fd::BorrowedFd;

/// Packets that wait between the two.
const DEPTH: u32 = 1024;
/// It has few connections: those that others leave behind.
const CONNECTIONS: u32 = 65_536;

pub(crate) struct Keeper {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts it, and gives the other end of its wire.
    pub(crate) fn start(
        device: &OpenDevice,
        ends: Option<Stop>,
    ) -> Result<(Keeper, Box<dyn Queue>), BoxError> {
        let interface = &device.interface;
        let caps = device.queue.caps().clone();
        let (near, far) = wire::pair(wire::Config {
            link: caps.link,
            mtu: caps.mtu.min(wire::MAX_MTU),
            depth: DEPTH,
            ..wire::Config::default()
        })?;
        let caps = Caps {
            tso: false,
            gro: false,
            name: "keeper".into(),
            ..caps
        };
        let near = AsDevice { end: near, caps };
        let mut builder = Runtime::builder()
            .ignore_environment()
            .cores(1)
            .max_connections(CONNECTIONS)
            .backend(BackendChoice::Custom(Box::new(near)));
        for own in &interface.addresses {
            builder = builder.address(format!("{}/{}", own.addr, own.prefix).parse()?);
        }
        for gateway in device.gateways() {
            builder = builder.gateway(gateway);
        }
        let runtime = builder.build()?;
        let handle = runtime.handle();
        let thread = std::thread::Builder::new().name("janus-keeper".into());
        let thread = thread.spawn(move || {
            if let Err(error) = runtime.run(move || waits(ends.clone())) {
                eprintln!("janus: the keeper has ended: {error}");
            }
        })?;
        let cable = Box::new(far).open(1)?.pop();
        let cable = cable.ok_or("a wire opens with as many queues as it is asked for")?;
        Ok((Keeper { handle, thread }, cable))
    }

    pub(crate) fn end(self) {
        self.handle.stop();
        // It has printed why, if it panicked.
        let _ = self.thread.join();
    }
}

/// It serves nothing: its stack does all by itself.
async fn waits(ends: Option<Stop>) -> janus::Result {
    let Some(stop) = ends else {
        return std::future::pending().await;
    };
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signal, stop) = (signal(kind)?, stop.clone());
        janus::spawn(async move {
            signal.recv().await;
            stop.stop();
        });
    }
    std::future::pending().await
}

/// The wire's end under the name of the device: its link address, and what it does about checksums.
struct AsDevice {
    end: wire::End,
    caps: Caps,
}

impl Backend for AsDevice {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let AsDevice { end, caps } = *self;
        let opened = Box::new(end).open(queues)?.into_iter();
        let dressed = |queue| -> Box<dyn Queue> {
            let caps = caps.clone();
            Box::new(Dressed { queue, caps })
        };
        Ok(opened.map(dressed).collect())
    }
}

struct Dressed {
    queue: Box<dyn Queue>,
    caps: Caps,
}

impl Queue for Dressed {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        self.queue.rx_burst(pool, out);
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.queue.tx_burst(pool, frames, done);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }
}
