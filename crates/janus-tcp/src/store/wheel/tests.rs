//! The wheel against a sorted list, over random deadlines, cancellations and steps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

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

#[test]
fn a_bounded_call_leaves_the_rest_to_the_next_and_says_so() {
    let mut wheel = wheel();
    // Of one moment, far enough away to be moved nearer on the way, and one more for each call.
    let at = Instant::from_millis(3_000);
    for i in 0..2_000 {
        wheel.insert(at, i).expect("room");
    }
    let now = Instant::from_millis(3_001);
    let (mut fired, mut calls, mut late) = (Vec::new(), 0, Vec::new());
    while wheel.next().is_some_and(|next| next <= now) {
        let before = fired.len();
        wheel.advance_some(now, 100, |payload| fired.push(payload));
        assert!(fired.len() - before <= 100);
        calls += 1;
        assert!(calls <= 24, "2,000 moved twice, and fired 100 a call");
        if wheel.len() > 100 {
            late.push(wheel.insert(now, 2_000 + calls).expect("room"));
        }
    }
    // What came later had to wait, and then goes with the others.
    assert!(fired.iter().all(|&payload| payload < 2_000), "in order");
    assert_eq!(fired.len(), 2_000);
    assert_eq!(wheel.len(), late.len());
    assert!(late.into_iter().all(|id| wheel.cancel(id)));
    assert_eq!(wheel.next(), None);
}

#[test]
fn what_a_bounded_call_left_can_be_cancelled() {
    let mut wheel = wheel();
    let at = Instant::from_millis(5);
    let ids: Vec<_> = (0..50).map(|i| wheel.insert(at, i)).collect();
    let mut fired = Vec::new();
    wheel.advance_some(Instant::from_millis(6), 10, |payload| fired.push(payload));
    assert_eq!(fired.len(), 10);
    // The first of those left, the last, one between them; and none that fired.
    let left: Vec<u32> = (0..50).filter(|i| !fired.contains(i)).collect();
    for &i in [left.last(), left.first(), left.get(20)]
        .into_iter()
        .flatten()
    {
        assert!(wheel.cancel(ids[i as usize].expect("room")));
    }
    assert!(
        fired
            .iter()
            .all(|&i| !wheel.cancel(ids[i as usize].expect("room")))
    );
    fired.extend(fired_at(&mut wheel, 7_000_000));
    fired.sort_unstable();
    fired.dedup();
    assert_eq!(fired.len(), 47);
    assert!(wheel.is_empty());
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    Cancel(usize),
    Advance(u64),
    /// As far, but no more than so many in one call.
    Some(u64, usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0u32..40, 0u64..1_000).prop_map(|(shift, x)| Op::Insert((x << shift) % (1 << 50))),
        (0usize..50).prop_map(Op::Cancel),
        (0u32..36, 0u64..1_000).prop_map(|(shift, x)| Op::Advance((x << shift) % (1 << 46))),
        (0u32..36, 0u64..1_000, 0usize..4)
            .prop_map(|(shift, x, most)| Op::Some((x << shift) % (1 << 46), most)),
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
                Op::Some(by, most) => {
                    now += by;
                    let mut fired = Vec::new();
                    let until = Instant::from_nanos(now);
                    wheel.advance_some(until, most, |payload| fired.push(payload));
                    prop_assert!(fired.len() <= most);
                    for p in fired {
                        let (at, _) = model.remove(&p).expect("fired once, never after cancel");
                        prop_assert!(at <= now, "early");
                    }
                    let late = model.values().any(|(at, _)| at + TICK_NS < now);
                    prop_assert!(!late || wheel.next().is_some_and(|next| next <= until));
                }
            }
            prop_assert_eq!(wheel.len(), model.len());
        }
    }
}
