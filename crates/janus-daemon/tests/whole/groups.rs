//! Members that have a port together, under connections that never rest.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use janus::net::TcpStream;
use janus_shm::{Claim, Consumer, Descriptor, Message, Share, bytes_of_ring};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;

use crate::bare::{Bare, LOG2};
use crate::resets::nothing_is_left;
use crate::world::{Member, World, on};

const LONG: Duration = Duration::from_secs(20);

/// A connection of the client's, on which requests follow each other.
struct Call {
    /// The name of the member that has taken it.
    at: String,
    answered: Arc<AtomicU64>,
    hangs_up: Arc<AtomicBool>,
    over: Receiver<Result<()>>,
}

/// Reads until the member has said its name.
async fn name(stream: &TcpStream) -> Result<String> {
    let mut said = Vec::new();
    while !said.ends_with(b": ") {
        let mut into = [0];
        if stream.read(&mut into).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        said.extend(into);
    }
    said.truncate(said.len() - 2);
    String::from_utf8(said).map_err(Error::other)
}

/// Asks, and checks every byte of the answer, again and again.
async fn talk(stream: &TcpStream, answered: &AtomicU64, hangs_up: &AtomicBool) -> Result<()> {
    let mut into = vec![0; 2_000];
    while !hangs_up.load(Ordering::Relaxed) {
        let round = answered.load(Ordering::Relaxed);
        let bytes = (0..into.len() as u64).map(|at| (at * 7 + round * 31) as u8);
        let said: Vec<u8> = bytes.collect();
        stream.write_all(&said).await?;
        let mut got = 0;
        while got < said.len() {
            match stream.read(&mut into[got..]).await? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => got += count,
            }
        }
        if into != said {
            return Err(Error::other("another answer"));
        }
        answered.fetch_add(1, Ordering::Relaxed);
        janus::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn calls(world: &World, port: u16, count: usize) -> Vec<Call> {
    let one = |_| {
        let (names, named) = channel();
        let (tells, over) = channel();
        let answered: Arc<AtomicU64> = Arc::default();
        let hangs_up: Arc<AtomicBool> = Arc::default();
        let (counts, until) = (answered.clone(), hangs_up.clone());
        on(world.client(), move || async move {
            drop(janus::spawn(async move {
                let all = async {
                    let stream = TcpStream::connect(("192.0.2.1", port)).await?;
                    names.send(name(&stream).await?).expect("it is waited for");
                    talk(&stream, &counts, &until).await
                };
                let ended = all.await;
                let _ = tells.send(ended);
            }));
        });
        let at = named.recv_timeout(LONG).expect("a name in time");
        Call {
            at,
            answered,
            hangs_up,
            over,
        }
    };
    (0..count).map(one).collect()
}

fn at(calls: &[Call], name: &str) -> usize {
    calls.iter().filter(|it| it.at == name).count()
}

/// Each has had answers since.
fn go_on<'a>(calls: impl IntoIterator<Item = &'a Call>, when: &str) {
    let answered = |it: &Call| it.answered.load(Ordering::Relaxed);
    let since: Vec<_> = (calls.into_iter()).map(|it| (it, answered(it))).collect();
    let begin = Instant::now();
    for (call, before) in since {
        while answered(call) < before + 3 {
            if let Ok(ended) = call.over.try_recv() {
                panic!("{when}: one at {} has ended: {ended:?}", call.at);
            }
            let at = &call.at;
            assert!(begin.elapsed() < LONG, "{when}: one at {at} has stopped");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn hang_up(calls: Vec<Call>) {
    for call in &calls {
        call.hangs_up.store(true, Ordering::Relaxed);
    }
    for call in calls {
        let ended = call.over.recv_timeout(LONG).expect("an end in time");
        ended.expect("all its answers");
    }
}

/// Waits until a member of this name gets connections.
fn is_reached(world: &World, port: u16, name: &str) {
    let begin = Instant::now();
    while world.asks(port, "").unwrap() != format!("{name}: ") {
        assert!(begin.elapsed() < LONG, "no connection reaches {name}");
    }
}

fn end<const N: usize>(members: [Member; N]) {
    members.into_iter().for_each(Member::ends);
}

#[test]
fn connections_are_divided_among_a_group_and_no_other_gets_its_port() {
    let world = World::new("divided");
    let one = world.member_of("web", 80, "one");
    let two = world.member_of("web", 80, "two");
    let all = calls(&world, 80, 40);
    for name in ["one", "two"] {
        assert!(at(&all, name) >= 3, "{name} has {}", at(&all, name));
    }
    let three = world.member_of("web", 80, "three");
    let more = calls(&world, 80, 40);
    for name in ["one", "two", "three"] {
        assert!(at(&more, name) >= 3, "{name} has {}", at(&more, name));
    }
    for (group, name) in [("mail", "another group"), ("", "no group")] {
        let refused = world.try_member_of(group, 80, name).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse, "{name}: {refused}");
    }
    let alone = world.member(81, "alone");
    let refused = world.try_member_of("web", 81, "four").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AddrInUse, "{refused}");
    // A port of UDP is one member's, of whatever group.
    assert!(one.binds_udp(53).is_ok());
    let refused = two.binds_udp(53).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AddrInUse, "{refused}");
    go_on(all.iter().chain(&more), "at the end");
    hang_up(all);
    hang_up(more);
    nothing_is_left(&world);
    end([one, two, three, alone]);
    let counters = world.ends();
    assert_eq!((counters.died.get(), counters.cut_off.get()), (0, 0));
    assert_eq!(counters.refused.get(), 0);
}

