//! Connections at rest: between two requests no task waits for them. A handler serves what has come and gives the connection back; the
//! record of the connection names the handler, and whatever comes next begins a new task.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::rc::Rc;

use janus_tcp::{ConnId, Rest, RestLimits};

use super::listener::TcpListener;
use super::stream::TcpStream;
use super::{foreign_core, on_stack};
use crate::inbox::Owner;
use crate::shard::core_context;
use crate::shard::handlers::Serve;
use crate::task;

/// Serves every connection of a listener with `handler`, which is called whenever something has come on one (or the peer has ended), and
/// says what is [next](Next) when that is dealt with: usually rest. A connection at rest costs no task, only its record.
///
/// The handler may wait for as long as it likes: the connection has its task until the handler returns. With an error or a panic the
/// connection is closed.
///
/// ```
/// use janus::net::{Next, TcpListener, TcpStream};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.reachable_at();
/// janus::spawn(janus::net::serve(listener, async |stream| {
///     let Some(piece) = stream.recv().await? else {
///         return Ok(Next::Close);
///     };
///     stream.send_buf(piece).await?;
///     Ok(Next::Rest)
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
    H: AsyncFn(&ServedStream) -> io::Result<Next> + 'static,
{
    Handler::new(handler)?.serve(listener).await
}

/// A function that serves connections which rest between requests; see [`serve`]. It belongs to the core it was made
/// on. A core can have 64 at a time; one that nothing can come back to is dropped.
///
/// ```
/// use janus::net::{Handler, Next, RestLimits, TcpListener, TcpStream};
/// use std::time::Duration;
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.reachable_at();
/// // Answers with the number of the question, and ends with the third.
/// let counts = Handler::new(async |stream| {
///     let Some(_question) = stream.recv().await? else {
///         return Ok(Next::Close);
///     };
///     let number = stream.carried() + 1;
///     stream.write_all(format!("{number}\n").as_bytes()).await?;
///     Ok(if number < 3 { Next::RestWith(number) } else { Next::Close })
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
        H: AsyncFn(&ServedStream) -> io::Result<Next> + 'static,
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
        core_context::with_own(stream.owner(), |ctx| ctx.served(stream.conn(), true));
        // Not dropped: that would close it.
        let stream = ManuallyDrop::new(stream);
        on_stack(stream.owner(), |stack, now| {
            stack.rest(now, stream.conn(), rest)
        })
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
        }
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handler({})", self.held.0.number())
    }
}

/// Fate of a connection whose handler has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It rests, and carries what it has carried. If something is left unread the handler is called again, in its turn.
    Rest,
    /// It rests, and carries these bits, which the next call for it finds.
    RestWith(u16),
    /// It rests on, as if nothing had come: its [limit](Handler::limit) counts from before.
    RestOn,
    /// It is closed.
    Close,
}

/// A connection that a [`Handler`] is called for.
pub struct ServedStream {
    /// Not dropped as it is: what is closed, and when, the flag says.
    stream: ManuallyDrop<TcpStream>,
    rest: Rest,
    /// Somebody else has the connection.
    given: Cell<bool>,
}

impl ServedStream {
    #[inline]
    fn new(stream: TcpStream, rest: Rest) -> ServedStream {
        ServedStream {
            stream: ManuallyDrop::new(stream),
            rest,
            given: Cell::new(false),
        }
    }

    /// Bits that the connection carried through its rest ([`Next::RestWith`]); 0 the first time.
    #[inline]
    pub fn carried(&self) -> u16 {
        self.rest.carried()
    }

    /// Takes the stream away, to be kept beyond the handler, which then says nothing about it any more. `None`: it has been taken before.
    pub fn take(&self) -> Option<TcpStream> {
        let taken = self.given.replace(true);
        (!taken).then(|| self.handle())
    }

    fn handle(&self) -> TcpStream {
        TcpStream::new(self.stream.owner(), self.stream.conn())
    }

    /// Away from where a connection that goes to rest comes by.
    #[inline(never)]
    fn close(&self) {
        drop(self.handle());
    }

    /// Does as the handler has said, unless somebody has taken the connection. To be called on its core.
    #[inline]
    fn goes_to(&self, next: Next) {
        let rest = match next {
            Next::Close => return,
            Next::RestOn => None,
            Next::Rest => Some(self.rest.carrying(self.carried())),
            Next::RestWith(carried) => Some(self.rest.carrying(carried)),
        };
        if self.given.replace(true) {
            return;
        }
        let settled = core_context::with_own(self.stream.owner(), |ctx| {
            ctx.on_stack(|stack, now| match rest {
                None => stack.rest_on(self.stream.conn(), self.rest),
                Some(rest) => stack.rest(now, self.stream.conn(), rest),
            })
        });
        debug_assert!(matches!(settled, Some(Ok(()))), "the handler had it");
    }
}

impl Deref for ServedStream {
    type Target = TcpStream;

    #[inline]
    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Drop for ServedStream {
    #[inline]
    fn drop(&mut self) {
        if !self.given.get() {
            self.close();
        }
    }
}

impl fmt::Debug for ServedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ServedStream");
        debug.field("stream", &*self.stream);
        debug.field("carried", &self.carried()).finish()
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
    H: AsyncFn(&ServedStream) -> io::Result<Next> + 'static,
{
    #[inline]
    fn begin(self: Rc<Self>, conn: ConnId, rest: Rest) {
        task::begin(move || {
            let stream = ServedStream::new(TcpStream::new(self.owner, conn), rest);
            let held = Held(self);
            // By reference: what is moved so soon after it was written has the processor wait.
            async move {
                if let Ok(next) = (held.0.serve)(&stream).await {
                    stream.goes_to(next);
                }
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
            look_for_more(self.0.owner(), self.0.number());
        }
    }
}

/// Has a handler forgotten that nothing can come back to.
#[cold]
fn look_for_more(owner: Owner, number: u8) {
    core_context::with_own(owner, |ctx| ctx.forget_handler(number));
}
