//! The keeper: a stack of the daemon's own, on a wire in memory, that answers for everything no member has: questions for link addresses,
//! pings, unclaimed ports. Where the device's address is leased, it is the keeper that has the lease.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crate::Stop;
use crate::network::{self, Leased, News};
use janus::signal::{SignalKind, signal};
use janus::{BackendChoice, BoxError, Builder, Handle, Leases, OpenDevice, Runtime};
use janus_io::{Backend, Batch, Caps, Queue, wire};
use janus_mem::Pool;
use rustix::fd::BorrowedFd;

/// Packets that wait between the two.
const DEPTH: u32 = 1024;
/// It has few connections: those that others leave behind.
const CONNECTIONS: u32 = 65_536;

pub(crate) struct Keeper {
    life: Arc<Life>,
    thread: JoinHandle<()>,
}

/// State that its thread shares with the daemon's.
#[derive(Default)]
struct Life {
    /// Not there before the first lease, where addresses are leased.
    handle: OnceLock<Handle>,
    is_over: AtomicBool,
}

impl Keeper {
    /// Starts it, and gives the other end of its wire. Where addresses are leased it asks for them on its own thread, through the device's
    /// packets: the daemon carries those from now on, and is told what comes of it.
    pub(crate) fn start(
        device: &OpenDevice,
        ends: Option<Stop>,
        leased: Option<&Leased>,
    ) -> Result<(Keeper, Box<dyn Queue>), BoxError> {
        let (builder, far) = on_a_wire(device)?;
        let life = Arc::new(Life::default());
        let thread = std::thread::Builder::new().name("janus-keeper".into());
        let thread = match (&device.leases, leased) {
            (Some(leases), Some(leased)) => {
                let builder = asking(builder, leases, leased);
                let (life, leased) = (life.clone(), leased.clone());
                thread.spawn(move || match builder.build() {
                    Ok(runtime) => life.lead(runtime, ends),
                    Err(error) => leased.tell(News::Failed(error.to_string())),
                })?
            }
            _ => {
                let (life, runtime) = (life.clone(), builder.build()?);
                thread.spawn(move || life.lead(runtime, ends))?
            }
        };
        let cable = Box::new(far).open(1)?.pop();
        let cable = cable.ok_or("a wire opens with as many queues as it is asked for")?;
        Ok((Keeper { life, thread }, cable))
    }

    pub(crate) fn end(self) {
        self.life.is_over.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // One that waits for its first lease yet is not waited for: it sees then that all is over.
        if let Some(handle) = self.life.handle.get() {
            handle.stop();
            // It has printed why, if it panicked.
            let _ = self.thread.join();
        }
    }
}

impl Life {
    fn lead(&self, runtime: Runtime, ends: Option<Stop>) {
        let _once = self.handle.set(runtime.handle());
        fence(Ordering::SeqCst);
        if self.is_over.load(Ordering::SeqCst) {
            return;
        }
        if let Err(error) = runtime.run(move || waits(ends.clone())) {
            eprintln!("janus: the keeper has ended: {error}");
        }
    }
}

/// Settings of the keeper on one end of a wire, and the other end.
fn on_a_wire(device: &OpenDevice) -> Result<(Builder, wire::End), BoxError> {
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
    let near = Box::new(AsDevice { end: near, caps });
    let near = match &device.portal {
        Some(_) => BackendChoice::BehindPortal(near),
        None => BackendChoice::Custom(near),
    };
    let mut builder = Runtime::builder()
        .ignore_environment()
        .cores(1)
        .max_connections(CONNECTIONS)
        .backend(near);
    // Behind the portal it has those that all have.
    let own = interface.addresses.iter();
    for own in own.filter(|_| device.portal.is_none()) {
        builder = builder.address(format!("{}/{}", own.addr, own.prefix).parse()?);
    }
    for gateway in device.gateways() {
        builder = builder.gateway(gateway);
    }
    for route in &interface.routes {
        let (to, gateway) = (route.to, route.gateway);
        builder = builder.route(format!("{}/{}", to.addr, to.prefix).parse()?, gateway);
    }
    Ok((builder, far))
}

/// The keeper asks for an address as a program does, and the daemon is told.
fn asking(builder: Builder, leases: &Leases, leased: &Leased) -> Builder {
    let (taken, tells) = (leases.taken.clone(), leased.clone());
    let builder = builder.dhcp().dhcp_wait(leased.wait());
    let builder = builder.on_addressing(move |addressing, lease| {
        let network = network::leased(addressing, lease);
        if let Some(taken) = &taken {
            taken.set(network.addresses.iter().map(|(addr, _)| *addr));
        }
        tells.tell(News::Has(network));
    });
    match &leases.file {
        Some(file) => builder.dhcp_file(file),
        None => builder,
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
