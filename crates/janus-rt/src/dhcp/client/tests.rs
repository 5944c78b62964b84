//! Lives of a lease, in virtual time, against a server that is good, silent, slow, or a liar.

mod again;

use super::*;
use janus_wire::dhcp::{OPTION_MAX, Repr, option};
use janus_wire::{ethernet, ipv4, proto, udp};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const YOURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
const HOUR: u32 = 3600;

/// A message of the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    kind: Kind,
    xid: u32,
    secs: u16,
    client: Ipv4Addr,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    to: (Ipv4Addr, MacAddr),
}

struct World {
    client: Client,
    now: Instant,
}

fn secs(secs: u64) -> Instant {
    Instant::from_millis(secs * 1000)
}

impl World {
    fn new() -> World {
        World {
            client: Client::new(MAC, 1, Instant::ZERO),
            now: Instant::ZERO,
        }
    }

    /// Returns the client's next message, at the moment at which it sends one; ARP is skipped.
    fn next(&mut self) -> Asked {
        for _ in 0..100 {
            while let Some(frame) = self.client.frame() {
                if let Some(asked) = message_in(&frame) {
                    return asked;
                }
            }
            self.go_to(self.client.due());
        }
        panic!("the client says nothing");
    }

    fn go_to(&mut self, at: Instant) {
        assert!(at >= self.now);
        self.now = at;
        self.client.turn(at);
    }

    fn arps(&mut self) -> Vec<arp::Packet> {
        let frames = std::iter::from_fn(|| self.client.frame());
        frames.filter_map(|frame| arp_in(&frame)).collect()
    }

    fn answer(&mut self, kind: Kind, asked: &Asked, options: &[(u8, &[u8])]) {
        self.client
            .hear(&answer(kind, asked.xid, MAC, options), false, self.now);
    }

    /// Answers well, with a lease of so many seconds.
    fn lease(&mut self, kind: Kind, asked: &Asked, secs: u32) {
        let time = secs.to_be_bytes();
        self.answer(kind, asked, &good(&time));
    }

    /// Until the address is ours for so many seconds.
    fn bound(&mut self, secs: u32) {
        let asked = self.next();
        assert_eq!(asked.kind, Kind::Discover);
        self.lease(Kind::Offer, &asked, secs);
        let asked = self.next();
        assert_eq!(asked.kind, Kind::Request);
        self.lease(Kind::Ack, &asked, secs);
        for _ in 0..=PROBES {
            self.go_to(self.client.due());
        }
        self.arps();
        assert!(matches!(self.client.news(), Some(News::Ours(lease)) if lease.address == YOURS));
    }
}

fn good(time: &[u8; 4]) -> [(u8, &[u8]); 4] {
    [
        (option::SERVER, &[192, 0, 2, 1]),
        (option::MASK, &[255, 255, 255, 0]),
        (option::ROUTERS, &[192, 0, 2, 254]),
        (option::LEASE, time),
    ]
}

fn answer(kind: Kind, xid: u32, mac: MacAddr, options: &[(u8, &[u8])]) -> Vec<u8> {
    let repr = Repr {
        op: Op::Reply,
        kind,
        xid,
        secs: 0,
        broadcast: false,
        client: Ipv4Addr::UNSPECIFIED,
        yours: if kind == Kind::Nak {
            Ipv4Addr::UNSPECIFIED
        } else {
            YOURS
        },
        mac,
        options,
    };
    let mut bytes = vec![0; 1500];
    let len = dhcp::emit(&mut bytes[42..], &repr).unwrap();
    bytes.truncate(42 + len);
    let header = ethernet::Header {
        dst: MAC,
        src: SERVER_MAC,
        ethertype: ethernet::ethertype::IPV4,
    };
    header.emit(&mut bytes);
    let ip = ipv4::Repr {
        src: SERVER,
        dst: YOURS,
        proto: proto::UDP,
        payload_len: (8 + len) as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: false,
    };
    ipv4::emit(&mut bytes[14..], &ip);
    udp::emit(&mut bytes[34..], 67, 68, len);
    udp::fill_checksum_v4(&mut bytes[34..], SERVER, YOURS);
    bytes
}

