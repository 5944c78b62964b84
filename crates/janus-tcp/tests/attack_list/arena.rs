//! Where attacks are fought: a host, its witnesses, and the bounds that hold all the time.

use core::time::Duration;
use std::collections::HashMap;
use std::net::Ipv4Addr;

use janus_tcp::{Counters, Error, Info};
use janus_wire::SeqNum;

use super::support::target::Target;
use super::support::witness::Witness;
use super::support::{Craft, Peer, Seen};

/// Packets between two looks at the witnesses.
const LOOK: u32 = 250;

pub(crate) struct Arena {
    pub(crate) host: Box<dyn Target>,
    pub(crate) witness: Witness,
    /// Connections of the attacker's.
    pub(crate) mine: Vec<Peer>,
    /// SND.NXT towards everyone, by what was seen.
    sent: HashMap<(Ipv4Addr, u16), SeqNum>,
    random: u32,
    fed: u32,
    /// Packet buffers that the attack may hold.
    buffers: usize,
    /// Frames that went out in answer, and how many may have: one for each packet, and for what was written or timed.
    answers: u64,
    allowed: u64,
}

impl Arena {
    /// Lets the attack happen between two looks at everything.
    pub(crate) fn fight(mut host: Box<dyn Target>, buffers: usize, attack: fn(&mut Arena)) {
        let witness = Witness::new(&mut *host);
        let mut arena = Arena {
            host,
            witness,
            mine: Vec::new(),
            sent: HashMap::new(),
            random: 1,
            fed: 0,
            buffers,
            answers: 0,
            allowed: 0,
        };
        attack(&mut arena);
        assert!(arena.fed > 500, "this is no attack");
        arena.look();
        arena.witness.end(arena.host, &arena.mine);
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.random = self
            .random
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        ((u64::from(self.random) * u64::from(n)) >> 32) as u32
    }

    /// Someone who is not known; `i` tells them apart.
    pub(crate) fn stranger(i: u32) -> (Ipv4Addr, u16) {
        let [_, _, a, b] = (i % 60_000).to_be_bytes();
        (Ipv4Addr::new(198, 18, a, b), 1_024 + (i / 60_000) as u16)
    }

    /// The witness whose connection is attacked.
    pub(crate) fn victim(&self) -> &Peer {
        self.witness.busy()
    }

    pub(crate) fn look(&mut self) {
        self.collect();
        self.host.check();
        self.witness.goes_on_within(&mut *self.host, self.buffers);
        self.witness.newcomers_are_served(&mut *self.host);
        assert!(
            self.answers <= self.allowed,
            "{} answers to {} packets",
            self.answers,
            self.fed
        );
    }

    fn fed_one(&mut self) {
        self.fed += 1;
        self.allowed += 1;
        if self.fed.is_multiple_of(32) {
            self.collect();
        }
        if self.fed.is_multiple_of(LOOK) {
            self.look();
        }
    }

    pub(crate) fn fire(&mut self, craft: &Craft) {
        self.host.send(craft);
        self.fed_one();
    }

    pub(crate) fn fire_packet(&mut self, packet: &[u8]) {
        self.host.feed(packet);
        self.fed_one();
    }

    /// Sends one and takes what comes out, which may be more than one answer when data waits.
    pub(crate) fn ask(&mut self, craft: &Craft) -> Vec<Seen> {
        self.host.send(craft);
        let seen = self.collect();
        self.fed_one();
        seen
    }

    pub(crate) fn collect(&mut self) -> Vec<Seen> {
        let seen = self.host.collect();
        self.note(&seen);
        let pure = seen.iter().filter(|s| s.payload.is_empty());
        self.answers += pure.count() as u64;
        seen
    }

    /// Time passes; what timers send is nobody's answer.
    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Seen> {
        self.host.wait(time);
        let seen = self.host.collect();
        self.note(&seen);
        seen
    }

    fn note(&mut self, seen: &[Seen]) {
        for s in seen {
            let end = self.sent.entry(s.to).or_insert(s.end());
            if s.end().gt(*end) {
                *end = s.end();
            }
        }
    }

    /// The end of what was sent to one of the attacker's connections.
    pub(crate) fn sent_to(&self, i: usize) -> SeqNum {
        let peer = &self.mine[i];
        self.sent.get(&peer.at).map_or(
            peer.rcv,
            |&end| if end.gt(peer.rcv) { end } else { peer.rcv },
        )
    }

    /// Opens a connection of the attacker's, if there is room.
    pub(crate) fn open(&mut self, syn: &Craft) -> Option<usize> {
        self.allowed += 2;
        self.fed += 2;
        let peer = Peer::try_open(&mut *self.host, syn)?;
        self.mine.push(peer);
        Some(self.mine.len() - 1)
    }

    /// Some of them, from addresses of their own.
    pub(crate) fn open_many(&mut self, count: u32, change: impl Fn(&mut Craft)) {
        for i in 0..count {
            let mut syn = Craft::syn(Arena::stranger(i));
            change(&mut syn);
            self.open(&syn).expect("there is room");
        }
    }

    /// Our application writes as much as it can to one of the attacker's connections.
    pub(crate) fn write(&mut self, i: usize) {
        let data = [0x5a; 8_192];
        while self.host.write(self.mine[i].conn, &data).is_ok() {}
    }

    /// Our application writes a little, if there is room.
    pub(crate) fn write_some(&mut self, i: usize) {
        let told = self.host.write(self.mine[i].conn, &[0x5a; 200]);
        assert!(matches!(told, Ok(_) | Err(Error::WouldBlock)), "{told:?}");
    }

    /// Our application reads all that there is of one of the attacker's connections; returns how many bytes.
    pub(crate) fn read_all(&mut self, i: usize) -> usize {
        let (mut all, mut into) = (0, [0; 4_096]);
        while let Ok(n @ 1..) = self.host.read(self.mine[i].conn, &mut into) {
            all += n;
        }
        all
    }

    /// Looks at one of the attacker's connections, which is there.
    pub(crate) fn info(&mut self, i: usize) -> Info {
        self.host.info(self.mine[i].conn)
    }

    /// The sum of a counter over all stacks.
    pub(crate) fn counted(&mut self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.host.counted(of)
    }

    /// Number of stacks; each has tables of its own.
    pub(crate) fn stacks(&mut self) -> usize {
        self.host.sum(|_| 1)
    }
}