#[test]
fn who_joins_or_goes_disturbs_no_connection_of_another() {
    let world = World::new("change");
    let (one, two) = (
        world.member_of("web", 80, "one"),
        world.member_of("web", 80, "two"),
    );
    let mut all = calls(&world, 80, 20);
    let three = world.member_of("web", 80, "three");
    go_on(&all, "one joins");
    all.extend(calls(&world, 80, 20));
    let mut killed = world.process_of("web", 80);
    is_reached(&world, 80, "killed");
    go_on(&all, "a process joins");
    let mut doomed = calls(&world, 80, 30);
    all.extend(doomed.extract_if(.., |it| it.at != "killed"));
    assert!(!doomed.is_empty());

    killed.kill().expect("it runs");
    killed.wait().expect("it has ended");
    go_on(&all, "one is killed");
    let kept = world.counters().lost_reserved.get();
    for _ in 0..20 {
        let said = world.asks(80, "hello").unwrap();
        assert_ne!(said, "killed: hello");
    }
    assert_eq!(
        world.counters().lost_reserved.get(),
        kept,
        "nothing is kept"
    );
    for call in doomed {
        let ended = call.over.recv_timeout(LONG).expect("it is told");
        ended.expect_err("its member is no more");
    }

    two.listens_no_more();
    let begin = Instant::now();
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        // One that it has not accepted is reset.
        if world.asks(80, "").map_or(true, |it| it == "two: ") {
            since = Instant::now();
        }
        assert!(begin.elapsed() < LONG, "it gets connections yet");
    }
    go_on(&all, "one listens no more");
    assert!(at(&all, "two") > 0 && at(&all, "three") > 0);

    let (of_three, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.at == "three");
    three.ends();
    go_on(&all, "one has gone in order");
    drop(of_three);
    for _ in 0..10 {
        assert_eq!(world.asks(80, "hello").unwrap(), "one: hello");
    }
    let again = world.member_of("web", 80, "again");
    is_reached(&world, 80, "again");
    go_on(&all, "another has come");
    hang_up(all);
    nothing_is_left(&world);
    end([one, two, again]);
    let counters = world.ends();
    assert!(counters.turned_back.get() > 0, "{counters}");
    assert_eq!((counters.died.get(), counters.cut_off.get()), (1, 0));
    assert_eq!(counters.refused.get(), 0, "{counters}");
}

#[test]
fn a_groups_connections_outlive_the_daemon() {
    let mut world = World::new("restart");
    let names = ["one", "two", "three"];
    let members = names.map(|name| world.member_of("web", 80, name));
    let all = calls(&world, 80, 30);
    for time in 0..4 {
        world = world.restart();
        go_on(&all, &format!("restart {time}"));
        if time == 1 {
            // Its connections are where no class leads any more.
            members[1].listens_no_more();
            go_on(&all, "one listens no more");
        }
    }
    assert!(at(&all, "two") > 0);
    hang_up(all);
    for name in ["one", "three"] {
        is_reached(&world, 80, name);
    }
    nothing_is_left(&world);
    end(members);
    let counters = world.ends();
    assert_eq!((counters.died.get(), counters.cut_off.get()), (0, 0));
}

/// A member's claim to share port 80.
pub(crate) fn joins_the_web(liar: &Bare) -> Message {
    let claim = Message::Claim(Claim {
        number: 1,
        udp: false,
        address: ([192, 0, 2, 1], 80).into(),
        group: "web".into(),
        share: Share::Join,
        permit: None,
    });
    liar.says(&claim, &[]);
    liar.hears().expect("an answer")
}

#[test]
fn another_users_group_of_that_name_is_another() {
    let world = World::new("user");
    let one = world.member_of("web", 80, "one");
    let answer = std::thread::scope(|scope| {
        let asks = || {
            // Of this thread alone. Only root may.
            let other = Uid::from_raw(65_534);
            set_thread_res_uid(other, other, other).ok()?;
            let mut liar = Bare::new(&world.socket);
            liar.joins();
            Some(joins_the_web(&liar))
        };
        scope.spawn(asks).join().expect("an answer")
    });
    assert!(answer.is_some() || !geteuid().is_root());
    if let Some(answer) = answer {
        let Message::Refused { errno: 98, why, .. } = answer else {
            panic!("another user's port is shared: {answer:?}");
        };
        assert!(why.contains("another group"), "{why}");
    }
    one.ends();
    world.ends();
}

