//! Members that die while their peers wait for an answer and say nothing: they are reset at once. And connections that are over, of which nothing is
//! remembered.

use std::io::ErrorKind;
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use janus::Handle;
use janus::net::{TcpListener, TcpStream};

use crate::bare::Bare;
use crate::churn::in_time;
use crate::quotas::{limit, rate};
use crate::statistics::segment;
use crate::world::{LONG, Member, OURS, OURS_6, World, begin, on};

const THEIRS: &str = "192.0.2.2";
const THEIRS_6: &str = "2001:db8::2";
const SOON: Duration = Duration::from_secs(5);

/// The end of a connection that waits.
type End = Receiver<std::io::Error>;

/// Reads until the connection fails. An end of the stream is none that is expected.
async fn waits(stream: TcpStream) -> std::io::Error {
    let mut into = [0; 64];
    loop {
        match stream.read(&mut into).await {
            Ok(0) => return ErrorKind::UnexpectedEof.into(),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

/// A connection to a member, which has said its name; then it waits.
fn connects(handle: &Handle, to: &'static str, port: u16) -> (String, End) {
    let (names, named) = channel();
    let end = begin(handle, move || async move {
        let stream = match TcpStream::connect((to, port)).await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let mut said = [0; 64];
        let count = stream.read(&mut said).await.unwrap_or(0);
        let said = String::from_utf8_lossy(&said[..count]).into_owned();
        let _ = names.send(said);
        waits(stream).await
    });
    (named.recv_timeout(LONG).expect("a name"), end)
}

/// Takes connections at this address, which wait; the port, and their ends as they come.
fn accepts(handle: &Handle, at: &'static str) -> (u16, Receiver<Option<std::io::Error>>) {
    let (tells, told) = channel();
    let port = on(handle, move || async move {
        let listener = TcpListener::bind((at, 0)).await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(janus::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tells = tells.clone();
                let _ = tells.send(None);
                drop(janus::spawn(async move {
                    let _ = tells.send(Some(waits(stream).await));
                }));
            }
        }));
        port
    });
    (port, told)
}

/// Kills it, also where a check fails before.
struct Doomed(Child);

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn killed(mut process: Doomed) -> Instant {
    process.0.kill().expect("it runs");
    process.0.wait().expect("it has ended");
    Instant::now()
}

fn is_reset(end: &End, since: Instant, of: &str) {
    let left = SOON.saturating_sub(since.elapsed());
    let error = end.recv_timeout(left);
    let error = error.unwrap_or_else(|_| panic!("{of} is not told"));
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{of}: {error}");
}

pub(crate) fn nothing_is_left(world: &World) {
    let counters = world.counters();
    in_time("what is over is forgotten", || {
        counters.begun.get() == counters.ended.get()
    });
}

#[test]
fn silent_peers_of_a_killed_member_are_reset_at_once() {
    let world = World::new("silent");
    let other = world.member(81, "other");
    let listeners = [
        accepts(world.client(), THEIRS),
        accepts(world.client(), THEIRS_6),
    ];
    let peers = format!(
        "{THEIRS}:{},[{THEIRS_6}]:{}",
        listeners[0].0, listeners[1].0
    );
    let process = Doomed(world.process_to("", 80, &[&*peers; 10].join(",")));
    for (_, told) in &listeners {
        for _ in 0..10 {
            let accepted = told.recv_timeout(LONG).expect("it connects");
            assert!(accepted.is_none());
        }
    }
    in_time("it serves", || world.asks(80, "").is_ok());
    let of_another = connects(world.client(), OURS, 81).1;
    let connected: Vec<End> = (0..40)
        .map(|at| connects(world.client(), [OURS, OURS_6][at % 2], 80).1)
        .collect();
    let since = killed(process);
    for (at, end) in connected.iter().enumerate() {
        is_reset(end, since, &format!("{at}, which has connected"));
    }
    for (port, told) in &listeners {
        for _ in 0..10 {
            let left = SOON.saturating_sub(since.elapsed());
            let error = told.recv_timeout(left).expect("it is told");
            let kind = error.map(|it| it.kind());
            assert_eq!(kind, Some(ErrorKind::ConnectionReset), "at {port}");
        }
    }
    println!("60 peers were reset in {:?}", since.elapsed());
    assert!(of_another.try_recv().is_err(), "another's");
    let told = world.counters().told.get();
    assert!(told >= 60, "{}", world.counters());
    other.ends();
    let error = of_another.recv_timeout(SOON).expect("it was closed");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "in order: {error}");
    world.ends();
}

