//! Call events, and the one call that may be waiting while other events go by.

use super::calls::{self, Attempt, Course, Returned};
use super::{GRACE_MICROS, Runner, Trouble};
use crate::script::{Call, Event, When, seconds};

/// A call that has not returned yet.
#[derive(Clone, Debug)]
pub(super) struct Pending<'s> {
    line: u32,
    call: &'s Call,
    /// When it must return, in microseconds since the start.
    due: u64,
    started: u64,
    course: Course,
}

impl Pending<'_> {
    /// When it gives up, in microseconds since the start.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.course.deadline
    }
}

impl<'s> Runner<'s> {
    pub(super) fn call(&mut self, event: &Event, call: &'s Call) -> Result<(), Trouble> {
        let mut pending = Pending {
            line: event.line,
            call,
            due: 0,
            started: self.world.micros(),
            course: Course::default(),
        };
        if let Some(end) = call.end {
            let relative = matches!(event.when, When::Relative(_));
            let base = if let When::Relative(after) = event.when {
                self.world.micros() - after.min(self.world.micros())
            } else {
                0
            };
            pending.due = if relative { base + end } else { end };
        }
        let attempt = self
            .attempt(call, &mut pending.course)
            .map_err(|message| Trouble::new(event.line, message))?;
        self.world.settle();
        match attempt {
            Attempt::Returned(returned) => self.call_returned(&pending, returned),
            Attempt::Blocked if call.end.is_some() => {
                self.history.call(
                    self.world.micros(),
                    format!("{}  (waiting)", call.invocation()),
                );
                self.pending = Some(pending);
                Ok(())
            }
            Attempt::Blocked => Err(Trouble::new(
                event.line,
                format!(
                    "{} would block: make the socket nonblocking, or give the call a duration, such as `0...0.2 {}(..)`",
                    call.name, call.name
                ),
            )),
        }
    }

    fn call_returned(&mut self, pending: &Pending<'s>, returned: Returned) -> Result<(), Trouble> {
        let (line, call, now) = (pending.line, pending.call, self.world.micros());
        self.history
            .call(now, format!("{} = {returned}", call.invocation()));
        if let Some(message) =
            calls::mismatch(call, returned).map_err(|message| Trouble::new(line, message))?
        {
            return Err(Trouble::new(line, message));
        }
        if call.end.is_some() {
            let tolerance = self.tolerance_over(pending.due.saturating_sub(pending.started));
            if now.abs_diff(pending.due) > tolerance {
                let message = format!(
                    "{} returned at {}, expected at {}",
                    call.name,
                    seconds(now),
                    seconds(pending.due)
                );
                return Err(Trouble::new(line, message));
            }
        }
        Ok(())
    }

    /// Tries the waiting call again.
    pub(super) fn poll_pending(&mut self) -> Result<(), Trouble> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(());
        };
        let now = self.world.micros();
        pending.course.timed_out = pending.deadline().is_some_and(|at| at <= now);
        let attempt = self.attempt(pending.call, &mut pending.course);
        self.world.settle();
        match attempt.map_err(|message| Trouble::new(pending.line, message))? {
            Attempt::Returned(returned) => self.call_returned(&pending, returned),
            Attempt::Blocked => {
                self.pending = Some(pending);
                Ok(())
            }
        }
    }

    /// One call waits at a time: the next one, and the end, wait for it.
    pub(super) fn finish_pending(&mut self) -> Result<(), Trouble> {
        while let Some(pending) = &self.pending {
            let (line, limit) = (
                pending.line,
                pending.due.max(self.world.micros()) + GRACE_MICROS,
            );
            let name = pending.call.name.clone();
            if !self.step(limit)? {
                return Err(Trouble::new(
                    line,
                    format!("{name} has not returned, at {}", seconds(limit)),
                ));
            }
        }
        Ok(())
    }
}
