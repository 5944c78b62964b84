//! What an OPEN call promises, and how long an attempt lasts: RFC 9293 sections 3.8.3, 3.9.1.1 and 3.9.2.3.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::support::{Craft, HERE, Host, PEER, PORT, Peer, Seen, own_address};
use janus_tcp::{ConnId, Error, Interface, IpCidr, State};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

/// Our second address, in another network.
const ALSO_HERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

fn at(addr: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::from((addr, port))
}

fn two_addresses() -> Host {
    let mut interface: Interface = own_address();
    interface.addresses.push(IpCidr::new(ALSO_HERE, 24));
    Host::new(janus_tcp::Config::default(), interface, 8_192)
}

/// MUST-41: a second LISTEN on the same port is an error, and neither it nor one on another port touches what is there.
#[test]
fn a_passive_open_leaves_others_alone() {
    let mut host = two_addresses();
    let mut open = Peer::open(&mut host, 4_000);
    let half_open = Craft::syn((PEER, 4_001));
    let answers = host.ask(&half_open);
    for taken in [at(Ipv4Addr::UNSPECIFIED, PORT), at(HERE, PORT)] {
        assert_eq!(host.stack.listen(taken, 1), Err(Error::AddrInUse));
    }
    let other = host.stack.listen(at(HERE, 81), 1).expect("a free port");
    open.expect_unharmed(&mut host);
    let mut ack = Craft::new(half_open.src, Flags::ACK);
    (ack.seq, ack.ack) = (SeqNum(1), answers[0].end());
    host.send(&ack);
    let (late, _) = host.stack.accept(host.listener).expect("opened as before");
    assert!(host.stack.accept(other).is_err());
    host.stack.unlisten(host.now, other);
    open.expect_unharmed(&mut host);
    host.end(&[open.conn, late]);
}

/// MUST-42: a port that an opening connection uses can be listened on; each segment finds its own.
#[test]
fn a_port_of_an_opening_connection_can_be_listened_on() {
    let mut host = Host::plain();
    let remote = at(PEER, 9_000);
    let sent = host.stack.connect(host.now, at(HERE, 81), remote);
    let sent = sent.expect("a connection");
    let syn = host.collect().remove(0);
    let crossed = host.stack.connect(host.now, at(HERE, 82), remote);
    let crossed = crossed.expect("a connection");
    host.collect();
    let mut theirs = Craft::syn((PEER, 9_000));
    theirs.dst.1 = 82;
    host.ask(&theirs);
    let state = |host: &Host, conn: ConnId| host.stack.info(conn).map(|info| info.state);
    assert_eq!(state(&host, crossed), Ok(State::SynReceived));
    for port in [81, 82] {
        let listener = host.stack.listen(at(HERE, port), 4).expect("a free port");
        let mut syn = Craft::syn((PEER, 4_000));
        syn.dst.1 = port;
        let answers = host.ask(&syn);
        assert!(answers[0].has(Flags::SYN | Flags::ACK));
        let mut ack = Craft::new(syn.src, Flags::ACK);
        (ack.dst.1, ack.seq, ack.ack) = (port, SeqNum(1), answers[0].end());
        host.send(&ack);
        let (conn, from) = host.stack.accept(listener).expect("a connection");
        assert_eq!(from, at(PEER, 4_000));
        host.stack.abort(host.now, conn);
        host.collect();
    }
    assert_eq!(state(&host, sent), Ok(State::SynSent));
    assert_eq!(state(&host, crossed), Ok(State::SynReceived));
    let mut answer = Craft::syn((PEER, 9_000));
    (answer.dst.1, answer.flags, answer.ack) = (81, Flags::SYN | Flags::ACK, syn.end());
    host.ask(&answer);
    assert_eq!(state(&host, sent), Ok(State::Established));
    host.stack.abort(host.now, crossed);
    host.stack.abort(host.now, sent);
    for listener_port in [81, 82] {
        assert!(host.stack.listen(at(HERE, listener_port), 1).is_err());
    }
}

