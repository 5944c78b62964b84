//! The one table of listeners for all shards, and when a port begins to serve. Slow path only: a mutex guards it and
//! no packet ever waits for it. Packets read what it published through the steering; accepting is the stack's.
//!
//! `main` runs once per core, so the same `bind` is met once per core, at slightly different moments. A port begins to
//! serve when it is known who listens: every core has bound it, or has shown by waiting for something else that it
//! will not. Until then `bind(..).await` waits; so a bind that returned means that connections arrive. A core may bind a
//! port that serves already, and let go of it while others go on: each is an update of the steering, which moves no
//! living connection.

pub(crate) mod alarms;
pub(crate) mod conductor;
pub(crate) mod datagrams;
pub(crate) mod ending;
pub(crate) mod hunger;
pub(crate) mod mailbox;
pub(crate) mod rests;
pub(crate) mod signals;
pub(crate) mod supervisor;
#[cfg(test)]
mod tests;
pub(crate) mod watch;
pub(crate) mod watchdog;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use crate::lock::Lock;

pub use ending::BoxError;
pub(crate) use janus_tcp::DYNAMIC_FIRST;

/// Most ports that may be bound at a time; one runtime serves a handful.
const PORTS_MAX: usize = 4096;

/// What stands before the shards and must know which ports they serve: the steering, and the portal's kernel side.
pub(crate) trait Front: Send {
    /// Takes the port of `address` outside (0: any) before anyone serves it. Answers the port taken, or 0 for "you choose".
    fn open(&mut self, address: SocketAddr) -> io::Result<u16>;
    /// `port` is to belong to `cores`, and to no core if there are none. True: it does; false: [`Control::served`] will
    /// be told. `no_flows` says that no connection can be in the way.
    fn steer(&mut self, port: u16, cores: &[u8], no_flows: bool) -> bool;
    /// Clients may come to `port`.
    fn serve(&mut self, port: u16);
    /// Every main waits for something else than a bind, and a port serves.
    fn ready(&mut self) {}
    /// `port` has no listener any more.
    fn close(&mut self, port: u16);
    /// Closes every port, because the runtime ends; says so when it is done.
    fn close_all(&mut self) {}
}

/// Stands before a device that leads to no network, such as the portal's wire: the world is reached through it.
pub(crate) trait Passage: Send + Sync {
    /// Whether connections may be opened to `address`.
    fn admits(&self, address: IpAddr) -> bool;
    /// Address at which a client outside finds a listener on `local`.
    fn reachable_at(&self, local: SocketAddr) -> SocketAddr;
}

/// Stands where a front was when the runtime has ended.
struct Gone;

impl Front for Gone {
    fn open(&mut self, _: SocketAddr) -> io::Result<u16> {
        Err(io::Error::other("the runtime has ended"))
    }

    fn steer(&mut self, _: u16, _: &[u8], _: bool) -> bool {
        true
    }

    fn serve(&mut self, _: u16) {}

    fn close(&mut self, _: u16) {}
}

/// Where a core's `main` stands, as far as listeners care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Main {
    /// Not yet waiting for anything but a bind that has been answered: it may still bind.
    Running,
    /// Waits for a port to begin serving.
    Binding,
    /// Has waited for something else, or has ended: what it has not bound it does not serve.
    Settled,
}

struct Waiter {
    core: u8,
    from_main: bool,
    waker: Waker,
}

struct Port {
    address: SocketAddr,
    /// Bound as port 0; another core's port 0 may join it until it is announced.
    dynamic: bool,
    /// Cores with a listener now.
    bound: Vec<u8>,
    /// Cores the steering was told of, or is being told; empty until it is known who listens.
    announced: Vec<u8>,
    /// Cores among which new connections are shared out.
    served: Vec<u8>,
    /// Cores that have let go of it since the steering last named them. They may be back.
    leaving: Vec<u8>,
    /// At most one per bind in flight, so bounded by cores.
    waiters: Vec<Waiter>,
}

