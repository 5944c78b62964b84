//! One connection of a server, from its first byte to its last. Between requests it is a few words, or at rest ([`at_rest`]); the future
//! that handles received bytes comes from the pool and goes back when all requests are answered.

mod at_rest;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::body::{Body, BodyState};
use crate::error::Outcome;
use crate::framing::{self, Length};
use crate::head::{self, HeadIndex, Progress};
use crate::input::Input;
use crate::options::Options;
use crate::pace::Pace;
use crate::pool::{self, Buffers, Pooled};
use crate::request::Request;
use crate::response::{self, Output, Responder, Sent};
use crate::transport::{self, Transport};
use crate::{Error, Reject, Result};

/// How long an idle connection is kept when its server ends: a request may be under way already, and is answered then.
const LAST_REQUEST: Duration = Duration::from_secs(1);
/// Most bytes that are discarded while a refused connection is being closed.
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// Waits until the server ends, and then for requests that were under way.
#[cfg(feature = "hyper")]
pub(crate) async fn last_request_is_due() {
    janus::shutting_down().await;
    janus::time::sleep(LAST_REQUEST).await;
}

pub(crate) static DEFAULT: Options = Options::DEFAULT;

pub use at_rest::{serve_listener, serve_listener_with};

/// Serves the requests of one connection, one after the other, until either side ends it. Between requests it keeps the task that awaits
/// this; [`serve_listener`] needs none.
///
/// The handler gets each request with a responder for one response. If it returns an error before any part of the response was sent, the
/// client gets the status that fits the client's mistake, else 500.
///
/// ```
/// use janus::net::TcpListener;
/// use janus_http::Connection;
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.reachable_at();
/// janus::spawn(async move {
///     let (stream, _peer) = listener.accept().await?;
///     janus_http::serve(stream, async |_request, response| response.ok().send(b"hello").await).await
/// });
///
/// let mut client = Connection::connect(address).await?;
/// let mut response = client.get("localhost", "/").await?;
/// assert_eq!(response.status(), 200);
/// let mut body = Vec::new();
/// response.read_to_end(&mut body).await?;
/// assert_eq!(body, b"hello");
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Errors
/// The reason for which the connection ended early.
///
/// # Cancel safety
/// Dropping the future drops the connection, with the handler and what it has not sent.
pub fn serve<S, H>(stream: S, handler: H) -> impl Future<Output = Result<()>>
where
    S: Transport,
    H: AsyncFn(Request<'_, S>, Responder<'_, S>) -> Result<Sent> + 'static,
{
    serve_with(&DEFAULT, stream, handler)
}

/// Like [`serve`], but with limits of your own.
///
/// # Errors
/// Those of [`serve`].
///
/// # Cancel safety
/// Like [`serve`].
pub fn serve_with<S, H>(
    options: &'static Options,
    stream: S,
    handler: H,
) -> impl Future<Output = Result<()>>
where
    S: Transport,
    H: AsyncFn(Request<'_, S>, Responder<'_, S>) -> Result<Sent> + 'static,
{
    Serve {
        state: State::Waiting(stream, handler, None),
        options,
        since: None,
        phase: Phase::First,
        woken: Woken::Never,
        served: 0,
        work: answer::<S, H>,
    }
}

/// Next state of a connection when everything received is answered.
enum Next {
    /// Number of requests answered so far.
    Wait(u16),
    /// Still waits for a request: the bytes received were none.
    WaitOn,
    Close,
}

/// Kind of request that a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    First,
    /// A further request.
    Further,
    /// A request that may be under way, while the server ends.
    Last,
}

/// Way in which the task is woken to check the clock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// Not at all.
    Never,
    /// By the transport, with the limit of this phase.
    For(Phase),
    /// By a timer, as the transport cannot.
    ByTimer,
}

/// The connection's future. `work` is a function of size zero that makes the handling future, whose type has no name.
struct Serve<S: Transport, H, W, F: Future + 'static> {
    state: State<S, H, F>,
    options: &'static Options,
    /// Start of the wait for a request in milliseconds, wrapping and never zero; `None`: it has not begun.
    since: Option<NonZeroU32>,
    phase: Phase,
    woken: Woken,
    /// Requests answered, at most [`u16::MAX`].
    served: u16,
    work: W,
}

