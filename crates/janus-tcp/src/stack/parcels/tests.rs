use core::time::Duration;

use janus_mem::{Depot, Growth};
use janus_wire::{FlowKey, FlowKeyV4};

use crate::store::parcel::Content;
use crate::testing::{A, B, Pair};
use crate::{
    Config, ConnId, Instant, Interface, IpCidr, Moved, Parcel, Refusal, Secrets, SocketOptions,
    Stack, Unreadable,
};

const SECOND: Duration = Duration::from_secs(1);
/// By another clock, 2^32 milliseconds and a little on.
const ELSEWHERE: Instant = Instant::from_nanos(4_300_000_123_456_789);

/// A stack with the address of `B` but other secrets, and packet buffers of its own.
fn another(config: &Config) -> (Stack, std::sync::Arc<Depot>) {
    let depot = Depot::new(4_096, &Growth::Inline).expect("memory");
    let mut interface = Interface::ip(1_500);
    interface.any_local = false;
    interface.addresses = vec![IpCidr::new(B, 24)];
    let (secrets, pool) = (Secrets::from_seed(99), depot.pool());
    let stack = Stack::new(config.clone(), interface, secrets, pool, &Growth::Inline);
    (stack.expect("memory"), depot)
}

fn spelled(parcel: &Parcel) -> Vec<u8> {
    let mut bytes = Vec::new();
    parcel.encode(&mut bytes);
    bytes
}

/// The far end of a connection with something in every queue: unread, beyond a gap, in flight, unsent.
fn busy(pair: &mut Pair) -> (ConnId, ConnId) {
    let (a, b) = pair.open(4_000);
    let options = SocketOptions {
        ttl: Some(7),
        keepalive: true,
        ..SocketOptions::default()
    };
    pair.b
        .stack
        .set_options(pair.now, b, &options)
        .expect("it is open");
    pair.a.stack.write(pair.now, a, &[1; 3_000]).expect("room");
    pair.run_for(SECOND);
    pair.a.stack.write(pair.now, a, &[2; 1_400]).expect("room");
    // The first of these is lost.
    pair.loss = 1_000;
    pair.a.stack.write(pair.now, a, &[3; 1_400]).expect("room");
    pair.deliver();
    pair.loss = 0;
    pair.a.stack.write(pair.now, a, &[4; 9_000]).expect("room");
    pair.b.stack.write(pair.now, b, &[5; 60_000]).expect("room");
    pair.steps(2);
    (a, b)
}

/// All kinds of parcels.
fn parcels() -> Vec<Vec<u8>> {
    let mut pair = Pair::new(&Config::default(), 3);
    let (_, b) = busy(&mut pair);
    let busy = pair.b.stack.detach(pair.now, b, 1).expect("it is open");
    let (a, b) = pair.open(4_001);
    let idle = pair.b.stack.detach(pair.now, b, 1).expect("it is open");
    pair.a.stack.abort(pair.now, a);
    pair.connect(4_002);
    // The SYN has come, its answer is under way.
    pair.run_for(Duration::from_millis(15));
    let half_open = flow(4_002);
    let half_open = pair.b.stack.detach_flow(pair.now, &half_open, 1);
    let (a, b) = pair.open(4_003);
    pair.b.stack.close(pair.now, b);
    pair.run_for(SECOND);
    pair.a.stack.close(pair.now, a);
    pair.run_for(SECOND);
    let time_wait = pair.b.stack.detach_flow(pair.now, &flow(4_003), 1);
    let all = [
        busy,
        idle,
        half_open.expect("half open"),
        time_wait.expect("in TIME-WAIT"),
    ];
    assert!(!all[0].parcel.is_idle() && all[1].parcel.is_idle());
    assert!(matches!(all[2].parcel.content, Content::HalfOpen(_)));
    assert!(matches!(all[3].parcel.content, Content::TimeWait(_)));
    all.iter().map(|it| spelled(&it.parcel)).collect()
}

fn flow(port: u16) -> FlowKey {
    FlowKey::V4(FlowKeyV4 {
        peer: A,
        local: B,
        peer_port: port,
        local_port: 80,
    })
}

