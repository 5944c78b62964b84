//! Children that accept from what their parent listens at.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use libc::{c_int, sockaddr_in, socklen_t};

use super::children::{close, ended, forked};
use super::{LEN, address, connection, errno, recv, send, socket};

/// The port of a socket.
fn port(fd: c_int) -> u16 {
    let (mut name, mut len) = (address(0), LEN);
    // SAFETY: the address is there, and so long.
    let told = unsafe { libc::getsockname(fd, (&raw mut name).cast(), &mut len) };
    assert_eq!(told, 0, "{}", errno());
    assert_eq!(name.sin_family, libc::AF_INET as u16);
    u16::from_be(name.sin_port)
}

/// A connection to the port: an error, or the descriptor.
fn connected(port: u16) -> Result<c_int, c_int> {
    let (fd, name) = (socket(), address(port));
    // SAFETY: the address is there, and so long.
    match unsafe { libc::connect(fd, (&raw const name).cast(), LEN) } {
        0 => Ok(fd),
        _ => {
            let error = errno();
            close(fd);
            Err(error)
        }
    }
}

/// The answer to four bytes, which is the number of the process that gave it; a child that is told `end!` ends.
fn answered(port: u16, text: &[u8; 4]) -> i32 {
    let fd = connected(port).expect("a listener");
    let mut got = [0; 4];
    assert_eq!(send(fd, text), 4, "{}", errno());
    assert_eq!(recv(fd, &mut got), 4, "{}", errno());
    close(fd);
    i32::from_ne_bytes(got)
}

fn option(fd: c_int, name: c_int) -> c_int {
    option_of(fd, libc::SOL_SOCKET, name)
}

pub(crate) fn option_of(fd: c_int, level: c_int, name: c_int) -> c_int {
    let (mut value, mut len) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: there is room for the value.
    let got = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut len) };
    assert_eq!(got, 0, "{}", errno());
    value
}

/// Accepts one: false once it was told to end.
fn serves_one(listener: c_int) -> bool {
    let (mut name, mut len) = (address(0), LEN);
    // SAFETY: there is room for the address.
    let fd = unsafe { libc::accept(listener, (&raw mut name).cast(), &mut len) };
    assert!(fd >= 0, "{}", errno());
    assert_eq!((len, name.sin_family), (LEN, libc::AF_INET as u16));
    let (mut peer, mut len) = (address(0), LEN);
    // SAFETY: there is room for the address.
    let told = unsafe { libc::getpeername(fd, (&raw mut peer).cast(), &mut len) };
    assert_eq!((told, peer.sin_port), (0, name.sin_port), "{}", errno());
    assert_eq!(port(fd), port(listener));
    let mut got = [0; 4];
    assert_eq!(recv(fd, &mut got), 4, "{}", errno());
    // SAFETY: the call takes nothing.
    let me = unsafe { libc::getpid() };
    assert_eq!(send(fd, &me.to_ne_bytes()), 4, "{}", errno());
    close(fd);
    got != *b"end!"
}

pub(crate) fn several() {
    let (listener, client, server) = connection();
    close(client);
    close(server);
    let port = port(listener);
    let children: Vec<libc::pid_t> = (0..3)
        .map(|_| {
            forked(|| {
                let (mut name, mut len): (sockaddr_in, _) = (address(0), LEN);
                // SAFETY: there is room for the address.
                let told = unsafe { libc::getpeername(listener, (&raw mut name).cast(), &mut len) };
                assert_eq!((told, errno()), (-1, libc::ENOTCONN));
                assert_eq!(option(listener, libc::SO_ACCEPTCONN), 1);
                assert_eq!(option(listener, libc::SO_TYPE), libc::SOCK_STREAM);
                // SAFETY: the call takes numbers.
                assert_eq!(unsafe { libc::listen(listener, 10) }, 0);
                while serves_one(listener) {}
            })
        })
        .collect();
    for _ in 0..60 {
        assert!(children.contains(&answered(port, b"text")));
    }
    // As on Linux it listens for as long as one of them has it.
    close(listener);
    let mut left = children.clone();
    while !left.is_empty() {
        let ends = answered(port, b"end!");
        assert!(left.contains(&ends), "{ends} has ended before");
        ended(ends);
        left.retain(|child| *child != ends);
        if !left.is_empty() {
            assert!(left.contains(&answered(port, b"text")));
        }
    }
    let begin = Instant::now();
    loop {
        match connected(port) {
            Err(libc::ECONNREFUSED) => break,
            // The listener was closed before the connection was accepted.
            Err(libc::ECONNRESET) => {}
            Err(error) => panic!("{error}"),
            Ok(fd) => close(fd),
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it listens");
    }
}

/// Waits for what is readable, so long at most.
fn is_readable(fd: c_int, ms: c_int) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: there is one entry.
    unsafe { libc::poll(&raw mut polled, 1, ms) > 0 }
}

