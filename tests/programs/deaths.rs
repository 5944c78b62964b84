//! Programs on a daemon's device that are killed while the kernel's TCP waits for their answer: it is reset at once, as by a kernel whose process dies.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::daemon::{OURS, Place, more_descriptors, said};
use crate::library;
use crate::peers::{self, HTTP};
use crate::running::Running;
use crate::support::privileged::{in_own_space, run, skip, tools};
use crate::world::PEER;

const OURS_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PATIENCE: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_secs(1);

/// The daemon asks 16 peers in a millisecond, if it is not kept from it.
const EACH: Duration = Duration::from_micros(200);

/// Reads until the connection ends; how it does.
fn ends(stream: &mut TcpStream) -> ErrorKind {
    let mut into = [0; 4_096];
    loop {
        match stream.read(&mut into) {
            Ok(0) => return ErrorKind::UnexpectedEof,
            Ok(_) => {}
            Err(error) => return error.kind(),
        }
    }
}

fn are_reset(streams: &mut [TcpStream], since: Instant) -> Duration {
    for (at, stream) in streams.iter_mut().enumerate() {
        assert_eq!(ends(stream), ErrorKind::ConnectionReset, "{at}");
    }
    let took = since.elapsed();
    assert!(took < AT_ONCE + EACH * streams.len() as u32, "{took:?}");
    took
}

fn killed(program: Running) -> Instant {
    let since = Instant::now();
    program.signal(Signal::KILL);
    assert_eq!(program.end().code, "signal 9");
    since
}

/// A connection to the killed, which has sent so much of a request.
fn asks(to: IpAddr, some: &str) -> TcpStream {
    let mut stream = TcpStream::connect((to, 80)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(some.as_bytes()).expect("it is open");
    stream
}

fn kernel_waits() {
    let place = Place::new("deaths");
    run("ip -6 address add 2001:db8::2/64 dev janus0 nodad").expect("a namespace of our own");
    let daemon = place.daemon_at(&format!("{OURS}/24,{OURS_6}/64"));
    let mut command = place.member(library::janus());
    command.args(["serve", "--listen", "[::]:80", "--cores", "1"]);
    let mut server = Running::start(command, "janus serve");
    server.says("http://");
    let ours: Ipv4Addr = OURS.parse().expect("an address");
    let half = "GET / HTTP/1.1\r\nHost:";
    let clients = said("JANUS_CONNECTIONS", 100);
    more_descriptors();
    let mut streams: Vec<TcpStream> = (0..clients)
        .map(|at| match at % 4 {
            0 => asks(ours.into(), half),
            1 => asks(OURS_6.into(), half),
            2 => asks(ours.into(), ""),
            _ => asks(OURS_6.into(), ""),
        })
        .collect();
    // Half a request is answered by nothing.
    std::thread::sleep(Duration::from_millis(200));
    let since = killed(server);
    let took = are_reset(&mut streams, since);
    println!("{clients} of the kernel's that had connected were reset in {took:?}");

    // It has begun the connection.
    let listener = TcpListener::bind((PEER, HTTP)).expect("a free port");
    let url = format!("http://{PEER}:{HTTP}/");
    let curl = place.program("0", &["curl", "-sS", &url]);
    let (mut stream, _) = listener.accept().expect("it connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let mut request = [0; 16];
    stream.read_exact(&mut request).expect("a request");
    let since = killed(curl);
    are_reset(&mut [stream], since);
    // Another's connections go on.
    drop(listener);
    peers::http();
    let url = format!("{url}small");
    let ended = place.program("0", &["curl", "-sS", &url]).end().well();
    assert_eq!(ended.out, "hello\n");
    let ended = daemon.terminated().well();
    assert!(ended.out.contains("2 died, 0 cut off"), "{ended}");
}

#[test]
fn the_kernel_is_reset_when_a_program_is_killed() {
    if let Err(why) = tools(&["ip -V", "curl --version", "setpriv --version"]) {
        return skip(&why);
    }
    if let Err(why) = in_own_space(kernel_waits) {
        skip(&why);
    }
}
