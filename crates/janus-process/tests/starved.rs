//! Many writers that are told by epoll when there is room, and less memory than they want: none of them is forgotten.

use std::io::{IoSlice, IoSliceMut};
use std::thread;
use std::time::{Duration, Instant};

use janus::{BackendChoice, Runtime, wire};
use janus_process::{Errno, Event, Process, abi};

const CONNECTIONS: usize = 30;
/// Bytes that each sends.
const EACH: usize = 1_000_000;
/// Nothing here takes so long.
const LONG: Duration = Duration::from_secs(30);

fn goes_on() -> bool {
    true
}

fn process(end: wire::End, address: &str, buffers: u32) -> Process {
    let builder = Runtime::builder()
        .ignore_environment()
        .packet_buffers(buffers)
        .address(address.parse().expect("an address"))
        .backend(BackendChoice::wire(end));
    Process::start(builder).expect("a process")
}

/// Accepts all connections and sends on each what it takes, as an event loop does.
fn serve(server: &Process, listener: i32) {
    let epoll = server.epoll_create(0).expect("an instance");
    let watch = |op, fd, events: i32, data| {
        let events = events as u32;
        let done = server.epoll_ctl(epoll, op, fd, Event { events, data });
        done.expect("an open socket");
    };
    let bytes = vec![7; EACH];
    let mut left = Vec::new();
    for number in 0..CONNECTIONS {
        let (fd, _) = server
            .accept4(listener, abi::SOCK_NONBLOCK, goes_on)
            .expect("a connection");
        left.push((fd, EACH));
        watch(abi::EPOLL_CTL_ADD, fd, abi::EPOLLOUT, number as u64);
    }
    let (mut events, mut open) = ([Event::default(); 64], CONNECTIONS);
    while open > 0 {
        let told = server.epoll_wait(epoll, &mut events, Some(LONG));
        let told = told.expect("an instance");
        assert!(told > 0, "{open} writers are told nothing: {left:?}");
        for event in &events[..told] {
            let (fd, left) = &mut left[event.data as usize];
            match server.send(*fd, &[IoSlice::new(&bytes[..*left])], 0, goes_on) {
                Ok(sent) => *left -= sent,
                Err(error) => assert_eq!(error, Errno::EAGAIN),
            }
            if *left == 0 {
                server.close(*fd).expect("open");
                open -= 1;
            } else {
                // As programs do that read and write in turns.
                watch(abi::EPOLL_CTL_MOD, *fd, abi::EPOLLOUT, event.data);
            }
        }
    }
}

#[test]
fn every_writer_hears_of_room() {
    let (near, far) = wire::pair(wire::Config::default()).expect("a wire");
    let server = process(near, "192.0.2.1/24", 1_024);
    let client = process(far, "192.0.2.2/24", 65_536);
    let address = "192.0.2.1:7".parse().expect("an address");
    let socket = |process: &Process| {
        let fd = process.socket(abi::AF_INET, abi::SOCK_STREAM, 0);
        fd.expect("a socket")
    };
    let listener = socket(&server);
    server.bind(listener, address).expect("a free port");
    server.listen(listener, 100).expect("a free port");
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| serve(&server, listener));
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let fd = socket(&client);
                client
                    .connect(fd, Some(address), goes_on)
                    .expect("a server");
                let (mut all, mut into) = (0, vec![0; 65_536]);
                loop {
                    let mut into = [IoSliceMut::new(&mut into)];
                    match client.receive(fd, &mut into, 0, goes_on).expect("bytes") {
                        0 => break,
                        n => all += n,
                    }
                }
                assert_eq!(all, EACH);
                client.close(fd).expect("open");
            });
        }
    });
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
    server.end().expect("an end in order");
}
