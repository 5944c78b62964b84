//! What a process does beside carrying bytes, with the library in front of libc: children, signals, descriptors that are closed, moved or
//! run out, other programs in its place. Each part is a process of its own, which checks itself; connections stay within it.

use std::env;
use std::ffi::CStr;
use std::io::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_char, c_int, c_void, sockaddr_in, socklen_t};

mod accepting;
mod children;
mod interrupted;
mod leaving;

/// Says which part a process is; in none: it is the judge.
const PART: &str = "LIVES_PART";
/// No part takes so long.
const LONG: Duration = Duration::from_secs(60);
const LEN: socklen_t = size_of::<sockaddr_in>() as socklen_t;

const PARTS: &[(&str, fn())] = &[
    (
        "children leave the parent's connections alone",
        children::children,
    ),
    (
        "a child uses its parent's connections",
        children::used_in_a_child,
    ),
    (
        "a connection lasts until the child has let it go",
        children::held_for_a_child,
    ),
    (
        "numbers of sockets in a child",
        children::numbers_in_a_child,
    ),
    (
        "a child becomes a program that uses one",
        children::used_by_a_program,
    ),
    ("a program is spawned with one", children::spawned_with),
    (
        "one goes to another process by a message",
        children::sent_to_another,
    ),
    (
        "children accept at what their parent listens at",
        accepting::several,
    ),
    (
        "a child takes what another has left",
        accepting::one_after_the_other,
    ),
    (
        "a child whose parent is gone listens in its place",
        accepting::instead_of_the_parent,
    ),
    (
        "a child whose parent is gone does not look all the time",
        accepting::without_a_parent,
    ),
    (
        "an instance of epoll is waited for before it has a socket",
        waited_for_already,
    ),
    ("signals interrupt what they should", signals),
    ("handlers may call in", handlers),
    (
        "handlers may call in while memory is taken",
        interrupted::taking_memory,
    ),
    (
        "children's handlers may close while memory is taken",
        interrupted::children_taking_memory,
    ),
    (
        "children's handlers may close in calls",
        interrupted::children_calling,
    ),
    ("a program with connections is not replaced", replaced),
    (
        "a program is replaced whose sockets that closes",
        leaving::closed_by_it,
    ),
    (
        "a program alone does not leave what it listens at",
        leaving::refused_alone,
    ),
    ("all descriptors are closed", closed),
    ("descriptors run out", out_of_descriptors),
    ("numbers change hands", numbers),
    ("system calls by their numbers", by_number),
];

/// Parts of a daemon's members.
const MEMBERS: &[(&str, fn())] = &[
    (
        "a child becomes a program that listens in its place",
        leaving::to_a_childs_program,
    ),
    (
        "connections that wait are accepted by the next program",
        leaving::those_that_wait,
    ),
    (
        "a program becomes one that listens in its place",
        leaving::to_the_program_itself,
    ),
];
/// What these begin.
const HELPERS: &[(&str, fn())] = &[
    (leaving::SERVER, leaving::server),
    (leaving::HEIR, leaving::heir),
];

fn main() {
    if let Ok(part) = env::var(PART) {
        let mut all = PARTS.iter().chain(MEMBERS).chain(HELPERS);
        let found = all.find(|(name, _)| *name == part);
        return found.expect("a part").1();
    }
    if !library().is_file() {
        eprintln!("skipped: {} is not built", library().display());
        return;
    }
    for (name, _) in PARTS {
        let mut child = Command::new(env::current_exe().expect("a path"))
            .env(PART, name)
            .env("LD_PRELOAD", library())
            .env("JANUS_BACKEND", "none")
            .env("JANUS_PROGRAM_OURS", "any")
            .spawn()
            .expect("it runs");
        assert!(ends_well(&mut child), "{name}");
        println!("{name}: ok");
    }
    let socket = leaving::daemon();
    for (name, _) in MEMBERS {
        let mut child = Command::new(env::current_exe().expect("a path"))
            .env(PART, name)
            .env("LD_PRELOAD", library())
            .env("JANUS_BACKEND", "daemon")
            .env("JANUS_DAEMON_SOCKET", &socket)
            .env("JANUS_PROGRAM_OURS", "any")
            .spawn()
            .expect("it runs");
        assert!(ends_well(&mut child), "{name}");
        println!("{name}: ok");
    }
    let _ = std::fs::remove_file(socket);
}

