//! What a connection's move from one stack to another takes: `detach` and `adopt` together, in the order in which the old stack visits its
//! flows, between two stacks of one host whose records and tables are in no cache. `state=idle` is a connection at rest after a request;
//! `state=busy` has an answer of 64 bytes in flight and a request unread. `bytes` is the parcel as bytes, `stored` what it is as a value.
//! Time is this thread's. Afterwards every connection is in the new stack, and speaks: `answered`. Arguments name numbers of connections.

mod support;

use janus_mem::{Frame, Growth};
use janus_tcp::{ConnId, Parcel, Secrets, Stack};
use std::time::Duration;
use support::Scale;
use support::engine::Engine;
use support::report::Report;
use support::thread_time::thread_time;

/// Moves whose time is taken together: a slice of a loop.
const SLICE: usize = 256;
/// Flows whose places are fetched together.
const ROUND: usize = 32;
/// The other stack's number.
const THERE: u16 = 1;
const TEXT: [u8; 64] = [7; 64];
/// Busy connections at a time: fewer than there are packet buffers.
const BUSY_MAX: u32 = 10_000;

fn main() {
    let counts: &[u32] = Scale::get().pick(&[1_000], &[1_000_000], &[1_000_000, 10_000_000]);
    let runs = Scale::get().pick(1, 3, 5);
    let mut report = Report::new("moves");
    for held in Scale::named_or(counts) {
        let (mut engine, plan) = Engine::start(held);
        engine.open(&plan, held);
        engine.quiesce(&plan, held);
        let mut conns: Vec<ConnId> = engine.connections().collect();
        let mut other = twin(&mut engine.stack);
        let mut here = true;
        for busy in [false, true] {
            let moved = if busy { held.min(BUSY_MAX) } else { held };
            let conns = &mut conns[..moved as usize];
            let (mut each, mut longest, mut bytes) = (Vec::new(), Vec::new(), 0);
            for _ in 0..runs {
                let (from, to) = match here {
                    true => (&mut engine.stack, &mut other),
                    false => (&mut other, &mut engine.stack),
                };
                if busy {
                    bytes = make_busy(&mut engine.clock, from, conns);
                }
                let (took, most) = move_all(&mut engine.clock, from, to, conns);
                each.push(took.as_nanos() as f64 / f64::from(moved));
                longest.push(most.as_secs_f64() * 1e6);
                here = !here;
            }
            if bytes == 0 {
                let from = if here { &mut engine.stack } else { &mut other };
                bytes = size(&mut engine.clock, from, &mut conns[0]);
            }
            let state = if busy { "busy" } else { "idle" };
            let params = [("held", held.into()), ("state", state.into())];
            report.median("move_ns", &each, "ns", &params);
            report.median("slice_us_max", &longest, "us", &params);
            report.row("parcel", bytes as f64, "B", &params);
        }
        report.row(
            "stored",
            size_of::<Parcel>() as f64,
            "B",
            &[("held", held.into())],
        );
        let stack = if here { &mut engine.stack } else { &mut other };
        let now = engine.clock.turn();
        let answered = conns
            .iter()
            .filter(|conn| stack.write(now, **conn, &TEXT).is_ok());
        let answered = answered.take(BUSY_MAX as usize).count();
        assert_eq!(answered, held.min(BUSY_MAX) as usize, "all are open");
        report.row(
            "answered",
            answered as f64,
            "count",
            &[("held", held.into())],
        );
    }
    report.finish();
}

/// A stack like this one, with the same packet buffers.
fn twin(stack: &mut Stack) -> Stack {
    let (config, interface) = (stack.config().clone(), stack.interface().clone());
    let pool = stack.pool().depot().pool();
    let secrets = Secrets::from_seed(7);
    Stack::new(config, interface, secrets, pool, &Growth::Inline).expect("memory for the benchmark")
}

/// Moves every connection, whose names change. Returns the time, and that of the slice that took longest.
fn move_all(
    clock: &mut support::clock::Clock,
    from: &mut Stack,
    to: &mut Stack,
    conns: &mut [ConnId],
) -> (Duration, Duration) {
    let (mut all, mut longest) = (Duration::ZERO, Duration::ZERO);
    for slice in conns.chunks_mut(SLICE) {
        let now = clock.turn();
        let before = thread_time();
        for round in slice.chunks_mut(ROUND) {
            // As a loop that empties a core does, and one that takes in what arrives.
            for conn in &*round {
                let flow = from.flow_of(*conn).expect("it is open");
                from.prefetch_flow(&flow);
                to.prefetch_flow(&flow);
            }
            for conn in round {
                let left = from.detach(now, *conn, THERE).expect("it is open");
                let there = to.adopt(now, left.parcel).expect("room");
                *conn = there.expect("a connection");
            }
        }
        let took = thread_time() - before;
        (all, longest) = (all + took, longest.max(took));
    }
    (all, longest)
}

/// Has each connection's text in flight. Returns the size of the first one's parcel in bytes.
fn make_busy(clock: &mut support::clock::Clock, stack: &mut Stack, conns: &mut [ConnId]) -> usize {
    let now = clock.turn();
    for conn in conns.iter() {
        stack.write(now, *conn, &TEXT).expect("room");
    }
    let mut frames: Vec<Frame> = Vec::new();
    while stack.wants_transmit() {
        stack.transmit(now, &mut frames, 64);
        for frame in frames.drain(..) {
            match frame.is_lent() {
                true => stack.completed(frame),
                false => stack.pool().free(frame.buf),
            }
        }
    }
    size(clock, stack, &mut conns[0])
}

/// A parcel's size in bytes. The connection leaves its stack and comes again.
fn size(clock: &mut support::clock::Clock, stack: &mut Stack, conn: &mut ConnId) -> usize {
    let now = clock.turn();
    let left = stack.detach(now, *conn, THERE).expect("it is open");
    let mut bytes = Vec::new();
    left.parcel.encode(&mut bytes);
    let again = stack.adopt(now, left.parcel).expect("room");
    *conn = again.expect("a connection");
    bytes.len()
}
