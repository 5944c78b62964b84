//! A server that is replaced by another program while it serves, or that leaves its first process: all are members of a daemon, and the later one is left what
//! the earlier one listens at.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use crate::peers;
use crate::prefork::PYTHON;
use crate::running::Running;
use crate::web::{self, asked, counted};
use crate::world::{PROGRAM, Sockets, Transcript, World, compare, compare_by};

const LONG: Duration = Duration::from_secs(30);
/// Time in which what was begun has begun.
const PAUSE: Duration = Duration::from_millis(400);

/// A program that ends slowly where it must: a file is being fetched when it is replaced.
fn start(world: &World, words: &[&str]) -> Running {
    let mut command = world.command(words);
    command.env("JANUS_CLOSE_MS", "5000");
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
pub fn until_ended(pid: Pid) {
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

/// Does this while `ab` asks for a page again and again. What it counts each time.
fn while_asked<R>(world: &World, page: &str, act: impl FnOnce() -> R) -> (Transcript, R) {
    let asks = || counted(world, &["-n", "400", "-c", "8"], page);
    let (wanted, ends, rounds) = (asks(), AtomicBool::new(false), AtomicU32::new(0));
    let acted = thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) || rounds.load(Ordering::Relaxed) < 2 {
                assert_eq!(asks(), wanted, "after {rounds:?} rounds");
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let load_ends = Ends(&ends);
        thread::sleep(PAUSE / 2);
        let acted = act();
        thread::sleep(PAUSE);
        drop(load_ends);
        load.join().expect("ab ends");
        acted
    });
    (wanted, acted)
}

/// Replaces nginx while a file is fetched that takes longer than that.
fn replaced_under_a_fetch(world: &World, old: Pid, pause: Duration) -> (Transcript, Pid) {
    let (out, url) = (world.path("got"), format!("http://{PROGRAM}:80/big"));
    let words = ["curl", "-sS", "--limit-rate", "1M", "-o", &out, &url];
    let (said, new) = thread::scope(|scope| {
        let fetch = scope.spawn(|| world.peer(&words).well().to_string());
        thread::sleep(PAUSE / 2);
        let new = replaced(world, old, pause);
        (fetch.join().expect("curl ends"), new)
    });
    let got = fs::read(&out).expect("what was fetched");
    (said + &peers::told("big", &got), new)
}

/// The end of a server. Lines of its begin with a time and the number of a process.
fn ended(server: Running) -> Transcript {
    let ended = server.end();
    let words = |line: &str| Some(format!("\n{}", line.split_once(": ")?.1));
    let mut said = ended.code;
    said.extend(ended.err.lines().filter_map(words));
    said
}

fn nginx(world: &World) -> Transcript {
    let (prefix, config) = (
        world.path(""),
        web::nginx_config(world, "daemon off; worker_processes 3"),
    );
    // It minds USR2 once its parent is gone, and not before, and becomes the program by the name that it was started by.
    let starts = format!(
        "$(command -v nginx) -p {prefix} -c {config} -e stderr & while ! [ -s {prefix}pid ]; do sleep 0.05; done"
    );
    let server = start(world, &["setsid", "sh", "-c", &starts]);
    let first = process(world, "pid", None);
    let _all = Group(getpgid(Some(first)).expect("it runs"));
    thread::sleep(PAUSE);
    let mut said = asked(world, 80);
    let page = format!("http://{PROGRAM}:80/index.html");
    let (loaded, (fetched, last)) = while_asked(world, &page, || {
        let (fetched, second) = replaced_under_a_fetch(world, first, PAUSE);
        let (again, third) = replaced_under_a_fetch(world, second, Duration::ZERO);
        taken_back(world, third);
        (fetched + &again, third)
    });
    said += &(loaded + &fetched);
    said += &asked(world, 80);
    signal(last, Signal::QUIT);
    said + &ended(server)
}

#[test]
fn nginx_is_replaced_by_a_new_program() {
    let needs = ["nginx -v", "curl --version", "ab -V", "wrk --version"];
    compare_by(Sockets::Member, &needs, nginx);
}

/// Its master process is a child of the one that began to listen.
fn nginx_in_the_background(world: &World) -> Transcript {
    let (prefix, config) = (
        world.path(""),
        web::nginx_config(world, "daemon on; worker_processes 3"),
    );
    let words = [
        "setsid", "nginx", "-p", &prefix, "-c", &config, "-e", "stderr",
    ];
    let server = start(world, &words);
    let master = process(world, "pid", None);
    let _all = Group(getpgid(Some(master)).expect("it runs"));
    if world.sockets != Sockets::Member {
        // Without a daemon its connections end with it, and one that is asked for in that moment.
        until_ended(server.pid());
    }
    let mut said = asked(world, 80);
    let page = format!("http://{PROGRAM}:80/index.html");
    let (loaded, ()) = while_asked(world, &page, || {
        for _ in 0..6 {
            signal(master, Signal::HUP);
            thread::sleep(PAUSE);
        }
    });
    said += &loaded;
    said += &asked(world, 80);
    signal(master, Signal::QUIT);
    until_ended(master);
    said + &ended(server)
}

#[test]
fn nginx_leaves_its_first_process() {
    let needs = ["nginx -v", "curl --version", "ab -V", "wrk --version"];
    compare_by(Sockets::Member, &needs, nginx_in_the_background);
}

#[test]
fn nginx_leaves_its_first_process_and_gets_its_device() {
    let needs = ["nginx -v", "curl --version", "ab -V", "wrk --version"];
    compare(&needs, nginx_in_the_background);
}

fn gunicorn(world: &World) -> Transcript {
    world.file("app.py", PYTHON);
    let at = format!("{PROGRAM}:8083");
    let line = format!("setsid gunicorn --log-level critical -p pid -w 3 -b {at} app:app");
    let words: Vec<&str> = line.split(' ').collect();
    let server = start(world, &words);
    let mut last = process(world, "pid", None);
    let _all = Group(getpgid(Some(last)).expect("it runs"));
    peers::answers(8083);
    let page = format!("http://{at}/index.html");
    let (mut said, last) = while_asked(world, &page, || {
        for _ in 0..2 {
            signal(last, Signal::USR2);
            let new = process(world, "pid.2", Some(last));
            thread::sleep(2 * PAUSE);
            signal(last, Signal::TERM);
            until_ended(last);
            // It takes the other name once it finds that it is alone.
            last = process(world, "pid", Some(last));
            assert_eq!(last, new);
        }
        last
    });
    said += &world.peer(&["curl", "-sS", &page]).well().to_string();
    signal(last, Signal::TERM);
    said + &ended(server)
}

#[test]
fn gunicorn_is_replaced_by_a_new_program() {
    let needs = ["gunicorn --version", "curl --version", "ab -V"];
    compare_by(Sockets::Member, &needs, gunicorn);
}
