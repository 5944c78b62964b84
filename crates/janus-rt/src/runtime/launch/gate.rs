//! Effects of a port's change outside the table: another steering for all cores, and a door in the portal.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use janus_csb::{Balancer, Draft};
use janus_io::member::Ports;

use crate::control::Front;
use crate::control::conductor::enter_port;
use crate::control::ending::{Ending, LastIn};
use crate::control::mailbox::ControlMailbox;
use crate::lock::Lock;
use crate::portal::Portal;

/// The balancer, the way to the thread that drives it, and the portal where the runtime has one.
pub(crate) struct Gate {
    pub(crate) balancer: Arc<Lock<Balancer>>,
    pub(crate) mailbox: Arc<ControlMailbox>,
    pub(crate) portal: Option<Portal>,
    /// Where the ports are the daemon's to give.
    pub(crate) member: Option<Ports>,
    pub(crate) ending: Arc<Ending>,
}

impl Front for Gate {
    fn open(&mut self, address: SocketAddr) -> io::Result<u16> {
        match (&mut self.portal, &self.member) {
            (Some(portal), _) => portal.open(address),
            (None, Some(member)) => member.claim(false, address),
            (None, None) => Ok(0),
        }
    }

    fn steer(&mut self, port: u16, cores: &[u8], no_flows: bool) -> bool {
        // One update for all cores: an owner must not change with each listener that is entered.
        let mut balancer = self.balancer.lock();
        let enter = |draft: &mut Draft| enter_port(draft, port, cores);
        let at_once = no_flows && balancer.start(enter).is_ok();
        if at_once {
            // Forget cores requested while an update ran: they are no longer to have the port.
            self.mailbox.forget_port(port);
            self.mailbox.ring();
        } else {
            self.mailbox.want_port(port, cores);
        }
        at_once
    }

    fn serve(&mut self, port: u16) {
        if let Some(portal) = &mut self.portal {
            portal.serve(port);
        }
    }

    fn ready(&mut self) {
        if let Some(supervisor) = self.ending.supervisor.get() {
            supervisor.ready();
        }
    }

    fn close(&mut self, port: u16) {
        if let Some(portal) = &mut self.portal {
            portal.close(port);
        }
        if let Some(member) = &self.member {
            member.release(false, port);
        }
    }

    fn close_all(&mut self) {
        match &mut self.portal {
            Some(portal) => {
                portal.close_all(LastIn {
                    ending: self.ending.clone(),
                    mailbox: self.mailbox.clone(),
                });
                // The control thread waits for that, but not forever.
                self.mailbox.ring();
            }
            // The stack is the only door, and it turns away no connection it has accepted.
            None => {
                self.ending.doors_closed();
                self.ending.close();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use janus_csb::{Limits, Ring, ShardId};
    use janus_io::park::Parker;

    use super::*;

    /// A port that could not be entered at once, as an update ran, and can when the next core binds it: what was wanted first
    /// is not carried out afterwards.
    #[test]
    fn a_port_entered_at_once_is_not_taken_back_by_what_was_wanted_before() {
        let mut balancer = Balancer::new(Ring::uniform(3, 4, 1), Limits::default());
        let _ends = [0, 1, 2].map(|core| balancer.shard_end(ShardId(core)));
        let mailbox = Arc::new(ControlMailbox::new(3, 0, Parker::new().unwrap().unparker()));
        let mut gate = Gate {
            balancer: Arc::new(Lock::new(balancer)),
            mailbox: mailbox.clone(),
            portal: None,
            member: None,
            ending: Arc::new(Ending::new(Vec::new())),
        };
        mailbox.want_port(80, &[2]);
        assert!(gate.steer(80, &[0, 2], true));
        assert!(mailbox.is_empty());
    }
}