pub(crate) fn one_after_the_other() {
    let (listener, client, server) = connection();
    close(client);
    close(server);
    let port = port(listener);
    // SAFETY: the call takes numbers.
    unsafe { libc::fcntl(listener, libc::F_SETFL, libc::O_NONBLOCK) };
    let (mut ready, mut byte) = ([0; 2], [0_u8; 1]);
    // SAFETY: there is room for two numbers.
    assert_eq!(unsafe { libc::pipe(ready.as_mut_ptr()) }, 0);
    // One that sees a connection, and leaves it.
    let leaves = forked(|| {
        // SAFETY: the calls take numbers, no address, and a byte.
        unsafe {
            let none = libc::accept(listener, null_mut(), null_mut());
            assert_eq!((none, errno()), (-1, libc::EAGAIN));
            assert_eq!(libc::write(ready[1], (&raw const byte).cast(), 1), 1);
        }
        assert!(is_readable(listener, 10_000));
        close(listener);
    });
    // SAFETY: there is room for a byte.
    let told = unsafe { libc::read(ready[0], (&raw mut byte).cast(), 1) };
    assert_eq!(told, 1);
    let fd = connected(port).expect("a listener");
    assert_eq!(send(fd, b"end!"), 4, "{}", errno());
    ended(leaves);
    let takes = forked(|| {
        assert!(is_readable(listener, 10_000));
        while serves_one(listener) {}
    });
    let mut got = [0; 4];
    assert_eq!(recv(fd, &mut got), 4, "{}", errno());
    assert_eq!(i32::from_ne_bytes(got), takes);
    ended(takes);
}

/// A child that waits for connections, and whose parent is killed, does that; the number that it answers.
fn after_the_parent(then: fn(c_int) -> u8) -> u8 {
    let mut pipe = [0; 2];
    // SAFETY: there is room for two numbers.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let parent = forked(|| {
        let (listener, ..) = connection();
        forked(|| {
            // SAFETY: the calls take numbers, no address, and a byte.
            unsafe {
                libc::fcntl(listener, libc::F_SETFL, libc::O_NONBLOCK);
                let none = libc::accept(listener, null_mut(), null_mut());
                assert_eq!((none, errno()), (-1, libc::EAGAIN));
                libc::kill(libc::getppid(), libc::SIGKILL);
                assert!(is_readable(listener, 10_000));
                let answer = then(listener);
                libc::write(pipe[1], (&raw const answer).cast(), 1);
            }
        });
        // SAFETY: the call takes nothing.
        unsafe { libc::pause() };
    });
    let (mut status, mut answer) = (0, 0_u8);
    // SAFETY: there is room for the status, and for a byte.
    unsafe {
        assert_eq!(libc::waitpid(parent, &mut status, 0), parent);
        assert!(libc::WIFSIGNALED(status), "{status:#x}");
        assert_eq!(libc::read(pipe[0], (&raw mut answer).cast(), 1), 1);
    }
    answer
}

/// It listens there itself.
pub(crate) fn instead_of_the_parent() {
    let served = after_the_parent(|listener| {
        // SAFETY: the call takes a number, and no address.
        let none = unsafe { libc::accept(listener, null_mut(), null_mut()) };
        assert_eq!((none, errno()), (-1, libc::EAGAIN));
        let fd = connected(port(listener)).expect("a listener");
        assert_eq!(send(fd, b"more"), 4, "{}", errno());
        serves_one(listener).into()
    });
    assert_eq!(served, 1);
}

/// If it cannot, it finds an end and no connection each time that it looks, and is not to do that all the time.
pub(crate) fn without_a_parent() {
    let looks = after_the_parent(|listener| {
        // SAFETY: the calls take numbers.
        let next = unsafe {
            let next = libc::dup(0);
            libc::close(next);
            next as libc::rlim_t
        };
        // One more can be open.
        let few = libc::rlimit {
            rlim_cur: next + 1,
            rlim_max: next + 1,
        };
        let (mut begin, mut looks) = (None, 0_u8);
        // SAFETY: the limit is there; the calls take a number, and no address.
        unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &few), 0);
            while begin.is_none_or(|begin: Instant| begin.elapsed() < Duration::from_secs(1)) {
                assert!(is_readable(listener, 10_000));
                let none = libc::accept(listener, null_mut(), null_mut());
                assert_eq!((none, errno()), (-1, libc::EINVAL));
                looks = looks.saturating_add(1);
                // From when it has tried.
                begin.get_or_insert_with(Instant::now);
            }
        }
        looks
    });
    assert!((1..=12).contains(&looks), "{looks} times in a second");
}
