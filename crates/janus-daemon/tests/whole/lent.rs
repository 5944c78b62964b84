//! Members that borrow the daemon's buffers: nothing is copied for them, what they had comes home, and they keep their connections when the
//! daemon ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use janus::DaemonMemory;
use janus_shm::{Hello, Message, Mode};

use crate::bare::{Bare, hello};
use crate::churn::in_time;
use crate::world::{World, begin, steady};

/// Bytes for many frames.
fn big() -> String {
    "0123456789abcdef".repeat(40_000)
}

#[test]
fn packets_cross_without_a_copy_or_with_one() {
    let world = World::new("uncopied");
    let counters = world.daemon_counters();
    let both = || counters.to_members.get() + counters.from_members.get();
    let shared = world.member(80, "shared");
    assert!(world.asks(80, &big()).unwrap() == format!("shared: {}", big()));
    let (all, uncopied) = (both(), counters.uncopied.get());
    assert!(uncopied > 800, "{counters}");
    // Answers about link addresses are for everybody.
    assert!(all - uncopied < 10, "{counters}");
    let isolated = world.member_with(81, "isolated", DaemonMemory::Isolated);
    assert!(world.asks(81, &big()).unwrap() == format!("isolated: {}", big()));
    assert!(both() - all > 800, "{counters}");
    assert!(counters.uncopied.get() - uncopied < 10, "{counters}");
    shared.ends();
    isolated.ends();
    world.ends();
}

#[test]
fn buffers_of_the_dead_come_home_and_are_lent_again() {
    let world = World::new("home");
    let counters = world.daemon_counters();
    for round in 1..=4 {
        let mut process = world.process(80);
        // Some are with the device, in rings, in its hands.
        assert!(world.asks(80, &big()).unwrap().len() > 600_000);
        process.kill().expect("it runs");
        process.wait().expect("it has ended");
        in_time("what it had is taken back", || {
            counters.returned.get() == counters.lent.get()
        });
        assert_eq!(counters.died.get(), round);
    }
    assert!(counters.uncopied.get() > 4 * 800, "{counters}");
    world.ends();
}

#[test]
fn a_borrower_keeps_its_connections_under_the_next_daemons() {
    let mut world = World::new("keeps");
    let member = world.member(80, "kept");
    let stop = Arc::new(AtomicBool::new(false));
    let streams: Vec<_> = (0..8)
        .map(|_| {
            let stop = stop.clone();
            begin(world.client(), move || steady(80, "kept", stop))
        })
        .collect();
    for _ in 0..3 {
        assert!(world.asks(80, &big()).unwrap() == format!("kept: {}", big()));
        world = world.restart();
    }
    // As one that has brought memory of its own; a new one borrows.
    assert!(world.asks(80, &big()).unwrap() == format!("kept: {}", big()));
    let counters = world.daemon_counters();
    assert_eq!(counters.lent.get(), 0);
    let new = world.member(81, "new");
    assert!(world.asks(81, &big()).unwrap() == format!("new: {}", big()));
    assert!(
        counters.lent.get() > 0 && counters.uncopied.get() > 800,
        "{counters}"
    );
    stop.store(true, Ordering::Release);
    for stream in streams {
        assert!(stream.recv().expect("an answer").expect("it lives on") > 0);
    }
    member.ends();
    new.ends();
    world.ends();
}

/// One that borrows, and gives or sends what it does not have.
fn lies(ring: u64) {
    let world = World::new("borrower");
    let honest = world.member(80, "honest");
    let mut liar = Bare::new(&world.socket);
    let wants = Hello {
        mode: Mode::Shared,
        buffers: 64,
        ..hello()
    };
    liar.says(&Message::Hello(wants), &[]);
    liar.hears_welcome();
    let (slots, lent) = liar.welcome.as_ref().expect("it is welcome").loan;
    assert_eq!(lent, 64);
    let memory = Message::Memory {
        packets: 0,
        rings: liar.rings.len() as u64,
    };
    liar.says(&memory, &[&*liar.rings]);
    liar.gives_rings();
    liar.says(&Message::Ready, &[]);
    liar.claims(1, true, 53);
    // The last ones are lent last.
    let not_lent = u64::from(slots - 1) * 2_048;
    liar.offers(&mut liar.ring(ring), not_lent, 60);
    // What is given is looked at when there is something for it.
    let mut sent = 0;
    in_time("it is cut off", || {
        drop(begin(world.client(), || async {
            let socket = janus::net::UdpSocket::bind("192.0.2.2:0").await?;
            socket.send_to(b"hello", ("192.0.2.1", 53)).await
        }));
        sent += 1;
        world.counters().cut_off.get() == 1
    });
    assert!(liar.is_cut_off());
    assert_eq!(world.asks(80, "hello").unwrap(), "honest: hello", "{sent}");
    honest.ends();
    let counters = world.ends();
    // It lives, and may write there yet.
    assert_eq!(counters.lent.get() - counters.returned.get(), 64);
}

#[test]
fn who_gives_or_sends_what_it_does_not_have_is_cut_off() {
    const FILL: u64 = 0;
    const SENDS: u64 = 2;
    lies(FILL);
    lies(SENDS);
}
