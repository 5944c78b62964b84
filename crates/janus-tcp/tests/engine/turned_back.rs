//! Segments that may be another program's: what nothing here has use for goes back as it came, and is not answered.

use crate::support::{Craft, Host, PEER, Peer};
use janus_mem::{Frame, HEADROOM, LOOPED, RETURNS, TURNED, TURNED_LOOPED};
use janus_tcp::{Config, Placement, SynCookies, UnknownFlow};
use janus_wire::tcp::Flags;

/// Takes back what it brought.
#[derive(Default)]
struct Bringer(Vec<Frame>);

impl UnknownFlow for Bringer {
    fn place(&mut self, _key: u32, _port: u16, _tag: u16) -> Placement {
        Placement::Here
    }

    fn forward(&mut self, frame: Frame) {
        drop(frame);
    }

    fn give_back(&mut self, frame: Frame) {
        self.0.push(frame);
    }
}

/// Whether it comes back. Else it is taken in, and the answers wait.
fn comes_back(host: &mut Host, craft: &Craft, mark: u16) -> bool {
    let packet = craft.packet();
    let mut buf = host.device.alloc_reserved().expect("a buffer");
    let start = usize::from(HEADROOM);
    buf.bytes_mut()[start..start + packet.len()].copy_from_slice(&packet);
    let mut frame = Frame::new(buf, packet.len() as u16);
    frame.tag = RETURNS | mark | 3;
    let mut bringer = Bringer::default();
    host.stack.input(host.now, &mut vec![frame], &mut bringer);
    let Some(frame) = bringer.0.pop() else {
        return false;
    };
    assert!(host.collect().is_empty(), "it is answered");
    assert_eq!(frame.data(), packet, "it is another");
    let looped = if mark == 0 { 0 } else { TURNED_LOOPED };
    assert_eq!((frame.tag, frame.key), (TURNED | looped, 0));
    host.device.free(frame.buf);
    true
}

#[test]
fn what_belongs_to_nothing_goes_back_and_all_else_is_taken() {
    for syn_cookies in [SynCookies::Pressure, SynCookies::Always] {
        let mut host = Host::with(Config {
            syn_cookies,
            ..Config::default()
        });
        let mut peer = Peer::open(&mut host, 4_000);
        let strange = (PEER, 4_001);
        for flags in [
            Flags::ACK,
            Flags::RST,
            Flags::RST | Flags::ACK,
            Flags::FIN | Flags::ACK,
            Flags::SYN | Flags::ACK,
            Flags(0),
        ] {
            let craft = Craft::new(strange, flags);
            assert!(comes_back(&mut host, &craft, 0), "{flags:?}");
            assert!(comes_back(&mut host, &craft, LOOPED), "{flags:?}");
        }
        // A connection's, and a handshake's.
        assert!(!comes_back(&mut host, &peer.segment(Flags::ACK), 0));
        let syn = Craft::syn(strange);
        assert!(!comes_back(&mut host, &syn, 0));
        let answers = host.collect();
        assert!(answers[0].has(Flags::SYN | Flags::ACK));
        let mut ack = Craft::new(strange, Flags::ACK);
        (ack.seq, ack.ack) = (syn.seq + 1u32, answers[0].end() + 1u32);
        assert!(comes_back(&mut host, &ack, 0), "another's answer");
        ack.ack = answers[0].end();
        assert!(!comes_back(&mut host, &ack, 0));
        let (conn, _) = host.stack.accept(host.listener).expect("a connection");
        // Without a listener a request is another's too, and what is not marked is answered as ever.
        host.stack.unlisten(host.now, host.listener);
        let syn = Craft::syn((PEER, 4_002));
        assert!(comes_back(&mut host, &syn, 0));
        assert!(host.ask(&syn)[0].has(Flags::RST));
        peer.expect_unharmed(&mut host);
        host.end(&[peer.conn, conn]);
    }
}

/// A peer may begin another connection from the same port, which another program gets: it listens there too.
#[test]
fn time_wait_keeps_what_was_its_connections_and_no_more() {
    let mut host = Host::with(Config::default());
    let mut peer = Peer::open(&mut host, 4_000);
    host.stack.close(host.now, peer.conn);
    peer.listen(&mut host, true);
    let fin = peer.segment(Flags::FIN | Flags::ACK);
    assert!(!comes_back(&mut host, &fin, 0));
    peer.snd += 1u32;
    assert_eq!(host.stack.in_time_wait(), 1);
    assert!(!comes_back(&mut host, &fin, 0), "it is repeated");
    let late = peer.segment(Flags::ACK);
    assert!(!comes_back(&mut host, &late, 0));
    assert!(host.collect().iter().all(|it| it.has(Flags::ACK)));
    for (seq, ack) in [(10_000_000, 0), (0, 10_000_000), (1 << 30, 1 << 30)] {
        for flags in [Flags::ACK, Flags::FIN | Flags::ACK, Flags::RST | Flags::ACK] {
            let mut new = peer.segment(flags);
            (new.seq, new.ack) = (new.seq + seq, new.ack + ack);
            assert!(comes_back(&mut host, &new, 0), "{seq} {ack} {flags:?}");
        }
    }
    assert_eq!(host.stack.in_time_wait(), 1);
    host.end(&[]);
}
