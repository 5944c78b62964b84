//! Clients that are turned away, and when, by a clock of the test's.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use super::*;

fn door() -> (TcpListener, Vec<TcpStream>) {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    door.set_nonblocking(true).unwrap();
    let at = door.local_addr().unwrap();
    let clients = (0..2).map(|_| TcpStream::connect(at).unwrap());
    let clients = clients.collect();
    // The third part of the handshake is on its way over loopback only.
    assert!(somebody_waits(&door));
    (door, clients)
}

#[test]
fn clients_wait_for_a_moment_and_are_reset_then() {
    let (door, mut clients) = door();
    let mut spare = Spare::new();
    let at = |millis: u64| Instant::from_millis(1000 + millis);
    for early in [0, 100, 499] {
        assert_eq!(spare.turn_away(at(early), &door), Waiting::Perhaps);
    }
    for _ in 0..2 {
        assert_eq!(spare.turn_away(at(500), &door), Waiting::TurnedAway);
    }
    assert_eq!(spare.turn_away(at(500), &door), Waiting::Nobody);
    assert!(!somebody_waits(&door) && spare.held.is_some());
    for client in &mut clients {
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn each_shortage_has_its_moment() {
    let (door, _clients) = door();
    let mut spare = Spare::new();
    let at = |millis: u64| Instant::from_millis(1000 + millis);
    assert_eq!(spare.turn_away(at(0), &door), Waiting::Perhaps);
    spare.relieved();
    assert_eq!(spare.turn_away(at(600), &door), Waiting::Perhaps);
    assert_eq!(spare.turn_away(at(1100), &door), Waiting::TurnedAway);
    // Nobody came for long; whether descriptors were short all the time is not known.
    assert_eq!(spare.turn_away(at(3100), &door), Waiting::Perhaps);
}
