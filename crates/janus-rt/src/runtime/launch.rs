//! From settings to a runtime that is ready: the device, the lease, the balancer with its steerers, the fabric between the cores,
//! the control plane, one seed for each core. What threads make of it is in `threads`.

mod device;
mod dpdk;
mod fabric;
mod gate;
mod member;
mod pin;
mod secrets;
mod seed;
mod steering;
mod threads;

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use janus_csb::{Balancer, Phase, ShardEnd};
use janus_io::exception::Ours;
use janus_io::park::{Parker, Unparker};
use janus_io::{IoCore, Queue, aside, tap};
use janus_mem::{Depot, Growth, Toucher};
use janus_tcp::Interface;

use super::{BackendChoice, BuildError};
use crate::admin::AdminPort;
use crate::admission::Ingress;
use crate::clock::Clock;
use crate::config::{ConfigError, LiveSettings, Settings};
use crate::control::alarms::Alarms;
use crate::control::conductor::Conductor;
use crate::control::datagrams::Datagrams;
use crate::control::ending::Ending;
use crate::control::mailbox::ControlMailbox;
use crate::control::signals::Signals;
use crate::control::supervisor::Supervisor;
use crate::control::watch::Watch;
use crate::control::watchdog::Watchdog;
use crate::control::{Control, Passage};
use crate::dhcp::{self, AddressingFn, Follower, Keeper};
use crate::inbox::Inbox;
use crate::lock::Lock;
use crate::metrics::Collected;
use crate::portal::{Doorway, Portal, PortalListen, PortalReach};
use crate::shard::shared::{Shared, Slots};
use crate::task::Cores;
use crate::task::blocking::Blocking;
use crate::warning::Warnings;
use device::Device;
use fabric::{Berth, Fabric};
use gate::Gate;
use seed::{Common, Seed};
use steering::Steering;
pub(super) use threads::Crew;

/// A runtime that is ready: its device is open, its threads are not started.
pub(crate) struct Prepared {
    seeds: Vec<Seed>,
    io_cores: Vec<IoCore>,
    shared: Arc<Shared>,
    conductor: Conductor,
    admin: Option<AdminPort>,
    keeper: Option<Keeper>,
}

/// A device that is open, and what the settings say of it.
#[non_exhaustive]
pub struct OpenDevice {
    /// Its one queue.
    pub queue: Box<dyn Queue>,
    /// Where its packets' buffers are from.
    pub depot: Arc<Depot>,
    /// Their memory, if other processes can map it.
    pub memory: Option<OwnedFd>,
    /// Addresses and routes; without the address that is to be asked for.
    pub interface: Interface,
    /// The portal, if that is the device: ports are opened there.
    pub portal: Option<Portal>,
    /// How to ask for an address, where the settings say so (`address = "dhcp"`).
    pub leases: Option<Leases>,
    /// Is to be told when packets are carried, and keeps a TAP interface's queue meanwhile if this program is started again.
    pub supervisor: Option<Supervisor>,
}

/// How the address of an open device is asked for, which is left to who has opened it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leases {
    /// Longest wait for the first address.
    pub wait: Duration,
    /// File in which the address is remembered.
    pub file: Option<PathBuf>,
    /// Is to be told the addresses; `None`: the device hands over all that comes.
    pub taken: Option<Ours>,
}

impl OpenDevice {
    /// Routers for all other networks.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.interface.gateway.map(IpAddr::V4);
        v4.into_iter()
            .chain(self.interface.gateway_v6.map(IpAddr::V6))
    }
}

/// Opens the device, and makes the buffers that go with it.
fn with_buffers(
    settings: &Settings,
    backend: Option<BackendChoice>,
    growth: &Growth,
    key: &[u8; 40],
    clock: Clock,
    mailbox: &Arc<ControlMailbox>,
) -> Result<(Arc<Depot>, Device), BuildError> {
    let backend = backend.unwrap_or_default();
    if let Some(socket) = member::socket(settings, &backend) {
        return member::open(settings, &socket, growth, clock);
    }
    let depot = Depot::new(settings.packet_buffers, growth).map_err(BuildError::system)?;
    let device = device::open(settings, backend, &depot, growth, key, clock, mailbox)?;
    Ok((depot, device))
}