/// Cargo builds it for this test, beside it.
fn library() -> PathBuf {
    let own = env::current_exe().expect("a path");
    own.with_file_name("libjanus_preload.so")
}

fn ends_well(child: &mut Child) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < LONG {
        match child.try_wait().expect("a child") {
            Some(status) => return status.success(),
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
    child.kill().expect("it runs");
    false
}

/// Whether a forked child ends well, and soon.
fn ends_within(child: libc::pid_t, limit: Duration) -> bool {
    let (begin, mut status) = (Instant::now(), -1);
    while begin.elapsed() < limit {
        // SAFETY: the status is there.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return status == 0;
        }
        thread::sleep(Duration::from_micros(100));
    }
    // SAFETY: it has not been waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    false
}

fn errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn socket() -> c_int {
    // SAFETY: the call takes numbers.
    unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) }
}

fn address(port: u16) -> sockaddr_in {
    let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: at.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*at.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// A listener, and a connection by it: the end that opened, the end that was accepted.
fn connection() -> (c_int, c_int, c_int) {
    let (listener, client) = (socket(), socket());
    let (mut name, mut len) = (address(0), LEN);
    // SAFETY: the addresses are there, and so long.
    unsafe {
        assert_eq!(libc::bind(listener, (&raw const name).cast(), LEN), 0);
        assert_eq!(libc::listen(listener, 10), 0);
        assert_eq!(
            libc::getsockname(listener, (&raw mut name).cast(), &mut len),
            0
        );
        assert_eq!(
            libc::connect(client, (&raw const name).cast(), LEN),
            0,
            "{}",
            errno()
        );
        let server = libc::accept(listener, null_mut(), null_mut());
        assert!(server >= 0);
        (listener, client, server)
    }
}

fn send(fd: c_int, bytes: &[u8]) -> isize {
    // SAFETY: so many bytes are there.
    unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) }
}

fn recv(fd: c_int, into: &mut [u8]) -> isize {
    // SAFETY: there is so much room.
    unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), 0) }
}

/// Bytes go both ways.
fn lives(a: c_int, b: c_int) {
    for (from, to) in [(a, b), (b, a)] {
        let mut got = [0; 5];
        assert_eq!(send(from, b"alive"), 5, "{}", errno());
        assert_eq!(recv(to, &mut got), 5, "{}", errno());
        assert_eq!(&got, b"alive");
    }
}

/// Time for which a processor has worked for this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn waited_for_already() {
    // SAFETY: the call takes a number.
    let epfd = unsafe { libc::epoll_create1(0) };
    let threads: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(move || {
                let mut event = libc::epoll_event { events: 0, u64: 0 };
                // SAFETY: there is room for one.
                let told = unsafe { libc::epoll_wait(epfd, &mut event, 1, 30_000) };
                (told, { event.u64 })
            })
        })
        .collect();
    // Both are in the kernel by then, or find it Janus's at once; either is right.
    thread::sleep(Duration::from_millis(50));
    let (_listener, client, server) = connection();
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 7,
    };
    // SAFETY: the event is there for as long as the call.
    let added = unsafe { libc::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, server, &mut event) };
    assert_eq!(added, 0);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(send(client, b"x"), 1);
    for thread in threads {
        assert_eq!(thread.join().expect("an answer"), (1, 7));
    }
    // What called them is gone: a wait for nothing lasts.
    assert_eq!(recv(server, &mut [0; 8]), 1);
    let begun = processor_time();
    // SAFETY: as above.
    let told = unsafe { libc::epoll_wait(epfd, &mut event, 1, 100) };
    assert_eq!(told, 0);
    let took = processor_time() - begun;
    assert!(took < Duration::from_millis(50), "{took:?}");
}

static CALLED: AtomicU64 = AtomicU64::new(0);
static ANSWERS_ON: AtomicI32 = AtomicI32::new(-1);

extern "C" fn handler(_: c_int) {
    CALLED.fetch_add(1, Ordering::Relaxed);
    let fd = ANSWERS_ON.load(Ordering::Relaxed);
    if fd >= 0 {
        send(fd, b"!");
    }
}

fn install(handler: extern "C" fn(c_int), flags: c_int) {
    // SAFETY: the action is plain data, for which zeros are a value, and the handler is one.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
        let mut now: libc::sigaction = core::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGUSR1, null(), &mut now), 0);
        assert_eq!(
            now.sa_sigaction, action.sa_sigaction,
            "the program sees its own"
        );
    }
}

