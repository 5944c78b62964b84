//! A stream away from its core: it may be sent anywhere, but works only at home, and can have another; dropped elsewhere, it closes.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::support::*;
use janus::net::{AdoptError, ForeignCore, RecvBuf, TcpListener, TcpStream};
use janus::{BackendChoice, BoxError};

in_every_layout!(
    dropped_elsewhere_it_closes,
    used_elsewhere_it_says_so,
    adopted_elsewhere_it_goes_on,
    an_adoption_that_is_given_up_closes_it,
);

/// A place where one core leaves something for another, and wakes it.
struct Handover<T> {
    inner: Mutex<(Option<T>, Option<Waker>)>,
}

impl<T> Handover<T> {
    fn new() -> Arc<Handover<T>> {
        Arc::new(Handover {
            inner: Mutex::new((None, None)),
        })
    }

    fn give(&self, thing: T) {
        let mut inner = self.inner.lock().unwrap();
        inner.0 = Some(thing);
        if let Some(waker) = inner.1.take() {
            waker.wake();
        }
    }

    async fn take(&self) -> T {
        poll_fn(|cx| {
            let mut inner = self.inner.lock().unwrap();
            match inner.0.take() {
                Some(thing) => Poll::Ready(thing),
                None => {
                    inner.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

fn portal(address: SocketAddr) -> std::net::TcpStream {
    let stream = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Accepts on every core and hands streams to `foreign`, a thread that is no core.
fn dropped_elsewhere_it_closes(case: Case) {
    let (streams, foreign) = channel::<(TcpStream, Option<RecvBuf>)>();
    let (ready, address) = channel();
    let runtime = case
        .builder()
        .backend(BackendChoice::Portal)
        .build()
        .unwrap();
    let server = Running::start(runtime, move || {
        let (streams, ready) = (streams.clone(), ready.clone());
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            ready.send(listener.local_addr()?)?;
            while let Ok((stream, _)) = listener.accept().await {
                let piece = stream.recv().await?;
                streams.send((stream, piece))?;
            }
            Ok::<(), BoxError>(())
        }
    });
    let address = address.recv_timeout(PATIENCE).unwrap();
    for _ in 0..20 {
        let mut client = portal(address);
        client.write_all(b"hello").unwrap();
        let (stream, piece) = foreign.recv_timeout(PATIENCE).unwrap();
        assert_eq!(
            piece.as_deref(),
            Some(&b"hello"[..]),
            "the buffer can be read anywhere"
        );
        drop(piece);
        drop(stream);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
    // One that outlives its runtime closes nothing and breaks nothing.
    let mut client = portal(address);
    client.write_all(b"hello").unwrap();
    let last = foreign.recv_timeout(PATIENCE).unwrap();
    server.stop().unwrap();
    drop(last);
}

fn used_elsewhere_it_says_so(case: Case) {
    let handover = Handover::new();
    let (ready, address) = channel();
    let (told, errors) = channel();
    let runtime = case
        .builder()
        .backend(BackendChoice::Portal)
        .build()
        .unwrap();
    let server = Running::start(runtime, move || {
        let (handover, ready, told) = (handover.clone(), ready.clone(), told.clone());
        async move {
            let core = janus::core_id().unwrap();
            let last = janus::cores().unwrap() - 1;
            if core == 0 {
                let listener = TcpListener::bind("0.0.0.0:0").await?;
                ready.send(listener.local_addr()?)?;
                let (stream, _) = listener.accept().await?;
                if last > 0 {
                    handover.give(stream);
                } else {
                    told.send(on_a_thread(stream))?;
                }
            } else if core == last {
                let stream: TcpStream = handover.take().await;
                told.send(stream.write(b"x").await.map(|_| ()))?;
                told.send(stream.peer_addr().map(|_| ()))?;
            }
            std::future::pending::<janus::Result>().await
        }
    });
    let mut client = portal(address.recv_timeout(PATIENCE).unwrap());
    let error = errors.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert!(
        error.to_string().contains("belongs to another core"),
        "{error}"
    );
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "closed, and nothing was written");
    server.stop().unwrap();
}

/// Bytes that are under way, each way, while it moves.
const MUCH: usize = 300_000;

/// Accepts on core 0, and goes on with the stream on the last core by `go_on`.
fn on_the_last_core<F>(
    case: Case,
    go_on: impl Fn(TcpStream) -> F + Copy + Send + Sync + 'static,
) -> (Running, SocketAddr)
where
    F: Future<Output = janus::Result> + 'static,
{
    let (ready, address) = channel();
    let runtime = case
        .builder()
        .backend(BackendChoice::Portal)
        .build()
        .unwrap();
    let server = Running::start(runtime, move || {
        let ready = ready.clone();
        async move {
            if janus::core_id() == Some(0) {
                let last = janus::cores().unwrap() - 1;
                let listener = TcpListener::bind("0.0.0.0:0").await?;
                ready.send(listener.local_addr()?)?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    // Some has come, and some of the answer is not sent yet.
                    let mut first = [0; 5];
                    stream.read_exact(&mut first).await?;
                    stream.write_all(&first).await?;
                    drop(janus::spawn_on(last, move || async move {
                        go_on(stream).await.unwrap();
                    }));
                }
            }
            std::future::pending::<janus::Result>().await
        }
    });
    (server, address.recv_timeout(PATIENCE).unwrap())
}

fn adopted_elsewhere_it_goes_on(case: Case) {
    let (server, address) = on_the_last_core(case, async |stream| {
        let stream = stream.adopt_here().await?;
        assert!(stream.peer_addr()?.ip().is_loopback());
        let mut buffer = vec![0; 4_096];
        loop {
            let read = stream.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            stream.write_all(&buffer[..read]).await?;
        }
    });
    for round in 0..10u8 {
        let client = portal(address);
        let sent: Vec<u8> = (0..MUCH).map(|at| (at % 251) as u8 ^ round).collect();
        let mut writing = client.try_clone().unwrap();
        let writes = sent.clone();
        let writer = std::thread::spawn(move || {
            writing.write_all(&writes).unwrap();
            writing.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        (&client).read_to_end(&mut back).unwrap();
        writer.join().unwrap();
        assert!(
            back == sent,
            "{} bytes of {MUCH} came back right",
            back.iter().zip(&sent).take_while(|(a, b)| a == b).count()
        );
    }
    server.stop().unwrap();
}

fn an_adoption_that_is_given_up_closes_it(case: Case) {
    let (server, address) = on_the_last_core(case, async |stream| {
        let mut adopts = pin!(stream.adopt_here());
        // On its own core it is there at once.
        let polled = adopts
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(polled);
        Ok(())
    });
    for _ in 0..10 {
        let mut client = portal(address);
        client.write_all(b"hello").unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert_eq!(back, b"hello");
    }
    server.stop().unwrap();
}

/// Where there is no core, and on a core of another runtime, the stream comes back with the reason, and is what it was.
#[test]
fn a_stream_stays_in_its_runtime() {
    let (streams, foreign) = channel();
    let (ready, address) = channel();
    let runtime = ONE_COMBINED.builder().backend(BackendChoice::Portal);
    let home = Running::start(runtime.build().unwrap(), move || {
        let (streams, ready) = (streams.clone(), ready.clone());
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            ready.send(listener.local_addr()?)?;
            while let Ok((stream, _)) = listener.accept().await {
                streams.send(stream)?;
            }
            Ok::<(), BoxError>(())
        }
    });
    let mut client = portal(address.recv_timeout(PATIENCE).unwrap());
    let stream: TcpStream = foreign.recv_timeout(PATIENCE).unwrap();
    let is_foreign = |error: &AdoptError| {
        let source = std::error::Error::source(error);
        let source = source.and_then(|error| error.downcast_ref::<std::io::Error>());
        source.is_some_and(|error| {
            error
                .get_ref()
                .is_some_and(|error| error.is::<ForeignCore>())
        })
    };
    let polled = pin!(stream.adopt_here()).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Err(error)) = polled else {
        panic!("this is no core");
    };
    assert!(is_foreign(&error), "{error}");
    let given = Handover::new();
    given.give(error.stream.expect("it comes back"));
    let back = Handover::new();
    let (there, comes) = (given, back.clone());
    let other = ONE_COMBINED.builder().build().unwrap();
    let adopting = move || {
        let (there, comes) = (there.clone(), comes.clone());
        async move {
            comes.give(there.take().await.adopt_here().await.unwrap_err());
            Ok::<(), BoxError>(())
        }
    };
    Running::start(other, adopting).join().unwrap();
    let error = pin!(back.take()).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(error) = error else {
        panic!("it was given");
    };
    assert!(is_foreign(&error), "{error}");
    // Open until it is dropped.
    client.set_nonblocking(true).unwrap();
    let mut rest = [0; 8];
    let waits = client.read(&mut rest).unwrap_err();
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    drop(error);
    assert_eq!(client.read(&mut rest).unwrap(), 0);
    home.stop().unwrap();
}

/// Polls a write where no runtime is.
fn on_a_thread(stream: TcpStream) -> std::io::Result<()> {
    let thread = std::thread::spawn(move || {
        let polled = pin!(stream.write(b"x")).poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(result) => result.map(|_| ()),
            Poll::Pending => Ok(()),
        }
    });
    thread.join().unwrap()
}
