//! Shows that the audit finds what it is for: each of its rules is broken by hand.

use crate::rules::config::Config;
use crate::stack::Stack;
use crate::store::cold::flag;
use crate::store::hot::hot_flag;
use crate::store::keys::{ConnSlot, HotId, Key};
use crate::testing::{Pair, slot};
use crate::time::Instant;

/// Opens a connection, has its client write, and breaks the client's stack by hand. Returns what the audit says before
/// and after.
fn audited(break_it: impl FnOnce(&mut Stack, ConnSlot, HotId)) -> String {
    let mut pair = Pair::new(&Config::default(), 3);
    let (a, _) = pair.open(40_000);
    let stack = &mut pair.a.stack;
    stack.write(pair.now, a, b"text").expect("room");
    let mut out = Vec::new();
    stack.transmit(pair.now, &mut out, 16);
    assert_eq!(stack.audit(), Ok(()));
    let id = stack.store.tcbs[slot(a)].hot().expect("it is busy");
    break_it(stack, slot(a), id);
    stack.audit().expect_err("it was broken")
}

fn unarm(stack: &mut Stack, id: HotId) {
    let hot = &mut stack.store.hot[id];
    (hot.timers.due_at, hot.timers.rto_at) = (Instant::NEVER, Instant::NEVER);
    let timer = hot.timers.timer.take().expect("armed");
    assert!(stack.schedule.wheel.cancel_at(timer, id.index()));
}

#[test]
fn data_in_flight_without_a_timer_is_found() {
    let told = audited(|stack, _, id| unarm(stack, id));
    assert!(told.contains("in flight has no timer"), "{told}");
}

#[test]
fn unsent_data_without_a_timer_is_found() {
    let told = audited(|stack, _, id| {
        unarm(stack, id);
        let hot = &mut stack.store.hot[id];
        hot.sender.unsent = core::mem::take(&mut hot.sender.flight);
    });
    assert!(told.contains("nothing sends it"), "{told}");
}

#[test]
fn a_deadline_whose_timer_has_gone_or_comes_too_late_is_found() {
    let told = audited(|stack, _, id| {
        let timer = stack.store.hot[id].timers.timer.expect("armed");
        stack.schedule.wheel.cancel_at(timer, id.index());
    });
    assert!(told.contains("a deadline has no timer"), "{told}");
    let told = audited(|stack, _, id| stack.store.hot[id].timers.due_at = Instant::from_millis(1));
    assert!(told.contains("a deadline has no timer"), "{told}");
}

#[test]
fn an_orphan_that_only_waits_is_found() {
    let told = audited(|stack, conn, id| {
        unarm(stack, id);
        let hot = &mut stack.store.hot[id];
        hot.sender.flight = Default::default();
        stack.store.tcbs[conn].set(flag::ORPHAN);
    });
    assert!(told.contains("an orphan that no timer ends"), "{told}");
    let told = audited(|stack, conn, _| {
        stack.store.tcbs[conn].detach(janus_wire::StampBase::default());
        stack.store.tcbs[conn].set(flag::ORPHAN);
    });
    assert!(told.contains("an orphan without a hot block"), "{told}");
}

#[test]
fn what_is_owed_outside_of_the_queue_is_found() {
    for (owed, what) in [
        (hot_flag::ACK_NOW, "an acknowledgement is owed"),
        (hot_flag::PROBE, "a probe is owed"),
        (hot_flag::SYN, "a SYN is owed"),
        (hot_flag::LOSSES, "a retransmission is owed"),
    ] {
        let told = audited(|stack, _, id| {
            unarm(stack, id);
            stack.store.hot[id].set(owed);
        });
        assert!(told.contains(what), "{told}");
    }
    let told = audited(|stack, _, id| {
        unarm(stack, id);
        let hot = &mut stack.store.hot[id];
        (hot.sender.flight, hot.sender.writer) = (Default::default(), 7);
    });
    assert!(told.contains("a writer waits"), "{told}");
}

#[test]
fn queues_that_are_not_as_the_flags_say_are_found() {
    let told = audited(|stack, _, id| stack.store.hot[id].set(hot_flag::QUEUED));
    assert!(told.contains("the output queue and its flag"), "{told}");
    let told = audited(|stack, _, id| stack.store.hot[id].set(hot_flag::STARVED));
    assert!(told.contains("the queue of the starved"), "{told}");
    let told = audited(|stack, _, id| {
        stack.schedule.output.push_back(Some(id));
        stack.schedule.output.push_back(Some(id));
    });
    assert!(told.contains("queued twice"), "{told}");
    let told = audited(|stack, _, id| stack.store.hot[id].conn = ConnSlot::new(77));
    assert!(told.contains("belongs to another"), "{told}");
    let told = audited(|stack, _, _| assert!(stack.store.hot.alloc().is_some()));
    assert!(told.contains("hot blocks for"), "{told}");
}
