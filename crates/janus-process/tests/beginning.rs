//! A program of several threads, one of which opens files while another one's first socket brings Janus to life: they stay the program's.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use janus::Runtime;
use janus_process::Process;

/// Fewer than a process may have where it may have few.
const FILES: usize = 300;

#[test]
fn files_that_are_opened_meanwhile_are_not_ours() {
    let (begins, is_begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let (process, files) = thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let mut files = Vec::new();
            while !is_begun.load(Ordering::Relaxed) && files.len() < FILES {
                files.push(File::open("/proc/self/exe").expect("there is a program"));
                begins.store(true, Ordering::Relaxed);
                thread::sleep(Duration::from_micros(50));
            }
            files
        });
        while !begins.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let process = Process::start(Runtime::builder().ignore_environment());
        is_begun.store(true, Ordering::Relaxed);
        let files = opening.join().expect("it opens files");
        (process.expect("a process"), files)
    });
    assert!(files.len() > 10, "some were opened meanwhile");
    let taken: Vec<_> = files.iter().map(File::as_raw_fd).collect();
    let taken: Vec<_> = taken.iter().filter(|fd| process.keeps(**fd)).collect();
    assert!(taken.is_empty(), "{taken:?} are the program's");
    // And what is Janus's is known yet: its bell at least, and what the portal waits by.
    assert!(process.own_descriptors().len() > 2);
    process.end().expect("an end in order");
}
