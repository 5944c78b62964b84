//! A DPDK port from its device to its end: what it can do, how it is set up, its link and statistics, and who
//! closes it when the last queue is gone. Moves no frames.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use janus_dpdk_sys::{Error, check, ffi, version};
use janus_mem::{HEADROOM, Posted, SLOT_SIZE};
use janus_wire::{Link, MacAddr, ethernet};

use super::device::Device;
use super::eal::{self, Eal};
use super::slots::{Home, Slots};
use super::{Dpdk, DpdkCounters};
use crate::counter::Counter;
use crate::queue::{Caps, check_queues};

/// Descriptors of a queue, where the driver takes that many and the depot has room for them.
const DESCRIPTORS: u16 = 1024;
const DESCRIPTORS_MIN: usize = 32;
/// The longest MTU: a frame with a VLAN tag fits behind the headroom of one buffer.
const MTU_MAX: u16 = SLOT_SIZE as u16 - HEADROOM - ethernet::LEN as u16 - 4;
/// Entries that a redirection table can have.
const TABLE_MAX: u16 = 512;
/// Offloads that are asked of a device where it can.
const WANTED: u32 = ffi::JD_OFFLOAD_RX_CHECKSUM
    | ffi::JD_OFFLOAD_TX_TCP_CHECKSUM
    | ffi::JD_OFFLOAD_TX_TSO
    | SPREADING;
const SPREADING: u32 = ffi::JD_OFFLOAD_RSS_TCP | ffi::JD_OFFLOAD_RX_HASH;
/// Frames taken out of a queue when its port ends: more than a device holds.
const DRAIN_MAX: usize = 64 * 1024;
/// Some devices take a while to bring their link up.
const LINK_WAIT: Duration = Duration::from_millis(500);

/// Capabilities and settings of a port, as its driver reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortFacts {
    /// The driver.
    pub driver: String,
    /// The DPDK that runs it.
    pub version: String,
    /// It fills in TCP checksums.
    pub tx_checksum: bool,
    /// It checks IP and TCP checksums.
    pub rx_checksum: bool,
    /// It cuts large segments: those of a burst that follow each other cross to it as one.
    pub tso: bool,
    /// It spreads flows over its queues by our hash.
    pub rss: bool,
    /// A queue can be waited for, so that a core with nothing to do sleeps until a frame comes.
    pub interrupts: bool,
    /// DPDK runs without huge pages, because none were free.
    pub without_huge_pages: bool,
}

/// How the port stands. Readable by any thread, also after the port is closed.
#[derive(Debug, Default)]
pub struct PortStatus {
    up: AtomicBool,
    mbit_per_s: AtomicU32,
    /// Times the link was seen to go up or down.
    pub link_changes: Counter,
}

impl PortStatus {
    /// Whether the link is up, as far as was looked.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// The link's speed; 0 and `u32::MAX` are "unknown" in DPDK.
    #[must_use]
    pub fn mbit_per_s(&self) -> u32 {
        self.mbit_per_s.load(Ordering::Relaxed)
    }
}

/// Counters of the device and its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortStatistics {
    /// Received frames.
    pub rx_frames: u64,
    /// Bytes of them.
    pub rx_bytes: u64,
    /// Sent frames.
    pub tx_frames: u64,
    /// Bytes of them.
    pub tx_bytes: u64,
    /// Lost because we were too slow.
    pub rx_missed: u64,
    /// Received with an error.
    pub rx_errors: u64,
    /// Lost because no buffer was free.
    pub rx_no_buffer: u64,
    /// Not sent.
    pub tx_errors: u64,
}

/// A started port. Closed when the last of its queues is dropped.
pub(super) struct Port {
    pub(super) id: u16,
    device: Device,
    /// `None` only while it is being dropped.
    slots: Option<Box<Slots>>,
    pub(super) homes: Box<[Home]>,
    started: bool,
    pub(super) caps: Caps,
    pub(super) facts: PortFacts,
    /// Packets of a chain to send; 0: any number.
    pub(super) chain_max: u16,
    pub(super) status: Arc<PortStatus>,
    pub(super) counters: Arc<DpdkCounters>,
    /// Buffers that the device has to receive into, as the depot knows.
    posted: Option<Posted>,
}

