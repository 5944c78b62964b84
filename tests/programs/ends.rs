//! Ends of programs, their children, and programs on a Janus that cannot start.

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::library;
use crate::peers::{self, HTTP};
use crate::support::privileged::skip;
use crate::world::{PEER, Sockets, Transcript, World, compare, in_world};

const PYTHON: &str = "/usr/bin/python3";
const COUNTS: u16 = 9000;

/// A peer that reads each connection to its end; how much came.
fn counts() -> Receiver<String> {
    let listener = TcpListener::bind((PEER, COUNTS)).expect("a free port");
    let (told, count) = channel();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut all = Vec::new();
            let end = stream.read_to_end(&mut all).map_err(|error| error.kind());
            let _ = told.send(format!("{} bytes, {:?}\n", all.len(), end.map(|_| ())));
        }
    });
    count
}

fn ends(world: &World) -> Transcript {
    let (script, port) = (world.script("ends.py"), COUNTS.to_string());
    let count = counts();
    let mut said = String::new();
    for how in [
        "returns",
        "leaves",
        "fails",
        "waits",
        "replaced",
        "replaced_while_connected",
        "forked",
        "terminated",
        "told_again_and_again",
    ] {
        said += &format!("{how} {}", world.run(&[PYTHON, &script, how, PEER, &port]));
        let came = count.recv_timeout(Duration::from_secs(10));
        said += &came.unwrap_or_else(|_| "the connection did not end\n".into());
    }
    said
}

#[test]
fn ends_of_programs() {
    compare(&["/usr/bin/python3 --version"], ends);
}

/// On the kernel's sockets this works.
fn what_does_not_work(world: &World) {
    let (script, port) = (world.script("ends.py"), COUNTS.to_string());
    let count = counts();
    let words = [PYTHON, &script, "replaced_with_sockets", PEER, &port];
    let ended = world.run(&words).well();
    assert_eq!(ended.out, "EBUSY\n", "{ended}");
    assert!(ended.err.contains("cannot be replaced"), "{ended}");
    let came = count.recv_timeout(Duration::from_secs(10));
    assert_eq!(came.as_deref(), Ok("10 bytes, Ok(())\n"));
}

#[test]
fn what_does_not_work_says_so() {
    if let Err(why) = in_world(
        Sockets::Preloaded,
        &["/usr/bin/python3 --version"],
        what_does_not_work,
    ) {
        skip(&why);
    }
}

/// A device that nobody has: the program goes on with the kernel's sockets, and it is said once.
fn without_janus(world: &World) {
    peers::http();
    let url = format!("http://{PEER}:{HTTP}/small?[1-3]");
    let mut command = world.command(&["curl", "-sS", &url]);
    command.env("LD_PRELOAD", library::library());
    command
        .env("JANUS_BACKEND", "xdp")
        .env("JANUS_XDP_INTERFACE", "none0");
    let ended = crate::running::Running::start(command, "curl").end().well();
    assert_eq!(ended.out.matches("bytes").count(), 3, "{ended}");
    assert_eq!(ended.err.matches("janus: ").count(), 1, "{ended}");
}

#[test]
fn a_program_goes_on_where_janus_cannot_start() {
    if let Err(why) = in_world(Sockets::Kernel, &["curl --version"], without_janus) {
        skip(&why);
    }
}
