use core::time::Duration;
use std::net::SocketAddr;

use janus_mem::Growth;
use janus_wire::FlowKey;
use proptest::prelude::*;

use super::*;
use crate::store::time_wait::TimeWaits;

const MAX: u32 = 64;

fn key(n: u32) -> FlowKey {
    let peer = match n % 2 {
        0 => SocketAddr::from(([192, 0, 2, (n >> 8) as u8], n as u16)),
        _ => format!("[2001:db8::{:x}]:{}", n >> 8, n as u16)
            .parse()
            .expect("an address"),
    };
    let local = match peer {
        SocketAddr::V4(_) => SocketAddr::from(([192, 0, 2, 1], 80)),
        SocketAddr::V6(_) => "[2001:db8::1]:80".parse().expect("an address"),
    };
    FlowKey::new(peer, local).expect("one family")
}

fn record(expires: Instant, own_time: bool) -> TimeWait {
    TimeWait {
        expires,
        own_time,
        fin_wait_2: own_time,
        ..TimeWait::default()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A record that waits so many milliseconds, or as long as all others.
    File(Option<u64>),
    /// So many milliseconds go by, and what is due goes.
    Wait(u64),
    /// So many milliseconds go by, and nobody looks.
    Sleep(u64),
    /// One of the records goes.
    Remove(prop::sample::Index),
    /// The peer's FIN comes for one of them.
    Restart(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::option::weighted(0.8, 0_u64..=120_000).prop_map(Step::File),
        3 => (0_u64..20_000).prop_map(Step::Wait),
        1 => (0_u64..400_000).prop_map(Step::Sleep),
        1 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => any::<prop::sample::Index>().prop_map(Step::Restart),
    ]
}

proptest! {
    /// Against a list: each record goes when its time is up, a second late at most, and no deadline comes after its time.
    #[test]
    fn each_goes_in_its_own_time(steps in proptest::collection::vec(step(), 1..200)) {
        const USUAL: u64 = 60_000;
        let mut waits = TimeWaits::new(MAX, &Growth::Inline).expect("memory");
        let mut model: Vec<(u32, u64)> = Vec::new();
        let (mut now, mut next) = (1_000_u64, 0);
        for step in steps {
            let at = Instant::from_millis(now);
            match step {
                Step::File(wait) => {
                    if let Some(evicted) = waits.to_evict(at) {
                        let place = model.iter().position(|(id, _)| *id == evicted);
                        model.remove(place.expect("one of those there are"));
                        waits.remove(evicted);
                    }
                    let until = now + wait.unwrap_or(USUAL);
                    let filed = record(Instant::from_millis(until), wait.is_some());
                    let id = waits.insert(&key(next), filed).expect("room");
                    next += 1;
                    model.push((id, if wait.is_some() { until.div_ceil(1_000) * 1_000 } else { until }));
                }
                Step::Wait(ms) | Step::Sleep(ms) => {
                    now += ms;
                    if matches!(step, Step::Sleep(_)) {
                        continue;
                    }
                    let at = Instant::from_millis(now);
                    while let Some(id) = waits.due(at) {
                        let place = model.iter().position(|(other, _)| *other == id);
                        let (_, until) = model.remove(place.expect("one of those there are"));
                        prop_assert!(until <= now, "too early");
                        waits.remove(id);
                    }
                    prop_assert!(model.iter().all(|(_, until)| *until > now), "too late");
                }
                Step::Remove(which) if !model.is_empty() => {
                    let (id, _) = model.remove(which.index(model.len()));
                    waits.remove(id);
                }
                Step::Restart(which) if !model.is_empty() => {
                    let which = which.index(model.len());
                    let until = now + USUAL;
                    model[which].1 = until;
                    waits.restart(model[which].0, Instant::from_millis(until));
                }
                Step::Remove(_) | Step::Restart(_) => {}
            }
            prop_assert_eq!(waits.len(), model.len());
            let first = model.iter().map(|(_, until)| Instant::from_millis(*until)).min();
            prop_assert_eq!(waits.next_deadline().is_some(), first.is_some());
            prop_assert!(waits.next_deadline() <= first, "nobody would wake for it");
        }
        for (id, _) in model.drain(..) {
            waits.remove(id);
        }
        prop_assert_eq!((waits.len(), waits.next_deadline()), (0, None));
    }
}

/// A thousand in one second cost a look at the other seconds once.
#[test]
fn a_crowd_in_one_second_goes_in_the_order_in_which_it_came() {
    let mut waits = TimeWaits::new(MAX, &Growth::Inline).expect("memory");
    let at = Instant::from_millis(10_000);
    let filed: Vec<u32> = (0..MAX)
        .map(|n| {
            waits
                .insert(
                    &key(n),
                    record(at + Duration::from_millis(u64::from(n)), true),
                )
                .expect("room")
        })
        .collect();
    assert_eq!(
        waits.due(at),
        Some(filed[0]),
        "rounded up, the first is due now"
    );
    waits.remove(filed[0]);
    assert_eq!(waits.due(at + Duration::from_millis(999)), None);
    assert_eq!(waits.next_deadline(), Some(at + Duration::from_secs(1)));
    for id in &filed[1..] {
        assert_eq!(waits.due(at + Duration::from_secs(1)), Some(*id));
        waits.remove(*id);
    }
    assert_eq!(waits.next_deadline(), None);
}

#[test]
fn where_all_have_times_of_their_own_the_one_that_is_due_first_makes_room() {
    let mut waits = TimeWaits::new(3, &Growth::Inline).expect("memory");
    let at = Instant::from_millis(100_500);
    let mut ids = Vec::new();
    for (n, seconds) in [(0, 120), (1, 3), (2, 40)] {
        let until = at + Duration::from_secs(seconds);
        assert_eq!(waits.to_evict(at), None);
        ids.push(waits.insert(&key(n), record(until, true)).expect("room"));
    }
    for n in [1, 2, 0] {
        assert_eq!(waits.to_evict(at).or(waits.slots.first(at)), Some(ids[n]));
        waits.remove(ids[n]);
    }
}
