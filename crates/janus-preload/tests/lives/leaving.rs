//! Programs that become others while sockets are open: those that are closed by that, and listeners, which the other program has then, where both are of a
//! group of a daemon's.

use std::env;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::ptr::{null, null_mut};
use std::thread;
use std::time::{Duration, Instant};

use janus::{BackendChoice, Runtime, wire};
use janus_daemon::{Daemon, Rule, Settings};
use janus_wire::Link;
use libc::{c_int, sockaddr_in, socklen_t};

use super::accepting::option_of;
use super::children::{close, ended, forked};
use super::{LEN, LONG, PART, address, connection, ends_well, errno, lives, recv, send, socket};

/// Number of the listener that a program was left.
const FD: &str = "LIVES_FD";
/// How a server comes to be another program.
const HOW: &str = "LIVES_HOW";
const PORT: u16 = 7_000;
const BACKLOG: c_int = 7;
/// Time in which connections come that the one before does not accept.
const COME_IN: Duration = Duration::from_millis(500);

/// A daemon in this process, on a wire whose other end nobody has, and its socket.
pub(crate) fn daemon() -> PathBuf {
    let socket = env::temp_dir().join(format!("janus-lives-{}.sock", std::process::id()));
    let config = wire::Config {
        link: Link::Ethernet,
        ..wire::Config::default()
    };
    let (near, far) = wire::pair(config).expect("a wire");
    let builder = Runtime::builder().ignore_environment().cores(1);
    let builder = builder.packet_buffers(8_192).max_connections(4_096);
    let builder = builder.address("192.0.2.1/24".parse().expect("an address"));
    let builder = builder.backend(BackendChoice::wire(near));
    let ports = 1..=u16::MAX;
    let settings = Settings {
        socket: socket.clone(),
        allow: vec![Rule { user: None, ports }],
        signals: false,
        limits: Vec::new(),
        lends: 0,
        patience: None,
    };
    let daemon = Daemon::open(builder, &settings).expect("a daemon");
    thread::spawn(move || {
        let _far = far;
        daemon.run().expect("until the test ends");
    });
    socket
}

/// An address of the daemon's device.
fn place() -> sockaddr_in {
    let mut place = address(PORT);
    place.sin_addr.s_addr = u32::from_ne_bytes([192, 0, 2, 1]);
    place
}

fn executed(path: &Path, environment: &[CString]) -> c_int {
    let path = CString::new(path.to_str().expect("text")).expect("no zero");
    let words = [path.as_ptr(), null()];
    let mut all: Vec<_> = environment.iter().map(|it| it.as_ptr()).collect();
    all.push(null());
    // SAFETY: the strings end with zeros, the vectors with a null.
    unsafe { libc::execve(path.as_ptr(), words.as_ptr(), all.as_ptr()) }
}

fn flags(fd: c_int, command: c_int, argument: c_int) -> c_int {
    // SAFETY: the call takes numbers.
    let got = unsafe { libc::fcntl(fd, command, argument) };
    assert!(got >= 0, "{}", errno());
    got
}

/// All sockets are closed by exec, which fails first.
pub(crate) fn closed_by_it() {
    let (listener, client, server) = connection();
    for fd in [listener, client, server] {
        flags(fd, libc::F_SETFD, libc::FD_CLOEXEC);
    }
    assert_eq!(executed(Path::new("/nowhere/at/all"), &[]), -1);
    assert_eq!(errno(), libc::ENOENT);
    lives(client, server);
    executed(Path::new("/bin/true"), &[]);
    panic!("it is not replaced: {}", errno());
}

/// A listener is not left where no other program may have the port.
pub(crate) fn refused_alone() {
    let (listener, client, server) = connection();
    for fd in [client, server] {
        flags(fd, libc::F_SETFD, libc::FD_CLOEXEC);
    }
    let refused = (executed(Path::new("/bin/true"), &[]), errno());
    assert_eq!(refused, (-1, libc::EBUSY));
    lives(client, server);
    close(listener);
    close(client);
    close(server);
}

