//! From settings to running threads: the device, the memory, the steering, one seed for each core; then the threads,
//! and their end. What happens on a thread is the shard's, or the I/O core's.

mod device;
mod dpdk;
mod pin;
mod seed;

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use janus_csb::policy::{HeatSampler, level};
use janus_csb::{Balancer, Phase, Ring, ShardId};
use janus_io::park::{Parker, Unparker};
use janus_io::policy::ClockFn;
use janus_io::steer::{SocketPorts, Steerer};
use janus_io::{IoCore, Port, RING_DEPTH, combined, mpsc, split};
use janus_mem::{Depot, Frame, Growth, Pool, Toucher};
use janus_tcp::BufferSizes;
use janus_wire::Toeplitz;

use super::reload::Levers;
use super::{BackendChoice, BoxError, Ending, MainResult, Result};
use crate::admin::AdminPort;
use crate::clock::{Clock, Paused, Polling};
use crate::config::{Live, Placement, Settings};
use crate::control::alarms::Alarms;
use crate::control::conductor::Conductor;
use crate::control::datagrams::Datagrams;
use crate::control::desk::Desk;
use crate::control::signals::Signals;
use crate::control::watch::{PolicyName, Watch};
use crate::control::watchdog::Watchdog;
use crate::control::{Control, Gate};
use crate::dhcp::{self, Keeper, Shown};
use crate::inbox::Mailbox;
use crate::metrics::{Collector, Sources};
use crate::policy::{Entrance, Policy};
use crate::shard::{Door, FORWARDS};
use crate::task::blocking::Blocking;
use crate::task::{Cores, Pulse};
use crate::warning::Warnings;
use device::Device;
use seed::{Common, Seed};

/// Points on the ring for each shard. Their places are chosen so that shares are even; with more of them what a shard
/// gives up goes to more others.
const POINTS: u16 = 32;

/// A runtime that is ready: its device is open, its threads are not started.
pub(crate) struct Prepared {
    seeds: Vec<Seed>,
    io_cores: Vec<IoCore>,
    entrance: Arc<Entrance>,
    keeper: Option<Keeper>,
    lease: Shown,
    ending: Arc<Ending>,
    cores: Arc<Cores>,
    blocking: Arc<Blocking>,
    metrics: Arc<Collector>,
    admin: Option<AdminPort>,
    conductor: Conductor,
    live: Arc<Live>,
    /// Where the settings say nothing of them.
    usual: BufferSizes,
    leads_outside: bool,
    settings: Settings,
}

