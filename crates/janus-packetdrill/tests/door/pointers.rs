//! Pointers and lengths that the kernel would refuse.

use super::*;
use std::ptr::{null, null_mut};

/// A page that may be used, and behind it one that may not.
fn edge() -> *mut u8 {
    // SAFETY: fresh pages, of nobody else.
    unsafe {
        let pages = libc::mmap(
            null_mut(),
            8_192,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(pages, libc::MAP_FAILED);
        let second = pages.cast::<u8>().add(4_096);
        assert_eq!(libc::mprotect(second.cast(), 4_096, libc::PROT_NONE), 0);
        second
    }
}

#[test]
fn names_and_options() {
    let tool = Tool::new(None);
    let fd = tool.socket(libc::AF_INET).unwrap() as c_int;
    let any = name("0.0.0.0:8080".parse().unwrap());
    assert_eq!(call!(tool, bind, fd, null(), 16), Err(libc::EFAULT));
    assert_eq!(
        call!(tool, bind, fd, any.as_ptr().cast(), 15),
        Err(libc::EINVAL)
    );
    assert_eq!(
        call!(tool, bind, fd, any.as_ptr().cast(), u32::MAX),
        Err(libc::EINVAL)
    );
    assert_eq!(call!(tool, bind, -1, null(), 16), Err(libc::EBADF));
    let v6 = name("[::]:8080".parse().unwrap());
    assert_eq!(
        call!(tool, bind, fd, v6.as_ptr().cast(), 28),
        Err(libc::EAFNOSUPPORT)
    );
    assert_eq!(
        call!(tool, connect, fd, edge().cast(), 16),
        Err(libc::EFAULT)
    );

    let on = 1_i32;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
    assert_eq!(
        call!(tool, setsockopt, fd, level, option, null(), 4),
        Err(libc::EFAULT)
    );
    let at = (&raw const on).cast();
    assert_eq!(
        call!(tool, setsockopt, fd, level, option, at, 3),
        Err(libc::EINVAL)
    );
    assert_eq!(call!(tool, setsockopt, fd, level, option, at, 4), Ok(0));
    let (mut value, mut len) = (0_i32, 4_u32);
    let to = (&raw mut value).cast();
    assert_eq!(
        call!(tool, getsockopt, fd, level, option, null_mut(), &mut len),
        Err(libc::EFAULT)
    );
    assert_eq!(
        call!(tool, getsockopt, fd, level, option, to, null_mut()),
        Err(libc::EFAULT)
    );
    assert_eq!(
        call!(tool, getsockopt, fd, level, option, to, &mut len),
        Ok(0)
    );
    assert_eq!((value, len), (1, 4));
    len = u32::MAX;
    assert_eq!(
        call!(tool, getsockopt, fd, level, option, to, &mut len),
        Err(libc::EINVAL)
    );
}

/// What cannot be put where the caller wants it is not lost.
#[test]
fn data_that_finds_no_place_stays_unread() {
    let (tool, fd, peer, next) = connected();
    tool.send(&peer.packet(PSH_ACK, 1_001, next, b"0123456789"))
        .unwrap();
    assert_eq!(call!(tool, read, fd, null_mut(), 10), Err(libc::EFAULT));
    assert_eq!(call!(tool, read, fd, null_mut(), 0), Ok(0));
    let end = edge();
    assert_eq!(call!(tool, recv, fd, end.cast(), 10, 0), Err(libc::EFAULT));
    assert_eq!(tool.read(fd, 4).unwrap(), b"0123");
    assert_eq!(tool.read(fd, 100).unwrap(), b"456789");
}

#[test]
fn data_that_cannot_be_read_is_not_sent() {
    let (tool, fd, _, _) = connected();
    assert_eq!(call!(tool, write, fd, null(), 10), Err(libc::EFAULT));
    assert_eq!(
        call!(tool, send, fd, edge().cast(), 10, 0),
        Err(libc::EFAULT)
    );
    // What can be read is.
    let end = edge();
    // SAFETY: the page before the forbidden one.
    let start = unsafe { end.sub(4_096) };
    let sent = call!(tool, write, fd, start.cast(), 8_192);
    assert_eq!(sent, Ok(4_096));
    // The state of the socket is asked first.
    let fresh = tool.socket(libc::AF_INET).unwrap() as c_int;
    assert_eq!(call!(tool, write, fresh, null(), 10), Err(libc::EPIPE));
    assert_eq!(call!(tool, write, -1, null(), 10), Err(libc::EBADF));
}

#[test]
fn vectors_have_bounds() {
    let (tool, fd, peer, next) = connected();
    let mut bytes = [[0_u8; 4]; 3];
    let vector: Vec<libc::iovec> = bytes
        .iter_mut()
        .map(|part| libc::iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        })
        .collect();
    tool.send(&peer.packet(PSH_ACK, 1_001, next, b"0123456789"))
        .unwrap();
    assert_eq!(
        call!(tool, readv, fd, vector.as_ptr(), -1),
        Err(libc::EINVAL)
    );
    assert_eq!(
        call!(tool, readv, fd, vector.as_ptr(), 1_025),
        Err(libc::EINVAL)
    );
    assert_eq!(call!(tool, readv, fd, null(), 1), Err(libc::EFAULT));
    assert_eq!(call!(tool, readv, fd, vector.as_ptr(), 3), Ok(10));
    assert_eq!(&bytes.concat()[..10], b"0123456789");
    let negative = libc::iovec {
        iov_base: null_mut(),
        iov_len: usize::MAX,
    };
    assert_eq!(call!(tool, writev, fd, &negative, 1), Err(libc::EINVAL));
    assert_eq!(call!(tool, writev, fd, vector.as_ptr(), 3), Ok(12));
    assert_eq!(call!(tool, writev, -1, null(), -1), Err(libc::EBADF));
    let sent = tool.receive_data();
    assert_eq!(sent.payload.len(), 12);
}

#[test]
fn messages_are_vectors_with_more() {
    let (tool, fd, peer, next) = connected();
    assert_eq!(call!(tool, sendmsg, fd, null(), 0), Err(libc::EFAULT));
    assert_eq!(call!(tool, recvmsg, fd, null_mut(), 0), Err(libc::EFAULT));
    let mut bytes = *b"abcdef";
    let mut vector = [
        libc::iovec {
            iov_base: (&raw mut bytes[..2]).cast(),
            iov_len: 2,
        },
        libc::iovec {
            iov_base: (&raw mut bytes[2..]).cast(),
            iov_len: 4,
        },
    ];
    // SAFETY: all zero is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vector.as_mut_ptr();
    message.msg_iovlen = 2;
    assert_eq!(call!(tool, sendmsg, fd, &message, 0), Ok(6));
    assert_eq!(tool.receive_data().payload, b"abcdef");

    tool.send(&peer.packet(PSH_ACK, 1_001, next.wrapping_add(6), b"uvwxyz"))
        .unwrap();
    message.msg_namelen = 100;
    message.msg_flags = -1;
    assert_eq!(call!(tool, recvmsg, fd, &mut message, 0), Ok(6));
    assert_eq!((message.msg_namelen, message.msg_flags), (0, 0));
    assert_eq!(&bytes, b"uvwxyz");
    message.msg_iovlen = 1_025;
    assert_eq!(call!(tool, sendmsg, fd, &message, 0), Err(libc::EMSGSIZE));
}

#[test]
fn the_wire_checks_too() {
    let tool = Tool::new(None);
    assert_eq!(call!(tool, netdev_send, null(), 40), Err(libc::EFAULT));
    assert_eq!(tool.send(b"no packet at all"), Ok(0));
}