pub(super) fn open_device(
    settings: &Settings,
    backend: Option<BackendChoice>,
    supervisor: Option<Supervisor>,
    lends: u32,
) -> Result<OpenDevice, BuildError> {
    let growth = Growth::Ahead(Toucher::spawn().map_err(BuildError::system)?);
    let (_, key) = secrets::secrets(settings.seed).map_err(BuildError::system)?;
    let parker = Parker::new().map_err(BuildError::system)?;
    let mailbox = Arc::new(ControlMailbox::new(1, 0, parker.unparker()));
    let clock = Clock::start();
    let backend = backend.unwrap_or_default();
    if member::socket(settings, &backend).is_some() {
        let problem = "a daemon's device is its members' already: it cannot be another daemon's";
        return Err(ConfigError::value("backend", problem.into()).into());
    }
    let buffers = settings.packet_buffers.saturating_add(lends);
    let made = match lends {
        0 => Depot::new(buffers, &growth).map(|depot| (depot, None)),
        _ => Depot::shared(buffers, &growth).map(|(depot, memory)| (depot, Some(memory))),
    };
    let (depot, memory) = made.map_err(BuildError::system)?;
    let device = device::open(settings, backend, &depot, &growth, &key, clock, &mailbox)?;
    let queue = device.queues.into_iter().next();
    let queue = queue.ok_or_else(|| BuildError::Device("the device has no queue".into()))?;
    if let (Some(supervisor), Some(fd)) = (&supervisor, queue.wait_fd())
        && let Some(interface) = tap::interface_of(fd)
    {
        supervisor.keep(&interface, fd);
    }
    let asks = settings.address.dhcp && device.portal.is_none();
    let leases = asks.then(|| Leases {
        wait: settings.dhcp_wait,
        file: settings.dhcp_file.clone(),
        taken: device.taken,
    });
    Ok(OpenDevice {
        queue,
        depot,
        memory,
        interface: device.interface,
        portal: device.portal,
        leases,
        supervisor,
    })
}

