//! Connections at rest: between two requests no task waits for them. A handler serves what has come and gives the connection back; the
//! record of the connection names the handler, and whatever comes next begins a new task.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::rc::Rc;

use janus_tcp::{ConnId, Rest, RestLimits};

use super::listener::TcpListener;
use super::stream::TcpStream;
use super::{foreign_core, on_stack};
use crate::inbox::Owner;
use crate::shard::core_context::{self, CoreContext};
use crate::shard::handlers::Serve;
use crate::task;

/// Serves every connection of a listener with `handler`, which is called whenever something has come on one (or the peer has ended), and
/// gives it back to [rest](ServedStream::rest) when that is dealt with. A connection at rest costs no task, only its record.
///
/// The handler returns `Ok(None)` where the connection is over; what it still has of the stream is closed then, as with an error or a
/// panic. It may wait for as long as it likes: the connection has its task until the handler returns.
///
/// ```
/// use janus::net::{TcpListener, TcpStream};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.reachable_at();
/// janus::spawn(janus::net::serve(listener, async |stream| {
///     let Some(piece) = stream.recv().await? else {
///         return Ok(None);
///     };
///     stream.send_buf(piece).await?;
///     Ok(Some(stream.rest()))
/// }));
///
/// let client = TcpStream::connect(address).await?;
/// for _ in 0..3 {
///     client.write_all(b"hello").await?;
///     let mut echo = [0; 5];
///     client.read_exact(&mut echo).await?;
///     assert_eq!(&echo, b"hello");
/// }
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Errors
/// Those of [`Handler::new`] and of [`accept`](TcpListener::accept). It does not return otherwise.
///
/// # Cancel safety
/// Dropping the future closes the listener. Connections that it has accepted are served on.
pub async fn serve<H>(listener: TcpListener, handler: H) -> io::Result<()>
where
    H: AsyncFn(ServedStream) -> io::Result<Option<Resting>> + 'static,
{
    Handler::new(handler)?.serve(listener).await
}

/// A function that serves connections which [rest](ServedStream::rest) between requests; see [`serve`]. It belongs to the core it was made
/// on. A core can have 64 at a time; one that nothing can come back to is dropped.
///
/// ```
/// use janus::net::{Handler, RestLimits, TcpListener, TcpStream};
/// use std::time::Duration;
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.reachable_at();
/// // Answers with the number of the question, and ends with the third.
/// let counts = Handler::new(async |stream| {
///     let Some(_question) = stream.recv().await? else {
///         return Ok(None);
///     };
///     let number = stream.carried() + 1;
///     stream.write_all(format!("{number}\n").as_bytes()).await?;
///     Ok((number < 3).then(|| stream.rest_with(number)))
/// })?;
/// counts.limit(RestLimits {
///     first: Some(Duration::from_secs(20)),
///     further: Some(Duration::from_secs(60)),
/// });
/// janus::spawn(async move {
///     // A server that speaks first: a connection may be used before it comes to rest.
///     let (stream, _peer) = listener.accept().await?;
///     stream.write_all(b"ask!\n").await?;
///     counts.rest(stream)
/// });
///
/// let client = TcpStream::connect(address).await?;
/// let mut heard = vec![0; 5];
/// client.read_exact(&mut heard).await?;
/// for _ in 0..3 {
///     client.write_all(b"?").await?;
///     let mut number = [0; 2];
///     client.read_exact(&mut number).await?;
///     heard.extend(number);
/// }
/// assert_eq!(heard, b"ask!\n1\n2\n3\n");
/// assert_eq!(client.read(&mut [0; 1]).await?, 0);
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
#[derive(Clone)]
pub struct Handler {
    held: Held<dyn Numbered>,
}

impl Handler {
    /// Makes a handler of this core.
    ///
    /// # Errors
    /// [`OutOfMemory`](io::ErrorKind::OutOfMemory) when this core has 64 handlers; one of kind [`Other`](io::ErrorKind::Other) outside a
    /// Janus core.
    pub fn new<H>(serve: H) -> io::Result<Handler>
    where
        H: AsyncFn(ServedStream) -> io::Result<Option<Resting>> + 'static,
    {
        let made = core_context::with(|ctx| {
            let owner = ctx.owner;
            ctx.add_handler(|number| Registered {
                owner,
                number,
                serve,
            })
        });
        let made = made.ok_or_else(core_context::no_core)?;
        let full = || {
            let text = "this core has 64 handlers already: let one serve several listeners";
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        };
        let held: Rc<dyn Numbered> = made.ok_or_else(full)?;
        Ok(Handler { held: Held(held) })
    }

    /// Limits how long connections may rest; beyond it they are closed in order, and no handler is called. Counts for those that rest
    /// already, too. A peer that sends what is not data (keep-alive, say) does not lengthen a rest by more than a sixteenth.
    pub fn limit(&self, limits: RestLimits) {
        let number = self.held.0.number();
        core_context::with_own(self.held.0.owner(), |ctx| {
            ctx.on_stack(|stack, now| stack.limit_rests(now, number, limits));
        });
    }