#[test]
fn a_successor_that_has_the_port_resets_them_too() {
    let world = World::new("heirs");
    for round in 0..3 {
        let process = Doomed(world.process(80));
        let ends: Vec<End> = (0..20)
            .map(|_| connects(world.client(), OURS, 80).1)
            .collect();
        let since = killed(process);
        let successor = world.member(80, "successor");
        for end in &ends {
            is_reset(end, since, &format!("round {round}: one"));
        }
        assert_eq!(world.asks(80, "hello").unwrap(), "successor: hello");
        successor.ends();
    }
    world.ends();
}

/// A member, and another of its group that is to be killed and serves by now.
fn of_one_group(world: &World) -> (Member, Doomed) {
    let one = world.member_of("web", 80, "one");
    let process = Doomed(world.process_of("web", 80));
    in_time("it serves", || {
        world.asks(80, "").is_ok_and(|it| it == "killed: ")
    });
    (one, process)
}

#[test]
fn in_a_group_those_of_the_dead_are_reset_and_no_others() {
    let world = World::new("bereaved");
    let (one, process) = of_one_group(&world);
    let two = world.member_of("web", 80, "two");
    let all: Vec<_> = (0..60)
        .map(|_| connects(world.client(), OURS, 80))
        .collect();
    let (dead, alive): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.0 == "killed: ");
    assert!(!dead.is_empty() && !alive.is_empty());
    let since = killed(process);
    for (_, end) in &dead {
        is_reset(end, since, "one");
    }
    // Until all that may be asked has been.
    std::thread::sleep(Duration::from_secs(3).saturating_sub(since.elapsed()));
    for (name, end) in &alive {
        assert!(end.try_recv().is_err(), "one of {name} has ended");
    }
    let told = world.counters().told.get();
    assert!((dead.len() as u64..dead.len() as u64 + 3).contains(&told));
    one.ends();
    two.ends();
    world.ends();
}

#[test]
fn peers_of_a_groups_dead_that_are_members_are_reset_too() {
    let world = World::new("within");
    let (one, process) = of_one_group(&world);
    let other = world.member(81, "other");
    // Of the group, and not.
    let all: Vec<_> = (0..60)
        .map(|at| connects([&one.handle, &other.handle][at % 2], OURS, 80))
        .collect();
    let (dead, alive): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.0 == "killed: ");
    assert!(dead.len() > 1 && alive.len() > 1);
    let since = killed(process);
    for (at, (_, end)) in dead.iter().enumerate() {
        is_reset(end, since, &format!("{at} of {}", dead.len()));
    }
    for (name, end) in &alive {
        assert!(end.try_recv().is_err(), "one of {name} has ended");
    }
    other.ends();
    one.ends();
    world.ends();
}

#[test]
fn a_peer_that_is_another_member_is_reset_at_once() {
    let world = World::new("neighbors");
    let other = world.member(81, "other");
    let (port, told) = accepts(&other.handle, OURS);
    let peers = format!("{OURS}:{port},{OURS}:{port}");
    let process = Doomed(world.process_to("", 80, &peers));
    in_time("it serves", || world.asks(80, "").is_ok());
    let ends: Vec<End> = (0..10)
        .map(|_| connects(&other.handle, OURS, 80).1)
        .collect();
    for _ in 0..2 {
        assert!(told.recv_timeout(LONG).expect("it connects").is_none());
    }
    let since = killed(process);
    for end in &ends {
        is_reset(end, since, "one that has connected");
    }
    for _ in 0..2 {
        let error = told.recv_timeout(SOON).expect("it is told");
        let kind = error.map(|it| it.kind());
        assert_eq!(kind, Some(ErrorKind::ConnectionReset));
    }
    assert_eq!(world.asks(81, "hello").unwrap(), "other: hello");
    assert_eq!(other.asks(81, "hello").unwrap(), "other: hello");
    nothing_is_left(&world);
    assert_eq!(world.counters().refused.get(), 0);
    other.ends();
    world.ends();
}

