//! Turns of a core, and the threads that take them. A core is a lock and a home: whoever holds the lock may take one. Of the threads that sleep for it one
//! leads, which means that it sleeps on the core's bell and device too; the others are rung when something happened to what they wait for,
//! or when there is no leader any more. A call wakes a core whose leader sleeps, and leaves it awake, as more calls may follow; the guardian
//! sees to it that it sleeps on (`watch`). What a turn is is not known here: `core` says it, and a model of all this, in every order of
//! its threads, is in `tests/rota`.

use std::collections::HashMap;
use std::time::Duration;

use janus_tcp::Instant;

use crate::Result;
use crate::bell::Waker;
use crate::held::Held;
use crate::kernel::Watched;
use crate::sleep::{Sleeper, Slept};
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, yield_now};

/// Stands for a socket that is closed already, whose last bytes are waited for (SO_LINGER): no event names it, so that those who wait look
/// again after each turn.
pub(crate) const CLOSED: i32 = -1;

/// A core's lock.
pub(crate) struct Rota<C> {
    core: Mutex<C>,
    /// How often somebody has been in here: the guardian sees by it whether anybody is.
    entries: AtomicU64,
    /// Bell and device.
    wakes_by: Vec<Waker>,
}

/// A core, to those who take its turns.
pub(crate) trait Turns {
    fn sleepers(&mut self) -> &mut Sleepers;

    /// The time; an error once the core has ended, as in `sleep`.
    fn time(&mut self) -> Result<Instant>;

    /// Takes what has come, serves timers, sends.
    fn take_turn(&mut self);

    /// Sends what calls have left to be sent.
    fn send(&mut self);

    /// From now on it is noted when something happens to these sockets.
    fn watch(&mut self, on: &[i32]);

    /// Those to which something has happened since this was asked last.
    fn happened(&mut self) -> Vec<i32>;

    /// The core sleeps until the next call or turn, which is due when one of what it wakes by is readable or when so much time is up. `None`: there
    /// is something to do already.
    fn sleep(&mut self) -> Result<Option<Option<Duration>>>;

    /// The guardian has taken a turn, as no thread of the program did.
    fn is_left_alone(&mut self) {}

    /// A turn, after which those are rung to whom something has happened.
    fn turn(&mut self) {
        self.take_turn();
        self.tell();
    }

    /// Rings those who wait for what has happened.
    fn tell(&mut self) {
        if self.sleepers().is_nobody() {
            return;
        }
        for socket in self.happened().into_iter().chain([CLOSED]) {
            self.sleepers().happened(socket);
        }
    }

    /// At the end of a call, if somebody sleeps.
    #[cold]
    fn settle_sleepers(&mut self) {
        self.tell();
        let sleepers = self.sleepers();
        if !sleepers.has_leader() {
            sleepers.find_leader();
        } else if !sleepers.depose_guardian() && !sleepers.owes_rest {
            // The call has woken the core, and its leader sleeps. Whoever calls takes its turns; when no thread does any more, the guardian
            // lets it sleep too.
            sleepers.owes_rest = true;
            sleepers.stir_guardian();
        }
    }

    /// The core sleeps on for its leader, if it was woken; he is called if there is something to do, or sooner than he knows.
    fn rest(&mut self) {
        if !std::mem::take(&mut self.sleepers().owes_rest) {
            return;
        }
        self.turn();
        let (Ok(slept), Ok(now)) = (self.sleep(), self.time()) else {
            return;
        };
        let until = self.sleepers().leader_until;
        let sooner = match (slept, until) {
            (None, _) => true,
            (Some(Some(limit)), Some(until)) => now + limit < until,
            (Some(limit), _) => limit.is_some(),
        };
        if sooner {
            self.sleepers().call_leader();
        }
    }

    /// A thread is about to sleep until something happens to one of `on`: whether it leads, and how long it is to sleep. `None`: there is
    /// something to do first.
    fn lie_down(
        &mut self,
        me: &Arc<Sleeper>,
        on: &[i32],
        until: Option<Instant>,
    ) -> Result<Option<(bool, Option<Duration>)>> {
        let now = self.time()?;
        self.watch(on);
        self.sleepers().wait(me, on);
        me.lie_down();
        let limit = until.map(|until| until.saturating_since(now));
        if self.sleepers().is_led() {
            // The tries have woken the core.
            self.sleepers().owes_rest = true;
            self.rest();
            return Ok(Some((false, limit)));
        }
        // A try leaves its connection to be asked whether it has something to send, and the core does not sleep before that.
        self.send();
        self.tell();
        let slept = self.sleep();
        let Ok(Some(turn_in)) = slept else {
            self.rise(me, on, false);
            return slept.map(|_| None);
        };
        let sleepers = self.sleepers();
        sleepers.lead(me.clone());
        sleepers.leader_until = turn_in.map(|turn_in| now + turn_in);
        let limit = [limit, turn_in].into_iter().flatten().min();
        Ok(Some((true, limit)))
    }

    /// It is awake.
    fn rise(&mut self, me: &Arc<Sleeper>, on: &[i32], interrupted: bool) {
        me.rise(interrupted);
        let sleepers = self.sleepers();
        sleepers.leave(me, on);
        if sleepers.resign(me) {
            self.turn();
            self.sleepers().stir_guardian();
        }
    }
}