impl Prepared {
    pub(super) fn open(
        settings: Settings,
        backend: Option<BackendChoice>,
        tcp: janus_tcp::Config,
        warnings: Arc<Warnings>,
        clock: Clock,
    ) -> Result<Prepared> {
        pin::check(&settings)?;
        let admin = settings.admin.map(AdminPort::open).transpose()?;
        let growth = Growth::Ahead(Toucher::spawn()?);
        let depot = Depot::new(settings.packet_buffers, &growth)?;
        let parker = Parker::new()?;
        let desk = Arc::new(Desk::new(settings.cores, parker.unparker()));
        let (secrets, steering_key) = seed::secrets(settings.seed)?;
        let Device {
            mut queues,
            mut interface,
            portal,
            leads_outside,
            trace,
            faults,
            losses,
            aside,
            taken,
        } = device::open(
            &settings,
            backend.unwrap_or_default(),
            &depot,
            &growth,
            &steering_key,
            clock,
            &desk,
        )?;

        let keeper = aside.map(|aside| {
            let wanted = dhcp::Wanted {
                seed: seed::lease_seed(settings.seed)?,
                clock,
                patience: settings.dhcp_wait,
                file: settings.dhcp_file.clone(),
                taken,
            };
            let pool = &mut depot.pool();
            dhcp::acquire(aside, &mut queues, pool, &mut interface, wanted)
        });
        let keeper = keeper.transpose()?;
        let lease = keeper.as_ref().map(Keeper::shown).unwrap_or_default();

        let points_seed = settings.seed.unwrap_or_default() as u32;
        let ring = level(&Ring::uniform(settings.cores, POINTS, points_seed), &[]);
        let mut balancer = Balancer::new(ring, seed::limits(settings.seed)?);
        let ends: Vec<_> = (0..settings.cores)
            .map(|core| balancer.shard_end(ShardId(core as u8)))
            .collect();
        let toeplitz = Toeplitz::new(&steering_key);
        let names = seed::names(settings.seed)?;
        let own = interface.addresses.iter().map(|own| own.addr).collect();
        let rules = settings.policy.rules(leads_outside, own);
        let policy = Policy::new(rules, seed::rates_secret(settings.seed)?);
        let nanoseconds: Arc<ClockFn> = Arc::new(move || clock.now().as_nanos());
        let sockets: Arc<SocketPorts> = Arc::default();
        // One core need not be named.
        let named = settings.owner_bits && settings.cores > 1;
        let stamps = secrets.naming(0, settings.cores as u16);
        let heat = desk.heat().clone();
        let steerers = (0..settings.queues()).map(|_| {
            let end = balancer.io_end();
            let desk = desk.clone();
            let steerer = Steerer::new(toeplitz.clone(), names, end, interface.link)
                .with_sockets(sockets.clone())
                .telling(Box::new(move || desk.ring()))
                .behind(policy.stage(settings.queues(), nanoseconds.clone()));
            let steerer = if named {
                steerer.by_echoes(*stamps.stamps())
            } else {
                steerer
            };
            match settings.balance {
                PolicyName::Fixed => steerer,
                _ => steerer.sampled(HeatSampler::new(heat.clone())),
            }
        });
        let steerers = steerers.collect();
        let balancer = Arc::new(Mutex::new(balancer));

        let parkers = (0..settings.cores)
            .map(|_| Parker::new())
            .collect::<io::Result<Vec<_>>>()?;
        let bells: Vec<_> = parkers.iter().map(Parker::unparker).collect();
        let mailboxes: Vec<_> = bells
            .iter()
            .map(|bell| {
                let bell = bell.clone();
                Mailbox::new(move || _ = bell.wake())
            })
            .collect();
        let inboxes = mailboxes.iter().map(|mailbox| mailbox.inbox().clone());
        let inboxes: Vec<_> = inboxes.collect();
        if let Some(keeper) = &keeper {
            keeper.tell(inboxes.clone());
        }
        let cores = Arc::new(Cores::new(inboxes));
        let blocking = Blocking::new(settings.blocking_threads);
        let ending = Arc::new(Ending::new(bells.clone()));
        let reach = portal.as_ref().map(|_| settings.portal_reach.clone());
        let control = Arc::new(Control::new(
            settings.cores,
            Box::new(Gate {
                balancer: balancer.clone(),
                desk: desk.clone(),
                portal,
                ending: ending.clone(),
            }),
        ));

        let (mut io_cores, mut ports): (Vec<IoCore>, Vec<Port>) = match settings.placement {
            Placement::Combined => (Vec::new(), combined(queues, steerers, &bells, RING_DEPTH)),
            Placement::Split { .. } => {
                let pools = queues.iter().map(|_| device_pool(&depot)).collect();
                split(queues, pools, steerers, &bells, RING_DEPTH)?
            }
        };
        io_cores
            .iter_mut()
            .for_each(|core| core.set_batching(settings.batch));
        if let Some(clock) = clock.jumps() {
            govern(clock, &bells, &mut io_cores, &parker);
        }
        ports
            .iter_mut()
            .for_each(|port| port.set_batching(settings.batch));
        let (senders, receivers): (Vec<_>, Vec<_>) =
            bells.iter().map(|_| mpsc::inbox::<Frame>(FORWARDS)).unzip();
        let doors: Vec<Door> = senders
            .into_iter()
            .zip(&bells)
            .map(|(frames, bell)| Door {
                frames,
                bell: bell.clone(),
            })
            .collect();

        let pulses: Vec<Arc<Pulse>> = bells.iter().map(|_| Arc::default()).collect();
        let watchdog = Watchdog::new(pulses.clone(), warnings.clone(), settings.warn_blocked);
        let watch = Watch::new(
            settings.balance,
            settings.balance_interval,
            settings.cores,
            clock,
        );
        let polling = io_cores.iter().map(IoCore::unparker);
        let counters = io_cores.iter().map(IoCore::counters);
        let counters = counters.chain(ports.iter().filter_map(Port::counters));
        let entrance = Arc::new(Entrance {
            counters: counters.cloned().collect(),
            policy,
            trace,
            faults,
            device: losses,
        });
        let alarms = Alarms::new(
            desk.clone(),
            entrance.clone(),
            blocking.clone(),
            warnings.clone(),
        );
        let metrics = Arc::new(Collector::new(Sources {
            cores: cores.clone(),
            ending: ending.clone(),
            blocking: blocking.clone(),
            entrance: entrance.clone(),
            desk: desk.clone(),
            depot: Arc::downgrade(&depot),
            blocked: watchdog.blocked(),
            admin: admin.as_ref().map(AdminPort::at),
        }));
        let usual = tcp.buffer_sizes();
        let live = Arc::new(Live::new(&settings, settings.buffers(usual)));
        let signals = Arc::new(Signals::new(desk.clone()));
        let common = Arc::new(Common {
            tcp: seed::tcp_config(tcp, &settings),
            interface,
            portal: reach,
            portal_listen: settings.portal_listen.clone(),
            secrets,
            named: named.then_some(settings.cores as u16),
            toeplitz: Arc::new(toeplitz),
            names,
            growth,
            control: control.clone(),
            desk: desk.clone(),
            entrance: entrance.clone(),
            lease: lease.clone(),
            ending: ending.clone(),
            cores: cores.clone(),
            blocking: blocking.clone(),
            metrics: metrics.clone(),
            doors,
            live: live.clone(),
            signals: signals.clone(),
            datagrams: Arc::new(Datagrams::new(sockets)),
            known: Arc::default(),
            sampled: watch.is_some(),
            #[cfg(feature = "tokio")]
            tokio: settings.tokio,
            pulses,
            warnings,
            large_from: match settings.warn_future_bytes {
                0 => usize::MAX,
                bytes => bytes,
            },
            clock,
        });
        let seeds = parkers
            .into_iter()
            .zip(mailboxes)
            .zip(ports)
            .zip(receivers)
            .zip(ends)
            .enumerate()
            .map(
                |(core, ((((parker, mailbox), port), forwarded), end))| Seed {
                    core: core as u8,
                    parker,
                    mailbox,
                    port,
                    forwarded,
                    end,
                    stack_pool: depot.pool(),
                    pool: device_pool(&depot),
                    common: common.clone(),
                },
            )
            .collect();
        let conductor = Conductor {
            balancer,
            desk,
            control,
            ending: ending.clone(),
            bells: polling.chain(bells).collect(),
            parker,
            under_way: None,
            planned: false,
            watch,
            watchdog,
            alarms,
            rung_for: Phase::Idle,
            signals,
            shutdown: settings.shutdown,
            doors_by: None,
            closes_at: None,
            clock,
        };
        Ok(Prepared {
            seeds,
            io_cores,
            entrance,
            keeper,
            lease,
            ending,
            cores,
            blocking,
            metrics,
            admin,
            conductor,
            live,
            usual,
            leads_outside,
            settings,
        })
    }

