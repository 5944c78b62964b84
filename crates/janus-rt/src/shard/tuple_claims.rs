//! Connections from a local port that somebody else chose, whose packets may come to another core than the one that wants
//! to open them: rule 11 of the balancer's protocol. The core asks, along the way that a SYN of the tuple would take: who
//! knows the tuple says that it is taken, and where the walk ends a stub is installed, which hands everything on to the
//! core that asked, and only then does that core open. When the connection is over there, it says so to the stub's.
//!
//! Questions and answers go by the inboxes, so nothing here is for the hot path. A question carries a tag as a packet does;
//! one that has waited for so long that its ring is forgotten is asked again.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use janus_csb::{FlowId, ShardId, Step, Tag, walk};
use janus_tcp::{ConnId, Error, Instant, SocketOptions};
use janus_wire::FlowKey;

use super::core_context::{self, CoreContext};
use crate::inbox::{Owner, Refused};

/// How often it is looked whether a connection with a stub elsewhere is over.
const LOOK: Duration = Duration::from_millis(100);
/// Questions from the beginning, when they took too long on their way.
const TRIES: u32 = 8;
/// Connections that wait for an answer.
const ASKING_MAX: usize = 1 << 8;

/// What a core has asked, and where stubs stand for it.
#[derive(Default)]
pub(crate) struct TupleClaims {
    next: u64,
    asking: Vec<Asking>,
    stubs: Vec<StubElsewhere>,
    look_at: Option<Instant>,
}

struct Asking {
    number: u64,
    local: SocketAddr,
    remote: SocketAddr,
    options: SocketOptions,
    tries: u32,
    opened: Option<Result<ConnId, Error>>,
    waker: Option<Waker>,
    /// The answer is not waited for, and comes all the same.
    forgotten: bool,
}

/// A tuple that this core has opened, or was allowed to, and the core that hands its packets on.
struct StubElsewhere {
    flow: FlowKey,
    holder: u8,
}

/// A question on its way.
#[derive(Clone, Copy)]
struct Question {
    flow: FlowKey,
    key: u32,
    tag: Tag,
    asker: u8,
    number: u64,
}

#[derive(Clone, Copy)]
enum Answer {
    /// The tuple is the asker's. `Some`: this core hands its packets on.
    Granted(Option<u8>),
    Refused(Error),
    /// It was too long on its way.
    Again,
}

impl Asking {
    fn is_for(&self, flow: &FlowKey) -> bool {
        (flow.local_addr(), flow.peer_addr()) == (self.local, self.remote)
    }
}

impl TupleClaims {
    fn place(&self, number: u64) -> Option<usize> {
        let mut asking = self.asking.iter();
        asking.position(|asking| asking.number == number)
    }

    /// Whether a stub of `flow` stands at another core. Then that is the flow's place, as steering sees it, and an update is
    /// told of it there only: who is led here past the stub would not learn that the tuple is still taken when the flow
    /// is over and the stub is not.
    pub(crate) fn stands_elsewhere(&self, flow: &FlowKey) -> bool {
        self.stubs.iter().any(|stub| stub.flow == *flow)
    }

    /// When [`CoreContext::look_after_stubs`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }
}

