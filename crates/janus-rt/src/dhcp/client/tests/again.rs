//! A lease's beginnings and ends besides the usual: the address of an earlier life, one that is given back, and one that another
//! host uses.

use super::*;

const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x99]);

fn reborn() -> World {
    World {
        client: Client::again(MAC, 1, Instant::ZERO, YOURS),
        now: Instant::ZERO,
    }
}

#[test]
fn the_address_of_an_earlier_life_is_asked_for_first() {
    let mut world = reborn();
    let request = world.next();
    assert_eq!((request.kind, request.to), (Kind::Request, TO_ALL));
    assert_eq!(
        (request.client, request.requested, request.server),
        (Ipv4Addr::UNSPECIFIED, Some(YOURS), None)
    );
    world.lease(Kind::Ack, &request, HOUR);
    for _ in 0..=PROBES {
        assert_eq!(
            world.client.news(),
            None,
            "not before it is known to be free"
        );
        world.go_to(world.client.due());
    }
    assert_eq!(world.arps().len() as u32, PROBES + 1);
    assert!(matches!(world.client.news(), Some(News::Ours(lease)) if lease.address == YOURS));
    assert_eq!(world.client.due(), secs(1800));
}

#[test]
fn where_it_is_refused_or_nobody_answers_another_is_asked_for() {
    let mut world = reborn();
    let request = world.next();
    world.answer(Kind::Nak, &request, &[(option::SERVER, &OTHER.octets())]);
    assert_eq!(world.next().kind, Kind::Discover);
    assert!(world.now >= secs(1), "not at once");
    world.bound_from_discover(HOUR);

    let mut world = reborn();
    for _ in 0..REBOOTS_MAX {
        assert_eq!(world.next().kind, Kind::Request);
    }
    assert_eq!(world.next().kind, Kind::Discover);
    assert!(world.now <= secs(15), "a server should be up soon");
    // An answer that names something else is none.
    let mut world = reborn();
    let request = world.next();
    let time = HOUR.to_be_bytes();
    let mut other = answer(Kind::Ack, request.xid, MAC, &good(&time));
    other[61] ^= 1;
    other[40..42].fill(0);
    world.client.hear(&other, false, world.now);
    assert!(matches!(world.client.state, ClientState::Rebooting(_)));
}

impl World {
    /// Until the address is ours, asked for from the beginning; the first question has been heard.
    fn bound_from_discover(&mut self, secs: u32) {
        let asked = self.next();
        assert_eq!(asked.kind, Kind::Discover, "asked again");
        self.lease(Kind::Offer, &asked, secs);
        let asked = self.next();
        self.lease(Kind::Ack, &asked, secs);
        for _ in 0..=PROBES {
            self.go_to(self.client.due());
        }
        assert!(matches!(self.client.news(), Some(News::Ours(_))));
    }
}

#[test]
fn an_address_that_is_needed_no_more_is_given_back() {
    for prolonging in [false, true] {
        let mut world = World::new();
        world.bound(HOUR);
        if prolonging {
            world.next();
        }
        world.client.release(world.now);
        let release = world.next_at_once().expect("a word");
        assert_eq!(
            (release.kind, release.to),
            (Kind::Release, (SERVER, SERVER_MAC))
        );
        assert_eq!(
            (release.client, release.requested, release.server),
            (YOURS, None, Some(SERVER))
        );
        // That was the last word.
        world.client.release(world.now);
        world.go_to(world.now + Duration::from_secs(86_400));
        assert_eq!(world.next_at_once(), None);
        assert_eq!(world.client.news(), None);
    }
}

#[test]
fn what_was_never_ours_is_not_given_back() {
    let mut world = World::new();
    world.client.release(world.now);
    assert_eq!(world.next_at_once(), None);
    let mut world = World::new();
    let asked = world.next();
    world.lease(Kind::Offer, &asked, HOUR);
    let asked = world.next();
    world.lease(Kind::Ack, &asked, HOUR);
    world.client.release(world.now);
    assert_eq!(world.next_at_once(), None, "it was not known to be free");
}

impl World {
    fn next_at_once(&mut self) -> Option<Asked> {
        std::iter::from_fn(|| self.client.frame()).find_map(|frame| message_in(&frame))
    }

    fn claimed(&mut self) {
        self.client
            .hear(&frames::announcement(THEIRS, YOURS), false, self.now);
    }
}

#[test]
fn an_address_is_defended_once_and_then_given_up() {
    for prolonging in [false, true] {
        let mut world = World::new();
        world.bound(HOUR);
        if prolonging {
            world.next();
        }
        // Our own words, another's question, another's address: nothing.
        for frame in [
            frames::announcement(MAC, YOURS),
            frames::probe(THEIRS, YOURS),
            frames::announcement(THEIRS, OTHER),
        ] {
            world.client.hear(&frame, false, world.now);
            assert!(world.client.frame().is_none());
        }
        world.claimed();
        let said = world.arps();
        assert_eq!(said.len(), 1);
        assert_eq!((said[0].sender_ip, said[0].sender_mac), (YOURS, MAC));
        assert_eq!(world.client.news(), None, "it is ours still");

        // Much later: once more.
        world.now = world.now + DEFEND_INTERVAL;
        world.claimed();
        assert_eq!(world.arps().len(), 1);
        assert_eq!(world.client.news(), None);

        // Too soon: it insists.
        world.now = world.now + (DEFEND_INTERVAL - Duration::from_millis(1));
        world.claimed();
        assert_eq!(world.client.news(), Some(News::Gone(Why::Conflict)));
        let decline = world.next_at_once().expect("the server is told");
        assert_eq!((decline.kind, decline.to), (Kind::Decline, TO_ALL));
        assert_eq!(
            (decline.requested, decline.server),
            (Some(YOURS), Some(SERVER))
        );
        let before = world.now;
        assert_eq!(world.next().kind, Kind::Discover);
        assert!(world.now.saturating_since(before) >= AFTER_DECLINE);
    }
}
