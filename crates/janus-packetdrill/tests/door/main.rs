//! The table of functions that packetdrill is given, driven as packetdrill drives it: raw packets in and out, the clock,
//! calls on the thread that plays the script, and calls that wait on another. No privileges and no packetdrill needed.

use janus_wire::tcp::Flags;
use std::ffi::c_int;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

mod events;
mod pointers;
mod tool;
mod waiting;

use tool::{Peer, Tool, V4, V6, call, errno, name};

const PSH_ACK: Flags = Flags(Flags::PSH.0 | Flags::ACK.0);

/// A connection that was accepted: the table, its descriptor, the peer and the stack's next sequence number.
fn connected() -> (Tool, c_int, Peer, u32) {
    let (tool, peer) = (Tool::new(None), Peer::new(V4));
    let listener = tool.listener(libc::AF_INET);
    let next = tool.handshake(&peer);
    let (fd, _) = tool.accept(listener).unwrap();
    (tool, fd, peer, next)
}

#[test]
fn a_connection_carries_data_over_every_family() {
    for (ends, domain) in [
        (V4, libc::AF_INET),
        (V6, libc::AF_INET6),
        (V4, libc::AF_INET6),
    ] {
        let (tool, peer) = (Tool::new(None), Peer::new(ends));
        let listener = tool.listener(domain);
        let next = tool.handshake(&peer);
        let (fd, peer_name) = tool.accept(listener).unwrap();
        let mapped = match (domain, peer.own) {
            (libc::AF_INET6, std::net::SocketAddr::V4(at)) => {
                (at.ip().to_ipv6_mapped(), at.port()).into()
            }
            (_, own) => own,
        };
        assert_eq!(peer_name, name(mapped));

        tool.send(&peer.packet(PSH_ACK, 1_001, next, b"ping"))
            .unwrap();
        assert_eq!(tool.read(fd, 100).unwrap(), b"ping");
        assert_eq!(tool.write(fd, b"pong!"), Ok(5));
        let answer = tool.receive_data();
        assert_eq!(
            (answer.payload.as_slice(), answer.ack),
            (b"pong!".as_slice(), 1_005)
        );
        assert_eq!(answer.from, peer.stack);
        assert_eq!(tool.close(fd), Ok(0));
        tool.free();
    }
}

#[test]
fn a_connection_is_opened_from_here() {
    for (ends, domain) in [(V4, libc::AF_INET), (V6, libc::AF_INET6)] {
        let (tool, ends) = (Tool::new(None), Peer::new(ends));
        let fd = tool.socket(domain).unwrap() as c_int;
        let nonblocking = libc::O_NONBLOCK as usize;
        assert_eq!(call!(tool, fcntl, fd, libc::F_SETFL, nonblocking), Ok(0));
        assert_eq!(tool.connect(fd, ends.own), Err(libc::EINPROGRESS));
        let (syn, _) = tool.receive().unwrap();
        assert_eq!(syn.flags, Flags::SYN);
        // The address the tool gives this end.
        assert_eq!(syn.from.ip(), ends.stack.ip());
        let peer = Peer {
            stack: syn.from,
            ..ends
        };
        let flags = Flags(Flags::SYN.0 | Flags::ACK.0);
        tool.send(&peer.packet(flags, 77, syn.seq.wrapping_add(1), &[]))
            .unwrap();
        assert_eq!(tool.connect(fd, ends.own), Ok(0));
    }
}

#[test]
fn the_clock_ticks_and_never_goes_back() {
    let tool = Tool::new(None);
    let mut last = tool.time();
    for _ in 0..100 {
        let now = tool.time();
        assert!(now > last, "who spins until a time must see it come");
        last = now;
    }
    let begun = Instant::now();
    tool.usleep(3_600_000_000);
    assert!((last + 3_600_000_000..last + 3_600_000_100).contains(&tool.time()));
    assert!(begun.elapsed() < Duration::from_secs(600), "nobody sleeps");
}

/// A packet is told with the time at which it was sent, however late it is fetched, and in order.
#[test]
fn timers_run_while_the_tool_sleeps() {
    let (tool, peer) = (Tool::new(None), Peer::new(V4));
    tool.listener(libc::AF_INET);
    let begun = tool.time();
    tool.send(&peer.packet(Flags::SYN, 1_000, 0, &[])).unwrap();
    tool.usleep(4_000_000);
    let sent: Vec<i64> = (0..3).map(|_| tool.receive().unwrap().1 - begun).collect();
    for (sent, expected) in sent.into_iter().zip([0, 1_000_000, 3_000_000]) {
        assert!((expected..expected + 1_000).contains(&sent), "{sent} us");
    }
}

