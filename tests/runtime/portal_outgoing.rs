//! Connections that a program opens through the portal: to servers of the kernel on this machine, over both families and in
//! every layout. Nothing that either side does at an end of such a connection may look different at the other.

use std::collections::hash_map::DefaultHasher;
use std::future::Future;
use std::hash::Hasher;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream as KernelStream;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener as KernelListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::kernel::*;
use crate::support::*;
use janus::net::{TcpListener, TcpStream};
use janus::{BackendChoice, MainResult};

in_every_layout!(
    bytes_half_closes_and_addresses,
    a_reset_of_the_server_arrives,
    a_reset_of_ours_arrives,
    much_both_ways_is_held_back_and_not_changed,
    who_does_not_listen_refuses,
    many_at_once,
    our_own_listeners_can_be_reached,
    an_attempt_given_up_leaves_nothing_behind,
);

/// The kernel's listeners on loopback, of each family that this machine has.
fn listeners() -> Vec<KernelListener> {
    let v4 = KernelListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let v6 = KernelListener::bind((Ipv6Addr::LOCALHOST, 0));
    [v4].into_iter().chain(v6).collect()
}

/// Runs `client` as the main of every core of a runtime behind the portal, to its end.
fn on_every_core<M, F>(case: Case, client: M)
where
    M: Fn() -> F + Send + Sync + 'static,
    F: Future<Output: MainResult> + 'static,
{
    let builder = case.builder().backend(BackendChoice::Portal);
    let running = Running::start(builder.build().unwrap(), client);
    running.join().unwrap();
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Where a client's own port is taken in the kernel, by whichever program, it gets another one there: hence the attempts.
fn bytes_half_closes_and_addresses(case: Case) {
    const ATTEMPTS: usize = 8;
    let by_own_names = (0..ATTEMPTS).any(|_| asks_and_says_whether_it_is_known(case));
    assert!(by_own_names, "the server knows clients by their own names");
}

/// Whether the servers of all families see the addresses that the clients have.
fn asks_and_says_whether_it_is_known(case: Case) -> bool {
    let mut known = true;
    for listener in listeners() {
        let at = listener.local_addr().unwrap();
        let server = kernel_server(listener, case.cores, |mut stream| {
            let mut all = Vec::new();
            // Their end first, then our answer, then our end.
            stream.read_to_end(&mut all).unwrap();
            all.extend_from_slice(b" heard");
            stream.write_all(&all).unwrap();
            stream.peer_addr().unwrap()
        });
        let clients = Arc::new(Mutex::new(Vec::new()));
        let seen = clients.clone();
        on_every_core(case, move || {
            let seen = seen.clone();
            async move {
                let stream = TcpStream::connect(at).await.unwrap();
                assert_eq!(stream.peer_addr().unwrap(), at);
                seen.lock().unwrap().push(stream.local_addr().unwrap());
                stream.write_all(b"a question").await.unwrap();
                stream.shutdown(Shutdown::Write).await.unwrap();
                assert_eq!(read_to_end(&stream).await.unwrap(), b"a question heard");
            }
        });
        let mut by_server = server.join().unwrap();
        let mut by_client = std::mem::take(&mut *clients.lock().unwrap());
        by_server.sort();
        by_client.sort();
        known &= by_server == by_client;
    }
    known
}

fn a_reset_of_the_server_arrives(case: Case) {
    for listener in listeners() {
        let at = listener.local_addr().unwrap();
        let server = kernel_server(listener, case.cores, resets);
        on_every_core(case, move || meets_a_reset(at));
        server.join().unwrap();
    }
}

fn a_reset_of_ours_arrives(case: Case) {
    for listener in listeners() {
        let at = listener.local_addr().unwrap();
        let server = kernel_server(listener, case.cores, is_reset);
        on_every_core(case, move || resets_itself(at));
        server.join().unwrap();
    }
}

/// Each side in turn writes faster than the other reads: neither gets rid of more than the buffers between hold, and
/// all arrives as it was.
fn much_both_ways_is_held_back_and_not_changed(case: Case) {
    const LEN: usize = 16 << 20;
    let listener = listeners().remove(0);
    let at = listener.local_addr().unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    let held = written.clone();
    let server = kernel_server(listener, 1, move |mut stream| {
        // Nothing is read until the writer is stuck.
        let begin = Instant::now();
        let (mut last, mut since) = (0, Instant::now());
        while since.elapsed() < Duration::from_millis(300) {
            assert!(begin.elapsed() < PATIENCE, "never held back");
            std::thread::sleep(Duration::from_millis(10));
            let now = held.load(Ordering::Relaxed);
            if now != last || now == 0 {
                (last, since) = (now, Instant::now());
            }
        }
        assert!(last < LEN, "nothing held the writer back");
        let mut all = vec![0; LEN];
        stream.read_exact(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        hash(&all)
    });
    let sent = hash(&pattern(LEN, 3));
    on_every_core(case, move || {
        let written = written.clone();
        async move {
            if janus::core_id() != Some(0) {
                return;
            }
            let stream = TcpStream::connect(at).await.unwrap();
            for chunk in pattern(LEN, 3).chunks(16 * 1024) {
                stream.write_all(chunk).await.unwrap();
                written.fetch_add(chunk.len(), Ordering::Relaxed);
            }
            // Let the server run into our windows for a while.
            janus::time::sleep(Duration::from_millis(200)).await;
            let back = read_to_end(&stream).await.unwrap();
            assert_eq!((back.len(), hash(&back)), (LEN, sent));
        }
    });
    assert_eq!(server.join().unwrap(), [sent]);
}

fn who_does_not_listen_refuses(case: Case) {
    for listener in listeners() {
        let at = listener.local_addr().unwrap();
        drop(listener);
        on_every_core(case, move || async move {
            let begin = Instant::now();
            let error = TcpStream::connect(at).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
            assert!(begin.elapsed() < PATIENCE / 2);
        });
    }
    on_every_core(case, || async {
        for far in ["192.0.2.7:80", "[2001:db8::7]:80"] {
            let far: SocketAddr = far.parse().unwrap();
            let error = TcpStream::connect(far).await.unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::NetworkUnreachable,
                "beyond the reach"
            );
        }
    });
}

fn many_at_once(case: Case) {
    const EACH: usize = 100;
    let listener = listeners().remove(0);
    let at = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut threads = Vec::new();
        for _ in 0..EACH * case.cores {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            threads.push(std::thread::spawn(move || {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).unwrap();
                stream.write_all(&all).unwrap();
            }));
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    on_every_core(case, move || async move {
        let core = janus::core_id().unwrap();
        let client = |index: usize| async move {
            let bytes = pattern(5_000 + index, core * EACH + index);
            let stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown(Shutdown::Write).await.unwrap();
            assert_eq!(hash(&read_to_end(&stream).await.unwrap()), hash(&bytes));
        };
        let tasks: Vec<_> = (0..EACH).map(|i| janus::spawn(client(i))).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    server.join().unwrap();
}

/// A connection to a port of the program's own goes out and comes in again; one below 1024 is found where the portal offers it.
fn our_own_listeners_can_be_reached(case: Case) {
    const PRIVILEGED: u16 = 1011;
    for port in [0, PRIVILEGED] {
        let builder = case.builder().backend(BackendChoice::Portal);
        let runtime = builder.build().unwrap();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let running = Running::start(runtime, move || async move {
            let listener = match TcpListener::bind(at).await {
                // Another test of this machine has it.
                Err(error) if error.kind() == ErrorKind::AddrInUse && port != 0 => return,
                bound => bound.unwrap(),
            };
            let at = SocketAddr::new(at.ip(), listener.local_addr().unwrap().port());
            janus::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    janus::spawn(echo(stream));
                }
            });
            let stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(b"round and round").await.unwrap();
            stream.shutdown(Shutdown::Write).await.unwrap();
            assert_eq!(read_to_end(&stream).await.unwrap(), b"round and round");
        });
        running.join().unwrap();
    }
}