struct ControlState {
    front: Box<dyn Front>,
    mains: Vec<Main>,
    ports: BTreeMap<u16, Port>,
    next_dynamic: u16,
    /// What stands before was told so.
    ready: bool,
}

/// Shared by every shard of one runtime.
pub(crate) struct Control {
    state: Lock<ControlState>,
    /// Every main has been polled as far as it goes without waiting.
    begun: AtomicBool,
    /// A connection has been opened, or may have been.
    opened: AtomicBool,
}

impl Control {
    pub(crate) fn new(cores: usize, front: Box<dyn Front>) -> Control {
        let state = ControlState {
            front,
            mains: vec![Main::Running; cores],
            ports: BTreeMap::new(),
            next_dynamic: DYNAMIC_FIRST,
            ready: false,
        };
        Control {
            state: Lock::new(state),
            begun: AtomicBool::new(false),
            opened: AtomicBool::new(false),
        }
    }

    /// A core is about to open a connection: from now on flows may be in the way of a change.
    #[inline]
    pub(crate) fn opens(&self) {
        if !self.opened.load(Ordering::Relaxed) {
            // Under the lock: a change that found no flows is made before the first of them.
            let _state = self.state.lock();
            self.opened.store(true, Ordering::Relaxed);
        }
    }

    /// To be asked with the lock held.
    fn no_flows(&self) -> bool {
        !self.begun.load(Ordering::Relaxed) && !self.opened.load(Ordering::Relaxed)
    }

    /// Enters `core` as a listener on `address`; answers the port (chosen when `address` says 0).
    pub(crate) fn bind(&self, core: u8, address: SocketAddr) -> io::Result<u16> {
        let mut state = self.state.lock();
        // A socket for both families may have bound one of IPv4 so.
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        if address.port() == 0 {
            return state.bind_dynamic(core, address);
        }
        state.bind_fixed(core, address)
    }

