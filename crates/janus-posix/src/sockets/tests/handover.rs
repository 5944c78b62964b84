//! A connection that goes from one process to another which has the same addresses.

use super::*;

/// `b` gives the connection away as bytes, and its other end is told nothing.
struct Handed {
    two: Two,
    /// Of the client, and of who has given it away.
    ends: (i32, i32),
    names: crate::Ends,
    bytes: Vec<u8>,
}

fn handed() -> Handed {
    let mut two = Two::new();
    let (client, server) = two.open();
    says(&mut two, client, server, b"before");
    let local = two.b.getsockname(server).expect("a name");
    let peer = two.b.getpeername(server).expect("a name");
    let (names, bytes) = two.b.give(two.now, server).expect("it is quiet");
    assert_eq!(names, (local, peer));
    Handed {
        two,
        ends: (client, server),
        names,
        bytes,
    }
}

fn says(two: &mut Two, client: i32, server: i32, text: &[u8]) {
    let mut into = [0; 64];
    assert_eq!(two.a.write(two.now, client, text), Ok(text.len()));
    two.exchange();
    assert_eq!(
        two.b.recv(two.now, server, &mut into, abi::MSG_DONTWAIT),
        Ok(text.len())
    );
    assert_eq!(two.b.write(two.now, server, text), Ok(text.len()));
    two.exchange();
    assert_eq!(
        two.a.recv(two.now, client, &mut into, abi::MSG_DONTWAIT),
        Ok(text.len())
    );
    two.exchange();
}

#[test]
fn it_goes_on_in_the_other_process() {
    let Handed {
        mut two,
        ends: (client, server),
        names,
        bytes,
    } = handed();
    let mut giver = core::mem::replace(&mut two.b, sockets(B, B_V6, 3));
    // Its clock shows another time.
    two.now = Instant::from_millis(7_000);
    let new = two.b.socket(abi::AF_INET, abi::SOCK_STREAM, 0).unwrap();
    let taken = two.b.take_in(two.now, new, &bytes, Duration::ZERO);
    assert_eq!(taken, Ok(names));
    assert_eq!(two.b.getpeername(new), Ok(names.1));
    assert_eq!(
        two.b.take_in(two.now, new, &bytes, Duration::ZERO),
        Err(Errno::EISCONN)
    );
    for _ in 0..3 {
        says(&mut two, client, new, b"after");
    }
    assert_eq!(giver.getpeername(server), Err(Errno::ENOTCONN));
    giver.forget_given(names);
    assert_eq!(giver.close(two.now, server), Ok(()));
    assert!(!giver.stack().wants_transmit(), "it says nothing any more");
    assert_eq!((giver.stack().connections(), giver.stack().stubs()), (0, 0));
    assert_eq!(two.a.close(two.now, client), Ok(()));
    assert_eq!(two.b.close(two.now, new), Ok(()));
    two.exchange();
    assert_eq!(two.b.stack().connections(), 0);
}

#[test]
fn on_its_way_its_packets_are_dropped_and_it_can_come_back() {
    let Handed {
        mut two,
        ends: (client, server),
        bytes,
        ..
    } = handed();
    assert_eq!(two.a.write(two.now, client, b"early"), Ok(5));
    two.exchange();
    assert_eq!(two.b.stack().counters().resets_out, 0, "nor refused");
    let back = two.b.take_in(two.now, server, &bytes, Duration::ZERO);
    assert!(back.is_ok());
    assert_eq!(two.b.stack().stubs(), 0);
    // The dropped bytes are sent again.
    two.now = two.now + Duration::from_secs(1);
    two.a.stack_mut().advance(two.now);
    two.exchange();
    let mut into = [0; 8];
    let got = two.b.recv(two.now, server, &mut into, abi::MSG_DONTWAIT);
    assert_eq!((got, &into[..5]), (Ok(5), &b"early"[..]));
}

#[test]
fn it_stays_while_something_is_under_way() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let stays = |two: &mut Two, fd, why: &str| {
        let given = two.b.give(two.now, fd);
        assert_eq!(given, Err(Errno::EAGAIN), "{why}");
    };
    two.b.write(two.now, server, b"x").expect("room");
    stays(&mut two, server, "it is not acknowledged");
    two.exchange();
    two.a.write(two.now, client, b"y").expect("room");
    two.exchange();
    stays(&mut two, server, "it is not read");
    let mut into = [0; 8];
    two.b.recv(two.now, server, &mut into, 0).expect("a byte");
    two.a
        .shutdown(two.now, client, abi::SHUT_WR)
        .expect("connected");
    two.exchange();
    stays(&mut two, server, "its peer has ended");
    let lone = two.b.socket(abi::AF_INET, abi::SOCK_STREAM, 0).unwrap();
    let none = two.b.give(two.now, lone);
    assert_eq!(none, Err(Errno::ENOTCONN));
    let garbled = two
        .b
        .take_in(two.now, lone, b"no connection", Duration::ZERO);
    assert_eq!(garbled, Err(Errno::EINVAL));
    assert_eq!(two.b.close(two.now, lone), Ok(()));
}