impl<C: Turns> Rota<C> {
    pub(crate) fn new(core: C, wakes_by: Vec<Waker>) -> Rota<C> {
        Rota {
            core: Mutex::new(core),
            entries: AtomicU64::new(0),
            wakes_by,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, C> {
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        // Only who has the lock writes.
        let entries = self.entries.load(Ordering::Relaxed);
        self.entries.store(entries + 1, Ordering::Relaxed);
        core
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn wakes_by(&self) -> &[Waker] {
        &self.wakes_by
    }

    /// Sleeps until something may have happened to one of `on`, or one of `kernel` has something, or it is `until`. The lock is given
    /// back meanwhile.
    pub(crate) fn sleep<'a>(
        &'a self,
        mut core: MutexGuard<'a, C>,
        on: &[i32],
        kernel: &mut [Watched],
        until: Option<Instant>,
        held: Option<&Held>,
    ) -> Result<(MutexGuard<'a, C>, Slept)> {
        let me = Sleeper::mine()?;
        let Some((leads, limit)) = core.lie_down(&me, on, until)? else {
            core.turn();
            // A thread that goes on trying is not to keep out the one that would end that.
            drop(core);
            yield_now();
            return Ok((self.lock(), Slept::Awake));
        };
        drop(core);
        let also = if leads { &self.wakes_by[..] } else { &[] };
        let slept = me.sleep(also, kernel, limit, held);
        let mut core = self.lock();
        core.rise(&me, on, !matches!(slept, Ok(Slept::Awake)));
        Ok((core, slept?))
    }
}

/// The threads that sleep for a core.
#[derive(Default)]
pub(crate) struct Sleepers {
    /// By the number of the socket or epoll instance that each waits for.
    on: HashMap<i32, Vec<Arc<Sleeper>>>,
    leader: Option<Arc<Sleeper>>,
    /// When the leader, who sleeps, takes a turn by himself. `None`: never.
    leader_until: Option<Instant>,
    /// The leader sleeps and the core does not.
    owes_rest: bool,
    /// Leads while no thread of the program does.
    guardian: Option<Arc<Sleeper>>,
}

impl Sleepers {
    pub(crate) fn has_guardian(&mut self, guardian: Arc<Sleeper>) {
        self.guardian = Some(guardian);
    }

    /// The guardian is to end, and is called for that.
    pub(crate) fn let_guardian_go(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            self.resign(&guardian);
            guardian.ring();
        }
    }

    pub(crate) fn is_guarded(&self) -> bool {
        self.guardian.is_some()
    }

    /// Whether a thread of the program leads.
    pub(crate) fn is_led(&self) -> bool {
        self.leader.is_some() && !self.guardian_leads()
    }

    fn guardian_leads(&self) -> bool {
        match (&self.leader, &self.guardian) {
            (Some(leader), Some(guardian)) => Arc::ptr_eq(leader, guardian),
            _ => false,
        }
    }

    /// `who` leads from now on, in the guardian's place if that did. The core sleeps.
    pub(crate) fn lead(&mut self, who: Arc<Sleeper>) {
        self.depose_guardian();
        self.leader = Some(who);
        self.leader_until = None;
        self.owes_rest = false;
    }

    /// A thread is in a call: the guardian need not lead, if it does. Whether it did.
    fn depose_guardian(&mut self) -> bool {
        let led = self.guardian_leads();
        if led {
            self.call_leader();
            self.leader = None;
        }
        led
    }

    /// A thread has led, and is awake: from now on it may be long until the next turn.
    fn stir_guardian(&self) {
        if let Some(guardian) = &self.guardian {
            guardian.ring();
        }
    }

    /// `who` leads no more. Whether it did.
    pub(crate) fn resign(&mut self, who: &Arc<Sleeper>) -> bool {
        let did = self.leader.as_ref().is_some_and(|it| Arc::ptr_eq(it, who));
        if did {
            self.leader = None;
            self.owes_rest = false;
        }
        did
    }

    /// Wakes the leader: a turn is due sooner than it knows.
    fn call_leader(&self) {
        if let Some(leader) = &self.leader {
            leader.ring();
        }
    }

    /// The core has ended: all that sleep for it look.
    pub(crate) fn wake_all(&self) {
        self.call_leader();
        self.on.values().flatten().for_each(|who| who.ring());
    }

    fn wait(&mut self, who: &Arc<Sleeper>, on: &[i32]) {
        for socket in on {
            self.on.entry(*socket).or_default().push(who.clone());
        }
    }

    fn leave(&mut self, who: &Arc<Sleeper>, on: &[i32]) {
        for socket in on {
            if let Some(all) = self.on.get_mut(socket) {
                all.retain(|it| !Arc::ptr_eq(it, who));
                if all.is_empty() {
                    self.on.remove(socket);
                }
            }
        }
    }

    /// Something happened to a socket. All that wait for it look: one of them may take it, and the others sleep again.
    fn happened(&mut self, socket: i32) {
        for who in self.on.get(&socket).into_iter().flatten() {
            who.ring();
        }
    }

    /// One of those who sleep is to lead.
    fn find_leader(&self) {
        if let Some(who) = self.on.values().flatten().next() {
            who.ring();
        }
    }

    fn has_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// Whether there is neither a leader nor anybody who waits for something.
    pub(crate) fn is_nobody(&self) -> bool {
        self.on.is_empty() && self.leader.is_none()
    }
}
