//! Connections whose program ends, or becomes another, while other processes use them: these and the peers notice nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;

use crate::prefork::openssh_for;
use crate::running::Running;
use crate::upgrade::until_ended;
use crate::world::{PROGRAM, Sockets, Transcript, World, compare_by};

const PYTHON: &str = "/usr/bin/python3";
const LONG: Duration = Duration::from_secs(20);

struct Client(TcpStream);

impl Client {
    fn new(port: u16) -> Client {
        let stream = TcpStream::connect((PROGRAM, port)).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a time");
        Client(stream)
    }

    fn asks(&mut self, what: &str) {
        let line = format!("{what}\n");
        self.0.write_all(line.as_bytes()).expect("it is connected");
    }

    fn hears(&mut self) -> String {
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !said.ends_with(b"\n") && self.0.read(&mut byte).expect("an answer") > 0 {
            said.push(byte[0]);
        }
        String::from_utf8(said).expect("text")
    }

    fn asked(&mut self, what: &str) -> String {
        self.asks(what);
        self.hears()
    }

    /// All that comes after its own end.
    fn ends(self) -> String {
        let mut said = String::new();
        self.0
            .shutdown(std::net::Shutdown::Write)
            .expect("it is connected");
        let read = (&self.0)
            .read_to_string(&mut said)
            .map_err(|error| error.kind());
        format!("{read:?} {said}\n")
    }
}

fn server(world: &World, how: &str, port: u16) -> Running {
    let words = [
        PYTHON,
        &world.script("afterlife.py"),
        how,
        PROGRAM,
        &port.to_string(),
    ];
    let mut server = world.start(&words);
    server.says("listening");
    server
}

fn replaced(world: &World) -> Transcript {
    let mut server = server(world, "replaced", 7100);
    let mut first = Client::new(7100);
    let mut said = first.asked("one");
    // They wait to be accepted.
    let mut others = [(); 2].map(|()| Client::new(7100));
    others[0].asks("two");
    first.asks("three");
    server.write(b"go on\n");
    server.says("replaced");
    said += &first.hears();
    for at in 0..100 {
        said += &first.asked(&format!("{at}"));
    }
    said += &first.ends();
    let [mut second, mut third] = others;
    said += &(second.hears() + &second.asked("four") + &second.ends());
    said += &(third.asked("five") + &third.ends());
    said + &server.end().to_string()
}

#[test]
fn a_program_that_becomes_another_keeps_its_connections() {
    compare_by(Sockets::Member, &["/usr/bin/python3 --version"], replaced);
}

/// A server ends, another begins at the same port, and what the first one has accepted goes on.
fn outlived(world: &World) -> Transcript {
    let mut said = String::new();
    for (how, port) in ["leaves", "leaves_later", "sends"].into_iter().zip(7100..) {
        let mut before = server(world, how, port);
        let mut first = Client::new(port);
        if how == "leaves" {
            said += &first.asked("nought");
        }
        until_ended(before.pid());
        let next = server(world, "serves", port);
        let mut second = Client::new(port);
        before.write(b"go on\n");
        for at in 0..100 {
            said += &first.asked(&format!("{how} {at}"));
            said += &second.asked(&format!("{at}"));
        }
        said += &(first.ends() + &second.ends());
        said += &format!("{}{}", before.end(), next.end());
    }
    said
}

#[test]
fn connections_outlive_the_program_that_accepted_them() {
    compare_by(Sockets::Member, &["/usr/bin/python3 --version"], outlived);
}

/// A worker has connections from before it had TCP of its own, and its parent is killed.
fn worker(world: &World) -> Transcript {
    let server = server(world, "works", 7100);
    let mut first = Client::new(7100);
    let mut said = first.asked("nought");
    let mut second = Client::new(7100);
    let mut ask = |from: usize| {
        let lines = (from..from + 20).map(|at| {
            let line = format!("{at}");
            first.asked(&line) + &second.asked(&line)
        });
        lines.collect::<String>()
    };
    said += &ask(0);
    world.kill(&server);
    said += &ask(20);
    said += &(first.ends() + &second.ends());
    said + &server.end().to_string()
}

#[test]
fn connections_of_a_worker_are_its_own() {
    compare_by(Sockets::Member, &["/usr/bin/python3 --version"], worker);
}

/// Each connection has a process, and the parent of all is killed.
fn process_for_each(world: &World) -> Transcript {
    let server = server(world, "forks", 7100);
    let mut clients = [(); 3].map(|()| Client::new(7100));
    let mut said = String::new();
    for at in 0..250 {
        for client in &mut clients {
            said += &client.asked(&at.to_string());
        }
    }
    world.kill(&server);
    for at in 0..20 {
        for client in &mut clients {
            said += &client.asked(&at.to_string());
        }
    }
    for client in clients {
        said += &client.ends();
    }
    said + &server.end().to_string()
}

#[test]
fn a_process_for_each_connection_has_it_for_itself_in_the_end() {
    compare_by(
        Sockets::Member,
        &["/usr/bin/python3 --version"],
        process_for_each,
    );
}

/// A connection is claimed and not taken, again and again.
fn claimed_in_vain(world: &World) -> Transcript {
    let server = server(world, "claims", 7100);
    let [mut both, mut first] = [(); 2].map(|()| Client::new(7100));
    let mut said = String::new();
    for at in 0..3 {
        said += &both.asked(&at.to_string());
    }
    for at in 0..40 {
        said += &first.asked(&at.to_string());
    }
    said += &(first.ends() + &both.ends());
    said + &server.end().to_string()
}

#[test]
fn a_connection_that_is_claimed_and_not_taken_is_carried_on() {
    compare_by(
        Sockets::Member,
        &["/usr/bin/python3 --version"],
        claimed_in_vain,
    );
}

/// A worker that has TCP of its own uses a connection together with a child of its.
fn two_workers(world: &World) -> Transcript {
    let server = server(world, "works_together", 7100);
    let mut first = Client::new(7100);
    let mut said = first.asked("nought");
    let second = Client::new(7100);
    for at in 0..20 {
        said += &first.asked(&format!("{at}"));
    }
    said += &(first.ends() + &second.ends());
    said + &server.end().to_string()
}

#[test]
fn a_connection_that_two_workers_have_stays_where_both_reach_it() {
    compare_by(
        Sockets::Member,
        &["/usr/bin/python3 --version"],
        two_workers,
    );
}

/// A session goes on while the server that has begun it is started again.
fn sshd_is_restarted(world: &World) -> Transcript {
    let (config, client) = openssh_for(world);
    let with = |command| {
        let words = client.iter().map(String::as_str);
        words.chain([command]).collect::<Vec<&str>>()
    };
    let sshd = ["/usr/sbin/sshd", "-D", "-e", "-f", &config];
    let server = world.start(&sshd);
    let mut said = world.peer_in_time(&with("echo begun")).to_string();
    let mut session = world.start_peer(&with("cat"));
    session.write(b"one\n");
    session.says("one");
    server.signal(Signal::TERM);
    until_ended(server.pid());
    let next = world.start(&sshd);
    said += &world.peer_in_time(&with("echo again")).to_string();
    for line in ["two", "three"] {
        session.write(format!("{line}\n").as_bytes());
        session.says(line);
    }
    said += &session.end().to_string();
    // The session's process has had what it prints to.
    said += &server.end().code;
    said + &next.terminated().code
}

#[test]
fn sessions_outlive_their_sshd() {
    compare_by(
        Sockets::Member,
        &["ssh -V", "ls /usr/sbin/sshd"],
        sshd_is_restarted,
    );
}
