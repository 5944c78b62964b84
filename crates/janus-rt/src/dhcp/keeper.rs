//! The thread `janus-dhcp`: it runs the client beside the stack, and tells the cores when the address has changed or is gone. The first
//! lease is waited for before any core runs; until then the waiting thread polls the device. When the cores have ended, this thread takes
//! over the device for its last message: it releases the address, unless that is kept in a file.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Deadline, SystemTime};

use janus_io::aside::{Aside, Whose};
use janus_io::exception::Ours;
use janus_io::{Batch, Queue};
use janus_mem::{Frame, Pool};
use janus_tcp::{Addressing, Interface};
use janus_wire::{Link, dhcp, ethernet};

use super::client::{Client, News};
use super::cores::{self, Shown};
use super::lease::Lease;
use super::memory::Memory;
use crate::clock::Clock;
use crate::control::BoxError;
use crate::inbox::Inbox;

/// The thread wakes at least this often.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Time between two polls of the device while no core polls it.
const POLL_EVERY: Duration = Duration::from_millis(1);
/// Polls of the device in which the last message must leave.
const LAST_LOOKS: usize = 200;

/// Returns who receives this frame: DHCP messages for clients are only the client's, ARP is also the cores'.
pub(crate) fn whose(frame: &[u8]) -> Whose {
    if dhcp::is_for_client(frame) {
        return Whose::Aside;
    }
    match ethernet::Header::parse(frame) {
        Ok((header, _)) if header.ethertype == ethernet::ethertype::ARP => Whose::Both,
        _ => Whose::Shards,
    }
}

/// Is told the addresses that the cores get, and the lease among them.
pub(crate) type AddressingFn = dyn FnMut(&Addressing, Option<&Lease>) + Send;

/// Handle of the thread.
pub(crate) struct Keeper {
    thread: JoinHandle<()>,
    shown: Shown,
    inboxes: Arc<OnceLock<Vec<Arc<Inbox>>>>,
}

impl Keeper {
    pub(crate) fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Has later changes sent to these inboxes.
    pub(crate) fn tell(&self, inboxes: Vec<Arc<Inbox>>) {
        let _once = self.inboxes.set(inboxes);
    }

    /// Joins the thread, which ends when the device is closed.
    pub(crate) fn join(self) -> std::thread::Result<()> {
        self.thread.join()
    }
}

/// Configured addressing, which goes before the lease's.
#[derive(Clone)]
pub(crate) struct Base {
    interface: Interface,
    mtu: u16,
}

impl Base {
    /// Returns the interface's addressing with a lease, or without.
    fn addressing(&self, lease: Option<&Lease>) -> Addressing {
        let Interface {
            addresses,
            gateway,
            gateway_v6,
            routes,
            ..
        } = self.interface.clone();
        let mut all = Addressing {
            addresses,
            gateway,
            gateway_v6,
            routes,
            mtu: self.mtu,
        };
        if let Some(lease) = lease {
            // First, since far connections take the first address as their source.
            all.addresses.insert(0, lease.cidr());
            all.gateway = all.gateway.or(lease.gateway);
            let room = janus_tcp::ROUTES_MAX.saturating_sub(all.routes.len());
            all.routes
                .extend(lease.stack_routes().into_iter().take(room));
            all.mtu = lease.mtu.unwrap_or(self.mtu).min(self.mtu);
        }
        all
    }
}

/// How to ask for the address.
pub(crate) struct Wanted {
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    /// Longest wait for the first lease.
    pub(crate) patience: Duration,
    /// File in which the lease is kept.
    pub(crate) file: Option<PathBuf>,
    /// Addresses whose packets the device hands over.
    pub(crate) taken: Option<Ours>,
    pub(crate) tell: Option<Box<AddressingFn>>,
}

