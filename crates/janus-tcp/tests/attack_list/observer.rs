//! Attackers who have connections of their own and forge segments of a stranger's, to learn from the answers they get
//! themselves whether there is such a connection, and where it stands (CVE-2016-5696). Each trial is made twice, once
//! with the stranger's flow and once without, and what the attacker sees must be the same to the bit.

use core::time::Duration;

use janus_tcp::{Config, State};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

use crate::list::support::{Craft, Host, PEER, Peer, Seen, bytes_at, family, own_address};

const TRIALS: u32 = 210;
/// Forged segments in a trial.
const FORGED: u32 = 40;

/// States a stranger's flow can be in.
const STATES: [Flow; 6] = [
    Flow::HalfOpen,
    Flow::Idle,
    Flow::Timestamped,
    Flow::Busy,
    Flow::Orphan,
    Flow::TimeWait,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flow {
    /// SYN-RECEIVED.
    HalfOpen,
    /// Without a hot block.
    Idle,
    Timestamped,
    /// With a hot block: data is unread.
    Busy,
    /// Let go by its owner, in FIN-WAIT-2.
    Orphan,
    TimeWait,
}

/// Segments that someone forges who sees nothing of the flow.
const WEAPONS: [Weapon; 5] = [
    Weapon::Syn,
    Weapon::Reset,
    Weapon::Data,
    Weapon::Acknowledgement,
    Weapon::Any,
];

#[derive(Clone, Copy, Debug)]
enum Weapon {
    Syn,
    Reset,
    Data,
    Acknowledgement,
    /// All of them in turn.
    Any,
}

struct World {
    host: Host,
    mine: Vec<Peer>,
    random: u32,
}

impl World {
    fn new(mine: u32) -> World {
        let mut host = Host::new(Config::default(), own_address(), 8_192);
        let open = |i| {
            let mut syn = Craft::syn(crate::list::arena::Arena::stranger(i));
            syn.seq = SeqNum(i * 77_777);
            Peer::open_with(&mut host, &syn)
        };
        let mine = (0..mine).map(open).collect();
        World {
            host,
            mine,
            random: 1,
        }
    }

    fn draw(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        self.random
    }

    /// Brings the stranger's flow into a state.
    fn bring(&mut self, at: (std::net::Ipv4Addr, u16), state: Flow) {
        let host = &mut self.host;
        let mut syn = Craft::syn(at);
        syn.seq = SeqNum(1 << 31);
        if state == Flow::Timestamped {
            syn.options.timestamps = Some((1 << 31, 0));
        }
        if state == Flow::HalfOpen {
            assert_eq!(host.ask(&syn).len(), 1);
            return;
        }
        let mut peer = Peer::open_with(host, &syn);
        match state {
            Flow::Busy => host.send(&peer.ahead(0, 100)),
            Flow::Orphan | Flow::TimeWait => {
                host.stack.close(host.now, peer.conn);
                // Acknowledges our FIN.
                peer.listen(host, true);
            }
            _ => {}
        }
        if state == Flow::TimeWait {
            host.send(&peer.segment(Flags::FIN | Flags::ACK));
        }
        let expected = match state {
            Flow::Orphan | Flow::TimeWait => None,
            _ => Some(State::Established),
        };
        let state = host.stack.info(peer.conn).map(|info| info.state);
        assert_eq!(state.ok(), expected);
    }

    /// Forges segments of a flow that may be there or not.
    fn forge(&mut self, at: (std::net::Ipv4Addr, u16), weapon: Weapon) {
        for i in 0..FORGED {
            let (seq, ack) = (self.draw(), self.draw());
            let weapon = match weapon {
                Weapon::Any => WEAPONS[i as usize % 4],
                one => one,
            };
            let flags = match weapon {
                Weapon::Syn => Flags::SYN,
                Weapon::Reset => Flags::RST,
                Weapon::Data => Flags::ACK | Flags::PSH,
                Weapon::Acknowledgement | Weapon::Any => Flags::ACK,
            };
            let mut forged = Craft::new(at, flags);
            (forged.seq, forged.ack) = (SeqNum(seq), SeqNum(ack));
            if matches!(weapon, Weapon::Reset | Weapon::Acknowledgement) && i % 2 == 0 {
                // A guess that hits the window.
                forged.seq = SeqNum((1 << 31) + 2 + seq % 30_000);
            }
            if matches!(weapon, Weapon::Data) {
                forged.payload = vec![0xee; 1 + (seq % 50) as usize];
            }
            if i % 3 == 0 {
                forged.options.timestamps = Some((ack, seq));
            }
            self.host.send(&forged);
        }
        self.host.collect();
    }

    /// Has every answer that one's own connections can be made to get, more than a thousand in all.
    fn look(&mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let each = 1_050 / self.mine.len() as u32 + 1;
        for i in 0..self.mine.len() {
            let mine = &self.mine[i];
            let mut syn = mine.segment(Flags::SYN);
            syn.seq += 9u32;
            let mut rst = mine.segment(Flags::RST);
            rst.seq += 1u32;
            let mut early = mine.segment(Flags::ACK);
            early.ack += 1u32;
            let mut beyond = mine.segment(Flags::ACK);
            beyond.seq += 1u32 << 30;
            let mut old = mine.segment(Flags::ACK);
            old.seq = old.seq - 50;
            old.payload = bytes_at(0, 40);
            let mut probe = mine.segment(Flags::ACK);
            probe.seq = probe.seq - 1;
            let mut far = beyond.clone();
            far.payload = vec![1; 10];
            let all = [syn, rst, early, beyond, far, probe];
            // Which of them are asked first is different each time.
            let first = self.draw() as usize % all.len();
            for craft in all.iter().cycle().skip(first).take(all.len()) {
                seen.extend(self.host.ask(craft));
            }
            for _ in 0..each.saturating_sub(all.len() as u32) {
                seen.extend(self.host.ask(&old));
            }
        }
        let others = |s: &Seen| self.mine.iter().all(|mine| mine.at != s.to);
        assert!(!seen.iter().any(others), "an answer to somebody else");
        seen
    }
}

fn observe(mine: u32, trials: u32) {
    let mut worlds = [World::new(mine), World::new(mine)];
    for n in 0..trials {
        let state = STATES[n as usize % STATES.len()];
        let weapon = WEAPONS[n as usize / STATES.len() % WEAPONS.len()];
        let victim = (PEER, 10_000 + n as u16);
        worlds[0].bring(victim, state);
        let [with, without] = worlds.each_mut().map(|world| {
            world.host.collect();
            world.host.wait(Duration::from_millis(50));
            world.host.collect();
            world.forge(victim, weapon);
            let seen = world.look();
            world.host.wait(Duration::from_millis(950));
            world.host.collect();
            seen
        });
        assert!(with.len() >= 2 * mine as usize, "nothing is seen at all");
        assert!(
            with == without,
            "trial {n}, {weapon:?} at {state:?}: {} answers, {} without",
            with.len(),
            without.len()
        );
    }
}

#[test]
fn an_observer_learns_nothing_of_others_flows() {
    family::over_both(|| observe(30, TRIALS));
}

/// More of them than any table of answered flows would remember.
#[test]
fn an_observer_with_thousands_of_connections_learns_nothing_either() {
    family::over_both(|| observe(2_500, 6));
}
