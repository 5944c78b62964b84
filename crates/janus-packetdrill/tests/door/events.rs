//! poll, epoll, timeouts of blocking calls, pipes and splice.

use super::waiting::{announce, while_waiting};
use super::*;
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT};
use std::ptr::null_mut;

fn poll(tool: &Tool, asked: &mut [(c_int, i16)], timeout: c_int) -> tool::Outcome {
    let mut polled: Vec<libc::pollfd> = asked
        .iter()
        .map(|&(fd, events)| libc::pollfd {
            fd,
            events,
            revents: -1,
        })
        .collect();
    let told = call!(tool, poll, polled.as_mut_ptr(), polled.len() as _, timeout);
    for (asked, polled) in asked.iter_mut().zip(polled) {
        asked.1 = polled.revents;
    }
    told
}

#[test]
fn poll_tells_what_is_so() {
    let (tool, fd, peer, next) = connected();
    let mut asked = [(fd, POLLIN | POLLOUT), (-1, POLLIN), (999, POLLIN)];
    assert_eq!(poll(&tool, &mut asked, 0), Ok(2));
    assert_eq!(asked, [(fd, POLLOUT), (-1, 0), (999, POLLNVAL)]);
    tool.send(&peer.packet(PSH_ACK, 1_001, next, b"x")).unwrap();
    let mut asked = [(fd, POLLIN)];
    assert_eq!(poll(&tool, &mut asked, 0), Ok(1));
    assert_eq!(asked, [(fd, POLLIN)]);
    assert_eq!(call!(tool, poll, null_mut(), 1, 0), Err(libc::EFAULT));
}

/// On the main thread too a time that ends is waited for, on the stack's clock.
#[test]
fn poll_waits_in_virtual_time() {
    let (tool, fd, peer, next) = connected();
    let begun = tool.time();
    assert_eq!(poll(&tool, &mut [(fd, POLLIN)], 250), Ok(0));
    assert!((250_000..250_010).contains(&(tool.time() - begun)));
    assert_eq!(poll(&tool, &mut [(fd, POLLIN)], -1), Err(libc::EAGAIN));

    let mut came = 0;
    let mut asked = [(fd, POLLIN)];
    let (told, at) = while_waiting(
        &tool,
        || poll(&tool, &mut asked, 10_000),
        || {
            tool.usleep(3_000_000);
            came = tool.time();
            tool.send(&peer.packet(PSH_ACK, 1_001, next, b"x")).unwrap();
            tool.usleep(3_000_000);
        },
    );
    assert_eq!((told, asked[0].1), (Ok(1), POLLIN));
    assert!(
        (came..came + 10).contains(&at),
        "came {came}, returned {at}"
    );
}

/// The tool waits for a call to end before it makes the next: nobody else moves the clock then.
#[test]
fn a_waiting_call_carries_the_clock_when_it_is_waited_for() {
    let (tool, fd, _, _) = connected();
    let begun = tool.time();
    let (told, at) = while_waiting(&tool, || poll(&tool, &mut [(fd, POLLIN)], 250), || ());
    assert_eq!(told, Ok(0));
    assert!(
        (250_000..250_010).contains(&(at - begun)),
        "{} us",
        at - begun
    );
}

#[test]
fn several_calls_wait_each_for_its_own() {
    let (tool, fd, peer, next) = connected();
    let begun = tool.time();
    let (sender, receiver) = mpsc::channel();
    let waits = |timeout: c_int| {
        announce(&sender);
        let told = poll(&tool, &mut [(fd, POLLIN)], timeout);
        (told, tool.time() - begun)
    };
    let took = |(told, at): (tool::Outcome, i64), expected: i64| {
        assert_eq!(told, Ok(0));
        assert!((expected..expected + 20).contains(&at), "{at} us");
    };
    // One after the other ends, whoever moves the clock.
    thread::scope(|scope| {
        let patient = scope.spawn(|| waits(400));
        let hasty = scope.spawn(|| waits(150));
        until_asleep(&receiver);
        until_asleep(&receiver);
        tool.usleep(100_000);
        took(hasty.join().unwrap(), 150_000);
        took(patient.join().unwrap(), 400_000);
    });
    // What both wait for wakes both.
    thread::scope(|scope| {
        let both = [scope.spawn(|| waits(-1)), scope.spawn(|| waits(-1))];
        until_asleep(&receiver);
        until_asleep(&receiver);
        tool.send(&peer.packet(PSH_ACK, 1_001, next, b"x")).unwrap();
        for waiting in both {
            assert_eq!(waiting.join().unwrap().0, Ok(1));
        }
    });
}

