//! The control thread: it carries requested changes through the balancer's update protocol, one step at a time, and wakes the threads that
//! have a part in the next step. It sleeps while nothing is requested, and looks at cores that work. A shard that does not answer (blocked in a task) delays an update
//! and nothing else; one that has ended is not waited for.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use janus_csb::policy::{Bounds, Shares, Targets, plan};
use janus_csb::{Balancer, Draft, Phase, Ring, ShardId};
use janus_io::park::{Parker, Unparker};

use super::Control;
use super::alarms::Alarms;
use super::ending::Ending;
use super::mailbox::{ControlMailbox, PortSets, Roles, Wanted};
use super::signals::Signals;
use super::watch::Watch;
use super::watchdog::Watchdog;
use crate::clock::Clock;
use crate::lock::Lock;

/// Delay before an unanswered call is repeated, at first and at most. Every thread rings once its part is done, so this covers only what
/// cannot ring: a refused update that may be accepted later.
const PATIENCE_MIN: Duration = Duration::from_millis(1);
const PATIENCE_MAX: Duration = Duration::from_millis(50);
/// Longest wait for the portal when it closes its doors and brings in the clients already accepted there.
const LETTING_IN_MAX: Duration = Duration::from_secs(2);
/// Delay from then until shards take no more connections: the last clients are accepted by mains, which stop listening once they are told.
const AT_THE_DOOR: Duration = Duration::from_millis(100);

/// Drives the updates of one runtime.
pub(crate) struct Conductor {
    pub(crate) balancer: Arc<Lock<Balancer>>,
    pub(crate) mailbox: Arc<ControlMailbox>,
    pub(crate) control: Arc<Control>,
    pub(crate) ending: Arc<Ending>,
    /// Bells of all shards and I/O cores.
    pub(crate) bells: Vec<Unparker>,
    pub(crate) parker: Parker,
    pub(crate) under_way: Option<PortSets>,
    /// Whether the update under way is to a ring of the policy.
    pub(crate) planned: bool,
    /// When the update under way began, if it is to tell of moves.
    pub(crate) tidies_since: Option<janus_tcp::Instant>,
    pub(crate) watch: Option<Watch>,
    pub(crate) watchdog: Watchdog,
    pub(crate) alarms: Alarms,
    pub(crate) rung_for: Phase,
    pub(crate) signals: Arc<Signals>,
    /// Time that connections may go on when a signal ends the runtime.
    pub(crate) shutdown: Duration,
    /// Time at which the doors count as closed, whatever the portal says; `None` while it serves.
    pub(crate) doors_by: Option<Instant>,
    /// Time at which shards are told that the runtime ends; `None` until the doors are closed.
    pub(crate) closes_at: Option<Instant>,
    pub(crate) clock: Clock,
}