fn message_in(frame: &[u8]) -> Option<Asked> {
    let (header, packet) = ethernet::Header::parse(frame).unwrap();
    assert_eq!(header.src, MAC);
    if header.ethertype == ethernet::ethertype::ARP {
        return None;
    }
    let ip = ipv4::parse(packet).unwrap();
    let datagram = udp::parse(ip.payload()).unwrap();
    assert!(
        ip.dont_fragment(),
        "an identification of zero is no fragment's"
    );
    assert!(ip.checksum_ok() && datagram.checksum_ok_v4(ip.src, ip.dst));
    assert_eq!((datagram.src_port, datagram.dst_port), (68, 67));
    let message = dhcp::parse(datagram.payload()).unwrap();
    assert_eq!((message.op, message.mac), (Op::Request, MAC));
    assert_eq!(ip.src, message.client);
    let mut into = [0; OPTION_MAX];
    assert_eq!(
        message.option(option::CLIENT, &mut into),
        Some(&[1, 2, 0, 0, 0, 0, 7][..])
    );
    Some(Asked {
        kind: message.kind().unwrap(),
        xid: message.xid,
        secs: message.secs,
        client: message.client,
        requested: message.address(option::REQUESTED),
        server: message.address(option::SERVER),
        to: (ip.dst, header.dst),
    })
}

fn arp_in(frame: &[u8]) -> Option<arp::Packet> {
    let (header, packet) = ethernet::Header::parse(frame).unwrap();
    (header.ethertype == ethernet::ethertype::ARP).then(|| arp::Packet::parse(packet).unwrap())
}

const TO_ALL: (Ipv4Addr, MacAddr) = (Ipv4Addr::BROADCAST, MacAddr::BROADCAST);

#[test]
fn an_address_is_asked_for_taken_and_looked_for_before_it_is_used() {
    let mut world = World::new();
    let discover = world.next();
    assert_eq!((discover.kind, discover.to), (Kind::Discover, TO_ALL));
    assert_eq!(
        (discover.client, discover.server),
        (Ipv4Addr::UNSPECIFIED, None)
    );
    world.lease(Kind::Offer, &discover, HOUR);
    let request = world.next();
    assert_eq!((request.kind, request.to), (Kind::Request, TO_ALL));
    assert_eq!(
        (request.requested, request.server),
        (Some(YOURS), Some(SERVER))
    );
    assert_eq!(
        (request.xid, request.client),
        (discover.xid, Ipv4Addr::UNSPECIFIED)
    );
    world.lease(Kind::Ack, &request, HOUR);
    for _ in 0..PROBES {
        world.go_to(world.client.due());
    }
    let probes = world.arps();
    assert_eq!(probes.len() as u32, PROBES);
    assert!(
        probes
            .iter()
            .all(|probe| probe.sender_ip.is_unspecified() && probe.target_ip == YOURS)
    );
    assert_eq!(
        world.client.news(),
        None,
        "not before it is known to be free"
    );
    world.go_to(world.client.due());
    assert!(world.arps().iter().any(|packet| packet.sender_ip == YOURS));
    let Some(News::Ours(lease)) = world.client.news() else {
        panic!("it is ours");
    };
    assert_eq!((lease.address, lease.prefix), (YOURS, 24));
    assert_eq!(lease.gateway, Some(Ipv4Addr::new(192, 0, 2, 254)));
    assert_eq!(lease.time, Some(Duration::from_secs(3600)));
    assert_eq!(
        world.client.due(),
        Instant::ZERO + Duration::from_secs(1800)
    );
    assert!(
        lease
            .to_string()
            .starts_with("192.0.2.77/24 from 192.0.2.1, gateway")
    );
}

#[test]
fn silence_makes_the_questions_rarer() {
    let mut world = World::new();
    let mut times = Vec::new();
    let mut xids = Vec::new();
    for _ in 0..8 {
        let asked = world.next();
        assert_eq!(asked.kind, Kind::Discover);
        assert_eq!(u64::from(asked.secs), world.now.as_millis() / 1000);
        times.push(world.now);
        xids.push(asked.xid);
    }
    let gaps: Vec<u64> = times
        .windows(2)
        .map(|two| two[1].saturating_since(two[0]).as_millis() as u64)
        .collect();
    for (gap, expected) in gaps.iter().zip([4, 8, 16, 32, 64, 64, 64]) {
        assert!(gap.abs_diff(expected * 1000) <= 1000, "{gaps:?}");
    }
    assert!(
        gaps.iter().any(|gap| gap % 1000 != 0),
        "all clients at once"
    );
    xids.dedup();
    assert_eq!(xids.len(), 1);
}

