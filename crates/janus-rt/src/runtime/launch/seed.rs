//! The seed that a core's thread is started with, and what it becomes there: everything of a shard that may cross threads before
//! its thread is running. The rest (its part of memory, its executor) is made on the thread.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use janus_csb::{ShardEnd, ShardId};
use janus_mem::{Depot, Growth, MemError, Pool};
use janus_tcp::{Config, Interface, Secrets, Stack};

use super::fabric::Berth;
use crate::config::Settings;
use crate::dhcp::Shown;
use crate::inbox::{Owner, ShardIdentity};
use crate::runtime::{BoxError, MainResult, MainTask};
use crate::shard::core_context::{CoreContext, Parts};
use crate::shard::shared::Shared;
use crate::shard::{Door, Forwarder, Shard, Work};
use crate::task::{Executor, Pulse, Room};
use crate::warning::Warnings;

/// Buffers a shard keeps back for what frees memory: acknowledgements, the refill of a receive queue.
const RESERVE: usize = 32;

/// The part of the seed that all cores of a runtime have in common.
pub(super) struct Common {
    pub(super) shared: Arc<Shared>,
    pub(super) tcp: Config,
    pub(super) interface: Interface,
    pub(super) secrets: Secrets,
    /// Number of cores that timestamps name; `None`: they name none.
    pub(super) owner_bits_cores: Option<u16>,
    pub(super) depot: Arc<Depot>,
    pub(super) growth: Growth,
    pub(super) doors: Vec<Door>,
    /// Of each core.
    pub(super) pulses: Vec<Arc<Pulse>>,
    pub(super) warnings: Arc<Warnings>,
}

/// The seed of one core.
pub(crate) struct Seed {
    pub(super) core: u8,
    pub(super) berth: Berth,
    pub(super) end: ShardEnd,
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
        {
            let shared = &self.common.shared;
            // Time that jumps is not tokio's.
            if shared.settings.get().tokio && shared.clock.jumps().is_none() {
                return self.run_in_tokio(main);
            }
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
            berth,
            end,
            common,
        } = self;
        let Berth {
            parker,
            reader,
            port,
            forwarded,
            arrivals,
        } = berth;
        let inbox = reader.inbox().clone();
        let identity = ShardIdentity::register(inbox.clone())?;
        let again = common.clone();
        let stack = common.stack(core)?;
        let owner = Owner {
            number: identity.number(),
            life: identity.incarnation().get() as u16,
        };
        let forwarder = Forwarder::new(ShardId(core), common.interface.link, common.doors.clone());
        let parts = Parts {
            inbox,
            stack,
            pool: device_pool(&common.depot),
            steering: end,
            forwarder,
            arrivals,
        };
        let ctx = CoreContext::new(owner, core, common.shared.clone(), parts);
        let executor = common.executor(core, identity)?;
        let shard = Shard {
            work: Work::new(&port, common.shared.watched)?,
            ctx: Rc::new(ctx),
            port,
            forwarded,
            reader,
            parker,
            clock: common.shared.clock,
            rebuild: Box::new(move || again.stack_again(core)),
        };
        shard.ctx.executor.replace(Some(executor));
        let entered = shard.enter();
        shard.tasks(|tasks| _ = tasks.spawn(MainTask::new(main())));
        drop(entered);
        Ok(shard)
    }
}

impl Common {
    /// Makes a core's stack.
    fn stack(&self, core: u8) -> Result<Stack, MemError> {
        let mut interface = self.interface.clone();
        // Every shard hears ARP; one answers.
        interface.answers = core == 0;
        let secrets = match self.owner_bits_cores {
            Some(cores) => self.secrets.naming(core, cores),
            None => self.secrets.clone(),
        };
        let pool = device_pool(&self.depot);
        Stack::new(self.tcp.clone(), interface, secrets, pool, &self.growth)
    }

    /// Makes an empty stack in place of one that cannot be trusted any more.
    fn stack_again(&self, core: u8) -> Result<Stack, MemError> {
        let mut stack = self.stack(core)?;
        // A lease may have brought others than those of the start.
        if let Some(addressing) = self.shared.slots.get(Shown::default).addressing() {
            stack.readdress(addressing);
        }
        Ok(stack)
    }

    /// Makes the executor of this thread's core.
    fn executor(&self, core: u8, identity: ShardIdentity) -> Result<Executor, MemError> {
        let pulse = self.pulses[usize::from(core)].clone();
        pulse.beats_here();
        let large_from = match self.shared.settings.get().warn_future_bytes {
            0 => usize::MAX,
            bytes => bytes as usize,
        };
        let room = if self.shared.clock.is_virtual() {
            Room::SMALL
        } else {
            Room::FULL
        };
        let executor = Executor::new(identity, &self.growth, room)?;
        let executor = executor.watched(pulse, self.warnings.clone(), large_from);
        Ok(match self.tcp.warm_reuse {
            true => executor,
            false => executor.reusing_nothing(),
        })
    }
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

/// The pool that a core receives into. Some of it is held back: when unread data fills memory, what frees it must still come in.
pub(super) fn device_pool(depot: &Arc<Depot>) -> Pool {
    let mut pool = depot.pool();
    pool.set_reserve(RESERVE);
    pool
}

/// TCP's configuration with what the settings say of it.
pub(super) fn tcp_config(mut config: Config, settings: &Settings) -> Config {
    config.max_connections = settings.max_connections;
    config = config.with_buffer_sizes(settings.buffers());
    // A datagram in pieces comes to whichever core; its port may be another's.
    config.datagrams_elsewhere = settings.cores.count > 1;
    config
}
