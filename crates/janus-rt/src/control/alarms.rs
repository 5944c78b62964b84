//! Warns of losses: compares their counters from time to time, on the control thread, so that no packet pays for it. The first loss of a
//! kind is reported at once; later ones are added up and reported at most every [`PAUSE`]. Only a number is kept for each kind and core.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use super::mailbox::ControlMailbox;
use super::rests;
use crate::admission::Ingress;
use crate::losses::{Kind, Losses, ShortageReport};
use crate::task::blocking::Blocking;
use crate::warning::{Warning, Warnings};

/// Least time between two warnings of one kind.
const PAUSE: Duration = Duration::from_secs(10);
/// Interval at which counters are compared whose owners do not ring.
const LOOK: Duration = Duration::from_secs(1);
/// Interval while all cores sleep and the device counts losses of its own: one may lose frames while no core wakes.
const LOOK_ASLEEP: Duration = Duration::from_secs(60);

/// Warns of the losses of one runtime.
pub(crate) struct Alarms {
    mailbox: Arc<ControlMailbox>,
    ingress: Arc<Ingress>,
    blocking: Arc<Blocking>,
    warnings: Arc<Warnings>,
    next: Instant,
    /// State of the cores when the counters were read last.
    cores: rests::Seen,
    seen: Seen,
    untold: [Untold; Kind::ALL.len()],
}

/// Counters as they were at the last look.
struct Seen {
    cores: Vec<Losses>,
    shared: Losses,
}

/// Losses of one kind that no warning has reported yet.
#[derive(Clone, Copy, Default)]
struct Untold {
    count: u64,
    /// The core that lost all of them, `Some(None)` where it was not one core; `None`: there are no losses yet.
    core: Option<Option<usize>>,
    told: Option<Instant>,
}

impl Untold {
    fn add(&mut self, count: u64, core: Option<usize>) {
        if count == 0 {
            return;
        }
        self.count += count;
        let before = self.core.unwrap_or(core);
        self.core = Some(before.filter(|_| before == core));
    }

    fn is_quiet(&self, now: Instant) -> bool {
        let since = |told| now.saturating_duration_since(told);
        self.told.is_some_and(|told| since(told) < PAUSE)
    }

    /// Takes the number to report, and the core if there was just one, when a warning is due.
    fn take(&mut self, now: Instant) -> Option<(u64, Option<usize>)> {
        if self.count == 0 || self.is_quiet(now) {
            return None;
        }
        let Untold { count, core, .. } = *self;
        *self = Untold {
            told: Some(now),
            ..Untold::default()
        };
        Some((count, core.flatten()))
    }
}

impl Alarms {
    pub(crate) fn new(
        mailbox: Arc<ControlMailbox>,
        ingress: Arc<Ingress>,
        blocking: Arc<Blocking>,
        warnings: Arc<Warnings>,
    ) -> Alarms {
        let cores = vec![Losses::default(); mailbox.shards()];
        Alarms {
            mailbox,
            ingress,
            blocking,
            warnings,
            next: Instant::now(),
            cores: rests::Seen::default(),
            seen: Seen {
                cores,
                shared: Losses::default(),
            },
            untold: Default::default(),
        }
    }

    /// Returns the time until the next look, unless somebody rings.
    pub(crate) fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Begins to doze if nothing can have been lost since the last look, and all of that is told. Returns the time until the next look
    /// then; `None` inside: there is none before somebody rings.
    pub(crate) fn doze(&self) -> Option<Option<Duration>> {
        let told = self.untold.iter().all(|untold| untold.count == 0);
        let dozes = told && self.mailbox.rests().doze(&self.cores);
        dozes.then(|| self.ingress.device.as_ref().map(|_| LOOK_ASLEEP))
    }

    /// Looks, if it is time for it or somebody rang for it.
    pub(crate) fn look(&mut self) {
        let now = Instant::now();
        if self.mailbox.takes_losses() || now >= self.next {
            self.look_at(now);
            self.next = now + LOOK;
        }
    }

