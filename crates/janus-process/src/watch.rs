//! The guardian's watch: it takes the core's turns while no other thread does, so that a program that computes acknowledges what it is sent,
//! and retransmits. It delivers nothing to the program. While calls come often, or a thread sleeps for the core, it only looks whether
//! they still do, ever more rarely.

use std::time::Duration;

use crate::rota::{Rota, Turns};
use crate::sleep::Sleeper;
use crate::sync::{Arc, MutexGuard, pause};

/// Time between two looks: at first, and at most.
const LOOK_MIN: Duration = Duration::from_micros(200);
const LOOK_MAX: Duration = Duration::from_millis(1);

impl<C: Turns> Rota<C> {
    /// Watches until the guardian is let go. After so many looks in a row at which a thread slept for the core and none was in a call, it does
    /// not look any more until one has slept.
    pub(crate) fn watch(&self, me: &Arc<Sleeper>, quiet_looks: u32) {
        let (mut seen, mut look, mut quiet) = (0, LOOK_MIN, 0);
        loop {
            pause(look);
            let entries = self.entries();
            if entries != seen {
                (seen, look, quiet) = (entries, (2 * look).min(LOOK_MAX), 0);
                continue;
            }
            let mut core = self.lock();
            if !core.sleepers().is_guarded() {
                return;
            }
            core.rest();
            if !core.sleepers().is_led() {
                look = LOOK_MIN;
                self.lead(core, me);
            } else if quiet + 1 < quiet_looks {
                (look, quiet) = (LOOK_MAX, quiet + 1);
            } else {
                (look, quiet) = (LOOK_MIN, 0);
                self.sleep_deeply(core, me);
            }
            seen = self.entries();
        }
    }

    /// Until a thread that has slept for the core is awake.
    fn sleep_deeply(&self, core: MutexGuard<'_, C>, me: &Sleeper) {
        me.lie_down();
        drop(core);
        let _whatever_ended_it = me.sleep(&[], &mut [], None, None);
        let _core = self.lock();
        me.rise(false);
    }

    /// Takes the turns until a thread of the program does, or is in a call.
    fn lead(&self, mut core: MutexGuard<'_, C>, me: &Arc<Sleeper>) {
        core.turn();
        let Ok(Some(limit)) = core.sleep() else {
            return;
        };
        core.sleepers().lead(me.clone());
        me.lie_down();
        drop(core);
        let _whatever_ended_it = me.sleep(self.wakes_by(), &mut [], limit, None);
        let mut core = self.lock();
        me.rise(false);
        if core.sleepers().resign(me) {
            core.turn();
            core.is_left_alone();
        }
    }
}