/// Waits for the first lease, and starts the thread that keeps it. `interface` is the configured one; it is returned with the lease's
/// address and routes. Meanwhile `queues` are polled here, and other frames that arrive are lost.
pub(crate) fn acquire(
    aside: Aside,
    queues: &mut [Box<dyn Queue>],
    pool: &mut Pool,
    interface: &mut Interface,
    wanted: Wanted,
) -> Result<Keeper, BoxError> {
    let Wanted {
        seed,
        clock,
        patience,
        file,
        taken,
        tell,
    } = wanted;
    if interface.link != Link::Ethernet {
        let name = &aside.caps.name;
        return Err(format!("`address = \"dhcp\"` wants a device of Ethernet frames, which {name} is not: name the address").into());
    }
    let base = Base {
        interface: interface.clone(),
        mtu: interface.mtu,
    };
    let name = aside.caps.name.clone();
    let (first, told) = sync_channel(1);
    let shown = Shown::default();
    let inboxes = Arc::<OnceLock<Vec<Arc<Inbox>>>>::default();
    let (mac, now) = (interface.mac, clock.now());
    let memory = file.map(|file| Memory::new(&file, mac));
    let recall = |memory: &Memory| memory.recall(SystemTime::now());
    let client = match memory.as_ref().and_then(recall) {
        Some(address) => Client::again(mac, seed, now, address),
        None => Client::new(mac, seed, now),
    };
    let mut keeping = Keeping {
        client,
        memory,
        pool: pool.depot().pool(),
        checked: aside.caps.rx_checksum,
        aside,
        clock,
        base: base.clone(),
        first: Some(first),
        applied: None,
        shown: shown.clone(),
        inboxes: inboxes.clone(),
        taken: taken.clone(),
        tell,
    };
    let thread = std::thread::Builder::new()
        .name("janus-dhcp".into())
        .spawn(move || {
            while keeping.turn() {}
            keeping.end();
        })?;
    let deadline = Deadline::now() + patience;
    loop {
        poll(queues, pool);
        match told.recv_timeout(POLL_EVERY) {
            Ok(lease) => {
                let addressing = base.addressing(Some(&lease));
                take(taken.as_ref(), &addressing);
                interface.addresses = addressing.addresses;
                interface.gateway = addressing.gateway;
                interface.routes = addressing.routes;
                interface.mtu = addressing.mtu;
                return Ok(Keeper {
                    thread,
                    shown,
                    inboxes,
                });
            }
            Err(RecvTimeoutError::Timeout) if Deadline::now() < deadline => {}
            Err(_) => {
                return Err(format!(
                    "no DHCP server gave an address on {name} within {} ms: is there one, and the link up? Else name the \
                     address: `address = \"192.0.2.1/24\"`; to wait longer: `dhcp_wait_ms`",
                    patience.as_millis()
                )
                .into());
            }
        }
    }
}

/// Runs one turn of a device whose other frames are not used yet.
fn poll(queues: &mut [Box<dyn Queue>], pool: &mut Pool) {
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    for queue in queues {
        queue.rx_burst(pool, &mut batch);
        batch.pull().for_each(|frame| pool.free(frame.buf));
        queue.tx_burst(pool, &mut batch, &mut done);
    }
}

/// State of the thread.
struct Keeping {
    client: Client,
    memory: Option<Memory>,
    /// Buffers for the last message.
    pool: Pool,
    aside: Aside,
    /// Whether the device vouches for checksums.
    checked: bool,
    clock: Clock,
    base: Base,
    /// Takes the first lease to the thread that waits for it.
    first: Option<SyncSender<Lease>>,
    /// Addressing that the cores use.
    applied: Option<Addressing>,
    shown: Shown,
    inboxes: Arc<OnceLock<Vec<Arc<Inbox>>>>,
    taken: Option<Ours>,
    tell: Option<Box<AddressingFn>>,
}

/// Has the device hand over packets for these addresses.
fn take(taken: Option<&Ours>, addressing: &Addressing) {
    if let Some(taken) = taken {
        taken.set(addressing.addresses.iter().map(|own| own.addr));
    }
}