#[test]
fn an_idle_connection_is_eighty_bytes() {
    let all = parcels();
    assert!(all[1].len() <= 80, "{} bytes", all[1].len());
    assert!(all[0].len() > 10_000, "what is queued is in it");
}

#[test]
fn bytes_that_are_no_parcel_are_refused() {
    let depot = Depot::new(4_096, &Growth::Inline).expect("memory");
    let mut pool = depot.pool();
    for bytes in parcels() {
        // Where what is queued lies a cut is like the next.
        let ends = (0..bytes.len()).filter(|end| *end < 300 || end % 97 == 0);
        for end in ends {
            let cut = Parcel::decode(&bytes[..end], &mut pool);
            assert_eq!(cut.err(), Some(Unreadable::Garbled), "cut at {end}");
        }
        let doubled = [&bytes[..], &bytes].concat();
        let doubled = Parcel::decode(&doubled, &mut pool);
        assert_eq!(doubled.err(), Some(Unreadable::Garbled));
        let mut newer = bytes.clone();
        newer[..2].copy_from_slice(&9u16.to_le_bytes());
        let newer = Parcel::decode(&newer, &mut pool);
        assert_eq!(newer.err(), Some(Unreadable::Version(9)));
        let read = Parcel::decode(&bytes, &mut pool).expect("whole");
        assert!(spelled(&read) == bytes);
    }
    let few = Depot::new(2, &Growth::Inline).expect("memory");
    let starved = Parcel::decode(&parcels()[0], &mut few.pool());
    assert_eq!(starved.err(), Some(Unreadable::NoBuffers));
    pool.flush();
    assert_eq!(depot.stats().outstanding, 0);
}

/// Lets a stack work for a day, and lets go of what it has then.
fn a_day_later(stack: &mut Stack, depot: &Depot, conn: Option<ConnId>) {
    assert_eq!(stack.audit(), Ok(()));
    let (mut now, mut frames) = (ELSEWHERE, Vec::new());
    let end = now + Duration::from_secs(86_400);
    for _ in 0..10_000 {
        stack.transmit(now, &mut frames, 64);
        for frame in frames.drain(..) {
            stack.ip().recycle(frame);
        }
        match stack.next_deadline().filter(|at| *at < end) {
            Some(at) => now = now.max(at),
            None => break,
        }
        stack.advance(now);
        assert_eq!(stack.audit(), Ok(()));
    }
    if let Some(conn) = conn {
        stack.abort(end, conn);
    }
    stack.transmit(end, &mut frames, 64);
    for frame in frames.drain(..) {
        stack.ip().recycle(frame);
    }
    stack.advance(end + Duration::from_secs(86_400));
    let left = (
        stack.flows_held(),
        stack.hot_in_use(),
        stack.segments_in_use(),
    );
    assert_eq!(left, (0, 0, 0));
    stack.pool().flush();
    assert_eq!(depot.stats().outstanding, 0, "buffers left");
}

/// Whatever a byte of a parcel is changed to, it is refused, or becomes a connection that the stack can have.
#[test]
fn a_changed_byte_does_no_harm() {
    let config = Config {
        max_connections: 16,
        max_hot: 16,
        max_half_open: 16,
        max_time_wait: 16,
        ..Config::default()
    };
    for bytes in parcels() {
        let (mut stack, depot) = another(&config);
        stack.listen((B, 80), 8).expect("a free port");
        let (mut read, mut taken) = (0, 0);
        for at in (0..bytes.len()).filter(|at| *at < 400 || at % 601 == 0) {
            for change in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let Ok(mut parcel) = Parcel::decode(&changed, stack.pool()) else {
                    continue;
                };
                read += 1;
                parcel.rebase(ELSEWHERE);
                let Ok(conn) = stack.adopt(ELSEWHERE, parcel) else {
                    continue;
                };
                taken += 1;
                a_day_later(&mut stack, &depot, conn);
            }
        }
        assert!(taken > 20 && taken < read, "{taken} of {read}");
    }
}

