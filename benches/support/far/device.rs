//! The far end as a packet device, for servers that poll a queue: the runtime. Waking a server that sleeps is the only
//! thing added to `far.rs`.

use super::packet::Ends;
use super::plan::Plan;
use super::{App, Far};
use janus_io::{Backend, Batch, Caps, Queue};
use janus_mem::{Frame, Pool};
use janus_wire::Link;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;

/// A device with a load generator at the other end.
pub struct Device {
    pub ends: Ends,
    pub app: App,
    pub plan: Arc<Plan>,
    /// Connections that will be held: room for them is made when the device is opened.
    pub held: u32,
}

struct FarQueue {
    far: Far,
    caps: Caps,
    wake: OwnedFd,
}

impl Backend for Device {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        if queues != self.plan.ends.len() {
            return Err(io::Error::other(
                "the plan must have as many ends as there are queues",
            ));
        }
        (0..queues)
            .map(|index| Ok(Box::new(self.queue(index)?) as Box<dyn Queue>))
            .collect()
    }
}

impl Device {
    fn queue(&self, index: usize) -> io::Result<FarQueue> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let bell = wake.try_clone()?;
        self.plan.on_change(Box::new(move || {
            // Full means rung already.
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        }));
        let caps = Caps {
            link: Link::Ethernet,
            mtu: 1500,
            mac: Some(self.ends.server_mac),
            tx_checksum: false,
            rx_checksum: false,
            tso: false,
            gro: false,
            name: "load generator".to_owned(),
        };
        // Any queue's connections may come to rest at any other's far end.
        let far = Far::new(
            self.ends.clone(),
            self.app.clone(),
            Arc::clone(&self.plan),
            index,
            self.held,
        );
        Ok(FarQueue { far, caps, wake })
    }
}

impl Queue for FarQueue {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        let room = out.room();
        self.far.give(pool, room, |frame| {
            let refused = out.push(frame);
            debug_assert!(refused.is_ok(), "no more is given than there is room for");
        });
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        if frames.is_empty() {
            return;
        }
        let lent = frames.iter().filter(|f| f.is_lent()).count();
        if lent > done.room() {
            return;
        }
        self.far.take(frames.iter().map(Frame::data));
        for frame in frames.pull() {
            if frame.is_lent() {
                let _ = done.push(frame);
            } else {
                pool.free(frame.buf);
            }
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.as_fd())
    }

    fn arm(&mut self) -> bool {
        // The plan is changed before the bell is rung: heard here, the change is seen below.
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut rung);
        !self.far.has_work()
    }
}
