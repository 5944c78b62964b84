//! State that the tasks of one core share with its loop: the stack, the time of this turn, the wakers that are not tasks.
//! A task reaches it through a thread-local; the loop holds no borrow while it polls a task, and nothing in here drops
//! a user's value while it holds one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::mem::{ManuallyDrop, needs_drop};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use janus_csb::{FlowId, ShardEnd};
use janus_io::mpsc::Receiver;
use janus_mem::Pool;
use janus_tcp::{ConnId, Error, Instant, ListenerId, SocketOptions, Stack, Token};
use janus_wire::FlowKey;

use super::emptying::Emptying;
use super::forwarder::Forwarder;
use super::handlers::Handlers;
use super::moves::{Arrival, Moves};
use super::offers::Offers;
use super::shared::Shared;
use super::statistics::LoopStatistics;
use super::tuple_claims::TupleClaims;
use super::waiters::{STORED, Side, Waiters};
use crate::control::datagrams::Way;
use crate::inbox::{Inbox, Owner};
use crate::task::Executor;

impl Owner {
    /// Runs `job` on this shard, from another thread; nowhere when it has ended.
    #[cold]
    pub(crate) fn send_job(self, job: impl FnOnce(&CoreContext) + Send + 'static) {
        self.run(move || _ = with_own(self, job));
    }
}

/// Parts that a core begins with.
pub(crate) struct Parts {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) stack: Stack,
    pub(crate) pool: Pool,
    pub(crate) steering: ShardEnd,
    pub(crate) forwarder: Forwarder,
    pub(crate) arrivals: Receiver<Arrival>,
}

/// One core's shared part.
pub(crate) struct CoreContext {
    /// This shard in the whole process: what a stream carries.
    pub(crate) owner: Owner,
    /// This shard within its runtime.
    pub(crate) core: u8,
    pub(crate) stack: RefCell<Stack>,
    pub(crate) pool: RefCell<Pool>,
    pub(crate) steering: RefCell<ShardEnd>,
    /// Parts of the runtime.
    pub(crate) shared: Arc<Shared>,
    pub(crate) now: Cell<Instant>,
    /// Gone once the runtime is ending, and every task with it.
    pub(crate) executor: RefCell<Option<Executor>>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) waiters: RefCell<Waiters>,
    /// Gone with the tasks.
    pub(crate) handlers: Handlers,
    pub(crate) forwarder: RefCell<Forwarder>,
    pub(crate) moves: RefCell<Moves>,
    pub(crate) emptying: RefCell<Emptying>,
    pub(crate) offers: RefCell<Offers>,
    pub(crate) tuple_claims: RefCell<TupleClaims>,
    /// A connection was opened from here.
    pub(crate) has_opened: Cell<bool>,
    /// Wakers that are no task's and wait for the runtime's shutdown, by a number each.
    pub(crate) closing: RefCell<BTreeMap<u64, Waker>>,
    pub(crate) places: Cell<u64>,
    /// The main of this core is being polled.
    pub(crate) in_main: Cell<bool>,
    /// It waited in a bind during this poll.
    pub(crate) main_in_bind: Cell<bool>,
    /// Its main has ended.
    pub(crate) main_over: Cell<bool>,
    /// Its loop has panicked.
    pub(crate) fallen: Cell<bool>,
    pub(crate) statistics: LoopStatistics,
}

/// Without a destructor, so that its place is there for as long as the thread is: a core may be driven in a function of `atexit`, or in
/// the destructor of another thread-local. Guards put back what they found, so that at the end it holds nothing.
type Current = RefCell<Option<ManuallyDrop<Rc<CoreContext>>>>;

const _: () = assert!(!needs_drop::<Current>());

thread_local! {
    static CURRENT: Current = const { RefCell::new(None) };
}

/// Makes `core_context` this thread's core until the guard is dropped. Guards nest.
pub(crate) fn enter(ctx: Rc<CoreContext>) -> Entered {
    Entered {
        before: CURRENT.replace(Some(ManuallyDrop::new(ctx))),
    }
}

