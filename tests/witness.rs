//! The benchmarks' witness of disturbance must not take a stall of the server's for the machine's, nor the other way round:
//! what was recorded is made up here, so that it is known whose each gap is.

#[path = "../benches/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};
use support::thread_time::thread_time;
use support::witness::control::{Control, Verdict};
use support::witness::{Gap, Place, Readings, Record};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// A gap of `ns` in every `every` of ten seconds, the first after one of these.
fn gaps(place: Place, ns: u64, every: u64) -> impl Iterator<Item = Gap> {
    (1..10 * SECOND / every).map(move |n| Gap {
        from_ns: n * every,
        to_ns: n * every + ns,
        place,
        is_proven: false,
    })
}

/// Ten seconds, half of them the program's.
fn record(gaps: impl Iterator<Item = Gap>) -> Record {
    Record {
        gaps: gaps.collect(),
        load_ns: 5 * SECOND,
        program_ns: 5 * SECOND,
        from_ns: 0,
        to_ns: 10 * SECOND,
    }
}

fn judge(record: Record, load: f64) -> Verdict {
    let control = Control::of([&record].into_iter(), [].into_iter());
    control.judge(&[record], load, 3)
}

#[test]
fn what_straight_code_meets_as_well_is_the_machines() {
    // A tick of the kernel, as often in the load as in the program.
    let ticks = gaps(Place::Load, 30_000, 8 * MS);
    let verdict = judge(
        record(ticks.chain(gaps(Place::Program, 35_000, 7_900_000))),
        0.5,
    );
    let own = verdict.own_ns().count();
    assert!(own < 60, "{own} of 1,264 are taken for the program's");
}

#[test]
fn what_it_never_meets_is_the_programs() {
    let ticks = gaps(Place::Load, 30_000, 8 * MS).chain(gaps(Place::Program, 30_000, 8_100_000));
    let stalls = gaps(Place::Program, 3 * MS, 97_133_000);
    let verdict = judge(record(ticks.chain(stalls)), 0.5);
    let stalls = verdict.own_ns().filter(|&ns| ns == 3 * MS).count();
    // A few begin while a queue of the machine's is there.
    assert!(stalls > 95, "{stalls} of 102 long turns are left");
    let left = verdict.calm_seconds() / verdict.seconds();
    assert!(left > 0.95, "{left} of the time is left");
}

#[test]
fn stalls_shorter_than_a_gap_of_the_machines_are_not_excused_by_it() {
    let rare = gaps(Place::Load, 4 * MS, 900 * MS);
    let stalls = gaps(Place::Program, MS, 50 * MS);
    let verdict = judge(record(rare.chain(stalls)), 0.1);
    let own = verdict.own_ns().count();
    assert!(own > 185, "{own} of 199 are left");
}

#[test]
fn a_gap_disturbs_until_its_queue_is_gone() {
    let only = |load| {
        let gap = Gap {
            from_ns: SECOND,
            to_ns: SECOND + MS,
            place: Place::Program,
            is_proven: true,
        };
        judge(record([gap].into_iter()), load)
    };
    let half = only(0.5);
    assert!(!half.is_disturbed(SECOND - MS));
    assert!(half.is_disturbed(SECOND + MS / 2) && half.is_disturbed(SECOND + 2 * MS));
    assert!(!half.is_disturbed(SECOND + 4 * MS));
    assert!(only(0.9).is_disturbed(SECOND + 10 * MS));
    assert!(half.is_disturbed(11 * SECOND), "nobody watched then");
}

#[test]
fn gaps_add_up() {
    // Each comes while the queue of the one before is there.
    let proven = (0..5).map(|n| Gap {
        from_ns: SECOND + n * 2 * MS,
        to_ns: SECOND + n * 2 * MS + MS,
        place: Place::Load,
        is_proven: true,
    });
    let verdict = judge(record(proven), 0.5);
    assert!(verdict.is_disturbed(SECOND + 14 * MS));
    assert!(!verdict.is_disturbed(SECOND + 20 * MS));
}

/// The gap between two calls of a far end in which the program did this.
fn gap_of(program: impl Fn()) -> Option<Gap> {
    let start = Instant::now();
    let mut readings = Readings::new(start);
    readings.leaves(start, Instant::now(), 0);
    program();
    readings.enters(Instant::now());
    let record = readings.finish();
    record.gaps.into_iter().next()
}

#[test]
fn a_thread_that_stood_still_is_told_from_one_that_computed() {
    let slept = gap_of(|| std::thread::sleep(Duration::from_millis(5))).expect("a gap");
    assert!(
        slept.is_proven && slept.place == Place::Program,
        "{slept:?}"
    );
    // Where the machine has much else to do, a computation is stopped too, but not each time.
    let computes = || {
        let begin = thread_time();
        while thread_time() - begin < Duration::from_micros(500) {}
    };
    let computed = (0..200).any(|_| gap_of(computes).is_some_and(|gap| !gap.is_proven));
    assert!(
        computed,
        "every computation is taken for a gap of the machine's"
    );
}
