//! Parcels of real connections in the states there are, each as an input: what the corpus begins from.
//! `JANUS_WRITE=1 cargo test --test corpora` writes them, which a new version of parcels makes necessary.

use super::{Bench, HOME, MOVE, spelled};
use janus_mem::Frame;
use janus_sim::segment::{self, Flags, TcpOption};
use janus_tcp::{Detached, Rest, SocketOptions};
use std::time::Duration;

const ACK: Flags = Flags::ACK;
/// Bytes of a full segment, as both ends have agreed.
const FULL: u32 = 1_400;

/// What follows each: buffers come home, a piece arrives, one is written, all moves, time passes, and an acknowledgement comes.
const STEPS: [u8; 24] = [
    HOME, 0x08, 0x10, 0x20, 0, 0x40, 100, 0x01, 0, 200, MOVE, 0x05, 0x07, 0xd0, 0x08, 0x10, 0x20,
    0, 0, MOVE, 0x00, 0x1f, 0xff, MOVE,
];

/// A connection after something happened to it, or what is there in place of one.
type Make = fn(&mut Bench) -> Detached;

const ALL: [(&str, Make); 18] = [
    ("idle", |b| b.open().leave()),
    ("resting", |b| b.open().at_rest().leave()),
    ("in_flight", |b| b.open().writes(16_000).leave()),
    ("on_the_wire", |b| b.open().leave_wire_behind()),
    ("beyond_a_gap", |b| {
        b.open().gets(0, 50).gets(900, 100).leave()
    }),
    ("end_beyond_a_gap", |b| b.open().gets_end(500).leave()),
    ("recovering", |b| {
        b.open().writes(9_000).hears_of_losses().leave()
    }),
    ("repeating", |b| b.open().writes(3_000).waits(3).leave()),
    ("probing_a_window", |b| b.open().finds_no_window().leave()),
    ("with_options", |b| b.open().with_options().leave()),
    ("urgent", |b| b.open().gets_urgent().leave()),
    ("opening", |b| b.opens().leave()),
    ("half_open", |b| b.is_asked().leave_flow()),
    ("waiting", |b| b.is_asked().is_answered().leave_waiting()),
    ("orphan", |b| b.open().writes(2_000).closes().leave_flow()),
    ("time_wait", |b| b.open().closes().gets_end(0).leave_flow()),
    ("close_wait", |b| b.open().gets_end(0).leave()),
    ("over", |b| b.open().gets(0, 9).is_reset().leave()),
];

/// A name and an input for each state.
pub fn samples() -> Vec<(&'static str, Vec<u8>)> {
    ALL.iter()
        .map(|(name, make)| (*name, input(*make)))
        .collect()
}

fn input(make: Make) -> Vec<u8> {
    let mut bench = Bench::new(0, false);
    let bytes = spelled(&make(&mut bench).parcel);
    let mut input = vec![0, 0];
    input.extend((bytes.len() as u16).to_be_bytes());
    input.extend(bytes);
    input.extend(STEPS);
    input
}

/// What happens.
impl Bench {
    fn open(&mut self) -> &mut Bench {
        self.be_connected_to();
        self
    }

    fn opens(&mut self) -> &mut Bench {
        self.connect();
        self
    }

    fn is_asked(&mut self) -> &mut Bench {
        let options = vec![TcpOption::Mss(FULL as u16), TcpOption::SackPermitted];
        self.hears(0, Flags::SYN, options, 0);
        self.turn();
        self
    }

    /// The handshake is done, and nothing accepts.
    fn is_answered(&mut self) -> &mut Bench {
        self.hears(0, ACK, Vec::new(), 0);
        self
    }

    fn hears(&mut self, ahead: u32, flags: Flags, options: Vec<TcpOption>, len: usize) {
        let mut segment = self.segment(0, flags, options);
        segment.seq = segment.seq.wrapping_add(ahead);
        segment.urgent = if flags.contains(Flags::URG) { 3 } else { 0 };
        segment.payload = vec![5; len];
        self.feed(&segment::encode(&segment));
    }

    fn gets(&mut self, ahead: u32, len: usize) -> &mut Bench {
        self.hears(ahead, ACK, Vec::new(), len);
        self.turn();
        self
    }

