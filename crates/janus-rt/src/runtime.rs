//! The builder, the runtime, and the calls of a task on the runtime it is in. Opening the
//! device and starting the threads is `launch`; what the threads do is the shard's.

mod build_error;
mod choice;
mod launch;
mod leasing;
mod main_task;
mod reload;
mod seats;
mod shutdown;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use janus_io::Batching;
use janus_io::faults::{FaultCounters, Faults};

use crate::admission::{Admission, Filter, IoCounters, Rules};
use crate::balance::{self, Balance};
use crate::clock::Clock;
use crate::config::{
    Cidr, ConfigError, Cores, DaemonMemory, Effective, Partial, Placement, PlacementName, Via,
};
pub use crate::control::BoxError;
use crate::control::supervisor::Supervisor;
use crate::dhcp::AddressingFn;
use crate::metrics::Collector;
use crate::portal::{PortalListen, PortalReach};
use crate::shard::core_context;
use crate::shard::shared::Shared;
use crate::task::JoinHandle;
use crate::warning::{Hook, Warning, Warnings};
pub use build_error::BuildError;
pub use choice::BackendChoice;
use launch::Prepared;
pub use launch::{Leases, OpenDevice};
pub(crate) use main_task::MainTask;
pub use main_task::{MainResult, exit_code};
pub use reload::Reloaded;
use reload::{Reloading, Sources};
use seats::Seated;
pub use seats::{Places, Seat, SeatCrew, Seats};
pub use shutdown::{ShuttingDown, is_shutting_down, shutting_down};

/// A result with that error.
pub type Result<T = (), E = BoxError> = std::result::Result<T, E>;

/// One Janus runtime: its cores, its device, its part of memory. Several can be in one process.
///
/// ```
/// let runtime = janus::Runtime::builder().cores(2).build()?;
/// let handle = runtime.handle();
/// runtime.run(move || {
///     let handle = handle.clone();
///     async move {
///         println!("core {} of {}", janus::core_id().unwrap(), janus::cores().unwrap());
///         handle.stop();
///     }
/// })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
pub struct Runtime {
    prepared: Prepared,
}

impl Runtime {
    /// A builder whose silence is filled from `JANUS_*` variables, then `janus.toml`, then defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs one copy of `main` on every core until all have ended, or one has failed or panicked, or
    /// [`Handle::stop`] was called; then drops every task, lets connections end in order for a short while and returns
    /// the first error.
    ///
    /// # Errors
    /// The first error or panic of a main, a panic of a core's loop, or what kept a thread or a handler of signals from being set up.
    pub fn run<M, F>(self, main: M) -> Result
    where
        M: Fn() -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: MainResult,
    {
        self.prepared.run(Arc::new(main))
    }

    /// Something that can stop the runtime from any thread.
    pub fn handle(&self) -> Handle {
        Handle(self.prepared.shared().clone())
    }
}

/// Stops a runtime, gives it something to do, or changes how its cores share connections, from any thread.
///
/// ```
/// use std::time::Duration;
///
/// let runtime = janus::Runtime::builder().ignore_environment().cores(1).build()?;
/// let handle = runtime.handle();
/// let other = std::thread::spawn(move || {
///     let sum = handle.spawn_on(0, || async { 1 + 1 });
///     handle.shutdown(Duration::from_secs(1));
///     sum
/// });
/// runtime.run(|| janus::shutting_down())?;
/// drop(other.join().unwrap());
/// # Ok::<(), janus::BoxError>(())
/// ```
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<Shared>);

impl Handle {
    /// Ends the runtime as if every main had returned.
    pub fn stop(&self) {
        self.0.ending.stop();
    }