/// A connection closed before our SYN is acknowledged: the SYN-ACK is repeated for as long as the peer lacks it, and the FIN
/// follows its acknowledgement.
#[test]
fn what_closes_while_it_opens_opens_first() {
    for owned in [true, false] {
        let mut host = Host::plain();
        let conn = host
            .stack
            .connect(host.now, at(HERE, 81), at(PEER, 9_000))
            .expect("a connection");
        let syn = host.collect().remove(0);
        let mut theirs = Craft::syn((PEER, 9_000));
        theirs.dst.1 = 81;
        assert!(host.ask(&theirs)[0].has(Flags::SYN | Flags::ACK));
        if owned {
            host.stack.shutdown_write(host.now, conn).expect("open");
        }
        host.stack.close(host.now, conn);
        assert!(host.stack.is_closing(conn));
        assert_eq!(host.collect().len(), 0, "no FIN before the SYN is there");
        for _ in 0..2 {
            host.wait(Duration::from_secs(3));
            let again = host.collect();
            assert!(again[0].has(Flags::SYN | Flags::ACK) && again[0].header.seq == syn.header.seq);
        }
        let mut ack = Craft::new((PEER, 9_000), Flags::ACK);
        (ack.dst.1, ack.seq, ack.ack) = (81, SeqNum(1), syn.end());
        let fin = host.ask(&ack).remove(0);
        assert!(fin.has(Flags::FIN | Flags::ACK) && fin.header.seq == syn.end());
        ack.flags = Flags::FIN | Flags::ACK;
        ack.ack = fin.end();
        let last = host.ask(&ack).remove(0);
        assert_eq!(last.header.ack, SeqNum(2));
        assert_eq!(host.stack.connections(), 0, "TIME-WAIT at most");
        host.end(&[]);
    }
}

/// All segments of a connection that we open, from its SYN to its FIN.
fn a_whole_connection(host: &mut Host, local: SocketAddr) -> (Vec<(Ipv4Addr, u16)>, Vec<Seen>) {
    let conn = host.stack.connect(host.now, local, at(PEER, 9_000));
    let conn = conn.expect("a connection");
    let mut seen = host.collect();
    let from = host.stack.local_addr(conn).expect("a connection");
    let IpAddr::V4(ip) = from.ip() else {
        panic!("not IPv4: {from}");
    };
    let from = (ip, from.port());
    let mut answer = Craft::syn((PEER, 9_000));
    answer.dst = from;
    (answer.flags, answer.ack) = (Flags::SYN | Flags::ACK, seen[0].end());
    seen.extend(host.ask(&answer));
    host.stack.write(host.now, conn, b"bytes").expect("room");
    seen.extend(host.collect());
    host.stack.close(host.now, conn);
    seen.extend(host.collect());
    host.stack.abort(host.now, conn);
    let last = seen.last().expect("segments");
    assert!(seen.len() >= 4 && last.has(Flags::FIN));
    let mut end = Craft::new((PEER, 9_000), Flags::RST);
    (end.dst, end.seq) = (from, SeqNum(1));
    host.send(&end);
    (seen.iter().map(|s| s.from).collect(), seen)
}

/// MUST-43, MUST-44, MUST-45: the caller's address if there is one; else what the routes say; and the same to the end.
#[test]
fn the_local_address_is_chosen_once() {
    let mut host = two_addresses();
    let any = Ipv4Addr::UNSPECIFIED;
    for (local, expected) in [(HERE, HERE), (ALSO_HERE, ALSO_HERE), (any, HERE)] {
        let (sources, _) = a_whole_connection(&mut host, at(local, 5_000));
        assert!(sources.iter().all(|&from| from == (expected, 5_000)));
    }
    let stranger = at(Ipv4Addr::new(203, 0, 113, 9), 5_000);
    let refused = host.stack.connect(host.now, stranger, at(PEER, 9_000));
    assert_eq!(refused, Err(Error::AddrNotAvailable));
    assert_eq!(host.stack.listen(stranger, 1), Err(Error::AddrNotAvailable));
    // Towards a neighbour, the address that is in its network.
    let near = at(Ipv4Addr::new(203, 0, 113, 9), 9_000);
    let conn = host.stack.connect(host.now, at(any, 5_001), near);
    let from = conn.and_then(|conn| host.stack.local_addr(conn));
    assert_eq!(from, Ok(at(ALSO_HERE, 5_001)));
    host.end(&[conn.expect("a connection")]);
}

