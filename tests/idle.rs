//! An idle server sleeps: no turn of any thread while nothing comes. Alone in its file, and so in its process, because
//! it looks at the whole process.

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use janus::BackendChoice;
use support::*;

#[test]
fn an_idle_server_uses_no_processor() {
    for case in [ONE_COMBINED, THREE_COMBINED, THREE_SPLIT] {
        let (server, address, _) = serve(case.builder().backend(BackendChoice::Portal), 0, echo);
        // With an open connection, after it has worked.
        let mut client = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        let (start, mut shares) = (Instant::now(), Vec::new());
        // Coming to rest takes a busy machine longer; one that never does is not idle.
        while shares.last().is_none_or(|share| *share >= 0.01) {
            assert!(
                start.elapsed() < PATIENCE / 4,
                "{case:?}: parts of a processor while idle: {shares:?}"
            );
            let (begin, before) = (Instant::now(), processor_time());
            std::thread::sleep(Duration::from_millis(1500));
            let used = processor_time() - before;
            shares.push(used.as_secs_f64() / begin.elapsed().as_secs_f64());
        }
        control_sleeps(case);
        server.stop().unwrap();
    }
}

/// The control thread has nothing to look at: in a while in which it would have looked twice it does not wake.
fn control_sleeps(case: Case) {
    let start = Instant::now();
    loop {
        let before = control_waits();
        std::thread::sleep(Duration::from_millis(2500));
        let woken = control_waits() - before;
        if woken == 0 {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE / 4,
            "{case:?}: the control thread woke {woken} times"
        );
    }
}

/// Times that control threads have waited so far.
fn control_waits() -> u64 {
    let mut waits = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.trim() == "janus-control" {
            let status = std::fs::read_to_string(path.join("status")).unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            waits += line.unwrap().trim().parse::<u64>().unwrap();
        }
    }
    assert!(waits > 0, "there is no control thread");
    waits
}

/// Processor time of all threads so far.
fn processor_time() -> Duration {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let text =
            std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap_or_default();
        nanos += text
            .split(' ')
            .next()
            .and_then(|first| first.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Duration::from_nanos(nanos)
}
