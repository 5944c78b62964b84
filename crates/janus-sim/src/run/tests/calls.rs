//! Calls that wait, and those with structures for arguments. What the socket layer answers is tested there; here, that the
//! script's form reaches it and that an answer other than the one written down is a failure that says so.

use super::{SERVER, failure, run};

fn passes(rest: &str) {
    if let Err(failure) = run(&format!("{SERVER}{rest}")) {
        panic!("{rest}\n{failure}");
    }
}

#[test]
fn poll_now_and_with_patience() {
    passes("+0 poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLOUT}], 1, 0) = 1");
    passes("+0...0.1 poll([{fd=4, events=POLLIN, revents=0}, {fd=3, events=POLLIN}], 2, 100) = 0");
    passes(
        "+0...0.2 poll([{fd=4, events=POLLIN, revents=POLLIN}], 1, -1) = 1\n+.2 < P. 1:11(10) ack 1 win 9\n\
         * > . 1:1(0) ack 11",
    );
    let text = failure("+0 poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLIN}], 1, 0) = 1");
    assert!(
        text.contains("revents of place 0: expected POLLIN, actual POLLOUT"),
        "{text}"
    );
    assert!(failure("+0 poll([{fd=4, events=POLLIN}], 2, 0) = 0").contains("has 1 places, not 2"));
    assert!(failure("+0 poll([{fd=9, events=POLLIN}], 1, 0) = 1").contains("no descriptor 9"));
    assert!(failure("+0 poll([{fd=4, events=POLLIN}], 1, 5) = 0").contains("poll would block"));
    let late =
        failure("+0...0.3 poll([{fd=4, events=POLLIN, revents=0}], 1, 100) = 0\n+1 close(4) = 0");
    assert!(
        late.contains("poll returned at 0.200000, expected at 0.400000"),
        "{late}"
    );
}

#[test]
fn epoll_tells_the_event_that_was_left_with_it() {
    let script = |event: &str| {
        format!(
            "+0 epoll_create(1) = 5\n+0 epoll_ctl(5, EPOLL_CTL_ADD, 4, {{events=EPOLLIN|EPOLLET, {event}}}) = 0\n\
             +0...0.1 epoll_wait(5, {{events=EPOLLIN, {event}}}, 1, -1) = 1\n\
             +.1 < P. 1:11(10) ack 1 win 9\n* > . 1:1(0) ack 11\n\
             +0...0.05 epoll_wait(5, {{events=0, {event}}}, 1, 50) = 0\n+.1 close(5) = 0"
        )
    };
    for event in ["fd=4", "ptr=77", "u32=5", "u64=6"] {
        passes(&script(event));
    }
    let wrong = script("u32=5").replacen("{events=EPOLLIN, u32=5", "{events=EPOLLIN, u32=6", 1);
    assert!(failure(&wrong).contains("the event's data: expected 6, actual 5"));
    let wrong = script("fd=4").replacen("{events=EPOLLIN,", "{events=EPOLLOUT,", 1);
    assert!(failure(&wrong).contains("events: expected POLLOUT, actual POLLIN"));
    assert!(
        failure(
            "+0 epoll_create(1) = 5\n+0 epoll_ctl(5, EPOLL_CTL_ADD, 4, {events=EPOLLIN, fd=3}) = 0"
        )
        .contains("the event says descriptor 3")
    );
}

#[test]
fn messages_with_what_stands_beside_the_bytes() {
    let header = "+0 setsockopt(4, SOL_TCP, TCP_INQ, [1], 4) = 0\n+0 < P. 1:2001(2000) ack 1 win 9\n* > . 1:1(0) ack 2001\n";
    let receive = |flags: &str, left: &str| {
        format!(
            "{header}+0 recvmsg(4, {{msg_name(...)=..., msg_iov(2)=[{{..., 500}}, {{..., 500}}], msg_flags={flags}, \
             msg_control=[{{cmsg_level=SOL_TCP, cmsg_type=TCP_CM_INQ, cmsg_data={left}}}]}}, 0) = 1000"
        )
    };
    passes(&receive("0", "1000"));
    assert!(failure(&receive("0", "999")).contains("msg_control: expected"));
    assert!(
        failure(&receive("MSG_TRUNC", "1000")).contains("msg_flags: expected 0x20, actual 0x0")
    );
    passes(
        "+0 sendmsg(4, {msg_name(...)=..., msg_iov(1)=[{..., 100}], msg_flags=0}, 0) = 100\n+0 > P. 1:101(100) ack 1\n\
         +0 < . 1:1(0) ack 101 win 9",
    );
    assert!(
        failure(
            "+0 sendmsg(4, {msg_name(...)=..., msg_iov(2)=[{..., 100}], msg_flags=0}, 0) = 100"
        )
        .contains("has 1 buffers, not 2")
    );
}

#[test]
fn a_buffer_that_is_null() {
    passes("+0 write(4, NULL, 1000) = -1 EFAULT (Bad address)");
    passes(
        "+0 < P. 1:11(10) ack 1 win 9\n* > . 1:1(0) ack 11\n+0 read(4, NULL, 10) = -1 EFAULT (Bad address)",
    );
}

#[test]
fn a_close_that_lingers_waits_for_the_last_acknowledgement() {
    passes(
        "+0 setsockopt(4, SOL_SOCKET, SO_LINGER, {onoff=1, linger=5}, 8) = 0\n+0 write(4, ..., 10) = 10\n\
         +0 > P. 1:11(10) ack 1\n+0...0.1 close(4) = 0\n+0 > F. 11:11(0) ack 1\n+.1 < . 1:1(0) ack 12 win 9",
    );
    let text = failure(
        "+0 setsockopt(4, SOL_SOCKET, SO_LINGER, {onoff=1, linger=5}, 8) = 0\n+0 write(4, ..., 10) = 10\n\
         +0 > P. 1:11(10) ack 1\n+0 close(4) = 0",
    );
    assert!(text.contains("close would block"), "{text}");
}

#[test]
fn an_options_length_and_its_value() {
    passes("+0 getsockopt(4, SOL_TCP, TCP_CONGESTION, \"cubic\", [5]) = 0");
    assert!(
        failure("+0 getsockopt(4, SOL_TCP, TCP_CONGESTION, \"renos\", [5]) = 0")
            .contains("expected \"renos\", actual \"cubic\"")
    );
    assert!(
        failure("+0 getsockopt(4, SOL_TCP, TCP_NODELAY, [0], [8]) = 0")
            .contains("the option's length: expected 8, actual 4")
    );
}