pub(crate) struct Entered {
    before: Option<ManuallyDrop<Rc<CoreContext>>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = CURRENT.replace(self.before.take());
        // Outside of the cell's borrow: the last owner of a core drops what it holds.
        drop(left.map(ManuallyDrop::into_inner));
    }
}

/// Calls `f` with this thread's core, if the thread is one.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&CoreContext) -> R) -> Option<R> {
    CURRENT.with_borrow(|ctx| ctx.as_deref().map(|ctx| f(ctx)))
}

/// Returns the parts of the runtime whose core this thread is.
pub(crate) fn shared() -> Option<Arc<Shared>> {
    with(|ctx| ctx.shared.clone())
}

/// Calls `f` when this thread is the core of `owner`.
#[inline]
pub(crate) fn with_own<R>(owner: Owner, f: impl FnOnce(&CoreContext) -> R) -> Option<R> {
    CURRENT.with_borrow(|ctx| {
        let own = ctx.as_deref().filter(|ctx| ctx.owner == owner);
        own.map(|ctx| f(ctx))
    })
}

impl CoreContext {
    pub(crate) fn new(owner: Owner, core: u8, shared: Arc<Shared>, parts: Parts) -> CoreContext {
        let Parts {
            inbox,
            stack,
            pool,
            steering,
            forwarder,
            arrivals,
        } = parts;
        CoreContext {
            owner,
            core,
            now: Cell::new(shared.clock.now()),
            shared,
            stack: RefCell::new(stack),
            pool: RefCell::new(pool),
            steering: RefCell::new(steering),
            executor: RefCell::new(None),
            inbox,
            waiters: RefCell::default(),
            handlers: Handlers::default(),
            forwarder: RefCell::new(forwarder),
            moves: RefCell::new(Moves::new(arrivals)),
            emptying: RefCell::default(),
            offers: RefCell::default(),
            tuple_claims: RefCell::default(),
            has_opened: Cell::new(false),
            closing: RefCell::default(),
            places: Cell::new(0),
            in_main: Cell::new(false),
            main_in_bind: Cell::new(false),
            main_over: Cell::new(false),
            fallen: Cell::new(false),
            statistics: LoopStatistics::default(),
        }
    }

    /// Runs `call` on the stack at this turn's time.
    #[inline]
    pub(crate) fn on_stack<R>(&self, call: impl FnOnce(&mut Stack, Instant) -> R) -> R {
        call(&mut self.stack.borrow_mut(), self.now.get())
    }

    /// The token under which `waker` is woken when `side` is ready: the task's id, or a slot of the slab.
    #[inline]
    pub(crate) fn token(&self, waker: &Waker, side: Side) -> Token {
        if let Some(task) = crate::task::local_id(waker) {
            return Token(task);
        }
        let (token, replaced) = self.waiters.borrow_mut().store(side, waker.clone());
        drop(replaced);
        token
    }

    /// Wakes whoever stands behind a token the stack gave back.
    #[inline]
    pub(crate) fn wake(&self, token: Token) {
        if token.0 & STORED == 0 {
            crate::task::wake_local(token.0);
            return;
        }
        let waker = self.waiters.borrow_mut().take(token.0);
        if let Some(waker) = waker {
            crate::task::wake_foreign(waker);
        }
    }

    /// The handle of `conn` is gone: the stack ends the connection in order.
    pub(crate) fn close(&self, conn: ConnId) {
        self.on_stack(|stack, now| stack.close(now, conn));
        self.served(conn, false);
        for side in [Side::Read(conn.index), Side::Write(conn.index)] {
            let forgotten = self.waiters.borrow_mut().forget(side);
            drop(forgotten);
        }
    }

