//! SACK permitted (RFC 2018 section 2): offered in our SYN, answered in our SYN-ACK, only when both sides want it.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::support::{Craft, Host, PEER};
use janus_tcp::Config;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

#[test]
fn the_syn_ack_permits_what_the_syn_permitted_and_no_more() {
    for (ours, theirs, timestamps) in [
        (true, true, false),
        (true, true, true),
        (true, false, false),
        (true, false, true),
        (false, true, false),
        (false, true, true),
    ] {
        let mut host = Host::with(Config {
            sack: ours,
            ..Config::default()
        });
        let mut syn = Craft::syn((PEER, 4_000));
        syn.options.sack_permitted = theirs;
        syn.options.timestamps = timestamps.then_some((7, 0));
        let answers = host.ask(&syn);
        assert_eq!(answers.len(), 1);
        let options = answers[0].options;
        assert_eq!(options.sack_permitted, ours && theirs);
        assert_eq!(options.timestamps.is_some(), timestamps);
    }
}

#[test]
fn our_syn_offers_it_unless_told_not_to() {
    for sack in [true, false] {
        let mut host = Host::with(Config {
            sack,
            ..Config::default()
        });
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5_000);
        let to = SocketAddrV4::new(PEER, 80);
        host.stack.connect(host.now, local, to).expect("a SYN");
        let syn = host.collect().remove(0);
        assert_eq!(syn.options.sack_permitted, sack);
        // Crossing SYNs: our SYN-ACK permits what both have offered.
        let mut theirs = Craft::new((PEER, 80), Flags::SYN);
        theirs.dst.1 = 5_000;
        theirs.seq = SeqNum(77);
        theirs.options.mss = Some(1_000);
        theirs.options.sack_permitted = true;
        let answer = host.ask(&theirs).remove(0);
        assert!(answer.has(Flags::SYN | Flags::ACK));
        assert_eq!(answer.options.sack_permitted, sack);
    }
}