    fn gets_end(&mut self, ahead: u32) -> &mut Bench {
        self.hears(ahead, Flags(ACK.0 | Flags::FIN.0), Vec::new(), 0);
        self.turn();
        self
    }

    fn gets_urgent(&mut self) -> &mut Bench {
        self.hears(0, Flags(ACK.0 | Flags::URG.0), Vec::new(), 8);
        self.turn();
        self
    }

    fn is_reset(&mut self) -> &mut Bench {
        self.hears(0, Flags(ACK.0 | Flags::RST.0), Vec::new(), 0);
        self.turn();
        self
    }

    fn writes(&mut self, len: usize) -> &mut Bench {
        let (now, conn) = (self.now, self.conn());
        let written = self.stack.write(now, conn, &vec![6; len]);
        written.expect("an open connection");
        self.turn();
        self
    }

    /// The first segment of those in flight has not arrived.
    fn hears_of_losses(&mut self) -> &mut Bench {
        let end = self.theirs;
        let info = self.stack.info(self.conn()).expect("it is open");
        assert!(info.in_flight >= 3 * FULL, "{} in flight", info.in_flight);
        let first = end.wrapping_sub(info.in_flight);
        self.theirs = first;
        for segments in 1..3 {
            let second = first.wrapping_add(FULL);
            let blocks = vec![(second, second.wrapping_add(segments * FULL))];
            self.hears(0, ACK, vec![TcpOption::Sack(blocks)], 0);
        }
        self.theirs = end;
        self
    }

    fn waits(&mut self, seconds: u64) -> &mut Bench {
        self.wait(Duration::from_secs(seconds));
        self.turn();
        self
    }

    fn finds_no_window(&mut self) -> &mut Bench {
        self.window = 0;
        self.hears(0, ACK, Vec::new(), 0);
        self.writes(500).waits(2)
    }

    fn closes(&mut self) -> &mut Bench {
        let conn = self.conns.pop().expect("a connection");
        self.stack.close(self.now, conn);
        self.turn();
        self
    }

    fn with_options(&mut self) -> &mut Bench {
        let options = SocketOptions {
            cork: true,
            keepalive: true,
            keepalive_idle: Duration::from_secs(60),
            user_timeout: Some(Duration::from_secs(90)),
            wake_reader: Some(Duration::from_secs(30)),
            ttl: Some(9),
            ..SocketOptions::default()
        };
        let (now, conn) = (self.now, self.conn());
        let set = self.stack.set_options(now, conn, &options);
        set.expect("an open connection");
        self.writes(10)
    }

    fn at_rest(&mut self) -> &mut Bench {
        let (now, conn) = (self.now, self.conn());
        let rests = self.stack.rest(now, conn, Rest::new(3));
        rests.expect("an open connection");
        self
    }
}

/// How it leaves.
impl Bench {
    fn leave(&mut self) -> Detached {
        let conn = self.conns.pop().expect("a connection");
        let left = self.stack.detach(self.now, conn, 1);
        left.expect("a connection")
    }

    fn leave_wire_behind(&mut self) -> Detached {
        let (now, conn) = (self.now, self.conn());
        let written = self.stack.write(now, conn, &[6; 4_000]);
        written.expect("an open connection");
        let mut out: Vec<Frame> = Vec::new();
        self.stack.transmit(now, &mut out, 64);
        let left = self.leave();
        assert!(left.parcel.tickets().count() > 0, "all is at home");
        for frame in out.into_iter().filter(Frame::is_lent) {
            self.stack.completed(frame);
        }
        left
    }

    fn leave_flow(&mut self) -> Detached {
        let mut flow = None;
        let see = |seen: &_| flow = Some(*seen);
        self.stack.visit_flows(0, usize::MAX >> 1, see);
        let flow = flow.expect("a flow");
        let left = self.stack.detach_flow(self.now, &flow, 1);
        left.expect("a flow")
    }

    fn leave_waiting(&mut self) -> Detached {
        let listener = self.listeners[0];
        let left = self.stack.detach_waiting(self.now, listener, 1);
        left.expect("a connection that waits")
    }
}
