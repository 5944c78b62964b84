//! Python: every way it waits, as a server and as a client, and calls one by one beside those of the kernel's sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::peers;
use crate::world::{PEER, PROGRAM, Sockets, Transcript, World, compare, compare_by};

/// Debian's, not one that somebody has put before it.
const PYTHON: &str = "/usr/bin/python3";
const CONNECTIONS: &str = "12";

fn serves(world: &World) -> Transcript {
    let script = world.script("echo.py");
    let ways = [
        "blocking",
        "select",
        "poll",
        "epoll",
        "selectors",
        "asyncio",
        "socketserver",
        "forking",
        "cloned",
        "bound",
        "mapped",
        "programs",
        "sent",
    ];
    let mut said = String::new();
    for (way, port) in ways.into_iter().zip(7000..) {
        let port = port.to_string();
        let words = [PYTHON, &script, "serve", way, PROGRAM, &port, CONNECTIONS];
        let mut server = world.start(&words);
        server.says("listening");
        // A client of selectors' would wait for ever where both only send.
        let asks = if way == "selectors" {
            "blocking"
        } else {
            "poll"
        };
        let ask = [PYTHON, &script, "ask", asks, PROGRAM, &port, CONNECTIONS];
        let asked = world.peer(&ask);
        said += &format!("{way} {asked}{}", server.end());
    }
    said
}

#[test]
fn servers_of_every_way_to_wait() {
    compare(&["/usr/bin/python3 --version"], serves);
}

#[test]
fn servers_of_every_way_to_wait_with_a_daemon() {
    compare_by(Sockets::Member, &["/usr/bin/python3 --version"], serves);
}

fn asks(world: &World) -> Transcript {
    let script = world.script("echo.py");
    let mut said = String::new();
    for (way, port) in ["blocking", "select", "poll", "epoll", "asyncio"]
        .into_iter()
        .zip(7000..)
    {
        let number = port.to_string();
        let words = [
            PYTHON,
            &script,
            "serve",
            "asyncio",
            PEER,
            &number,
            CONNECTIONS,
        ];
        let server = world.start_peer(&words);
        peers::listens(port);
        let words = [PYTHON, &script, "ask", way, PEER, &number, CONNECTIONS];
        let asked = world.run(&words);
        said += &format!("{way} {asked}{}", server.end());
    }
    said
}

#[test]
fn clients_of_every_way_to_wait() {
    compare(&["/usr/bin/python3 --version"], asks);
}

/// Two programs at one port, and one that serves.
fn reuses(world: &World) -> Transcript {
    let script = world.script("reuse.py");
    let said = world.run(&[PYTHON, &script, PROGRAM, "7030"]).well();
    let script = world.script("echo.py");
    let mut server = world.start(&[PYTHON, &script, "serve", "blocking", PROGRAM, "7031", "1"]);
    server.says("listening");
    let asked = world.peer(&[PYTHON, &script, "ask", "poll", PROGRAM, "7031", "1"]);
    format!("{said}{asked}{}", server.end())
}

#[test]
fn a_port_of_two_programs_with_a_daemon() {
    compare_by(Sockets::Member, &["/usr/bin/python3 --version"], reuses);
}

/// Sockets that children make.
fn children(world: &World) -> Transcript {
    let script = world.script("echo.py");
    let server = world.start_peer(&[PYTHON, &script, "serve", "asyncio", PEER, "9001", "50"]);
    peers::listens(9001);
    let script = world.script("children.py");
    let said = world.run(&[PYTHON, &script, PROGRAM, PEER, "9001"]);
    format!("{}{}", said.well(), server.end())
}

#[test]
fn children_make_sockets() {
    compare(&["/usr/bin/python3 --version"], children);
}

#[test]
fn children_make_sockets_with_a_daemon() {
    compare_by(Sockets::Member, &["/usr/bin/python3 --version"], children);
}

fn send_back(mut stream: TcpStream) -> std::io::Result<()> {
    let mut piece = vec![0; 65_536];
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            3 if piece.starts_with(b"end") => return Ok(()),
            got => stream.write_all(&piece[..got])?,
        }
    }
}

fn calls(world: &World) -> Transcript {
    let listener = TcpListener::bind((PEER, 9000)).expect("a free port");
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || send_back(stream));
        }
    });
    let (script, file) = (world.script("calls.py"), world.file("sent", peers::big()));
    world
        .run(&[PYTHON, &script, PEER, "9000", &file])
        .well()
        .to_string()
}

#[test]
fn calls_one_by_one() {
    compare(&["/usr/bin/python3 --version"], calls);
}
