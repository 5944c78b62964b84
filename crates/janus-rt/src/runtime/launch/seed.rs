//! What a core's thread is started with, and what it becomes there: everything of a shard that may cross threads before
//! its thread is running. The rest (its part of memory, its executor) is made on the thread.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use janus_csb::{Limits, ShardEnd, ShardId};
use janus_io::Port;
use janus_io::mpsc::Receiver;
use janus_io::park::Parker;
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_tcp::{Config, Interface, Secrets, Stack};
use janus_wire::{FlowNames, Toeplitz};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::clock::Clock;
use crate::config::{Live, Settings};
use crate::control::Control;
use crate::control::datagrams::Datagrams;
use crate::control::desk::Desk;
use crate::control::signals::Signals;
use crate::dhcp::Shown;
use crate::inbox::Mailbox;
use crate::metrics::Collector;
use crate::net::Names;
use crate::policy::Entrance;
use crate::portal::{Listen, Reach};
use crate::runtime::{BoxError, Ending, MainResult, MainTask};
use crate::shard::here::{Here, Owner};
use crate::shard::{Door, LoopStatistics, Neighbours, Renew, Shard, Work};
use crate::task::blocking::Blocking;
use crate::task::{Cores, Executor, Pulse, ShardIdentity};
use crate::warning::Warnings;

/// Buffers a shard keeps back for what frees memory: acknowledgements, the refill of a receive queue.
pub(super) const RESERVE: usize = 32;

/// What all cores of a runtime are started with.
pub(super) struct Common {
    pub(super) tcp: Config,
    pub(super) interface: Interface,
    pub(super) portal: Option<Reach>,
    pub(super) portal_listen: Listen,
    pub(super) secrets: Secrets,
    /// Timestamps name the core, one of so many.
    pub(super) named: Option<u16>,
    pub(super) toeplitz: Arc<Toeplitz>,
    pub(super) names: FlowNames,
    pub(super) growth: Growth,
    pub(super) control: Arc<Control>,
    pub(super) desk: Arc<Desk>,
    pub(super) entrance: Arc<Entrance>,
    pub(super) ending: Arc<Ending>,
    pub(super) lease: Shown,
    pub(super) cores: Arc<Cores>,
    pub(super) blocking: Arc<Blocking>,
    pub(super) metrics: Arc<Collector>,
    pub(super) doors: Vec<Door>,
    pub(super) live: Arc<Live>,
    pub(super) signals: Arc<Signals>,
    pub(super) datagrams: Arc<Datagrams>,
    /// What is known of names.
    pub(super) known: Arc<Names>,
    /// A policy watches the load.
    pub(super) sampled: bool,
    /// The cores' loops run inside of tokio.
    #[cfg(feature = "tokio")]
    pub(super) tokio: bool,
    /// Of each core.
    pub(super) pulses: Vec<Arc<Pulse>>,
    pub(super) warnings: Arc<Warnings>,
    /// Futures of so many bytes are warned of.
    pub(super) large_from: usize,
    pub(super) clock: Clock,
}

/// What one core is started with.
pub(crate) struct Seed {
    pub(super) core: u8,
    pub(super) parker: Parker,
    /// Made before the thread, so that what is sent to the core meanwhile waits.
    pub(super) mailbox: Mailbox,
    pub(super) port: Port,
    pub(super) forwarded: Receiver<Frame>,
    pub(super) end: ShardEnd,
    pub(super) stack_pool: Pool,
    pub(super) pool: Pool,
    pub(super) common: Arc<Common>,
}

impl Seed {
    /// Becomes a shard on this thread and runs it to the end.
    pub(super) fn run<F>(self, main: impl FnOnce() -> F) -> Result<(), BoxError>
    where
        F: Future + 'static,
        F::Output: MainResult,
    {
        #[cfg(feature = "tokio")]
        // Time that jumps is not tokio's.
        if self.common.tokio && self.common.clock.jumps().is_none() {
            return self.run_in_tokio(main);
        }
        let shard = self.grow(main)?;
        let _here = shard.enter();
        to_its_end(shard)
    }

