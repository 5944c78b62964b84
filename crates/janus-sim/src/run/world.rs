//! The stack under test, its sockets and its clock. Time moves only here, from one deadline of the stack to the next,
//! and everything the stack sends is kept with the moment at which it was sent.

use crate::frames;
use crate::script::Settings;
use crate::segment::{self, Damage, Segment};
use janus_mem::{Depot, Growth, MemError};
use janus_posix::Sockets;
use janus_tcp::{Config, Instant, Interface, IpCidr, Secrets, Stack};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Packet buffers of the stack under test.
const BUFFERS: u32 = 4_096;
/// The stack's clock when a script begins; not zero, as no real clock is.
const ORIGIN: Instant = Instant::from_millis(1_000_000);
/// How long an abandoned stack is given to end everything by its own timers. TIME-WAIT and the retransmissions of an
/// orphan are what takes longest.
const AFTERMATH: Duration = Duration::from_secs(7_200);

/// A packet that the stack sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// Microseconds since the start.
    pub(super) at: u64,
    pub(super) segment: Segment,
}

/// A packet that no host should send.
#[derive(Clone, Debug)]
pub(super) struct Unsound {
    pub(super) damage: Damage,
    pub(super) bytes: Vec<u8>,
}

pub(super) struct World {
    pub(super) sockets: Sockets,
    depot: Arc<Depot>,
    now: Instant,
    /// Sent, and not yet looked at.
    outbox: VecDeque<Sent>,
    unsound: Option<Unsound>,
}

impl World {
    pub(super) fn new(settings: &Settings, config: &Config, seed: u64) -> Result<World, MemError> {
        let depot = Depot::new(BUFFERS, &Growth::Inline)?;
        let mut interface = Interface::ip(settings.mtu);
        interface.addresses = vec![IpCidr::new(settings.local_ip, 16)];
        let secrets = Secrets::from_seed(seed);
        let stack = Stack::new(
            config.clone(),
            interface,
            secrets,
            depot.pool(),
            &Growth::Inline,
        )?;
        let sockets = Sockets::new(stack, seed);
        Ok(World {
            sockets,
            depot,
            now: ORIGIN,
            outbox: VecDeque::new(),
            unsound: None,
        })
    }

    /// The stack's clock.
    pub(super) fn instant(&self) -> Instant {
        self.now
    }

    /// Microseconds since the start.
    pub(super) fn micros(&self) -> u64 {
        self.now.saturating_since(ORIGIN).as_micros() as u64
    }

    /// When the stack will do something by itself, in microseconds since the start; rounded up.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let deadline = self.sockets.stack().next_deadline()?;
        Some(deadline.saturating_since(ORIGIN).as_nanos().div_ceil(1_000) as u64)
    }

    /// Lets the stack say all it has to say at this moment.
    pub(super) fn settle(&mut self) {
        let at = self.micros();
        let (outbox, unsound) = (&mut self.outbox, &mut self.unsound);
        let stack = self.sockets.stack_mut();
        frames::collect(stack, self.now, |bytes| match segment::decode(bytes) {
            Ok(segment) => outbox.push_back(Sent { at, segment }),
            Err(damage) => {
                *unsound = Some(Unsound {
                    damage,
                    bytes: bytes.to_vec(),
                })
            }
        });
        while stack.pop_ready().is_some() {}
    }

    /// Hands the stack a packet.
    pub(super) fn deliver(&mut self, segment: &Segment) -> bool {
        self.deliver_bytes(&segment::encode(segment))
    }

    /// Hands the stack an IP packet, whatever is in it.
    pub(super) fn deliver_bytes(&mut self, packet: &[u8]) -> bool {
        let taken = frames::deliver(self.sockets.stack_mut(), self.now, packet);
        self.settle();
        taken
    }

    /// Moves on to the stack's next deadline, if that is not after `limit`; else to `limit`, and says false.
    pub(super) fn step(&mut self, limit: u64) -> bool {
        let limit = ORIGIN + Duration::from_micros(limit);
        let deadline = self
            .sockets
            .stack()
            .next_deadline()
            .filter(|at| *at <= limit);
        self.now = self.now.max(deadline.unwrap_or(limit));
        if deadline.is_some() {
            self.sockets.stack_mut().advance(self.now);
            self.settle();
        }
        deadline.is_some()
    }

    pub(super) fn pop_sent(&mut self) -> Option<Sent> {
        self.outbox.pop_front()
    }

    pub(super) fn peek_sent(&self) -> Option<&Sent> {
        self.outbox.front()
    }

    /// The last packet that was not even a packet.
    pub(super) fn take_unsound(&mut self) -> Option<Unsound> {
        self.unsound.take()
    }

    /// Closes every socket, lets the peer be silent for ever, and says what the stack has not given back by then.
    pub(super) fn leftovers(mut self) -> Vec<String> {
        self.sockets.close_all(self.now);
        self.settle();
        let limit = self.micros() + AFTERMATH.as_micros() as u64;
        while self.step(limit) {}
        let stack = self.sockets.stack_mut();
        stack.pool().flush();
        let outstanding = self.depot.stats().outstanding;
        let counts = [
            ("connections", stack.connections()),
            ("hot blocks", stack.hot_in_use()),
            ("segments", stack.segments_in_use()),
            ("half-open records", stack.half_open()),
            ("TIME-WAIT records", stack.in_time_wait()),
            ("packet buffers", outstanding),
        ];
        let left = counts.into_iter().filter(|(_, count)| *count > 0);
        left.map(|(what, count)| format!("{count} {what}"))
            .collect()
    }
}
