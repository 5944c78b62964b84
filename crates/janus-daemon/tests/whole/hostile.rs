//! Members that lie: each is cut off or ignored, and whoever else is there is served.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use janus_shm::{Descriptor, Hello, Message, VERSION, bytes_of_ring};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::bare::{Bare, LOG2, PACKETS, claim, hello};
use crate::churn::in_time;
use crate::world::{LONG, World};

/// Each lies in its own way; the honest one must not notice.
fn lie(name: &str, lies: impl Fn(&mut Bare)) -> bool {
    let world = World::new("liar");
    let honest = world.member(80, "honest");
    let mut liar = Bare::new(&world.socket);
    lies(&mut liar);
    let cut_off = liar.is_cut_off();
    assert_eq!(world.asks(80, "hello").unwrap(), "honest: hello", "{name}");
    honest.ends();
    let counters = world.ends();
    assert_eq!(counters.cut_off.get(), u64::from(cut_off), "{name}");
    cut_off
}

#[test]
fn who_breaks_the_rules_is_cut_off() {
    let word = |at: u64, value: u32| {
        move |liar: &mut Bare| {
            liar.joins();
            let word = liar.rings.word(at).unwrap();
            word.store(value, std::sync::atomic::Ordering::SeqCst);
            liar.bell.0.ring();
        }
    };
    let ring = bytes_of_ring(LOG2);
    assert!(lie(
        "more to send than a ring holds",
        word(2 * ring, 1 << 20)
    ));
    assert!(lie("more came back than there was", |liar| {
        word(3 * ring + 128, 77)(liar);
        // That index is looked at once there is no room by what was known before.
        let mut sends = liar.ring(2);
        for _ in 0..=1 << LOG2 {
            liar.offers(&mut sends, 0, 60);
            in_time("it is taken, or too much came back", || {
                sends.room().unwrap() > 0
            });
        }
    }));
    assert!(lie("a frame outside of its memory", |liar| {
        liar.joins();
        liar.offers(&mut liar.ring(2), PACKETS as u64 - 3, 60);
    }));
    assert!(lie("a frame that is too long", |liar| {
        liar.joins();
        liar.offers(&mut liar.ring(2), 0, 9_000);
    }));
    assert!(lie("ready before it can be", |liar| {
        liar.says(&Message::Ready, &[]);
    }));
    assert!(lie("what only a daemon says", |liar| {
        liar.says(
            &Message::Granted {
                number: 1,
                port: 80,
                permit: None,
            },
            &[],
        );
    }));
    assert!(lie("twice", |liar| {
        liar.joins();
        liar.says_hello();
    }));
    assert!(lie("another version", |liar| {
        let versions = (VERSION + 1, VERSION + 3);
        liar.says(
            &Message::Hello(Hello {
                versions,
                ..hello()
            }),
            &[],
        );
    }));
    assert!(lie("memory that is not sealed", |liar| {
        liar.says_hello();
        liar.hears();
        let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        let memory = Message::Memory {
            packets: 4_096,
            rings: 4_096,
        };
        liar.says(&memory, &[&file, &file]);
    }));
    assert!(lie("rings that overlap the end", |liar| {
        liar.says_hello();
        liar.hears();
        let (packets, rings) = (PACKETS as u64, liar.rings.len() as u64);
        liar.says(
            &Message::Memory { packets, rings },
            &[&liar.packets, &*liar.rings],
        );
        liar.says(&liar.places([0, 1, 2, 9]), &[&liar.bell.1]);
    }));
    assert!(lie("a bell that is none", |liar| {
        liar.says_hello();
        liar.hears();
        let (packets, rings) = (PACKETS as u64, liar.rings.len() as u64);
        liar.says(
            &Message::Memory { packets, rings },
            &[&liar.packets, &*liar.rings],
        );
        let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        liar.says(&liar.places([0, 1, 2, 3]), &[&file]);
        liar.says(&Message::Ready, &[]);
    }));
}