#[test]
fn an_offer_that_nobody_confirms_is_given_up() {
    let mut world = World::new();
    let asked = world.next();
    world.lease(Kind::Offer, &asked, HOUR);
    for _ in 0..REQUESTS_MAX {
        assert_eq!(world.next().kind, Kind::Request);
    }
    let again = world.next();
    assert_eq!(again.kind, Kind::Discover);
    assert_ne!(again.xid, asked.xid);
}

#[test]
fn a_lease_is_renewed_by_its_server_at_half_of_its_time() {
    let mut world = World::new();
    world.bound(HOUR);
    let renew = world.next();
    assert_eq!(world.now, secs(1800));
    assert_eq!(
        (renew.kind, renew.to),
        (Kind::Request, (SERVER, SERVER_MAC))
    );
    assert_eq!(
        (renew.client, renew.requested, renew.server),
        (YOURS, None, None)
    );
    world.now = world.now + Duration::from_secs(10);
    world.lease(Kind::Ack, &renew, HOUR);
    assert!(matches!(world.client.news(), Some(News::Ours(_))));
    // It counts from when it was asked for.
    assert_eq!(world.client.due(), secs(3600));
    let again = world.next();
    assert_ne!(again.xid, renew.xid);
    assert_eq!(again.kind, Kind::Request);
}

#[test]
fn then_by_anybody_and_in_the_end_it_is_gone() {
    let mut world = World::new();
    world.bound(HOUR);
    let mut asked = Vec::new();
    while world.client.news.is_empty() {
        world.go_to(world.client.due());
        while let Some(frame) = world.client.frame() {
            asked.push((world.now.as_millis() / 1000, message_in(&frame).unwrap().to));
        }
    }
    let (near, far): (Vec<_>, Vec<_>) = asked.iter().partition(|(at, _)| *at < 3150);
    assert!(near.len() >= 4 && near.iter().all(|(_, to)| *to == (SERVER, SERVER_MAC)));
    assert!(far.len() >= 3 && far.iter().all(|(_, to)| *to == TO_ALL));
    assert!(
        asked
            .windows(2)
            .all(|two| two[1].0 - two[0].0 >= 60 || two[1].0 == 3150),
        "{asked:?}"
    );
    assert_eq!(world.client.news(), Some(News::Gone(Why::Expired)));
    assert_eq!(world.now, secs(3600));
    assert_eq!(world.next().kind, Kind::Discover);
}

#[test]
fn another_server_may_prolong_it_when_all_are_asked() {
    let mut world = World::new();
    world.bound(HOUR);
    let mut asked = world.next();
    while asked.to != TO_ALL {
        asked = world.next();
    }
    let time = HOUR.to_be_bytes();
    let mut options = good(&time);
    let other = OTHER.octets();
    options[0].1 = &other;
    world.answer(Kind::Ack, &asked, &options);
    assert!(matches!(world.client.news(), Some(News::Ours(lease)) if lease.server == OTHER));
}

#[test]
fn no_is_no() {
    // To a request.
    let mut world = World::new();
    let asked = world.next();
    world.lease(Kind::Offer, &asked, HOUR);
    let asked = world.next();
    world.answer(Kind::Nak, &asked, &[(option::SERVER, &OTHER.octets())]);
    assert!(
        matches!(world.client.state, ClientState::Requesting(_)),
        "not another's"
    );
    world.answer(Kind::Nak, &asked, &[(option::SERVER, &SERVER.octets())]);
    assert_eq!(world.client.news(), None);
    assert_eq!(world.next().kind, Kind::Discover);
    assert!(world.now >= secs(1), "not at once");
    // To a renewal.
    let mut world = World::new();
    world.bound(HOUR);
    let asked = world.next();
    world.answer(Kind::Nak, &asked, &[(option::SERVER, &OTHER.octets())]);
    assert_eq!(world.client.news(), None, "not another's");
    world.answer(Kind::Nak, &asked, &[(option::SERVER, &SERVER.octets())]);
    assert_eq!(world.client.news(), Some(News::Gone(Why::Refused)));
    assert_eq!(world.next().kind, Kind::Discover);
}

