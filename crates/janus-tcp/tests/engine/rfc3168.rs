//! Which packets may be marked by routers, and what is said of marks: RFC 3168 sections 5.2 and 6.1, both families.

use core::time::Duration;

use crate::support::family::{over_both, socket};
use crate::support::{Craft, HERE, Host, PEER, Peer, Seen, bytes_at};
use janus_tcp::{Config, Ecn};
use janus_wire::tcp::Flags;

const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;
const MSS: usize = 1_400;

fn host() -> Host {
    Host::with(Config {
        ecn: Ecn::On,
        ..Config::default()
    })
}

fn setup_syn(port: u16) -> Craft {
    let mut syn = Craft::syn((PEER, port));
    syn.flags = Flags::SYN | Flags::ECE | Flags::CWR;
    syn
}

fn write(host: &mut Host, peer: &Peer, len: usize) -> Vec<Seen> {
    let data = bytes_at(0, len);
    assert_eq!(host.stack.write(host.now, peer.conn, &data), Ok(len));
    host.collect()
}

fn ecn_of(seen: &[Seen]) -> Vec<u8> {
    assert!(!seen.is_empty());
    seen.iter().map(|s| s.ecn).collect()
}

/// Sections 5.2, 6.1.1, 6.1.4, 6.1.5 and 6.1.6: new data says that it may be marked, and nothing else does.
#[test]
fn new_data_only_may_be_marked() {
    over_both(|| {
        let mut host = host();
        let syn = setup_syn(4_000);
        let answer = host.ask(&syn);
        assert!(answer[0].has(Flags::SYN | Flags::ACK | Flags::ECE) && !answer[0].has(Flags::CWR));
        assert_eq!(ecn_of(&answer), [0], "a SYN-ACK");
        let mut peer = Peer::open_with(&mut host, &syn);
        let mut acks = peer.say(&mut host, MSS);
        acks.extend(peer.say(&mut host, MSS));
        assert_eq!(ecn_of(&acks), [0, 0], "an acknowledgement");
        let sent = write(&mut host, &peer, 2 * MSS);
        assert_eq!(ecn_of(&sent), [ECT_0; 2], "new data");
        host.wait(Duration::from_secs(3));
        assert_eq!(ecn_of(&peer.listen(&mut host, true)), [0], "a repeat");
        while !peer.listen(&mut host, true).is_empty() {}
        peer.window = 0;
        host.send(&peer.segment(Flags::ACK));
        assert!(write(&mut host, &peer, MSS).is_empty());
        host.wait(Duration::from_secs(10));
        let probe = host.collect();
        assert_eq!(ecn_of(&probe), [0], "a probe of the window");
        assert!(!probe[0].has(Flags::CWR));
        peer.window = 0xffff;
        host.send(&peer.segment(Flags::ACK));
        peer.listen(&mut host, true);
        host.stack
            .shutdown_write(host.now, peer.conn)
            .expect("open");
        assert_eq!(
            ecn_of(&peer.listen(&mut host, true)),
            [0],
            "a FIN without data"
        );
        host.stack.abort(host.now, peer.conn);
        assert_eq!(ecn_of(&host.collect()), [0], "a reset");
        let (local, remote) = (socket(HERE, 5_000), socket(PEER, 9_000));
        let ours = host.stack.connect(host.now, local, remote);
        let syn = host.collect();
        assert!(syn[0].has(Flags::SYN | Flags::ECE | Flags::CWR));
        assert_eq!(ecn_of(&syn), [0], "a SYN");
        host.end(&[peer.conn, ours.expect("a connection")]);
    });
}

/// Section 6.1.1: of the eight things a SYN can say one offers ECN, and one answer agrees. After any other no data may be
/// marked and nothing is made of flags and marks.
#[test]
fn nothing_is_capable_before_both_agreed() {
    let mut host = host();
    let both = Flags::ECE.0 | Flags::CWR.0;
    for (i, flags) in [0, Flags::ECE.0, Flags::CWR.0, both]
        .into_iter()
        .enumerate()
    {
        let mut syn = setup_syn(4_000 + i as u16);
        syn.flags = Flags(Flags::SYN.0 | flags);
        let agreed = flags == both;
        let answer = host.ask(&syn).remove(0);
        assert_eq!(answer.has(Flags::ECE), agreed);
        let mut peer = Peer::open_with(&mut host, &syn);
        let sent = write(&mut host, &peer, MSS);
        assert_eq!(ecn_of(&sent), [if agreed { ECT_0 } else { 0 }]);
        peer.take(&sent);
        let mut marked = peer.ahead(0, MSS);
        marked.ecn = CE;
        host.send(&marked);
        peer.skip(MSS as u32);
        host.wait(Duration::from_millis(100));
        let answers = host.collect();
        assert!(answers.iter().all(|s| s.has(Flags::ECE) == agreed));
        peer.expect_stream(&mut host);
        host.stack.abort(host.now, peer.conn);
        host.collect();
        host.wait(Duration::from_secs(1));
    }
    for (i, flags) in [0, Flags::ECE.0, Flags::CWR.0, both]
        .into_iter()
        .enumerate()
    {
        let port = 5_000 + i as u16;
        let (local, remote) = (socket(HERE, port), socket(PEER, 9_000));
        let conn = host.stack.connect(host.now, local, remote);
        let conn = conn.expect("a connection");
        let syn = host.collect().remove(0);
        let mut answer = Craft::syn((PEER, 9_000));
        (answer.dst.1, answer.ack) = (port, syn.end());
        answer.flags = Flags(Flags::SYN.0 | Flags::ACK.0 | flags);
        host.ask(&answer);
        host.stack.write(host.now, conn, &[1; 100]).expect("room");
        let sent = host.collect();
        let agreed = flags == Flags::ECE.0;
        assert_eq!(ecn_of(&sent), [if agreed { ECT_0 } else { 0 }], "{flags:x}");
        host.stack.abort(host.now, conn);
        host.collect();
    }
    host.end(&[]);
}

