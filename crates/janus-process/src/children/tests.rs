//! Words of children that say what no child says.

use std::os::fd::BorrowedFd;

use janus::Runtime;
use janus_posix::abi;

use super::*;
use crate::own::{self, Own};

/// Carried out as the pump does, as far as descriptors go.
fn drops(told: Told) {
    match told {
        Told::Claimed(_, end) | Told::Leaves(_, end) | Told::Connects(_, _, end, _) => {
            drop(Own::new(end));
        }
        _ => {}
    }
}

/// A number that is noted as Janus's own, and was closed.
fn stale() -> Option<RawFd> {
    (0..1_000).find(|fd| own::is(*fd) && !kernel::is_open(*fd))
}

#[test]
fn a_child_that_lies_is_heard_and_leaves_nothing() {
    let _turn = own::BY_TURNS.lock();
    let process = Process::start(Runtime::builder().ignore_environment()).expect("a process");
    let fd = process.socket(abi::AF_INET, abi::SOCK_STREAM, 0);
    let held = process.socket_of(fd.expect("a socket")).expect("one");
    let fork = process.before_fork().channel.take().expect("room");
    let mut child = Forked {
        channel: fork.parents,
        held: Vec::new(),
        accepts: Vec::new(),
    };
    let at = Legacy::at("192.0.2.1:80".parse().expect("an address")).text();
    let texts = [
        &[][..],
        &[0; 3],
        &[255; 40],
        &at,
        &[&[0; 4][..], &at].concat(),
    ];
    let childs = fork.childs.as_fd();
    let ends: [BorrowedFd<'_>; 2] = [childs, childs];
    let mut heard = 0;
    for (word, more) in (0..=u8::MAX).flat_map(|word| texts.map(|more| (word, more))) {
        for socket in [NEW, -2, held, i32::MAX, i32::MIN] {
            for count in 0..=2 {
                child.held = vec![held];
                process.core.lock().descriptors.hold(held);
                let mut text = (i64::from(socket) << 8 | i64::from(word))
                    .to_le_bytes()
                    .to_vec();
                text.extend(more);
                passing::send(childs, &text, &ends[..count], SendFlags::empty()).expect("room");
                drops(child.told(&process));
                process.core.let_go(&child.held);
                assert_eq!(stale(), None, "{word} about {socket}");
                heard += 1;
            }
        }
    }
    assert!(heard > 10_000 && matches!(child.told(&process), Told::Nothing));
    // Shorter than a word.
    passing::send(childs, &[1; 7], &[], SendFlags::empty()).expect("room");
    assert!(matches!(child.told(&process), Told::Gone));
    process.end().expect("an end in order");
}
