//! A connection in used memory begins as in fresh memory: field by field.

use std::net::Ipv4Addr;

use janus_mem::Depot;
use janus_wire::{FlowKey, FlowKeyV4, SeqNum, Stamps};

use crate::congestion::Congestion;
use crate::store::arrivals::Arrivals;
use crate::store::cold::{EndReason, State, Tcb};
use crate::store::hot::{
    Ending, Hot, Loss, PathState, Receiver, Sender, Stalled, TimerKind, Timers, hot_flag,
};
use crate::store::keys::{ConnSlot, HotId, Key, RecoveryId, SegId, TuningId};
use crate::store::segment::SegList;
use crate::time::Instant;
use crate::{Config, Interface, Secrets, Stack};

const NOW: Instant = Instant::from_millis(77_000);

fn stack(config: &Config) -> Stack {
    let pool = Depot::new(256, &janus_mem::Growth::Inline)
        .expect("memory")
        .pool();
    let (interface, secrets) = (Interface::ip(1_500), Secrets::from_seed(1));
    Stack::new(
        config.clone(),
        interface,
        secrets,
        pool,
        &janus_mem::Growth::Inline,
    )
    .expect("memory")
}

/// A connection that is open and idle, and knows something in every field that a hot block begins with.
fn idle(stack: &mut Stack) -> ConnSlot {
    let key = FlowKey::V4(FlowKeyV4 {
        peer: Ipv4Addr::new(198, 51, 100, 7),
        local: Ipv4Addr::new(192, 0, 2, 1),
        peer_port: 4_000,
        local_port: 80,
    });
    let conn = stack.store_mut().tcbs.alloc(&key).expect("room");
    let cold = &mut stack.store_mut().tcbs[conn];
    *cold = Tcb {
        snd_nxt: SeqNum(5_000),
        rcv_nxt: SeqNum(90_000),
        rcv_adv: SeqNum(99_000),
        last_heard_ms: 76_900,
        mss: 1_400,
        state: State::Established,
        generation: cold.generation,
        ..Tcb::default()
    };
    cold.set_snd_wnd(30_000);
    cold.set_srtt_us(900);
    cold.set_idle_window(10);
    conn
}

/// The hot block that the connection gets now.
fn heated(stack: &mut Stack, conn: ConnSlot) -> HotId {
    stack.set_now(NOW);
    assert!(stack.ensure_hot(conn), "room");
    stack.store().tcbs[conn].hot().expect("it is attached")
}

/// A block in which a connection has left what it can leave there. The rest is looked at before a block is given back
/// (`Hot::holds_nothing`).
fn littered() -> Hot {
    let other = Tcb {
        last_heard_ms: 1,
        mss: 300,
        ..Tcb::default()
    };
    Hot {
        dup_acks: 7,
        reordering_seen: true,
        sender: Sender {
            snd_una: SeqNum(1),
            small_end: SeqNum(3),
            pipe: 6,
            max_snd_wnd: u32::MAX >> 1,
            mss_full: 19,
            ending: Ending::Push,
            record_ended: true,
            ..Sender::default()
        },
        loss: Loss {
            recover: SeqNum(2),
            min_rtt_us: 23,
            min_rtt_ms: 24,
            ..Loss::default()
        },
        congestion: Congestion::littered(),
        timers: Timers {
            rtt_round: SeqNum(13),
            rtt_off_max: 14,
            rto_at: Instant::from_millis(16),
            backoff: 5,
            retries: 6,
            probes: 8,
            stalled: Stalled {
                mark: 25,
                since_ms: 26,
            },
            orphaned_ms: 17,
            stamps: Stamps::new((1, 2)).base(23),
            timer_kind: TimerKind::Tlp,
            ..Timers::default()
        },
        receiver: Receiver {
            unacked_bytes: 15,
            arrivals: Arrivals::of(&other),
            ..Receiver::default()
        },
        path: PathState {
            soft_error: EndReason::NoHost,
            probe_out: true,
            probe_size: 20,
            probe: SegId::new(21),
            probe_end: SeqNum(22),
        },
        ..Hot::default()
    }
}

/// Fields by name. All: one that is new must be thought of here.
macro_rules! fields {
    ($hot:expr; $($field:ident)*; $($group:ident: $kind:ident { $($part:ident)* })*) => {{
        let Hot { congestion, $($field,)* $($group: $kind { $($part),* }),* } = $hot;
        let mut all = congestion.fields();
        all.extend([
            $((stringify!($field), format!("{:?}", $field)),)*
            $($((stringify!($part), format!("{:?}", $part)),)*)*
        ]);
        all
    }};
}

