//! Ports behind the portal, which the kernel has too.

use std::net::TcpListener;

use janus::Runtime;

use super::*;

/// A socket bound to a port that the kernel has as well, though free when it was chosen; and who has it there.
fn bound_to_a_taken_port(process: &Process) -> (RawFd, TcpListener) {
    for _ in 0..100 {
        let fd = process.socket(abi::AF_INET, abi::SOCK_STREAM, 0);
        let fd = fd.expect("a socket");
        let any = "127.0.0.1:0".parse().expect("an address");
        process.bind(fd, any).expect("a free port");
        // Asked past what notes that the program knows.
        let chosen = process.on(fd, |sockets, socket, _| sockets.getsockname(socket));
        if let Ok(listener) = TcpListener::bind(chosen.expect("bound")) {
            return (fd, listener);
        }
        process.close(fd).expect("open");
    }
    panic!("no port is free");
}

#[test]
fn a_port_that_was_only_chosen_gives_way() {
    let _turn = own::BY_TURNS.lock();
    let process = Process::start(Runtime::builder().ignore_environment());
    let process = process.expect("a process");
    let (fd, taken) = bound_to_a_taken_port(&process);
    assert_eq!(process.listen(fd, 1), Ok(()));
    let (ours, theirs) = (process.getsockname(fd), taken.local_addr());
    let (ours, theirs) = (ours.expect("bound"), theirs.expect("bound"));
    assert_eq!(ours.ip(), theirs.ip());
    assert!(ours.port() != 0 && ours.port() != theirs.port());
    std::net::TcpStream::connect(process.reachable_at(ours)).expect("it listens");
    // One that the program was told of, or has named, is what it wants.
    let (fd, _taken) = bound_to_a_taken_port(&process);
    process.getsockname(fd).expect("bound");
    assert_eq!(process.listen(fd, 1), Err(Errno::EADDRINUSE));
    let fd = process.socket(abi::AF_INET, abi::SOCK_STREAM, 0);
    let fd = fd.expect("a socket");
    process.bind(fd, theirs).expect("free in here");
    assert_eq!(process.listen(fd, 1), Err(Errno::EADDRINUSE));
    drop(taken);
    assert_eq!(process.listen(fd, 1), Ok(()));
    process.end().expect("an end in order");
}