impl Prepared {
    pub(super) fn open(
        settings: Settings,
        backend: Option<BackendChoice>,
        tcp: janus_tcp::Config,
        warnings: Arc<Warnings>,
        on_addressing: Option<Box<AddressingFn>>,
        clock: Clock,
    ) -> Result<Prepared, BuildError> {
        pin::check(&settings)?;
        let cores = settings.cores.count;
        let admin = settings.admin.map(AdminPort::open).transpose()?;
        let growth = Growth::Ahead(Toucher::spawn().map_err(BuildError::system)?);
        let parker = Parker::new().map_err(BuildError::system)?;
        let io_cores = settings.io_cores.unwrap_or(0);
        let mailbox = Arc::new(ControlMailbox::new(cores, io_cores, parker.unparker()));
        let (secrets, key) = secrets::secrets(settings.seed).map_err(BuildError::system)?;

        let (depot, mut device) = with_buffers(&settings, backend, &growth, &key, clock, &mailbox)?;
        let keeper = lease(&settings, &mut device, &depot, on_addressing, clock)?;

        let passage = doorway(&settings, &device);
        let interface = device.interface;
        let mut steering = Steering::new(&settings, &key, &interface, device.leads_outside)
            .map_err(BuildError::system)?;
        let steerers = steering.steerers(&settings, &interface, &secrets, &mailbox, clock);
        let mut fabric =
            Fabric::new(&settings, device.queues, steerers, &depot).map_err(BuildError::system)?;
        fabric.govern(clock, &parker, &mailbox);

        let balancer = Arc::new(Lock::new(steering.balancer));
        let ending = Arc::new(Ending::new(fabric.bells.clone()));
        let gate = Gate {
            balancer: balancer.clone(),
            mailbox: mailbox.clone(),
            portal: device.portal,
            member: device.member.clone(),
            ending: ending.clone(),
        };
        let pulses: Vec<Arc<_>> = fabric.bells.iter().map(|_| Arc::default()).collect();
        let watchdog = Watchdog::new(pulses.clone(), warnings.clone(), settings.warn_blocked);
        let watch = Watch::new(settings.balance, settings.balance_interval, cores, clock);
        let common_tcp = seed::tcp_config(tcp, &settings);
        let shared = Arc::new(Shared {
            clock,
            first_buffers: settings.buffers(),
            leads_outside: device.leads_outside,
            watched: watch.is_some(),
            toeplitz: steering.toeplitz,
            flow_names: steering.flow_names,
            control: Arc::new(Control::new(cores, Box::new(gate))),
            signals: Arc::new(Signals::new(mailbox.clone())),
            datagrams: Datagrams::new(steering.sockets, interface.ports, device.member.clone()),
            ingress: Arc::new(Ingress {
                counters: fabric.counters(),
                admission: steering.admission,
                trace: device.trace,
                faults: device.faults,
                device: device.losses,
            }),
            cores: Cores::new(fabric.inboxes()),
            blocking: Blocking::new(settings.blocking_threads),
            depot: Arc::downgrade(&depot),
            blocked: watchdog.blocked(),
            passage,
            member: device.member,
            slots: Slots::default(),
            settings: LiveSettings::new(settings),
            mailbox,
            ending,
        });
        let at = admin.as_ref().map(AdminPort::at);
        shared.slots.get(|| Collected::new(cores, at));
        addresses_change(&shared, keeper.as_ref(), device.follower, fabric.inboxes());
        let bells = fabric.all_bells();
        let watching = (watch, watchdog);
        let conductor = conductor(&shared, balancer, parker, bells, watching, &warnings);
        let common = Arc::new(Common {
            shared: shared.clone(),
            tcp: common_tcp,
            interface,
            secrets,
            owner_bits_cores: steering.owner_bits_cores,
            depot,
            growth,
            doors: fabric.doors,
            pulses,
            warnings,
        });
        let seeds = seeds(&common, fabric.shards, steering.ends);
        Ok(Prepared {
            seeds,
            io_cores: fabric.io_cores,
            shared,
            conductor,
            admin,
            keeper,
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns what threads would be started with, for tests that drive it otherwise.
    #[cfg(any(test, feature = "lockstep"))]
    pub(crate) fn into_parts(self) -> (Vec<Seed>, Vec<IoCore>, Conductor) {
        (self.seeds, self.io_cores, self.conductor)
    }
}

/// Makes the control thread's part.
fn conductor(
    shared: &Shared,
    balancer: Arc<Lock<Balancer>>,
    parker: Parker,
    bells: Vec<Unparker>,
    (watch, watchdog): (Option<Watch>, Watchdog),
    warnings: &Arc<Warnings>,
) -> Conductor {
    Conductor {
        balancer,
        mailbox: shared.mailbox.clone(),
        control: shared.control.clone(),
        ending: shared.ending.clone(),
        signals: shared.signals.clone(),
        bells,
        parker,
        under_way: None,
        planned: false,
        tidies_since: None,
        watch,
        watchdog,
        alarms: Alarms::new(
            shared.mailbox.clone(),
            shared.ingress.clone(),
            shared.blocking.clone(),
            warnings.clone(),
        ),
        rung_for: Phase::Idle,
        shutdown: shared.settings.get().shutdown,
        doors_by: None,
        closes_at: None,
        clock: shared.clock,
    }
}

fn seeds(common: &Arc<Common>, shards: Vec<Berth>, ends: Vec<ShardEnd>) -> Vec<Seed> {
    let shards = shards.into_iter().zip(ends).zip(0..);
    let seeds = shards.map(|((berth, end), core)| Seed {
        core,
        berth,
        end,
        common: common.clone(),
    });
    seeds.collect()
}

/// Asks for an address where the settings say so. The device comes back with it.
fn lease(
    settings: &Settings,
    device: &mut Device,
    depot: &Arc<Depot>,
    tell: Option<Box<AddressingFn>>,
    clock: Clock,
) -> Result<Option<Keeper>, BuildError> {
    if !settings.address.dhcp || device.portal.is_some() {
        return Ok(None);
    }
    let wrapped = aside::wrap(std::mem::take(&mut device.queues), dhcp::whose);
    let (queues, aside) = wrapped.map_err(BuildError::system)?;
    device.queues = queues;
    let wanted = dhcp::Wanted {
        seed: secrets::lease_seed(settings.seed).map_err(BuildError::system)?,
        clock,
        patience: settings.dhcp_wait,
        file: settings.dhcp_file.clone(),
        taken: device.taken.take(),
        tell,
    };
    let (queues, interface) = (&mut device.queues, &mut device.interface);
    dhcp::acquire(aside, queues, &mut depot.pool(), interface, wanted)
        .map(Some)
        .map_err(BuildError::Lease)
}

/// Has the cores told of other addresses, where these may change.
fn addresses_change(
    shared: &Shared,
    keeper: Option<&Keeper>,
    follower: Option<Follower>,
    inboxes: Vec<Arc<Inbox>>,
) {
    if let Some(keeper) = keeper {
        keeper.tell(inboxes);
        shared.slots.get(|| keeper.shown());
    } else if let Some(follower) = follower {
        shared.slots.get(|| follower.shown());
        follower.begin(inboxes);
    }
}

/// The portal as sockets see it: this runtime's own, or the daemon's, whose settings say who may be reached.
fn doorway(settings: &Settings, device: &Device) -> Option<Box<dyn Passage>> {
    let doorway = match (&device.portal, device.portal_of_daemon) {
        (Some(_), _) => Doorway {
            reach: settings.portal_reach.clone(),
            listen: settings.portal_listen.clone(),
            first_port: Portal::first_port(),
        },
        (None, Some(first_port)) => Doorway {
            reach: PortalReach::Anywhere,
            listen: PortalListen::Loopback,
            first_port,
        },
        (None, None) => return None,
    };
    Some(Box::new(doorway))
}