impl Conductor {
    /// Runs until the mailbox says stop.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut patience = PATIENCE_MIN;
        while !self.mailbox.stopping() {
            self.mailbox.read_news();
            self.signals.deliver();
            self.close();
            self.take_rules();
            if self.step() {
                patience = PATIENCE_MIN;
                continue;
            }
            self.look();
            self.watchdog.look();
            self.alarms.look();
            let waits = self.is_busy() || self.wants();
            self.mailbox.set_updates(waits);
            let look = self.watch.as_ref().filter(|_| !waits).map(Watch::wait);
            let closing = self.closes_at.or(self.doors_by);
            let closing = closing.filter(|_| self.ending.serving());
            let closing = closing.map(|at| at.saturating_duration_since(Instant::now()));
            let (guard, alarms) = self.guard_and_alarms();
            let timeout = [waits.then_some(patience), look, guard, closing, alarms];
            let timeout = timeout.into_iter().flatten().min();
            let mailbox = &self.mailbox;
            // An update under way here holds a clock that jumps: cores wait for it.
            let paused = self.clock.jumps().filter(|_| !waits);
            let number = self.bells.len();
            let has_news = || {
                mailbox.has_news() || {
                    let _ = paused.map(|clock| clock.falls_asleep(number, None, None));
                    false
                }
            };
            self.parker.park(&[], timeout, has_news)?;
            mailbox.rests().wakes();
            if let Some(clock) = paused {
                clock.wakes(number);
            }
            patience = (patience * 2).min(PATIENCE_MAX);
            if waits && !self.mailbox.has_news() {
                self.ring();
            }
        }
        self.alarms.look_at_end();
        Ok(())
    }

    /// Returns the times until the next looks of the watchdog and at the losses. While all cores sleep there is nothing to see.
    fn guard_and_alarms(&self) -> (Option<Duration>, Option<Duration>) {
        let dozes = (!self.watchdog.names_one()).then(|| self.alarms.doze());
        match dozes.flatten() {
            Some(alarms) => (None, alarms),
            None => (self.watchdog.wait(), Some(self.alarms.wait())),
        }
    }

    /// Ends the runtime in order when a signal or a handle says so: first outside, then, once the clients at the door are in, inside.
    fn close(&mut self) {
        if let Some(signal) = self.signals.ended_by() {
            let seconds = self.shutdown.as_secs_f32();
            if self.ending.close_doors(self.shutdown) {
                self.control.close_doors();
                eprintln!(
                    "janus: {signal}: no new connections; the others have {seconds} s; again: at once"
                );
            } else {
                eprintln!("janus: {signal}: it ends already; again: at once");
            }
        }
        let now = Instant::now();
        if self.ending.is_closing_doors()
            && *self.doors_by.get_or_insert(now + LETTING_IN_MAX) <= now
        {
            self.ending.doors_closed();
        }
        if self.ending.is_behind_closed_doors()
            && *self.closes_at.get_or_insert(now + AT_THE_DOOR) <= now
        {
            self.ending.close();
        }
    }

    /// Applies settings that were read again.
    fn take_rules(&mut self) {
        let rules = self.mailbox.take_rules();
        if let Some((name, interval)) = rules.watch {
            // A plan under way is carried through, and its outcome reported to no policy.
            self.watch = Watch::new(name, interval, self.mailbox.shards(), self.clock);
        }
        if let Some(limit) = rules.blocked {
            self.watchdog.set_limit(limit);
        }
    }

    /// Asks the policy, where there is one.
    pub(crate) fn look(&mut self) {
        if self.watch.is_none() {
            return;
        }
        let waits = self.is_busy() || self.wants();
        let Some(watch) = &mut self.watch else { return };
        watch.note(&self.watchdog.blocked());
        if waits {
            return;
        }
        let wanted = watch.look(
            &self.mailbox,
            self.balancer.lock().current().newest().ring(),
        );
        if let Some(ring) = wanted
            && !self.mailbox.plan_ring(ring)
        {
            watch.refused();
        }
    }

    /// Makes one step, if one can be made. Never waits.
    pub(crate) fn step(&mut self) -> bool {
        let mut balancer = self.balancer.lock();
        let before = balancer.phase();
        let after = if before == Phase::Idle && self.wants() {
            let wanted = self.mailbox.take();
            self.mailbox.set_updates(true);
            let begun = match wanted.changes() {
                true => balancer.begin(|draft| wanted.enter(draft)),
                false => balancer.tidy(),
            };
            match begun {
                Ok(()) => {
                    self.planned = wanted.planned;
                    self.tidies_since = wanted.tidy.then(|| self.clock.now());
                    self.under_way = Some(wanted.ports);
                }
                Err(_) => {
                    if let Some(watch) = self.watch.as_mut().filter(|_| wanted.planned) {
                        watch.refused();
                    }
                    self.mailbox.put_back(wanted);
                }
            }
            balancer.phase()
        } else {
            balancer.poll()
        };
        if after == Phase::Idle && before != Phase::Idle {
            let planned = std::mem::take(&mut self.planned);
            self.mailbox.finished(*balancer.last(), planned);
            if let Some(since) = self.tidies_since.take() {
                let took = self.clock.now().saturating_since(since);
                self.mailbox.tidied_in(took);
            }
            // Also when its plan gave way to weights that were set meanwhile.
            if let Some(watch) = &mut self.watch {
                watch.finished();
            }
        }
        drop(balancer);
        // All cores act by the new layout once it is published: the walk leads late packets there.
        let published = matches!(after, Phase::Publishing | Phase::Grace(_) | Phase::Idle);
        if published && let Some(ports) = self.under_way.take() {
            self.control.served(&ports);
        }
        if after != self.rung_for {
            self.rung_for = after;
            self.ring();
        }
        after != before
    }

    /// Whether there is something to begin. At the end of the runtime every listener goes, and no core need be told.
    fn wants(&self) -> bool {
        !self.ending.stopping() && !self.mailbox.is_empty()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.balancer.lock().phase() != Phase::Idle
    }

    fn ring(&self) {
        for bell in &self.bells {
            bell.wake();
        }
    }
}

