use super::*;
use crate::shard::ShardId;

const FLOWS: u64 = 1000;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn change(of: &[(u8, f64)]) -> Shares {
    let mut shares = Shares::default();
    for &(shard, by) in of {
        shares[ShardId(shard)] = by;
    }
    shares
}

/// Rounds of one second under this strain until the gate lets something pass; how many that took.
fn rounds_until_act(gate: &mut Gate, now: &mut u64, strain: f64, opened: u64) -> u64 {
    for round in 1..100_000 {
        *now += 1;
        if gate.judge(secs(*now), strain, opened, FLOWS) == Verdict::Act {
            return round;
        }
    }
    panic!("never");
}

#[test]
fn a_strain_must_last() {
    let mut gate = Gate::new(Pace::default());
    for n in 0..1000 {
        let strain = if n % 2 == 0 { 5.0 } else { 0.9 };
        let verdict = gate.judge(secs(n), strain, 0, FLOWS);
        assert!(
            matches!(verdict, Verdict::Calm | Verdict::Unconfirmed),
            "{n}: {verdict:?}"
        );
    }
    let mut now = 1000;
    assert_eq!(
        rounds_until_act(&mut gate, &mut now, 1.0, 0),
        3,
        "confirmed after two seconds"
    );
}

#[test]
fn the_next_update_waits_for_the_effect_of_the_last() {
    let acted = || {
        let mut gate = Gate::new(Pace::default());
        let mut now = 0;
        rounds_until_act(&mut gate, &mut now, 4.0, 0);
        gate.acted(secs(now), 4.0, FLOWS, change(&[(0, -0.1), (1, 0.1)]));
        gate.finished(secs(now));
        (gate, now)
    };
    // As many flows as there are have begun after twenty seconds.
    let (mut gate, mut now) = acted();
    assert_eq!(rounds_until_act(&mut gate, &mut now, 4.0, FLOWS / 20), 20);
    // Or the strain has gone down, though not enough.
    let (mut gate, mut now) = acted();
    assert_eq!(rounds_until_act(&mut gate, &mut now, 2.9, 0), 3);
    // Or neither, and patience is over; the second time it is twice as long.
    let (mut gate, mut now) = acted();
    assert_eq!(rounds_until_act(&mut gate, &mut now, 4.0, 0), 30);
    gate.acted(secs(now), 4.0, FLOWS, change(&[(0, -0.1), (1, 0.1)]));
    assert_eq!(rounds_until_act(&mut gate, &mut now, 4.0, 0), 60);
    assert_eq!(gate.reversals(), 0, "they went the same way");
}

#[test]
fn updates_that_undo_each_other_become_seldom_and_small_and_calm_forgives_it() {
    let mut gate = Gate::new(Pace::default());
    let mut now = 0;
    let mut waits = Vec::new();
    for n in 0..12 {
        waits.push(rounds_until_act(&mut gate, &mut now, 2.0, FLOWS));
        let by = if n % 2 == 0 { 0.1 } else { -0.1 };
        gate.acted(secs(now), 2.0, FLOWS, change(&[(0, by), (1, -by)]));
    }
    assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]), "{waits:?}");
    assert_eq!(*waits.last().unwrap(), 300, "{waits:?}");
    assert_eq!(gate.gain(), Gate::GAIN_LEAST);
    assert_eq!(gate.reversals(), 11);
    for _ in 0..10_000 {
        now += 1;
        gate.judge(secs(now), 0.0, FLOWS, FLOWS);
    }
    assert_eq!(gate.gain(), 1.0);
    assert_eq!(rounds_until_act(&mut gate, &mut now, 2.0, FLOWS), 3);
}

#[test]
fn nonsense_is_calm() {
    let mut gate = Gate::new(Pace::default());
    for n in 0..10 {
        assert_eq!(gate.judge(secs(n), f64::NAN, 0, 0), Verdict::Calm);
    }
}