impl Port {
    /// Starts DPDK if need be, finds the device, sets it up and starts it.
    fn open(config: &Dpdk, queues: usize) -> io::Result<Port> {
        let eal = eal::start(&config.eal, &config.device)?;
        let (device, info) = Device::find(&config.device)?;
        let most = info.rx_queues_max.min(info.tx_queues_max);
        check_queues(
            &format!("the DPDK device {}", config.device),
            queues,
            usize::from(most),
        )?;
        let slots = Box::new(Slots::new(&config.depot)?);
        // From here on `Drop` cleans up.
        let mut port = Port {
            id: device.id(),
            device,
            slots: Some(slots),
            homes: (0..queues).map(|_| Home::default()).collect(),
            started: false,
            caps: caps(&config.device, &info),
            facts: facts(&info, &eal),
            chain_max: info.chain_max,
            status: config.status.clone(),
            counters: config.counters.clone(),
            posted: None,
        };
        port.slots().map_for(port.id).map_err(|error| {
            io::Error::other(format!(
                "the device {} cannot be shown the packet buffers ({error}): as root, and with an IOMMU or huge pages",
                config.device
            ))
        })?;
        port.set_up(config, &info)
            .map_err(|error| explain(&config.device, &error))?;
        port.slots().flush_spare();
        Ok(port)
    }

    pub(super) fn slots(&self) -> &Slots {
        self.slots.as_deref().expect("there until it is dropped")
    }

