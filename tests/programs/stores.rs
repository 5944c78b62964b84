//! Stores: redis, which forks to save while it serves, and memcached, whose threads hand connections to each other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::peers;
use crate::world::{PROGRAM, Transcript, World, compare};

fn redis(world: &World) -> Transcript {
    let dir = world.path("");
    let line = format!("redis-server --bind {PROGRAM} --port 6379 --protected-mode no --dir {dir}");
    let mut words: Vec<&str> = line.split(' ').collect();
    words.extend(["--save", ""]);
    let mut server = world.start(&words);
    server.says("Ready to accept connections");
    let ask = |words: &[&str]| {
        let mut all = vec!["redis-cli", "-h", PROGRAM];
        all.extend(words);
        world.peer(&all).well().out
    };
    let mut said = ask(&["ping"]);
    said += &ask(&["set", "name", "janus"]);
    let line =
        format!("redis-benchmark -h {PROGRAM} -n 6000 -c 20 -t set,get,lpush,lrange_100 --csv");
    let words: Vec<&str> = line.split(' ').collect();
    let load = world.start_peer(&words);
    said += &ask(&["bgsave"]);
    let load = load.end().well();
    for line in load.out.lines() {
        // The names of what was measured; the figures are the day's.
        said += line.split(',').next().unwrap_or_default();
    }
    for _ in 0..100 {
        if ask(&["info", "persistence"]).contains("rdb_bgsave_in_progress:0") {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let info = ask(&["info", "persistence"]);
    let state = info
        .lines()
        .filter(|line| line.starts_with("rdb_last_bgsave_status"));
    said.extend(state);
    said += &ask(&["get", "name"]);
    said += &ask(&["shutdown", "nosave"]);
    said + &server.end().code
}

#[test]
fn redis_saves_while_it_serves() {
    compare(
        &[
            "redis-server --version",
            "redis-cli --version",
            "redis-benchmark --version",
        ],
        redis,
    );
}

const MEMCACHED: u16 = 11211;

/// Sets and gets values of its own.
fn store_and_fetch(number: usize) -> usize {
    let mut into = TcpStream::connect((PROGRAM, MEMCACHED)).expect("a server");
    let mut from = BufReader::new(into.try_clone().expect("a descriptor"));
    let mut right = 0;
    for at in 0..100 {
        let value = format!("{number} has {at} ").repeat(1 + at * 20);
        let key = format!("key-{number}-{at}");
        let set = format!("set {key} 0 0 {}\r\n{value}\r\nget {key}\r\n", value.len());
        into.write_all(set.as_bytes()).expect("a connection");
        let mut line = String::new();
        from.read_line(&mut line).expect("an answer");
        assert_eq!(line, "STORED\r\n");
        line.clear();
        from.read_line(&mut line).expect("an answer");
        assert_eq!(line, format!("VALUE {key} 0 {}\r\n", value.len()));
        let mut got = vec![0; value.len() + "\r\nEND\r\n".len()];
        from.read_exact(&mut got).expect("a value");
        right += usize::from(got == format!("{value}\r\nEND\r\n").as_bytes());
    }
    right
}

fn memcached(world: &World) -> Transcript {
    let line = format!("memcached -u root -l {PROGRAM} -p {MEMCACHED} -t 4 -U 0");
    let words: Vec<&str> = line.split(' ').collect();
    let server = world.start(&words);
    peers::answers(MEMCACHED);
    let clients: Vec<_> = (0..12)
        .map(|number| thread::spawn(move || store_and_fetch(number)))
        .collect();
    let right: Vec<usize> = clients
        .into_iter()
        .map(|client| client.join().expect("a client that is content"))
        .collect();
    format!("{right:?} {}", server.terminated())
}

#[test]
fn memcached_of_four_threads() {
    compare(&["memcached --version"], memcached);
}