#[test]
fn what_is_not_a_members_own_does_not_go_out() {
    let world = World::new("forger");
    let honest = world.member(80, "honest");
    let mut liar = Bare::new(&world.socket);
    liar.joins();
    liar.says(&claim(1, false, 80), &[]);
    let Some(Message::Refused { number: 1, why, .. }) = liar.hears() else {
        panic!("another's port is granted");
    };
    assert!(why.contains("another program's"), "{why}");
    let (mac, own) = (liar.mac(), liar.welcome.as_ref().unwrap().ports.0);
    let frame = |source: [u8; 4], port: u16| {
        let mut frame = vec![0xff; 6];
        frame.extend(mac);
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(source);
        frame.extend([192, 0, 2, 2]);
        frame.extend(port.to_be_bytes());
        frame.extend([0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 4, 0, 0, 0, 0, 0, 0]);
        frame
    };
    let mut tx = liar.ring(2);
    let forged = [
        frame([192, 0, 2, 1], 80),
        frame([192, 0, 2, 77], 4_000),
        vec![0; 60],
        vec![],
    ];
    for frame in &forged {
        liar.sends(&mut tx, frame);
        std::thread::sleep(Duration::from_millis(20));
    }
    let begin = Instant::now();
    while world.counters().refused.get() < forged.len() as u64 {
        assert!(begin.elapsed() < LONG, "{}", world.counters());
        std::thread::sleep(Duration::from_millis(1));
    }
    // Its own goes out.
    let before = world.counters().from_members.get();
    liar.sends(&mut tx, &frame([192, 0, 2, 1], own));
    while world.counters().from_members.get() == before {
        assert!(begin.elapsed() < LONG, "{}", world.counters());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(world.asks(80, "hello").unwrap(), "honest: hello");
    honest.ends();
    drop(liar);
    assert_eq!(world.ends().cut_off.get(), 0);
}

#[test]
fn one_that_asks_and_never_takes_anything_disturbs_nobody() {
    let world = World::new("deaf");
    let honest = world.member(80, "honest");
    let mut liar = Bare::new(&world.socket);
    liar.joins();
    // Claims whose answers it does not read, until there is no room for them.
    for number in 0..5_000 {
        liar.says(&claim(number, false, 20_000), &[]);
    }
    // Packets for a port of one who gives no buffers, or is cut off by now: then the port is kept for a while.
    let unanswered = world.asks_for(20_000, "hello", Duration::from_millis(300));
    assert_eq!(unanswered.unwrap_err().kind(), ErrorKind::TimedOut);
    for _ in 0..20 {
        assert_eq!(world.asks(80, "hello").unwrap(), "honest: hello");
    }
    honest.ends();
    drop(liar);
    world.ends();
}

#[test]
fn one_that_hangs_is_cut_off_and_one_that_is_slow_or_idle_is_not() {
    let world = World::patient("hangs", Duration::from_millis(400));
    let idle = world.member(80, "idle");
    let gives = |bare: &Bare| {
        let mut fill = bare.ring(0);
        for at in 0..16 {
            let offset = at * 2_048;
            assert_eq!(
                fill.put(Descriptor {
                    offset,
                    ..Descriptor::default()
                }),
                Ok(true)
            );
        }
        let _ = fill.publish();
    };
    let mut bares = [(); 2].map(|()| Bare::new(&world.socket));
    for (bare, port) in bares.iter_mut().zip([81, 82]) {
        bare.joins();
        bare.claims(1, false, port);
        gives(bare);
    }
    let [hangs, slow] = bares;
    let mut takes = slow.end(1);
    let begin = Instant::now();
    // The port of the one is nobody's in the end.
    while world.counters().cut_off.get() == 0 {
        for port in [81, 82] {
            let _ = world.asks_for(port, "hello", Duration::from_millis(50));
        }
        let _one = takes.take().unwrap();
        takes.publish();
        assert!(begin.elapsed() < LONG, "{}", world.counters());
    }
    assert!(begin.elapsed() >= Duration::from_millis(400));
    assert!(hangs.is_cut_off());
    // There was nothing that this one could have taken.
    assert_eq!(world.asks(80, "hello").unwrap(), "idle: hello");
    slow.leaves();
    idle.ends();
    assert_eq!(world.ends().cut_off.get(), 1);
}

#[test]
fn who_moves_is_there_until_the_process_that_it_names_has_ended() {
    let world = World::new("moves");
    let honest = world.member(80, "honest");
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let line = || socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    let moves = Message::Moves { process: 4711 };
    let mut mover = Bare::new(&world.socket);
    mover.joins();
    mover.claims(1, false, 81);
    let (first, daemons) = line();
    mover.says(&moves, &[&daemons]);
    drop(daemons);
    let (second, daemons) = line();
    mover.says(&moves, &[&daemons]);
    drop(daemons);
    // The first is no more.
    drop(first);
    mover.claims(2, false, 82);
    world.shows(|it| it.members.iter().any(|it| it.process == 4711));
    drop(second);
    assert!(mover.is_cut_off(), "its process has ended");
    let mut early = Bare::new(&world.socket);
    early.says_hello();
    early.hears_welcome();
    let (_there, daemons) = line();
    early.says(&moves, &[&daemons]);
    assert!(early.is_cut_off(), "it was not there yet");
    let mut vague = Bare::new(&world.socket);
    vague.joins();
    vague.says(&moves, &[]);
    assert!(vague.is_cut_off(), "it names no process");
    assert_eq!(world.asks(80, "hello").unwrap(), "honest: hello");
    honest.ends();
    let counters = world.ends();
    assert_eq!((counters.died.get(), counters.cut_off.get()), (1, 2));
}