/// A client that does not wait until the kernel's connection stands: when it does in the end, it breaks off at once.
fn an_attempt_given_up_leaves_nothing_behind(case: Case) {
    let listener = listeners().remove(0);
    let at = listener.local_addr().unwrap();
    // A short queue, and full: the kernel answers no further SYN.
    rustix::net::listen(&listener, 1).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = KernelStream::connect_timeout(&at, Duration::from_millis(200)) {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the queue has no end");
    }
    let (given_up, then) = std::sync::mpsc::channel();
    let builder = case.builder().backend(BackendChoice::Portal);
    let running = Running::start(builder.build().unwrap(), move || {
        let given_up = given_up.clone();
        async move {
            if janus::core_id() == Some(0) {
                let attempt = TcpStream::connect(at);
                let hasty = janus::time::timeout(Duration::from_millis(300), attempt);
                assert!(hasty.await.is_err(), "nobody can have answered");
                given_up.send(()).unwrap();
            }
            std::future::pending::<()>().await;
        }
    });
    then.recv_timeout(PATIENCE).unwrap();
    let filled: Vec<_> = waiting
        .iter()
        .map(|stream| stream.local_addr().unwrap())
        .collect();
    // The kernel tries again by itself, and now there is room.
    let late = loop {
        let (stream, from) = listener.accept().unwrap();
        if !filled.contains(&from) {
            break stream;
        }
    };
    late.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = (&late).read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    running.stop().unwrap();
}