    /// Ends the runtime in order. It takes no new connections from here on: ports are closed, a bind is an error, and
    /// `accept` gives what waits and then nothing more. [`shutting_down`] tells tasks, so that they need not wait for another
    /// request; behind the portal 100 ms later, as clients that the kernel has connected must first get in. When no connection is left, or after `within`, the rest is as after [`stop`](Handle::stop): tasks are
    /// dropped, what they wrote is delivered and connections end with FIN for as long as `close_ms` says; what is still there
    /// then is reset. Mains may end meanwhile; of several calls the first counts.
    pub fn shutdown(&self, within: Duration) {
        if self.0.ending.close_doors(within) {
            self.0.control.close_doors();
        }
    }

    /// Reads file and environment again. Keys that `docs/configuration.md` marks live change at once (receive buffers as far as windows
    /// can name them, whose unit the start decided); the other keys that say something new are named. This call reads a file: it is
    /// for [`spawn_blocking`](crate::spawn_blocking) or another thread, not for a task that serves others.
    ///
    /// # Errors
    /// When what is read is not understood; then nothing changes.
    pub fn reload(&self) -> std::io::Result<Reloaded> {
        let reloading = self.0.slots.get(Reloading::default);
        reloading.reload(&self.0)
    }

    /// [`shutdown`](Handle::shutdown) or [`stop`](Handle::stop) was called, or the runtime ends by itself.
    pub fn is_shutting_down(&self) -> bool {
        !self.0.ending.is_open()
    }

    /// Begins a task on a core, from any thread; see [`spawn_on`](crate::spawn_on). What is sent before the runtime runs
    /// waits for that.
    ///
    /// # Panics
    /// When the runtime has no such core.
    pub fn spawn_on<M, F>(&self, core: usize, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.0.cores.spawn_on(core, make)
    }

    /// Runs a call that may block, from any thread; see [`spawn_blocking`](crate::spawn_blocking).
    pub fn spawn_blocking<F, R>(&self, call: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let handle = self.0.blocking.spawn(call);
        // A thread that the system refused is counted, and no core needs to work for that.
        self.0.mailbox.stirs();
        handle
    }

    /// How the cores share new connections.
    pub fn balance(&self) -> Balance {
        Balance::new(self.0.mailbox.clone())
    }

    /// Whether a TCP socket of an unmodified program is Janus's when it is bound or connected to `at`: keys `program_ours` and
    /// `program_kernel`.
    pub fn takes(&self, at: SocketAddr) -> bool {
        seats::takes(&self.0.settings.get(), at)
    }

    /// Whether an unmodified program is to say at its end what went through its sockets: key `program_report`.
    pub fn program_report(&self) -> bool {
        self.0.settings.get().program_report
    }

    /// Returns the admission rules of the polling cores. A change counts from each core's next burst on.
    pub fn admission(&self) -> Admission {
        self.0.ingress.admission.clone()
    }

    /// From now on the trace, if there is one, has only frames that `filter` matches, or all of them: so one flow can be
    /// watched in a server that serves many. False when the runtime writes none.
    pub fn set_trace_filter(&self, filter: Option<Filter>) -> bool {
        let trace = self.0.ingress.trace.as_ref();
        trace.map(|trace| trace.set_filter(filter)).is_some()
    }

    /// Returns what the faulty link did to packets; `None` where no faults were asked for ([`Builder::faults`]).
    pub fn faults(&self) -> Option<Arc<FaultCounters>> {
        self.0.ingress.faults.clone()
    }

    /// Address of the admin port; `None` where there is none ([`Builder::admin`]).
    pub fn admin(&self) -> Option<SocketAddr> {
        Collector::of(self.0.clone()).collected.admin
    }

    #[cfg(test)]
    pub(crate) fn metrics(&self) -> Collector {
        Collector::of(self.0.clone())
    }

    /// Returns what each core that polls a queue has done, and dropped for which cause.
    pub fn io_counters(&self) -> &[Arc<IoCounters>] {
        &self.0.ingress.counters
    }
}

/// The handle of the runtime this task runs in; `None` outside of one.
pub fn handle() -> Option<Handle> {
    core_context::shared().map(Handle)
}

