//! The threads of a runtime, from their start to their end.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use janus_io::IoCore;
use janus_io::member::Ports;
use janus_io::park::Unparker;

use super::seed::Seed;
use super::{Prepared, pin};
use crate::admin::Serving;
use crate::clock::Clock;
use crate::control::conductor::Conductor;
use crate::control::ending::Ending;
use crate::dhcp::Keeper;
use crate::lock::Lock;
use crate::metrics::Collector;
use crate::runtime::{BoxError, MainResult, Result};
use crate::shard::shared::Shared;

impl Prepared {
    /// Starts the threads, waits for their end.
    pub(in crate::runtime) fn run<M, F>(self, main: Arc<M>) -> Result
    where
        M: Fn() -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: MainResult,
    {
        if self.shared.settings.get().signals {
            self.shared.signals.end_the_runtime()?;
        }
        let (seeds, crew) = self.start()?;
        // A shard that could not be started will not report that it has closed its connections.
        for thread in crew.threads.serve(seeds, &main) {
            crew.threads.join(thread);
        }
        crew.dismiss()
    }

    /// Starts all threads but those of the cores.
    pub(in crate::runtime) fn start(self) -> Result<(Vec<Seed>, Crew)> {
        let Prepared {
            seeds,
            io_cores,
            shared,
            conductor,
            admin,
            keeper,
        } = self;
        let settings = shared.settings.get();
        let metrics = Collector::of(shared.clone());
        let admin = admin.map(|admin| admin.serve(metrics)).transpose()?;
        let threads = Threads {
            ending: shared.ending.clone(),
            clock: shared.clock,
            pins: pin::plan(&settings, io_cores.len()),
            shards: seeds.len(),
        };
        let conductor = Arc::new(Lock::new(conductor));
        let conducting = threads.conduct(&conductor, seeds.len() + io_cores.len());
        let stop = Arc::new(AtomicBool::new(false));
        let polling = threads.poll(io_cores, &stop);
        let crew = Crew {
            threads,
            shared,
            conductor,
            conducting,
            polling,
            stop,
            admin,
            keeper,
        };
        Ok((seeds, crew))
    }
}

/// The threads of a runtime beside its cores'.
pub(in crate::runtime) struct Crew {
    threads: Threads,
    shared: Arc<Shared>,
    conductor: Arc<Lock<Conductor>>,
    conducting: Option<JoinHandle<()>>,
    polling: Vec<(JoinHandle<()>, Unparker)>,
    stop: Arc<AtomicBool>,
    admin: Option<Serving>,
    keeper: Option<Keeper>,
}

impl Crew {
    /// Ends the threads until [`Crew::goes_on`], for the time in which the process is copied. False, and nothing is done: it has others, or a device of its own.
    pub(in crate::runtime) fn rests(&mut self) -> bool {
        let Some(member) = &self.shared.member else {
            return false;
        };
        if !self.polling.is_empty() || self.shared.blocking.report().threads > 0 {
            return false;
        }
        // A copy has no use for it, and who comes in this one's place may listen there.
        if let Some(admin) = self.admin.take() {
            self.threads.join(admin.close());
        }
        self.shared.mailbox.stop();
        if let Some(thread) = self.conducting.take() {
            self.threads.join(thread);
        }
        member.rests();
        true
    }

    /// Of a runtime that had no polling cores.
    pub(in crate::runtime) fn goes_on(&mut self) -> Result {
        self.shared.mailbox.restarts();
        self.conducting = self.threads.conduct(&self.conductor, self.threads.shards);
        match &self.shared.member {
            Some(member) => Ok(member.goes_on()?),
            None => Ok(()),
        }
    }

    /// [`Crew::goes_on`] in a copy of the process, which has its place from now on.
    pub(in crate::runtime) fn goes_on_here(&mut self) -> Result {
        self.goes_on()?;
        let member = self.shared.member.as_ref();
        Ok(member.map_or(Ok(()), Ports::moves)?)
    }

