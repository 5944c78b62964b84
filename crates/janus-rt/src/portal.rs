//! The portal: how a program without any privilege is reached by the programs beside it. A kernel listener on
//! 127.0.0.1, on ::1, or on both stands for each bound port; every connection it accepts is opened again, by a second Janus stack on the
//! client's side, over the in-memory wire into the shards. The other way, what a shard opens is opened again by the kernel.
//! Both stacks do their whole work; no byte passes beside them.
//! This file holds the doors (the kernel's listeners) and starts the thread; what runs on the thread is in `carrier`.

mod bridge;
mod carrier;
mod events;
mod exits;
mod outgoing;
mod reach;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;

pub(crate) use carrier::{BRIDGES_MAX, Inner};
use carrier::{Carrier, Command};
use events::{DoorId, Doorbell};
pub(crate) use exits::answers_all;
pub(crate) use reach::Reach;

/// Ports below this need a privilege (`ip_unprivileged_port_start`).
const PRIVILEGED_BELOW: u16 = 1024;
/// Where a privileged port is offered instead.
const PRIVILEGED_SHIFT: u16 = 8000;

/// The kernel's port under which the portal offers `port`.
pub(crate) fn offered_port(port: u16) -> u16 {
    match port {
        1..PRIVILEGED_BELOW => port + PRIVILEGED_SHIFT,
        _ => port,
    }
}

/// The shards' end of the portal: opens doors, hands them to the carrier, ends it when dropped.
pub(crate) struct Portal {
    /// Opened but not yet serving: clients wait in the kernel's backlog.
    waiting: HashMap<u16, Vec<TcpListener>>,
    commands: Sender<Command>,
    doorbell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl Portal {
    /// Starts the carrier over `inner`, its end of the wire and the stack on it.
    pub(crate) fn start(inner: Inner) -> io::Result<Portal> {
        let (commands, inbox) = channel();
        let doorbell = Arc::new(Doorbell::new()?);
        let carrier = Carrier::new(inner, inbox, doorbell.clone())?;
        let thread = std::thread::Builder::new()
            .name("janus-portal".into())
            .spawn(move || carrier.run())?;
        Ok(Portal {
            waiting: HashMap::new(),
            commands,
            doorbell,
            thread: Some(thread),
        })
    }

    /// Opens the kernel's listeners for the port of `address`; 0 takes any port the kernel has free. Answers the Janus
    /// port. An address of IPv6 is offered at ::1, and `::`, which means both families, at 127.0.0.1 too.
    pub(crate) fn open(&mut self, address: SocketAddr) -> io::Result<u16> {
        let port = address.port();
        let mut listeners = Vec::new();
        let mut offered = offered_port(port);
        let both = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        if address.is_ipv4() || both {
            let listener = listen(Ipv4Addr::LOCALHOST.into(), offered, port)?;
            offered = listener.local_addr()?.port();
            listeners.push(listener);
        }
        if address.is_ipv6() {
            match listen(Ipv6Addr::LOCALHOST.into(), offered, port) {
                Ok(listener) => {
                    offered = listener.local_addr()?.port();
                    listeners.push(listener);
                }
                // A machine without IPv6 is reached the other way.
                Err(_) if both => {}
                Err(error) => return Err(error),
            }
        }
        if offered != port && port != 0 {
            announce(port, offered);
        }
        let port = if port == 0 { offered } else { port };
        self.waiting.insert(port, listeners);
        Ok(port)
    }

    /// Lets clients of `port` in.
    pub(crate) fn serve(&mut self, port: u16) {
        for listener in self.waiting.remove(&port).unwrap_or_default() {
            let v6 = listener.local_addr().is_ok_and(|at| at.is_ipv6());
            let door = DoorId { port, v6 };
            self.send(Command::Serve { door, listener });
        }
    }

    /// Closes the door of `port`; connections that are inside stay.
    pub(crate) fn close(&mut self, port: u16) {
        if self.waiting.remove(&port).is_none() {
            self.send(Command::Close { port });
        }
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

/// The kernel's listener on `offered` for the Janus port `port`.
fn listen(ip: IpAddr, offered: u16, port: u16) -> io::Result<TcpListener> {
    let at = SocketAddr::new(ip, offered);
    let listener = TcpListener::bind(at).map_err(|error| {
        let for_port = if offered == port {
            String::new()
        } else {
            format!(" (for port {port})")
        };
        let port = at.port();
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("; `ss -ltnp 'sport = :{port}'` names the program that has it")
            }
            _ => String::new(),
        };
        let text = format!("portal: the kernel refuses {at}{for_port}: {error}{hint}");
        io::Error::new(error.kind(), text)
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Said once in the life of the process: it is about the machine, not about one runtime.
fn announce(port: u16, offered: u16) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        eprintln!(
            "janus: port {port} needs a privilege here; the portal offers it at 127.0.0.1:{offered}"
        )
    });
}
