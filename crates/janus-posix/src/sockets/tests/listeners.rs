//! Listeners: their queues, those that share a port, and sockets that are disconnected.

use super::*;

impl Two {
    fn attempt(&mut self) -> i32 {
        let fd = self.client();
        let outcome = self.a.connect(self.now, fd, SERVER);
        assert_eq!(outcome, Err(Errno::EINPROGRESS));
        self.exchange();
        fd
    }
}

#[test]
fn the_backlog_can_be_changed_while_listening() {
    let mut two = Two::new();
    let listener = two.listener();
    assert_eq!(two.b.listen(listener, 0), Ok(()));
    let first = two.attempt();
    let second = two.attempt();
    let outcomes = [first, second].map(|fd| two.a.connect(two.now, fd, SERVER));
    // A queue of none takes one (sk_acceptq_is_full).
    assert_eq!(outcomes, [Ok(()), Err(Errno::EALREADY)]);
    assert_eq!(two.b.listen(listener, 5), Ok(()));
    let third = two.attempt();
    assert_eq!(two.a.connect(two.now, third, SERVER), Ok(()));
    assert!(two.b.accept(listener).is_ok() && two.b.accept(listener).is_ok());
}

#[test]
fn those_that_share_a_port_share_its_connections() {
    let mut two = Two::new();
    let kind = abi::SOCK_STREAM | abi::SOCK_NONBLOCK;
    let listeners: Vec<i32> = (0..4)
        .map(|_| {
            let fd = two.b.socket(abi::AF_INET, kind, 0).expect("a socket");
            let on = 1i32.to_ne_bytes();
            two.b
                .setsockopt(two.now, fd, abi::SOL_SOCKET, abi::SO_REUSEPORT, &on)
                .expect("an option");
            two.b.bind(fd, ANY).expect("a shared port");
            two.b.listen(fd, 100).expect("listening");
            fd
        })
        .collect();
    let stranger = two.b.socket(abi::AF_INET, kind, 0).expect("a socket");
    assert_eq!(two.b.bind(stranger, ANY), Err(Errno::EADDRINUSE));
    for _ in 0..80 {
        two.attempt();
    }
    let accepted = listeners.iter().map(|&fd| {
        let mut count = 0;
        while two.b.accept(fd).is_ok() {
            count += 1;
        }
        count
    });
    let counts: Vec<i32> = accepted.collect();
    assert_eq!(counts.iter().sum::<i32>(), 80);
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
}

#[test]
fn a_socket_can_be_used_again() {
    let mut two = Two::new();
    let (client, server) = two.open();
    assert_eq!(two.a.disconnect(two.now, client), Ok(()));
    two.exchange();
    let read = two.b.read(two.now, server, &mut [0; 4]);
    assert_eq!(read, Err(Errno::ECONNRESET));
    let write = two.a.write(two.now, client, b"x");
    assert_eq!(write, Err(Errno::ECONNRESET));
    assert_eq!(two.a.write(two.now, client, b"x"), Err(Errno::EPIPE));
    let again = two.a.connect(two.now, client, SERVER);
    assert_eq!(again, Err(Errno::EINPROGRESS));
    two.exchange();
    assert_eq!(two.a.connect(two.now, client, SERVER), Ok(()));
    assert_eq!(two.a.write(two.now, client, b"x"), Ok(1));
}

#[test]
fn lingering_lasts_until_the_fin_is_acknowledged() {
    let mut two = Two::new();
    let (client, _) = two.open();
    let linger = [1i32.to_ne_bytes(), 7i32.to_ne_bytes()].concat();
    two.a
        .setsockopt(two.now, client, abi::SOL_SOCKET, abi::SO_LINGER, &linger)
        .expect("an option");
    assert_eq!(two.a.write(two.now, client, b"goodbye"), Ok(7));
    let lingering = two.a.close_lingering(two.now, client).expect("open");
    let lingering = lingering.expect("something to wait for");
    assert_eq!(lingering.time.as_secs(), 7);
    assert!(two.a.lingers(&lingering));
    two.exchange();
    assert!(!two.a.lingers(&lingering));
}
