//! Calls that wait on the tool's second thread, while its first one plays the script.

use super::*;
use std::sync::mpsc::Sender;

/// Says which thread this is, just before a call that waits.
pub(crate) fn announce(to: &Sender<i32>) {
    // SAFETY: the call takes nothing and cannot fail.
    to.send(unsafe { libc::gettid() }).unwrap();
}

/// Makes a call on another thread; when it sleeps, `script` goes on. What the call gave, and when.
pub(crate) fn while_waiting<T: Send>(
    tool: &Tool,
    call: impl FnOnce() -> T + Send,
    script: impl FnOnce(),
) -> (T, i64) {
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            announce(&sender);
            (call(), tool.time())
        });
        until_asleep(&receiver);
        script();
        waiting.join().unwrap()
    })
}

/// The call ends at the moment that lets it end, though the script does not pause for it.
#[test]
fn a_call_returns_when_it_can_and_not_later() {
    for _ in 0..20 {
        let (tool, peer) = (Tool::new(None), Peer::new(V4));
        let listener = tool.listener(libc::AF_INET);
        let mut came = 0;
        let (accepted, at) = while_waiting(
            &tool,
            || tool.accept(listener),
            || {
                tool.handshake(&peer);
                came = tool.time();
                tool.usleep(5_000_000);
            },
        );
        assert!(accepted.is_ok());
        assert!(
            (came - 10..came + 10).contains(&at),
            "came {came}, returned {at}"
        );
    }
}

#[test]
fn a_read_waits_for_data_and_a_write_for_room() {
    let (tool, fd, peer, next) = connected();
    let (mut came, data) = (0, vec![7; 1_000]);
    let (read, at) = while_waiting(
        &tool,
        || tool.read(fd, 2_000),
        || {
            tool.usleep(300_000);
            came = tool.time();
            tool.send(&peer.packet(PSH_ACK, 1_001, next, &data))
                .unwrap();
            tool.usleep(1_000_000);
        },
    );
    assert_eq!(read.as_deref(), Ok(data.as_slice()));
    assert!(
        (came..came + 10).contains(&at),
        "came {came}, returned {at}"
    );

    // The window is 10,000 bytes, so this takes as long as the peer acknowledges.
    let len = 1 << 20;
    let (written, _) = while_waiting(
        &tool,
        || tool.write(fd, &vec![9; len]),
        || {
            let mut got = 0;
            while got < len as u32 {
                let (packet, _) = tool.receive().expect("data");
                got = got.max(packet.seq.wrapping_sub(next) + packet.payload.len() as u32);
                let ack = next.wrapping_add(got);
                tool.send(&peer.packet(Flags::ACK, 2_001, ack, &[]))
                    .unwrap();
            }
        },
    );
    assert_eq!(written, Ok(len as i64));
}

#[test]
fn a_connect_waits_for_the_answer() {
    for (flags, expected) in [
        (Flags(Flags::SYN.0 | Flags::ACK.0), Ok(0)),
        (Flags(Flags::RST.0 | Flags::ACK.0), Err(libc::ECONNREFUSED)),
    ] {
        let (tool, ends) = (Tool::new(None), Peer::new(V4));
        let fd = tool.socket(libc::AF_INET).unwrap() as c_int;
        let (connected, _) = while_waiting(
            &tool,
            || tool.connect(fd, ends.own),
            || {
                let (syn, _) = tool.receive().unwrap();
                let peer = Peer {
                    stack: syn.from,
                    ..ends
                };
                let ack = syn.seq.wrapping_add(1);
                tool.send(&peer.packet(flags, 77, ack, &[])).unwrap();
            },
        );
        assert_eq!(connected, expected);
    }
}

/// 1 + 2 + 4 + 8 + 16 + 32 seconds, all of them while one packet is waited for.
#[test]
fn a_connect_is_given_up_by_the_stacks_own_clock() {
    let tool = Tool::new(None);
    let fd = tool.socket(libc::AF_INET).unwrap() as c_int;
    let begun = tool.time();
    let (connected, at) = while_waiting(
        &tool,
        || tool.connect(fd, V4.0.parse().unwrap()),
        || while tool.receive().is_some() {},
    );
    assert_eq!(connected, Err(libc::ETIMEDOUT));
    assert!(
        (63_000_000..63_100_000).contains(&(at - begun)),
        "{} us",
        at - begun
    );
}

#[test]
fn closing_the_socket_ends_the_call() {
    let (tool, fd, _, _) = connected();
    let (read, _) = while_waiting(
        &tool,
        || tool.read(fd, 10),
        || assert_eq!(tool.close(fd), Ok(0)),
    );
    assert_eq!(read, Err(libc::EBADF));
}

/// Nothing of the other thread is left in the room that the table's end could touch.
#[test]
fn the_tables_end_ends_the_call() {
    let (tool, fd, _, _) = connected();
    let (sender, receiver) = mpsc::channel();
    let (table, shared) = (tool.table.userdata as usize, &tool);
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            announce(&sender);
            shared.read(fd, 10)
        });
        until_asleep(&receiver);
        // SAFETY: nobody makes a new call after this.
        unsafe { (shared.table.free)(table as *mut _) };
        assert_eq!(waiting.join().unwrap(), Err(libc::EAGAIN));
    });
}
