//! Connections in bytes: any bytes are a parcel or an error, and what a stack adopts from them it can have. Most inputs are
//! parcels of real connections, cut and changed as the input says. In the end nothing of them may be left.

mod samples;

pub use samples::samples;

use super::{BUFFERS, Bench, Bytes, DAY, SCARCE, STEPS_MAX, TURNS_MAX};
use janus_mem::{Depot, Growth};
use janus_tcp::{ConnId, Error, Parcel, Refusal, Ticket};
use janus_wire::FlowKey;
use std::time::Duration;

/// In place of a step: all flows leave as bytes and come back.
const MOVE: u8 = 0xee;
/// In place of a step: buffers come from the wire of the stack before.
const HOME: u8 = 0xef;

/// How the engine is set up; changes to the parcel; its length and its bytes; then steps as in [`segments`](super::segments).
pub fn parcel(data: &[u8]) {
    let mut input = Bytes(data);
    let setup = input.byte();
    let bytes = changed(&mut input);
    let scarce = if setup & 0x80 != 0 { SCARCE } else { 0 };
    let mut bench = Bench::new(u16::from(setup & 0x3f) | scarce, false);
    let mut homes = Vec::new();
    bench.take_in(&bytes, setup & 0x40 != 0, &mut homes);
    for _ in 0..STEPS_MAX {
        let Some(&first) = input.0.first() else { break };
        match first {
            MOVE => {
                input.byte();
                bench.move_all(&mut homes);
            }
            HOME => {
                input.byte();
                bench.bring_home(&mut homes);
            }
            _ => bench.step(&mut input),
        }
        bench.turn();
    }
    bench.be_silent();
    bench.hoard(0);
    bench.bring_home(&mut homes);
    assert_eq!(bench.stack.homes_awaited(), 0, "buffers are awaited still");
    bench.end();
}

/// Whether the input holds a parcel that can be read, for those who keep the corpus.
pub fn is_parcel(data: &[u8]) -> bool {
    let mut input = Bytes(data);
    input.byte();
    let depot = Depot::new(BUFFERS[0], &Growth::Inline).expect("memory");
    Parcel::decode(&changed(&mut input), &mut depot.pool()).is_ok()
}

/// The parcel of an input, with its changes made.
fn changed(input: &mut Bytes<'_>) -> Vec<u8> {
    let count = input.byte() & 7;
    let changes: Vec<_> = (0..count)
        .map(|_| (input.byte(), usize::from(input.word()), input.byte()))
        .collect();
    let len = usize::from(input.word()).min(input.0.len());
    let (bytes, rest) = input.0.split_at(len);
    input.0 = rest;
    let mut bytes = bytes.to_vec();
    for (kind, at, value) in changes {
        if bytes.is_empty() {
            break;
        }
        let at = at % bytes.len();
        match kind & 7 {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, value),
            2 => drop(bytes.remove(at)),
            3 => bytes[at] = value,
            4 => bytes[at] = bytes[at].wrapping_add(1),
            // A piece stands in another place.
            5 => bytes.rotate_left(at),
            _ => bytes[at] ^= value,
        }
    }
    bytes
}

fn spelled(parcel: &Parcel) -> Vec<u8> {
    let mut bytes = Vec::new();
    parcel.encode(&mut bytes);
    bytes
}

impl Bench {
    /// Adopts what the bytes spell, if they do.
    fn take_in(&mut self, bytes: &[u8], as_made: bool, homes: &mut Vec<Ticket>) {
        let read = Parcel::decode(bytes, self.stack.pool());
        self.stack.pool().flush();
        let Ok(mut parcel) = read else {
            assert_eq!(self.depot.stats().outstanding, 0, "garbage holds buffers");
            return;
        };
        assert!(spelled(&parcel) == bytes, "{parcel:?} is spelled anew");
        // By a clock that is ahead it would wait for years, which is what `rebase` is for.
        if !as_made || parcel.made() > self.now {
            parcel.rebase(self.now);
        }
        let flow = *parcel.flow();
        if self.adopt(parcel, homes) {
            self.take_in_again(bytes, &flow);
        }
        self.turn();
    }

