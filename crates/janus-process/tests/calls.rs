//! Two processes on an in-memory wire, and plain threads that call: what blocks, what wakes, what is mixed with the kernel's, what ends.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use janus::{BackendChoice, Runtime, wire};
use janus_process::{Errno, Event, Polled, Process, abi};

const SERVER: &str = "192.0.2.1:7";
/// Nothing here takes so long.
const LONG: Duration = Duration::from_secs(20);

fn goes_on() -> bool {
    true
}

/// Server and client.
fn two() -> (Arc<Process>, Arc<Process>) {
    let (near, far) = wire::pair(wire::Config::default()).expect("a wire");
    let start = |end, address: &str| {
        let builder = Runtime::builder()
            .ignore_environment()
            .address(address.parse().expect("an address"))
            .backend(BackendChoice::wire(end));
        Arc::new(Process::start(builder).expect("a process"))
    };
    (start(near, "192.0.2.1/24"), start(far, "192.0.2.2/24"))
}

fn socket(process: &Process) -> i32 {
    let fd = process.socket(abi::AF_INET, abi::SOCK_STREAM, 0);
    fd.expect("a socket")
}

fn server() -> SocketAddr {
    SERVER.parse().expect("an address")
}

fn listener(process: &Process) -> i32 {
    let fd = socket(process);
    process.bind(fd, server()).expect("a free port");
    process.listen(fd, 100).expect("a free port");
    fd
}

fn connected(process: &Process) -> i32 {
    let fd = socket(process);
    process
        .connect(fd, Some(server()), goes_on)
        .expect("a connection");
    fd
}

fn send(process: &Process, fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    process.send(fd, &[IoSlice::new(bytes)], 0, goes_on)
}

fn recv(process: &Process, fd: i32, into: &mut [u8]) -> Result<usize, Errno> {
    process.receive(fd, &mut [IoSliceMut::new(into)], 0, goes_on)
}

/// Echoes what comes on one connection until its end.
fn echo(process: &Arc<Process>, listener: i32) -> JoinHandle<usize> {
    let process = process.clone();
    thread::spawn(move || {
        let (fd, _) = process.accept4(listener, 0, goes_on).expect("a connection");
        let (mut bytes, mut all) = (vec![0; 10_000], 0);
        loop {
            let n = recv(&process, fd, &mut bytes).expect("bytes");
            if n == 0 {
                process.close(fd).expect("open");
                return all;
            }
            assert_eq!(send(&process, fd, &bytes[..n]), Ok(n));
            all += n;
        }
    })
}

#[test]
fn blocking_calls_carry_much_both_ways() {
    const ALL: usize = 3_000_000;
    let (server, client) = two();
    let served = echo(&server, listener(&server));
    let fd = connected(&client);
    let writer = {
        let client = client.clone();
        thread::spawn(move || {
            let bytes: Vec<u8> = (0..ALL).map(|i| (i % 251) as u8).collect();
            assert_eq!(send(&client, fd, &bytes), Ok(ALL));
            client.shutdown(fd, abi::SHUT_WR).expect("connected");
        })
    };
    let (mut got, mut bytes) = (0, vec![0; 65_536]);
    loop {
        let n = recv(&client, fd, &mut bytes).expect("bytes");
        if n == 0 {
            break;
        }
        let right = bytes[..n]
            .iter()
            .zip(got..)
            .all(|(byte, at)| *byte == (at % 251) as u8);
        assert!(right, "wrong bytes from {got} on");
        got += n;
    }
    assert_eq!(got, ALL);
    writer.join().expect("all is written");
    assert_eq!(served.join().expect("an end"), ALL);
}