/// Sends this thread a signal after a while.
fn signal_soon(times: u32) -> thread::JoinHandle<()> {
    // SAFETY: the thread lives until it has joined the other.
    let me = unsafe { libc::pthread_self() };
    thread::spawn(move || {
        for _ in 0..times {
            thread::sleep(Duration::from_millis(20));
            // SAFETY: as above.
            unsafe { libc::pthread_kill(me, libc::SIGUSR1) };
        }
    })
}

fn signals() {
    let (_, client, server) = connection();
    let mut byte = [0];
    // Without SA_RESTART a read ends.
    install(handler, 0);
    let sender = signal_soon(1);
    assert_eq!((recv(client, &mut byte), errno()), (-1, libc::EINTR));
    sender.join().expect("an end");
    // With it a read goes on, and a wait does not.
    install(handler, libc::SA_RESTART);
    let sender = signal_soon(3);
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_millis(150));
        assert_eq!(send(server, b"x"), 1);
    });
    assert_eq!(recv(client, &mut byte), 1, "{}", errno());
    sender.join().expect("an end");
    later.join().expect("an end");
    let sender = signal_soon(1);
    let mut polled = libc::pollfd {
        fd: client,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: there is one place.
    let told = unsafe { libc::poll(&mut polled, 1, 10_000) };
    assert_eq!((told, errno()), (-1, libc::EINTR));
    sender.join().expect("an end");
    assert_eq!(CALLED.load(Ordering::Relaxed), 5);
    lives(client, server);
}

/// Sends this thread signals until its handler was called so often.
fn flood(handled: u64, every: Duration) -> thread::JoinHandle<()> {
    // SAFETY: the thread lives until it has joined the other.
    let me = unsafe { libc::pthread_self() };
    thread::spawn(move || {
        let begin = Instant::now();
        // Signals run together while the thread does not run.
        while CALLED.load(Ordering::Relaxed) < handled && begin.elapsed() < LONG / 2 {
            // SAFETY: as above.
            unsafe { libc::pthread_kill(me, libc::SIGUSR1) };
            thread::sleep(every);
        }
    })
}

/// A handler that sends on the socket on which its thread sends: it runs while nothing is held.
fn handlers() {
    const HANDLED: u64 = 150;
    let (_, client, server) = connection();
    ANSWERS_ON.store(client, Ordering::Relaxed);
    install(handler, libc::SA_RESTART);
    let flood = flood(HANDLED, Duration::from_micros(300));
    let reader = thread::spawn(move || {
        let (mut into, mut own, mut handlers) = (vec![0; 65_536], 0, 0);
        loop {
            let n = recv(server, &mut into);
            if n <= 0 {
                return (own, handlers);
            }
            let here = into[..n as usize]
                .iter()
                .filter(|byte| **byte == b'!')
                .count() as u64;
            handlers += here;
            own += n as u64 - here;
        }
    });
    let mut sent = 0;
    while !flood.is_finished() {
        let n = send(client, &[b'x'; 100]);
        assert!(n > 0, "{}", errno());
        sent += n as u64;
    }
    flood.join().expect("an end");
    // SAFETY: the call takes numbers.
    unsafe { libc::shutdown(client, libc::SHUT_WR) };
    let called = CALLED.load(Ordering::Relaxed);
    assert!(called >= HANDLED, "{called}");
    assert_eq!(reader.join().expect("an end"), (sent, called));
}

fn replaced() {
    let (listener, client, server) = connection();
    let (program, words) = (c"/bin/true", [c"true".as_ptr(), null()]);
    // SAFETY: the strings end with zeros, and the vector with a null.
    unsafe {
        let (path, word, end) = (program.as_ptr(), words[0], null::<c_char>());
        let refused = |answer: c_int| assert_eq!((answer, errno()), (-1, libc::EBUSY));
        refused(libc::execv(path, words.as_ptr()));
        refused(libc::execl(path, word, end));
        refused(libc::execlp(
            path, word, word, word, word, word, word, word, end,
        ));
        refused(libc::execle(path, word, end, words.as_ptr().add(1)));
        let here = libc::AT_FDCWD;
        let (words, none) = (words.as_ptr().cast(), words.as_ptr().add(1).cast());
        refused(libc::execveat(here, path, words, none, 0));
    }
    lives(client, server);
    for fd in [listener, client, server] {
        // SAFETY: each is open.
        unsafe { libc::close(fd) };
    }
    // As many words as no register has room for, and an environment behind them. It does not come back.
    let (shell, c, zero, end) = (
        c"/bin/sh".as_ptr(),
        c"-c".as_ptr(),
        c"sh".as_ptr(),
        null::<c_char>(),
    );
    let asked = c"[ \"$1$2$3$4$5$6$7$8 $IT\" = '12345678 is' ]".as_ptr();
    let words = [c"1", c"2", c"3", c"4", c"5", c"6", c"7", c"8"].map(CStr::as_ptr);
    let [a, b, d, e, f, g, h, i] = words;
    let environment = [c"IT=is".as_ptr(), null()];
    // SAFETY: as above.
    unsafe {
        libc::execle(
            shell,
            zero,
            c,
            asked,
            zero,
            a,
            b,
            d,
            e,
            f,
            g,
            h,
            i,
            end,
            environment.as_ptr(),
        )
    };
    panic!("it is not replaced: {}", errno());
}

