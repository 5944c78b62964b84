//! The Linux kernel's TCP as the peer: a TAP device in a network namespace of the test's own, faults in between, bulk data
//! both ways at once with the kernel as client and as server, and again with the kernel's options switched off and on, and while the
//! connection moves between two stacks.
//! Every byte is compared with what was written; a capture taken on the kernel's side is judged by tshark.
//! Needs root, tcpdump and tshark; without them the tests say so in one line and pass, unless `JANUS_PRIVILEGED=1` says
//! that the machine must be able to. `JANUS_KERNEL_MB` is how much the long run moves each way.

mod bridge;
mod end;
mod exchange;
mod judge;
mod moving;
mod repeats;
mod space;
#[path = "../support/mod.rs"]
mod support;

use exchange::{Job, Role};
use janus_io::faults::Faults;
use janus_io::tap::TapCounters;
use moving::Report;
use space::{Family, Space};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{ONE_COMBINED, THREE_COMBINED, THREE_SPLIT};

/// Each way, in MB, without `JANUS_KERNEL_MB`.
const BULK_MB: u64 = 16;
/// The same for what crosses joined.
const OFFLOADED_MB: u64 = 64;

/// With moves always so much: there are sixteen such runs, and through losses each takes a while.
const MOVING_MB: u64 = 8;

/// And with each set of the kernel's options; a debug build takes its time.
const OPTIONS_BYTES: u64 = if cfg!(debug_assertions) {
    1_000_000
} else {
    4_000_000
};

/// Files below `/proc/sys/net`, and what is written into them.
type Settings = &'static [(&'static str, &'static str)];

/// One run against the kernel.
struct Case {
    name: &'static str,
    family: Family,
    role: Role,
    settings: Settings,
    /// The largest segment the kernel will take.
    advertised_mss: Option<u16>,
    job: Job,
    faults: Faults,
}

#[test]
fn much_data_goes_both_ways_at_once() {
    let bytes = megabytes(BULK_MB) * 1_000_000;
    let faults = |seed| Faults {
        seed,
        loss: 1,
        duplicate: 1,
        reorder: 2,
        distance: 4,
        ..Faults::default()
    };
    let case = |name, family, role, bytes, seed| Case {
        name,
        family,
        role,
        settings: &[],
        advertised_mss: None,
        job: Job {
            to_janus: bytes,
            to_kernel: bytes,
        },
        faults: faults(seed),
    };
    run_all(vec![
        case("bulk", Family::V4, Role::KernelConnects, bytes, 1),
        case("bulk", Family::V4, Role::KernelListens, bytes / 4, 2),
        case("bulk", Family::V6, Role::KernelConnects, bytes / 4, 3),
        case("bulk", Family::V6, Role::KernelListens, bytes / 4, 4),
    ]);
}

#[test]
fn every_set_of_kernel_options_works_through_a_bad_link() {
    const SETTINGS: [(&str, Settings, Option<u16>); 7] = [
        ("defaults", &[], None),
        ("no timestamps", &[("ipv4/tcp_timestamps", "0")], None),
        ("no SACK", &[("ipv4/tcp_sack", "0")], None),
        (
            "no window scaling",
            &[("ipv4/tcp_window_scaling", "0")],
            None,
        ),
        ("ECN", &[("ipv4/tcp_ecn", "1")], None),
        (
            "nothing of it",
            &[
                ("ipv4/tcp_timestamps", "0"),
                ("ipv4/tcp_sack", "0"),
                ("ipv4/tcp_window_scaling", "0"),
            ],
            None,
        ),
        ("small segments", &[], Some(300)),
    ];
    let mut cases = Vec::new();
    for (index, (name, settings, advertised_mss)) in SETTINGS.into_iter().enumerate() {
        for role in [Role::KernelConnects, Role::KernelListens] {
            cases.push(Case {
                name,
                // Each set over one of the families with each role, in turn.
                family: if (index + usize::from(role == Role::KernelListens)).is_multiple_of(2) {
                    Family::V4
                } else {
                    Family::V6
                },
                role,
                settings,
                advertised_mss,
                job: Job {
                    to_janus: OPTIONS_BYTES,
                    to_kernel: OPTIONS_BYTES,
                },
                faults: Faults {
                    seed: 10 + index as u64,
                    loss: 5,
                    duplicate: 5,
                    reorder: 10,
                    distance: 5,
                    ..Faults::default()
                },
            });
        }
    }
    run_all(cases);
}