fn fields(hot: &Hot) -> Vec<(&'static str, String)> {
    fields!(hot; conn flags dup_acks reordering_seen doubted;
        sender: Sender { snd_una small_end pipe max_snd_wnd flight unsent writer ending record_ended mss_full }
        loss: Loss { recover min_rtt_us min_rtt_ms recovery }
        receiver: Receiver { inbox reorder tuning unacked_bytes arrivals }
        timers: Timers { due_at rto_at ack_at keep_until timer timer_at rtt_round rtt_off_max stalled orphaned_ms stamps timer_kind backoff retries probes }
        path: PathState { probe probe_end probe_size probe_out soft_error })
}

/// What only counts once it was written anew: how the end of what is unsent leaves, by the segment that is there then
/// (`queue_segment`); size and end of a probe, by one that is out (`forget_probe`).
const WRITTEN_BEFORE_READ: [&str; 4] = ["ending", "record_ended", "probe_size", "probe_end"];

#[test]
fn a_hot_block_that_another_used_is_like_one_that_nobody_used() {
    for warm_reuse in [true, false] {
        let config = Config {
            warm_reuse,
            ..Config::default()
        };
        let (mut used, mut fresh) = (stack(&config), stack(&config));
        let block = used.store_mut().hot.alloc().expect("room");
        used.store_mut().hot[block] = littered();
        assert!(used.store().hot[block].holds_nothing());
        used.store_mut().hot.free(block);
        let of = |stack: &mut Stack| {
            let conn = idle(stack);
            let id = heated(stack, conn);
            (id, fields(&stack.store().hot[id]))
        };
        let ((id, of_used), (_, of_fresh)) = (of(&mut used), of(&mut fresh));
        assert_eq!(id == block, warm_reuse);
        let counts = |field: &&(&str, String)| !WRITTEN_BEFORE_READ.contains(&field.0);
        assert!(
            of_used
                .iter()
                .filter(counts)
                .eq(of_fresh.iter().filter(counts)),
            "{of_used:?}\n{of_fresh:?}"
        );
    }
}

/// The litter is some: each field that a connection can leave behind differs from what a fresh block holds.
#[test]
fn the_litter_leaves_out_nothing() {
    let kept_empty = [
        "conn",
        "writer",
        "flight",
        "unsent",
        "inbox",
        "reorder",
        "tuning",
        "keep_until",
        "due_at",
        "ack_at",
        "flags",
        "recovery",
        "doubted",
    ];
    // The timer is the block's, whoever has it: it fires early at worst.
    let the_blocks = ["timer", "timer_at"];
    let mut stack = stack(&Config::default());
    let conn = idle(&mut stack);
    let id = heated(&mut stack, conn);
    let (hot, litter) = (fields(&stack.store().hot[id]), fields(&littered()));
    for (begun, left) in hot.iter().zip(&litter) {
        let is_clean = kept_empty.contains(&begun.0) || the_blocks.contains(&begun.0);
        assert!(
            is_clean || begun.1 != left.1,
            "{begun:?} is left as {left:?}"
        );
    }
}

/// Nothing that a block may hold goes unnoticed when it is given back.
#[test]
fn a_block_that_holds_something_is_seen_to() {
    assert!(Hot::default().holds_nothing());
    let held = SegList {
        head: SegId::new(3),
        tail: SegId::new(3),
        bytes: 1,
        count: 1,
    };
    let soon = Instant::from_millis(1);
    let wrong: [fn(&mut Hot, SegList, Instant); 12] = [
        |hot, _, _| hot.conn = ConnSlot::new(1),
        |hot, _, _| hot.sender.writer = 1,
        |hot, held, _| hot.sender.flight = held,
        |hot, held, _| hot.sender.unsent = held,
        |hot, held, _| hot.receiver.inbox = held,
        |hot, _, _| hot.receiver.reorder = 1,
        |hot, _, _| hot.receiver.tuning = TuningId::new(1),
        |hot, _, soon| hot.timers.keep_until = soon,
        |hot, _, soon| hot.timers.due_at = soon,
        |hot, _, soon| hot.timers.ack_at = soon,
        |hot, _, _| hot.flags = hot_flag::URGENT,
        |hot, _, _| hot.loss.recovery = RecoveryId::new(1),
    ];
    for (n, spoil) in wrong.iter().enumerate() {
        let mut hot = Hot::default();
        spoil(&mut hot, held, soon);
        assert!(!hot.holds_nothing(), "{n}");
    }
}
