//! A port that is left to others, of any user, or to the program that takes this one's place.

use std::io::ErrorKind;
use std::time::Duration;

use janus_shm::{Claim, Hello, Message, Permit, Share};
use rustix::process::geteuid;
use rustix::thread::{Uid, set_thread_res_uid};

use janus_daemon::HEIRS_MAX;

use crate::bare::{Bare, hello};
use crate::groups::joins_the_web;
use crate::world::World;

/// Linux's EACCES.
const DENIED: i32 = 13;

/// A member that is taken in, and claims this port, by a permit. It is another user's if it can be.
fn asks(world: &World, permit: &Permit, port: u16, share: Share) -> Message {
    let asks = || {
        if geteuid().is_root() {
            // Of this thread alone.
            let other = Uid::from_raw(65_534);
            set_thread_res_uid(other, other, other).expect("root may");
        }
        let mut bearer = Bare::new(&world.socket);
        bearer.joins_by(Hello {
            permit: Some(permit.clone()),
            ..hello()
        });
        let claim = Message::Claim(Claim {
            number: 7,
            udp: false,
            address: ([192, 0, 2, 1], port).into(),
            group: "its own".into(),
            share,
            permit: Some(permit.clone()),
        });
        bearer.says(&claim, &[]);
        let answer = bearer.hears().expect("an answer");
        bearer.leaves();
        answer
    };
    std::thread::scope(|scope| scope.spawn(asks).join().expect("an answer"))
}

fn is_denied(answer: &Message) -> bool {
    matches!(answer, Message::Refused { errno: DENIED, .. })
}

#[test]
fn who_was_left_a_port_may_have_it_and_no_other() {
    let world = World::new("permits");
    let mut giver = Bare::new(&world.socket);
    giver.joins();
    let Message::Granted {
        permit: Some(permit),
        ..
    } = joins_the_web(&giver)
    else {
        panic!("no permit for a port that may be shared");
    };
    assert_eq!((permit.port, &permit.group[..]), (80, "web"));
    for share in [Share::Join, Share::Reserve] {
        let granted = Message::Granted {
            number: 7,
            port: 80,
            permit: Some(permit.clone()),
        };
        assert_eq!(asks(&world, &permit, 80, share), granted);
    }
    assert!(is_denied(&asks(&world, &permit, 81, Share::Join)));
    // Of a port that the bearer could have by itself as well.
    let forged = Permit {
        seal: permit.seal ^ 1,
        ..permit.clone()
    };
    assert!(is_denied(&asks(&world, &forged, 80, Share::Join)));
    // With the next daemon, and without the giver.
    let world = world.restart();
    drop(giver);
    let answer = asks(&world, &permit, 80, Share::Join);
    assert!(matches!(answer, Message::Granted { .. }), "{answer:?}");
    world.ends();
}

#[test]
fn those_who_come_for_one_port_leave_places_for_others() {
    let world = World::new("heirs");
    let mut giver = Bare::new(&world.socket);
    giver.joins();
    let Message::Granted { permit, .. } = joins_the_web(&giver) else {
        panic!("it may have the port");
    };
    let heir = || Hello {
        permit: permit.clone(),
        ..hello()
    };
    let joins = || {
        let mut bare = Bare::new(&world.socket);
        bare.joins_by(heir());
        bare
    };
    let mut heirs: Vec<Bare> = (0..HEIRS_MAX).map(|_| joins()).collect();
    let late = Bare::new(&world.socket);
    late.says(&Message::Hello(heir()), &[]);
    let answer = late.hears();
    assert!(
        matches!(answer, Some(Message::Refused { number: 0, .. })),
        "{answer:?}"
    );
    assert_eq!(late.hears(), None);
    // Others come, and so does one in the place of another.
    let mut other = Bare::new(&world.socket);
    other.joins();
    heirs.remove(7).leaves();
    heirs.extend([joins(), giver, other]);
    heirs.into_iter().for_each(Bare::leaves);
    assert_eq!(world.ends().cut_off.get(), 0);
}

#[test]
fn a_port_is_kept_for_who_follows_if_the_member_says_so() {
    let world = World::new("follows");
    for keeps in [false, true] {
        let mut first = Bare::new(&world.socket);
        first.joins();
        first.claims(1, false, 7_100);
        first.leaves_to_another(keeps);
        let asked = world.asks_for(7_100, "hello", Duration::from_millis(200));
        let kind = asked.expect_err("it listens no more").kind();
        // What asks is dropped, and asks again; it is not refused.
        assert_eq!(kind != ErrorKind::ConnectionRefused, keeps, "{kind:?}");
    }
    let follows = world.member(7_100, "second");
    assert_eq!(world.asks(7_100, "hello").unwrap(), "second: hello");
    follows.ends();
    let counters = world.ends();
    assert_eq!((counters.died.get(), counters.left.get()), (0, 3));
}