    pub(super) fn cores(&self) -> Arc<Cores> {
        self.cores.clone()
    }

    pub(super) fn blocking(&self) -> Arc<Blocking> {
        self.blocking.clone()
    }

    pub(super) fn metrics(&self) -> Arc<Collector> {
        self.metrics.clone()
    }

    pub(super) fn ending(&self) -> Arc<Ending> {
        self.ending.clone()
    }

    pub(super) fn entrance(&self) -> Arc<Entrance> {
        self.entrance.clone()
    }

    pub(super) fn lease(&self) -> Shown {
        self.lease.clone()
    }

    /// What settings that are read again can change.
    pub(super) fn levers(&self) -> Levers {
        Levers {
            live: self.live.clone(),
            entrance: self.entrance.clone(),
            desk: self.desk(),
            blocking: self.blocking.clone(),
            cores: self.cores.clone(),
            usual: self.usual,
            first: self.live.buffers(),
            leads_outside: self.leads_outside,
            watched: self.conductor.watch.is_some(),
        }
    }

    pub(super) fn control(&self) -> Arc<Control> {
        self.conductor.control.clone()
    }

    pub(super) fn clock(&self) -> Clock {
        self.conductor.clock
    }

    pub(super) fn desk(&self) -> Arc<Desk> {
        self.conductor.desk.clone()
    }

    /// What threads would be started with, for whoever drives it otherwise.
    #[cfg(test)]
    pub(crate) fn into_parts(self) -> (Vec<Seed>, Vec<IoCore>, Conductor) {
        (self.seeds, self.io_cores, self.conductor)
    }

