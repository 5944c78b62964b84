//! The ways between the cores: bells, inboxes, rings of frames, and the cores that poll the device.

use std::io;
use std::sync::Arc;

use janus_io::mpsc::{self, Receiver};
use janus_io::park::{Parker, Unparker};
use janus_io::steer::Steerer;
use janus_io::{IoCore, Port, Queue, RING_DEPTH, combined, split};
use janus_mem::{Depot, Frame};

use super::seed::device_pool;
use crate::admission::IoCounters;
use crate::clock::{Clock, Polling};
use crate::config::{Placement, Settings};
use crate::control::mailbox::ControlMailbox;
use crate::control::rests::PollingRest;
use crate::inbox::{Inbox, InboxReader};
use crate::shard::moves::{ARRIVALS, Arrival};
use crate::shard::{Door, FORWARDS};

/// Ways of all cores.
pub(super) struct Fabric {
    pub(super) shards: Vec<Berth>,
    pub(super) io_cores: Vec<IoCore>,
    /// Bells of the shards.
    pub(super) bells: Vec<Unparker>,
    /// Ways of frames to each shard from its neighbors.
    pub(super) doors: Vec<Door>,
}

/// Ends of the ways that one shard has.
pub(super) struct Berth {
    pub(super) parker: Parker,
    /// Made before the thread, so that what is sent to the core meanwhile waits.
    pub(super) reader: InboxReader,
    pub(super) port: Port,
    pub(super) forwarded: Receiver<Frame>,
    pub(super) arrivals: Receiver<Arrival>,
}

impl Fabric {
    pub(super) fn new(
        settings: &Settings,
        queues: Vec<Box<dyn Queue>>,
        steerers: Vec<Steerer>,
        depot: &Arc<Depot>,
    ) -> io::Result<Fabric> {
        let cores = 0..settings.cores.count;
        let parkers = cores.map(|_| Parker::new());
        let parkers = parkers.collect::<io::Result<Vec<_>>>()?;
        let bells: Vec<_> = parkers.iter().map(Parker::unparker).collect();
        let (mut io_cores, ports): (Vec<IoCore>, Vec<Port>) = match settings.placement() {
            Placement::Combined => (Vec::new(), combined(queues, steerers, &bells, RING_DEPTH)),
            Placement::Split { .. } => {
                let pools = queues.iter().map(|_| device_pool(depot)).collect();
                split(queues, pools, steerers, &bells, RING_DEPTH)?
            }
        };
        for core in &mut io_cores {
            core.set_batching(settings.batch);
        }
        let mut doors = Vec::with_capacity(bells.len());
        let shards = parkers.into_iter().zip(ports).zip(&bells);
        let shards = shards.map(|((parker, mut port), bell)| {
            port.set_batching(settings.batch);
            let (frames, forwarded) = mpsc::inbox(FORWARDS);
            let (arrivals_to, arrivals) = mpsc::inbox(ARRIVALS);
            let bell = bell.clone();
            doors.push(Door {
                frames,
                arrivals: arrivals_to,
                bell: bell.clone(),
            });
            Berth {
                parker,
                reader: InboxReader::new(move || _ = bell.wake()),
                port,
                forwarded,
                arrivals,
            }
        });
        Ok(Fabric {
            shards: shards.collect(),
            io_cores,
            bells,
            doors,
        })
    }

    pub(super) fn inboxes(&self) -> Vec<Arc<Inbox>> {
        let inboxes = self.shards.iter().map(|shard| shard.reader.inbox().clone());
        inboxes.collect()
    }

    /// Returns the counters of all cores that poll a queue.
    pub(super) fn counters(&self) -> Vec<Arc<IoCounters>> {
        let io_cores = self.io_cores.iter().map(IoCore::counters);
        let ports = self.shards.iter().map(|shard| &shard.port);
        let counters = io_cores.chain(ports.filter_map(Port::counters));
        counters.cloned().collect()
    }

    /// Returns the bells of polling cores and shards.
    pub(super) fn all_bells(&self) -> Vec<Unparker> {
        let polling = self.io_cores.iter().map(IoCore::unparker);
        polling.chain(self.bells.iter().cloned()).collect()
    }

    /// Lets a clock that jumps do so only while all threads sleep, in the order of their numbers, and has the control thread told of the
    /// I/O cores' sleep.
    pub(super) fn govern(&mut self, clock: Clock, control: &Parker, mailbox: &Arc<ControlMailbox>) {
        let clock = clock.jumps();
        if let Some(clock) = clock {
            let polling = self.io_cores.iter().map(IoCore::unparker);
            let bells = self.bells.iter().cloned().chain(polling);
            clock.governs(bells.chain([control.unparker()]));
        }
        for (number, core) in (self.bells.len()..).zip(&mut self.io_cores) {
            core.set_sleep_observer(Box::new(PollingRest {
                mailbox: mailbox.clone(),
                thread: number,
                clock: clock.map(|clock| Polling { clock, number }),
            }));
        }
    }
}