/// Sections 5 and 6.1.2: a mark that is echoed lowers the window as a loss does, once for each window of data, and the
/// next new data says so with CWR.
#[test]
fn an_echo_lowers_the_window_once_and_is_answered() {
    over_both(|| {
        let mut host = host();
        let mut peer = Peer::open_with(&mut host, &setup_syn(4_000));
        let cwnd = |host: &Host, peer: &Peer| host.stack.info(peer.conn).expect("there").cwnd;
        let first = write(&mut host, &peer, 30 * MSS);
        let before = cwnd(&host, &peer);
        assert!(first.iter().all(|s| !s.has(Flags::CWR)));
        // The window is full of data sent before the echo came: it counts once.
        for s in &first {
            peer.take(core::slice::from_ref(s));
            let echo = peer.segment(Flags::ACK | Flags::ECE);
            let sent = host.ask(&echo);
            let lowered = cwnd(&host, &peer);
            assert!(
                lowered < before && lowered * 10 >= before * 5,
                "{lowered} of {before}"
            );
            if s.header.seq == first[0].header.seq {
                continue;
            }
            assert!(sent.iter().all(|s| s.payload.is_empty() || s.ecn == ECT_0));
        }
        let lowered = cwnd(&host, &peer);
        let mut later = Vec::new();
        for _ in 0..10 {
            later.extend(peer.listen(&mut host, true));
        }
        assert!(
            cwnd(&host, &peer) >= lowered,
            "without a new echo it does not fall again"
        );
        host.stack.abort(host.now, peer.conn);
        host.end(&[]);
    });
}

/// Section 6.1.3: a mark is echoed in all acknowledgements until CWR comes, and CWR with a mark begins anew.
#[test]
fn a_mark_is_echoed_until_it_is_answered() {
    over_both(|| {
        let mut host = host();
        let mut peer = Peer::open_with(&mut host, &setup_syn(4_000));
        let mut say = |host: &mut Host, ecn: u8, flags: Flags| {
            let mut data = peer.ahead(0, MSS);
            (data.ecn, data.flags) = (ecn, data.flags | flags);
            host.send(&data);
            peer.skip(MSS as u32);
            let mut seen = host.collect();
            host.wait(Duration::from_millis(100));
            seen.extend(host.collect());
            peer.expect_stream(host);
            host.collect();
            assert!(!seen.is_empty());
            seen.iter().map(|s| s.has(Flags::ECE)).collect::<Vec<_>>()
        };
        for (ecn, flags, echoed) in [
            (ECT_0, Flags(0), false),
            (CE, Flags(0), true),
            (ECT_0, Flags(0), true),
            (0, Flags(0), true),
            (ECT_0, Flags::CWR, false),
            (ECT_0, Flags(0), false),
            (CE, Flags::CWR, true),
            (ECT_0, Flags(0), true),
            (ECT_0, Flags::CWR, false),
        ] {
            let echoes = say(&mut host, ecn, flags);
            assert!(
                echoes.iter().all(|&e| e == echoed),
                "{ecn} {flags:?}: {echoes:?}"
            );
        }
        host.stack.abort(host.now, peer.conn);
        host.end(&[]);
    });
}

/// Section 6.1.5: a mark outside the window is not believed.
#[test]
fn a_mark_outside_the_window_is_ignored() {
    let mut host = host();
    let mut peer = Peer::open_with(&mut host, &setup_syn(4_000));
    for offset in [1u32 << 30, 1_000_000, (2 * MSS as u32).wrapping_neg()] {
        let mut forged = peer.ahead(0, MSS);
        forged.seq = peer.snd + offset;
        forged.ecn = CE;
        host.send(&forged);
        host.wait(Duration::from_secs(1));
        assert!(host.collect().iter().all(|s| !s.has(Flags::ECE)));
    }
    assert_eq!(host.stack.counters().marks_in, 0);
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}
