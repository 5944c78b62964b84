//! When a wish is worth an update: not for a moment's strain, not again before the last update could show what it did,
//! and ever more seldom when updates undo each other. Shares and points are no business of this file.
//!
//! Three times are kept apart. A strain must last to be believed (`confirm`). After an update nothing happens for a
//! while (`hold`), which doubles when an update goes back on the last one. And the next correction waits until the last
//! one has had its effect: as many flows have begun since as there are, or the strain has gone down, or `patience` is over;
//! patience that was in vain is doubled too.

use core::time::Duration;

use super::plan::Shares;

#[cfg(test)]
mod tests;

/// Patience of the loop.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// How long there must be strain.
    pub confirm: Duration,
    /// The least time between the end of an update and the next.
    pub hold: Duration,
    /// The most that the hold becomes when updates undo each other.
    pub hold_max: Duration,
    /// How long an update may be without effect before the next one.
    pub patience: Duration,
    /// For how long an update is remembered that another goes back on, and for how long none must go back on another
    /// until the hold is halved again. Loads that go to and fro more slowly than this are followed.
    pub memory: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            confirm: Duration::from_secs(2),
            hold: Duration::from_secs(2),
            hold_max: Duration::from_secs(300),
            patience: Duration::from_secs(30),
            memory: Duration::from_secs(600),
        }
    }
}

/// Verdict of the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// There is no strain.
    Calm,
    /// There is, not for long enough.
    Unconfirmed,
    /// There is, but the last update has not had its effect.
    Holding,
    /// There is, and something should be done.
    Act,
}

/// The last update.
#[derive(Clone, Debug)]
struct Last {
    at: Duration,
    strain: f64,
    /// Flows begun since.
    opened: u64,
    /// Change of each shard's share by that update, positive for a gain.
    change: Shares,
}

#[derive(Clone, Debug)]
pub(super) struct Gate {
    pace: Pace,
    strained_since: Option<Duration>,
    last: Option<Last>,
    hold: Duration,
    /// The part of a wish that is carried out: halved when updates undo each other.
    gain: f64,
    /// Doublings of patience.
    in_vain: u32,
    /// Nothing before this.
    not_before: Duration,
    unforgiven_since: Duration,
    reversals: u64,
}

impl Gate {
    const GAIN_LEAST: f64 = 1.0 / 8.0;
    /// Flows that have begun, as a part of those there are, when a ring has had its effect. With lives of all lengths two
    /// thirds are new then; at half as many, five updates did what three do.
    const TURNED_OVER: f64 = 1.0;
    const DOUBLINGS_MAX: u32 = 5;

    pub(super) fn new(pace: Pace) -> Gate {
        Gate {
            pace,
            strained_since: None,
            last: None,
            hold: pace.hold,
            gain: 1.0,
            in_vain: 0,
            not_before: Duration::ZERO,
            unforgiven_since: Duration::ZERO,
            reversals: 0,
        }
    }

    pub(super) fn gain(&self) -> f64 {
        self.gain
    }

    pub(super) fn reversals(&self) -> u64 {
        self.reversals
    }

    /// The part of the flows that has begun since the last update.
    pub(super) fn turned_over(&self, flows: u64) -> f64 {
        let opened = self.last.as_ref().map_or(0, |last| last.opened);
        (opened as f64 / flows.max(1) as f64).min(1.0)
    }

    /// Whether enough time has passed since the last update for one that must be, whatever its effect was.
    pub(super) fn is_open(&self, at: Duration) -> bool {
        let held = self
            .last
            .as_ref()
            .map_or(Duration::ZERO, |last| last.at + self.pace.hold);
        at >= held.max(self.not_before)
    }

    /// One round: `opened` flows have begun since the last, and `flows` live.
    pub(super) fn judge(&mut self, at: Duration, strain: f64, opened: u64, flows: u64) -> Verdict {
        if let Some(last) = &mut self.last {
            last.opened += opened;
        }
        self.forgive(at);
        if strain < 1.0 || strain.is_nan() {
            self.strained_since = None;
            return Verdict::Calm;
        }
        let since = *self.strained_since.get_or_insert(at);
        if at.saturating_sub(since) < self.pace.confirm {
            return Verdict::Unconfirmed;
        }
        if at < self.not_before || !self.has_had_effect(at, strain, flows) {
            return Verdict::Holding;
        }
        Verdict::Act
    }

    fn has_had_effect(&self, at: Duration, strain: f64, flows: u64) -> bool {
        let Some(last) = &self.last else {
            return true;
        };
        let age = at.saturating_sub(last.at);
        let patience = self.pace.patience * (1 << self.in_vain);
        let showed = self.turned_over(flows) >= Gate::TURNED_OVER || strain <= last.strain * 0.75;
        age >= self.hold && (showed || age >= patience)
    }

    /// When no update has gone back on another for long, the hold is halved again.
    fn forgive(&mut self, at: Duration) {
        if at.saturating_sub(self.unforgiven_since) >= self.pace.memory {
            self.unforgiven_since = at;
            self.hold = (self.hold / 2).max(self.pace.hold);
            self.gain = (self.gain * 2.0).min(1.0);
        }
    }

    /// An update was begun that changes shares by `change`.
    pub(super) fn acted(&mut self, at: Duration, strain: f64, flows: u64, change: Shares) {
        if let Some(last) = &self.last {
            let showed =
                self.turned_over(flows) >= Gate::TURNED_OVER || strain <= last.strain * 0.75;
            self.in_vain = if showed {
                0
            } else {
                (self.in_vain + 1).min(Gate::DOUBLINGS_MAX)
            };
            let recent = at.saturating_sub(last.at) < self.pace.memory;
            if recent && change.goes_against(&last.change) {
                self.reversals += 1;
                self.unforgiven_since = at;
                self.hold = (self.hold * 2).min(self.pace.hold_max);
                self.gain = (self.gain / 2.0).max(Gate::GAIN_LEAST);
            }
        }
        self.strained_since = None;
        self.last = Some(Last {
            at,
            strain,
            opened: 0,
            change,
        });
    }

    /// The update is over: its time counts from here.
    pub(super) fn finished(&mut self, at: Duration) {
        if let Some(last) = &mut self.last {
            last.at = at;
            last.opened = 0;
        }
    }

    /// Nothing came of it: not again before a hold has passed.
    pub(super) fn rest(&mut self, at: Duration) {
        self.not_before = at + self.hold;
    }
}