/// A segment without a connection.
fn forged(port: u16, peer_port: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([192, 0, 2, 2, 192, 0, 2, 1]);
    frame.extend(peer_port.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0, 0, 0, 9, 0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame
}

/// Turns back all that it gets, whatever was said of it, and more.
fn turn_all_back(liar: &Bare, ends: &AtomicBool) {
    const SIZE: u64 = 2_048;
    let consumer = |at: u64| {
        let place = at * bytes_of_ring(LOG2);
        Consumer::new(liar.rings.clone(), place, LOG2).unwrap()
    };
    let (mut fill, mut rx, mut tx, mut done) =
        (liar.ring(0), consumer(1), liar.ring(2), consumer(3));
    let own = 48;
    let empty = |offset| Descriptor {
        offset,
        ..Descriptor::default()
    };
    for at in 0..own {
        assert_eq!(fill.put(empty(at * SIZE)), Ok(true));
    }
    let _ = fill.publish();
    let mut peer_port = 0_u16;
    while !ends.load(Ordering::Relaxed) {
        let got = std::iter::from_fn(|| rx.take().unwrap());
        let mut out: Vec<_> = got.take(16).collect();
        rx.publish();
        for it in &mut out {
            it.tag |= Descriptor::RETURNS;
        }
        for (at, port) in (own..).zip([80, 81, 82]) {
            peer_port = peer_port.wrapping_add(1);
            let bytes = forged(port, peer_port);
            liar.packets.write(at * SIZE, &bytes).unwrap();
            out.push(Descriptor {
                offset: at * SIZE,
                len: bytes.len() as u32,
                tag: Descriptor::RETURNS | Descriptor::INSIDE,
            });
        }
        for it in &out {
            assert_eq!(tx.put(*it), Ok(true), "there is room for all");
        }
        let _ = tx.publish();
        liar.bell.0.ring();
        let mut left = out.len();
        while left > 0 && !ends.load(Ordering::Relaxed) {
            while let Some(it) = done.take().unwrap() {
                left -= 1;
                if it.offset < own * SIZE {
                    assert_eq!(fill.put(empty(it.offset)), Ok(true));
                }
            }
            done.publish();
            let _ = fill.publish();
            std::thread::yield_now();
        }
    }
}

/// Says that it ends, also where a check fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn one_that_turns_everything_back_loses_no_connection_of_another() {
    let world = World::new("turner");
    let one = world.member_of("web", 80, "one");
    let two = world.member_of("web", 80, "two");
    let alone = world.member(81, "alone");
    let mut all = calls(&world, 80, 20);
    all.extend(calls(&world, 81, 5));
    let mut liar = Bare::new(&world.socket);
    liar.joins();
    let answer = joins_the_web(&liar);
    assert!(matches!(answer, Message::Granted { .. }), "{answer:?}");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| turn_all_back(&liar, &ends));
        let _ending = Ending(&ends);
        for _ in 0..3 {
            go_on(&all, "beside one that turns all back");
            all.extend(calls(&world, 80, 10));
        }
    });
    assert_eq!(world.asks(81, "hello").unwrap(), "alone: hello");
    drop(liar);
    go_on(&all, "without it");
    hang_up(all);
    end([one, two, alone]);
    let counters = world.ends();
    assert!(counters.refused.get() > 0, "other ports are not its own");
    assert_eq!(counters.cut_off.get(), 0);
}

#[test]
fn who_says_that_anothers_connections_are_here_takes_none_of_them() {
    let world = World::new("claims");
    let one = world.member_of("web", 80, "one");
    let alone = world.member(81, "alone");
    let all: Vec<Call> = [calls(&world, 80, 10), calls(&world, 81, 10)]
        .into_iter()
        .flatten()
        .collect();
    let mut liar = Bare::new(&world.socket);
    liar.joins();
    // All that there may be.
    for number in 1_024..=65_535_u32 {
        for port in [80, 81] {
            let local = ([192, 0, 2, 1], port).into();
            let peer = ([192, 0, 2, 2], number as u16).into();
            let ends = (local, peer);
            liar.says(&Message::Has { number, ends }, &[]);
        }
        if number % 16 == 15 {
            for number in number - 15..=number {
                for _ in 0..2 {
                    assert_eq!(liar.hears(), Some(Message::Heard { number }));
                }
            }
        }
    }
    go_on(&all, "whoever says so");
    hang_up(all);
    liar.leaves();
    end([one, alone]);
    assert_eq!(world.ends().cut_off.get(), 0);
}

#[test]
fn who_is_told_that_its_release_was_heard_gets_no_new_connection() {
    let world = World::new("heard");
    let one = world.member_of("web", 80, "one");
    let mut bare = Bare::new(&world.socket);
    bare.joins();
    let Message::Granted { number, .. } = joins_the_web(&bare) else {
        panic!("it may have the port");
    };
    bare.says(&Message::Release { number }, &[]);
    assert_eq!(bare.hears(), Some(Message::Heard { number }));
    // Half of them would be its.
    let all = calls(&world, 80, 30);
    assert_eq!(bare.end(1).waiting(), Ok(0), "frames for it");
    hang_up(all);
    bare.leaves();
    end([one]);
    assert_eq!(world.ends().cut_off.get(), 0);
}
