//! Peers that ask for much and never acknowledge fill the packet buffers: those who come later are served all the same.

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, family};
use janus_tcp::{Config, Error, Token};
use janus_wire::SeqNum;

const BUFFERS: u32 = 1_024;

/// Has the application of a connection write as long as anything is taken, and wait for room then.
fn write_all(host: &mut Host, peer: &Peer, token: u32) {
    let mut write = || host.stack.write(host.now, peer.conn, &[9; 16_384]);
    let refused = loop {
        if let Err(error) = write() {
            break error;
        }
    };
    // Otherwise it was reset.
    if refused == Error::WouldBlock {
        host.stack
            .wait_write(host.now, peer.conn, Some(Token(token)));
    }
}

fn open(host: &mut Host, i: u32) -> Peer {
    let mut syn = Craft::syn((PEER, 1_024 + i as u16));
    syn.seq = SeqNum(i * 7_919);
    Peer::open_with(host, &syn)
}

/// Virtual time until `peer`'s six bytes are with it, while the writers of the others go on whenever they are told to.
fn time_to_serve(host: &mut Host, silent: &[Peer], peer: &mut Peer) -> Duration {
    let (begin, mut written) = (host.now, false);
    let token = Token(1 << 20);
    while peer.got != b"served" {
        if !written {
            match host.stack.write(host.now, peer.conn, b"served") {
                Ok(n) => written = n == 6,
                Err(Error::WouldBlock) => host.stack.wait_write(host.now, peer.conn, Some(token)),
                Err(error) => panic!("{error:?}"),
            }
        }
        peer.listen(host, true);
        while let Some(told) = host.stack.pop_ready() {
            if told != token {
                write_all(host, &silent[told.0 as usize], told.0);
            }
        }
        if peer.got != b"served" {
            let next = host.stack.next_deadline().expect("somebody waits");
            host.now = host.now.max(next);
            host.wait(Duration::ZERO);
        }
    }
    host.now.saturating_since(begin)
}

/// Serves twenty newcomers beside `count` peers, who acknowledge nothing, or what came first with a window that is shut from
/// then on. Returns the longest time that a newcomer waited, and how many of the others were reset for that.
fn newcomers_beside(count: u32, shut: bool) -> (Duration, u64) {
    let mut host = Host::new(Config::default(), crate::support::own_address(), BUFFERS);
    let mut silent: Vec<Peer> = (0..count).map(|i| open(&mut host, i)).collect();
    for (token, peer) in silent.iter_mut().enumerate() {
        write_all(&mut host, peer, token as u32);
        peer.window = if shut { 0 } else { peer.window };
        peer.listen(&mut host, shut);
    }
    let mut longest = Duration::ZERO;
    for i in 0..20 {
        let mut newcomer = open(&mut host, 20_000 + i);
        longest = longest.max(time_to_serve(&mut host, &silent, &mut newcomer));
        host.stack.close(host.now, newcomer.conn);
        newcomer.listen(&mut host, true);
    }
    (longest, host.stack.counters().shed)
}

#[test]
fn newcomers_are_served_beside_those_who_read_nothing() {
    for (count, shut) in [(10, false), (100, false), (400, true), (1_100, true)] {
        family::over_both(|| {
            let (waited, shed) = newcomers_beside(count, shut);
            assert!(
                waited < Duration::from_millis(50),
                "{count}, {shut}: {waited:?}"
            );
            assert_eq!(shed, 0, "{count}, {shut}: nobody need be reset");
        });
    }
}

/// So many that each has the least that a connection may have, and that is all there is: those who have stalled are reset.
#[test]
fn newcomers_are_served_when_all_buffers_are_with_those_who_read_nothing() {
    for (count, shut) in [(400, false), (1_100, false)] {
        let (waited, shed) = newcomers_beside(count, shut);
        assert!(
            waited < Duration::from_secs(3),
            "{count}, {shut}: {waited:?}"
        );
        assert!(
            (1..200).contains(&shed),
            "{count}, {shut}: {shed} were reset"
        );
    }
}
