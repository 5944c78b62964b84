//! Samples that a shard leaves for the balancer's policy: a few numbers on a line of its own, now and then, and nothing at
//! all where weights are fixed.

use std::time::Duration;

use janus_csb::policy::ServiceWindow;
use janus_tcp::Instant;

use super::Shard;

/// Turns in which something moved between two entries.
const EVERY: u32 = 32;

/// What is gathered between two entries.
pub(crate) struct Sampling {
    turns: u32,
    packets: u64,
    busy: Duration,
    /// When the turn before this one began, if anything moved in it.
    began: Option<Instant>,
    opened: u64,
    service: ServiceWindow,
}

impl Sampling {
    pub(crate) fn new() -> Sampling {
        Sampling {
            turns: 0,
            packets: 0,
            busy: Duration::ZERO,
            began: None,
            opened: 0,
            service: ServiceWindow::new(),
        }
    }

    pub(super) fn packets(&mut self, count: usize) {
        self.packets += count as u64;
    }
}

impl Shard {
    /// After a turn that began at `now`.
    pub(super) fn sample(&mut self, now: Instant, worked: bool) {
        let Some(sampling) = &mut self.work.sampling else {
            return;
        };
        // A turn lasts until the next begins.
        if let Some(began) = sampling.began.take() {
            sampling.busy += now.saturating_since(began);
        }
        if !worked {
            return;
        }
        sampling.began = Some(now);
        sampling.turns += 1;
        if sampling.turns == EVERY {
            self.enter_sample();
        }
    }

    /// The thread is about to sleep, which is no work.
    pub(crate) fn sample_before_sleep(&mut self) {
        if let Some(sampling) = &mut self.work.sampling {
            sampling.began = None;
            if sampling.turns > 0 {
                self.enter_sample();
            }
        }
    }

    fn enter_sample(&mut self) {
        let Some(sampling) = &mut self.work.sampling else {
            return;
        };
        let ctx = &*self.ctx;
        let board = ctx.shared.mailbox.board(ctx.core);
        let stack = ctx.stack.borrow();
        let counted = stack.counters().accepted + stack.counters().connected;
        let opened = counted - std::mem::replace(&mut sampling.opened, counted);
        let busy_ns = std::mem::take(&mut sampling.busy).as_nanos() as u64;
        if let Some(each_ns) = busy_ns.checked_div(opened) {
            // The window is of connections: those of one entry count alike.
            for _ in 0..opened.min(ServiceWindow::LEN as u64) {
                sampling.service.record(each_ns);
            }
            board.service_ns.set(sampling.service.median().unwrap_or(0));
        }
        board.packets.add(std::mem::take(&mut sampling.packets));
        board.busy_ns.add(busy_ns);
        board.opened.add(opened);
        board.flows.set(stack.flows_held() as u64);
        board.queue.set(self.port.depth() as u64);
        sampling.turns = 0;
    }
}
