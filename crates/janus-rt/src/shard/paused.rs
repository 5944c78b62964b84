//! How a core sleeps under a clock that jumps: no time is waited for, it comes.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::{Shard, news};
use crate::clock::{Paused, Verdict};

/// While a blocking call holds the clock no bell rings for its end.
const HELD: Duration = Duration::from_millis(1);

impl Shard {
    pub(super) fn sleep_paused(&mut self, clock: &'static Paused) -> io::Result<()> {
        if self.may_sleep().is_none() {
            return Ok(());
        }
        let deadline = self.deadline();
        let Shard {
            ctx,
            port,
            forwarded,
            reader,
            work,
            parker,
            ..
        } = self;
        let core = usize::from(ctx.core);
        let fd = work.wait_fd.as_ref().map(AsFd::as_fd);
        let held = ctx.shared.blocking.is_busy().then_some(HELD);
        let has_news = || {
            news(ctx, port, forwarded, reader, work.phase) || {
                let holds = held.is_some() || ctx.shared.blocking.is_busy();
                !holds && clock.falls_asleep(core, deadline, fd) == Verdict::Due
            }
        };
        parker.park(fd.as_slice(), held, has_news)?;
        clock.wakes(core);
        Ok(())
    }
}