/// The kernel joins what it sends into frames of up to 64 KiB, takes ours so, and nobody computes a checksum.
#[test]
fn much_data_goes_joined_both_ways_at_once() {
    let bytes = megabytes(OFFLOADED_MB) * 1_000_000;
    for (layout, family, role, bytes) in [
        (ONE_COMBINED, Family::V4, Role::KernelConnects, bytes),
        (ONE_COMBINED, Family::V6, Role::KernelListens, bytes / 4),
        (THREE_SPLIT, Family::V4, Role::KernelListens, bytes / 4),
        (THREE_COMBINED, Family::V6, Role::KernelConnects, bytes / 4),
    ] {
        let job = Job {
            to_janus: bytes,
            to_kernel: bytes,
        };
        let label = format!("offloads, {layout:?}, {family:?}, {role:?}");
        if !done_or_skipped(&label.clone(), move || {
            let space = Space::new(&[])?;
            let (runtime, counters) = space.runtime_with_offloads(layout);
            run_joined(&label, (runtime, &counters), family, role, job);
            assert_eq!(space.checksum_errors(), 0, "{label}");
            Ok(())
        }) {
            return;
        }
    }
}

/// A figure, for whoever wants one: `cargo test --release --test kernel_peer -- --ignored --nocapture`. Both sides in turn.
#[test]
#[ignore = "compares speeds; nothing in it can be right or wrong"]
fn with_offloads_and_without() {
    const TURNS: usize = 5;
    let (tell, told) = std::sync::mpsc::channel();
    for turn in 0..2 * TURNS {
        let (tell, offloads) = (tell.clone(), turn % 2 == 0);
        let bytes = megabytes(OFFLOADED_MB) * 1_000_000;
        let job = Job {
            to_janus: bytes,
            to_kernel: bytes,
        };
        if !done_or_skipped("speed", move || {
            let space = Space::new(&[])?;
            let (runtime, _) = space.runtime_on_tap(ONE_COMBINED, offloads);
            let begin = std::time::Instant::now();
            exchange::carry_out(runtime, Family::V4, Role::KernelConnects, job, || ());
            let _ = tell.send((offloads, begin.elapsed().as_secs_f64()));
            Ok(())
        }) {
            return;
        }
    }
    let (mut with, mut without): (Vec<_>, Vec<_>) = told.try_iter().partition(|(on, _)| *on);
    let middle = |times: &mut Vec<(bool, f64)>| {
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        times[times.len() / 2].1
    };
    let (with, without) = (middle(&mut with), middle(&mut without));
    println!(
        "offloads: {with:.2} s, none: {without:.2} s, ratio {:.2}",
        without / with
    );
}

#[test]
fn what_is_forwarded_crosses_joined_too() {
    for (family, role) in [
        (Family::V4, Role::KernelConnects),
        (Family::V6, Role::KernelListens),
    ] {
        let job = Job {
            to_janus: megabytes(OFFLOADED_MB) * 1_000_000,
            to_kernel: megabytes(OFFLOADED_MB) * 1_000_000,
        };
        let label = format!("bridged, {family:?}, {role:?}");
        if !done_or_skipped(&label.clone(), move || {
            let space = Space::new(&[])?;
            let (bridge, runtime, counters) = space.bridged(ONE_COMBINED)?;
            run_joined(&label, (runtime, &counters), family, role, job);
            assert_eq!(space.checksum_errors(), 0, "{label}");
            drop(bridge);
            Ok(())
        }) {
            return;
        }
    }
}

fn run_joined(
    label: &str,
    (runtime, counters): (janus::Runtime, &TapCounters),
    family: Family,
    role: Role,
    job: Job,
) {
    let begin = std::time::Instant::now();
    exchange::carry_out(runtime, family, role, job, || ());
    let took = begin.elapsed().as_secs_f64();
    println!("{label}: {took:.1} s, {counters:?}");
    for (way, joined) in [("in", &counters.joined_in), ("out", &counters.joined_out)] {
        assert!(joined.get() > 0, "{label}: nothing crossed joined, {way}");
    }
    let lost = [
        &counters.lost_refused,
        &counters.lost_checksum,
        &counters.lost_uncut,
        &counters.read_errors,
    ];
    assert!(
        lost.iter().all(|lost| lost.get() == 0),
        "{label}: {counters:?}"
    );
}

fn run_all(cases: Vec<Case>) {
    for case in cases {
        let label = format!("{} ({:?})", case.name, case.role);
        if !done_or_skipped(&label, move || run(&case)) {
            return;
        }
    }
}

