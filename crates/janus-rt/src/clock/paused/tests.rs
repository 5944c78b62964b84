//! Which threads hold the clock, and which do not, without threads: each sleeper is asleep as a thread would be, with its bell armed.

use std::os::fd::AsFd;

use janus_io::park::Parker;

use super::*;

const HOUR: Instant = Instant::from_millis(3_600_000);

/// Runs `then` while `parker` listens; it does not sleep for it.
fn listening<R>(parker: &mut Parker, then: impl FnOnce() -> R) -> R {
    let mut result = None;
    let woken = parker.park(&[], None, || {
        result = Some(then());
        true
    });
    woken.expect("it did not sleep");
    result.expect("it was asked")
}

/// Two sleepers, the first of which sleeps on `fd` for ever: what the second, who wants to be woken in an hour, is told.
fn second(clock: &Paused, parkers: &mut [Parker; 2], fd: Option<BorrowedFd<'_>>) -> Verdict {
    let [first, last] = parkers;
    listening(first, || {
        assert_eq!(clock.falls_asleep(0, None, fd), Verdict::Sleep);
        listening(last, || clock.falls_asleep(1, Some(HOUR), None))
    })
}

#[test]
fn what_came_to_a_sleepers_descriptor_holds_it() {
    let (clock, mut parkers) = (Paused::default(), two());
    clock.governs(parkers.iter().map(Parker::unparker));
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&write, b"x").unwrap();
    let held = second(&clock, &mut parkers, Some(read.as_fd()));
    assert_eq!((held, clock.elapsed_ns()), (Verdict::Sleep, 0));
    rustix::io::read(&read, &mut [0; 1]).unwrap();
    clock.wakes(0);
    clock.wakes(1);
    let due = second(&clock, &mut parkers, Some(read.as_fd()));
    assert_eq!(due, Verdict::Due);
    assert_eq!(clock.elapsed_ns() + OFFSET_NS, HOUR.as_nanos());
}

#[test]
fn a_rung_bell_holds_it_and_a_thread_that_ended_does_not() {
    let (clock, mut parkers) = (Paused::default(), two());
    clock.governs(parkers.iter().map(Parker::unparker));
    let [first, last] = &mut parkers;
    let bell = first.unparker();
    listening(first, || {
        assert_eq!(clock.falls_asleep(0, None, None), Verdict::Sleep);
        assert!(bell.wake());
        let held = listening(last, || clock.falls_asleep(1, Some(HOUR), None));
        assert_eq!(held, Verdict::Sleep);
    });
    clock.leaves(0);
    let due = listening(last, || clock.falls_asleep(1, Some(HOUR), None));
    assert_eq!(due, Verdict::Due);
}

fn two() -> [Parker; 2] {
    [Parker::new().unwrap(), Parker::new().unwrap()]
}
