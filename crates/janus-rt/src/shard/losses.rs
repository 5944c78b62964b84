//! Counters of losses that a shard enters for the control thread, which warns of them: before each sleep, and now and then while it
//! is busy.

use std::time::Duration;

use janus_tcp::{Instant, SynCookies};

use super::Shard;
use crate::losses::{Kind, Losses};

/// Time between two entries of a core that does not sleep.
const EVERY: Duration = Duration::from_millis(100);

/// Entries of one shard.
#[derive(Default)]
pub(crate) struct Entries {
    last: Losses,
    next: Instant,
}

impl Shard {
    /// Enters the losses in the turn that began at `now`, if it is time.
    #[inline]
    pub(super) fn enter_losses_at(&mut self, now: Instant) {
        if now >= self.work.entries.next {
            self.work.entries.next = now + EVERY;
            self.enter_losses();
        }
    }

    /// Enters what was lost so far; rings if there is more of a kind than the control thread has told of lately.
    #[cold]
    pub(super) fn enter_losses(&mut self) {
        let ctx = &*self.ctx;
        let found = losses(&ctx.stack.borrow(), &ctx.forwarder.borrow().counters);
        let entries = &mut self.work.entries;
        if found != entries.last {
            ctx.shared
                .mailbox
                .enter_losses(ctx.core, &found, found.changes(&entries.last));
            entries.last = found;
        }
    }
}

fn losses(stack: &janus_tcp::Stack, forwards: &super::ForwardCounters) -> Losses {
    let tcp = stack.counters();
    // Where every SYN is answered with one, a cookie is no sign of a flood.
    let cookies = match stack.config().syn_cookies {
        SynCookies::Always => 0,
        _ => tcp.cookies_sent,
    };
    let mut found = Losses::default()
        .with(Kind::Checksums, tcp.dropped_checksum)
        .with(
            Kind::Buffers,
            tcp.dropped_no_buffer + tcp.starved + tcp.dropped_pressure,
        )
        .with(Kind::Neighbors, tcp.dropped_no_neighbor)
        .with(Kind::AcceptQueues, tcp.dropped_accept_full)
        .with(Kind::SynFlood, cookies + tcp.half_open_evicted)
        .with(
            Kind::Overrun,
            forwards.dropped_full + forwards.dropped_syn_room,
        );
    found.neighbor = stack.unanswered_neighbor();
    found
}