    /// The handle of a listener is gone.
    pub(crate) fn unlisten(&self, listener: ListenerId, port: u16) {
        self.on_stack(|stack, now| stack.unlisten(now, listener));
        self.shared.mailbox.board(self.core).hunger.set(port, false);
        let forgotten = self
            .waiters
            .borrow_mut()
            .forget(Side::Accept(u32::from(port)));
        drop(forgotten);
        // At the end of the runtime no core takes over.
        if self.shared.control.release(self.core, port) && !self.shared.ending.stopping() {
            self.forwarder.borrow_mut().leaving.add(port);
        }
    }

    /// Opens a connection from a source port with which every packet of it comes to this shard. `address` may be unspecified.
    pub(crate) fn connect(
        &self,
        address: IpAddr,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> Result<ConnId, Error> {
        self.begins_to_open(remote.ip())?;
        self.on_stack(|stack, now| {
            stack.connect_from(now, address, remote, options, |flow| self.owns(flow))
        })
    }

    pub(super) fn begins_to_open(&self, remote: IpAddr) -> Result<(), Error> {
        let passage = self.shared.passage.as_deref();
        if passage.is_some_and(|passage| !passage.admits(remote)) {
            return Err(Error::NetworkUnreachable);
        }
        if !self.has_opened.replace(true) {
            self.opens();
        }
        Ok(())
    }

    /// A number that nothing else here has.
    pub(crate) fn next_place(&self) -> u64 {
        let place = self.places.get();
        self.places.set(place + 1);
        place
    }

    /// Datagrams that came here in pieces, which no port steers, go to the cores that have their ports; what there is no room for
    /// on the way is dropped.
    #[cold]
    pub(crate) fn carry_datagrams(&self, first: (u16, Box<[u8]>)) {
        let mut next = Some(first);
        while let Some((port, packet)) = next {
            match self.shared.datagrams.way(self.owner, port, packet) {
                Way::To(owner, carried) => {
                    owner.send_job(move |ctx| ctx.take_datagram(carried.packet()));
                }
                Way::Full => self.on_stack(|stack, _| stack.udp_astray_lost()),
                Way::Stays(packet) => self.take_datagram(&packet),
            }
            next = self.on_stack(|stack, _| stack.udp_astray());
        }
    }

    fn take_datagram(&self, packet: &[u8]) {
        self.on_stack(|stack, now| stack.udp_take_astray(now, packet));
    }

    /// Where a client outside finds the listener on `local`.
    pub(crate) fn reachable_at(&self, local: SocketAddr) -> SocketAddr {
        if let Some(passage) = &self.shared.passage {
            return passage.reachable_at(local);
        }
        let port = local.port();
        let same_family = |own: &IpAddr| own.is_ipv4() == local.is_ipv4();
        let stack = self.stack.borrow();
        let own = stack.interface().addresses.iter().map(|own| own.addr);
        match own
            .filter(|_| local.ip().is_unspecified())
            .find(same_family)
        {
            Some(own) => SocketAddr::new(own, port),
            None => SocketAddr::new(local.ip(), port),
        }
    }

    /// Rule 10 of the balancer's protocol: what I/O cores look up and every ring from theirs to the newest must name
    /// this shard.
    pub(super) fn owns(&self, flow: &FlowKey) -> bool {
        let key = self.shared.toeplitz.key_of(flow);
        let steering = self.steering.borrow();
        steering.may_open(
            key,
            flow.local_port(),
            FlowId(self.shared.flow_names.of(flow)),
        )
    }

    /// This shard is about to open connections, or to take packets: by the rings that were made before there were any.
    pub(crate) fn opens(&self) {
        self.shared.control.opens();
        let mut steering = self.steering.borrow_mut();
        // Short: others hold the steering's lock for as long as it takes to copy a pointer.
        while steering.is_behind() && !steering.refresh() {
            std::hint::spin_loop();
        }
    }
}

/// The error where no core is.
pub(crate) fn no_core() -> io::Error {
    io::Error::other(
        "no Janus core runs on this thread: call this inside a runtime's main or a task it spawned",
    )
}
