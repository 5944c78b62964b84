//! Sockets of AF_INET6: both families through one listener, addresses as the program spells them, IPV6_V6ONLY.

use super::*;

fn socket(of: &mut Sockets<'_>, domain: i32) -> i32 {
    of.socket(domain, abi::SOCK_STREAM, 0).expect("a socket")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn set_v6_only(of: &mut Sockets<'_>, fd: i32, on: i32) -> Result<()> {
    let now = Instant::from_millis(5);
    let value = on.to_ne_bytes();
    of.setsockopt(now, fd, abi::SOL_IPV6, abi::IPV6_V6ONLY, &value)
}

/// A listener on `[::]:80` of the server.
fn listen(two: &mut Two, v6_only: bool) -> i32 {
    let fd = socket(&mut two.b, abi::AF_INET6);
    set_v6_only(&mut two.b, fd, v6_only.into()).expect("not bound yet");
    two.b.bind(fd, at("[::]:80")).expect("a free port");
    two.b.listen(fd, 10).expect("listening");
    fd
}

/// Connects; the outcome, and the client's own name.
fn connect(two: &mut Two, domain: i32, to: &str) -> (Result<()>, SocketAddr) {
    let fd = socket(&mut two.a, domain);
    let outcome = match two.a.connect(two.now, fd, at(to)) {
        Err(Errno::EINPROGRESS) => {
            two.exchange();
            two.a.connect(two.now, fd, at(to))
        }
        other => other,
    };
    (outcome, two.a.getsockname(fd).expect("a name"))
}

#[test]
fn a_listener_on_all_addresses_accepts_both() {
    let mut two = Two::new();
    let listener = listen(&mut two, false);
    for (domain, to, own) in [
        (abi::AF_INET6, "[2001:db8::2]:80", "2001:db8::1"),
        (abi::AF_INET6, "[::ffff:192.0.2.2]:80", "::ffff:192.0.2.1"),
        (abi::AF_INET, "192.0.2.2:80", "192.0.2.1"),
    ] {
        let (outcome, name) = connect(&mut two, domain, to);
        assert_eq!(outcome, Ok(()), "{to}");
        assert_eq!(name.ip().to_string(), own);
        let (fd, peer) = two.b.accept(listener).expect("a connection");
        // The server's program sees only addresses of its own family.
        let expected = match name.ip() {
            IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
            ip => ip,
        };
        assert_eq!(peer, SocketAddr::new(expected, name.port()));
        assert_eq!(two.b.getpeername(fd), Ok(peer));
        assert!(two.b.getsockname(fd).expect("a name").is_ipv6());
    }
}

#[test]
fn one_for_ipv6_only_leaves_the_other_family_alone() {
    let mut two = Two::new();
    let listener = listen(&mut two, true);
    let other = socket(&mut two.b, abi::AF_INET);
    assert_eq!(two.b.bind(other, at("0.0.0.0:80")), Ok(()));
    assert_eq!(
        connect(&mut two, abi::AF_INET, "192.0.2.2:80").0,
        Err(Errno::ECONNREFUSED)
    );
    assert_eq!(
        connect(&mut two, abi::AF_INET6, "[2001:db8::2]:80").0,
        Ok(())
    );
    assert!(two.b.accept(listener).is_ok());
    // It cannot speak IPv4 either.
    let client = socket(&mut two.a, abi::AF_INET6);
    set_v6_only(&mut two.a, client, 1).expect("not bound yet");
    let mapped = at("[::ffff:192.0.2.2]:80");
    let unreachable = two.a.connect(two.now, client, mapped);
    assert_eq!(unreachable, Err(Errno::ENETUNREACH));
    assert_eq!(
        two.a.bind(client, at("[::ffff:192.0.2.1]:0")),
        Err(Errno::EINVAL)
    );
}

#[test]
fn ports_are_taken_by_families() {
    let mut two = Two::new();
    for (first, only, second, free) in [
        ("[::]:81", 0, "0.0.0.0:81", false),
        ("[::]:82", 0, "192.0.2.2:82", false),
        ("[::]:83", 1, "0.0.0.0:83", true),
        ("[2001:db8::2]:84", 0, "0.0.0.0:84", true),
        ("[::ffff:192.0.2.2]:85", 0, "192.0.2.2:85", false),
    ] {
        let one = socket(&mut two.b, abi::AF_INET6);
        set_v6_only(&mut two.b, one, only).expect("not bound yet");
        two.b.bind(one, at(first)).expect("a free port");
        let other = socket(&mut two.b, abi::AF_INET);
        let bound = two.b.bind(other, at(second));
        let expected = if free { Ok(()) } else { Err(Errno::EADDRINUSE) };
        assert_eq!(bound, expected, "{first} and {second}");
    }
}

#[test]
fn what_a_family_does_not_take() {
    let mut two = Two::new();
    let (v4, v6) = (
        socket(&mut two.a, abi::AF_INET),
        socket(&mut two.a, abi::AF_INET6),
    );
    for (fd, other) in [(v4, "[2001:db8::2]:80"), (v6, "192.0.2.2:80")] {
        let refused = Err(Errno::EAFNOSUPPORT);
        assert_eq!(two.a.connect(two.now, fd, at(other)), refused);
        assert_eq!(two.a.bind(fd, at(other)), refused);
    }
    assert_eq!(set_v6_only(&mut two.a, v4, 1), Err(Errno::ENOPROTOOPT));
    two.a.bind(v6, at("[::]:0")).expect("a free port");
    assert_eq!(
        set_v6_only(&mut two.a, v6, 1),
        Err(Errno::EINVAL),
        "too late"
    );
    let mut value = [0; 4];
    let level = abi::SOL_SOCKET;
    two.a
        .getsockopt(v6, level, abi::SO_DOMAIN, &mut value)
        .expect("a socket");
    assert_eq!(i32::from_ne_bytes(value), abi::AF_INET6);
}
