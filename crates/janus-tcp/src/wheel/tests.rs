//! The wheel against a sorted list, over random deadlines, cancellations and steps.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const TICK_NS: u64 = 1 << TICK_BITS;

fn wheel() -> Wheel {
    Wheel::new(10_000, &Growth::Inline).expect("memory for a small wheel")
}

fn fired_at(wheel: &mut Wheel, now: u64) -> Vec<u32> {
    let mut fired = Vec::new();
    wheel.advance(Instant::from_nanos(now), |payload| fired.push(payload));
    fired
}

#[test]
fn fires_once_never_early_and_at_most_a_tick_late() {
    let mut wheel = wheel();
    wheel.insert(Instant::from_millis(5), 7).expect("room");
    assert!(fired_at(&mut wheel, 5_000_000 - 1).is_empty());
    assert_eq!(fired_at(&mut wheel, 5_000_000 + TICK_NS), [7]);
    assert!(fired_at(&mut wheel, 50_000_000_000).is_empty());
    assert!(wheel.is_empty());
}

#[test]
fn cancel_is_refused_once_fired() {
    let mut wheel = wheel();
    let id = wheel.insert(Instant::from_millis(1), 1).expect("room");
    assert!(wheel.cancel(id));
    assert!(!wheel.cancel(id));
    let again = wheel.insert(Instant::from_millis(1), 2).expect("room");
    assert_ne!(id, again);
    assert!(
        !wheel.cancel(id),
        "a stale id must not cancel the timer that took its place"
    );
    assert_eq!(fired_at(&mut wheel, 10_000_000), [2]);
}

#[test]
fn next_leads_to_the_timer_even_when_it_is_hours_away() {
    let mut wheel = wheel();
    wheel
        .insert(Instant::from_millis(7 * 3_600_000), 3)
        .expect("room");
    let mut steps = 0;
    let mut fired = Vec::new();
    while let Some(at) = wheel.next() {
        wheel.advance(at, |payload| fired.push((at, payload)));
        steps += 1;
        assert!(steps <= LEVELS + 1, "each step must lead a level down");
    }
    assert_eq!(fired.len(), 1);
    assert!(fired[0].0 >= Instant::from_millis(7 * 3_600_000));
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    Cancel(usize),
    Advance(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0u32..40, 0u64..1_000).prop_map(|(shift, x)| Op::Insert((x << shift) % (1 << 50))),
        (0usize..50).prop_map(Op::Cancel),
        (0u32..36, 0u64..1_000).prop_map(|(shift, x)| Op::Advance((x << shift) % (1 << 46))),
    ];
    proptest::collection::vec(op, 1..200)
}

proptest! {
    #[test]
    fn agrees_with_a_sorted_list(ops in ops()) {
        let mut wheel = wheel();
        let mut model: BTreeMap<u32, (u64, TimerId)> = BTreeMap::new();
        let (mut now, mut payload) = (0u64, 0u32);
        for op in ops {
            match op {
                Op::Insert(after) => {
                    let at = now + after;
                    let id = wheel.insert(Instant::from_nanos(at), payload).expect("room");
                    model.insert(payload, (at, id));
                    payload += 1;
                }
                Op::Cancel(nth) => {
                    if let Some((&p, &(_, id))) = model.iter().nth(nth) {
                        prop_assert!(wheel.cancel(id));
                        model.remove(&p);
                    }
                }
                Op::Advance(by) => {
                    now += by;
                    for p in fired_at(&mut wheel, now) {
                        let (at, _) = model.remove(&p).expect("fired once, never after cancel");
                        prop_assert!(at <= now, "early");
                    }
                    prop_assert!(model.values().all(|(at, _)| at + TICK_NS >= now), "late");
                }
            }
            prop_assert_eq!(wheel.len(), model.len());
        }
    }
}
