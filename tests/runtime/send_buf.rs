//! Packet buffers sent as they are, over a wire that loses, in every layout, and to the kernel: what leaves lies where the
//! application filled it in, or where it came in, and every byte is right.

mod device;
mod kernel;

use std::future::Future;
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Waker};

use crate::support::content::content;
use crate::support::reports::{Reports, sum};
use crate::support::*;
use device::{Places, Watching};
use janus::net::{SendBuf, TcpListener, TcpStream};
use janus::{BackendChoice, Builder};
use janus_io::faults::{FaultCounters, Faults, FaultyBackend};
use janus_io::wire;

in_every_layout!(what_is_filled_is_what_leaves, a_proxy_passes_buffers_on);

const CONNECTIONS: usize = 16;
/// Full segments on each connection.
const BUFFERS: usize = 150;
const LONGEST: usize = 2_048;

fn server_address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// A server's end of the wire with losses on it.
fn lossy(end: wire::End, seed: u64) -> (FaultyBackend, Arc<FaultCounters>) {
    let faults = Faults {
        seed,
        loss: 10,
        reorder: 5,
        distance: 4,
        ..Faults::default()
    };
    let device = FaultyBackend::new(Box::new(end), faults);
    let counters = device.counters();
    (device, counters)
}

/// Answers every connection with `serve` on every core; each core also reports.
fn serve_and_report<S, F>(builder: Builder, serve: S) -> (Running, Reports)
where
    S: Fn(TcpStream) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + 'static,
{
    let reports = Reports::default();
    let (ready, listens) = channel();
    let kept = reports.clone();
    let running = Running::start(builder.build().unwrap(), move || {
        janus::spawn(kept.clone().keep());
        accept_all(serve.clone(), ready.clone())
    });
    listens.recv_timeout(PATIENCE).expect("the server listens");
    (running, reports)
}

async fn accept_all<S, F>(serve: S, ready: Sender<()>) -> janus::Result
where
    S: Fn(TcpStream) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    let listener = TcpListener::bind("0.0.0.0:80").await?;
    let _ = ready.send(());
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(serve(stream));
    }
}

/// The connection's own content, as the client names it, in buffers filled in three ways.
async fn send_content(stream: TcpStream, places: Arc<Places>) {
    let mut seed = [0];
    stream.read_exact(&mut seed).await.unwrap();
    let bytes = content(BUFFERS * LONGEST, seed[0].into());
    let mut at = 0;
    for round in 0..BUFFERS {
        let mut buf = stream.alloc_buf().await.unwrap();
        let count = buf.capacity();
        let next = &bytes[at..at + count];
        match round % 3 {
            0 => assert_eq!(buf.put(next), count),
            1 => buf.write_all(next).unwrap(),
            _ => {
                buf.spare_mut().copy_from_slice(next);
                buf.commit(count);
            }
        }
        assert!(buf.spare() == 0 && buf.put(b"more") == 0);
        places.fills(&buf);
        stream.send_buf(buf).await.unwrap();
        at += count;
    }
}

fn what_is_filled_is_what_leaves(case: Case) {
    let (near, far) = wire_for(case);
    let (device, faults) = lossy(near, 7 + case.queues() as u64);
    let places = Arc::new(Places::default());
    let watched = Watching {
        inner: Box::new(device),
        places: places.clone(),
    };
    let builder = case
        .builder()
        .backend(BackendChoice::Custom(Box::new(watched)))
        .address("192.0.2.1/24".parse().unwrap());
    let told = places.clone();
    let (server, reports) =
        serve_and_report(builder, move |stream| send_content(stream, told.clone()));
    run_clients(far, CONNECTIONS, |index| async move {
        let stream = TcpStream::connect(server_address(80)).await.unwrap();
        stream.write_all(&[index as u8]).await.unwrap();
        let (expected, mut at) = (content(BUFFERS * LONGEST, index as u64), 0);
        while let Some(piece) = stream.recv().await.unwrap() {
            assert!(
                expected[at..].starts_with(&piece),
                "connection {index} at {at}"
            );
            at += piece.len();
        }
        assert!(at > BUFFERS * 1_400, "connection {index} ended at {at}");
    });
    let reports = reports.fresh(case.cores);
    let given = sum(&reports, |core| core.tcp.buffers_given);
    let again = sum(&reports, |core| core.tcp.retransmissions);
    let there = places.from_there.load(Ordering::Relaxed);
    println!("{case:?}: {given} buffers given, {again} sent again, {there} segments seen");
    assert_eq!(given, (CONNECTIONS * BUFFERS) as u64);
    assert_eq!(sum(&reports, |core| core.tcp.buffers_copied), 0);
    // A window that stays small for long has a segment cut, on a machine where nobody reads for so long.
    let cut = sum(&reports, |core| core.tcp.segments_cut);
    let elsewhere = places.from_elsewhere.load(Ordering::Relaxed);
    assert!(
        cut <= given / 100 && (cut > 0 || elsewhere == 0),
        "{cut} cut, {elsewhere}"
    );
    assert!(there >= given);
    assert!(faults.sent.lost.get() > 0 && again > 0, "nothing was lost");
    server.stop().unwrap();
}

/// Where the client's own runtime echoes.
const ORIGIN: ([u8; 4], u16) = ([192, 0, 2, 2], 90);
const PASSED: usize = 200_000;

