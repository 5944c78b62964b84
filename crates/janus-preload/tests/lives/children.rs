//! Children of a process with connections, and other processes that are given them.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::ptr::null;
use std::thread;

use libc::c_int;

use super::{connection, errno, lives, recv, send};

unsafe extern "C" {
    /// The library's: a copy of the process.
    fn vfork() -> libc::pid_t;
}

pub(crate) fn children() {
    let (listener, client, server) = connection();
    for way in [libc::fork, vfork as unsafe extern "C" fn() -> libc::pid_t] {
        // SAFETY: the child calls what may be called in one, and ends.
        unsafe {
            let child = way();
            if child == 0 {
                for fd in [listener, client, server] {
                    libc::close(fd);
                }
                libc::_exit(7);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(libc::WEXITSTATUS(status), 7);
        }
        lives(client, server);
    }
    let said = Command::new("/bin/echo")
        .arg("child")
        .output()
        .expect("a child");
    assert_eq!(said.stdout, b"child\n");
    lives(client, server);
}

/// A child of fork that does this and ends.
pub(crate) fn forked(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the process has no other thread that could hold a lock which the child needs, but for those of the library.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: the call takes a number.
            unsafe { libc::_exit(7) }
        }
        child => {
            assert!(child > 0);
            child
        }
    }
}

pub(crate) fn ended(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: there is room for the status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 7);
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: the call takes a number.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

/// All that comes until the end of the stream.
fn all_of(fd: c_int) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 70_000]);
    loop {
        match recv(fd, &mut piece) {
            0 => return all,
            some => all.extend_from_slice(&piece[..usize::try_from(some).expect("bytes")]),
        }
    }
}

/// Sends so many bytes, ends the stream, and gets the same back while it sends.
fn echoed(client: c_int, bytes: usize) {
    let text: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect();
    let sent = text.clone();
    let sender = thread::spawn(move || {
        for piece in sent.chunks(50_000) {
            assert_eq!(send(client, piece), piece.len() as isize, "{}", errno());
        }
        // SAFETY: the call takes numbers.
        assert_eq!(unsafe { libc::shutdown(client, libc::SHUT_WR) }, 0);
    });
    assert!(all_of(client) == text, "the same comes back");
    sender.join().expect("all was sent");
}

pub(crate) fn used_in_a_child() {
    let (_listener, client, server) = connection();
    let child = forked(|| {
        let all = all_of(server);
        for piece in all.chunks(10_000) {
            assert_eq!(send(server, piece), piece.len() as isize);
        }
    });
    // The child has it, and the client is told nothing of this.
    close(server);
    echoed(client, 3_000_000);
    ended(child);
    // Children that use both ends, one after the other, and the parent again.
    let (_listener, client, server) = connection();
    for _ in 0..3 {
        ended(forked(|| {
            assert_eq!(send(server, b"from the child"), 14);
        }));
        let mut got = [0; 14];
        assert_eq!(recv(client, &mut got), 14, "{}", errno());
        assert_eq!(&got, b"from the child");
        lives(client, server);
    }
}

pub(crate) fn held_for_a_child() {
    let (_listener, client, server) = connection();
    let (mut pipe, mut byte) = ([0; 2], [0]);
    // SAFETY: there is room for two numbers.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let child = forked(|| {
        // SAFETY: there is room for a byte.
        let got = unsafe { libc::read(pipe[0], byte.as_mut_ptr().cast(), 1) };
        assert_eq!(got, 1);
    });
    close(server);
    // SAFETY: there is room for a byte, and one to write.
    unsafe {
        let got = libc::recv(client, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT);
        assert_eq!((got, errno()), (-1, libc::EAGAIN), "the child has it still");
        assert_eq!(libc::write(pipe[1], (&raw const byte).cast(), 1), 1);
    }
    ended(child);
    assert_eq!(recv(client, &mut byte), 0, "{}", errno());
}

/// Numbers that were sockets of the parent's are the kernel's to give once the child has closed them.
pub(crate) fn numbers_in_a_child() {
    let (listener, client, server) = connection();
    let mut pipe = [0; 2];
    // SAFETY: there is room for two numbers.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let child = forked(|| {
        let mut name = [0_u8; 64];
        // SAFETY: the calls take numbers, a path that ends with a zero, and room for what they read.
        unsafe {
            libc::dup2(pipe[1], 2);
            for fd in [listener, server] {
                assert_eq!(libc::close(fd), 0);
                let path = c"/proc/self/comm".as_ptr();
                assert_eq!(libc::open(path, libc::O_RDONLY), fd, "the lowest number");
                assert!(libc::read(fd, name.as_mut_ptr().cast(), 64) > 0);
            }
        }
    });
    close(pipe[1]);
    ended(child);
    let mut said = [0_u8; 400];
    // SAFETY: there is room for as many bytes.
    let said_len = unsafe { libc::read(pipe[0], said.as_mut_ptr().cast(), said.len()) };
    assert_eq!(said_len, 0, "{}", String::from_utf8_lossy(&said));
    lives(client, server);
}

pub(crate) fn used_by_a_program() {
    let (_listener, client, server) = connection();
    let child = forked(|| {
        let arguments = [c"cat".as_ptr(), null()];
        // SAFETY: the path and the lists end with zeros.
        unsafe {
            assert_eq!(libc::dup2(server, 0), 0);
            assert_eq!(libc::dup2(server, 1), 1);
            libc::close(server);
            libc::close_range(3, u32::MAX, 0);
            libc::execv(c"/bin/cat".as_ptr(), arguments.as_ptr());
        }
    });
    close(server);
    echoed(client, 1_000_000);
    let mut status = 0;
    // SAFETY: there is room for the status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

pub(crate) fn spawned_with() {
    let (_listener, client, server) = connection();
    // SAFETY: they are nobody else's.
    let of_server = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the call takes a number.
    let again = unsafe { libc::dup(server) };
    let mut child = Command::new("/bin/cat")
        .stdin(of_server(server))
        .stdout(of_server(again))
        .spawn()
        .expect("a program");
    echoed(client, 1_000_000);
    assert!(child.wait().expect("it ends").success());
}

pub(crate) fn sent_to_another() {
    use rustix::net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags,
        SocketType, recvmsg, socketpair,
    };
    let flags = SocketFlags::empty();
    let (here, there) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair");
    // It was there before the connection.
    let child = forked(|| {
        let (mut text, mut room) = ([0], [MaybeUninit::uninit(); 64]);
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let into = &mut [IoSliceMut::new(&mut text)];
        recvmsg(&there, into, &mut control, RecvFlags::empty()).expect("a message");
        let got = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let got = got.expect("a descriptor");
        let all = all_of(got.as_raw_fd());
        assert_eq!(send(got.as_raw_fd(), &all), all.len() as isize);
    });
    drop(there);
    let (_listener, client, server) = connection();
    // SAFETY: the header names what is there, of the lengths it says.
    unsafe {
        let mut control = [0_u64; 4];
        let mut byte = 1_u8;
        let mut part = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let mut message: libc::msghdr = core::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header)
            .cast::<c_int>()
            .write_unaligned(server);
        assert_eq!(
            libc::sendmsg(here.as_raw_fd(), &message, 0),
            1,
            "{}",
            errno()
        );
        assert_eq!(
            libc::CMSG_DATA(header).cast::<c_int>().read_unaligned(),
            server
        );
    }
    close(server);
    echoed(client, 100_000);
    ended(child);
}