    /// Starts the threads, waits for their end.
    pub(super) fn run<M, F>(self, main: Arc<M>) -> Result
    where
        M: Fn() -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: MainResult,
    {
        let Prepared {
            seeds,
            io_cores,
            ending,
            cores: _,
            blocking,
            metrics,
            admin,
            mut conductor,
            live,
            settings,
            entrance: _,
            keeper,
            lease: _,
            usual: _,
            leads_outside: _,
        } = self;
        if settings.signals {
            conductor.signals.end_the_runtime()?;
        }
        let admin = admin.map(|admin| admin.serve(metrics)).transpose()?;
        let (paused, shards_count) = (conductor.clock.jumps(), seeds.len());
        let leaves = move |number| {
            if let Some(clock) = paused {
                clock.leaves(number);
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let pins = pin::plan(&settings, io_cores.len());
        let (control, desk) = (conductor.control.clone(), conductor.desk.clone());
        let failed = ending.clone();
        let last = shards_count + io_cores.len();
        let conducting = start("janus-control".into(), &ending, move || {
            conductor
                .run()
                .map_err(BoxError::from)
                .unwrap_or_else(|error| failed.fail(error));
            leaves(last);
        });
        let mut polling = Vec::new();
        for (index, mut io_core) in io_cores.into_iter().enumerate() {
            let (stop, ending, pin) = (stop.clone(), ending.clone(), pins.io_core(index));
            let bell = io_core.unparker();
            let thread = start(format!("janus-io-{index}"), &ending.clone(), move || {
                pin::pin(pin);
                io_core
                    .run(&stop)
                    .map_err(BoxError::from)
                    .unwrap_or_else(|error| ending.fail(error));
                leaves(shards_count + index);
            });
            polling.extend(thread.map(|thread| (thread, bell)));
        }
        let mut shards = Vec::new();
        for seed in seeds {
            let (main, ending, pin) = (
                main.clone(),
                ending.clone(),
                pins.shard(usize::from(seed.core)),
            );
            let (name, core) = (format!("janus-shard-{}", seed.core), usize::from(seed.core));
            shards.extend(start(name.clone(), &ending.clone(), move || {
                pin::pin(pin);
                let run = AssertUnwindSafe(|| seed.run(move || main()));
                match catch_unwind(run) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => ending.fail(error),
                    // The other cores must not wait for this one.
                    Err(_) => ending.fail(panicked(&name)),
                }
                leaves(core);
            }));
        }
        // A shard that could not be started will not report that it has drained.
        for thread in shards {
            join(thread, &ending);
        }
        let behind = blocking.close(live.drain());
        if behind > 0 {
            eprintln!("janus: {behind} blocking calls go on although their runtime has ended");
        }
        stop.store(true, Ordering::Relaxed);
        for (thread, bell) in polling {
            bell.wake();
            join(thread, &ending);
        }
        desk.stop();
        if let Some(thread) = conducting {
            join(thread, &ending);
        }
        // Its device is closed, as the cores have ended.
        if let Some(keeper) = keeper
            && keeper.join().is_err()
        {
            ending.fail(panicked("janus-dhcp"));
        }
        // Closes the portal's doors and joins its thread.
        drop(control);
        // The last to go: until here it says that the runtime ends.
        if let Some(admin) = admin {
            join(admin.close(), &ending);
        }
        ending.take_error().map_or(Ok(()), Err)
    }
}

/// Who must sleep before a clock jumps, in the order of their numbers.
fn govern(clock: &'static Paused, cores: &[Unparker], polling: &mut [IoCore], control: &Parker) {
    let bells = polling.iter().map(IoCore::unparker);
    clock.governs(
        cores
            .iter()
            .cloned()
            .chain(bells)
            .chain([control.unparker()]),
    );
    for (index, core) in polling.iter_mut().enumerate() {
        let number = cores.len() + index;
        core.set_sleep_observer(Box::new(Polling { clock, number }));
    }
}

fn start(
    name: String,
    ending: &Ending,
    body: impl FnOnce() + Send + 'static,
) -> Option<JoinHandle<()>> {
    match Builder::new().name(name).spawn(body) {
        Ok(thread) => Some(thread),
        Err(error) => {
            ending.fail(error.into());
            None
        }
    }
}

fn join(thread: JoinHandle<()>, ending: &Ending) {
    let name = thread.thread().name().unwrap_or("a thread").to_owned();
    if thread.join().is_err() {
        ending.fail(panicked(&name));
    }
}

fn panicked(name: &str) -> BoxError {
    format!("{name} panicked; its message is on stderr").into()
}

/// The pool that a device receives into. Some of it is held back for that: when unread data fills memory, what frees it
/// must still come in.
fn device_pool(depot: &Arc<Depot>) -> Pool {
    let mut pool = depot.pool();
    pool.set_reserve(seed::RESERVE);
    pool
}
