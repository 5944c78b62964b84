//! The portal: how a program without any privilege is reached by the programs beside it. A kernel listener on
//! 127.0.0.1, on ::1, or where the user says (`listen`) stands for each bound port; every connection it accepts is opened
//! again, by a second Janus stack on the client's side, over the in-memory wire into the shards. The other way, what a shard
//! opens is opened again by the kernel.
//! Both stacks do their whole work; no byte passes beside them.
//! This file holds the doors (the kernel's listeners) and starts the thread; what runs on the thread is in `carrier`.

mod bridge;
mod carrier;
mod events;
mod exits;
mod listen;
mod outgoing;
mod reach;
mod spare;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

pub(crate) use carrier::Inner;
use carrier::{Carrier, Command};
use events::{DoorId, Doorbell};
pub(crate) use exits::answers_all;
pub use listen::PortalListen;
use listen::offered;
pub use reach::PortalReach;

use crate::control::Passage;
use crate::control::ending::LastIn;

/// The portal, as sockets of the shards see it.
pub(crate) struct Doorway {
    pub(crate) reach: PortalReach,
    pub(crate) listen: PortalListen,
    /// Ports below are offered elsewhere.
    pub(crate) first_port: u16,
}

impl Passage for Doorway {
    fn admits(&self, address: IpAddr) -> bool {
        self.reach.admits(address)
    }

    fn reachable_at(&self, local: SocketAddr) -> SocketAddr {
        let port = offered(local.port(), self.first_port);
        self.listen.reachable_at(local.ip(), port)
    }
}

/// The inner end of a portal: it opens doors, by which the kernel's programs come in. Dropped, it ends, and what passes through it.
pub struct Portal {
    /// Opened but not yet serving: clients wait in the kernel's backlog.
    waiting: HashMap<u16, Vec<TcpListener>>,
    /// Addresses of the doors that serve.
    served: HashMap<u16, Vec<IpAddr>>,
    commands: Sender<Command>,
    doorbell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
    listen: PortalListen,
}

impl Portal {
    /// Starts the carrier over `inner`, its end of the wire and the stack on it. Doors are where `listen` says.
    pub(crate) fn start(inner: Inner, listen: PortalListen) -> io::Result<Portal> {
        let (commands, inbox) = channel();
        let doorbell = Arc::new(Doorbell::new()?);
        let carrier = Carrier::new(inner, inbox, doorbell.clone())?;
        let thread = std::thread::Builder::new()
            .name("janus-portal".into())
            .spawn(move || carrier.run())?;
        Ok(Portal {
            waiting: HashMap::new(),
            served: HashMap::new(),
            commands,
            doorbell,
            thread: Some(thread),
            listen,
        })
    }

    /// The first port that is offered as it is: those below need a privilege that this process does not have, and are 8,000 higher.
    #[must_use]
    pub fn first_port() -> u16 {
        listen::first_port()
    }

    /// Opens the kernel's listeners for the port of `address`, as far as they are not there; 0 takes any port the kernel has free. Answers the
    /// Janus port.
    ///
    /// # Errors
    /// The kernel refuses; the error says what is in the way.
    pub fn open(&mut self, address: SocketAddr) -> io::Result<u16> {
        let port = address.port();
        let mut listeners: Vec<TcpListener> = Vec::new();
        let mut offered = offered(port, listen::first_port());
        let mut addresses = self.listen.addresses(address.ip());
        let served = self.served.get(&port).map_or(&[][..], Vec::as_slice);
        addresses.retain(|ip| !served.contains(ip));
        for ip in addresses {
            match listen(SocketAddr::new(ip, offered), port) {
                Ok(listener) => {
                    offered = listener.local_addr()?.port();
                    listeners.push(listener);
                }
                // A machine without IPv6 is reached the other way; an address that was named must be there.
                Err(_)
                    if ip.is_ipv6()
                        && !(listeners.is_empty() && served.is_empty())
                        && !self.listen.names(ip) => {}
                Err(error) => return Err(error),
            }
        }
        if listeners.is_empty() && !served.is_empty() {
            return Ok(port);
        }
        if listeners.is_empty() {
            let text = format!(
                "portal: `portal_listen` has no address of the family of {address}: name one, or `any`"
            );
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        }
        let port = if port == 0 { offered } else { port };
        self.waiting.insert(port, listeners);
        Ok(port)
    }

    /// Lets clients of `port` in, and says where they find it.
    pub fn serve(&mut self, port: u16) {
        let Some(listeners) = self.waiting.remove(&port) else {
            return;
        };
        self.announce(port, &listeners);
        for listener in listeners {
            let served = self.served.entry(port).or_default();
            let number = served.len() as u8;
            served.extend(listener.local_addr().map(|at| at.ip()));
            let door = DoorId { port, number };
            self.send(Command::Serve { door, listener });
        }
    }

    /// Closes the door of `port`; connections that are inside stay.
    pub fn close(&mut self, port: u16) {
        self.served.remove(&port);
        if self.waiting.remove(&port).is_none() {
            self.send(Command::Close { port });
        }
    }

    /// Closes all doors, and drops `last` when every client that the kernel let in stands inside; also when there is no
    /// carrier any more.
    pub(crate) fn close_all(&mut self, last: LastIn) {
        self.waiting.clear();
        self.send(Command::CloseAll(last));
    }

    /// From where `port` is reached, and what would change that.
    fn announce(&self, port: u16, listeners: &[TcpListener]) {
        let places = listeners.iter().filter_map(|at| at.local_addr().ok());
        let places: Vec<SocketAddr> = places.collect();
        let offered = places.first().map_or(port, SocketAddr::port);
        let names: Vec<String> = places.iter().map(SocketAddr::to_string).collect();
        let names = names.join(" and ");
        let local = places.iter().all(|at| at.ip().is_loopback());
        let from = match &self.listen {
            PortalListen::Loopback => "from this machine only; `portal_listen` opens it to others",
            _ if local => "from this machine only, as it is bound on loopback",
            _ => "from wherever that is reached",
        };
        let moved = if offered == port {
            ""
        } else {
            ", as it needs a privilege here"
        };
        eprintln!("janus: port {port} is at {names}{moved}, {from}");
    }

    fn send(&self, command: Command) {
        // A carrier that is gone has said why on stderr; its doors are closed then.
        if self.commands.send(command).is_ok() {
            self.doorbell.ring();
        }
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        self.send(Command::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The kernel's listener at `at` for the Janus port `port`.
fn listen(at: SocketAddr, port: u16) -> io::Result<TcpListener> {
    listen::listener(at).map_err(|error| {
        let offered = at.port();
        let for_port = if offered == port {
            String::new()
        } else {
            format!(" (for port {port})")
        };
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("; `ss -ltnp 'sport = :{offered}'` names the program that has it")
            }
            _ => String::new(),
        };
        let text = format!("portal: the kernel refuses {at}{for_port}: {error}{hint}");
        io::Error::new(error.kind(), text)
    })
}
