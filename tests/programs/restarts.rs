//! A daemon that is killed and started again under connections with requests under way: by hand, and by a service manager that keeps the device's
//! queue meanwhile.

use std::fs;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;

use crate::daemon::{OURS, Place, REQUEST, answer, connect, more_descriptors, said, serve};
use crate::library;
use crate::running::Running;
use crate::support::privileged::{in_own_space, skip, tools};

/// Rounds of requests between two restarts.
const CALM_ROUNDS: usize = 4;
/// Gives a program its standard input as the first descriptor that it is passed.
const PASSES: &str = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";

#[test]
fn connections_outlive_their_daemon() {
    if let Err(why) = tools(&["ip -V"]) {
        return skip(&why);
    }
    let by_hand = || {
        let place = Place::new("restarts");
        restarts(&place, || place.daemon());
    };
    if let Err(why) = in_own_space(by_hand) {
        skip(&why);
    }
}

#[test]
fn a_service_manager_keeps_the_queue_of_a_daemon_that_is_restarted() {
    if let Err(why) = tools(&["ip -V"]) {
        return skip(&why);
    }
    if let Err(why) = in_own_space(managed) {
        skip(&why);
    }
}

fn managed() {
    let place = Place::new("managed");
    let mut manager = Manager::new(&place);
    restarts(&place, || manager.starts(&place));
    assert_eq!(manager.kept.len(), 1, "the queue is kept once");
    assert_eq!(
        lost_on_the_way_in(),
        0,
        "packets waited for the next daemon"
    );
    // A queue that is of another kind than is wanted now.
    let mut command = manager.daemon(&place);
    command.env("JANUS_TAP_OFFLOADS", "false");
    let ended = Running::start_reading(command, "janus daemon").end();
    assert_eq!(ended.code, "1", "{ended}");
    assert!(ended.err.contains("stop the service"), "{ended}");
}

/// Descriptors that the next daemon brings have no numbers that the program would use, or close.
#[test]
fn a_programs_numbers_are_its_own_under_the_next_daemon() {
    if let Err(why) = tools(&["ip -V", "/usr/bin/python3 --version"]) {
        return skip(&why);
    }
    if let Err(why) = in_own_space(numbered) {
        skip(&why);
    }
}

/// One program has ended and another listens where it has connections yet: both have theirs under the next daemon, whichever of them joins first.
#[test]
fn what_outlives_its_program_outlives_its_daemon_too() {
    if let Err(why) = tools(&["ip -V", "/usr/bin/python3 --version"]) {
        return skip(&why);
    }
    if let Err(why) = in_own_space(outlived) {
        skip(&why);
    }
}

fn outlived() {
    let place = Place::new("outlived");
    let mut daemon = place.daemon();
    let parent = script(&place, "leaves");
    let mut first = connect(80);
    let asks = |stream: &mut TcpStream, whom: &str| {
        stream.write_all(b"it\n").expect("it is open");
        let mut said = vec![0; format!("{whom} has it\n").len()];
        stream.read_exact(&mut said).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&said), format!("{whom} has it\n"));
    };
    asks(&mut first, "the parent");
    parent.end().well();
    let next = script(&place, "serves");
    let mut second = connect(80);
    for _ in 0..6 {
        asks(&mut first, "the child");
        asks(&mut second, "the next server");
        daemon.signal(Signal::KILL);
        daemon.end();
        daemon = place.daemon();
    }
    asks(&mut second, "the next server");
    asks(&mut first, "the child");
    drop((first, second));
    next.end().well();
    daemon.terminated().well();
}

/// A server by `afterlife.py`, as a member, at port 80.
fn script(place: &Place, how: &str) -> Running {
    let mut command = place.member("/usr/bin/python3");
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/programs/scripts/afterlife.py"
    );
    command.args([script, how, OURS, "80"]);
    command.env("LD_PRELOAD", library::library());
    let mut program = Running::start(command, how);
    program.says("listening");
    program
}

