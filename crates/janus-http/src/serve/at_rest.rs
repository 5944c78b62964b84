//! Connections that rest between requests, on Janus's own streams.

use std::io;

use janus::net::{self, Handler, RestLimits, ServedStream, TcpListener, TcpStream};

use super::{DEFAULT, Next, answer_all};
use crate::Result;
use crate::options::Options;
use crate::request::Request;
use crate::response::{Responder, Sent};

/// Serves every connection of a listener. Between requests a connection [rests](janus::net::serve): it takes no task and no memory but its
/// record, however long it is kept. One that has sent a part of a request has a task, until that is answered.
///
/// The handler gets each request as in [`serve`](crate::serve), which is for a single connection and for other streams than Janus's own.
/// It is the same for all connections: what it captures is shared.
///
/// ```
/// use janus::net::TcpListener;
/// use janus_http::Connection;
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.reachable_at();
/// janus::spawn(janus_http::serve_listener(listener, async |_request, response| {
///     response.ok().send(b"hello").await
/// }));
///
/// let mut client = Connection::connect(address).await?;
/// for _ in 0..3 {
///     let mut response = client.get("localhost", "/").await?;
///     let mut body = Vec::new();
///     response.read_to_end(&mut body).await?;
///     assert_eq!(body, b"hello");
/// }
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Errors
/// Those of [`Handler::new`] and of [`accept`](TcpListener::accept). It does not return otherwise; what ends a connection early is that
/// connection's alone.
///
/// # Cancel safety
/// Dropping the future closes the listener. Connections that it has accepted are served on.
pub async fn serve_listener<H>(listener: TcpListener, handler: H) -> io::Result<()>
where
    H: AsyncFn(Request<'_, TcpStream>, Responder<'_, TcpStream>) -> Result<Sent> + 'static,
{
    serve_listener_with(&DEFAULT, listener, handler).await
}

/// Like [`serve_listener`], but with limits of your own.
///
/// # Errors
/// Those of [`serve_listener`].
///
/// # Cancel safety
/// Like [`serve_listener`].
pub async fn serve_listener_with<H>(
    options: &'static Options,
    listener: TcpListener,
    handler: H,
) -> io::Result<()>
where
    H: AsyncFn(Request<'_, TcpStream>, Responder<'_, TcpStream>) -> Result<Sent> + 'static,
{
    let serving = Handler::new(async move |stream| served(stream, options, &handler).await)?;
    serving.limit(RestLimits {
        first: options.first_byte_timeout,
        further: options.idle_timeout,
    });
    serving.serve(listener).await
}

/// Answers what has come, until nothing is left to answer. The connection carries how many requests it has had.
async fn served<H>(
    stream: &ServedStream,
    options: &'static Options,
    handler: &H,
) -> io::Result<net::Next>
where
    H: AsyncFn(Request<'_, TcpStream>, Responder<'_, TcpStream>) -> Result<Sent>,
{
    let Some(first) = stream.recv().await? else {
        return Ok(net::Next::Close);
    };
    let answered = answer_all(&**stream, handler, options, first, stream.carried()).await;
    Ok(match answered {
        Ok(Next::Wait(served)) => net::Next::RestWith(served),
        Ok(Next::WaitOn) => net::Next::RestOn,
        Ok(Next::Close) | Err(_) => net::Next::Close,
    })
}