fn closed() {
    let (listener, client, server) = connection();
    // SAFETY: the calls take numbers. Nothing else of this process has descriptors.
    unsafe {
        let all = libc::syscall(libc::SYS_close_range, 3u64, u64::from(u32::MAX), 0u64);
        assert_eq!(all, 0);
        for fd in [listener, client, server] {
            assert_eq!((libc::close(fd), errno()), (-1, libc::EBADF));
        }
    }
    // What Janus works with is still there.
    let (_, client, server) = connection();
    lives(client, server);
}

fn out_of_descriptors() {
    let (_, client, server) = connection();
    let few = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    // SAFETY: the limit is there.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &few) }, 0);
    let mut open = Vec::new();
    let last = loop {
        match socket() {
            -1 => break errno(),
            fd => open.push(fd),
        }
    };
    assert_eq!(last, libc::EMFILE);
    assert!(open.iter().all(|fd| (0..64).contains(fd)));
    lives(client, server);
    // SAFETY: it is open.
    unsafe { libc::close(open[0]) };
    assert_eq!(socket(), open[0], "the lowest that is free");
}

fn numbers() {
    let (_, client, server) = connection();
    let (mut pipe, mut byte) = ([0; 2], [0u8]);
    // SAFETY: the calls take numbers, and buffers that are so long.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        // A socket in the place of a pipe's end, and the pipe's other end in the place of a socket.
        assert_eq!(libc::dup2(client, pipe[0]), pipe[0]);
        assert_eq!(libc::close(client), 0);
        lives(pipe[0], server);
        let (new, mut other) = (socket(), [0; 2]);
        assert_eq!(libc::pipe(other.as_mut_ptr()), 0);
        assert_eq!(libc::dup2(other[0], new), new);
        assert_eq!(libc::write(other[1], c"k".as_ptr().cast::<c_void>(), 1), 1);
        assert_eq!(libc::read(new, byte.as_mut_ptr().cast(), 1), 1);
        assert_eq!(&byte, b"k");
        let high = libc::fcntl(server, libc::F_DUPFD_CLOEXEC, 300);
        assert!(high >= 300);
        assert_eq!(libc::fcntl(high, libc::F_GETFD), libc::FD_CLOEXEC);
        assert_eq!(libc::close(server), 0);
        lives(high, pipe[0]);
        for wrong in [-1, 999, 1 << 25, server] {
            assert_eq!(
                (recv(wrong, &mut byte), errno()),
                (-1, libc::EBADF),
                "{wrong}"
            );
        }
    }
}

fn by_number() {
    let (_, client, server) = connection();
    let mut into = [0u8; 4];
    // SAFETY: the calls have the arguments that their numbers take.
    unsafe {
        let sent = libc::syscall(libc::SYS_write, client, c"four".as_ptr(), 4usize);
        assert_eq!(sent, 4);
        let place = into.as_mut_ptr();
        let got = libc::syscall(libc::SYS_recvfrom, server, place, 4usize, 0, 0usize, 0usize);
        assert_eq!((got, &into), (4, b"four"));
        let rings = libc::syscall(libc::SYS_io_uring_setup, 8u64, 0usize);
        assert_eq!((rings, errno()), (-1, libc::ENOSYS));
        assert_eq!(libc::syscall(libc::SYS_close, client), 0);
        assert_eq!(recv(server, &mut into), 0, "the peer is told");
        assert_eq!((recv(client, &mut into), errno()), (-1, libc::EBADF));
    }
}