#[test]
fn what_is_over_is_forgotten_while_its_member_lives() {
    let world = World::new("forgotten");
    let (one, two) = (world.member(80, "one"), world.member(81, "two"));
    let port = world.client_listens();
    for _ in 0..20 {
        assert_eq!(world.asks(80, "hello").unwrap(), "one: hello");
        assert_eq!(two.asks(80, "hello").unwrap(), "one: hello");
        one.connects(port);
        assert!(one.asks(82, "").is_err(), "a closed port of its own");
        let refused = on(&one.handle, || TcpStream::connect((THEIRS, 9)));
        assert!(refused.is_err());
    }
    assert!(
        world.counters().begun.get() >= 20 * 5,
        "{}",
        world.counters()
    );
    nothing_is_left(&world);
    let counters = world.counters();
    assert_eq!((counters.asked.get(), counters.told.get()), (0, 0));
    one.ends();
    two.ends();
    world.ends();
}

/// Resets of the peers' go to members that do not have the connection first.
#[test]
fn what_peers_reset_is_forgotten_in_a_group_too() {
    let world = World::new("aborted");
    let one = world.member_of("web", 80, "one");
    let (asks, asked) = channel::<()>();
    let (tells, told) = channel();
    let over = begin(world.client(), move || async move {
        let mut all = Vec::new();
        for _ in 0..40 {
            let stream = TcpStream::connect((OURS, 80)).await.expect("it listens");
            stream.read(&mut [0; 64]).await.expect("a name");
            stream.set_linger(Some(Duration::ZERO)).expect("it is open");
            all.push(stream);
        }
        let _ = tells.send(());
        while asked.try_recv().is_err() {
            janus::time::sleep(Duration::from_millis(5)).await;
        }
    });
    told.recv_timeout(LONG).expect("they are open");
    let two = world.member_of("web", 80, "two");
    in_time("it serves", || {
        world.asks(80, "").is_ok_and(|it| it == "two: ")
    });
    asks.send(()).expect("it lives");
    over.recv_timeout(LONG).expect("an end");
    nothing_is_left(&world);
    assert!(world.counters().turned_back.get() > 0);
    one.ends();
    two.ends();
    world.ends();
}

/// A daemon that has not seen them begin knows those that have been written to since.
#[test]
fn connections_of_a_daemon_before_are_known_by_their_traffic() {
    let mut world = World::new("inherited");
    let process = Doomed(world.process(80));
    let (asks, asked) = channel::<()>();
    let (tells, told) = channel();
    let end = begin(world.client(), move || async move {
        let stream = TcpStream::connect((OURS, 80)).await.expect("it listens");
        while asked.try_recv().is_err() {
            let mut into = [0; 64];
            (stream.write_all(b"hello").await).expect("it is open");
            stream.read(&mut into).await.expect("an answer");
            let _ = tells.send(());
            janus::time::sleep(Duration::from_millis(5)).await;
        }
        waits(stream).await
    });
    told.recv_timeout(LONG).expect("it has begun");
    world = world.restart();
    let counters = world.daemon_counters();
    in_time("it is seen", || counters.begun.get() > 0);
    asks.send(()).expect("it lives");
    std::thread::sleep(Duration::from_millis(300));
    let since = killed(process);
    is_reset(&end, since, "one of a daemon before");
    world.ends();
}

#[test]
fn peers_that_say_nothing_are_asked_three_times_and_given_up() {
    dies_before_the_deaf(World::new("deaf"), false);
    dies_before_the_deaf(World::new("deaf"), true);
}

#[test]
fn they_are_asked_no_faster_than_their_user_may_begin_connections() {
    let world = World::limited("slowly", &[limit(None, rate(40, 40))]);
    let begin = Instant::now();
    dies_before_the_deaf(world, false);
    // Four times forty, a burst of which goes at once.
    let least = Duration::from_secs(3);
    assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
}

/// A member that has begun connections and goes, in order or not.
fn dies_before_the_deaf(world: World, in_order: bool) {
    const PEERS: u16 = 40;
    let mut bare = Bare::new(&world.socket);
    bare.joins();
    let own = bare.welcome.as_ref().expect("it has joined").ports.0;
    let mut tx = bare.ring(2);
    for peer in 0..PEERS {
        let mut frame = segment(bare.mac(), own, 2, 60);
        // For an address that no interface has.
        frame[33] = 9;
        frame[36..38].copy_from_slice(&(1_000 + peer).to_be_bytes());
        bare.sends(&mut tx, &frame);
        in_time("it is sent", || {
            world.counters().begun.get() == u64::from(peer) + 1
        });
    }
    match in_order {
        true => bare.leaves(),
        false => drop(bare),
    }
    nothing_is_left(&world);
    let counters = world.ends();
    assert_eq!(counters.asked.get(), 3 * u64::from(PEERS));
    assert_eq!(counters.told.get(), 0);
}
