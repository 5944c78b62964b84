//! Members that join, serve and go all the time, some in order, some without a word, some killed; and a few that stay, whose connections must not
//! notice. In a process of its own, so that its descriptors can be counted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use janus_daemon::MEMBERS_MAX;
use janus_seeds::Random;
use janus_shm::Message;

use crate::bare::{Bare, Echo};
use crate::world::{LONG, World};

/// Says to a process that it is the one that counts.
const INSIDE: &str = "DAEMON_TEST_CHURN";
/// Lives that begin in a second, and as many end.
const LIVES: usize = 80;
const NAMES: [&str; 3] = ["red", "green", "blue"];

/// Members' lives so far.
#[derive(Default)]
struct Tally {
    joined: AtomicU64,
    left: AtomicU64,
    died: AtomicU64,
    datagrams: AtomicU64,
    again: AtomicU64,
}

fn add(counter: &AtomicU64, some: u64) {
    counter.fetch_add(some, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Every descriptor of this process, and what it is.
fn descriptors() -> BTreeMap<String, PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").expect("it is there");
    let named = |it: std::fs::DirEntry| {
        let to = std::fs::read_link(it.path()).unwrap_or_default();
        (it.file_name().to_string_lossy().into_owned(), to)
    };
    all.flatten().map(named).collect()
}

pub(crate) fn in_time(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One life by hand: it is asked for datagrams until its time is over, and ends in order or not.
fn life(world: &World, tally: &Tally, port: u16, number: u64, random: &mut Random, long: Duration) {
    let begin = Instant::now();
    let mut bare = Bare::new(&world.socket);
    let mut echo = Echo::new(&bare, port);
    echo.fills(&bare);
    bare.joins();
    bare.claims(1, true, port);
    bare.claims(2, false, port);
    add(&tally.joined, 1);
    let mut asked = 0;
    while asked == 0 || begin.elapsed() < long {
        let text = format!("{port} life {number} {asked} ").repeat(1 + random.below(40));
        let answer = answered(&world.echoed(port, &text), &bare, &mut echo);
        assert!(answer.0 == text, "another answer than {text}: {}", answer.0);
        add(&tally.again, u64::from(answer.1 - 1));
        add(&tally.datagrams, 1);
        asked += 1;
        std::thread::sleep((long / 4).min(Duration::from_millis(50)));
    }
    echo.serves(&bare);
    echo.is_whole(&bare);
    if random.below(2) == 0 {
        bare.leaves();
        add(&tally.left, 1);
    } else {
        bare.dies();
        add(&tally.died, 1);
    }
}

/// Serves until the client has its answer.
fn answered(
    told: &Receiver<std::io::Result<(String, u32)>>,
    bare: &Bare,
    echo: &mut Echo,
) -> (String, u32) {
    loop {
        echo.serves(bare);
        match told.recv_timeout(Duration::from_micros(500)) {
            Ok(answer) => return answer.expect("an answer"),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the client has ended"),
        }
    }
}

/// Lives of a program with a runtime, each in order.
fn runtimes(world: &World, tally: &Tally, port: u16, until: Instant) {
    for number in 0.. {
        if Instant::now() >= until {
            break;
        }
        let member = world.member(port, "a runtime");
        add(&tally.joined, 1);
        let text = format!("{port} life {number} ").repeat(1 + number % 2_000);
        let answer = world.asks(port, &text).expect("an answer");
        assert!(answer == format!("a runtime: {text}"), "life {number}");
        member.ends();
        add(&tally.left, 1);
    }
}

/// Lives of a process, each killed while it is asked.
fn processes(world: &World, tally: &Tally, port: u16, until: Instant) {
    for number in 0.. {
        if Instant::now() >= until {
            break;
        }
        let mut process = world.process(port);
        add(&tally.joined, 1);
        let text = format!("{port} life {number} ").repeat(20_000);
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| world.asks_for(port, &text, Duration::from_millis(200)));
            std::thread::sleep(Duration::from_millis(number % 20));
            process.kill().expect("it runs");
            process.wait().expect("it has ended");
            // Whole, or cut, but nothing else.
            if let Ok(answer) = asks.join().expect("no panic") {
                assert!(format!("killed: {text}") == answer, "{number}");
            }
        });
        add(&tally.died, 1);
    }
}