#[test]
fn blocking_calls_give_up_in_their_time() {
    let (tool, fd, _, _) = connected();
    let timeout = libc::timeval {
        tv_sec: 1,
        tv_usec: 500_000,
    };
    let (at, len) = ((&raw const timeout).cast(), size_of_val(&timeout) as u32);
    let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
    assert_eq!(call!(tool, setsockopt, fd, level, option, at, len), Ok(0));
    let begun = tool.time();
    let (read, at) = while_waiting(&tool, || tool.read(fd, 10), || tool.usleep(9_000_000));
    assert_eq!(read, Err(libc::EAGAIN));
    assert!(
        (1_500_000..1_500_010).contains(&(at - begun)),
        "{} us",
        at - begun
    );
}

/// SO_LINGER: the call lasts until the FIN is acknowledged, or as long as was said.
#[test]
fn close_lingers() {
    for acknowledged in [true, false] {
        let (tool, fd, peer, next) = connected();
        let linger = [1_i32, 2];
        let (at, len) = (linger.as_ptr().cast(), size_of_val(&linger) as u32);
        let option = (libc::SOL_SOCKET, libc::SO_LINGER);
        assert_eq!(
            call!(tool, setsockopt, fd, option.0, option.1, at, len),
            Ok(0)
        );
        tool.write(fd, b"last words").unwrap();
        let begun = tool.time();
        let (closed, at) = while_waiting(
            &tool,
            || tool.close(fd),
            || {
                tool.usleep(500_000);
                if acknowledged {
                    let ack = next.wrapping_add(11);
                    tool.send(&peer.packet(Flags::ACK, 1_001, ack, &[]))
                        .unwrap();
                }
                tool.usleep(5_000_000);
            },
        );
        assert_eq!(closed, Ok(0));
        let expected = if acknowledged { 500_000 } else { 2_000_000 };
        let took = at - begun;
        assert!((expected..expected + 20).contains(&took), "{took} us");
    }
}

#[test]
fn epoll_tells_with_what_was_left() {
    let (tool, fd, peer, next) = connected();
    assert_eq!(call!(tool, epoll_create, 0), Err(libc::EINVAL));
    let epoll = call!(tool, epoll_create, 1).unwrap() as c_int;
    let add = libc::EPOLL_CTL_ADD;
    let mut wanted = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0xfeed_0123_4567_89ab,
    };
    assert_eq!(
        call!(tool, epoll_ctl, epoll, add, fd, null_mut()),
        Err(libc::EFAULT)
    );
    assert_eq!(
        call!(tool, epoll_ctl, fd, add, fd, &mut wanted),
        Err(libc::EINVAL)
    );
    assert_eq!(
        call!(tool, epoll_ctl, epoll, add, 999, &mut wanted),
        Err(libc::EBADF)
    );
    assert_eq!(call!(tool, epoll_ctl, epoll, add, fd, &mut wanted), Ok(0));
    let mut told = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let events = told.as_mut_ptr();
    assert_eq!(
        call!(tool, epoll_wait, epoll, events, 0, 0),
        Err(libc::EINVAL)
    );
    assert_eq!(call!(tool, epoll_wait, epoll, events, 4, 0), Ok(0));

    let (waited, _) = while_waiting(
        &tool,
        || {
            // As a whole: its pointer alone is no thread's to share.
            let tool: &Tool = &tool;
            let mut told = [libc::epoll_event { events: 0, u64: 0 }; 4];
            let n = call!(tool, epoll_wait, epoll, told.as_mut_ptr(), 4, -1);
            (n, told[0].events, told[0].u64)
        },
        || {
            tool.send(&peer.packet(PSH_ACK, 1_001, next, b"x")).unwrap();
        },
    );
    assert_eq!(waited, (Ok(1), libc::EPOLLIN as u32, 0xfeed_0123_4567_89ab));
    let del = libc::EPOLL_CTL_DEL;
    assert_eq!(call!(tool, epoll_ctl, epoll, del, fd, null_mut()), Ok(0));
    assert_eq!(call!(tool, epoll_wait, epoll, events, 4, 0), Ok(0));
    assert_eq!(tool.close(epoll), Ok(0));
    assert_eq!(
        call!(tool, epoll_wait, epoll, events, 4, 0),
        Err(libc::EBADF)
    );
}

fn pipe(tool: &Tool) -> (c_int, c_int) {
    let mut ends = [0; 2];
    assert_eq!(call!(tool, pipe, ends.as_mut_ptr()), Ok(0));
    (ends[0], ends[1])
}