    #[cfg(feature = "tokio")]
    fn run_in_tokio<F>(self, main: impl FnOnce() -> F) -> Result<(), BoxError>
    where
        F: Future + 'static,
        F::Output: MainResult,
    {
        let tokio = crate::compat::bridge::Tokio::new(self.core)?;
        let shard = {
            // For a main that spawns before it is a future.
            let _context = tokio.enter();
            self.grow(main)?
        };
        let _here = shard.enter();
        to_its_end(tokio.run(shard)?)
    }

    /// Becomes a shard of this thread, its main spawned and not yet polled.
    pub(crate) fn grow<F>(self, main: impl FnOnce() -> F) -> Result<Shard, BoxError>
    where
        F: Future + 'static,
        F::Output: MainResult,
    {
        let Seed {
            core,
            parker,
            mailbox,
            port,
            forwarded,
            end,
            mut stack_pool,
            pool,
            common,
        } = self;
        let identity = ShardIdentity::register(mailbox.inbox().clone())?;
        stack_pool.set_reserve(RESERVE);
        let mut interface = common.interface.clone();
        // Every shard hears ARP; one answers.
        interface.answers = core == 0;
        let secrets = match common.named {
            Some(cores) => common.secrets.naming(core, cores),
            None => common.secrets.clone(),
        };
        let stack = Stack::new(
            common.tcp.clone(),
            interface.clone(),
            secrets.clone(),
            stack_pool,
            &common.growth,
        )?;
        let renew = renew(&common, interface.clone(), secrets, pool.depot().clone());
        let here = Rc::new(Here {
            owner: Owner {
                number: identity.number(),
                life: identity.incarnation().get() as u16,
            },
            core,
            stack: RefCell::new(stack),
            pool: RefCell::new(pool),
            steering: RefCell::new(end),
            toeplitz: common.toeplitz.clone(),
            names: common.names,
            portal: common.portal.clone(),
            portal_listen: common.portal_listen.clone(),
            control: common.control.clone(),
            desk: common.desk.clone(),
            entrance: common.entrance.clone(),
            lease: common.lease.clone(),
            clock: common.clock,
            ending: common.ending.clone(),
            live: common.live.clone(),
            signals: common.signals.clone(),
            datagrams: common.datagrams.clone(),
            known: common.known.clone(),
            now: Cell::new(common.clock.now()),
            executor: RefCell::new(None),
            inbox: mailbox.inbox().clone(),
            cores: common.cores.clone(),
            blocking: common.blocking.clone(),
            metrics: common.metrics.clone(),
            waiters: RefCell::default(),
            neighbours: RefCell::new(Neighbours::new(
                ShardId(core),
                interface.link,
                common.doors.clone(),
            )),
            fixed: RefCell::default(),
            has_opened: Cell::new(false),
            closing: RefCell::default(),
            places: Cell::new(0),
            in_main: Cell::new(false),
            main_in_bind: Cell::new(false),
            main_over: Cell::new(false),
            fallen: Cell::new(false),
            statistics: LoopStatistics::default(),
        });
        let pulse = common.pulses[usize::from(core)].clone();
        pulse.beats_here();
        let mut executor = Executor::new(identity, &common.growth)?.watched(
            pulse,
            common.warnings.clone(),
            common.large_from,
        );
        if !common.tcp.warm_reuse {
            executor = executor.reusing_nothing();
        }
        let shard = Shard {
            work: Work::new(&port, common.sampled)?,
            here,
            port,
            forwarded,
            mailbox,
            parker,
            clock: common.clock,
            renew,
        };
        shard.here.executor.replace(Some(executor));
        let entered = shard.enter();
        shard.tasks(|tasks| _ = tasks.spawn(MainTask::new(main())));
        drop(entered);
        Ok(shard)
    }
}

