//! Handlers that call in, whatever they interrupt: POSIX says of most calls of sockets that a handler may make them. What it interrupts may be
//! the allocator of memory, or a call of ours in a child.

use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use libc::c_int;

use crate::{CALLED, LONG, connection, ends_within, errno, flood, install, recv, send, socket};

/// Calls of the handler that a part wants.
const HANDLED: u64 = 20_000;
/// Bytes of memory that the last four fifths of them may take: tables grow for the last time. A piece for each call would be twice that.
const GROWS_MAX: usize = 4 << 20;
/// Children, each of which is interrupted once.
const CHILDREN: u64 = 100;

/// The ends of a connection, and a listener.
static ENDS: [AtomicI32; 3] = [const { AtomicI32::new(-1) }; 3];

fn ends() -> [c_int; 3] {
    [0, 1, 2].map(|at| ENDS[at].load(Ordering::Relaxed))
}

/// A listener and a connection for the handler.
fn begin() {
    let (listener, client, server) = connection();
    for (place, fd) in ENDS.iter().zip([client, server, listener]) {
        place.store(fd, Ordering::Relaxed);
    }
}

extern "C" fn uses_sockets(_: c_int) {
    let [client, server, _] = ends();
    let new = socket();
    let mut polled = libc::pollfd {
        fd: server,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: there is one place; the calls take numbers.
    unsafe {
        send(client, b"!");
        libc::poll(&mut polled, 1, 1_000);
        libc::close(new);
    }
    if new >= 0 && recv(server, &mut [0; 16]) > 0 {
        CALLED.fetch_add(1, Ordering::Relaxed);
    }
}

extern "C" fn closes(_: c_int) {
    let [_, _, listener] = ends();
    // SAFETY: the call takes a number.
    CALLED.fetch_add(
        u64::from(unsafe { libc::close(listener) } == 0),
        Ordering::Relaxed,
    );
}

/// Pieces that the allocator has no place for at hand: it holds its lock most of the time.
fn takes_memory(round: usize) {
    let pieces: Vec<Vec<u8>> = (0..8)
        .map(|at| Vec::with_capacity(2_000 + (round + 700 * at) % 6_000))
        .collect();
    black_box(pieces);
}

/// Bytes that the process may write to, whether it has done so or not: packet buffers are used for the first time long after they are there.
fn writable() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|it| it.parse::<usize>().ok());
    pages.expect("a number") * rustix::param::page_size()
}

/// The handler runs while its thread takes memory.
pub(crate) fn taking_memory() {
    begin();
    install(uses_sockets, libc::SA_RESTART);
    let flood = flood(HANDLED, Duration::from_micros(50));
    let (mut rounds, mut before) = (0, 0);
    while !flood.is_finished() {
        takes_memory(rounds);
        rounds += 1;
        if before == 0 && CALLED.load(Ordering::Relaxed) >= HANDLED / 5 {
            before = writable();
        }
    }
    // Before the thread's end, which takes some.
    let after = writable();
    flood.join().expect("an end");
    assert!(CALLED.load(Ordering::Relaxed) >= HANDLED);
    assert!(after < before + GROWS_MAX, "{before} bytes, then {after}");
}

/// The handler runs in children, which it has close what their parent listens at, while they do this.
fn in_children(does: impl Fn(usize)) {
    begin();
    install(closes, libc::SA_RESTART);
    for number in 0..CHILDREN {
        // SAFETY: the child goes on with this thread alone, and ends by itself.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", errno());
        if child == 0 {
            let mut rounds = 0;
            while CALLED.load(Ordering::Relaxed) == 0 {
                does(rounds);
                rounds += 1;
            }
            // SAFETY: the call takes a number.
            unsafe { libc::_exit(0) };
        }
        thread::sleep(Duration::from_micros(500 + 37 * number));
        // SAFETY: the child is there until it is waited for.
        unsafe { libc::kill(child, libc::SIGUSR1) };
        assert!(ends_within(child, LONG / 4), "child {number} does not end");
    }
}

pub(crate) fn children_taking_memory() {
    in_children(takes_memory);
}

/// Calls in children, of those that know what the parent has.
pub(crate) fn children_calling() {
    in_children(|_| {
        let [_, _, listener] = ends();
        // SAFETY: the event is there; the calls take numbers.
        unsafe {
            let epfd = libc::epoll_create1(0);
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            for how in [libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_DEL] {
                libc::epoll_ctl(epfd, how, listener, &mut event);
            }
            let flags = libc::fcntl(listener, libc::F_GETFL);
            libc::fcntl(listener, libc::F_SETFL, flags | libc::O_NONBLOCK);
            libc::accept(listener, null_mut(), null_mut());
            libc::close(epfd);
        }
    });
}