    /// Looks for the last time: losses not reported yet are reported now.
    pub(crate) fn look_at_end(&mut self) {
        self.look_at(Instant::now());
    }

    fn look_at(&mut self, now: Instant) {
        self.mailbox.rests().note(&mut self.cores);
        // Before the counters are read: a core that changes one later and finds its kind quiet is counted now or at the next look.
        self.set_quiet(now);
        let neighbor = self.read_cores();
        let shared = self.shared();
        for kind in Kind::ALL {
            let (seen, found) = (self.seen.shared.get(kind), shared.get(kind));
            self.untold[kind as usize].add(found.saturating_sub(seen), None);
        }
        self.seen.shared = shared;
        for kind in Kind::ALL {
            if let Some((count, core)) = self.untold[kind as usize].take(now) {
                let warning = self.warning(kind, count, core, neighbor);
                self.warnings.tell(&warning);
            }
        }
        self.set_quiet(now);
    }

    /// Adds what the cores lost since the last look. Returns the neighbor that did not answer one of them.
    fn read_cores(&mut self) -> Option<IpAddr> {
        let mut neighbor = None;
        for (core, seen) in self.seen.cores.iter_mut().enumerate() {
            let found = self.mailbox.losses(core);
            for kind in Kind::ALL {
                // A core that has fallen begins again at zero.
                let lost = found.get(kind).saturating_sub(seen.get(kind));
                self.untold[kind as usize].add(lost, Some(core));
            }
            if found.get(Kind::Neighbors) != seen.get(Kind::Neighbors) || neighbor.is_none() {
                neighbor = found.neighbor.or(neighbor);
            }
            *seen = found;
        }
        neighbor
    }

    /// Losses that no core counts alone.
    fn shared(&self) -> Losses {
        let shortages = ShortageReport::new(self.mailbox.shortages(), &self.ingress);
        let device = self.ingress.device_losses();
        let io = &self.ingress.counters;
        let overrun = io
            .iter()
            .map(|io| io.dropped_full.get() + io.dropped_syn_room.get());
        let copies: u64 = io.iter().map(|io| io.dropped_no_buffer.get()).sum();
        Losses::default()
            .with(Kind::Descriptors, shortages.descriptors)
            .with(Kind::PortalFull, shortages.portal_full)
            .with(Kind::Threads, self.blocking.report().threads_refused)
            .with(Kind::Trace, shortages.trace_bursts)
            .with(Kind::Checksums, device.bad_checksum)
            .with(Kind::Buffers, device.no_buffer + copies)
            .with(Kind::Overrun, overrun.sum())
    }

    /// Tells the cores for which kinds they need not ring now.
    fn set_quiet(&self, now: Instant) {
        let quiet = Kind::ALL.into_iter();
        let quiet = quiet.filter(|&kind| self.untold[kind as usize].is_quiet(now));
        let bits = quiet.fold(0, |bits, kind| bits | kind.bit());
        self.mailbox.quiet.store(bits, Ordering::Relaxed);
    }

    fn warning(
        &self,
        kind: Kind,
        count: u64,
        core: Option<usize>,
        neighbor: Option<IpAddr>,
    ) -> Warning {
        match kind {
            Kind::Descriptors => Warning::NoDescriptors {
                count,
                limit: getrlimit(Resource::Nofile).current,
            },
            Kind::PortalFull => Warning::PortalFull { count },
            Kind::Threads => Warning::NoThreads { count },
            Kind::Trace => Warning::TraceGap {
                count,
                error: self.ingress.trace.as_ref().and_then(|trace| trace.error()),
            },
            Kind::Checksums => Warning::BadChecksums { core, count },
            Kind::Buffers => Warning::NoPacketBuffers { core, count },
            Kind::Neighbors => Warning::UnknownNeighbor {
                core,
                count,
                address: neighbor,
            },
            Kind::AcceptQueues => Warning::AcceptQueueFull { core, count },
            Kind::SynFlood => Warning::SynFlood { core, count },
            Kind::Overrun => Warning::CoreOverrun { core, count },
        }
    }
}