enum State<S: Transport, H, F: Future + 'static> {
    /// Waits for the first bytes of a request, or for the timer, if there is one.
    Waiting(S, H, Option<Box<S::Sleep>>),
    Handling(Pooled<F>),
    Done,
}

// Nothing is pinned in place: the handling future is in a box of its own.
impl<S: Transport, H, W, F: Future + 'static> Unpin for Serve<S, H, W, F> {}

impl<S, H, W, F> Serve<S, H, W, F>
where
    S: Transport,
    W: Fn(S, H, &'static Options, S::Piece, u16) -> F,
    F: Future<Output = (S, H, Outcome<Next>)> + 'static,
{
    /// Handles bytes received in the waiting state. Returns false when the peer has shut down.
    fn begin(&mut self, received: io::Result<Option<S::Piece>>) -> Result<bool> {
        let State::Waiting(stream, handler, _) = std::mem::replace(&mut self.state, State::Done)
        else {
            unreachable!("something is handled already")
        };
        let Some(piece) = received? else {
            return Ok(false);
        };
        let work = (self.work)(stream, handler, self.options, piece, self.served);
        self.state = State::Handling(Pooled::new(work));
        Ok(true)
    }

    /// Ends when the wait for a request exceeds its limit.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let State::Waiting(stream, _, timer) = &mut self.state else {
            return Poll::Pending;
        };
        if self.phase != Phase::Last && stream.is_leaving() {
            self.phase = Phase::Last;
            *timer = Some(Box::new(stream.sleep(LAST_REQUEST)));
        }
        let limit = match self.phase {
            Phase::First => self.options.first_byte_timeout,
            Phase::Further => self.options.idle_timeout,
            // Bounded by the timer.
            Phase::Last => None,
        };
        if let Some(limit) = limit {
            let now = stream.now().as_millis() as u32;
            let since = self
                .since
                .or(NonZeroU32::new(now))
                .unwrap_or(NonZeroU32::MAX);
            self.since = Some(since);
            let waited = Duration::from_millis(now.wrapping_sub(since.get()).into());
            if waited >= limit {
                return Poll::Ready(());
            }
            let woken = Woken::For(self.phase);
            if self.woken != woken && self.woken != Woken::ByTimer {
                self.woken = match stream.wake_reader(Some(limit)) {
                    true => woken,
                    false => Woken::ByTimer,
                };
            }
            if self.woken == Woken::ByTimer && timer.is_none() {
                *timer = Some(Box::new(stream.sleep(limit - waited)));
            }
        }
        match timer {
            Some(timer) => Pin::new(&mut **timer).poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<S, H, W, F> Future for Serve<S, H, W, F>
where
    S: Transport,
    W: Fn(S, H, &'static Options, S::Piece, u16) -> F,
    F: Future<Output = (S, H, Outcome<Next>)> + 'static,
{
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Waiting(stream, ..) => match stream.poll_recv(cx) {
                    Poll::Ready(received) => {
                        if !this.begin(received)? {
                            return Poll::Ready(Ok(()));
                        }
                    }
                    Poll::Pending => {
                        ready!(this.poll_patience(cx));
                        // Without an answer, since there was no request.
                        this.state = State::Done;
                        return Poll::Ready(Ok(()));
                    }
                },
                State::Handling(work) => {
                    let Poll::Ready((stream, handler, outcome)) = work.poll(cx) else {
                        return Poll::Pending;
                    };
                    this.state = State::Done;
                    match outcome? {
                        Next::Wait(served) => {
                            (this.phase, this.since) = (Phase::Further, None);
                            this.served = served;
                        }
                        Next::WaitOn => {}
                        Next::Close => return Poll::Ready(Ok(())),
                    }
                    this.state = State::Waiting(stream, handler, None);
                }
                State::Done => return Poll::Pending,
            }
        }
    }
}

/// Like [`answer_all`], with the stream and the handler for that time.
async fn answer<S, H>(
    stream: S,
    handler: H,
    options: &'static Options,
    first: S::Piece,
    served: u16,
) -> (S, H, Outcome<Next>)
where
    S: Transport,
    H: AsyncFn(Request<'_, S>, Responder<'_, S>) -> Result<Sent>,
{
    let outcome = answer_all(&stream, &handler, options, first, served).await;
    (stream, handler, outcome)
}

