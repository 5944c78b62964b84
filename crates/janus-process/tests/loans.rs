//! Received bytes lent to the program: what is done with them, by whom, and how often.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use janus::{BackendChoice, Runtime, wire};
use janus_process::{Errno, Loan, Process, abi};

/// Nothing here takes so long.
const LONG: Duration = Duration::from_secs(60);

fn goes_on() -> bool {
    true
}

/// A connection between two processes, of which the first, the server, has so many packet buffers: each with its descriptor.
fn connection_with(buffers: u32) -> [(Arc<Process>, i32); 2] {
    let (near, far) = wire::pair(wire::Config::default()).expect("a wire");
    let start = |end, address: &str, buffers| {
        let builder = Runtime::builder()
            .ignore_environment()
            .packet_buffers(buffers)
            .address(address.parse().expect("an address"))
            .backend(BackendChoice::wire(end));
        Arc::new(Process::start(builder).expect("a process"))
    };
    let (server, client) = (
        start(near, "192.0.2.1/24", buffers),
        start(far, "192.0.2.2/24", 65_536),
    );
    let socket = |process: &Process| {
        let fd = process.socket(abi::AF_INET, abi::SOCK_STREAM, 0);
        fd.expect("a socket")
    };
    let address = "192.0.2.1:7".parse().expect("an address");
    let (listener, fd) = (socket(&server), socket(&client));
    server.bind(listener, address).expect("a free port");
    server.listen(listener, 1).expect("a free port");
    let connected = client.connect(fd, Some(address), goes_on);
    connected.expect("a connection");
    let (accepted, _) = server.accept4(listener, 0, goes_on).expect("a connection");
    [(server, accepted), (client, fd)]
}

fn connection() -> [(Arc<Process>, i32); 2] {
    connection_with(65_536)
}

fn lent(process: &Process, fd: i32) -> Loan {
    let received = process.receive_buf(fd, 0, goes_on).expect("bytes");
    received.expect("not the end")
}

#[test]
fn an_echo_without_a_copy_carries_much() {
    const ALL: usize = 2_000_000;
    let [(server, accepted), (client, fd)] = connection();
    // The server's process outlives its thread, and sends what that has left.
    let here = server.clone();
    let echo = thread::spawn(move || {
        let mut all = 0;
        while let Some(loan) = server.receive_buf(accepted, 0, goes_on).expect("bytes") {
            assert_eq!(
                server.send_buf(accepted, loan, goes_on).map(|sent| sent.0),
                Ok(loan.len)
            );
            all += loan.len;
        }
        server.close(accepted).expect("open");
        all
    });
    let writer = {
        let client = client.clone();
        thread::spawn(move || {
            let bytes: Vec<u8> = (0..ALL).map(|i| (i % 251) as u8).collect();
            let sent = client.send(fd, &[IoSlice::new(&bytes)], 0, goes_on);
            assert_eq!(sent, Ok(ALL));
            client.shutdown(fd, abi::SHUT_WR).expect("connected");
        })
    };
    let (mut got, mut bytes) = (0, vec![0; 65_536]);
    loop {
        let n = client.receive(fd, &mut [IoSliceMut::new(&mut bytes)], 0, goes_on);
        let n = n.expect("bytes");
        if n == 0 {
            break;
        }
        let mut counted = bytes[..n].iter().zip(got..);
        assert!(counted.all(|(byte, at)| *byte == (at % 251) as u8));
        got += n;
    }
    writer.join().expect("all is written");
    assert_eq!((got, echo.join().expect("an end")), (ALL, ALL));
    here.end().expect("an end in order");
}

#[test]
fn a_loan_is_given_back_once_by_any_thread() {
    let [(server, accepted), (client, fd)] = connection();
    let send = |text: &[u8]| client.send(fd, &[IoSlice::new(text)], 0, goes_on);
    assert_eq!(send(b"first"), Ok(5));
    let first = lent(&server, accepted);
    assert_eq!(first.len, 5);
    let (other, key) = (server.clone(), first.key);
    let released = thread::spawn(move || other.release(key));
    assert_eq!(released.join().expect("an end"), Ok(()));
    assert_eq!(server.release(first.key), Err(Errno::EINVAL));
    // The next has the same place, which the old key does not open.
    assert_eq!(send(b"second"), Ok(6));
    let second = lent(&server, accepted);
    assert_eq!(server.release(first.key), Err(Errno::EINVAL));
    assert!(matches!(
        server.send_buf(accepted, first, goes_on),
        Err(Errno::EINVAL)
    ));
    // Nowhere to go: it stays the program's.
    assert!(matches!(
        server.send_buf(999, second, goes_on),
        Err(Errno::EBADF)
    ));
    let outside = Loan { len: 7, ..second };
    assert!(matches!(
        server.send_buf(accepted, outside, goes_on),
        Err(Errno::EINVAL)
    ));
    let part = Loan { len: 3, ..second };
    let sent = server.send_buf(accepted, part, goes_on).expect("connected");
    assert!(matches!(sent, (3, None)));
    assert_eq!(server.release(second.key), Err(Errno::EINVAL));
    let mut into = [0; 8];
    let got = client.receive(fd, &mut [IoSliceMut::new(&mut into)], 0, goes_on);
    assert_eq!((got, &into[..3]), (Ok(3), &b"sec"[..]));
    assert_eq!(server.release(0), Err(Errno::EINVAL));
    // What is lent when the process ends can be given back still.
    assert_eq!(send(b"third"), Ok(5));
    let third = lent(&server, accepted);
    server.end().expect("an end in order");
    assert_eq!(server.release(third.key), Ok(()));
    assert!(matches!(
        server.receive_buf(accepted, 0, goes_on),
        Err(Errno::EBADF)
    ));
}

/// A program that keeps all it is lent slows its peer down to what memory is left, and goes on when it gives them back.
#[test]
fn all_buffers_may_be_lent() {
    const ALL: usize = 4_000_000;
    let [(server, accepted), (client, fd)] = connection_with(2_048);
    let writer = {
        let client = client.clone();
        thread::spawn(move || {
            let bytes = vec![7; ALL];
            let sent = client.send(fd, &[IoSlice::new(&bytes)], 0, goes_on);
            assert_eq!(sent, Ok(ALL));
            client.shutdown(fd, abi::SHUT_WR).expect("connected");
        })
    };
    let (mut all, mut held) = (0, Vec::new());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(500) {
        match server.receive_buf(accepted, abi::MSG_DONTWAIT, goes_on) {
            Ok(Some(loan)) => {
                all += loan.len;
                held.push(loan.key);
            }
            Ok(None) => break,
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
    }
    assert!(all < ALL, "more came than there is memory for: {all}");
    for key in held.drain(..) {
        assert_eq!(server.release(key), Ok(()));
    }
    while let Some(loan) = server.receive_buf(accepted, 0, goes_on).expect("bytes") {
        all += loan.len;
        assert_eq!(server.release(loan.key), Ok(()));
    }
    assert_eq!(all, ALL);
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
    writer.join().expect("all is written");
    server.end().expect("an end in order");
}