    /// Puts a connection at rest with this handler, which is called when something comes; at once if it is there. The connection is a new
    /// one to it: it [carries](ServedStream::carried) 0.
    ///
    /// # Errors
    /// An error of kind [`Other`](io::ErrorKind::Other) for a connection of another core than the handler's.
    pub fn rest(&self, stream: TcpStream) -> io::Result<()> {
        if stream.owner() != self.held.0.owner() {
            return Err(foreign_core());
        }
        let rest = Rest::new(self.held.0.number());
        let resting = Resting {
            stream,
            rest,
            goes_on: false,
        };
        resting.begin()
    }

    /// Serves every connection of a listener. They rest from the beginning, until something comes.
    ///
    /// # Errors
    /// Those of [`accept`](TcpListener::accept).
    ///
    /// # Cancel safety
    /// Dropping the future closes the listener. Connections that it has accepted are served on.
    pub async fn serve(&self, listener: TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            self.rest(stream)?;
            // The first request has often come with the end of the handshake: it need not wait for the next turn.
            core_context::with(CoreContext::begin_roused);
        }
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handler({})", self.held.0.number())
    }
}

/// A connection that a [`Handler`] is called for: a [`TcpStream`] that may be given back to rest.
pub struct ServedStream {
    stream: TcpStream,
    rest: Rest,
}

impl ServedStream {
    /// Bits that the connection carried through its rest ([`rest_with`](Self::rest_with)); 0 the first time.
    pub fn carried(&self) -> u16 {
        self.rest.carried()
    }

    /// Gives the connection back to rest, for the handler to return. It carries what it has carried.
    pub fn rest(self) -> Resting {
        let carried = self.carried();
        self.rest_with(carried)
    }

    /// Gives the connection back to rest with these bits, which the next call for it finds.
    pub fn rest_with(self, carried: u16) -> Resting {
        Resting {
            rest: self.rest.carrying(carried),
            stream: self.stream,
            goes_on: false,
        }
    }

    /// Gives the connection back as if nothing had come: its limit counts on from before.
    pub fn rest_on(self) -> Resting {
        Resting {
            stream: self.stream,
            rest: self.rest,
            goes_on: true,
        }
    }

    /// Returns the stream, which does not come to rest any more.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

impl Deref for ServedStream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl fmt::Debug for ServedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ServedStream");
        debug.field("stream", &self.stream);
        debug.field("carried", &self.carried()).finish()
    }
}

/// A connection that goes to rest once the handler has returned this. Dropping it closes the connection.
#[must_use = "a handler returns it; dropping it closes the connection"]
#[derive(Debug)]
pub struct Resting {
    stream: TcpStream,
    rest: Rest,
    goes_on: bool,
}

impl Resting {
    fn begin(self) -> io::Result<()> {
        let Resting {
            stream,
            rest,
            goes_on,
        } = self;
        on_stack(stream.owner(), |stack, now| {
            let conn = stream.into_conn();
            match goes_on {
                false => stack.rest(now, conn, rest),
                true => stack.rest_on(conn, rest),
            }
        })
    }
}

/// A handler as the table has it.
struct Registered<H> {
    owner: Owner,
    number: u8,
    serve: H,
}

trait Numbered {
    fn owner(&self) -> Owner;
    fn number(&self) -> u8;
}

impl<H> Numbered for Registered<H> {
    fn owner(&self) -> Owner {
        self.owner
    }

    fn number(&self) -> u8 {
        self.number
    }
}

impl<H> Serve for Registered<H>
where
    H: AsyncFn(ServedStream) -> io::Result<Option<Resting>> + 'static,
{
    #[inline]
    fn begin(self: Rc<Self>, conn: ConnId, rest: Rest) {
        let stream = ServedStream {
            stream: TcpStream::new(self.owner, conn),
            rest,
        };
        let held = Held(self);
        task::begin(async move {
            if let Ok(Some(resting)) = (held.0.serve)(stream).await {
                // Of this core, and not gone: the handler had it.
                let _ = resting.begin();
            }
        });
    }
}

/// A share in a handler. The last one that is not the table's looks whether anything can come back.
struct Held<S: Numbered + ?Sized>(Rc<S>);

impl<S: Numbered + ?Sized> Clone for Held<S> {
    fn clone(&self) -> Self {
        Held(self.0.clone())
    }
}

impl<S: Numbered + ?Sized> Drop for Held<S> {
    #[inline]
    fn drop(&mut self) {
        // This one and the table's.
        if Rc::strong_count(&self.0) == 2 {
            core_context::with_own(self.0.owner(), |ctx| ctx.forget_handler(self.0.number()));
        }
    }
}