impl Wanted {
    fn enter(&self, draft: &mut Draft) {
        if let Some(ring) = &self.ring {
            draft.set_ring(ring.clone());
        }
        if let Some(weights) = &self.weights
            && let Ok(old) = Ring::from_points(&draft.points())
        {
            draft.set_ring(weighed(&old, weights));
        }
        if let Some(roles) = &self.roles
            && let Ok(old) = Ring::from_points(&draft.points())
        {
            draft.set_ring(cast(&old, roles));
        }
        for (&port, cores) in &self.ports {
            enter_port(draft, port, cores);
        }
    }
}

/// Ring on which drained cores have nothing, those that have a share keep their proportions, and those that are back get a share by their
/// weight.
fn cast(old: &Ring, roles: &Roles) -> Ring {
    let shares = Shares::of(old, None);
    let each = || (0..=u8::MAX).map(ShardId).zip(&roles.weights);
    let drained = |shard: ShardId| roles.drained[shard.index()];
    let staying = each().filter(|&(shard, _)| !drained(shard) && shares[shard] > 0.0);
    let (held, weight) = staying.fold((0.0, 0.0), |(held, sum), (shard, &weight)| {
        (held + shares[shard], sum + f64::from(weight))
    });
    // Where no remaining core has a share, only the weights can decide.
    let per_weight = if weight > 0.0 && held > 0.0 {
        held / weight
    } else {
        1.0
    };
    let mut targets = Targets::default();
    for (shard, &weight) in each() {
        let share = match shares[shard] {
            _ if drained(shard) => 0.0,
            share if share > 0.0 => share,
            _ => f64::from(weight) * per_weight,
        };
        targets.set(shard, share);
    }
    planned(old, &targets)
}

/// Ring on which each core has a share in proportion to its weight, made from `old` with few changes.
fn weighed(old: &Ring, weights: &[u16]) -> Ring {
    let mut targets = Targets::default();
    for (shard, &weight) in (0..=u8::MAX).map(ShardId).zip(weights) {
        targets.set(shard, f64::from(weight));
    }
    planned(old, &targets)
}

fn planned(old: &Ring, targets: &Targets) -> Ring {
    let bounds = Bounds {
        tolerance: 0.01,
        steps: 1 << 14,
        moved: 1.0,
        points: 256,
    };
    plan(old, targets, None, &bounds).map_or_else(|_| old.clone(), |planned| planned.ring().clone())
}

/// Gives `port` to `cores` alone.
pub(crate) fn enter_port(draft: &mut Draft, port: u16, cores: &[u8]) {
    let before = draft.ports().get(port).copied().unwrap_or_default();
    for &core in cores {
        draft.listen(port, ShardId(core));
    }
    for gone in before.iter().filter(|shard| !cores.contains(&shard.0)) {
        draft.unlisten(port, gone);
    }
}