impl CoreContext {
    /// Opens a connection from a port that somebody else chose; `local`'s address may be unspecified.
    pub(crate) fn open_tuple(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> OpenTuple {
        let begun = self.begin_claim(local, remote, options);
        OpenTuple {
            owner: self.owner,
            state: begun.unwrap_or_else(|error| OpenState::Opened(Err(error))),
        }
    }

    fn begin_claim(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> Result<OpenState, Error> {
        self.begins_to_open(remote.ip())?;
        let address = self.own_address(local.ip(), remote.ip());
        let local = SocketAddr::new(address.ok_or(Error::AddrNotAvailable)?, local.port());
        let flow = FlowKey::new(remote, local).ok_or(Error::InvalidAddress)?;
        let known = |stack: &janus_tcp::Stack| stack.holds(&flow) || stack.stub_of(&flow).is_some();
        if self.owns(&flow) || known(&self.stack.borrow()) {
            // Whether it is taken the stack says.
            let opened =
                self.on_stack(|stack, now| stack.connect_with(now, local, remote, options));
            return Ok(OpenState::Opened(opened));
        }
        let mut claims = self.tuple_claims.borrow_mut();
        if claims.asking.len() >= ASKING_MAX {
            return Err(Error::TooManyConnections);
        }
        claims.next += 1;
        let number = claims.next;
        claims.asking.push(Asking {
            number,
            local,
            remote,
            options: *options,
            tries: 1,
            opened: None,
            waker: None,
            forgotten: false,
        });
        drop(claims);
        self.ask(&flow, number);
        Ok(OpenState::Asked(number))
    }

    fn own_address(&self, local: IpAddr, remote: IpAddr) -> Option<IpAddr> {
        if local.is_unspecified() {
            return self.stack.borrow().interface().source_for(remote);
        }
        let stack = self.stack.borrow();
        let mut own = stack.interface().addresses.iter().map(|own| own.addr);
        own.any(|own| own == local).then_some(local)
    }

    /// Begins to ask, as a polling core begins with a SYN.
    fn ask(&self, flow: &FlowKey, number: u64) {
        let key = self.shared.toeplitz.key_of(flow);
        let name = || FlowId(self.shared.flow_names.of(flow));
        let steering = self.steering.borrow();
        let found = steering
            .steering()
            .look_up_flow(key, flow.local_port(), name);
        drop(steering);
        let (owner, tag) = found;
        let question = Question {
            flow: *flow,
            key,
            tag,
            asker: self.core,
            number,
        };
        if owner == ShardId(self.core) {
            self.consider(question);
        } else {
            self.pass_on(owner, question);
        }
    }

    fn pass_on(&self, to: ShardId, question: Question) {
        let sent = self.tell(to.0, move |ctx| ctx.consider(question));
        if sent.is_err() {
            // It has ended, or is told more than it can do.
            self.answer(question, Answer::Refused(Error::AddrNotAvailable));
        }
    }

    fn tell(
        &self,
        core: u8,
        what: impl FnOnce(&CoreContext) + Send + 'static,
    ) -> Result<(), Refused> {
        let job = move || {
            core_context::with(what);
        };
        self.shared.cores.run(core, Box::new(job))
    }

    /// Rules 3 to 5, for a question in the place of a packet.
    fn consider(&self, question: Question) {
        let Question {
            flow,
            key,
            tag,
            asker,
            ..
        } = question;
        let mut stack = self.stack.borrow_mut();
        let own = asker == self.core;
        if !own && stack.holds(&flow) {
            drop(stack);
            return self.answer(question, Answer::Refused(Error::AddrInUse));
        }
        if let Some(shard) = stack.stub_of(&flow) {
            drop(stack);
            let answer = match shard == u16::from(asker) {
                // Of its last connection, which it has not said to be over.
                true => Answer::Granted(Some(self.core)),
                false => Answer::Refused(Error::AddrInUse),
            };
            return self.answer(question, answer);
        }
        let steering = self.steering.borrow();
        let me = ShardId(self.core);
        let step = walk(steering.steering(), me, key, flow.local_port(), tag);
        drop(steering);
        match step {
            Step::Stay => {
                let holder = (!own).then_some(self.core);
                let stub = match own {
                    true => Ok(()),
                    false => stack.add_stub(&flow, u16::from(asker)),
                };
                drop(stack);
                let granted = Answer::Granted(holder);
                self.answer(question, stub.map_or_else(Answer::Refused, |()| granted));
            }
            Step::Forward { to, tag } => {
                drop(stack);
                self.pass_on(to, Question { tag, ..question });
            }
            Step::Expired => {
                drop(stack);
                self.answer(question, Answer::Again);
            }
        }
    }

    fn answer(&self, question: Question, answer: Answer) {
        if question.asker == self.core {
            return self.answered(question, answer);
        }
        let told = self.tell(question.asker, move |ctx| ctx.answered(question, answer));
        if told.is_err()
            && let Answer::Granted(Some(_)) = answer
        {
            // It does not know, so it does not open.
            let mut stack = self.stack.borrow_mut();
            stack.remove_stub(&question.flow, u16::from(question.asker));
        }
    }

    /// An answer has come back.
    fn answered(&self, Question { flow, number, .. }: Question, answer: Answer) {
        let mut claims = self.tuple_claims.borrow_mut();
        if let Answer::Granted(Some(holder)) = answer {
            // Also where it is not wanted any more: what is not held here is over.
            if !claims.stands_elsewhere(&flow) {
                claims.stubs.push(StubElsewhere { flow, holder });
            }
            claims.look_at = Some(self.now.get() + LOOK);
        }
        let Some(at) = claims.place(number) else {
            return;
        };
        if claims.asking[at].forgotten {
            claims.asking.swap_remove(at);
            return;
        }
        let asking = &mut claims.asking[at];
        if matches!(answer, Answer::Again) && asking.tries < TRIES {
            asking.tries += 1;
            drop(claims);
            return self.ask(&flow, number);
        }
        let (local, remote, options) = (asking.local, asking.remote, asking.options);
        let opened = match answer {
            Answer::Granted(_) => {
                self.on_stack(|stack, now| stack.connect_with(now, local, remote, &options))
            }
            Answer::Refused(error) => Err(error),
            Answer::Again => Err(Error::AddrNotAvailable),
        };
        asking.opened = Some(opened);
        let waker = asking.waker.take();
        drop(claims);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Once in a while: what is over here is said to whoever has a stub of it.
    #[cold]
    pub(crate) fn look_after_stubs(&self, now: Instant) {
        let mut claims = self.tuple_claims.borrow_mut();
        let me = u16::from(self.core);
        let TupleClaims { stubs, asking, .. } = &mut *claims;
        *stubs = std::mem::take(stubs)
            .into_iter()
            .filter(|&StubElsewhere { flow, holder }| {
                // While it is asked for again the stub may be granted again, and that word is on its way already.
                let asked = |asking: &Asking| asking.opened.is_none() && asking.is_for(&flow);
                if self.stack.borrow().holds(&flow) || asking.iter().any(asked) {
                    return true;
                }
                let over =
                    move |ctx: &CoreContext| _ = ctx.stack.borrow_mut().remove_stub(&flow, me);
                // One that has ended took its stubs along.
                self.tell(holder, over) == Err(Refused::Full)
            })
            .collect();
        claims.look_at = (!claims.stubs.is_empty()).then_some(now + LOOK);
    }

    /// This is not waited for any more.
    fn forget_claim(&self, number: u64) {
        let mut claims = self.tuple_claims.borrow_mut();
        let Some(at) = claims.place(number) else {
            return;
        };
        let asking = &mut claims.asking[at];
        asking.forgotten = true;
        let waker = asking.waker.take();
        let opened = asking.opened;
        if opened.is_some() {
            claims.asking.swap_remove(at);
        }
        drop(claims);
        drop(waker);
        if let Some(Ok(conn)) = opened {
            self.close(conn);
        }
    }
}

/// See [`CoreContext::open_tuple`]. `None` on another core than that.
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct OpenTuple {
    owner: Owner,
    state: OpenState,
}

enum OpenState {
    Opened(Result<ConnId, Error>),
    Asked(u64),
    Taken,
}

impl Future for OpenTuple {
    type Output = Option<Result<ConnId, Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = core_context::with_own(self.owner, |ctx| {
            match std::mem::replace(&mut self.state, OpenState::Taken) {
                OpenState::Opened(opened) => return Poll::Ready(opened),
                OpenState::Taken => return Poll::Ready(Err(Error::NotConnected)),
                OpenState::Asked(number) => self.state = OpenState::Asked(number),
            }
            let OpenState::Asked(number) = self.state else {
                return Poll::Pending;
            };
            let mut claims = ctx.tuple_claims.borrow_mut();
            let Some(at) = claims.place(number) else {
                return Poll::Ready(Err(Error::NotConnected));
            };
            if let Some(opened) = claims.asking[at].opened {
                claims.asking.swap_remove(at);
                self.state = OpenState::Taken;
                return Poll::Ready(opened);
            }
            let old = claims.asking[at].waker.replace(cx.waker().clone());
            drop(claims);
            drop(old);
            Poll::Pending
        });
        match polled {
            None => Poll::Ready(None),
            Some(polled) => polled.map(Some),
        }
    }
}

impl Drop for OpenTuple {
    fn drop(&mut self) {
        let forget: Box<dyn FnOnce(&CoreContext) + Send> = match self.state {
            OpenState::Taken | OpenState::Opened(Err(_)) => return,
            OpenState::Opened(Ok(conn)) => Box::new(move |ctx| ctx.close(conn)),
            OpenState::Asked(number) => Box::new(move |ctx| ctx.forget_claim(number)),
        };
        let mut forget = Some(forget);
        let ctx = core_context::with_own(self.owner, |ctx| {
            if let Some(forget) = forget.take() {
                forget(ctx);
            }
        });
        if let (None, Some(forget)) = (ctx, forget) {
            self.owner.send_job(forget);
        }
    }
}