/// So many members at a time, for so long.
fn crowd(world: &World, tally: &Tally, members: usize, time: Duration) {
    let until = Instant::now() + time;
    let long = Duration::from_secs(members as u64) / LIVES as u32;
    std::thread::scope(|scope| {
        for member in 0..members {
            scope.spawn(move || {
                let mut random = Random::new(member as u64);
                for number in 0.. {
                    if Instant::now() >= until {
                        break;
                    }
                    let long = long.mul_f64(0.5 + random.below(100) as f64 / 100.0);
                    let port = 2_000 + member as u16;
                    life(world, tally, port, number, &mut random, long);
                }
            });
        }
        scope.spawn(move || runtimes(world, tally, 3_000, until));
        scope.spawn(move || processes(world, tally, 3_001, until));
    });
}

/// All places are free: beside those that are there as many join as there can be, and no more. How many did.
pub(crate) fn all_join(world: &World, there: usize) -> u64 {
    let join = |_| {
        let mut bare = Bare::new(&world.socket);
        bare.joins();
        bare
    };
    let all: Vec<Bare> = (there..MEMBERS_MAX).map(join).collect();
    let one_more = Bare::new(&world.socket);
    let Some(Message::Refused { why, .. }) = one_more.hears() else {
        panic!("there are more members than can be");
    };
    assert!(why.contains("members already"), "{why}");
    let count = all.len() as u64;
    all.into_iter().for_each(Bare::leaves);
    count
}

#[test]
fn members_come_and_go_and_the_others_notice_nothing() {
    if std::env::var_os(INSIDE).is_some() {
        return churn();
    }
    let this = std::env::current_exe().expect("a path");
    let name = "churn::members_come_and_go_and_the_others_notice_nothing";
    let mut command = Command::new(this);
    command.args(["--exact", name, "--nocapture"]);
    let ended = command.env(INSIDE, "1").status().expect("it runs");
    assert!(ended.success(), "{ended}");
}

fn churn() {
    let seconds = std::env::var("JANUS_CHURN").map_or(3, |it| it.parse().expect("seconds"));
    let time = Duration::from_secs(seconds);
    let world = World::new("churn");
    let tally = Tally::default();
    let stop = Arc::new(AtomicBool::new(false));
    let staying: Vec<_> = (80..).zip(NAMES).collect();
    let members: Vec<_> = (staying.iter())
        .map(|(port, name)| world.member(*port, name))
        .collect();
    let connections: Vec<_> = (staying.iter().chain(&staying))
        .map(|(port, name)| world.steady(*port, name, &stop))
        .collect();
    let begin = Instant::now();
    crowd(&world, &tally, 2, time / 4);
    in_time("deaths are noticed", || {
        world.counters().died.get() == get(&tally.died)
    });
    let all = all_join(&world, staying.len());
    // What a process makes when it is first needed is there by now.
    let before = descriptors();
    crowd(&world, &tally, 64, time * 3 / 4);
    let lasted = begin.elapsed();
    stop.store(true, Ordering::Release);
    let bytes: u64 = (connections.iter())
        .map(|told| told.recv_timeout(LONG).expect("it lives"))
        .map(|bytes| bytes.expect("it was not disturbed"))
        .sum();
    let (joined, left, died) = (get(&tally.joined), get(&tally.left), get(&tally.died));
    let (joined, left) = (joined + staying.len() as u64 + all, left + all);
    let counted = world.counters();
    in_time("deaths are noticed", || counted.died.get() == died);
    assert_eq!((counted.joined.get(), counted.left.get()), (joined, left));
    println!(
        "{lasted:?}: {joined} joined, {left} left, {died} died, {:.0} of these a second; {} datagrams, {} of them again; {bytes} bytes on \
         {} connections that stayed; {counted}",
        (joined + left + died) as f64 / lasted.as_secs_f64(),
        get(&tally.datagrams),
        get(&tally.again),
        connections.len(),
    );
    all_join(&world, staying.len());
    let begin = Instant::now();
    while descriptors().len() > before.len() {
        let open = descriptors();
        assert!(
            begin.elapsed() < LONG / 3,
            "left open: {before:#?}, {open:#?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    members.into_iter().for_each(crate::world::Member::ends);
    let counted = world.ends();
    let gone = counted.left.get() + counted.died.get();
    assert_eq!((counted.joined.get(), counted.cut_off.get()), (gone, 0));
    assert_eq!(counted.left_open.get(), 0);
}
