//! One connection of a hostile run through its life: opening, phases of traffic with silences between them, parting. It
//! says what may happen: an unbroken connection must deliver all and end well at both ends.
//! What never lives here: reading and writing (`side`), and what holds on the wire (`rules`).

use super::Tally;
use super::plan::{FlowPlan, Opening, Parting};
use super::side::Side;
use crate::net::{HostId, Network};
use janus_tcp::{Error, Instant};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Where servers listen.
pub(super) const PORT: u16 = 80;
/// First ports of those who connect, and of the other end where both do.
const FIRST_PORT: u16 = 20_000;
const FIRST_OTHER_PORT: u16 = 30_000;
/// A connection on which all is said must have let go of its hot blocks after this long; or, in a partition, have given
/// its last data up.
const COOLING_MAX: Duration = Duration::from_secs(1_000);
const GIVING_UP_MAX: Duration = Duration::from_secs(4_000);
/// A listener forgets a SYN after some repeats of its answer (31 s); who opened, and only waits, does not hear of it.
const OPENING_MAX: Duration = Duration::from_secs(100);
/// Whoever is left alone, and has nothing to say, notices nothing; its application gives up after this long.
const ALONE_MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Waiting,
    /// Both ends know of each other by then.
    Opening(Instant),
    Phase(usize),
    /// All is said; hot blocks go back by then at the latest.
    Cooling(usize, Instant),
    /// And nothing happens until then.
    Silent(usize, Instant),
    /// In a partition an end may give up what the other waits for without end; after that time it waits no more.
    Parting(Instant),
    /// Something broke; who is left finds out, or gives up at that time.
    Broken(Instant),
    Done,
}

/// A connection.
pub(super) struct Flow {
    pub(super) plan: FlowPlan,
    pub(super) sides: [Side; 2],
    stage: Stage,
    ports: [u16; 2],
    starts: Instant,
    /// Something in the run may break it.
    may_break: bool,
    /// The side that parts late has seen the end of the peer's stream.
    after_end: bool,
}

impl Flow {
    pub(super) fn new(
        index: usize,
        plan: FlowPlan,
        hosts: &[HostId],
        begin: Instant,
        may_break: bool,
    ) -> Flow {
        let stream = |side: usize| (index * 2 + side) as u64 + 1;
        let side = |side: usize| {
            Side::new(
                hosts[plan.hosts[side]],
                plan.apps[side],
                stream(side),
                stream(1 - side),
            )
        };
        let sides = [side(0), side(1)];
        let other = match plan.opening {
            Opening::Passive => PORT,
            Opening::Simultaneous => FIRST_OTHER_PORT + index as u16,
        };
        Flow {
            ports: [FIRST_PORT + index as u16, other],
            starts: begin + plan.starts,
            sides,
            plan,
            stage: Stage::Waiting,
            may_break,
            after_end: false,
        }
    }

    /// The addresses of its two ends.
    pub(super) fn ends(&self, network: &mut Network) -> [SocketAddr; 2] {
        [0, 1].map(|side| {
            let host = network.host(self.sides[side].host);
            let address = match self.plan.v6 {
                true => IpAddr::V6(host.address_v6),
                false => IpAddr::V4(host.address),
            };
            SocketAddr::new(address, self.ports[side])
        })
    }

    /// Bytes each end writes in its whole life, if nothing breaks.
    pub(super) fn totals(&self) -> [usize; 2] {
        let mut totals = self.target(self.plan.phases.len().saturating_sub(1));
        if let Parting::HalfClose { first, more } = self.plan.parting {
            totals[1 - first] += more;
        }
        totals
    }