    fn set_up(&mut self, config: &Dpdk, info: &ffi::jd_port_info) -> Result<(), Error> {
        let queues = self.homes.len() as u16;
        // The RSS key as long as the device wants it: what lies beyond our 40 bytes meets no input.
        let mut key = config.hash_key.to_vec();
        key.resize(usize::from(info.hash_key_len).max(key.len()), 0);
        let share = config.depot.capacity() / (4 * usize::from(queues));
        let descriptors = share.clamp(DESCRIPTORS_MIN, usize::from(DESCRIPTORS)) as u16;
        let mut wanted = ffi::jd_port_config {
            hash_key: if info.hash_key_len == 0 {
                std::ptr::null()
            } else {
                key.as_ptr()
            },
            offloads: if config.offloads { WANTED } else { SPREADING },
            hash_key_len: key.len() as u16,
            rx_queues: queues,
            tx_queues: queues,
            rx_descriptors: descriptors,
            tx_descriptors: DESCRIPTORS,
            mtu: 0,
            promiscuous: u8::from(config.promiscuous),
            interrupts: 1,
            reserved: [0; 6],
        };
        if self.caps.mtu < info.mtu {
            wanted.mtu = self.caps.mtu;
        }
        let on = match self.start(&wanted) {
            // Not every driver takes a wish for interrupts.
            Err(_) => {
                wanted.interrupts = 0;
                self.start(&wanted)?
            }
            Ok(on) => on,
        };
        self.started = true;
        self.posted = Some(
            config
                .depot
                .posted(u32::from(descriptors) * u32::from(queues)),
        );
        self.caps.tx_checksum = on & ffi::JD_OFFLOAD_TX_TCP_CHECKSUM != 0;
        self.caps.rx_checksum = on & ffi::JD_OFFLOAD_RX_CHECKSUM != 0;
        self.caps.tso = self.caps.tx_checksum && on & ffi::JD_OFFLOAD_TX_TSO != 0;
        self.facts.tso = self.caps.tso;
        self.facts.tx_checksum = self.caps.tx_checksum;
        self.facts.rx_checksum = self.caps.rx_checksum;
        self.facts.rss = queues > 1
            && on & ffi::JD_OFFLOAD_RSS_TCP != 0
            && spread(self.id, info.table_len, queues);
        // SAFETY: the port is started and has queue 0.
        self.facts.interrupts =
            wanted.interrupts == 1 && unsafe { ffi::jd_rx_wait_fd(self.id, 0) } >= 0;
        let deadline = Instant::now() + LINK_WAIT;
        while !self.look_at_link() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Configures and starts it; the offloads that are on.
    fn start(&self, wanted: &ffi::jd_port_config) -> Result<u32, Error> {
        let pools = vec![self.slots().pool(); self.homes.len()];
        let mut on = 0;
        // SAFETY: a port of this program's that no core polls yet. `pools` has one for each queue; the slots outlive the port. The key is
        // read during the call.
        unsafe {
            check(ffi::jd_port_setup(
                self.id,
                wanted,
                pools.as_ptr(),
                &raw mut on,
            ))?;
            check(ffi::jd_port_start(self.id))?;
        }
        Ok(on)
    }

    /// Asks for the link and keeps the answer: whether it is up.
    pub(super) fn look_at_link(&self) -> bool {
        let mut speed = 0;
        // SAFETY: DPDK runs and `speed` can be written.
        let up = unsafe { ffi::jd_port_link(self.id, &raw mut speed) } == 1;
        self.status.mbit_per_s.store(speed, Ordering::Relaxed);
        if self.status.up.swap(up, Ordering::Relaxed) != up {
            self.status.link_changes.add_shared(1);
        }
        up
    }

    pub(super) fn statistics(&self) -> PortStatistics {
        let mut raw = ffi::jd_stats::default();
        // SAFETY: DPDK runs and `raw` can be written. Without an answer it stays at zero.
        unsafe { ffi::jd_port_stats(self.id, &raw mut raw) };
        PortStatistics {
            rx_frames: raw.rx_packets,
            rx_bytes: raw.rx_bytes,
            tx_frames: raw.tx_packets,
            tx_bytes: raw.tx_bytes,
            rx_missed: raw.rx_missed,
            rx_errors: raw.rx_errors,
            rx_no_buffer: raw.rx_no_buffer,
            tx_errors: raw.tx_errors,
        }
    }

    /// Takes out what devices that only pass pointers around would keep.
    fn drain(&self) {
        let mut frames = [ffi::jd_frame::NONE; ffi::JD_BURST_MAX];
        for queue in 0..self.homes.len() as u16 {
            for _ in 0..DRAIN_MAX / ffi::JD_BURST_MAX {
                // SAFETY: no core polls the port any more; what is received is given back at once.
                let got = unsafe {
                    let got = ffi::jd_rx_burst(
                        self.id,
                        queue,
                        frames.as_mut_ptr(),
                        ffi::JD_BURST_MAX as u16,
                    );
                    ffi::jd_frames_free(frames.as_ptr(), got);
                    got
                };
                if got == 0 {
                    break;
                }
            }
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.started {
            self.counters.at_end(self.statistics());
            self.drain();
        }
        // The last queue is gone: no core polls the port.
        let closed = self.device.remove();
        let Some(slots) = self.slots.take() else {
            return;
        };
        slots.flush_spare();
        if closed.is_err() {
            // A driver that would not let go may still touch them.
            Box::leak(slots);
            return;
        }
        let held = self.homes.iter().map(Home::held).sum();
        slots.end(held);
    }
}

/// The ports of this process. Those that are closed go when another opens.
static PORTS: Mutex<Vec<Weak<Port>>> = Mutex::new(Vec::new());

/// Opens a port that is not open in this process.
pub(super) fn open(config: &Dpdk, queues: usize) -> io::Result<Arc<Port>> {
    let port = Arc::new(Port::open(config, queues)?);
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    ports.retain(|port| port.strong_count() > 0);
    ports.push(Arc::downgrade(&port));
    Ok(port)
}

pub(super) fn all() -> Vec<Arc<Port>> {
    let ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    ports.iter().filter_map(Weak::upgrade).collect()
}

fn caps(device: &str, info: &ffi::jd_port_info) -> Caps {
    // A driver that names no MTU takes any.
    let most = match info.mtu_max {
        0 => MTU_MAX,
        most => most.min(MTU_MAX),
    };
    Caps {
        link: Link::Ethernet,
        mtu: info.mtu.min(most),
        mac: Some(MacAddr(info.mac)),
        tx_checksum: false,
        rx_checksum: false,
        tso: false,
        gro: false,
        name: format!("dpdk {}", device.split(',').next().unwrap_or(device)),
    }
}

fn facts(info: &ffi::jd_port_info, eal: &Eal) -> PortFacts {
    let driver = info.driver.split(|byte| *byte == 0).next();
    PortFacts {
        driver: String::from_utf8_lossy(driver.unwrap_or_default()).into_owned(),
        version: version().to_owned(),
        tx_checksum: false,
        rx_checksum: false,
        tso: false,
        rss: false,
        interrupts: false,
        without_huge_pages: eal.without_huge_pages(),
    }
}

/// The redirection table: one queue after the other.
fn spread(port: u16, entries: u16, queues: u16) -> bool {
    let table: Vec<u16> = (0..entries.min(TABLE_MAX)).map(|at| at % queues).collect();
    // SAFETY: DPDK runs; as many entries as are counted. A port without a table spreads by a rule of its own.
    table.is_empty()
        || check(unsafe { ffi::jd_port_table_set(port, table.as_ptr(), table.len() as u16) })
            .is_ok()
}

pub(super) fn explain(device: &str, error: &Error) -> io::Error {
    let hint = if eal::is_virtual(device) {
        "is that a virtual device of DPDK's, with arguments that it takes (`net_tap0,iface=jt0`, \
         `net_memif0,role=client,socket=/run/x.sock`)? its driver's own words are on stderr (`--log-level=8` shows more)"
    } else {
        "is it bound to a driver for user space (`dpdk-devbind.py --status`; `dpdk-devbind.py -b vfio-pci DEVICE`)?"
    };
    io::Error::other(format!("the DPDK device {device}: {error}: {hint}"))
}
