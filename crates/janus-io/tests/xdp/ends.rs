//! The program on the interface goes with who opened it, however that one ends.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use janus_io::Backend;

use crate::veth::*;
use crate::*;

#[test]
fn the_program_goes_with_a_panic() {
    in_veth(1, |veth| {
        let depot = depot();
        let queues = xdp(&depot).open(1).unwrap();
        assert!(is_attached());
        // What the kernel has to receive into is no sign that buffers are short.
        assert!(depot.in_use() > 0 && depot.fill().0 == 0);
        let panicking = std::thread::spawn(move || {
            let _held = queues;
            // Without the hook, so that the test's output stays readable.
            std::panic::resume_unwind(Box::new("as if the program had a fault"));
        });
        assert!(panicking.join().is_err());
        assert!(!is_attached());
        kernel_answers(veth);
        assert_eq!(depot.stats().outstanding, 0);
    });
}

/// The variable that makes [`a_process_that_is_killed`] one.
const HOLDER: &str = "JANUS_TEST_XDP_HOLDER";

/// Started by the test below in its namespace: opens the interface, says so and waits to be killed.
#[test]
fn a_process_that_is_killed() {
    if std::env::var_os(HOLDER).is_some() {
        let depot = depot();
        let _queues = xdp(&depot).open(1).unwrap();
        eprintln!("open");
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn the_program_goes_with_a_process_that_is_killed() {
    in_veth(1, |veth| {
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ends::a_process_that_is_killed", "--nocapture"])
            .env(HOLDER, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = std::io::BufReader::new(holder.stderr.take().unwrap());
        let mut lines = std::io::BufRead::lines(said);
        assert!(lines.any(|line| line.unwrap() == "open"));
        assert!(is_attached());
        holder.kill().unwrap();
        holder.wait().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while is_attached() {
            assert!(Instant::now() < deadline, "it is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
        kernel_answers(veth);
    });
}