fn numbered() {
    let place = Place::new("numbered");
    let mut daemon = place.daemon();
    let program = script(&place, "numbers");
    let mut stream = connect(80);
    let mut asks = || {
        stream.write_all(b"which\n").expect("it is open");
        let mut said = [0; 2];
        stream.read_exact(&mut said).expect("an answer");
        said
    };
    let before = asks();
    for _ in 0..3 {
        assert_eq!(asks(), before);
        daemon.signal(Signal::KILL);
        daemon.end();
        daemon = place.daemon();
    }
    assert_eq!(asks(), before);
    drop(stream);
    program.end().well();
    daemon.terminated().well();
}

/// Restarts a daemon under a server's connections; all of them have their answers each time.
fn restarts(place: &Place, mut starts: impl FnMut() -> Running) {
    let mut daemon = starts();
    let mut server = serve(place, 80);
    server.says("http://");
    let connections = said("JANUS_CONNECTIONS", 200);
    more_descriptors();
    let mut streams: Vec<TcpStream> = (0..connections).map(|_| connect(80)).collect();
    let mut took = Vec::new();
    for _ in 0..said("JANUS_RESTARTS", 5) {
        // Life goes on between: a client that has seen one answer, which was late, waits for twice that time before it asks again.
        for _ in 0..CALM_ROUNDS {
            ask(&mut streams);
            streams.iter_mut().for_each(|it| drop(answer(it)));
        }
        // In the midst of requests: answers are on their way.
        ask(&mut streams);
        daemon.signal(Signal::KILL);
        daemon.end();
        let begin = Instant::now();
        daemon = starts();
        streams.iter_mut().for_each(|it| drop(answer(it)));
        took.push(begin.elapsed());
    }
    took.sort_unstable();
    println!("{connections} connections; until all had their answers: {took:?}");
    drop(streams);
    server.terminated();
    daemon.terminated().well();
}

fn ask(streams: &mut [TcpStream]) {
    for stream in streams {
        stream.write_all(REQUEST).expect("it is open");
    }
}

/// Packets that the kernel had for the interface, and no place to put.
fn lost_on_the_way_in() -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/dev").expect("the kernel has one");
    let row = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("janus0:"));
    let mut numbers = row.expect("the interface is there").split_whitespace();
    numbers
        .nth(11)
        .expect("sent and dropped")
        .parse()
        .expect("a number")
}

/// A service manager as systemd is one: it hears what the daemon says, keeps the descriptors that it is sent, and passes them to the next.
struct Manager {
    hears: UnixDatagram,
    kept: Vec<OwnedFd>,
}

impl Manager {
    fn new(place: &Place) -> Manager {
        let hears = UnixDatagram::bind(place.path("notify")).expect("a socket");
        hears
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("not zero");
        Manager {
            hears,
            kept: Vec::new(),
        }
    }

    /// The command that starts one, with the queue if there is one.
    fn daemon(&self, place: &Place) -> Command {
        let mut command = match self.kept.first() {
            None => Command::new(library::janus()),
            Some(queue) => {
                let mut command = Command::new("sh");
                command.args(["-c", PASSES, "sh"]).arg(library::janus());
                let queue = queue.try_clone().expect("a descriptor");
                command.stdin(Stdio::from(queue));
                command
            }
        };
        command.env("NOTIFY_SOCKET", place.path("notify"));
        place.as_daemon(command, &format!("{OURS}/24"))
    }

    /// Starts a daemon; returns once it has said that it serves.
    fn starts(&mut self, place: &Place) -> Running {
        let mut daemon = Running::start_reading(self.daemon(place), "janus daemon");
        while !self.hears() {}
        daemon.says("programs may join");
        daemon
    }

    /// Hears one message; whether it says that the daemon serves.
    fn hears(&mut self) -> bool {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut text = [0; 256];
        let into = &mut [IoSliceMut::new(&mut text)];
        let got = recvmsg(&self.hears, into, &mut control, RecvFlags::CMSG_CLOEXEC);
        let got = got.expect("the daemon says how it is").bytes;
        let sent = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let mut fds: Vec<OwnedFd> = sent.flatten().collect();
        match std::str::from_utf8(&text[..got]).expect("it is text") {
            "FDSTOREREMOVE=1\nFDNAME=janus0" => self.kept.clear(),
            "FDSTORE=1\nFDNAME=janus0" => self.kept.append(&mut fds),
            "READY=1" => return true,
            other => assert_eq!(other, "STOPPING=1"),
        }
        false
    }
}