    /// Ready once `port`, which `core` has bound, serves.
    pub(crate) fn poll_serving(
        &self,
        core: u8,
        port: u16,
        from_main: bool,
        waker: &Waker,
    ) -> Poll<()> {
        let mut state = self.state.lock();
        let waits = |entry: &&mut Port| !entry.served.contains(&core);
        let Some(entry) = state.ports.get_mut(&port).filter(waits) else {
            return Poll::Ready(());
        };
        match entry
            .waiters
            .iter_mut()
            .find(|w| w.core == core && w.from_main == from_main)
        {
            Some(waiter) => waiter.waker.clone_from(waker),
            None => entry.waiters.push(Waiter {
                core,
                from_main,
                waker: waker.clone(),
            }),
        }
        // The caller's own main reports itself through `main_waits`; a bind in a spawned task changes nothing there.
        let woken = state.settle(self.no_flows());
        let entry = state.ports.get(&port);
        let serves = entry.is_none_or(|entry| entry.served.contains(&core));
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if serves {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// The steering says that these ports belong to these cores.
    pub(crate) fn served(&self, ports: &mailbox::PortSets) {
        let mut state = self.state.lock();
        let mut woken = Vec::new();
        for (&port, cores) in ports {
            woken.extend(state.served(port, cores));
        }
        state.tell_ready();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// `core` lets go of `port`. Its connections live on. True: others listen on, and have its share of new connections
    /// once it [is no longer leaving](Control::is_leaving).
    pub(crate) fn release(&self, core: u8, port: u16) -> bool {
        let mut state = self.state.lock();
        let Some(entry) = state.ports.get_mut(&port) else {
            return false;
        };
        if entry.announced.contains(&core) && !entry.leaving.contains(&core) {
            entry.leaving.push(core);
        }
        entry.bound.retain(|c| *c != core);
        entry.served.retain(|c| *c != core);
        entry.waiters.retain(|w| w.core != core);
        let no_flows = self.no_flows();
        if entry.bound.is_empty() {
            let announced = !entry.announced.is_empty();
            state.ports.remove(&port);
            state.front.close(port);
            if announced {
                state.front.steer(port, &[], no_flows);
            }
        }
        let woken = state.settle(no_flows);
        let leaves = state.is_leaving(core, port);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        leaves
    }

    /// Whether `core` has let go of `port`, others have not, and the steering may still send new connections to it.
    pub(crate) fn is_leaving(&self, core: u8, port: u16) -> bool {
        self.state.lock().is_leaving(core, port)
    }

    /// `core` has lost its tasks: it serves nothing any more.
    pub(crate) fn fell(&self, core: u8) {
        let state = self.state.lock();
        let bound = state
            .ports
            .iter()
            .filter(|(_, entry)| entry.bound.contains(&core));
        let ports: Vec<u16> = bound.map(|(port, _)| *port).collect();
        drop(state);
        for port in ports {
            self.release(core, port);
        }
        self.main_ended(core);
    }

    /// New connections from outside are refused; open ones stay, and the [`Ending`](crate::runtime::Ending) hears when it is so.
    pub(crate) fn close_doors(&self) {
        self.state.lock().front.close_all();
    }

    /// Drops what stands before the shards, whoever else still knows of this table.
    pub(crate) fn end(&self) {
        let front = std::mem::replace(&mut self.state.lock().front, Box::new(Gone));
        drop(front);
    }

    /// `core`'s main returned Pending: in a bind, or waiting for something else.
    pub(crate) fn main_waits(&self, core: u8, in_bind: bool) {
        self.main_becomes(
            core,
            if in_bind {
                Main::Binding
            } else {
                Main::Settled
            },
        );
    }

    /// `core`'s main has ended.
    pub(crate) fn main_ended(&self, core: u8) {
        self.main_becomes(core, Main::Settled);
    }

    fn main_becomes(&self, core: u8, to: Main) {
        let mut state = self.state.lock();
        // Another core may have answered the bind since main was polled: then main is about to run again.
        let answered = to == Main::Binding && !state.main_awaits_bind(core);
        let main = &mut state.mains[usize::from(core)];
        if *main == Main::Settled || *main == to || answered {
            return;
        }
        *main = to;
        let begins = state.mains.iter().all(|main| *main != Main::Running);
        let woken = state.settle(self.no_flows());
        state.tell_ready();
        if begins {
            // With what has just been settled: whoever takes packets knows of it.
            self.begun.store(true, Ordering::Release);
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Whether every main has had its first turn: what it binds at its start is bound. Before that a core takes no
    /// packets, so that a client that is quicker than the server's start is not refused.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }
}

impl ControlState {
    fn bind_fixed(&mut self, core: u8, address: SocketAddr) -> io::Result<u16> {
        let port = address.port();
        if let Some(entry) = self.ports.get_mut(&port) {
            return entry.join(core, address).map(|()| port);
        }
        self.insert(core, address, port, false)
    }

    /// The n-th port 0 of every main shall be one port, so that a loop over it scales like any other: join the first
    /// one that waits for its cores and that this core has not joined; else take a new port.
    fn bind_dynamic(&mut self, core: u8, address: SocketAddr) -> io::Result<u16> {
        let waiting = self.ports.iter_mut().find(|(_, entry)| {
            let same = entry.address.ip() == address.ip();
            entry.dynamic && entry.announced.is_empty() && same && !entry.bound.contains(&core)
        });
        if let Some((port, entry)) = waiting {
            entry.bound.push(core);
            return Ok(*port);
        }
        self.insert(core, address, 0, true)
    }

    fn insert(
        &mut self,
        core: u8,
        address: SocketAddr,
        port: u16,
        dynamic: bool,
    ) -> io::Result<u16> {
        if self.ports.len() >= PORTS_MAX {
            return Err(io::Error::other(format!(
                "{PORTS_MAX} ports are bound already; drop a listener first"
            )));
        }
        let port = match self.front.open(SocketAddr::new(address.ip(), port))? {
            0 if port == 0 => self.free_dynamic()?,
            0 => port,
            taken => taken,
        };
        let entry = Port {
            address: SocketAddr::new(address.ip(), port),
            dynamic,
            bound: vec![core],
            announced: Vec::new(),
            served: Vec::new(),
            leaving: Vec::new(),
            waiters: Vec::new(),
        };
        self.ports.insert(port, entry);
        Ok(port)
    }

    fn free_dynamic(&mut self) -> io::Result<u16> {
        for _ in DYNAMIC_FIRST..=u16::MAX {
            let port = self.next_dynamic;
            self.next_dynamic = if port == u16::MAX {
                DYNAMIC_FIRST
            } else {
                port + 1
            };
            if !self.ports.contains_key(&port) {
                return Ok(port);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "every dynamic port is bound",
        ))
    }

    /// Tells what stands before when it is ready, once.
    fn tell_ready(&mut self) {
        let settled = self.mains.iter().all(|main| *main == Main::Settled);
        let serves = self.ports.values().any(|entry| !entry.served.is_empty());
        if !self.ready && settled && serves {
            self.ready = true;
            self.front.ready();
        }
    }

    fn is_leaving(&self, core: u8, port: u16) -> bool {
        let entry = self.ports.get(&port);
        entry.is_some_and(|entry| entry.leaving.contains(&core) && !entry.bound.contains(&core))
    }

    fn main_awaits_bind(&self, core: u8) -> bool {
        // Of a port that is announced already the answer is on its way.
        let waiting = self.ports.values();
        let waiting = waiting.filter(|entry| !entry.announced.contains(&core));
        let mut waiters = waiting.flat_map(|entry| &entry.waiters);
        waiters.any(|waiter| waiter.core == core && waiter.from_main)
    }

    /// Announces every port whose listeners are known, or have changed; answers who is to be woken, outside the lock.
    fn settle(&mut self, no_flows: bool) -> Vec<Waker> {
        // No core can bind before something is answered: then all waiting ports are as complete as they get.
        let stuck = self.mains.iter().all(|main| *main != Main::Running);
        let mut at_once = Vec::new();
        for (&port, entry) in &mut self.ports {
            entry.bound.sort_unstable();
            let mains = &mut self.mains;
            let known =
                |core: usize| mains[core] == Main::Settled || entry.bound.contains(&(core as u8));
            let complete = stuck || !entry.announced.is_empty() || (0..mains.len()).all(known);
            if entry.announced == entry.bound || !complete {
                continue;
            }
            entry.announced.clone_from(&entry.bound);
            for waiter in &entry.waiters {
                let main = &mut mains[usize::from(waiter.core)];
                if waiter.from_main && *main == Main::Binding {
                    *main = Main::Running;
                }
            }
            if self.front.steer(port, &entry.announced, no_flows) {
                at_once.push(port);
            }
        }
        let mut woken = Vec::new();
        for port in at_once {
            let cores = self.ports[&port].announced.clone();
            woken.extend(self.served(port, &cores));
        }
        woken
    }

    /// `port` belongs to `cores`; answers who is to be woken.
    fn served(&mut self, port: u16, cores: &[u8]) -> Vec<Waker> {
        let Some(entry) = self.ports.get_mut(&port) else {
            return Vec::new();
        };
        let first = entry.served.is_empty();
        let still = |core: &&u8| entry.announced.contains(core);
        entry.served = cores.iter().filter(still).copied().collect();
        entry.leaving.retain(|core| cores.contains(core));
        if first && !entry.served.is_empty() {
            self.front.serve(port);
        }
        let waiters = std::mem::take(&mut entry.waiters);
        let (answered, waiting) = waiters
            .into_iter()
            .partition(|waiter| entry.served.contains(&waiter.core));
        entry.waiters = waiting;
        let answered: Vec<Waiter> = answered;
        answered.into_iter().map(|waiter| waiter.waker).collect()
    }
}

impl Port {
    fn join(&mut self, core: u8, address: SocketAddr) -> io::Result<()> {
        let in_use = |message: String| Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        let port = address.port();
        if self.bound.contains(&core) {
            return in_use(format!("port {port} is bound on this core already"));
        }
        if self.address != address {
            return in_use(format!(
                "port {port} is bound as {} on another core",
                self.address
            ));
        }
        self.bound.push(core);
        Ok(())
    }
}