#[test]
fn a_stack_that_refuses_keeps_nothing_and_gives_all_back() {
    let config = Config {
        max_connections: 1,
        max_hot: 1,
        ..Config::default()
    };
    let bytes = parcels().swap_remove(0);
    let (mut stack, depot) = another(&config);
    let refusal = |stack: &mut Stack, bytes: &[u8]| {
        let parcel = Parcel::decode(bytes, stack.pool()).expect("whole");
        let refused = stack.adopt(ELSEWHERE, parcel).expect_err("no place");
        assert_eq!(stack.audit(), Ok(()));
        assert!(spelled(&refused.parcel) == bytes, "{:?}", refused.why);
        refused.why
    };
    let mut elsewhere = bytes.clone();
    // Behind the version and the peer's address, ours.
    elsewhere[7] ^= 1;
    assert_eq!(refusal(&mut stack, &elsewhere), Refusal::NotOurs);
    let place = 2 + 1 + 4 + 4 + 2 + 2 + 8 + 1;
    let mut waiting = bytes.clone();
    waiting[place] = 1;
    assert_eq!(refusal(&mut stack, &waiting), Refusal::NoListener);
    let other = (A, 9);
    let conn = stack
        .connect(ELSEWHERE, (B, 4_000), other)
        .expect("a connection");
    assert_eq!(refusal(&mut stack, &bytes), Refusal::Full);
    stack.abort(ELSEWHERE, conn);
    // Its block stands in a queue.
    stack.transmit(ELSEWHERE, &mut Vec::new(), 64);
    let parcel = Parcel::decode(&bytes, stack.pool()).expect("whole");
    let conn = stack.adopt(ELSEWHERE, parcel).expect("room again");
    assert_eq!(refusal(&mut stack, &bytes), Refusal::Taken);
    stack.abort(ELSEWHERE, conn.expect("a connection"));
    a_day_later(&mut stack, &depot, None);
}

/// Two parcels with the number of one buffer: the second would wait for it for ever.
#[test]
fn a_buffer_on_the_wire_is_awaited_by_one_connection() {
    let mut pair = Pair::new(&Config::default(), 5);
    let (_, b) = pair.open(4_000);
    pair.b.stack.write(pair.now, b, &[1; 4_000]).expect("room");
    pair.b.stack.transmit(pair.now, &mut Vec::new(), 64);
    let left = pair.b.stack.detach(pair.now, b, 7).expect("it is open");
    assert_eq!(left.parcel.tickets().count(), 3);
    let mut bytes = spelled(&left.parcel);
    let (mut stack, depot) = another(&Config::default());
    let first = Parcel::decode(&bytes, stack.pool()).expect("whole");
    let tickets: Vec<_> = first.tickets().collect();
    let conn = stack.adopt(ELSEWHERE, first).expect("room");
    // Behind the version and both addresses, the peer's port.
    bytes[11] ^= 1;
    let second = Parcel::decode(&bytes, stack.pool()).expect("whole");
    let refused = stack.adopt(ELSEWHERE, second).expect_err("a copy");
    assert_eq!(refused.why, Refusal::Taken);
    assert!(refused.why.to_string().contains("already"));
    assert_eq!(stack.homes_awaited(), 3);
    for ticket in tickets {
        let buf = depot.pool().alloc().expect("a buffer");
        stack.comes_home(ticket, buf);
    }
    assert_eq!(stack.homes_awaited(), 0);
    drop(refused);
    a_day_later(&mut stack, &depot, conn);
}