#[test]
fn four_threads_accept_on_one_listener() {
    let (server, client) = two();
    let listener = listener(&server);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let server = server.clone();
            thread::spawn(move || {
                for _ in 0..50 {
                    let (fd, _) = server.accept4(listener, 0, goes_on).expect("a connection");
                    let mut byte = [0];
                    assert_eq!(recv(&server, fd, &mut byte), Ok(1));
                    assert_eq!(send(&server, fd, &byte), Ok(1));
                    server.close(fd).expect("open");
                }
            })
        })
        .collect();
    for i in 0..200 {
        let fd = connected(&client);
        let mut byte = [i as u8];
        assert_eq!(send(&client, fd, &byte), Ok(1));
        byte[0] = !byte[0];
        assert_eq!(recv(&client, fd, &mut byte), Ok(1));
        assert_eq!(byte, [i as u8]);
        assert_eq!(recv(&client, fd, &mut byte), Ok(0));
        client.close(fd).expect("open");
    }
    threads
        .into_iter()
        .for_each(|it| it.join().expect("an end"));
}

#[test]
fn patience_ends_when_its_time_is_up() {
    let (server, client) = two();
    let listener = listener(&server);
    let fd = connected(&client);
    let time = [0i64.to_ne_bytes(), 30_000i64.to_ne_bytes()].concat();
    let set = client.setsockopt(fd, abi::SOL_SOCKET, abi::SO_RCVTIMEO, &time);
    set.expect("an option");
    let before = Instant::now();
    assert_eq!(recv(&client, fd, &mut [0]), Err(Errno::EAGAIN));
    assert!(before.elapsed() >= Duration::from_millis(30));
    let mut polled = [Polled {
        fd,
        events: abi::POLLIN as i16,
        revents: 0,
    }];
    let before = Instant::now();
    let limit = Some(Duration::from_millis(20));
    assert_eq!(client.poll(&mut polled, limit), Ok(0));
    assert!(before.elapsed() >= Duration::from_millis(20));
    server.close(listener).expect("open");
}

/// Of a send that begins with nothing sent, as there is no room at all.
#[test]
fn a_send_that_waits_takes_no_time_of_the_processor() {
    const PATIENCE: Duration = Duration::from_millis(300);
    let (server, client) = two();
    let listener = listener(&server);
    let fd = connected(&client);
    server.accept4(listener, 0, goes_on).expect("a connection");
    let text = [7; 65_536];
    let fill = || {
        let full = |()| client.send(fd, &[IoSlice::new(&text)], abi::MSG_DONTWAIT, goes_on);
        std::iter::repeat(())
            .map(full)
            .take_while(Result::is_ok)
            .count()
    };
    // What it has is with the peer, as far as that takes it.
    while fill() > 0 {
        thread::sleep(Duration::from_millis(50));
    }
    let mut patience = [0; 16];
    patience[8..].copy_from_slice(&(PATIENCE.as_micros() as u64).to_ne_bytes());
    client
        .setsockopt(fd, abi::SOL_SOCKET, abi::SO_SNDTIMEO, &patience)
        .expect("a socket");
    let spent = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(now).expect("a time")
    };
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < LONG, "there is always room");
        let (begin, before) = (Instant::now(), spent());
        // The peer may take a little more when its window is probed.
        if let Err(error) = send(&client, fd, &text) {
            assert_eq!(error, Errno::EAGAIN);
            assert!(begin.elapsed() >= PATIENCE);
            let spent = spent() - before;
            assert!(spent < PATIENCE / 2, "{spent:?}");
            break;
        }
    }
}

