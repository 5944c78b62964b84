//! A daemon on a wire in memory, members that join it as programs do, and a client at the wire's other end. What needs a process of its own to
//! die runs this program again.

mod bare;
mod churn;
mod device;
mod dhcp;
mod faults;
mod groups;
mod hostile;
mod lent;
mod permits;
mod portal;
mod quotas;
mod resets;
mod restarts;
mod scribbler;
mod statistics;
mod world;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use world::{MEMBER, World, serve};

/// Not a test by itself: what a process does that is to be killed.
#[test]
fn a_member_that_is_killed() {
    if let Ok(text) = std::env::var(MEMBER) {
        let mut words = text.split(' ');
        let mut word = || words.next().expect("a socket, a port, a group and peers");
        let (socket, port, group) = (word().into(), word(), word());
        let peers = word().split(',').filter_map(|it| it.parse().ok());
        let peers = peers.collect();
        serve(
            socket,
            group,
            port.parse().expect("a port"),
            peers,
            "killed",
        );
    }
}

#[test]
fn each_port_leads_to_the_member_that_has_claimed_it() {
    let world = World::new("ports");
    let one = world.member(80, "one");
    let two = world.member(81, "two");
    for _ in 0..3 {
        assert_eq!(world.asks(80, "hello").unwrap(), "one: hello");
        assert_eq!(world.asks(81, "hello").unwrap(), "two: hello");
    }
    let big = "0123456789abcdef".repeat(40_000);
    assert!(world.asks(81, &big).unwrap() == format!("two: {big}"));
    let refused = world.asks(82, "hello").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    let taken = world.try_member(80, "three").unwrap_err();
    assert!(
        taken.to_string().contains("port 80 is another program's"),
        "{taken}"
    );
    one.ends();
    let refused = world.asks(80, "hello").unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::ConnectionRefused,
        "it went in order"
    );
    let three = world.member(80, "three");
    assert_eq!(world.asks(80, "hello").unwrap(), "three: hello");
    assert_eq!(world.asks(81, "hello").unwrap(), "two: hello");
    two.ends();
    three.ends();
    let counters = world.ends();
    assert_eq!(
        counters.joined.get(),
        4,
        "one was refused its port and had joined"
    );
    assert_eq!((counters.died.get(), counters.cut_off.get()), (0, 0));
    assert_eq!(
        (counters.lost_no_buffer.get(), counters.refused.get()),
        (0, 0)
    );
}

#[test]
fn members_begin_connections_from_ports_of_their_own() {
    let world = World::new("begin");
    let (one, two) = (world.member(80, "one"), world.member(81, "two"));
    let port = world.client_listens();
    let first: Vec<u16> = (0..20).map(|_| one.connects(port)).collect();
    let second: Vec<u16> = (0..20).map(|_| two.connects(port)).collect();
    assert!(
        first.iter().all(|port| !second.contains(port)),
        "{first:?} {second:?}"
    );
    one.ends();
    two.ends();
    assert_eq!(world.ends().refused.get(), 0);
}

#[test]
fn a_dead_members_port_is_kept_and_given_to_its_successor() {
    let world = World::new("death");
    let other = world.member(81, "other");
    let mut killed = world.process(80);
    assert_eq!(world.asks(80, "hello").unwrap(), "killed: hello");
    killed.kill().expect("it runs");
    killed.wait().expect("it has ended");
    let begin = Instant::now();
    let unanswered = world.asks_for(80, "hello", Duration::from_millis(300));
    assert_eq!(unanswered.unwrap_err().kind(), ErrorKind::TimedOut, "kept");
    assert_eq!(world.asks(81, "hello").unwrap(), "other: hello");
    let successor = world.member(80, "successor");
    assert_eq!(world.asks(80, "hello").unwrap(), "successor: hello");
    successor.ends();
    let mut again = world.process(80);
    again.kill().expect("it runs");
    again.wait().expect("it has ended");
    // Nobody follows this time.
    let refused = loop {
        match world.asks_for(80, "hello", Duration::from_millis(500)) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => break true,
            _ if begin.elapsed() > Duration::from_secs(20) => break false,
            _ => {}
        }
    };
    assert!(refused, "kept for ever");
    other.ends();
    assert_eq!(world.ends().died.get(), 2);
}

#[test]
fn members_reach_each_other_by_the_addresses_that_they_share() {
    let world = World::new("inside");
    let (one, two) = (world.member(80, "one"), world.member(81, "two"));
    let big = "0123456789abcdef".repeat(40_000);
    for _ in 0..3 {
        assert_eq!(one.asks(81, "hello").unwrap(), "two: hello");
        assert!(two.asks(80, &big).unwrap() == format!("one: {big}"));
        assert_eq!(one.asks(80, "itself").unwrap(), "one: itself");
        let refused = one.asks(82, "hello").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    }
    assert_eq!(world.asks(80, "hello").unwrap(), "one: hello");
    one.ends();
    two.ends();
    let counters = world.ends();
    assert!(counters.inside.get() > 1_000, "{counters}");
    assert_eq!(counters.refused.get(), 0);
}