/// Buffers on the wire of the first stack come home to the third, where they are sent again from.
#[test]
fn buffers_on_the_wire_come_home_by_way_of_each_stack() {
    let mut pair = Pair::new(&Config::default(), 8);
    let (a, b) = pair.open(4_000);
    let text: Vec<u8> = (0..4_000).map(|i| i as u8).collect();
    pair.b.stack.write(pair.now, b, &text).expect("room");
    let mut on_wire = Vec::new();
    pair.b.stack.transmit(pair.now, &mut on_wire, 64);
    on_wire.retain(janus_mem::Frame::is_lent);
    assert_eq!(on_wire.len(), 3);

    let (mut second, _) = another(&Config::default());
    let first = pair.b.stack.detach(pair.now, b, 7).expect("it is open");
    let hop = second.adopt(pair.now, first.parcel).expect("room");
    let hop = second.detach(pair.now, hop.expect("a connection"), 9);
    let parcel = hop.expect("it is open").parcel;
    assert_eq!(
        (pair.b.stack.homes_awaited(), second.homes_awaited()),
        (3, 3)
    );
    let again = pair.b.stack.adopt(pair.now, parcel).expect("room");
    let b = again.expect("a connection");

    // The device is done, after all that.
    for frame in on_wire {
        pair.b.stack.completed(frame);
    }
    for _ in 0..3 {
        let home = pair.b.stack.pop_homecoming().expect("it comes home");
        assert_eq!(home.to, 7);
        second.comes_home(home.ticket, home.buf);
        let home = second.pop_homecoming().expect("it goes on");
        assert_eq!(home.to, 9);
        pair.b.stack.comes_home(home.ticket, home.buf);
    }
    assert_eq!(
        (pair.b.stack.homes_awaited(), second.homes_awaited()),
        (0, 0)
    );
    // They were lost, and are sent again.
    pair.run_for(10 * SECOND);
    let mut got = vec![0; 5_000];
    let len = pair.a.stack.read(pair.now, a, &mut got).expect("text");
    assert!(got[..len] == text);
    pair.a.stack.close(pair.now, a);
    pair.b.stack.close(pair.now, b);
    pair.assert_clean();
}

/// A flow is sent on by a stack that had sent it before and never had it again: packets of now wait for the move of now.
#[test]
fn the_stub_of_a_later_move_takes_the_place_of_the_one_before() {
    let (mut stack, _) = another(&Config::default());
    let at = |epoch| Moved { epoch, stamp: 5 };
    stack.leave_stub(&flow(1), 7, at(3)).expect("room");
    stack.leave_stub(&flow(1), 8, at(4)).expect("room");
    assert_eq!((stack.stubs(), stack.stub_of(&flow(1))), (1, Some(8)));
    stack.forget_moves(0, u32::MAX, |epoch| epoch <= 3);
    assert_eq!(stack.stub_of(&flow(1)), Some(8));
    stack.forget_moves(0, u32::MAX, |epoch| epoch <= 4);
    assert_eq!(stack.stub_of(&flow(1)), None);
}

/// The stack before it is lost with what it held, and owes this to who had left.
#[test]
fn a_stack_in_the_place_of_another_hands_on_what_others_wait_for() {
    let mut pair = Pair::new(&Config::default(), 8);
    let (_, b) = pair.open(4_000);
    pair.b.stack.write(pair.now, b, &[7; 4_000]).expect("room");
    let mut on_wire = Vec::new();
    pair.b.stack.transmit(pair.now, &mut on_wire, 64);
    on_wire.retain(janus_mem::Frame::is_lent);
    let left = pair.b.stack.detach(pair.now, b, 7).expect("it is open");
    let moved = Moved { epoch: 3, stamp: 5 };
    let flow = *left.parcel.flow();
    let stack = &mut pair.b.stack;
    stack.leave_stub(&flow, 7, moved).expect("room");
    stack.add_stub(&self::flow(9), 8).expect("room");

    let (mut next, _) = another(&Config::default());
    next.inherit(stack);
    assert_eq!((next.stub_of(&flow), next.stubs_of_moves()), (Some(7), 1));
    assert_eq!(next.stub_of(&self::flow(9)), Some(8));
    assert_eq!((next.homes_awaited(), stack.homes_awaited()), (3, 0));
    let (mut there, _) = another(&Config::default());
    let _conn = there.adopt(pair.now, left.parcel).expect("room");
    for frame in on_wire {
        next.completed_before(frame);
        let home = next.pop_homecoming().expect("it comes home");
        assert_eq!(home.to, 7);
        there.comes_home(home.ticket, home.buf);
    }
    assert_eq!((next.homes_awaited(), there.homes_awaited()), (0, 0));
}