#[test]
fn poll_and_epoll_mix_with_what_the_kernel_has() {
    let (server, client) = two();
    let served = echo(&server, listener(&server));
    let fd = connected(&client);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let pipe = reader.as_raw_fd();
    let epoll = client
        .epoll_create(abi::EPOLL_CLOEXEC)
        .expect("an instance");
    for (data, watched) in [(1, fd), (2, pipe)] {
        let events = abi::EPOLLIN as u32;
        let event = Event { events, data };
        client
            .epoll_ctl(epoll, abi::EPOLL_CTL_ADD, watched, event)
            .expect("added");
    }
    let mut polled = [fd, pipe].map(|fd| Polled {
        fd,
        events: abi::POLLIN as i16,
        revents: 0,
    });
    let mut happened = [Event::default(); 8];
    let short = Some(Duration::from_millis(5));
    assert_eq!(client.epoll_wait(epoll, &mut happened, short), Ok(0));
    assert_eq!(client.poll(&mut polled, short), Ok(0));
    for round in 0..50 {
        // From another thread, so that who waits sleeps.
        let of_the_kernel = round % 2 == 1;
        let (client_too, mut writer) = (client.clone(), writer.try_clone().expect("a pipe"));
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(1));
            match of_the_kernel {
                true => writer.write_all(b"k").expect("a pipe"),
                false => assert_eq!(send(&client_too, fd, b"j"), Ok(1)),
            }
        });
        match round % 4 {
            0 | 1 => {
                assert_eq!(client.epoll_wait(epoll, &mut happened, Some(LONG)), Ok(1));
                assert_eq!(happened[0].data, 1 + u64::from(of_the_kernel));
            }
            _ => {
                assert_eq!(client.poll(&mut polled, Some(LONG)), Ok(1));
                let seen = polled.map(|it| it.revents != 0);
                assert_eq!(seen, [!of_the_kernel, of_the_kernel]);
            }
        }
        later.join().expect("an end");
        let mut byte = [0];
        match of_the_kernel {
            true => std::io::Read::read_exact(&mut &reader, &mut byte).expect("a byte"),
            false => assert_eq!(recv(&client, fd, &mut byte), Ok(1)),
        }
    }
    client.close(epoll).expect("open");
    client.close(fd).expect("open");
    assert_eq!(served.join().expect("an end"), 25);
}

/// An instance within an instance, and one that is polled: both parts of the inner one are seen.
#[test]
fn an_instance_is_watched_with_all_that_it_watches() {
    let (server, client) = two();
    let served = echo(&server, listener(&server));
    let fd = connected(&client);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    let create = || client.epoll_create(0).expect("an instance");
    let (inner, outer) = (create(), create());
    let add = |epoll, watched, data| {
        let events = abi::EPOLLIN as u32;
        let event = Event { events, data };
        client
            .epoll_ctl(epoll, abi::EPOLL_CTL_ADD, watched, event)
            .expect("added");
    };
    add(inner, fd, 1);
    add(inner, reader.as_raw_fd(), 2);
    add(outer, inner, 3);
    let mut happened = [Event::default(); 8];
    let mut polled = [Polled {
        fd: inner,
        events: abi::POLLIN as i16,
        revents: 0,
    }];
    let none = Some(Duration::ZERO);
    for of_the_kernel in [false, true, false, true] {
        assert_eq!(client.epoll_wait(outer, &mut happened, none), Ok(0));
        assert_eq!(client.poll(&mut polled, none), Ok(0));
        match of_the_kernel {
            true => writer.write_all(b"k").expect("a pipe"),
            false => assert_eq!(send(&client, fd, b"j"), Ok(1)),
        }
        assert_eq!(client.epoll_wait(outer, &mut happened, Some(LONG)), Ok(1));
        assert_eq!(happened[0].data, 3);
        assert_eq!(client.poll(&mut polled, none), Ok(1));
        assert_eq!(client.epoll_wait(inner, &mut happened, none), Ok(1));
        assert_eq!(happened[0].data, 1 + u64::from(of_the_kernel));
        let mut byte = [0];
        match of_the_kernel {
            true => (&reader).read_exact(&mut byte).expect("a byte"),
            false => assert_eq!(recv(&client, fd, &mut byte), Ok(1)),
        }
    }
    for open in [inner, outer, fd] {
        client.close(open).expect("open");
    }
    served.join().expect("an end");
}