    /// Whether it is in the stack now.
    fn adopt(&mut self, parcel: Parcel, homes: &mut Vec<Ticket>) -> bool {
        let (owned, before) = (parcel.is_owned(), spelled(&parcel));
        let tickets: Vec<Ticket> = parcel.tickets().collect();
        let held = self.stack.segments_in_use();
        match self.stack.adopt(self.now, parcel) {
            Ok(conn) => {
                self.conns.extend(conn.filter(|_| owned));
                self.brought += tickets.len() + self.stack.segments_in_use() - held;
                homes.extend(tickets);
                self.audit();
                true
            }
            Err(refused) => {
                let after = spelled(&refused.parcel);
                assert!(before == after, "changed where it was refused");
                assert_eq!(self.stack.segments_in_use(), held, "{}", refused.why);
                self.audit();
                false
            }
        }
    }

    /// A flow has one life: its second copy is refused, and nothing of it stays.
    fn take_in_again(&mut self, bytes: &[u8], flow: &FlowKey) {
        if !self.stack.holds(flow) {
            // It was over already, and is no flow but its owner's.
            return;
        }
        let Ok(mut copy) = Parcel::decode(bytes, self.stack.pool()) else {
            return;
        };
        copy.rebase(self.now);
        let held = self.stack.flows_held();
        let refused = self.stack.adopt(self.now, copy).expect_err("a second copy");
        assert_eq!(refused.why, Refusal::Taken);
        assert_eq!(self.stack.flows_held(), held);
        self.audit();
    }

    /// Every flow leaves, is spelled, and comes back, as from another stack.
    fn move_all(&mut self, homes: &mut Vec<Ticket>) {
        let mut left = Vec::new();
        for conn in std::mem::take(&mut self.conns) {
            if let Ok(detached) = self.stack.detach(self.now, conn, 1) {
                left.push(detached.parcel);
            }
        }
        let mut flows = Vec::new();
        self.stack
            .visit_flows(0, usize::MAX >> 1, |flow| flows.push(*flow));
        for flow in flows {
            match self.stack.detach_flow(self.now, &flow, 1) {
                Ok(detached) => left.push(detached.parcel),
                Err(error) => assert_eq!(error, Error::Stale),
            }
        }
        self.audit();
        for parcel in left {
            let bytes = spelled(&parcel);
            let copy = Parcel::decode(&bytes, self.stack.pool());
            // Where buffers are scarce there is none for a copy.
            let parcel = match copy {
                Ok(copy) => copy,
                Err(_) => parcel,
            };
            assert!(spelled(&parcel) == bytes, "{parcel:?} is spelled anew");
            self.adopt(parcel, homes);
        }
    }

    /// The device of the stack before is done with its buffers.
    fn bring_home(&mut self, homes: &mut Vec<Ticket>) {
        for ticket in homes.drain(..) {
            let buf = self.device.alloc().or_else(|| self.stack.pool().alloc());
            let buf = buf.expect("a buffer for each that was on the wire");
            self.stack.comes_home(ticket, buf);
        }
        while let Some(home) = self.stack.pop_homecoming() {
            self.stack.comes_home(home.ticket, home.buf);
        }
        self.audit();
    }

    /// A day without a word from anyone.
    fn be_silent(&mut self) {
        let (begin, end) = (self.now, self.now + DAY);
        for _ in 0..TURNS_MAX {
            self.turn();
            match self.stack.next_deadline() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => return,
            }
            self.stack.advance(self.now);
            self.audit();
        }
        // A reader that looks at its clock takes some thousand turns a day; one that spins takes them in no time.
        let passed = self.now.saturating_since(begin);
        assert!(passed > Duration::from_secs(60), "only {passed:?} passed");
    }

    /// The connection that an application has.
    fn conn(&self) -> ConnId {
        *self.conns.last().expect("a connection")
    }
}
