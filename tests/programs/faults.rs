//! A daemon that is stopped, or killed and followed by another, at each step of a member's life; beside it another member's connection goes on.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::daemon::{Place, REQUEST, answer, connect, serve};
use crate::running::Running;
use crate::support::privileged::{in_own_space, skip, tools};

/// The daemon's share of the life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It does nothing for a second.
    Stopped,
    /// It does nothing, dies, and another follows.
    Killed,
}

impl Fault {
    /// Something happens while the daemon does nothing; it goes on, or is followed, afterwards.
    fn while_this<R>(self, place: &Place, daemon: &mut Running, happens: impl FnOnce() -> R) -> R {
        daemon.signal(Signal::STOP);
        let happened = happens();
        match self {
            Fault::Stopped => {
                std::thread::sleep(Duration::from_secs(1));
                daemon.signal(Signal::CONT);
            }
            Fault::Killed => {
                std::thread::sleep(Duration::from_millis(100));
                daemon.signal(Signal::KILL);
                std::mem::replace(daemon, place.daemon()).end();
            }
        }
        happened
    }
}

/// On the connection that goes on, also after the last fault: its packets may wait for seconds.
const ANSWERS_MIN: usize = 20;

fn undated(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let lines = text.lines().filter(|line| !line.starts_with("date: "));
    lines.collect()
}

/// One connection on which request follows answer, the latter always the first over again.
fn steady(stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut stream = connect(80);
        let mut first = None;
        let mut answers = 0;
        while answers < ANSWERS_MIN || !stop.load(Ordering::Acquire) {
            stream.write_all(REQUEST).expect("it is open");
            let answer = undated(&answer(&mut stream));
            assert_eq!(*first.get_or_insert_with(|| answer.clone()), answer);
            std::thread::sleep(Duration::from_millis(2));
            answers += 1;
        }
    })
}

fn life(place: &Place, daemon: &mut Running, fault: Fault) {
    // It dials, and says hello.
    let dials = || {
        let member = serve(place, 81);
        std::thread::sleep(Duration::from_millis(500));
        member
    };
    let mut member = fault.while_this(place, daemon, dials);
    if fault == Fault::Killed {
        let ended = member.end();
        let told = "daemon at";
        assert!(ended.code != "0" && ended.err.contains(told), "{ended}");
        member = serve(place, 81);
    }
    member.says("http://");
    // It listens, and somebody connects.
    let connects = || std::thread::spawn(|| connect(81));
    let connecting = fault.while_this(place, daemon, connects);
    let mut stream = connecting.join().expect("a connection");
    // It is asked.
    let asks = || stream.write_all(REQUEST).expect("it is open");
    fault.while_this(place, daemon, asks);
    answer(&mut stream);
    // It rests.
    fault.while_this(place, daemon, || ());
    stream.write_all(REQUEST).expect("it is open");
    answer(&mut stream);
    stream.shutdown(Shutdown::Write).expect("it is open");
    let left = stream.read_to_end(&mut Vec::new());
    assert_eq!(left.expect("an end"), 0);
    // It leaves, and does not wait for ever. An open connection it would wait for.
    let ended = fault.while_this(place, daemon, || member.terminated());
    assert_eq!(ended.code, "0", "{ended}");
    let begin = Instant::now();
    let refused = || {
        let address = (std::net::Ipv4Addr::new(192, 0, 2, 1), 81).into();
        let asked = TcpStream::connect_timeout(&address, Duration::from_millis(500));
        asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    while !refused() {
        assert!(begin.elapsed() < Duration::from_secs(5), "its port is kept");
    }
}

#[test]
fn a_daemon_may_be_stopped_or_killed_at_each_step() {
    if let Err(why) = tools(&["ip -V"]) {
        return skip(&why);
    }
    if let Err(why) = in_own_space(lives) {
        skip(&why);
    }
}

fn lives() {
    let place = Place::new("faults");
    let mut daemon = place.daemon();
    let mut stays = serve(&place, 80);
    stays.says("http://");
    let stop = Arc::new(AtomicBool::new(false));
    let connection = steady(stop.clone());
    life(&place, &mut daemon, Fault::Killed);
    life(&place, &mut daemon, Fault::Stopped);
    stop.store(true, Ordering::Release);
    connection.join().expect("it was not disturbed");
    stays.terminated();
    let ended = daemon.terminated().well();
    let told = "2 joined, 2 left, 0 died, 0 cut off";
    assert!(ended.out.contains(told), "{ended}");
}
