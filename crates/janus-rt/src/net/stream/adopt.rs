//! A stream that a task of another core uses from now on: the connection moves there.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use std::{error, fmt, io, mem};

use janus_csb::ShardId;
use janus_tcp::Error;

use super::TcpStream;
use crate::net::{foreign_core, io_error};
use crate::shard::core_context::{self, CoreContext};
use crate::shard::giving::{Answer, Attempt, Held, Stays, Ticket};
use crate::shard::shared::Shared;
use crate::task;
use crate::time;

/// Pause between two attempts, and how many are made: one that came a moment ago moves again once an update has told of it.
const PAUSE: Duration = Duration::from_millis(10);
const ATTEMPTS: u32 = 100;

/// Error of [`TcpStream::adopt_here`]: why the connection could not move, and the stream, unless it has ended.
#[derive(Debug)]
pub struct AdoptError {
    /// The stream, of the core that it was of.
    pub stream: Option<TcpStream>,
    error: io::Error,
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection stays on its core: {}", self.error)
    }
}

impl error::Error for AdoptError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<AdoptError> for io::Error {
    fn from(error: AdoptError) -> io::Error {
        io::Error::new(error.error.kind(), error)
    }
}

impl TcpStream {
    /// Moves the connection to the core that this is called on, where the stream works from then on. What was received and not read, and
    /// what was written and not sent, goes along. On its own core it returns at once.
    ///
    /// ```
    /// use janus::net::{TcpListener, TcpStream};
    ///
    /// # janus::Runtime::builder().ignore_environment().cores(2).build()?.handle();
    /// # let runtime = janus::Runtime::builder().ignore_environment().cores(2).build()?;
    /// # runtime.run(|| async {
    /// # if janus::core_id() != Some(0) { return Ok(()) }
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.reachable_at()).await?;
    /// let (stream, _peer) = listener.accept().await?;
    /// // The task that serves it runs on the other core.
    /// let served = janus::spawn_on(1, move || async move {
    ///     let stream = stream.adopt_here().await?;
    ///     stream.write_all(b"hello").await
    /// });
    /// let mut greeting = [0; 5];
    /// client.read_exact(&mut greeting).await?;
    /// assert_eq!(&greeting, b"hello");
    /// served.await??;
    /// # Ok::<(), janus::BoxError>(())
    /// # })?;
    /// # Ok::<(), janus::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// [`AdoptError`] has the stream, which is of the core that it was of. It stays there when it is of another runtime, or this is no core
    /// ([`ForeignCore`](crate::net::ForeignCore)); when it was opened from a port of its own choice, as by
    /// [`TcpSocket::bind`](crate::net::TcpSocket::bind) ([`Unsupported`](io::ErrorKind::Unsupported)); when this core has no room, or too
    /// many connections move ([`ResourceBusy`](io::ErrorKind::ResourceBusy)). When the connection, or its core, has ended there is no
    /// stream.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn adopt_here(self) -> Result<TcpStream, AdoptError> {
        let home = self.owner;
        let asks = core_context::with(|ctx| (ctx.owner, ShardId(ctx.core), ctx.shared.clone()));
        let Some((here, core, shared)) = asks else {
            return Err(stays(Some(self), foreign_core()));
        };
        if here == home {
            return Ok(self);
        }
        let asking = Asking(Ticket::default());
        let request = Request {
            held: Some(self.into_held()),
            ticket: asking.0.clone(),
        };
        home.send_job(move |ctx| request.reach(ctx, core, &shared));
        match poll_fn(|cx| asking.0.poll(cx.waker())).await {
            Answer::Here(held) => Ok(TcpStream::from_held(held)),
            Answer::Stays(held, why) => Err(stays(held.map(TcpStream::from_held), why.into())),
        }
    }

    fn from_held(held: Held) -> TcpStream {
        let (owner, conn) = held.into_parts();
        TcpStream::new(owner, conn)
    }

    fn into_held(self) -> Held {
        let held = Held::new(self.owner, self.conn);
        mem::forget(self);
        held
    }
}

fn stays(stream: Option<TcpStream>, error: io::Error) -> AdoptError {
    AdoptError { stream, error }
}

impl From<Stays> for io::Error {
    fn from(why: Stays) -> io::Error {
        match why {
            Stays::Foreign => foreign_core(),
            Stays::FixedPort => io::Error::new(
                io::ErrorKind::Unsupported,
                "it was opened from a port of its own choice, which is that core's",
            ),
            Stays::Busy => io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the other core has no room, or too many connections move",
            ),
            Stays::Over(error) => io_error(error),
        }
    }
}

/// A ticket, for as long as the future lives.
struct Asking(Ticket);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.forget();
    }
}

/// A connection that its core is to give away. The ticket is answered in any case.
struct Request {
    /// `None` once it is known what became of it.
    held: Option<Held>,
    ticket: Ticket,
}

impl Request {
    /// It is at the connection's core.
    fn reach(mut self, ctx: &CoreContext, to: ShardId, asker: &Arc<Shared>) {
        if !Arc::ptr_eq(&ctx.shared, asker) {
            return self.refuse(Stays::Foreign);
        }
        if self.attempt(ctx, to) {
            return;
        }
        task::spawn_sent(async move {
            for _ in 0..ATTEMPTS {
                time::sleep(PAUSE).await;
                if core_context::with(|ctx| self.attempt(ctx, to)) != Some(false) {
                    return;
                }
            }
            self.refuse(Stays::Busy);
        });
    }

    /// Tries to give it. Returns whether it is known what became of it.
    fn attempt(&mut self, ctx: &CoreContext, to: ShardId) -> bool {
        let Some((owner, conn)) = self.held.take().map(Held::into_parts) else {
            return true;
        };
        match ctx.give(conn, to, &self.ticket) {
            // The other core answers.
            Attempt::Gone => true,
            Attempt::Later(conn) => {
                self.held = Some(Held::new(owner, conn));
                false
            }
            Attempt::Never(why) => {
                self.held = Some(Held::new(owner, conn));
                self.refuse(why);
                true
            }
        }
    }

    fn refuse(&mut self, why: Stays) {
        let held = self.held.take().filter(|_| !matches!(why, Stays::Over(_)));
        self.ticket.answer(Answer::Stays(held, why));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // Its core has ended, or takes no more.
        if self.held.is_some() {
            self.refuse(Stays::Over(Error::Stale));
        }
    }
}