#[test]
fn a_server_that_gives_and_takes_does_not_make_us_fast() {
    let mut world = World::new();
    let mut turns = 0;
    while world.now < secs(600) {
        let asked = world.next();
        match asked.kind {
            Kind::Discover => world.lease(Kind::Offer, &asked, HOUR),
            _ => world.answer(Kind::Nak, &asked, &[(option::SERVER, &SERVER.octets())]),
        }
        turns += 1;
    }
    assert!(turns < 40, "{turns} messages in ten minutes");
}

#[test]
fn somebody_else_has_it() {
    for probing in [false, true] {
        let mut world = World::new();
        let asked = world.next();
        world.lease(Kind::Offer, &asked, HOUR);
        let asked = world.next();
        world.lease(Kind::Ack, &asked, HOUR);
        world.go_to(world.client.due());
        let packet = world.arps().remove(0);
        // Our own question comes back to us: nothing.
        world
            .client
            .hear(&frames::probe(MAC, YOURS), false, world.now);
        assert!(matches!(world.client.state, ClientState::Checking(_)));
        let theirs = MacAddr([2, 0, 0, 0, 0, 0x99]);
        let frame = match probing {
            true => frames::probe(theirs, packet.target_ip),
            false => frames::announcement(theirs, packet.target_ip),
        };
        world.client.hear(&frame, false, world.now);
        let decline = world.next();
        assert_eq!((decline.kind, decline.to), (Kind::Decline, TO_ALL));
        assert_eq!(
            (decline.requested, decline.server),
            (Some(YOURS), Some(SERVER))
        );
        let before = world.now;
        assert_eq!(world.next().kind, Kind::Discover);
        assert!(world.now.saturating_since(before) >= AFTER_DECLINE);
        assert_eq!(world.client.news(), None);
    }
}

#[test]
fn what_is_not_for_us_or_makes_no_sense_changes_nothing() {
    let mut world = World::new();
    let asked = world.next();
    let time = HOUR.to_be_bytes();
    let options = good(&time);
    let offer = |xid, mac| answer(Kind::Offer, xid, mac, &options);
    let mut wrong = vec![
        offer(asked.xid ^ 1, MAC),
        offer(asked.xid, SERVER_MAC),
        answer(Kind::Ack, asked.xid, MAC, &options),
        answer(Kind::Nak, asked.xid, MAC, &options),
        answer(Kind::Offer, asked.xid, MAC, &options[1..]),
        answer(Kind::Offer, asked.xid, MAC, &options[..3]),
        answer(Kind::Offer, asked.xid, MAC, &good(&[0; 4])),
        answer(Kind::Discover, asked.xid, MAC, &options),
    ];
    for (at, value) in [
        (42, 1),
        (41, 9),
        (60, 200),
        (13, 1),
        (23, 6),
        (37, 69),
        (35, 68),
    ] {
        let mut bytes = offer(asked.xid, MAC);
        bytes[at] = value;
        wrong.push(bytes);
    }
    for address in [
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [255; 4],
        [192, 0, 2, 255],
    ] {
        let mut bytes = offer(asked.xid, MAC);
        bytes[58..62].copy_from_slice(&address);
        bytes[40..42].fill(0);
        wrong.push(bytes);
    }
    for (index, bytes) in wrong.iter().enumerate() {
        world.client.hear(bytes, false, world.now);
        assert!(
            matches!(world.client.state, ClientState::Selecting),
            "{index}"
        );
        assert!(world.client.frame().is_none());
    }
    for (at, value) in [(42, 1), (37, 69), (35, 68)] {
        let mut bytes = offer(asked.xid, MAC);
        bytes[at] = value;
        // Without a checksum, so that it is this that is wrong.
        bytes[40..42].fill(0);
        world.client.hear(&bytes, false, world.now);
        assert!(
            matches!(world.client.state, ClientState::Selecting),
            "byte {at}"
        );
    }
    // A device that vouches for checksums is believed.
    let mut unchecked = offer(asked.xid, MAC);
    unchecked[40] ^= 1;
    world.client.hear(&unchecked, true, world.now);
    assert!(matches!(world.client.state, ClientState::Requesting(_)));
    // A confirmation of something else.
    let request = world.next();
    let mut other = answer(Kind::Ack, request.xid, MAC, &options);
    other[61] ^= 1;
    other[40..42].fill(0);
    world.client.hear(&other, false, world.now);
    assert!(matches!(world.client.state, ClientState::Requesting(_)));
    // And another server's.
    let (mut others, octets) = (options, OTHER.octets());
    others[0].1 = &octets;
    world.answer(Kind::Ack, &request, &others);
    assert!(matches!(world.client.state, ClientState::Requesting(_)));
}

