//! The DPDK backend: any port that DPDK has a driver for, virtual ones too, one [`Queue`] for
//! each pair of its queues, in bursts and without copying a payload. A driver receives into our packet buffers and sends
//! out of them (`slots.rs`); a lent buffer comes back when the driver has freed it. Without huge pages it runs on
//! ordinary memory, for virtual devices. Knows no addresses of ours.

mod checksum;
mod device;
mod eal;
mod pause;
mod port;
mod queue;
mod segments;
mod slots;

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use janus_mem::Depot;

use crate::counter::Counter;
use crate::debug::opaque;
use crate::queue::{Backend, DeviceLosses, LossesFn, Queue};
use port::Port;
pub use port::{PortFacts, PortStatistics, PortStatus};

/// How long an idle queue may sleep between two looks where its driver cannot wake it; longer after long idleness.
pub const SLEEP: Duration = Duration::from_millis(2);

/// A device of DPDK's, not opened yet.
pub struct Dpdk {
    device: String,
    eal: Vec<String>,
    depot: Arc<Depot>,
    hash_key: [u8; 40],
    promiscuous: bool,
    offloads: bool,
    sleep: Duration,
    facts: Arc<OnceLock<PortFacts>>,
    status: Arc<PortStatus>,
    counters: Arc<DpdkCounters>,
}

opaque!(Dpdk);

/// Counters of a port's queues. Each number is that of all queues together.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct DpdkCounters {
    /// Frames received.
    pub received: Counter,
    /// Frames given to the driver.
    pub sent: Counter,
    /// Frames whose bytes were copied on the way in: the driver passed a lent buffer on by its pointer instead of
    /// sending it, or one that is not ours. Zero with every device that has a wire or a copy of its own.
    pub rx_copied: Counter,
    /// Frames whose bytes were copied on the way out: they lay in the buffers of another depot than the port's.
    pub tx_copied: Counter,
    /// Chains of segments given to the driver as one, for the device to cut.
    pub joined: Counter,
    /// Lent frames that came back.
    pub completed: Counter,
    /// Received frames that were longer than one buffer.
    pub dropped_long: Counter,
    /// Received frames with a wrong checksum.
    pub dropped_checksum: Counter,
    /// Received frames for which there was no buffer, where one was needed.
    pub dropped_no_buffer: Counter,
    /// Frames that the driver would never take.
    pub refused: Counter,
    /// Frames given up because the link is down.
    pub lost_link_down: Counter,
    port: Mutex<Ports>,
}

#[derive(Debug, Default)]
struct Ports {
    now: Option<Weak<Port>>,
    last: PortStatistics,
}

impl DpdkCounters {
    /// Returns the device's own counters; after the device is closed, their last values.
    pub fn statistics(&self) -> PortStatistics {
        let mut ports = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        let open = ports.now.as_ref().and_then(Weak::upgrade);
        if let Some(port) = open {
            ports.last = port.statistics();
            let last = ports.last;
            // The last holder of a port closes it, which writes here: not under the lock.
            drop(ports);
            return last;
        }
        ports.last
    }

    fn at_end(&self, last: PortStatistics) {
        self.port
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last = last;
    }
}

/// A device that is open in this process.
#[derive(Clone, Debug)]
pub struct OpenPort {
    /// Its name, without arguments.
    pub name: String,
    /// Capabilities and settings that its driver reports.
    pub facts: PortFacts,
    /// Its link.
    pub status: Arc<PortStatus>,
    /// Counters of its queues.
    pub counters: Arc<DpdkCounters>,
}

/// All devices that are open in this process: for who has not opened them himself, such as what shows statistics.
#[must_use]
pub fn open_ports() -> Vec<OpenPort> {
    port::all()
        .iter()
        .map(|port| OpenPort {
            name: port.caps.name.trim_start_matches("dpdk ").to_owned(),
            facts: port.facts.clone(),
            status: port.status.clone(),
            counters: port.counters.clone(),
        })
        .collect()
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (port {})", self.caps.name, self.id)
    }
}

impl Dpdk {
    /// A device by its name: a virtual one with its arguments (`net_tap0,iface=jt0`) or a place on a bus
    /// (`0000:03:00.0`). It receives into the buffers of `depot`, all of which are made ready when it is opened, and
    /// everything that is sent without a copy lies there.
    #[must_use]
    pub fn new(device: impl Into<String>, depot: Arc<Depot>) -> Self {
        Self {
            device: device.into(),
            eal: Vec::new(),
            depot,
            hash_key: janus_wire::MICROSOFT_KEY,
            promiscuous: false,
            offloads: true,
            sleep: SLEEP,
            facts: Arc::default(),
            status: Arc::default(),
            counters: Arc::default(),
        }
    }

    /// Arguments for DPDK's environment, which go before those that are chosen otherwise. It starts once in a process.
    #[must_use]
    pub fn with_eal(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.eal.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The key of the hash that spreads flows over queues, where the device can: that of the steering.
    #[must_use]
    pub fn with_hash_key(mut self, key: [u8; 40]) -> Self {
        self.hash_key = key;
        self
    }

    /// Receives also what is for other link addresses.
    #[must_use]
    pub fn promiscuous(mut self) -> Self {
        self.promiscuous = true;
        self
    }

    /// Checksums are our affair and segments are cut by us, whatever the device could do.
    #[must_use]
    pub fn without_offloads(mut self) -> Self {
        self.offloads = false;
        self
    }

    /// How long an idle queue may sleep between two looks where its driver cannot wake it; zero: it never sleeps.
    #[must_use]
    pub fn with_sleep(mut self, sleep: Duration) -> Self {
        self.sleep = sleep;
        self
    }

    /// Returns the counters of the queues; they stay readable after the device is open, and after its end.
    #[must_use]
    pub fn counters(&self) -> Arc<DpdkCounters> {
        self.counters.clone()
    }

    /// The link; stays readable like the counters.
    #[must_use]
    pub fn status(&self) -> Arc<PortStatus> {
        self.status.clone()
    }

    /// Returns the capabilities of the device; set once it is open.
    #[must_use]
    pub fn facts(&self) -> Arc<OnceLock<PortFacts>> {
        self.facts.clone()
    }
}

impl Backend for Dpdk {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let port = port::open(&self, queues)?;
        self.counters
            .port
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .now = Some(Arc::downgrade(&port));
        let _ = self.facts.set(port.facts.clone());
        (0..queues)
            .map(|index| queue::open(&port, index as u16, self.sleep))
            .collect()
    }

    fn losses(&self) -> Option<Box<LossesFn>> {
        let counters = self.counters.clone();
        Some(Box::new(move || DeviceLosses {
            no_buffer: counters.dropped_no_buffer.get(),
            bad_checksum: counters.dropped_checksum.get(),
        }))
    }
}
