//! Packets that are sent while there is no daemon are not lost, either way. Datagrams show it: nothing sends them again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use janus::net::UdpSocket;
use janus::{DaemonMemory, Handle};
use janus_daemon::MemberStatistics;
use janus_io::member::{Member, Wishes};
use janus_io::{Backend, Batch};
use janus_mem::Growth;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::churn::in_time;
use crate::world::{LONG, OURS, World, begin};

const PEER: &str = "192.0.2.2";
/// Fewer than a socket, and the wire, have room for.
const MANY: u32 = 200;

/// What the test and its sockets tell each other.
#[derive(Clone, Default)]
struct Signs {
    /// Sockets that are bound.
    bound: Arc<AtomicU32>,
    /// They send now.
    go: Arc<AtomicBool>,
}

/// Sends so many once it is told to, each with its number.
fn sends(handle: &Handle, from: SocketAddr, to: SocketAddr, signs: &Signs) -> Receiver<()> {
    let signs = signs.clone();
    begin(handle, move || async move {
        let socket = UdpSocket::bind(from).await.expect("a port");
        signs.bound.fetch_add(1, Ordering::Release);
        while !signs.go.load(Ordering::Acquire) {
            janus::time::sleep(Duration::from_millis(1)).await;
        }
        for number in 0..MANY {
            let text = number.to_be_bytes();
            socket.send_to(&text, to).await.expect("there is room");
        }
    })
}

/// Hears all of them; how many different ones that were.
fn hears(handle: &Handle, at: SocketAddr, signs: &Signs) -> Receiver<usize> {
    let bound = signs.bound.clone();
    begin(handle, move || async move {
        let socket = UdpSocket::bind(at).await.expect("a port");
        bound.fetch_add(1, Ordering::Release);
        let (mut heard, mut text) = (BTreeSet::new(), [0; 64]);
        while heard.len() < MANY as usize {
            let next = janus::time::timeout(LONG, socket.recv_from(&mut text)).await;
            let Ok(Ok((4, _))) = next else { break };
            heard.insert([text[0], text[1], text[2], text[3]]);
        }
        heard.len()
    })
}

fn nothing_is_lost(memory: DaemonMemory) {
    let at = |host: &str, port| SocketAddr::new(host.parse().expect("an address"), port);
    let mut world = World::new("meanwhile");
    let member = world.member_with(80, "member", memory);
    // Each has the other's link address by then.
    assert_eq!(world.asks(80, "hello").unwrap(), "member: hello");
    for round in 0..3 {
        let signs = Signs::default();
        let to_member = hears(&member.handle, at(OURS, 53), &signs);
        let to_client = hears(world.client(), at(PEER, 54), &signs);
        let from_member = sends(&member.handle, at(OURS, 55), at(PEER, 54), &signs);
        let from_client = sends(world.client(), at(PEER, 56), at(OURS, 53), &signs);
        in_time("all are bound", || signs.bound.load(Ordering::Acquire) == 4);
        world = world.restart_after(|| {
            signs.go.store(true, Ordering::Release);
            from_member.recv().expect("all are sent");
            from_client.recv().expect("all are sent");
        });
        for (heard, by) in [(to_member, "the member"), (to_client, "the client")] {
            let heard = heard.recv().expect("a count");
            assert_eq!(heard, MANY as usize, "{by}, {memory:?}, round {round}");
        }
    }
    member.ends();
    world.ends();
}

#[test]
fn what_is_sent_while_there_is_no_daemon_waits_for_the_next() {
    nothing_is_lost(DaemonMemory::Isolated);
    nothing_is_lost(DaemonMemory::Shared);
}

/// Takes turns with a member's queue when its bell rings, and until it may sleep.
fn turns(member: Member, ends: &AtomicBool) {
    let depot = member.depot();
    let mut queue = Box::new(member).open(1).expect("one queue").remove(0);
    let mut pool = depot.pool();
    let (mut came, mut goes, mut done) = (Batch::new(), Batch::new(), Batch::new());
    let mut rings = true;
    while !ends.load(Ordering::Acquire) {
        let mut sleeps = !rings;
        while !sleeps {
            queue.rx_burst(&mut pool, &mut came);
            queue.tx_burst(&mut pool, &mut goes, &mut done);
            let frames = came.pull().chain(done.pull());
            frames.for_each(|frame| pool.free(frame.buf));
            sleeps = queue.arm();
        }
        let bell = queue.wait_fd().expect("it has one");
        let bell = PollFd::from_borrowed_fd(bell, PollFlags::IN);
        let time = Timespec::try_from(Duration::from_millis(5)).expect("it is short");
        rings = poll(&mut [bell], Some(&time)).expect("it waits") > 0;
    }
}

#[test]
fn one_that_is_about_to_sleep_has_given_the_next_daemon_its_buffers() {
    let mut world = World::new("idle");
    let wishes = Wishes {
        name: "idle".into(),
        group: String::new(),
        ports: 64,
        queues: 1,
        buffers: 1_024,
        borrows: false,
        permit: None,
    };
    let member = Member::join(&world.socket, &wishes, &Growth::Inline).expect("a place");
    let ends = Arc::new(AtomicBool::new(false));
    let told = ends.clone();
    let queue = std::thread::spawn(move || turns(member, &told));
    let other = world.member(80, "other");
    let has_given = |it: &MemberStatistics| it.name == "idle" && it.buffers > 0;
    for _ in 0..4 {
        world.shows(|it| {
            // The daemon looks at its members when something moves.
            assert_eq!(world.asks(80, "hello").unwrap(), "other: hello");
            it.members.iter().any(has_given)
        });
        world = world.restart();
    }
    ends.store(true, Ordering::Release);
    queue.join().expect("it comes to rest");
    other.ends();
    world.ends();
}
