//! The one table of listeners for all shards, and when a port begins to serve. Slow path only: a mutex guards it and
//! no packet ever waits for it. Packets read what it published through the steering; accepting is the stack's.
//!
//! `main` runs once per core, so the same `bind` is met once per core, at slightly different moments. A port begins to
//! serve when it is known who listens: every core has bound it, or has shown by waiting for something else that it
//! will not. Until then `bind(..).await` waits; so a bind that returned means that connections arrive.

mod front;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

pub(crate) use front::Gate;

/// First port of the dynamic range (RFC 6335 section 6).
pub(crate) const DYNAMIC_FIRST: u16 = 49152;
/// Most ports that may be bound at a time; one runtime serves a handful.
const PORTS_MAX: usize = 4096;

/// What stands before the shards and must know which ports they serve: the steering, and the portal's kernel side.
pub(crate) trait Front: Send {
    /// Takes the port of `address` outside (0: any) before anyone serves it. Answers the port taken, or 0 for "you choose".
    fn open(&mut self, address: SocketAddr) -> io::Result<u16>;
    /// From now on `port` belongs to `cores`.
    fn serve(&mut self, port: u16, cores: &[u8]);
    /// Nobody listens on `port` any more.
    fn close(&mut self, port: u16);
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
    /// Bound as port 0; another core's port 0 may join it until it serves.
    dynamic: bool,
    serving: bool,
    /// Cores with a listener now.
    bound: Vec<u8>,
    /// Cores the steering was told of; a listener may leave and come back among them.
    published: Vec<u8>,
    /// At most one per bind in flight, so bounded by cores.
    waiters: Vec<Waiter>,
}

struct State {
    front: Box<dyn Front>,
    mains: Vec<Main>,
    ports: BTreeMap<u16, Port>,
    next_dynamic: u16,
}

/// Shared by every shard of one runtime.
pub(crate) struct Control {
    state: Mutex<State>,
    /// Every main has been polled as far as it goes without waiting.
    begun: AtomicBool,
}

impl Control {
    pub(crate) fn new(cores: usize, front: Box<dyn Front>) -> Control {
        let state = State {
            front,
            mains: vec![Main::Running; cores],
            ports: BTreeMap::new(),
            next_dynamic: DYNAMIC_FIRST,
        };
        Control {
            state: Mutex::new(state),
            begun: AtomicBool::new(false),
        }
    }

    /// Enters `core` as a listener on `address`; answers the port (chosen when `address` says 0).
    pub(crate) fn bind(&self, core: u8, address: SocketAddr) -> io::Result<u16> {
        let mut state = self.lock();
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
        let mut state = self.lock();
        let Some(entry) = state.ports.get_mut(&port).filter(|entry| !entry.serving) else {
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
        let woken = state.settle();
        let serves = state.ports.get(&port).is_none_or(|entry| entry.serving);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if serves {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// `core`'s listener on `port` is gone. The steering keeps its shape while others listen, so that no living
    /// connection is moved; that core's share of new connections is refused meanwhile.
    pub(crate) fn release(&self, core: u8, port: u16) {
        let mut state = self.lock();
        let Some(entry) = state.ports.get_mut(&port) else {
            return;
        };
        entry.bound.retain(|c| *c != core);
        entry.waiters.retain(|w| w.core != core);
        if entry.bound.is_empty() {
            state.ports.remove(&port);
            state.front.close(port);
        }
        let woken = state.settle();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
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
        let mut state = self.lock();
        // Another core may have answered the bind since main was polled: then main is about to run again.
        let answered = to == Main::Binding && !state.main_awaits_bind(core);
        let main = &mut state.mains[usize::from(core)];
        if *main == Main::Settled || *main == to || answered {
            return;
        }
        *main = to;
        if state.mains.iter().all(|main| *main != Main::Running) {
            self.begun.store(true, Ordering::Release);
        }
        let woken = state.settle();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Whether every main has had its first turn: what it binds at its start is bound. Before that a core takes no
    /// packets, so that a client that is quicker than the server's start is not refused.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in one main must not hide the table from the others' drain; every change below is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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
            entry.dynamic && !entry.serving && same && !entry.bound.contains(&core)
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
            serving: false,
            bound: vec![core],
            published: Vec::new(),
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

    fn main_awaits_bind(&self, core: u8) -> bool {
        let mut waiters = self.ports.values().flat_map(|entry| &entry.waiters);
        waiters.any(|waiter| waiter.core == core && waiter.from_main)
    }

    /// Serves every port whose listeners are known; answers who is to be woken, outside the lock.
    fn settle(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        // Nobody can bind before something is answered: then all waiting ports are as complete as they get.
        let stuck = self.mains.iter().all(|main| *main != Main::Running);
        let State {
            front,
            mains,
            ports,
            ..
        } = self;
        for (port, entry) in ports.iter_mut().filter(|(_, entry)| !entry.serving) {
            let known =
                |core: usize| mains[core] == Main::Settled || entry.bound.contains(&(core as u8));
            if !stuck && !(0..mains.len()).all(known) {
                continue;
            }
            entry.serving = true;
            entry.bound.sort_unstable();
            entry.published.clone_from(&entry.bound);
            front.serve(*port, &entry.published);
            for waiter in entry.waiters.drain(..) {
                let main = &mut mains[usize::from(waiter.core)];
                if waiter.from_main && *main == Main::Binding {
                    *main = Main::Running;
                }
                woken.push(waiter.waker);
            }
        }
        woken
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
        if self.serving && !self.published.contains(&core) {
            return in_use(format!(
                "port {port} already serves on cores {:?}; core {core} came too late: bind before main first waits",
                self.published
            ));
        }
        self.bound.push(core);
        Ok(())
    }
}