/// Which of the runtime's cores this is, from 0; `None` on a thread that is none.
pub fn core_id() -> Option<usize> {
    core_context::with(|ctx| usize::from(ctx.core))
}

/// How many cores the runtime of this core has; `None` on a thread that is none.
pub fn cores() -> Option<usize> {
    core_context::with(|ctx| ctx.shared.ending.cores())
}

/// For what must happen once although `main` runs on every core: the first core that comes to this line runs `what`,
/// and gets its result; every other call from this line in the same runtime gets `None`.
///
/// It says nothing about when the others come by; give an `async` block back and await it for what takes time.
///
/// ```
/// # janus::Runtime::builder().ignore_environment().cores(2).build()?.run(|| async {
/// janus::once(|| println!("said by one core"));
/// if let Some(work) = janus::once(|| async { 7 }) {
///     assert_eq!(work.await, 7);
/// }
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
#[track_caller]
pub fn once<R>(what: impl FnOnce() -> R) -> Option<R> {
    let place = std::panic::Location::caller();
    let first = core_context::with(|ctx| ctx.shared.ending.first_at(place)).unwrap_or(true);
    first.then(what)
}

/// Collects what a runtime shall be; see [`Runtime::builder`].
///
/// ```
/// let builder = janus::Runtime::builder()
///     .ignore_environment()
///     .cores(2)
///     .max_connections(10_000)
///     .close_time(std::time::Duration::from_millis(100));
/// assert_eq!(builder.effective()?.value("max_connections"), Some("10000"));
/// # Ok::<(), janus::ConfigError>(())
/// ```
#[derive(Default)]
pub struct Builder {
    partial: Partial,
    backend: Option<BackendChoice>,
    tcp: Option<janus_tcp::Config>,
    ignore_environment: bool,
    on_warning: Option<Hook>,
    on_addressing: Option<Box<AddressingFn>>,
    config_file: Option<PathBuf>,
    paused: bool,
    time: Option<Clock>,
    seated: Option<Seated>,
}

impl Builder {
    /// How many TCP cores; without it, as many as there are processors.
    pub fn cores(mut self, cores: usize) -> Builder {
        self.partial.cores = Some(Cores::count(cores));
        self
    }

    /// One TCP core on each of these processors, whose threads stay there. [`build`](Builder::build) fails where this process
    /// may not run on one of them.
    pub fn processors(mut self, processors: &[usize]) -> Builder {
        self.partial.cores = Some(Cores::on(processors.to_vec()));
        self
    }