#[test]
fn a_lease_for_ever_is_asked_for_once() {
    let mut world = World::new();
    world.bound(u32::MAX);
    assert!(world.client.due() > secs(100 * 365 * 86_400));
}

#[test]
fn where_there_are_routes_the_routers_do_not_count() {
    let mut world = World::new();
    let asked = world.next();
    let time = HOUR.to_be_bytes();
    let mut options = good(&time).to_vec();
    options.push((option::ROUTES, &[24, 10, 0, 7, 192, 0, 2, 3]));
    world.answer(Kind::Offer, &asked, &options);
    let ClientState::Requesting(lease) = &world.client.state else {
        panic!("an offer is an offer");
    };
    assert_eq!((lease.gateway, lease.routes.len()), (None, 1));
}

#[test]
fn odd_times_are_put_right() {
    for (renew, rebind, expected) in [
        (100, 200, (100, 200)),
        (0, 0, (1800, 3150)),
        (3000, 2000, (1800, 2000)),
        (5000, 6000, (1800, 3150)),
    ] {
        let mut world = World::new();
        let asked = world.next();
        let (time, renew, rebind) = (
            HOUR.to_be_bytes(),
            u32::to_be_bytes(renew),
            u32::to_be_bytes(rebind),
        );
        let mut options = good(&time).to_vec();
        options.extend([(option::RENEW, &renew[..]), (option::REBIND, &rebind[..])]);
        world.answer(Kind::Offer, &asked, &options);
        let ClientState::Requesting(lease) = &world.client.state else {
            panic!("an offer is an offer");
        };
        let times = (lease.renew_after.as_secs(), lease.rebind_after.as_secs());
        assert_eq!(times, expected);
    }
}

proptest::proptest! {
    #[test]
    fn noise_from_a_server_does_no_harm(
        options in proptest::collection::vec((0_u8..=255, proptest::collection::vec(proptest::prelude::any::<u8>(), 0..20)), 0..10),
        yours: u32, kind in 0_usize..4, steps in 0_usize..4,
    ) {
        let mut world = World::new();
        let mut asked = world.next();
        let step = |world: &mut World, asked: &mut Asked, kind| {
            world.lease(kind, asked, HOUR);
            for _ in 0..=PROBES {
                world.go_to(world.client.due());
            }
            *asked = world.next();
        };
        if steps > 0 {
            step(&mut world, &mut asked, Kind::Offer);
        }
        if steps > 1 {
            step(&mut world, &mut asked, Kind::Ack);
        }
        let kind = [Kind::Offer, Kind::Ack, Kind::Nak, Kind::Decline][kind];
        let options: Vec<(u8, &[u8])> = options.iter().map(|(code, value)| (*code, &value[..])).collect();
        let mut bytes = answer(kind, asked.xid, MAC, &options);
        bytes[58..62].copy_from_slice(&yours.to_be_bytes());
        bytes[40..42].fill(0);
        world.client.hear(&bytes, false, world.now);
        for _ in 0..20 {
            let due = world.client.due();
            proptest::prop_assert!(due >= world.now);
            world.go_to(due);
        }
        while let Some(frame) = world.client.frame() {
            message_in(&frame);
        }
    }
}
