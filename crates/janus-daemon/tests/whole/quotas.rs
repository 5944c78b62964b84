//! Members that send more than they may: what is over the rate is dropped, counted for them, and TCP gets along with it.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use janus::DaemonMemory;
use janus_daemon::{Limit, MemberStatistics, Rate, Statistics};

use crate::bare::Bare;
use crate::statistics::segment;
use crate::world::{LONG, World};

const SYN: u8 = 2;
const ACK: u8 = 16;

pub(crate) fn rate(per_second: u64, burst: u64) -> Option<Rate> {
    Some(Rate {
        per_second: NonZeroU64::new(per_second)?,
        burst: NonZeroU64::new(burst)?,
    })
}

pub(crate) fn limit(bytes: Option<Rate>, syns: Option<Rate>) -> Limit {
    let user = None;
    Limit { user, bytes, syns }
}

/// Sends so many frames of this length as fast as they are taken; the member's figures, and how long it took.
fn sends(world: &World, flags: u8, len: usize, count: u64) -> (MemberStatistics, Duration) {
    let mut bare = Bare::new(&world.socket);
    bare.joins();
    let mac = bare.mac();
    let own = bare.welcome.as_ref().unwrap().ports.0;
    let (mut tx, mut done) = (bare.ring(2), bare.end(3));
    let begin = Instant::now();
    let (mut sent, mut home) = (0, 0);
    // Until the last is back: for what is not, the daemon may find no room.
    while home < count {
        assert!(begin.elapsed() < LONG, "they are not taken");
        if sent < count && tx.room().unwrap() > 0 {
            bare.sends(&mut tx, &segment(mac, own, flags, len));
            sent += 1;
        } else {
            std::thread::yield_now();
        }
        while done.take().unwrap().is_some() {
            home += 1;
        }
        done.publish();
    }
    let of = |it: &Statistics| it.members.iter().find(|it| it.name == "by hand").cloned();
    let all = |it: MemberStatistics| it.sent.frames + it.limited == count;
    // The daemon's row and a member's are not of one moment.
    let shown = world.shows(|shown| {
        let counters = &shown.counters;
        let both = counters.from_members.get() + counters.limited.get();
        both == count && of(shown).is_some_and(all)
    });
    let took = begin.elapsed();
    let it = of(&shown).unwrap();
    assert_eq!(it.refused, 0);
    assert_eq!(it.sent.bytes, it.sent.frames * len as u64);
    assert_eq!(shown.counters.limited.get(), it.limited);
    assert_eq!(shown.counters.from_members.get(), it.sent.frames);
    bare.leaves();
    (it, took)
}

#[test]
fn bytes_over_the_rate_are_dropped() {
    let world = World::limited("bytes", &[limit(rate(20_000, 5_000), None)]);
    let (it, took) = sends(&world, ACK, 1_000, 300);
    let more = took.as_millis() as u64 * 20 / 1_000;
    assert!(
        (5..=5 + more + 1).contains(&it.sent.frames),
        "{took:?} {it:?}"
    );
    world.ends();
}

#[test]
fn connections_over_the_rate_are_not_begun() {
    let world = World::limited("syns", &[limit(None, rate(10, 5))]);
    let (it, took) = sends(&world, SYN, 60, 300);
    let more = took.as_millis() as u64 / 100;
    assert!(
        (5..=5 + more + 1).contains(&it.sent.frames),
        "{took:?} {it:?}"
    );
    world.ends();
    let world = World::limited("syns", &[limit(None, rate(10, 5))]);
    let (it, _) = sends(&world, ACK, 60, 300);
    assert_eq!(it.limited, 0, "it begins none");
    world.ends();
}

#[test]
fn where_nothing_is_said_there_is_no_limit() {
    let world = World::new("unlimited");
    let (it, _) = sends(&world, SYN, 1_000, 300);
    assert_eq!((it.sent.frames, it.limited), (300, 0));
    world.ends();
}

#[test]
fn tcp_gets_along_with_a_rate() {
    for memory in [DaemonMemory::Shared, DaemonMemory::Isolated] {
        let world = World::limited("tcp", &[limit(rate(1_000_000, 100_000), None)]);
        let member = world.member_with(80, "member", memory);
        let big = "0123456789abcdef".repeat(40_000);
        let begin = Instant::now();
        assert!(world.asks(80, &big).unwrap() == format!("member: {big}"));
        let took = begin.elapsed();
        // 640 KB of which a burst goes at once.
        assert!(took > Duration::from_millis(500), "{took:?}");
        let all = |it: &MemberStatistics| it.sent.bytes > 640_000;
        let shown = world.shows(|it| it.members.first().is_some_and(all));
        let it = &shown.members[0];
        assert!(it.limited > 0, "{it:?}");
        let most = 100_000 + begin.elapsed().as_micros() as u64;
        assert!(it.sent.bytes <= most + 2_000, "{took:?} {it:?}");
        member.ends();
        world.ends();
    }
}