/// Runs it in a namespace of its own. False where the machine cannot, and need not.
fn done_or_skipped(
    label: &str,
    test: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> bool {
    let Err(why) = space::in_own(test) else {
        return true;
    };
    let required = std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1");
    assert!(!required, "{label}: {why}");
    // Not by `println!`: the test runner keeps what a passing test prints to itself.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    false
}

/// Each way; the environment may want more.
fn megabytes(usually: u64) -> u64 {
    match std::env::var("JANUS_KERNEL_MB") {
        Ok(megabytes) => megabytes.parse().expect("JANUS_KERNEL_MB is a number"),
        Err(_) => usually,
    }
}

/// In a namespace of its own. An error is a want of privilege or tools; what fails after that panics.
fn run(case: &Case) -> Result<(), String> {
    let space = Space::new(case.settings)?;
    let (runtime, counters) = space.runtime(case.faults);
    if let Some(mss) = case.advertised_mss {
        space.advertise_mss(case.family, mss);
    }
    let capture = space.capture(case.job)?;
    let begin = std::time::Instant::now();
    let captured =
        exchange::carry_out(runtime, case.family, case.role, case.job, || capture.stop());
    let took = begin.elapsed().as_secs_f64();
    let verdict = judge::judge(&captured, case.family, &counters);
    let label = format!("{}, {:?}, {:?}", case.name, case.family, case.role);
    println!("{label}: {took:.1} s, {counters:?}, {verdict:?}");
    verdict.assert_sound(&label, &counters);
    assert_eq!(
        space.checksum_errors(),
        0,
        "{label}: the kernel found bad checksums"
    );
    let lost = counters.sent.lost.get() + counters.received.lost.get();
    assert!(lost > 0, "{label}: nothing was lost, so nothing was tried");
    Ok(())
}

/// The connection moves from one stack to another every few hundred packets, and the kernel sees nothing of it.
#[test]
fn connections_move_while_much_data_goes_both_ways() {
    let bytes = MOVING_MB * 1_000_000;
    let job = Job {
        to_janus: bytes,
        to_kernel: bytes,
    };
    let repairing = Arc::new(AtomicU64::new(0));
    for (index, (family, role)) in [
        (Family::V4, Role::KernelConnects),
        (Family::V6, Role::KernelListens),
        (Family::V4, Role::KernelListens),
        (Family::V6, Role::KernelConnects),
    ]
    .into_iter()
    .enumerate()
    {
        let slow = Faults {
            delay: Duration::from_millis(1),
            queue: 8_000,
            ..Faults::default()
        };
        let bad = Faults {
            seed: 60 + index as u64,
            loss: 15,
            reorder: 10,
            distance: 4,
            ..slow
        };
        let links = [
            ("clean", Faults::default(), Faults::default()),
            ("clean and slow", slow, slow),
            ("lossy to the kernel", bad, slow),
            ("lossy", bad, bad),
        ];
        for (name, sent, received) in links {
            let label = format!("moving, {name}, {family:?}, {role:?}");
            let repairing = repairing.clone();
            if !done_or_skipped(&label.clone(), move || {
                let report = run_moving(&label, (family, role, job), (sent, received))?;
                repairing.fetch_add(report.repairing, Ordering::Relaxed);
                Ok(())
            }) {
                return;
            }
        }
    }
    let repairing = repairing.load(Ordering::Relaxed);
    assert!(repairing > 0, "no move found a loss under repair");
}

fn run_moving(
    label: &str,
    (family, role, job): (Family, Role, Job),
    (sent, received): (Faults, Faults),
) -> Result<Report, String> {
    let space = Space::new(&[])?;
    let (queue, counters) = space.queue(sent, received);
    let capture = space.capture(job)?;
    let begin = std::time::Instant::now();
    let stop = || capture.stop();
    let (captured, report) = exchange::carry_out_moving(queue, family, role, job, stop);
    let took = begin.elapsed().as_secs_f64();
    let repeats = repeats::repeats(&captured, family, &report.moves);
    println!("{label}: {took:.1} s, {report}, {repeats:?}, {counters:?}");
    judge::judge(&captured, family, &counters).assert_sound(label, &counters);
    assert_eq!(space.checksum_errors(), 0, "{label}");
    report.assert_sound(label);
    assert_eq!(repeats.resets, 0, "{label}: {repeats:?}");
    // A segment that others overtook looks lost, and so does one whose acknowledgement was.
    let received_late = counters.received.lost.get() + counters.received.reordered.get();
    let explained = counters.sent.reordered.get() + received_late;
    repeats.assert_few(label, report.moves.len(), explained);
    assert_eq!(repeats.blocks > 0, sent.loss > 0, "{label}: {repeats:?}");
    if received.loss == 0 {
        repeats.assert_none_known(label);
    }
    Ok(report)
}