#[test]
fn pipes_are_pipes() {
    let tool = Tool::new(None);
    assert_eq!(call!(tool, pipe, null_mut()), Err(libc::EFAULT));
    let (out, into) = pipe(&tool);
    assert_eq!(tool.write(into, b"water"), Ok(5));
    assert_eq!(tool.write(out, b"uphill"), Err(libc::EBADF));
    assert_eq!(tool.read(into, 1), Err(libc::EBADF));
    assert_eq!(tool.socket(libc::AF_INET).map(|_| ()), Ok(()));
    assert_eq!(tool.listen(out), Err(libc::ENOTSOCK));
    assert_eq!(tool.read(out, 3).unwrap(), b"wat");
    // What does not fit.
    assert_eq!(tool.write(into, &[1; 100_000]), Ok(65_534));
    let mut asked = [(out, POLLIN | POLLOUT), (into, POLLIN | POLLOUT)];
    assert_eq!(poll(&tool, &mut asked, 0), Ok(1));
    assert_eq!(asked, [(out, POLLIN), (into, 0)]);
    assert_eq!(tool.close(into), Ok(0));
    assert_eq!(tool.read(out, 100_000).unwrap().len(), 65_536);
    assert_eq!(tool.read(out, 1).unwrap(), b"");
    let mut asked = [(out, POLLIN)];
    assert_eq!(poll(&tool, &mut asked, 0), Ok(1));
    assert_eq!(asked[0].1, POLLHUP);

    let (out, into) = pipe(&tool);
    assert_eq!(tool.close(out), Ok(0));
    assert_eq!(tool.write(into, b"x"), Err(libc::EPIPE));
    let mut asked = [(into, POLLOUT)];
    assert_eq!(poll(&tool, &mut asked, 0), Ok(1));
    assert_eq!(asked[0].1, POLLOUT | POLLERR);
}

#[test]
fn splice_moves_between_a_socket_and_a_pipe() {
    let (tool, fd, peer, next) = connected();
    let (out, into) = pipe(&tool);
    let splice = |from: c_int, to: c_int, len: usize, flags: u32| {
        // As the tool does it: a place that says nothing.
        let (mut a, mut b) = (0_i64, 0_i64);
        call!(tool, splice, from, &mut a, to, &mut b, len, flags)
    };
    let now = libc::SPLICE_F_NONBLOCK;
    assert_eq!(splice(fd, into, 100, now), Err(libc::EAGAIN));
    tool.send(&peer.packet(PSH_ACK, 1_001, next, b"through a pipe"))
        .unwrap();
    assert_eq!(splice(fd, into, 100, now), Ok(14));
    assert_eq!(splice(out, fd, 7, 0), Ok(7));
    assert_eq!(tool.receive_data().payload, b"through");
    assert_eq!(tool.read(out, 100).unwrap(), b" a pipe");
    assert_eq!(splice(out, fd, 7, now), Err(libc::EAGAIN));

    assert_eq!(splice(fd, fd, 7, 0), Err(libc::EINVAL));
    assert_eq!(splice(fd, out, 7, 0), Err(libc::EBADF));
    assert_eq!(splice(fd, into, 7, 1 << 30), Err(libc::EINVAL));
    let mut place = 5_i64;
    let placed = call!(tool, splice, fd, &mut place, into, null_mut(), 7, 0);
    assert_eq!(placed, Err(libc::ESPIPE));
    tool.send(&peer.packet(
        Flags(Flags::FIN.0 | Flags::ACK.0),
        1_015,
        next.wrapping_add(7),
        &[],
    ))
    .unwrap();
    assert_eq!(splice(fd, into, 100, 0), Ok(0));
}

/// tcp_read_sock: it stops before the urgent octet, which has to be read past.
#[test]
fn splice_never_moves_an_urgent_octet() {
    let (tool, fd, peer, next) = connected();
    let (out, into) = pipe(&tool);
    let splice = |len: usize| {
        let (mut a, mut b) = (0_i64, 0_i64);
        call!(tool, splice, fd, &mut a, into, &mut b, len, 0)
    };
    let urgent = Flags(PSH_ACK.0 | Flags::URG.0);
    tool.send(&peer.packet_with(urgent, (1_001, next, 5), b"calm!calm"))
        .unwrap();
    assert_eq!(splice(100), Ok(4));
    assert_eq!(splice(100), Ok(0));
    assert_eq!(tool.read(out, 100).unwrap(), b"calm");
    let mut octet = [0_u8];
    let had = call!(tool, recv, fd, octet.as_mut_ptr().cast(), 1, libc::MSG_OOB);
    assert_eq!((had, octet), (Ok(1), *b"!"));
    assert_eq!(tool.read(fd, 2).unwrap(), b"ca");
    assert_eq!(splice(100), Ok(2));
}
