//! The example over a database of its own; where no PostgreSQL server is installed it says that it skips.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../../crates/janus-compat-tests/tests/support/postgres.rs"]
mod database;

use crate::load;
use crate::process::{PATIENCE, Server};

/// Asks once; the status and the body.
fn ask(server: &Server, method: &str, body: &str) -> (u16, String) {
    let mut stream = server.dial();
    let length = body.len();
    let head = format!(
        "{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// Until the database is there; says what is in it.
fn list(server: &Server) -> String {
    let begin = Instant::now();
    loop {
        match ask(server, "GET", "") {
            (200, body) => return body,
            (503, _) => assert!(begin.elapsed() < PATIENCE, "the database never comes"),
            (status, body) => panic!("{status} {body}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn notes_are_kept_while_the_database_comes_and_goes() {
    let Some(bin) = database::programs() else {
        let places = database::PLACES;
        println!("skipped: no PostgreSQL server below {places} (Debian's package postgresql)");
        return;
    };
    let mut database = database::Server::start(&bin);
    let place = format!(
        "host=127.0.0.1 port={} user=janus dbname=postgres",
        database.port
    );
    let server = Server::start("postgres", |command| {
        command.arg(&place);
    });
    assert_eq!(list(&server), "");
    // More at a time than there are sessions, on both cores.
    thread::scope(|scope| {
        for number in 0..40 {
            let server = &server;
            scope.spawn(move || {
                let (status, id) = ask(server, "POST", &format!("note {number}"));
                assert_eq!(status, 201, "{id}");
                id.trim().parse::<u64>().expect("its number");
            });
        }
    });
    assert_eq!(ask(&server, "POST", "it's; drop table notes").0, 201);
    assert_eq!(ask(&server, "POST", &"x".repeat(5_000)).0, 413);
    assert_eq!(ask(&server, "DELETE", "").0, 405);
    let notes = list(&server);
    assert!(notes.starts_with("41 it's; drop table notes\n"), "{notes}");
    assert_eq!(notes.lines().count(), 10);

    // Every session that the pools have is broken by this.
    database.restart(&bin);
    assert_eq!(list(&server), notes);
    // One that keeps no sessions when it ends.
    let idle = Server::start("postgres", |command| {
        command.arg(&place);
    });
    assert_eq!(list(&idle), notes);
    let begin = Instant::now();
    idle.ends_well();
    assert!(
        begin.elapsed() < Duration::from_secs(7),
        "no sooner than it must"
    );

    load::by_clients(server.at, || server.terminate());
    assert_eq!(server.end().code(), Some(0));
}