fn set(fd: c_int, level: c_int, name: c_int) {
    let (on, len): (c_int, _) = (1, size_of::<c_int>() as socklen_t);
    // SAFETY: the value is there.
    let set = unsafe { libc::setsockopt(fd, level, name, (&raw const on).cast(), len) };
    assert_eq!(set, 0, "{}", errno());
}

/// Becomes the program that has the listener. Its environment says nothing of Janus.
fn becomes_heir(listener: c_int) {
    let entry = |name: &str, value: &str| CString::new(format!("{name}={value}")).expect("text");
    let environment = [entry(PART, HEIR), entry(FD, &listener.to_string())];
    let own = env::current_exe().expect("a path");
    executed(&own, &environment);
    panic!("it is not replaced: {}", errno());
}

/// Answers one connection with four bytes. False once it was told to end.
fn answers_one(listener: c_int, answer: &[u8; 4]) -> bool {
    let mut polled = libc::pollfd {
        fd: listener,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: there is one entry.
    let told = unsafe { libc::poll(&raw mut polled, 1, LONG.as_millis() as c_int) };
    assert_eq!(told, 1, "{}", errno());
    // SAFETY: no address is asked for.
    let fd = unsafe { libc::accept(listener, null_mut(), null_mut()) };
    if fd < 0 {
        assert_eq!(errno(), libc::EAGAIN);
        return true;
    }
    let mut got = [0; 4];
    assert_eq!(recv(fd, &mut got), 4, "{}", errno());
    assert_eq!(send(fd, answer), 4, "{}", errno());
    close(fd);
    got != *b"end!"
}

pub(crate) const SERVER: &str = "a server that is replaced";
pub(crate) const HEIR: &str = "the program that has its listener then";

pub(crate) fn server() {
    let how = env::var(HOW).expect("it is said");
    let (listener, name) = (socket(), address(PORT));
    set(listener, libc::SOL_SOCKET, libc::SO_REUSEADDR);
    set(listener, libc::IPPROTO_TCP, libc::TCP_NODELAY);
    let mut any = name;
    any.sin_addr.s_addr = 0;
    // SAFETY: the address is there, and so long.
    unsafe {
        assert_eq!(libc::bind(listener, (&raw const any).cast(), LEN), 0);
        assert_eq!(libc::listen(listener, BACKLOG), 0, "{}", errno());
    }
    flags(listener, libc::F_SETFL, libc::O_NONBLOCK);
    assert!(answers_one(listener, b"old!"));
    match how.as_str() {
        "itself" => becomes_heir(listener),
        "busy" => {
            // SAFETY: no address is asked for.
            let fd = unsafe { libc::accept(listener, null_mut(), null_mut()) };
            assert_eq!((fd, errno()), (-1, libc::EAGAIN));
            let idle = socket();
            let own = env::current_exe().expect("a path");
            assert_eq!((executed(&own, &[]), errno()), (-1, libc::EBUSY));
            close(idle);
            becomes_heir(listener);
        }
        _ => {
            if how == "closes" {
                thread::sleep(COME_IN);
            }
            let heir = forked(|| becomes_heir(listener));
            match how.as_str() {
                "closes" => close(listener),
                _ => while answers_one(listener, b"old!") {},
            }
            let mut status = 0;
            // SAFETY: there is room for the status.
            assert_eq!(unsafe { libc::waitpid(heir, &mut status, 0) }, heir);
            assert_eq!(status, 0);
        }
    }
}

/// It looks at the listener as a server does that was left one, under another number, and accepts.
pub(crate) fn heir() {
    let given: c_int = env::var(FD).expect("it is said").parse().expect("a number");
    // SAFETY: the calls take numbers.
    let listener = unsafe { libc::fcntl(given, libc::F_DUPFD_CLOEXEC, 50) };
    close(given);
    let other = forked(|| {
        // It knows nothing of the listener, and ends.
        // SAFETY: the call takes a number.
        unsafe { libc::_exit(7) }
    });
    ended(other);
    let (mut name, mut len) = (address(0), LEN);
    // SAFETY: the address is there, and so long.
    let told = unsafe { libc::getsockname(listener, (&raw mut name).cast(), &mut len) };
    assert_eq!(told, 0, "{}", errno());
    assert_eq!((name.sin_port, name.sin_addr.s_addr), (PORT.to_be(), 0));
    assert_eq!(
        option_of(listener, libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
        1
    );
    assert_eq!(option_of(listener, libc::SOL_SOCKET, libc::SO_REUSEADDR), 1);
    assert_eq!(option_of(listener, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 0);
    assert_eq!(option_of(listener, libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
    assert_ne!(flags(listener, libc::F_GETFL, 0) & libc::O_NONBLOCK, 0);
    assert_eq!(flags(listener, libc::F_GETFD, 0), libc::FD_CLOEXEC);
    while answers_one(listener, b"new!") {}
}

/// A server of the group, in a process of its own.
fn starts(how: &str) -> Child {
    let mut command = Command::new(env::current_exe().expect("a path"));
    command.env(PART, SERVER).env(HOW, how);
    command.env("JANUS_DAEMON_GROUP", "lives");
    command.stdin(Stdio::null()).spawn().expect("it runs")
}

/// A connection on which four bytes were sent; none while no program listens.
fn begun(text: &[u8; 4]) -> Option<c_int> {
    let (fd, name) = (socket(), place());
    // SAFETY: the address is there, and so long.
    let connected = unsafe { libc::connect(fd, (&raw const name).cast(), LEN) };
    if connected == 0 && send(fd, text) == 4 {
        return Some(fd);
    }
    close(fd);
    None
}

/// The answer on such a connection, if there is one.
fn answered(fd: c_int) -> Option<[u8; 4]> {
    let mut got = [0; 4];
    let is_there = recv(fd, &mut got) == 4;
    close(fd);
    is_there.then_some(got)
}

fn asked(text: &[u8; 4]) -> Option<[u8; 4]> {
    begun(text).and_then(answered)
}

/// Asks until this is the answer, which is `before` or none as long as it is not.
fn becomes(answer: &[u8; 4], before: &[u8; 4]) {
    let begin = Instant::now();
    loop {
        match asked(b"text") {
            Some(got) if got == *answer => return,
            Some(got) => assert_eq!(got, *before),
            None => thread::sleep(Duration::from_millis(10)),
        }
        assert!(begin.elapsed() < LONG / 2, "no answer of {answer:?}");
    }
}

pub(crate) fn to_a_childs_program() {
    let mut server = starts("forks");
    becomes(b"old!", b"old!");
    // Both answer until the one before is told, and takes no new ones then.
    let (begin, mut news) = (Instant::now(), 0);
    while news < 40 {
        match asked(b"text").expect("one of them listens") {
            answer if answer == *b"new!" => news += 1,
            answer => {
                assert_eq!(answer, *b"old!");
                news = 0;
            }
        }
        assert!(begin.elapsed() < LONG / 2, "the one before goes on");
    }
    assert_eq!(asked(b"end!"), Some(*b"new!"));
    // And does again once the other has ended.
    becomes(b"old!", b"new!");
    assert_eq!(asked(b"end!"), Some(*b"old!"));
    assert!(ends_well(&mut server));
}

pub(crate) fn to_the_program_itself() {
    for how in ["itself", "busy"] {
        let mut server = starts(how);
        becomes(b"old!", b"old!");
        becomes(b"new!", b"old!");
        for _ in 0..20 {
            assert_eq!(asked(b"text"), Some(*b"new!"), "{how}");
        }
        assert_eq!(asked(b"end!"), Some(*b"new!"));
        assert!(ends_well(&mut server), "{how}");
    }
}

/// Connections that one program has not accepted are accepted by the next, whichever of both closes the listener.
pub(crate) fn those_that_wait() {
    let mut server = starts("closes");
    becomes(b"old!", b"old!");
    let wait: Vec<c_int> = (0..3)
        .map(|_| begun(b"text").expect("it listens"))
        .collect();
    for fd in wait {
        assert_eq!(answered(fd), Some(*b"new!"));
    }
    assert_eq!(asked(b"end!"), Some(*b"new!"));
    assert!(ends_well(&mut server));
}
