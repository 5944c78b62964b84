//! Two shards with one address, and a tuple of the first that the second opens.

use core::time::Duration;
use std::collections::HashSet;
use std::net::SocketAddr;

use janus_mem::Frame;
use janus_wire::{icmpv4, ipv4, proto};

use super::*;
use crate::rules::error::Error;
use crate::stack::input::UnknownFlow;
use crate::testing::{A, B, Pair};
use crate::{Config, Placement, State};

const SHARD: u16 = 7;
const PORT: u16 = 40_000;

fn flow() -> FlowKey {
    let (peer, local) = (SocketAddr::from((B, 80)), SocketAddr::from((A, PORT)));
    FlowKey::new(peer, local).expect("one family")
}

/// Takes what is handed on, and lets nothing be asked of the rings.
#[derive(Default)]
struct Taken(Vec<(u16, Frame)>);

impl UnknownFlow for Taken {
    fn place(&mut self, _key: u32, port: u16, _tag: u16) -> Placement {
        panic!("a flow that nobody knows, at port {port}");
    }

    fn forward(&mut self, _frame: Frame) {
        panic!("forwarded by a ring");
    }

    fn redirect(&mut self, to: u16, frame: Frame) -> Option<Frame> {
        self.0.push((to, frame));
        None
    }
}

#[test]
fn packets_go_to_the_shard_that_opened_and_come_back_when_it_is_over() {
    let mut pair = Pair::new(&Config::default(), 1);
    // The owner of the tuple, beside the shard that opens it.
    let mut owner = Pair::new(&Config::default(), 5).a.stack;
    assert_eq!(owner.memory().stubs, 0);
    assert_eq!(owner.add_stub(&flow(), SHARD), Ok(()));
    assert_eq!((owner.stub_of(&flow()), owner.stubs()), (Some(SHARD), 1));
    assert!(!owner.holds(&flow()));
    // It is taken here, for whoever asks.
    let ends = (flow().local_addr(), flow().peer_addr());
    assert_eq!(owner.add_stub(&flow(), 8), Err(Error::AddrInUse));
    let here = owner.connect(pair.now, ends.0, ends.1);
    assert_eq!(here, Err(Error::AddrInUse));

    let conn = pair.connect(PORT);
    assert!(pair.a.stack.holds(&flow()));
    let mut handed = 0;
    for _ in 0..20 {
        // What arrives for the opener comes to the owner first.
        let arriving: Vec<Vec<u8>> = pair.under_way_to_a().map(|bytes| bytes.clone()).collect();
        let mut frames: Vec<Frame> = arriving
            .iter()
            .map(|bytes| {
                let mut buf = owner.pool().alloc().expect("a buffer");
                buf.bytes_mut()[128..128 + bytes.len()].copy_from_slice(bytes);
                Frame::new(buf, bytes.len() as u16)
            })
            .collect();
        let mut taken = Taken::default();
        owner.input(pair.now, &mut frames, &mut taken);
        assert_eq!(taken.0.len(), arriving.len());
        for ((to, frame), bytes) in taken.0.into_iter().zip(&arriving) {
            assert_eq!((to, frame.data()), (SHARD, &bytes[..]));
            owner.pool().free(frame.buf);
            handed += 1;
        }
        pair.step();
    }
    assert_eq!(pair.a.stack.is_connected(conn), Ok(true));
    assert!(handed > 0);
    assert_eq!(owner.counters().redirected, handed);
    assert!(!owner.wants_transmit());

    pair.a.stack.abort(pair.now, conn);
    assert!(!pair.a.stack.holds(&flow()));
    // Only the shard it was kept for ends it.
    assert!(!owner.remove_stub(&flow(), 8));
    assert!(owner.remove_stub(&flow(), SHARD));
    assert!(!owner.remove_stub(&flow(), SHARD));
    assert_eq!((owner.stub_of(&flow()), owner.stubs()), (None, 0));
    assert!(owner.connect(pair.now, ends.0, ends.1).is_ok());
}