    /// Bytes each end has to have written by the end of a phase.
    fn target(&self, phase: usize) -> [usize; 2] {
        let phases = self.plan.phases.iter().take(phase + 1);
        phases.fold([0, 0], |sum, phase| {
            [sum[0] + phase.bytes[0], sum[1] + phase.bytes[1]]
        })
    }

    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Nothing of it is hot, and nothing is to happen before some alarm.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Silent(..))
    }

    /// Not begun yet, silent, or over and gone: it holds no hot block.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self.stage, Stage::Silent(..) | Stage::Waiting)
    }

    /// Not begun yet, or one end does not know of the other.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Opening(_))
    }

    /// Both applications let go, whatever is going on.
    pub(super) fn abandon(&mut self, network: &mut Network) {
        self.sides
            .iter_mut()
            .for_each(|side| side.leave(network, false));
        self.stage = Stage::Done;
    }

    /// A listener's host has got this end of it.
    pub(super) fn accepted(&mut self, network: &mut Network, conn: janus_tcp::ConnId) {
        self.sides[1].got(network, conn);
    }

    pub(super) fn describe(&self, network: &mut Network) -> String {
        let [first, second] = [0, 1].map(|side| self.sides[side].describe(network));
        let (stage, parting) = (self.stage, self.plan.parting);
        format!("{stage:?}, {parting:?}\n  [{first}]\n  [{second}]")
    }

    /// Something may have happened. True when something more may be done at once.
    pub(super) fn turn(&mut self, network: &mut Network, tally: &mut Tally) {
        for _ in 0..8 {
            let before = self.stage;
            self.one_turn(network, tally);
            self.note_errors(network, tally);
            if self.stage == before {
                return;
            }
        }
    }

    fn one_turn(&mut self, network: &mut Network, tally: &mut Tally) {
        let now = network.now();
        match self.stage {
            Stage::Waiting if now >= self.starts => self.connect(network),
            Stage::Opening(limit) => self.open(network, limit, tally),
            Stage::Phase(index) => self.phase(network, index),
            Stage::Cooling(index, limit) => self.cool(network, index, limit, tally),
            Stage::Silent(index, until) if now >= until => {
                assert!(
                    !self.sides.iter().any(|side| side.is_hot(network)),
                    "a silent connection became hot"
                );
                tally.gaps += 1;
                self.next_phase(network, index);
            }
            Stage::Parting(limit) => self.part(network, limit, tally),
            Stage::Broken(limit) => self.clear_up(network, limit),
            Stage::Waiting | Stage::Silent(..) | Stage::Done => {}
        }
    }

    fn connect(&mut self, network: &mut Network) {
        let ends = self.ends(network);
        let now = network.now();
        let both = match self.plan.opening {
            Opening::Passive => 1,
            Opening::Simultaneous => 2,
        };
        for side in 0..both {
            let local = SocketAddr::new(self.unspecified(), self.ports[side]);
            let stack = &mut network.host(self.sides[side].host).stack;
            let conn = stack.connect(now, local, ends[1 - side]);
            let conn = conn.expect("room for a connection");
            self.sides[side].got(network, conn);
        }
        let limit = now + OPENING_MAX;
        network.set_alarm(limit);
        self.stage = Stage::Opening(limit);
    }

    fn unspecified(&self) -> IpAddr {
        match self.plan.v6 {
            true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }

    fn open(&mut self, network: &mut Network, limit: Instant, tally: &mut Tally) {
        let mut open = true;
        // The active opener may send at once; a listener whose state is gone, or that never kept any, learns of the
        // connection by that.
        if self.sides[0].is_connected(network) {
            let first = self.target(0)[0];
            self.sides[0].write_to(network, first);
        }
        for side in &mut self.sides {
            let Some(conn) = side.conn else {
                open = false;
                continue;
            };
            match network.host(side.host).stack.is_connected(conn) {
                Ok(connected) => open &= connected,
                Err(error) => side.error = Some(error),
            }
        }
        if open {
            self.stage = Stage::Phase(0);
        } else if network.now() >= limit && self.plan.opening == Opening::Passive {
            if !self.may_break {
                tally.forgotten += 1;
            }
            self.sides[0].leave(network, false);
            self.break_off(network);
        }
    }

    fn phase(&mut self, network: &mut Network, index: usize) {
        let target = self.target(index);
        for (side, target) in self.sides.iter_mut().zip(target) {
            side.read_all(network);
            side.write_to(network, target);
        }
        if let Parting::Rude { who, after, abort } = self.plan.parting {
            let done = self.sides[who].written + self.sides[who].read;
            if done >= after {
                self.sides[who].leave(network, abort);
                self.break_off(network);
                return;
            }
        }
        assert!(
            !self.sides.iter().any(|side| side.ended),
            "an end of stream that nobody sent"
        );
        if self.sides[0].read == target[1] && self.sides[1].read == target[0] {
            let most = if self.may_break {
                GIVING_UP_MAX
            } else {
                COOLING_MAX
            };
            self.stage = Stage::Cooling(index, network.now() + most);
        }
    }

    fn cool(&mut self, network: &mut Network, index: usize, limit: Instant, tally: &mut Tally) {
        let now = network.now();
        // A window update that waits to be sent may be all that is left to do.
        network.flush();
        if self.sides.iter().any(|side| side.is_hot(network)) {
            assert!(
                now < limit,
                "a connection with nothing to do keeps its hot block"
            );
            return;
        }
        tally.cooled += 1;
        let until = now + self.plan.phases[index].gap;
        network.set_alarm(until);
        self.stage = Stage::Silent(index, until);
    }

    fn next_phase(&mut self, network: &mut Network, index: usize) {
        self.stage = if index + 1 < self.plan.phases.len() {
            Stage::Phase(index + 1)
        } else {
            let limit = network.now() + GIVING_UP_MAX;
            if self.may_break {
                network.set_alarm(limit);
            }
            Stage::Parting(limit)
        };
    }

    fn part(&mut self, network: &mut Network, limit: Instant, tally: &mut Tally) {
        if self.may_break && network.now() >= limit {
            self.break_off(network);
            return;
        }
        self.sides
            .iter_mut()
            .for_each(|side| side.read_all(network));
        let totals = self.totals();
        match self.plan.parting {
            Parting::Together => self.sides.iter_mut().for_each(|side| side.shut(network)),
            Parting::HalfClose { first, .. } => {
                self.sides[first].shut(network);
                let last = &mut self.sides[1 - first];
                self.after_end |= last.ended;
                if self.after_end {
                    last.write_to(network, totals[1 - first]);
                    if last.written == totals[1 - first] {
                        last.shut(network);
                    }
                }
            }
            Parting::Close { first } => {
                self.sides[first].leave(network, false);
                if self.may_break {
                    // Its FIN may never arrive, and the peer would never learn of the end.
                    self.break_off(network);
                    return;
                }
                if self.sides[1 - first].ended {
                    self.sides[1 - first].leave(network, false);
                }
            }
            // It would have been rude, but had no occasion.
            Parting::Rude { who, abort, .. } => {
                self.sides[who].leave(network, abort);
                self.break_off(network);
                return;
            }
        }
        let over = |side: &Side| side.gone || (side.ended && side.shut);
        if !self.sides.iter().all(over) {
            return;
        }
        for (side, expected) in self.sides.iter_mut().zip([totals[1], totals[0]]) {
            assert_eq!(side.read, expected, "bytes at the end of a stream");
            side.leave(network, false);
        }
        tally.ended_well += 1;
        self.stage = Stage::Done;
    }

    /// From now on only one end is left, or none.
    fn break_off(&mut self, network: &mut Network) {
        let limit = network.now() + ALONE_MAX;
        network.set_alarm(limit);
        self.stage = Stage::Broken(limit);
    }

    /// Every error must have a cause that the run contains.
    fn note_errors(&mut self, network: &mut Network, tally: &mut Tally) {
        let already = matches!(self.stage, Stage::Broken(_));
        for index in 0..2 {
            let side = &mut self.sides[index];
            let Some(error) = side.error.filter(|_| !side.gone) else {
                continue;
            };
            assert!(
                already || self.may_break,
                "{error:?} at end {index} of a connection that nobody broke"
            );
            match error {
                Error::ConnectionReset => tally.reset += 1,
                Error::TimedOut => tally.timed_out += 1,
                Error::ConnectionRefused => tally.refused += 1,
                Error::BrokenPipe | Error::NotConnected => tally.broken_pipe += 1,
                other => panic!("{other:?} at end {index}"),
            }
            side.leave(network, false);
            if !matches!(self.stage, Stage::Broken(_)) {
                self.break_off(network);
            }
        }
    }

    fn clear_up(&mut self, network: &mut Network, limit: Instant) {
        let totals = self.totals();
        let late = network.now() >= limit;
        for index in 0..2 {
            let most = totals[index];
            let side = &mut self.sides[index];
            side.read_all(network);
            side.write_to(network, most);
            assert!(side.read <= totals[1 - index]);
            if side.ended && side.error.is_none() || late {
                side.leave(network, false);
            }
        }
        // A connection that the listener has not accepted yet is accepted later, and closed at once.
        if self.sides.iter().all(|side| side.gone) {
            self.stage = Stage::Done;
        }
    }
}