    /// Reads this file instead of `janus.toml` or the one that `JANUS_CONFIG` names. It must be there.
    pub fn config_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.config_file = Some(file.into());
        self
    }

    /// Time that stands still while anything can be done, and jumps to the next timer when nothing can: for tests of what
    /// takes long. It is the time of this runtime's tasks and of its TCP. A blocking call holds it, and so do packets that
    /// are in the runtime or have come to its device; who is at the other end has a time of his own, unless it is a
    /// runtime that [shares](Builder::time_of) this one.
    pub fn start_paused(mut self, paused: bool) -> Builder {
        self.paused = paused;
        self
    }

    /// The time of another runtime in this process, which was [started paused](Builder::start_paused): it jumps when nothing can
    /// be done in either, nor is under way between them. Both must run, as one that never does holds the time for ever.
    pub fn time_of(mut self, other: &Handle) -> Builder {
        self.time = Some(other.0.clock);
        self
    }

    /// Sets who polls the device.
    pub fn placement(mut self, placement: Placement) -> Builder {
        match placement {
            Placement::Combined => {
                self.partial.placement = Some(PlacementName::Combined);
                self.partial.io_cores = None;
            }
            Placement::Split { io_cores } => {
                self.partial.placement = Some(PlacementName::Split);
                self.partial.io_cores = Some(io_cores);
            }
        }
        self
    }

    /// The device.
    pub fn backend(mut self, backend: BackendChoice) -> Builder {
        self.backend = Some(backend);
        self
    }

    /// For a device of DPDK's: the interface, made for it, on which traffic for other addresses than ours is the kernel's.
    pub fn dpdk_exception(mut self, interface: impl Into<String>) -> Builder {
        self.partial.dpdk_exception = Some(interface.into());
        self
    }

    /// With a daemon's device: programs of one user that name the same group may listen at the same ports of TCP, and new connections are
    /// divided among them.
    pub fn daemon_group(mut self, name: impl Into<String>) -> Builder {
        self.partial.daemon_group = Some(name.into());
        self
    }

    /// With a daemon's device: whose memory packets are in.
    pub fn daemon_memory(mut self, memory: DaemonMemory) -> Builder {
        self.partial.daemon_memory = Some(memory);
        self
    }

    /// Gives the interface one more address. [`build`](Builder::build) fails where it cannot be ours.
    ///
    /// ```
    /// let builder = janus::Runtime::builder()
    ///     .address("192.0.2.1/24".parse()?)
    ///     .address("2001:db8::1/64".parse()?);
    /// # Ok::<(), janus::ParseError>(())
    /// ```
    pub fn address(mut self, address: Cidr) -> Builder {
        let addresses = self.partial.address.get_or_insert_default();
        addresses.given.push(address);
        self
    }

    /// Where packets of its family for other networks go.
    pub fn gateway(mut self, gateway: impl Into<IpAddr>) -> Builder {
        match gateway.into() {
            IpAddr::V4(gateway) => self.partial.gateway = Some(gateway),
            IpAddr::V6(gateway) => self.partial.gateway_v6 = Some(gateway),
        }
        self
    }

    /// Where packets for a single network go: to a neighbor of the network's family.
    pub fn route(mut self, to: Cidr, gateway: IpAddr) -> Builder {
        let routes = self.partial.route.get_or_insert_default();
        routes.push(Via { to, gateway });
        self
    }

    /// One more name server to ask for names; without any, those of `/etc/resolv.conf` that the device reaches, else the
    /// system's resolver.
    pub fn name_server(mut self, server: SocketAddr) -> Builder {
        self.partial.dns.get_or_insert_default().push(server);
        self
    }

    /// Restricts which peers outgoing portal connections may reach; without it, those of this machine.
    pub fn portal_reach(mut self, reach: PortalReach) -> Builder {
        self.partial.portal_reach = Some(reach);
        self
    }

    /// Chooses the addresses of this machine on which the portal offers the ports that are bound; without it, loopback.
    pub fn portal_listen(mut self, at: PortalListen) -> Builder {
        self.partial.portal_listen = Some(at);
        self
    }

    /// Makes every secret from this number, for runs that must be repeatable. Not for a server that faces strangers.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.partial.seed = Some(seed);
        self
    }

    /// Writes every frame that passes the device to this file (pcapng).
    pub fn trace(mut self, file: impl Into<PathBuf>) -> Builder {
        self.partial.trace = Some(file.into());
        self
    }

    /// Writes only those frames that match, such as `"host 192.0.2.7 and tcp port 80".parse()?`: see `trace_filter` in
    /// `docs/configuration.md`.
    pub fn trace_filter(mut self, filter: Filter) -> Builder {
        self.partial.trace_filter = Some(filter);
        self
    }

    /// TCP's bounds and times, for each core. What the other methods and sources say of them goes before.
    pub fn tcp(mut self, config: janus_tcp::Config) -> Builder {
        self.tcp = Some(config);
        self
    }

    /// Connections each core holds at most.
    pub fn max_connections(mut self, connections: u32) -> Builder {
        self.partial.max_connections = Some(connections);
        self
    }

    /// Packet buffers of 2 KiB, for the whole runtime.
    pub fn packet_buffers(mut self, buffers: u32) -> Builder {
        self.partial.packet_buffers = Some(buffers);
        self
    }

    /// How many packets a core takes at a time: by the length of its queue, unless said otherwise.
    pub fn batching(mut self, batching: Batching) -> Builder {
        self.partial.batch = Some(batching);
        self
    }

    /// Connections that may wait to be accepted, for each listener.
    pub fn backlog(mut self, backlog: usize) -> Builder {
        self.partial.backlog = Some(backlog);
        self
    }

    /// Threads for blocking calls ([`spawn_blocking`](crate::spawn_blocking)); more calls than these wait.
    pub fn blocking_threads(mut self, threads: usize) -> Builder {
        self.partial.blocking_threads = Some(threads);
        self
    }

    /// Warns of tasks whose future takes so many bytes or more (at least 1,024 are looked at); `None`: never. See [`Warning`].
    pub fn warn_future_bytes(mut self, bytes: impl Into<Option<usize>>) -> Builder {
        // The key says 0 for never.
        let bytes = bytes.into().map_or(0, |bytes| bytes.max(1));
        self.partial.warn_future_bytes = Some(u32::try_from(bytes).unwrap_or(u32::MAX));
        self
    }

    /// Warns of a task that has kept its core for so long, at least a millisecond, without an await; `None`: never. See [`Warning`].
    pub fn warn_blocked(mut self, time: impl Into<Option<Duration>>) -> Builder {
        let time = time.into().map(|time| time.max(Duration::from_millis(1)));
        // The key says 0 for never.
        self.partial.warn_blocked = Some(time.unwrap_or_default());
        self
    }

    /// Where warnings go, instead of to stderr (with the feature `tracing`: instead of becoming its events). They come on the
    /// thread that noticed, which is a core or the control thread: the hook should be quick, and must not wait for the runtime.
    /// [`Warning`] says how often.
    pub fn on_warning(mut self, hook: impl Fn(&Warning) + Send + Sync + 'static) -> Builder {
        self.on_warning = Some(Box::new(hook));
        self
    }

    /// Sets what the polling cores let in, instead of what the keys `admission_…` say.
    pub fn admission(mut self, rules: Rules) -> Builder {
        self.partial.given_rules = Some(rules);
        self
    }

    /// Makes the link a bad one, both ways, instead of what the keys `faults_…` say: for trials.
    pub fn faults(mut self, faults: Faults) -> Builder {
        self.partial.given_faults = Some(faults);
        self
    }

    /// Opens an admin port at this address of the kernel's, with `/metrics` and `/healthz` on it: see
    /// [`metrics`](crate::metrics). Port 0 takes a free one, which [`Handle::admin`] tells.
    pub fn admin(mut self, at: impl Into<SocketAddr>) -> Builder {
        self.partial.admin = Some(at.into());
        self
    }

    /// How long connections may take to end in order when the runtime ends.
    pub fn close_time(mut self, time: Duration) -> Builder {
        self.partial.close = Some(time);
        self
    }

    /// Whether SIGTERM and SIGINT end the runtime in order: as [`Handle::shutdown`] does, within the time that
    /// [`shutdown_time`](Builder::shutdown_time) says; a second one ends the process at once. They do unless told otherwise,
    /// but not where the builder is told to [ignore the environment](Builder::ignore_environment), nor where something in the process handles or ignores such a
    /// signal when the runtime begins, nor while a task waits for it itself ([`signal`](crate::signal)).
    pub fn signals(mut self, on: bool) -> Builder {
        self.partial.signals = Some(on);
        self
    }

    /// How long connections may go on when a signal ends the runtime.
    pub fn shutdown_time(mut self, time: Duration) -> Builder {
        self.partial.shutdown = Some(time);
        self
    }

    /// Sets the policy that shares out new connections among the cores; without one the weights are fixed.
    pub fn balance(mut self, policy: balance::Policy) -> Builder {
        self.partial.balance = Some(policy);
        self
    }

    /// Whether a connection that no task of its core accepts in time is offered to another core, where one waits; off by default.
    pub fn speculative_accept(mut self, how: balance::SpeculativeAccept) -> Builder {
        self.partial.speculative_accept = Some(how);
        self
    }

    /// Whether each core's loop runs inside a tokio runtime of its thread, so that tasks can use tokio's timers, sockets
    /// and `tokio::spawn`; see [`compat`](crate::compat). Needs the feature `tokio`, and is then what happens unless told
    /// otherwise.
    pub fn tokio(mut self, on: bool) -> Builder {
        self.partial.tokio = Some(on);
        self
    }

    /// Whether our timestamps name the core a connection lives on, so that polling cores read it back instead of looking the
    /// packet up. Off by default: it makes the clock of timestamps coarser, a millisecond for each core and up to the next
    /// power of two.
    pub fn owner_bits(mut self, on: bool) -> Builder {
        self.partial.owner_bits = Some(on);
        self
    }

    /// Reads neither `janus.toml` nor the environment: what is said neither here nor in a
    /// [`config_file`](Builder::config_file) has its default.
    pub fn ignore_environment(mut self) -> Builder {
        self.ignore_environment = true;
        self.partial.signals.get_or_insert(false);
        self
    }

    /// Decides everything and opens the device. No core runs before [`Runtime::run`].
    ///
    /// # Errors
    /// When a setting is not understood, or what it names cannot be had.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let clock = match self.time {
            Some(clock) => clock.shared().ok_or_else(|| {
                let problem = "the runtime was not started paused: each has the machine's time";
                ConfigError::value("time_of", problem.into())
            })?,
            None if self.paused => Clock::paused(),
            None => Clock::start(),
        };
        let prepared = self.prepare(clock)?;
        Ok(Runtime { prepared })
    }

    /// Opens the device that is described, with one queue, and nothing else: for a program that carries packets itself. Besides its own
    /// packet buffers it has so many to lend to other processes, if they are any, and then they can map the memory of all.
    ///
    /// # Errors
    /// As for [`build`](Builder::build); also for a daemon's device, which is its members' already.
    pub fn open_device(self, lends: u32) -> Result<OpenDevice, BuildError> {
        let mut one = self.cores(1);
        let supervisor = one.supervisor();
        let (settings, _) = one.sources().read()?;
        launch::open_device(&settings, one.backend, supervisor, lends)
    }

    /// Reads file and environment, key by key; what this builder was told goes before that. Nothing is opened.
    ///
    /// # Errors
    /// For whatever [`build`](Builder::build) would not understand.
    pub fn effective(mut self) -> Result<Effective, ConfigError> {
        Ok(self.sources().read()?.1)
    }

    fn supervisor(&self) -> Option<Supervisor> {
        match self.ignore_environment {
            true => None,
            false => Supervisor::of_the_environment(),
        }
    }

    /// Where its settings come from.
    fn sources(&mut self) -> Sources {
        Sources {
            ignore_environment: self.ignore_environment,
            file: self.config_file.take(),
            builder: std::mem::take(&mut self.partial),
            tcp: self.tcp.as_ref().map(Partial::of_tcp).unwrap_or_default(),
        }
    }

    /// Like [`build`](Builder::build), on any clock.
    pub(crate) fn prepare(mut self, clock: Clock) -> Result<Prepared, BuildError> {
        let sources = self.sources();
        let supervisor = self.supervisor();
        let (settings, effective) = match self.seated {
            None => sources.read()?,
            Some(seated) => seated.settings(&sources)?,
        };
        let tcp = self.tcp.unwrap_or_default();
        let warnings = Arc::new(Warnings::new(self.on_warning));
        let told = self.on_addressing;
        let prepared = Prepared::open(settings, self.backend, tcp, warnings, told, clock)?;
        let shared = prepared.shared();
        shared.slots.get(|| Reloading::new(sources, effective));
        if let Some(supervisor) = supervisor {
            let _first = shared.ending.supervisor.set(supervisor);
        }
        Ok(prepared)
    }
}