/// Answers all requests that have arrived, beginning with `first`, after so many before.
async fn answer_all<S, H>(
    stream: &S,
    handler: &H,
    options: &'static Options,
    first: S::Piece,
    served: u16,
) -> Outcome<Next>
where
    S: Transport,
    H: AsyncFn(Request<'_, S>, Responder<'_, S>) -> Result<Sent>,
{
    let mut buffers = pool::take_buffers();
    let Buffers {
        index,
        carry,
        output,
    } = &mut *buffers;
    let mut connection = Conversation {
        stream,
        options,
        input: Input::new(std::mem::take(carry)),
        index,
        output,
        served,
    };
    connection.output.borrow_mut().serve(options);
    connection.input.push(first);
    let outcome = connection.run(handler).await;
    *carry = connection.input.into_carry();
    pool::put_buffers(buffers);
    outcome
}

/// A connection with requests in hand.
struct Conversation<'a, S: Transport> {
    stream: &'a S,
    options: &'static Options,
    input: Input<S::Piece>,
    index: &'a mut HeadIndex,
    output: &'a RefCell<Output>,
    /// Requests answered, at most [`u16::MAX`].
    served: u16,
}

impl<S: Transport> Conversation<'_, S> {
    async fn run<H>(&mut self, handler: &H) -> Outcome<Next>
    where
        H: AsyncFn(Request<'_, S>, Responder<'_, S>) -> Result<Sent>,
    {
        let mut next = Next::WaitOn;
        loop {
            match self.next_head().await {
                Ok(true) => {}
                Ok(false) => return Ok(next),
                Err(error) => {
                    self.output.borrow_mut().begin(1, false, false);
                    return self.refuse(error).await;
                }
            }
            match self.exchange(handler).await {
                Ok(End::KeepAlive) => next = Next::Wait(self.served),
                Ok(End::Close) => {
                    response::flush(self.stream, self.output).await?;
                    return Ok(Next::Close);
                }
                Ok(End::Linger) => {
                    response::flush(self.stream, self.output).await?;
                    self.linger().await?;
                    return Ok(Next::Close);
                }
                Err(error) => return self.refuse(error).await,
            }
        }
    }

    /// Waits until the next head is complete; returns false when no part of one has come.
    async fn next_head(&mut self) -> Outcome<bool> {
        self.input.skip_empty_lines();
        if self.input.bytes().is_empty() {
            response::flush(self.stream, self.output).await?;
            return Ok(false);
        }
        match self
            .index
            .parse_request(self.input.bytes(), self.options.head_bytes)?
        {
            Progress::Whole => Ok(true),
            Progress::Partial => {
                response::flush(self.stream, self.output).await?;
                self.rest_of_head().await
            }
        }
    }

    /// Receives the rest of a head. It is parsed again only when its end has come, or it has become too long.
    async fn rest_of_head(&mut self) -> Outcome<bool> {
        let mut sleep = self
            .options
            .head_timeout
            .map(|time| self.stream.sleep(time));
        let mut looked = 0;
        loop {
            match transport::recv_or(self.stream, sleep.as_mut()).await {
                None => return Err(Reject::HeadTimeout.into()),
                Some(received) => {
                    let piece = received?.ok_or_else(|| Box::new(Error::UnexpectedEnd))?;
                    self.input.push(piece);
                }
            }
            let bytes = self.input.bytes();
            let (ended, so_far) = head::find_end(bytes, looked);
            looked = so_far;
            if ended || bytes.len() >= self.options.head_bytes {
                match self.index.parse_request(bytes, self.options.head_bytes)? {
                    Progress::Whole => return Ok(true),
                    Progress::Partial => looked = bytes.len(),
                }
            }
        }
    }

    /// Handles one request and its response.
    async fn exchange<H>(&mut self, handler: &H) -> Outcome<End>
    where
        H: AsyncFn(Request<'_, S>, Responder<'_, S>) -> Result<Sent>,
    {
        let (stream, output, index) = (self.stream, self.output, &*self.index);
        let bytes = self.input.bytes();
        let behind = bytes.get(index.len()..).unwrap_or_default();
        let to_head = index.has_method(bytes, "HEAD");
        output.borrow_mut().begin(index.minor(), to_head, false);
        let framing = framing::of_request(index, bytes)?;
        if matches!(framing.length, Length::Sized(n) if n > self.options.body_bytes) {
            return Err(Reject::BodyTooLarge.into());
        }
        self.served = self.served.saturating_add(1);
        let last = self
            .options
            .requests
            .is_some_and(|most| self.served >= most.get());
        output.borrow_mut().keep_alive = framing.keep_alive && !last && !stream.is_leaving();

        // A client that has begun the body does not wait for 100.
        let mut stall = output.borrow().stall();
        let waits = Cell::new(framing.expects_continue && behind.is_empty());
        if waits.get() {
            // The 100 is not written through the output, so the output must be empty before.
            core::future::poll_fn(|cx| {
                let mut output = output.borrow_mut();
                output.poll_flush_earlier(stream, &mut stall, cx)
            })
            .await?;
        }
        let mut state = BodyState::new(
            framing.length,
            self.options.body_bytes,
            Some(Pace::new(self.options)),
        );
        {
            let request = Request::new(bytes, index, Body::new(stream, behind, &mut state, &waits));
            let mut work = pin!(handler(request, Responder::new(stream, output, &waits)));
            let _proof = core::future::poll_fn(|cx| {
                let done = work.as_mut().poll(cx).map_err(Box::new);
                if done.is_pending() {
                    // Earlier answers do not wait for this one. Any other error is returned by the next write.
                    let mut output = output.borrow_mut();
                    let flushed = output.poll_flush_earlier(stream, &mut stall, cx);
                    if let Poll::Ready(Err(error)) = flushed
                        && let Error::Stalled = *error
                    {
                        return Poll::Ready(Err(error));
                    }
                }
                done
            })
            .await?;
        }
        if !output.borrow().is_complete() {
            let misuse = "the handler returned the proof of another response";
            return Err(Box::new(Error::Misuse(misuse)));
        }
        if !output.borrow().keep_alive {
            return Ok(if state.is_done() {
                End::Close
            } else {
                End::Linger
            });
        }
        if !state.is_done() {
            response::flush(stream, output).await?;
            state.allow(self.options.drain_bytes);
            if Body::new(stream, behind, &mut state, &waits)
                .skip()
                .await
                .is_err()
            {
                return Ok(End::Linger);
            }
        }
        let head = index.len();
        state.leave(&mut self.input, head);
        Ok(End::KeepAlive)
    }

    /// Answers a refused request or a failed handler, if an answer can still be sent, and returns the error.
    async fn refuse(&mut self, error: Box<Error>) -> Outcome<Next> {
        {
            let mut output = self.output.borrow_mut();
            match *error {
                Error::Rejected(reject) => {
                    output.refuse(reject.status(), reject.explanation(), self.stream.now());
                }
                Error::UnexpectedEnd | Error::Stalled => return Err(error),
                Error::Io(_) | Error::BodyTooLong(_) | Error::Misuse(_) | Error::Handler(_) => {
                    output.refuse(500, "the server could not answer", self.stream.now());
                }
            }
            // A response that had begun cannot be completed: only the end of the connection tells the client.
            if !output.is_complete() {
                return Err(error);
            }
        }
        response::flush(self.stream, self.output).await?;
        self.linger().await?;
        Err(error)
    }

    /// Shuts down our side and waits a little for the peer's end. Closing while the peer still sends would reset the connection, and the
    /// reset may overtake our answer.
    async fn linger(&mut self) -> Outcome<()> {
        core::future::poll_fn(|cx| self.stream.poll_shutdown(cx)).await?;
        let mut sleep = self.stream.sleep(self.options.linger);
        let mut left = LINGER_BYTES_MAX;
        while let Some(Ok(Some(piece))) = transport::recv_or(self.stream, Some(&mut sleep)).await {
            left = left.saturating_sub(piece.len().max(1));
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// State in which an exchange leaves the connection.
enum End {
    /// Ready for the next request.
    KeepAlive,
    /// To be closed; the peer has nothing more to send.
    Close,
    /// To be closed while the peer may still be sending.
    Linger,
}

#[cfg(test)]
mod tests;
