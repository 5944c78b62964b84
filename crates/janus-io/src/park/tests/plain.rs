use crate::park::{MAX_WAIT_FDS, Parker, Woken};
use rustix::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn an_awake_owner_costs_no_system_call() {
    let mut parker = Parker::new().unwrap();
    let unparker = parker.unparker();
    assert!(!unparker.wake(), "nobody listens");
    assert_eq!(parker.park(&[], None, || true).unwrap(), Woken::Work);
    // Between saying so and sleeping, a wake is taken.
    let woken = parker.park(&[], None, || {
        assert!(unparker.wake());
        assert!(!unparker.wake(), "one system call is enough");
        false
    });
    assert_eq!(woken.unwrap(), Woken::Event);
    // And it does not echo.
    assert_eq!(
        parker
            .park(&[], Some(Duration::from_micros(50)), || false)
            .unwrap(),
        Woken::Timeout
    );
}

#[test]
fn sleeps_on_several_descriptors() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let (idle, _keep) = rustix::pipe::pipe().unwrap();
    let mut parker = Parker::new().unwrap();
    let fds = [idle.as_fd(), read.as_fd()];
    let before = Instant::now();
    assert_eq!(
        parker
            .park(&fds, Some(Duration::from_millis(5)), || false)
            .unwrap(),
        Woken::Timeout
    );
    assert!(before.elapsed() >= Duration::from_millis(5));
    rustix::io::write(&write, b"x").unwrap();
    assert_eq!(parker.park(&fds, None, || false).unwrap(), Woken::Event);
    let many = [read.as_fd(); MAX_WAIT_FDS + 1];
    assert!(
        parker
            .park(&many, None, || false)
            .unwrap_err()
            .to_string()
            .contains("descriptors")
    );
}

/// Hand work over one item at a time with no timeout: a lost wake-up hangs here.
#[test]
fn hands_over_many_times() {
    const ROUNDS: u64 = 20_000;
    let (asked, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (mut here, mut there) = (Parker::new().unwrap(), Parker::new().unwrap());
    let (wake_here, wake_there) = (here.unparker(), there.unparker());
    let (asked_too, answered_too) = (asked.clone(), answered.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let peer = std::thread::spawn(move || {
        let mut done = 0;
        while !stopped.load(Ordering::Relaxed) {
            while done == asked_too.load(Ordering::Acquire) && !stopped.load(Ordering::Relaxed) {
                let ready =
                    || done != asked_too.load(Ordering::Relaxed) || stopped.load(Ordering::Relaxed);
                there.park(&[], None, ready).unwrap();
            }
            done = asked_too.load(Ordering::Acquire);
            answered_too.store(done, Ordering::Release);
            wake_here.wake();
        }
    });
    for round in 1..=ROUNDS {
        asked.store(round, Ordering::Release);
        wake_there.wake();
        while answered.load(Ordering::Acquire) != round {
            here.park(&[], None, || answered.load(Ordering::Relaxed) == round)
                .unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    wake_there.wake();
    peer.join().unwrap();
}