#[test]
fn a_packet_that_never_comes_is_not_waited_for_for_ever() {
    let (tool, begun) = (Tool::new(None), Instant::now());
    let asked = tool.time();
    assert!(tool.receive().is_none());
    assert!(tool.time() - asked >= 200_000_000, "as long as any timer");
    assert!(begun.elapsed() < Duration::from_secs(100));
}

#[test]
fn the_thread_that_plays_the_script_never_waits() {
    let (tool, fd, _, _) = connected();
    let listener = tool.socket(libc::AF_INET).unwrap() as c_int;
    tool.bind(listener, "0.0.0.0:81".parse().unwrap()).unwrap();
    tool.listen(listener).unwrap();
    assert_eq!(tool.read(fd, 10), Err(libc::EAGAIN));
    assert_eq!(tool.accept(listener).map(|_| ()), Err(libc::EAGAIN));
    let client = tool.socket(libc::AF_INET).unwrap() as c_int;
    assert_eq!(
        tool.connect(client, V4.0.parse().unwrap()),
        Err(libc::EAGAIN)
    );
    // More than the peer's window and the buffer take: what fits.
    let taken = tool.write(fd, &vec![1; 40 << 20]).unwrap();
    assert!((10_000..40 << 20).contains(&taken), "{taken} bytes");
}

/// The tool ends a script by closing what it left open with the C library.
#[test]
fn descriptors_are_real_ones() {
    let tool = Tool::new(None);
    let fd = tool.socket(libc::AF_INET).unwrap() as c_int;
    tool.bind(fd, "0.0.0.0:80".parse().unwrap()).unwrap();
    // SAFETY: the descriptor is the process's, and only this test knows it.
    assert_eq!(unsafe { libc::close(fd) }, 0);
    // Whoever gets the number now gets a new socket.
    let mut others = Vec::new();
    while others.last() != Some(&fd) && others.len() < 64 {
        others.push(tool.socket(libc::AF_INET).unwrap() as c_int);
    }
    for other in others {
        assert_eq!(tool.bind(other, "0.0.0.0:0".parse().unwrap()), Ok(0));
        assert_eq!(tool.close(other), Ok(0));
        assert_eq!(tool.close(other), Err(libc::EBADF));
    }
}

#[test]
fn errno_is_the_calling_threads_own() {
    let tool = Tool::new(None);
    assert_eq!(tool.close(-1), Err(libc::EBADF));
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(tool.socket(libc::AF_UNIX), Err(libc::EAFNOSUPPORT)));
    });
    assert_eq!(errno(), libc::EBADF);
}

#[test]
fn flags_are_settings() {
    let (tool, peer) = (Tool::new(Some("tcp_synack_retries=0")), Peer::new(V4));
    tool.listener(libc::AF_INET);
    tool.send(&peer.packet(Flags::SYN, 1_000, 0, &[])).unwrap();
    assert!(tool.receive().is_some());
    assert!(tool.receive().is_none(), "a SYN-ACK is not repeated");
    // Not an address of ours.
    let tool = Tool::new(Some("local_ip=192.168.0.2"));
    tool.listener(libc::AF_INET);
    tool.send(&peer.packet(Flags::SYN, 1_000, 0, &[])).unwrap();
    assert!(tool.receive().is_none());
}

/// Runs in a process of its own, whose standard error is read.
#[test]
fn wrong_flags_are_told_and_nothing_works() {
    const CHILD: &str = "JANUS_DOOR_WRONG_FLAGS";
    if std::env::var_os(CHILD).is_some() {
        let tool = Tool::new(Some("tcp_sack=1,no_such_thing=1"));
        assert_eq!(tool.socket(libc::AF_INET), Err(libc::EIO));
        assert_eq!(call!(tool, usleep, 10), Err(libc::EIO));
        let mut time = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        assert_eq!(
            call!(tool, gettimeofday, &mut time, std::ptr::null_mut()),
            Err(libc::EIO)
        );
        assert!(tool.receive().is_none());
        tool.free();
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["wrong_flags_are_told_and_nothing_works", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}");
    assert!(said.contains("no_such_thing"), "{said}");
}

/// Waits until a thread that said its number sleeps, and not only for a moment, in the lock of a channel.
fn until_asleep(announced: &mpsc::Receiver<i32>) -> i32 {
    // Not asleep itself as one is who waits for another thread: that would tell a waiting call to move the clock.
    let thread = loop {
        match announced.try_recv() {
            Ok(thread) => break thread,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    let mut asleep = 0;
    for _ in 0..60_000 {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        // The name may hold anything; the state comes after its closing bracket.
        let state = stat.rsplit(')').next().unwrap_or_default();
        asleep = if state.starts_with(" S") {
            asleep + 1
        } else {
            0
        };
        if asleep == 3 {
            return thread;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the call does not sleep");
}