/// What comes from either side goes to the other, in the buffers it came in.
async fn proxy(stream: TcpStream) {
    let origin = TcpStream::connect(SocketAddr::from(ORIGIN)).await.unwrap();
    let (mut from_client, mut to_client) = stream.into_split();
    let (mut from_origin, mut to_origin) = origin.into_split();
    janus::spawn(async move {
        while let Some(piece) = from_client.recv().await.unwrap() {
            to_origin.send_buf(piece).await.unwrap();
        }
    });
    while let Some(piece) = from_origin.recv().await.unwrap() {
        to_client.send_buf(piece).await.unwrap();
    }
}

async fn origin() -> std::io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(ORIGIN)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(echo(stream));
    }
}

async fn through_the_proxy(index: usize) {
    let stream = TcpStream::connect(server_address(80)).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let writer = janus::spawn(async move {
        writing.write_all(&pattern(PASSED, index)).await.unwrap();
    });
    let mut got = vec![0; PASSED];
    reading.read_exact(&mut got).await.unwrap();
    assert!(got == pattern(PASSED, index), "connection {index}");
    assert!(reading.recv().await.unwrap().is_none());
    writer.await.unwrap();
}

fn a_proxy_passes_buffers_on(case: Case) {
    const CLIENTS: usize = 8;
    let (near, far) = wire_for(case);
    let (device, _) = lossy(near, 70 + case.queues() as u64);
    let builder = case
        .builder()
        .backend(BackendChoice::Custom(Box::new(device)))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, reports) = serve_and_report(builder, proxy);
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(far))
        .address("192.0.2.2/24".parse().unwrap());
    let clients = Running::start(builder.build().unwrap(), || async {
        let serving = janus::spawn(origin());
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| janus::spawn(through_the_proxy(index)))
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        serving.abort();
    });
    clients.join_within(2 * PATIENCE).unwrap();
    let reports = reports.fresh(case.cores);
    let given = sum(&reports, |core| core.tcp.buffers_given);
    let copied = sum(&reports, |core| core.tcp.buffers_copied);
    let cut = sum(&reports, |core| core.tcp.segments_cut);
    println!("{case:?}: {given} buffers passed on as they came, {copied} copied, {cut} cut");
    // Each way, in buffers of 2 KiB.
    assert!(given + copied >= (2 * CLIENTS * PASSED / LONGEST) as u64);
    assert!(given > 4 * copied, "{given} as they came, {copied} copied");
    server.stop().unwrap();
}

/// More than may be written ahead.
const MUCH: usize = 8 << 20;

/// Polls once.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// To a client that cannot read before this has written all it may.
async fn fill_up(stream: TcpStream) {
    let bytes = content(MUCH, 1);
    let mut held = stream.try_alloc_buf().unwrap();
    let mut at = 0;
    while let Ok(mut buf) = stream.try_alloc_buf() {
        at += buf.put(&bytes[at..]);
        stream.try_send_buf(buf).unwrap();
    }
    assert!(at < bytes.len(), "no end to what may be written ahead");
    held.put(&bytes[at..]);
    let refused = stream.try_send_buf(held).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::WouldBlock);
    let held = refused.into_buf().unwrap();
    assert!(bytes[at..].starts_with(&held) && held.len() == held.capacity());
    // Neither of these waits for nothing; given up, neither has sent anything.
    assert!(poll_once(stream.send_buf(held)).is_pending());
    assert!(poll_once(stream.alloc_buf()).is_pending());
    let mut buf = stream.alloc_buf().await.unwrap();
    at += buf.put(&bytes[at..]);
    stream.send_buf(buf).await.unwrap();
    stream.write_all(&bytes[at..]).await.unwrap();
}

#[test]
fn without_room_a_buffer_waits_and_can_be_taken_back() {
    let (near, far) = wire_for(ONE_COMBINED);
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, _) = serve(builder, 80, fill_up);
    run_clients(far, 1, |_| async {
        let stream = TcpStream::connect(server_address(80)).await.unwrap();
        let (expected, mut at) = (content(MUCH, 1), 0);
        while let Some(piece) = stream.recv().await.unwrap() {
            assert!(expected[at..].starts_with(&piece), "at {at}");
            at += piece.len();
        }
        assert_eq!(at, expected.len());
    });
    server.stop().unwrap();
}

/// More buffers than there are, one after the other: none is lost by being dropped, here or on another thread, and what
/// was in one before is not seen.
async fn fill_and_drop(stream: TcpStream) {
    let buffers = 16 * 1024;
    let (elsewhere, dropped) = channel::<SendBuf>();
    let dropper = std::thread::spawn(move || dropped.into_iter().count());
    for round in 0..2 * buffers {
        let mut buf = stream.alloc_buf().await.unwrap();
        assert!(buf.spare_mut().iter().all(|byte| *byte == 0));
        let count = buf.capacity();
        buf.spare_mut().fill(0xa5);
        buf.commit(count + 1);
        assert_eq!((buf.len(), buf.spare()), (count, 0));
        buf.truncate(1);
        buf[0] = 7;
        assert_eq!((&buf[..], buf.spare()), (&[7][..], count - 1));
        if round % 4 == 0 {
            elsewhere.send(buf).unwrap();
        }
    }
    drop(elsewhere);
    assert_eq!(dropper.join().unwrap(), buffers / 2);
    stream.write_all(b"done").await.unwrap();
}

#[test]
fn a_buffer_that_is_dropped_goes_home_unsent() {
    let (near, far) = wire_for(ONE_COMBINED);
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, _) = serve(builder, 80, fill_and_drop);
    run_clients(far, 1, |_| async {
        let stream = TcpStream::connect(server_address(80)).await.unwrap();
        let mut got = [0; 4];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"done");
        assert!(stream.recv().await.unwrap().is_none());
        stream.shutdown(Shutdown::Write).await.unwrap();
        let refused = stream.alloc_buf().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
    });
    server.stop().unwrap();
}
