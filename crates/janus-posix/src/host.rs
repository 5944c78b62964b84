//! A host with one stack, its sockets and its clock, and nothing else: no device, no thread. Time moves only here, from
//! one deadline of the stack to the next, and every packet the stack sends is kept with the moment at which it was sent.
//! The script runner and `janus-packetdrill` are two ways to sit on one of these.
//! What never lives here: a wait, and what anybody thinks of a packet.

use crate::frames;
use crate::{Files, Sockets, Stranded};
use janus_mem::{Depot, Growth, MemError, Pool};
use janus_tcp::{Config, Error, Instant, Interface, Parcel, Secrets, Stack};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Packet buffers of the stack.
const BUFFERS: u32 = 4_096;
/// The stack's clock at the start; not zero, as no real clock is.
pub const ORIGIN: Instant = Instant::from_millis(1_000_000);
/// How long an abandoned stack is given to end everything by its own timers. TIME-WAIT and the retransmissions of an
/// orphan are what takes longest.
const AFTERMATH: Duration = Duration::from_secs(7_200);

/// A packet that the stack sent.
/// Exhaustive: its reader takes it apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Microseconds since the start.
    pub at: u64,
    /// From the IP header on.
    pub bytes: Vec<u8>,
}

/// A stack that connections move to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// Of the same runtime: with the same secrets and clock.
    Own,
    #[default]
    /// Of another: with secrets from the seed of the move, and a clock that shows another time.
    Another,
}

/// A stack, its sockets, its clock, and what it has sent.
pub struct Host {
    stack: Stack,
    files: Files,
    depot: Arc<Depot>,
    seed: u64,
    now: Instant,
    /// Time 0 by the stack's clock, which may not have run then.
    origin: Instant,
    outbox: VecDeque<Sent>,
}

impl Host {
    /// A host without sockets, at time 0. The same seed gives the same initial sequence numbers, timestamps and ports.
    pub fn new(config: Config, interface: Interface, seed: u64) -> Result<Host, MemError> {
        let depot = Depot::new(BUFFERS, &Growth::Inline)?;
        let secrets = Secrets::from_seed(seed);
        let stack = Stack::new(config, interface, secrets, depot.pool(), &Growth::Inline)?;
        Ok(Host {
            stack,
            files: Files::default(),
            depot,
            seed,
            now: ORIGIN,
            origin: ORIGIN,
            outbox: VecDeque::new(),
        })
    }

    /// The calls of its one process. Who makes one calls [`Host::settle`] after it.
    pub fn sockets(&mut self) -> Sockets<'_> {
        self.files.over(&mut self.stack)
    }

    /// Sets the options that every socket made from now on begins with.
    pub fn set_default_options(&mut self, options: janus_tcp::SocketOptions) {
        self.files.set_default_options(options);
    }

    /// The stack of its sockets.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The stack's clock.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Microseconds since the start.
    pub fn micros(&self) -> u64 {
        self.now.saturating_since(self.origin).as_micros() as u64
    }

    /// When the stack will do something by itself, in microseconds since the start; rounded up.
    pub fn next_deadline(&self) -> Option<u64> {
        let deadline = self.stack.next_deadline()?;
        Some(
            deadline
                .saturating_since(self.origin)
                .as_nanos()
                .div_ceil(1_000) as u64,
        )
    }

    /// Lets the stack say all it has to say at this moment.
    pub fn settle(&mut self) {
        let at = self.micros();
        let outbox = &mut self.outbox;
        frames::collect(&mut self.stack, self.now, |bytes| {
            let bytes = bytes.to_vec();
            outbox.push_back(Sent { at, bytes });
        });
        self.sockets().gather();
    }

    /// Hands the stack an IP packet, whatever is in it. False when no buffer is free or it fits none.
    pub fn deliver(&mut self, packet: &[u8]) -> bool {
        let taken = frames::deliver(&mut self.stack, self.now, packet);
        self.settle();
        taken
    }

    /// Moves on to the stack's next deadline, if that is not after `limit`; else to `limit`, and says false.
    pub fn step(&mut self, limit: u64) -> bool {
        let limit = self.origin + Duration::from_micros(limit);
        let deadline = self.stack.next_deadline().filter(|at| *at <= limit);
        self.now = self.now.max(deadline.unwrap_or(limit));
        if deadline.is_some() {
            self.stack.advance(self.now);
            self.settle();
        }
        deadline.is_some()
    }

    /// The oldest packet that was sent and not yet looked at.
    pub fn pop_sent(&mut self) -> Option<Sent> {
        self.outbox.pop_front()
    }

    /// Whether there is one.
    pub fn has_sent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Moves all that the stack has to another one. Packets see nothing of it, nor does the program.
    pub fn move_to_another(&mut self, whose: Whose, seed: u64) -> Result<(), Stranded> {
        let old = &self.stack;
        let (config, interface) = (old.config().clone(), old.interface().clone());
        let secrets = Secrets::from_seed(match whose {
            Whose::Own => self.seed,
            Whose::Another => seed,
        });
        let stack = Stack::new(
            config,
            interface,
            secrets,
            self.depot.pool(),
            &Growth::Inline,
        );
        let stack = stack.map_err(|_| Stranded::Listener(Error::NoBuffers))?;
        // Anywhere: also where wrapping milliseconds have gone round.
        let ahead = match whose {
            Whose::Own => Duration::ZERO,
            Whose::Another => Duration::from_nanos(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 9),
        };
        let (then, now) = (self.now, self.now + ahead);
        let mut pool = self.depot.pool();
        // As a handle and in bytes by turns.
        let mut in_bytes = seed.is_multiple_of(2);
        self.files
            .over(&mut self.stack)
            .move_to((then, now), stack, |parcel| {
                in_bytes = !in_bytes;
                if in_bytes {
                    parcel
                } else {
                    by_bytes(parcel, &mut pool)
                }
            })?;
        (self.now, self.origin) = (now, self.origin + ahead);
        Ok(())
    }

    /// Closes every socket, lets the peer be silent for ever, and says what the stack has not given back by then.
    pub fn leftovers(mut self) -> Vec<String> {
        self.files.over(&mut self.stack).close_all(self.now);
        self.settle();
        let limit = self.micros() + AFTERMATH.as_micros() as u64;
        while self.step(limit) {}
        let stack = &mut self.stack;
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

/// The parcel after a way through bytes, on which nothing may be lost.
fn by_bytes(parcel: Parcel, pool: &mut Pool) -> Parcel {
    let mut bytes = Vec::new();
    parcel.encode(&mut bytes);
    let read = Parcel::decode(&bytes, pool);
    let read = read.unwrap_or_else(|error| panic!("{parcel:?}: {error}"));
    let mut again = Vec::new();
    read.encode(&mut again);
    assert!(bytes == again, "{parcel:?} is spelled in two ways");
    read
}
