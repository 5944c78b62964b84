//! A server that is replaced by another program while it serves: both are of a group of a daemon's, and the new one is left what the old one listens at.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use crate::library;
use crate::peers;
use crate::running::Running;
use crate::web::{self, asked, counted};
use crate::world::{DEVICE, PROGRAM, Transcript, World, compare};

const LONG: Duration = Duration::from_secs(30);
/// Time in which what was begun has begun.
const PAUSE: Duration = Duration::from_millis(400);

/// The daemon that has the device, where Janus has it.
fn daemon(world: &World) -> Option<Running> {
    if !world.is_janus() {
        return None;
    }
    let mut command = Command::new(library::janus());
    command.args(["daemon", "--socket", &world.path("io.sock")]);
    command.env("JANUS_BACKEND", "tap");
    command.env("JANUS_TAP_NAME", DEVICE);
    command.env("JANUS_TAP_KERNEL_ADDRESS", "none");
    command.env("JANUS_ADDRESS", format!("{PROGRAM}/24"));
    let mut daemon = Running::start(command, "janus daemon");
    daemon.says("programs may join");
    Some(daemon)
}

/// A program of the daemon's group.
fn member(world: &World, words: &[&str]) -> Running {
    let mut command = world.command(words);
    if world.is_janus() {
        command.env_remove("JANUS_TAP_NAME");
        command.env_remove("JANUS_ADDRESS");
        command.env("JANUS_BACKEND", "daemon");
        command.env("JANUS_DAEMON_SOCKET", world.path("io.sock"));
        command.env("JANUS_DAEMON_GROUP", "web");
        // A file is fetched slowly when its server ends.
        command.env("JANUS_CLOSE_MS", "5000");
    }
    Running::start(command, &words.join(" "))
}

/// The process whose number is in a file, other than this one.
fn process(world: &World, file: &str, other: Option<Pid>) -> Pid {
    let begin = Instant::now();
    loop {
        let text = fs::read_to_string(world.path(file)).unwrap_or_default();
        let number = text.trim_end().parse().ok().and_then(Pid::from_raw);
        match number {
            Some(pid) if text.ends_with('\n') && number != other => return pid,
            _ => assert!(begin.elapsed() < LONG, "{file} has `{text}`"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).expect("it is there");
}

/// Ends the load, whatever becomes of the test.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Processes that were started together; they are killed if their test ends before they do.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// Waits until a process has ended. Who is to be told of that may not have asked yet.
fn until_ended(pid: Pid) {
    let begin = Instant::now();
    let file = format!("/proc/{}/stat", pid.as_raw_nonzero());
    while fs::read_to_string(&file).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(begin.elapsed() < LONG, "{file} is there");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What nginx's documentation says of how its program is replaced, with a pause between the steps. The number of the new master process.
fn replaced(world: &World, old: Pid, pause: Duration) -> Pid {
    signal(old, Signal::USR2);
    let new = process(world, "pid", Some(old));
    assert_eq!(process(world, "pid.oldbin", None), old);
    thread::sleep(pause);
    signal(old, Signal::WINCH);
    thread::sleep(pause);
    signal(old, Signal::QUIT);
    // The new one is told by that that it may be replaced in its turn.
    until_ended(old);
    new
}

/// The new program is sent away, and the old one serves again.
fn taken_back(world: &World, old: Pid) {
    signal(old, Signal::USR2);
    let new = process(world, "pid", Some(old));
    thread::sleep(PAUSE);
    signal(new, Signal::QUIT);
    until_ended(new);
    assert_eq!(process(world, "pid", Some(new)), old);
}

/// Replaced twice and taken back once while `ab` asks, and while a file is fetched that takes longer than that.
fn under_load(world: &World, mut old: Pid) -> (Transcript, Pid) {
    let url = |path: &str| format!("http://{PROGRAM}:80/{path}");
    let page = url("index.html");
    let asks = || counted(world, &["-n", "400", "-c", "8"], &page);
    let mut said = asks();
    let (wanted, ends) = (said.clone(), AtomicBool::new(false));
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut rounds = 0;
            while !ends.load(Ordering::Relaxed) {
                assert_eq!(asks(), wanted, "after {rounds} rounds");
                rounds += 1;
            }
            rounds
        });
        let load_ends = Ends(&ends);
        for pause in [PAUSE, Duration::ZERO] {
            let out = world.path("got");
            let fetch = scope.spawn({
                let (out, big) = (out.clone(), url("big"));
                move || {
                    let words = ["curl", "-sS", "--limit-rate", "1M", "-o", &out, &big];
                    world.peer(&words).well().to_string()
                }
            });
            thread::sleep(PAUSE / 2);
            old = replaced(world, old, pause);
            said += &fetch.join().expect("curl ends");
            said += &peers::told("big", &fs::read(&out).expect("what was fetched"));
        }
        taken_back(world, old);
        thread::sleep(PAUSE);
        drop(load_ends);
        let rounds = load.join().expect("ab ends");
        assert!(rounds > 1, "{rounds}");
    });
    (said, old)
}

fn nginx(world: &World) -> Transcript {
    let daemon = daemon(world);
    let (prefix, config) = (
        world.path(""),
        web::nginx_config(world, "worker_processes 3"),
    );
    // It minds USR2 once its parent is gone, and not before, and becomes the program by the name that it was started by.
    let starts = format!(
        "$(command -v nginx) -p {prefix} -c {config} -e stderr & while ! [ -s {prefix}pid ]; do sleep 0.05; done"
    );
    let server = member(world, &["setsid", "sh", "-c", &starts]);
    let first = process(world, "pid", None);
    let _all = Group(getpgid(Some(first)).expect("it runs"));
    thread::sleep(PAUSE);
    let mut said = asked(world, 80);
    let (loaded, last) = under_load(world, first);
    said += &loaded;
    said += &asked(world, 80);
    signal(last, Signal::QUIT);
    let ended = server.end();
    said += &ended.code;
    // Each line begins with a time and the number of a process.
    let words = |line: &str| Some(format!("\n{}", line.split_once(": ")?.1));
    said.extend(ended.err.lines().filter_map(words));
    if let Some(daemon) = daemon {
        let ended = daemon.terminated().well();
        assert!(ended.out.contains("0 died, 0 cut off"), "{ended}");
    }
    said
}

#[test]
fn nginx_is_replaced_by_a_new_program() {
    let needs = ["nginx -v", "curl --version", "ab -V", "wrk --version"];
    compare(&needs, nginx);
}