    /// Waits for their end, now that the cores have ended. The error: the first thing that went wrong in the runtime's life.
    pub(in crate::runtime) fn dismiss(self) -> Result {
        let Crew {
            threads,
            shared,
            conducting,
            polling,
            stop,
            admin,
            keeper,
            ..
        } = self;
        let behind = shared.blocking.close(shared.settings.get().close);
        if behind > 0 {
            eprintln!("janus: {behind} blocking calls go on although their runtime has ended");
        }
        stop.store(true, Ordering::Relaxed);
        for (thread, bell) in polling {
            bell.wake();
            threads.join(thread);
        }
        shared.mailbox.stop();
        if let Some(thread) = conducting {
            threads.join(thread);
        }
        // Its device is closed, as the cores have ended.
        if let Some(keeper) = keeper
            && keeper.join().is_err()
        {
            shared.ending.fail(panicked("janus-dhcp"));
        }
        // Closes the portal's doors and joins its thread.
        shared.control.end();
        // The last to go: until here it says that the runtime ends.
        if let Some(admin) = admin {
            threads.join(admin.close());
        }
        shared.ending.take_error().map_or(Ok(()), Err)
    }
}

/// What all threads are started with. A clock that jumps learns when one has ended, by its number: shards first, then polling cores, then
/// the control thread.
struct Threads {
    ending: Arc<Ending>,
    clock: Clock,
    pins: pin::Plan,
    shards: usize,
}

impl Threads {
    /// Starts a thread that is number `number`; an error of it ends the runtime.
    fn start(
        &self,
        name: String,
        number: usize,
        body: impl FnOnce() -> Result + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let (ending, clock) = (self.ending.clone(), self.clock.jumps());
        let body = move || {
            body().unwrap_or_else(|error| ending.fail(error));
            if let Some(clock) = clock {
                clock.leaves(number);
            }
        };
        let thread = Builder::new().name(name).spawn(body);
        thread.map_err(|error| self.ending.fail(error.into())).ok()
    }

    fn join(&self, thread: JoinHandle<()>) {
        let name = thread.thread().name().unwrap_or("a thread").to_owned();
        if thread.join().is_err() {
            self.ending.fail(panicked(&name));
        }
    }

    fn conduct(&self, conductor: &Arc<Lock<Conductor>>, number: usize) -> Option<JoinHandle<()>> {
        let conductor = conductor.clone();
        let body = move || Ok(conductor.lock().run()?);
        self.start("janus-control".into(), number, body)
    }

    /// Starts the polling cores; each ends when it is woken after `stop` is set.
    fn poll(
        &self,
        io_cores: Vec<IoCore>,
        stop: &Arc<AtomicBool>,
    ) -> Vec<(JoinHandle<()>, Unparker)> {
        let start = |(index, mut io_core): (usize, IoCore)| {
            let (stop, pin, bell) = (stop.clone(), self.pins.io_core(index), io_core.unparker());
            let body = move || {
                pin::pin(pin);
                Ok(io_core.run(&stop)?)
            };
            let thread = self.start(format!("janus-io-{index}"), self.shards + index, body)?;
            Some((thread, bell))
        };
        io_cores.into_iter().enumerate().filter_map(start).collect()
    }

    fn serve<M, F>(&self, seeds: Vec<Seed>, main: &Arc<M>) -> Vec<JoinHandle<()>>
    where
        M: Fn() -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: MainResult,
    {
        let start = |seed: Seed| {
            let core = usize::from(seed.core);
            let (main, pin) = (main.clone(), self.pins.shard(core));
            let name = format!("janus-shard-{core}");
            self.start(name.clone(), core, move || {
                pin::pin(pin);
                // The other cores must not wait for one that panics.
                let run = AssertUnwindSafe(|| seed.run(move || main()));
                catch_unwind(run).unwrap_or_else(|_| Err(panicked(&name)))
            })
        };
        seeds.into_iter().filter_map(start).collect()
    }
}

fn panicked(name: &str) -> BoxError {
    format!("{name} panicked; its message is on stderr").into()
}
