//! nginx, which begins its workers anew many times while it is asked: `JANUS_RELOADS` says how often.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::peers;
use crate::running::Running;
use crate::support::privileged::skip;
use crate::web::start_nginx;
use crate::world::{PROGRAM, Sockets, World, in_world};

const WORKERS: usize = 4;
/// Without anything said.
const RELOADS: u32 = 10;
/// New workers come sooner than this, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);

/// Its children.
fn workers(server: &Running) -> BTreeSet<u32> {
    let id = server.id();
    let path = format!("/proc/{id}/task/{id}/children");
    let text = fs::read_to_string(path).expect("it runs");
    let numbers = text.split_whitespace().filter_map(|it| it.parse().ok());
    numbers.collect()
}

fn reloads(world: &World) {
    let said = std::env::var("JANUS_RELOADS");
    let times = said.map_or(RELOADS, |it| it.parse().expect("a number"));
    let server = start_nginx(world, &format!("worker_processes {WORKERS}"));
    peers::answers(80);
    let url = format!("http://{PROGRAM}/index.html");
    // A connection for each request: one that is kept may be closed just when the next is sent, as HTTP has it.
    let words: Vec<&str> = "wrk -t 1 -c 16 -d 100000 --timeout 10s -H"
        .split(' ')
        .collect();
    let load = world.start_peer(&[&words[..], &["Connection: close", &url]].concat());
    // It is asked to end by a signal, which it heeds once it has begun.
    thread::sleep(Duration::from_millis(500));
    for reload in 0..times {
        let before = workers(&server);
        server.signal(Signal::HUP);
        let begin = Instant::now();
        while workers(&server).difference(&before).count() < WORKERS {
            let late = begin.elapsed() > PATIENCE;
            assert!(!late, "no new workers after reload {reload}");
            thread::sleep(Duration::from_millis(2));
        }
    }
    load.signal(Signal::INT);
    let ended = load.end().well();
    let told = |what: &str| ended.out.lines().find(|line| line.contains(what));
    assert_eq!((told("Socket errors"), told("Non-2xx")), (None, None));
    let requests = told("requests in")
        .expect("what wrk says")
        .trim()
        .to_owned();
    assert!(!requests.starts_with("0 "), "{ended}");
    println!("{times} reloads: {requests}, none failed");
    server.signal(Signal::QUIT);
    server.end().well();
}

fn reloaded(sockets: Sockets) {
    let needs = ["nginx -v", "wrk --version"];
    if let Err(why) = in_world(sockets, &needs, reloads) {
        skip(&why);
    }
}

#[test]
fn nginx_is_reloaded_again_and_again() {
    reloaded(Sockets::Preloaded);
}

/// Its workers are members of a daemon, each with connections of its own.
#[test]
fn nginx_is_reloaded_again_and_again_with_a_daemon() {
    reloaded(Sockets::Member);
}