impl Keeping {
    /// Runs a turn; returns false when the device is closed.
    fn turn(&mut self) -> bool {
        let now = self.clock.now();
        self.client.turn(now);
        while let Some(frame) = self.client.frame() {
            // A frame that finds no room is sent again by the client's timer.
            self.aside.send(frame);
        }
        while let Some(news) = self.client.news() {
            self.learn(news);
        }
        self.tell_cores();
        let wait = self.client.due().saturating_since(self.clock.now());
        match self.aside.receive(wait.min(WAIT_MAX)) {
            Err(_) => return false,
            Ok(None) => {}
            Ok(Some(frame)) => self.client.hear(&frame, self.checked, self.clock.now()),
        }
        true
    }

    /// Ends the client after the cores have ended. An address that is not kept in a file is released, through the device that the cores
    /// had.
    fn end(&mut self) {
        if self.memory.is_none() {
            self.client.release(self.clock.now());
        }
        let Some(mut queue) = self.aside.inherit() else {
            return;
        };
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        while let Some(word) = self.client.frame()
            && let Some(buf) = self.pool.alloc()
        {
            let mut frame = Frame::new(buf, word.len() as u16);
            frame.data_mut().copy_from_slice(&word);
            batch.extend([frame]);
        }
        for look in 0..LAST_LOOKS {
            // Some devices send frames in a later call than the one that takes them.
            let waits = !batch.is_empty() || look < 2;
            if !waits {
                return;
            }
            queue.tx_burst(&mut self.pool, &mut batch, &mut done);
            done.pull().for_each(|frame| self.pool.free(frame.buf));
            if !batch.is_empty() {
                std::thread::sleep(POLL_EVERY);
            }
        }
    }

    fn learn(&mut self, news: News) {
        let before = self.shown.lease().map(|lease| lease.address);
        let lease = match news {
            News::Ours(lease) => {
                // Printed, since no configuration contains the address.
                if before != Some(lease.address) {
                    eprintln!("janus: the address is {lease}");
                }
                if let Some(memory) = &self.memory
                    && let Err(error) = memory.keep(&lease, SystemTime::now())
                {
                    eprintln!("janus: the address is not remembered ({error}): see `dhcp_file`");
                }
                Some(lease)
            }
            News::Gone(why) => {
                eprintln!("janus: the address is ours no more, {why}; another is asked for");
                self.memory.iter().for_each(Memory::forget);
                None
            }
        };
        let addressing = self.base.addressing(lease.as_ref());
        if let Some(tell) = &mut self.tell {
            tell(&addressing, lease.as_ref());
        }
        self.shown.set(lease.clone(), addressing);
        if let (Some(lease), Some(first)) = (lease, self.first.take()) {
            self.applied = Some(self.base.addressing(Some(&lease)));
            let _ = first.try_send(lease);
        }
    }

    /// Has the cores take over a changed addressing.
    fn tell_cores(&mut self) {
        let (Some(inboxes), Some(applied)) = (self.inboxes.get(), &self.applied) else {
            return;
        };
        let wanted = self.base.addressing(self.shown.lease().as_ref());
        if wanted == *applied {
            return;
        }
        take(self.taken.as_ref(), &wanted);
        cores::tell(inboxes, &wanted);
        self.applied = Some(wanted);
    }
}

#[cfg(test)]
mod tests {
    use janus_wire::proto;

    use super::*;

    #[test]
    fn messages_for_clients_and_arp_are_picked_out() {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[23] = proto::UDP;
        frame[34..38].copy_from_slice(&[0, 67, 0, 68]);
        assert_eq!(whose(&frame), Whose::Aside);
        // Shifted by an option of four bytes.
        let mut with_option = frame.clone();
        with_option[14] = 0x46;
        assert_eq!(whose(&with_option), Whose::Shards);
        with_option[38..42].copy_from_slice(&[0, 67, 0, 68]);
        assert_eq!(whose(&with_option), Whose::Aside);
        for (at, value) in [(37, 67), (35, 68), (23, 6), (20, 0x20), (21, 1), (13, 1)] {
            let mut other = frame.clone();
            other[at] = value;
            assert_eq!(whose(&other), Whose::Shards, "byte {at}");
        }
        assert_eq!(whose(&frame[..36]), Whose::Shards);
        assert_eq!(whose(&[]), Whose::Shards);
        frame[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(whose(&frame), Whose::Both);
    }
}