/// How to make an empty stack in place of one that cannot be trusted any more.
fn renew(common: &Arc<Common>, interface: Interface, secrets: Secrets, depot: Arc<Depot>) -> Renew {
    let common = common.clone();
    Box::new(move || {
        let mut pool = depot.pool();
        pool.set_reserve(RESERVE);
        let (tcp, secrets) = (common.tcp.clone(), secrets.clone());
        let mut stack = Stack::new(tcp, interface.clone(), secrets, pool, &common.growth)?;
        // A lease may have brought others than those of the start.
        if let Some(addressing) = common.lease.addressing() {
            stack.readdress(addressing);
        }
        Ok(stack)
    })
}

/// Whatever happens on the way.
fn to_its_end(mut shard: Shard) -> Result<(), BoxError> {
    loop {
        match catch_unwind(AssertUnwindSafe(|| shard.run())) {
            Ok(ended) => return Ok(ended?),
            Err(_printed) => shard.fall()?,
        }
    }
}

/// Random secrets, or repeatable ones from a seed: the stack's keys, and the key of the hash that chooses the shard.
/// That one is secret too, so that nobody can aim all of their connections at one core.
pub(super) fn secrets(seed: Option<u64>) -> Result<(Secrets, [u8; 40]), BoxError> {
    let mut key = [0; 40];
    if let Some(seed) = seed {
        let mut state = seed;
        for byte in &mut key {
            // Knuth's multiplier; the top byte is the one that varies well.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        return Ok((Secrets::from_seed(seed), key));
    }
    let mut bytes = [0; 64];
    fill(&mut bytes)?;
    fill(&mut key)?;
    Ok((Secrets::from_bytes(bytes), key))
}

/// Names of flows under a secret of their own: who could make two flows of one name could have one of them led astray.
pub(super) fn names(seed: Option<u64>) -> Result<FlowNames, BoxError> {
    if let Some(seed) = seed {
        return Ok(FlowNames::new([seed, !seed]));
    }
    Ok(FlowNames::new([drawn()?, drawn()?]))
}

/// The secret of the table of SYN rates.
pub(super) fn rates_secret(seed: Option<u64>) -> Result<[u64; 2], BoxError> {
    match seed {
        Some(seed) => Ok([!seed, seed]),
        None => Ok([drawn()?, drawn()?]),
    }
}

/// Bounds of the balancer's updates. Strangers have a say in the keys, so the filter's seed is not to be guessed.
pub(super) fn limits(seed: Option<u64>) -> Result<Limits, BoxError> {
    let seed = match seed {
        Some(seed) => seed,
        None => drawn()?,
    };
    Ok(Limits {
        seed,
        ..Limits::default()
    })
}

/// What the client of DHCP draws its numbers from: strangers must not guess them.
pub(super) fn lease_seed(seed: Option<u64>) -> Result<u64, BoxError> {
    seed.map_or_else(drawn, |seed| Ok(seed.rotate_left(32)))
}

fn drawn() -> Result<u64, BoxError> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Fills `bytes` with random ones. By getrandom(2) and not from `/dev/urandom`: an image or a chroot need not have `/dev`.
fn fill(mut bytes: &mut [u8]) -> Result<(), BoxError> {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("the kernel gives no random numbers: {errno}").into()),
        }
    }
    Ok(())
}

/// TCP's configuration with what the settings say of it.
pub(super) fn tcp_config(mut config: Config, settings: &Settings) -> Config {
    if let Some(connections) = settings.max_connections {
        config.max_connections = connections;
    }
    let sizes = settings.buffers(config.buffer_sizes());
    config = config.with_buffer_sizes(sizes);
    // A datagram in pieces comes to whichever core; its port may be another's.
    config.datagrams_elsewhere = settings.cores > 1;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6528 section 4, RFC 4086: unless runs must be repeatable, each start has keys of the system's randomness.
    #[test]
    fn two_starts_have_no_key_in_common() {
        let key = |seed| secrets(seed).expect("the system's randomness").1;
        assert_ne!(key(None), key(None));
        assert_ne!(key(None), [0; 40]);
        assert_eq!(key(Some(7)), key(Some(7)));
        assert_ne!(key(Some(7)), key(Some(8)));
    }
}