/// A program that computes: its guardian takes what comes, and says so.
#[test]
fn a_guardian_acknowledges_while_nobody_calls() {
    let (server, client) = two();
    let listener = listener(&server);
    let fd = connected(&client);
    let (accepted, _) = server.accept4(listener, 0, goes_on).expect("a connection");
    for len in [1_000, 50_000] {
        let bytes = vec![7; len];
        assert_eq!(send(&client, fd, &bytes), Ok(len));
        let before = Instant::now();
        while client.ioctl(fd, abi::SIOCOUTQ, 0) != Ok(0) {
            assert!(before.elapsed() < LONG, "nobody acknowledges");
            thread::sleep(Duration::from_micros(100));
        }
        let mut into = vec![0; len];
        let mut got = 0;
        while got < len {
            got += recv(&server, accepted, &mut into[got..]).expect("bytes");
        }
        assert_eq!(into, bytes);
    }
}

#[test]
fn descriptors_are_the_lowest_there_are_and_have_names() {
    let (server, client) = two();
    let served = echo(&server, listener(&server));
    let fd = connected(&client);
    let other = client
        .fcntl(fd, abi::F_DUPFD_CLOEXEC, 500)
        .expect("a number");
    assert!(other >= 500);
    assert_eq!(client.fcntl(other, abi::F_GETFD, 0), Ok(abi::FD_CLOEXEC));
    assert_eq!(client.fcntl(fd, abi::F_GETFD, 0), Ok(0));
    client.close(fd).expect("open");
    assert_eq!(client.close(fd), Err(Errno::EBADF));
    assert!(!client.has(fd) && client.has(other));
    assert_eq!(send(&client, other, b"still"), Ok(5));
    let mut five = [0; 5];
    assert_eq!(recv(&client, other, &mut five), Ok(5));
    client.close(other).expect("open");
    assert_eq!(served.join().expect("an end"), 5);
}

/// What was written arrives although its process ends at once.
#[test]
fn the_end_of_a_process_waits_for_what_it_owes() {
    let (server, client) = two();
    let listener = listener(&server);
    let fd = connected(&client);
    let bytes = vec![3; 60_000];
    assert_eq!(send(&client, fd, &bytes), Ok(bytes.len()));
    let ending = thread::spawn(move || client.end().expect("an end in order"));
    let (accepted, _) = server.accept4(listener, 0, goes_on).expect("a connection");
    let (mut got, mut into) = (0, [0; 4_096]);
    loop {
        match recv(&server, accepted, &mut into).expect("no reset") {
            0 => break,
            n => got += n,
        }
    }
    assert_eq!(got, bytes.len());
    server.close(accepted).expect("open");
    ending.join().expect("an end");
    server.end().expect("an end in order");
    assert_eq!(
        server.socket(abi::AF_INET, abi::SOCK_STREAM, 0),
        Err(Errno::EBADF)
    );
}

/// One that lingers is told of the last acknowledgement also while another thread sleeps for the core.
#[test]
fn a_close_that_lingers_ends_when_all_is_acknowledged() {
    let (server, client) = two();
    // No thread of the server's is in a call: its guardian acknowledges, a moment later.
    let listener = listener(&server);
    let (fd, other) = (connected(&client), socket(&client));
    client
        .bind(other, "192.0.2.2:9".parse().expect("an address"))
        .expect("a free port");
    client.listen(other, 1).expect("a free port");
    let sleeper = {
        let client = client.clone();
        thread::spawn(move || client.accept4(other, 0, goes_on))
    };
    thread::sleep(Duration::from_millis(20));
    let linger = [1i32.to_ne_bytes(), 20i32.to_ne_bytes()].concat();
    let set = client.setsockopt(fd, abi::SOL_SOCKET, abi::SO_LINGER, &linger);
    set.expect("an option");
    assert_eq!(send(&client, fd, b"last"), Ok(4));
    let before = Instant::now();
    client.close(fd).expect("open");
    assert!(
        before.elapsed() < Duration::from_secs(5),
        "it lingers on: {:?}",
        before.elapsed()
    );
    server.close(listener).expect("open");
    client.end().expect("an end in order");
    assert!(sleeper.join().expect("an end").is_err());
}