/// A listener bound to one address takes nothing that is addressed to the other (MUST-43).
#[test]
fn a_listener_may_have_one_of_our_addresses() {
    let mut host = two_addresses();
    host.stack.unlisten(host.now, host.listener);
    host.listener = host.stack.listen(at(ALSO_HERE, PORT), 4).expect("free");
    let mut syn = Craft::syn((PEER, 4_000));
    assert!(host.ask(&syn)[0].has(Flags::RST));
    syn.dst.0 = ALSO_HERE;
    let answers = host.ask(&syn);
    assert!(answers[0].has(Flags::SYN | Flags::ACK) && answers[0].from == (ALSO_HERE, PORT));
    host.end(&[]);
}

/// MUST-46.
#[test]
fn no_connection_is_opened_to_where_none_can_be() {
    let mut host = Host::plain();
    for addr in [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(0, 1, 2, 3),
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(239, 1, 2, 3),
        Ipv4Addr::new(240, 0, 0, 1),
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(192, 0, 2, 255),
        Ipv4Addr::new(192, 0, 2, 0),
    ] {
        let refused = host.stack.connect(host.now, at(HERE, 5_000), at(addr, 80));
        assert_eq!(refused, Err(Error::InvalidAddress), "{addr}");
    }
    assert!(host.collect().is_empty());
    host.end(&[]);
}

/// Lets time pass until the attempt (or connection) is given up; the moments of what was sent, from the first.
fn until_given_up(host: &mut Host, conn: ConnId) -> Vec<Duration> {
    let start = host.now;
    let mut moments = Vec::new();
    while host.stack.info(conn).map(|info| info.state) != Ok(State::Closed) {
        if !host.collect().is_empty() {
            moments.push(host.now.saturating_since(start));
        }
        let next = host
            .stack
            .next_deadline()
            .expect("it is not waited for ever");
        host.now = host.now.max(next);
        host.stack.advance(host.now);
        assert!(moments.len() < 100);
    }
    moments.push(host.now.saturating_since(start));
    moments
}

fn assert_backoff(moments: &[Duration]) {
    let waits: Vec<Duration> = moments.windows(2).map(|m| m[1] - m[0]).collect();
    for pair in waits.windows(2) {
        let doubled = (2 * pair[0]).min(Duration::from_secs(120));
        let off = pair[1].abs_diff(doubled);
        assert!(off < Duration::from_millis(20), "{waits:?}");
    }
}

/// MUST-22 and MUST-23: a SYN is repeated for three minutes at least, ever more slowly; then the application is told.
#[test]
fn a_silent_peer_gets_syns_for_three_minutes() {
    let mut host = Host::plain();
    let conn = host
        .stack
        .connect(host.now, at(HERE, 5_000), at(PEER, 9_000));
    let conn = conn.expect("a connection");
    let moments = until_given_up(&mut host, conn);
    let given_up = moments.last().expect("moments").as_secs();
    assert!((180..300).contains(&given_up), "{moments:?}");
    assert_backoff(&moments);
    assert_eq!(host.stack.is_connected(conn), Err(Error::TimedOut));
    host.end(&[conn]);
}

/// MUST-20, SHLD-11: data is repeated for 100 seconds at least, ever more slowly; then the application is told.
#[test]
fn unanswered_data_is_repeated_for_more_than_100_seconds() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    host.stack
        .write(host.now, peer.conn, b"data")
        .expect("room");
    let moments = until_given_up(&mut host, peer.conn);
    let given_up = moments.last().expect("moments").as_secs();
    assert!((100..1_500).contains(&given_up), "{moments:?}");
    assert_backoff(&moments);
    let mut into = [0; 10];
    let told = host.stack.read(host.now, peer.conn, &mut into);
    assert_eq!(told, Err(Error::TimedOut));
    host.end(&[peer.conn]);
}
