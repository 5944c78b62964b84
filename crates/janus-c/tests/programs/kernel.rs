//! Clients and servers of the kernel's.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

/// Nothing here takes so long.
const LONG: Duration = Duration::from_secs(30);

pub(crate) fn connect(at: &str) -> TcpStream {
    let stream = TcpStream::connect(at).expect("a server");
    stream.set_read_timeout(Some(LONG)).expect("an option");
    stream.set_write_timeout(Some(LONG)).expect("an option");
    stream
}

/// What comes until the peer's end, or its reset.
pub(crate) fn read_all(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(LONG)).expect("an option");
    let (mut all, mut part) = (Vec::new(), [0; 65_536]);
    loop {
        match stream.read(&mut part) {
            Ok(0) => return all,
            Ok(n) => all.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("after {} bytes: {error}", all.len()),
        }
    }
}

/// Asks something over a connection of its own.
pub(crate) fn ask(at: &str, request: &str) -> String {
    let mut stream = connect(at);
    stream.write_all(request.as_bytes()).expect("sent");
    let answer = read_all(stream);
    String::from_utf8(answer).expect("text")
}

/// A server that answers every request with this text and closes; where it is. It ends with the test program.
pub(crate) fn pages(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let (mut request, mut part) = (Vec::new(), [0; 1_024]);
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut part) {
                    Ok(n @ 1..) => request.extend_from_slice(&part[..n]),
                    _ => break,
                }
            }
            let _ = stream.write_all(answer.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
        }
    });
    at
}

/// A port that is taken and refuses.
pub(crate) struct Refusing {
    pub(crate) number: u16,
    _socket: OwnedFd,
}

pub(crate) fn refuses() -> Refusing {
    // SAFETY: the calls take numbers, a structure that lives through them, and descriptors that are owned at once.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "a socket");
        let socket = OwnedFd::from_raw_fd(fd);
        let mut name: libc::sockaddr_in = std::mem::zeroed();
        name.sin_family = libc::AF_INET as _;
        name.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let mut len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        let place = (&raw mut name).cast::<libc::sockaddr>();
        assert_eq!(libc::bind(socket.as_raw_fd(), place, len), 0);
        let told = libc::getsockname(socket.as_raw_fd(), place, &raw mut len);
        assert_eq!(told, 0);
        Refusing {
            number: u16::from_be(name.sin_port),
            _socket: socket,
        }
    }
}