#[test]
fn what_lives_here_is_no_stub_of_anothers() {
    let mut pair = Pair::new(&Config::default(), 1);
    let (a, b) = pair.open(PORT);
    let held = |pair: &mut Pair| {
        let stack = &mut pair.a.stack;
        assert!(stack.holds(&flow()));
        assert_eq!(stack.add_stub(&flow(), SHARD), Err(Error::AddrInUse));
        assert!(!stack.remove_stub(&flow(), SHARD));
    };
    held(&mut pair);
    pair.a.stack.close(pair.now, a);
    pair.b.stack.close(pair.now, b);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a.stack.in_time_wait(), 1);
    held(&mut pair);
    pair.run_for(Duration::from_secs(100));
    assert_eq!(pair.a.stack.add_stub(&flow(), SHARD), Ok(()));
    assert_eq!(pair.b.stack.connections(), 0);
}

#[test]
fn stubs_are_visited_like_any_flow_and_bounded() {
    let mut stack = Pair::new(&Config::default(), 1).a.stack;
    let key = |i: u32| {
        let peer = SocketAddr::from((B, (i % 60_000) as u16 + 1));
        let local = SocketAddr::from((A, 50_000 + (i / 60_000) as u16));
        FlowKey::new(peer, local).expect("one family")
    };
    for i in 0..STUBS_MAX {
        assert_eq!(stack.add_stub(&key(i), SHARD), Ok(()), "{i}");
    }
    let beyond = stack.add_stub(&key(STUBS_MAX), SHARD);
    assert_eq!(beyond, Err(Error::TooManyConnections));
    assert!(stack.remove_stub(&key(9), SHARD));
    let (mut seen, mut cursor) = (HashSet::new(), Some(0));
    while let Some(from) = cursor {
        cursor = stack.visit_flows(from, 1_000, |flow| assert!(seen.insert(*flow)));
    }
    assert_eq!(seen.len(), stack.flows_held());
    assert!((0..STUBS_MAX).all(|i| seen.contains(&key(i)) == (i != 9)));
    // A line each, and the list of the free ones.
    let bytes = stack.memory().stubs;
    assert!(bytes <= STUBS_MAX as usize * 72 + (1 << 20), "{bytes}");
}

/// An error that a router sends about it is the other shard's too.
#[test]
fn icmp_errors_go_the_same_way() {
    let mut pair = Pair::new(&Config::default(), 1);
    let mut owner = Pair::new(&Config::default(), 5).a.stack;
    owner.add_stub(&flow(), SHARD).expect("nothing lives here");
    let conn = pair.connect(PORT);
    let mut sent = Vec::new();
    pair.a.stack.transmit(pair.now, &mut sent, 1);
    let quoted = sent[0].data().to_vec();
    let error = icmp_about(&quoted, icmpv4::unreachable::PORT);
    for (stack, here) in [(&mut owner, false), (&mut pair.a.stack, true)] {
        let mut buf = stack.pool().alloc().expect("a buffer");
        buf.bytes_mut()[128..128 + error.len()].copy_from_slice(&error);
        let mut frames = vec![Frame::new(buf, error.len() as u16)];
        let mut taken = Taken::default();
        stack.input(pair.now, &mut frames, &mut taken);
        assert_eq!(taken.0.len(), usize::from(!here));
        for (to, frame) in taken.0 {
            assert_eq!((to, frame.data()), (SHARD, &error[..]));
            stack.pool().free(frame.buf);
        }
    }
    let state = pair.a.stack.info(conn).map(|info| info.state);
    assert_eq!(state, Ok(State::Closed));
}

/// Destination unreachable, from the peer's host, about our `packet`.
fn icmp_about(packet: &[u8], code: u8) -> Vec<u8> {
    let mut message = vec![0; 8 + 28];
    let len = icmpv4::emit_unreachable(&mut message, code, 0, &packet[..28]);
    let mut bytes = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src: B,
        dst: A,
        proto: proto::ICMP,
        payload_len: len as u16,
        ttl: 60,
        tos: 0,
        id: 0,
        dont_fragment: false,
    };
    ipv4::emit(&mut bytes, &repr);
    bytes.extend(&message[..len]);
    bytes
}
