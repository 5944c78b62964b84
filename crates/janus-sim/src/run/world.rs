//! The host under test, with what it sent read as segments. Time moves only here, and everything the stack sends is kept
//! with the moment at which it was sent.

use super::Trouble;
use super::icmp::SentIcmp;
use super::report::Recorded;
use crate::script::Settings;
use crate::segment::{self, Damage, Segment};
use janus_mem::MemError;
use janus_posix::{Host, Whose, sysctl};
use janus_tcp::{Instant, Interface, IpCidr};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

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
    host: Host,
    /// Sent, and not yet looked at.
    outbox: VecDeque<Sent>,
    /// ICMP messages, sent and not yet looked at.
    icmp: VecDeque<SentIcmp>,
    unsound: Option<Unsound>,
    /// All packets both ways with their times, when they are recorded.
    recorded: Option<Vec<Recorded>>,
}

impl World {
    pub(super) fn new(
        settings: &Settings,
        stack: &sysctl::Settings,
        seed: u64,
        recorded: bool,
    ) -> Result<World, MemError> {
        let mut interface = Interface::ip(stack.mtu.unwrap_or(settings.mtu));
        interface.addresses = vec![IpCidr::new(settings.local_ip, 16)];
        let mut host = Host::new(stack.config.clone(), interface, seed)?;
        host.set_default_options(stack.socket);
        Ok(World {
            host,
            outbox: VecDeque::new(),
            icmp: VecDeque::new(),
            unsound: None,
            recorded: recorded.then(Vec::new),
        })
    }

    /// The stack's clock.
    pub(super) fn instant(&self) -> Instant {
        self.host.now()
    }

    /// Lets the stack say all it has to say at this moment.
    pub(super) fn settle(&mut self) {
        self.host.settle();
        self.read_sent();
    }

    /// Moves all connections to another stack, before the event of this number.
    pub(super) fn move_to_another(
        &mut self,
        line: u32,
        whose: Whose,
        event: usize,
    ) -> Result<(), Trouble> {
        let moved = self.host.move_to_another(whose, event as u64 + 1);
        moved.map_err(|why| Trouble::new(line, format!("no move: {why:?}")))?;
        self.settle();
        Ok(())
    }

    fn read_sent(&mut self) {
        while let Some(sent) = self.host.pop_sent() {
            if let Some(recorded) = &mut self.recorded {
                recorded.push(Recorded {
                    at: sent.at,
                    sent: true,
                    bytes: sent.bytes.clone(),
                });
            }
            if let Some(message) = SentIcmp::read(sent.at, &sent.bytes) {
                self.icmp.push_back(message);
                continue;
            }
            match segment::decode(&sent.bytes) {
                Ok(segment) => self.outbox.push_back(Sent {
                    at: sent.at,
                    segment,
                }),
                Err(damage) => {
                    self.unsound = Some(Unsound {
                        damage,
                        bytes: sent.bytes,
                    });
                }
            }
        }
    }

    /// Hands the stack a packet.
    pub(super) fn deliver(&mut self, segment: &Segment) -> bool {
        self.deliver_bytes(&segment::encode(segment))
    }

    /// Hands the stack an IP packet, whatever is in it.
    pub(super) fn deliver_bytes(&mut self, packet: &[u8]) -> bool {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(Recorded {
                at: self.host.micros(),
                sent: false,
                bytes: packet.to_vec(),
            });
        }
        let taken = self.host.deliver(packet);
        self.read_sent();
        taken
    }

    /// Moves on to the stack's next deadline, if that is not after `limit`; else to `limit`, and says false.
    pub(super) fn step(&mut self, limit: u64) -> bool {
        let stepped = self.host.step(limit);
        self.read_sent();
        stepped
    }

    pub(super) fn pop_sent(&mut self) -> Option<Sent> {
        self.outbox.pop_front()
    }

    /// The oldest ICMP message that was sent and not yet looked at.
    pub(super) fn pop_icmp(&mut self) -> Option<SentIcmp> {
        self.icmp.pop_front()
    }

    /// All packets so far.
    pub(super) fn take_recorded(&mut self) -> Vec<Recorded> {
        self.recorded.take().unwrap_or_default()
    }

    pub(super) fn peek_sent(&self) -> Option<&Sent> {
        self.outbox.front()
    }

    /// The last packet that was not even a packet.
    pub(super) fn take_unsound(&mut self) -> Option<Unsound> {
        self.unsound.take()
    }

    /// Closes every socket, lets the peer be silent for ever, and says what the stack has not given back by then.
    pub(super) fn leftovers(self) -> Vec<String> {
        self.host.leftovers()
    }
}

/// Access to the host and its sockets.
impl Deref for World {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}
