//! A stream away from its core: it may be sent anywhere, but works only at home; dropped elsewhere, it closes.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::support::*;
use janus::net::{RecvBuf, TcpListener, TcpStream};
use janus::{BackendChoice, BoxError};

in_every_layout!(dropped_elsewhere_it_closes, used_elsewhere_it_says_so);

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
