mod bytes;
mod handover;
mod lent;
mod listeners;
mod v6;
mod zero_copy;

use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};

use janus_mem::{Depot, Frame, Growth};
use janus_tcp::{Config, Interface, IpCidr, Local, Secrets};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const A_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const B_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));
pub(crate) const SERVER: SocketAddr = SocketAddr::new(B, 80);
pub(crate) const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 80);
/// Turns an exchange may take; more means that two ends keep each other busy.
const TURNS_MAX: usize = 100;

fn sockets(addr: IpAddr, addr_v6: IpAddr, seed: u64) -> Sockets<'static> {
    sockets_with(Config::default(), addr, addr_v6, seed)
}

fn sockets_with(config: Config, addr: IpAddr, addr_v6: IpAddr, seed: u64) -> Sockets<'static> {
    // So many that nobody comes near a share of them: what is told is by the send buffers alone.
    let depot = Depot::new(16_384, &Growth::Inline).expect("memory");
    let mut interface = Interface::ip(1_500);
    interface.any_local = false;
    interface.addresses = vec![IpCidr::new(addr, 24), IpCidr::new(addr_v6, 64)];
    let secrets = Secrets::from_seed(seed);
    let stack = Stack::new(config, interface, secrets, depot.pool(), &Growth::Inline);
    let stack = Box::new(stack.expect("memory"));
    Files::over(Box::leak(Box::default()), Box::leak(stack))
}

/// Two hosts, and a wire that takes no time.
pub(crate) struct Two {
    pub(crate) now: Instant,
    pub(crate) a: Sockets<'static>,
    pub(crate) b: Sockets<'static>,
}

impl Two {
    pub(crate) fn new() -> Two {
        Two {
            now: Instant::from_millis(5),
            a: sockets(A, A_V6, 1),
            b: sockets(B, B_V6, 2),
        }
    }

    fn carry(now: Instant, from: &mut Stack, to: &mut Stack) {
        let (mut out, mut frames) = (Vec::new(), Vec::new());
        from.transmit(now, &mut out, 64);
        for frame in out {
            let mut buf = to.pool().alloc().expect("a buffer");
            let at = usize::from(buf.off());
            buf.bytes_mut()[at..at + frame.data().len()].copy_from_slice(frame.data());
            frames.push(Frame::new(buf, frame.data().len() as u16));
            if frame.is_lent() {
                from.completed(frame);
            }
        }
        to.input(now, &mut frames, &mut Local);
    }

    /// Everything both have to say, until both are silent.
    pub(crate) fn exchange(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.a.stack().wants_transmit() && !self.b.stack().wants_transmit() {
                return;
            }
            Two::carry(self.now, self.a.stack_mut(), self.b.stack_mut());
            Two::carry(self.now, self.b.stack_mut(), self.a.stack_mut());
        }
        panic!("no silence after {TURNS_MAX} turns");
    }

    pub(crate) fn listener(&mut self) -> i32 {
        let fd = self
            .b
            .socket(abi::AF_INET, abi::SOCK_STREAM, 0)
            .expect("a socket");
        self.b.bind(fd, ANY).expect("a free port");
        self.b.listen(fd, 10).expect("listening");
        fd
    }

    pub(crate) fn client(&mut self) -> i32 {
        self.a
            .socket(abi::AF_INET, abi::SOCK_STREAM, abi::IPPROTO_TCP)
            .expect("a socket")
    }

    /// A connection: the client's descriptor and the server's.
    pub(crate) fn open(&mut self) -> (i32, i32) {
        let listener = self.listener();
        let client = self.client();
        assert_eq!(
            self.a.connect(self.now, client, SERVER),
            Err(Errno::EINPROGRESS)
        );
        self.exchange();
        assert_eq!(self.a.connect(self.now, client, SERVER), Ok(()));
        let (server, peer) = self.b.accept(listener).expect("a connection");
        assert_eq!(peer, self.a.getsockname(client).expect("a name"));
        (client, server)
    }

    fn so_error(&mut self, fd: i32) -> i32 {
        let mut value = [0; 4];
        assert_eq!(
            self.a
                .getsockopt(fd, abi::SOL_SOCKET, abi::SO_ERROR, &mut value),
            Ok(4)
        );
        i32::from_ne_bytes(value)
    }
}

#[test]
fn only_tcp() {
    let mut two = Two::new();
    assert_eq!(
        two.a.socket(1, abi::SOCK_STREAM, 0),
        Err(Errno::EAFNOSUPPORT)
    );
    assert_eq!(
        two.a.socket(abi::AF_INET, abi::SOCK_DGRAM, 0),
        Err(Errno::ESOCKTNOSUPPORT)
    );
    assert_eq!(
        two.a.socket(abi::AF_INET, abi::SOCK_STREAM, 17),
        Err(Errno::EPROTONOSUPPORT)
    );
    let fd = two
        .a
        .socket(abi::AF_INET, abi::SOCK_STREAM | abi::SOCK_NONBLOCK, 6)
        .expect("a socket");
    assert_eq!(
        two.a.fcntl(fd, abi::F_GETFL, 0),
        Ok(abi::O_RDWR | abi::O_NONBLOCK)
    );
}

#[test]
fn the_lowest_descriptor_is_taken_first() {
    let mut two = Two::new();
    let fds: Vec<i32> = (0..4).map(|_| two.client()).collect();
    assert_eq!(fds, [3, 4, 5, 6]);
    assert_eq!(
        (two.a.close(two.now, 5), two.a.close(two.now, 3)),
        (Ok(()), Ok(()))
    );
    assert_eq!(two.a.close(two.now, 3), Err(Errno::EBADF));
    assert_eq!([two.client(), two.client(), two.client()], [3, 5, 7]);
    assert_eq!(two.a.listen(99, 1), Err(Errno::EBADF));
    assert_eq!(two.a.listen(-1, 1), Err(Errno::EBADF));
    assert_eq!(two.a.listen(i32::MIN, 1), Err(Errno::EBADF));
}

#[test]
fn binding_conflicts_as_in_the_kernel() {
    let mut two = Two::new();
    let (one, other) = (two.client(), two.client());
    assert_eq!(
        two.a.bind(one, SocketAddr::new(B, 80)),
        Err(Errno::EADDRNOTAVAIL)
    );
    assert_eq!(two.a.bind(one, ANY), Ok(()));
    assert_eq!(two.a.bind(one, ANY), Err(Errno::EINVAL));
    assert_eq!(
        two.a.bind(other, SocketAddr::new(A, 80)),
        Err(Errno::EADDRINUSE)
    );
    for fd in [one, other] {
        two.a
            .setsockopt(
                two.now,
                fd,
                abi::SOL_SOCKET,
                abi::SO_REUSEADDR,
                &1i32.to_ne_bytes(),
            )
            .expect("an option");
    }
    assert_eq!(two.a.bind(other, SocketAddr::new(A, 80)), Ok(()));
    assert_eq!(two.a.listen(one, 1), Ok(()));
    assert_eq!(two.a.listen(other, 1), Err(Errno::EADDRINUSE));
    let third = two.client();
    assert_eq!(two.a.bind(third, SocketAddr::new(A, 0)), Ok(()));
    assert!(two.a.getsockname(third).expect("a name").port() >= 32_768);
}

#[test]
fn a_connection_from_open_to_close() {
    let mut two = Two::new();
    let (client, server) = two.open();
    assert_eq!(two.a.connect(two.now, client, SERVER), Err(Errno::EISCONN));
    assert_eq!(two.a.getpeername(client), Ok(SERVER));
    assert_eq!(two.b.getsockname(server), Ok(SERVER));
    let mut got = [0; 16];
    assert_eq!(two.b.read(two.now, server, &mut got), Err(Errno::EAGAIN));
    assert_eq!(two.a.write(two.now, client, b"hello"), Ok(5));
    two.exchange();
    assert_eq!(two.b.ioctl(server, abi::FIONREAD, 0), Ok(5));
    assert_eq!(
        two.b.recv(two.now, server, &mut got[..2], abi::MSG_PEEK),
        Ok(2)
    );
    assert_eq!(two.b.read(two.now, server, &mut got), Ok(5));
    assert_eq!(&got[..5], b"hello");

    assert_eq!(two.a.shutdown(two.now, client, abi::SHUT_WR), Ok(()));
    assert_eq!(two.a.write(two.now, client, b"x"), Err(Errno::EPIPE));
    two.exchange();
    assert_eq!(
        (
            two.b.read(two.now, server, &mut got),
            two.b.read(two.now, server, &mut got)
        ),
        (Ok(0), Ok(0))
    );
    assert_eq!(two.b.write(two.now, server, b"bye"), Ok(3));
    assert_eq!(two.b.close(two.now, server), Ok(()));
    two.exchange();
    assert_eq!(two.a.read(two.now, client, &mut got), Ok(3));
    assert_eq!(two.a.read(two.now, client, &mut got), Ok(0));
    assert_eq!(two.a.close(two.now, client), Ok(()));
    assert_eq!(
        (two.a.stack().connections(), two.a.stack().hot_in_use()),
        (0, 0)
    );
}

#[test]
fn a_reset_is_told_once() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let linger = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
    two.b
        .setsockopt(two.now, server, abi::SOL_SOCKET, abi::SO_LINGER, &linger)
        .expect("an option");
    two.b.close(two.now, server).expect("open");
    two.exchange();
    let mut got = [0; 16];
    assert_eq!(
        two.a.read(two.now, client, &mut got),
        Err(Errno::ECONNRESET)
    );
    assert_eq!(two.a.read(two.now, client, &mut got), Ok(0));
    assert_eq!(two.a.write(two.now, client, b"x"), Err(Errno::EPIPE));
    assert_eq!(two.so_error(client), 0);
    assert_eq!(
        two.a.shutdown(two.now, client, abi::SHUT_WR),
        Err(Errno::ENOTCONN)
    );
    two.a.close(two.now, client).expect("open");
    assert_eq!(two.a.stack().connections(), 0);
}

#[test]
fn a_refused_attempt_is_told_by_connect_or_by_so_error() {
    let mut two = Two::new();
    let client = two.client();
    assert_eq!(
        two.a.connect(two.now, client, SERVER),
        Err(Errno::EINPROGRESS)
    );
    assert_eq!(two.a.connect(two.now, client, SERVER), Err(Errno::EALREADY));
    assert_eq!(two.a.write(two.now, client, b"x"), Err(Errno::EAGAIN));
    two.exchange();
    assert_eq!(
        two.a.connect(two.now, client, SERVER),
        Err(Errno::ECONNREFUSED)
    );
    assert_eq!(
        two.a.connect(two.now, client, SERVER),
        Err(Errno::EINPROGRESS)
    );
    two.exchange();
    assert_eq!(
        (two.so_error(client), two.so_error(client)),
        (Errno::ECONNREFUSED.0, 0)
    );
    assert_eq!(
        two.a.connect(two.now, client, SERVER),
        Err(Errno::ECONNABORTED)
    );
    two.a.close(two.now, client).expect("open");
    assert_eq!(
        (two.a.stack().connections(), two.a.stack().hot_in_use()),
        (0, 0)
    );
}

#[test]
fn calls_out_of_place() {
    let mut two = Two::new();
    let fd = two.client();
    let mut got = [0; 4];
    assert_eq!(two.a.read(two.now, fd, &mut got), Err(Errno::ENOTCONN));
    assert_eq!(two.a.write(two.now, fd, b"x"), Err(Errno::EPIPE));
    assert_eq!(two.a.accept(fd), Err(Errno::EINVAL));
    assert_eq!(
        two.a.shutdown(two.now, fd, abi::SHUT_RD),
        Err(Errno::ENOTCONN)
    );
    assert_eq!(two.a.getpeername(fd), Err(Errno::ENOTCONN));
    assert_eq!(
        two.a.connect(
            two.now,
            fd,
            SocketAddr::from((Ipv4Addr::new(224, 0, 0, 1), 80))
        ),
        Err(Errno::ENETUNREACH)
    );
    assert_eq!(two.a.listen(fd, 1), Ok(()));
    assert_eq!(two.a.accept(fd), Err(Errno::EAGAIN));
    assert_eq!(two.a.connect(two.now, fd, SERVER), Err(Errno::EISCONN));
    assert_eq!(two.a.shutdown(two.now, fd, 7), Err(Errno::EINVAL));
    assert_eq!(
        two.a
            .setsockopt(two.now, fd, abi::SOL_SOCKET, 12_345, &[1, 0, 0, 0]),
        Err(Errno::ENOPROTOOPT)
    );
    assert_eq!(
        two.a
            .setsockopt(two.now, fd, abi::SOL_SOCKET, abi::SO_LINGER, &[1, 0, 0, 0]),
        Err(Errno::EINVAL)
    );
}

#[test]
fn an_attempt_given_up_leaves_a_usable_socket() {
    let mut two = Two::new();
    two.listener();
    let fd = two.client();
    assert_eq!(two.a.connect(two.now, fd, SERVER), Err(Errno::EINPROGRESS));
    assert_eq!(two.a.shutdown(two.now, fd, abi::SHUT_WR), Ok(()));
    assert_eq!(two.a.connect(two.now, fd, SERVER), Err(Errno::EINPROGRESS));
    two.exchange();
    assert_eq!(two.a.connect(two.now, fd, SERVER), Ok(()));
    two.a.close_all(two.now);
    two.exchange();
    assert_eq!(two.a.stack().connections(), 0);
}

/// Sets an option of four bytes and gives what is read back.
fn set_and_get(two: &mut Two, fd: i32, (level, name): (i32, i32), value: i32) -> Result<i32> {
    two.a
        .setsockopt(two.now, fd, level, name, &value.to_ne_bytes())?;
    let mut got = [0; 4];
    two.a.getsockopt(fd, level, name, &mut got)?;
    Ok(i32::from_ne_bytes(got))
}

#[test]
fn options_are_kept_as_linux_keeps_them() {
    let mut two = Two::new();
    let fd = two.client();
    let tcp = |name| (abi::SOL_TCP, name);
    let same = [
        ((abi::SOL_SOCKET, abi::SO_KEEPALIVE), 1),
        (tcp(abi::TCP_NODELAY), 1),
        (tcp(abi::TCP_CORK), 1),
        (tcp(abi::TCP_KEEPIDLE), 30),
        (tcp(abi::TCP_KEEPINTVL), 5),
        (tcp(abi::TCP_KEEPCNT), 3),
        (tcp(abi::TCP_SYNCNT), 4),
        (tcp(abi::TCP_USER_TIMEOUT), 2_500),
        (tcp(abi::TCP_MAXSEG), 1_000),
        (tcp(abi::TCP_DEFER_ACCEPT), 3),
        ((abi::IPPROTO_IP, abi::IP_TTL), 9),
    ];
    for (option, value) in same {
        assert_eq!(
            set_and_get(&mut two, fd, option, value),
            Ok(value),
            "{option:?}"
        );
    }
    // Buffers are told doubled; the lower bits of the type of service are not ours to set.
    let buffer = (abi::SOL_SOCKET, abi::SO_RCVBUF);
    assert_eq!(set_and_get(&mut two, fd, buffer, 50_000), Ok(100_000));
    let tos = (abi::IPPROTO_IP, abi::IP_TOS);
    assert_eq!(set_and_get(&mut two, fd, tos, 0x13), Ok(0x10));
    for (set, told) in [(5, 5), (61, 61), (i32::MAX, 120), (-7, -1), (0, 60)] {
        let waits = set_and_get(&mut two, fd, tcp(abi::TCP_LINGER2), set);
        assert_eq!(waits, Ok(told));
    }
    let wrong = [
        (tcp(abi::TCP_KEEPIDLE), 0),
        (tcp(abi::TCP_KEEPIDLE), 32_768),
        (tcp(abi::TCP_KEEPCNT), 128),
        (tcp(abi::TCP_USER_TIMEOUT), -1),
        (tcp(abi::TCP_MAXSEG), 87),
        ((abi::IPPROTO_IP, abi::IP_TTL), 256),
    ];
    for (option, value) in wrong {
        assert_eq!(
            set_and_get(&mut two, fd, option, value),
            Err(Errno::EINVAL),
            "{option:?}"
        );
    }
    let (level, name) = tcp(abi::TCP_CONGESTION);
    assert_eq!(
        two.a.setsockopt(two.now, fd, level, name, b"reno\0"),
        Ok(())
    );
    let mut got = [0; 16];
    assert_eq!(two.a.getsockopt(fd, level, name, &mut got), Ok(16));
    assert_eq!(&got[..5], b"reno\0");
    let unknown = two.a.setsockopt(two.now, fd, level, name, b"vegas");
    assert_eq!(unknown, Err(Errno::ENOENT));
}

#[test]
fn a_connection_has_its_sockets_options_and_tells_of_itself() {
    let mut two = Two::new();
    two.listener();
    let fd = two.client();
    let option = (abi::SOL_TCP, abi::TCP_MAXSEG);
    assert_eq!(set_and_get(&mut two, fd, option, 700), Ok(700));
    let mut info = [0; 256];
    let (level, name) = (abi::SOL_TCP, abi::TCP_INFO);
    assert_eq!(two.a.getsockopt(fd, level, name, &mut info), Ok(104));
    assert_eq!(i32::from(info[0]), abi::TCP_CLOSE);
    assert_eq!(two.a.connect(two.now, fd, SERVER), Err(Errno::EINPROGRESS));
    two.exchange();
    assert_eq!(two.a.connect(two.now, fd, SERVER), Ok(()));
    assert_eq!(two.a.getsockopt(fd, level, name, &mut info), Ok(104));
    // TCP_ESTABLISHED; timestamps, SACK and window scaling; segments of 700 bytes less the timestamps.
    assert_eq!((info[0], info[5]), (1, 7));
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    assert_eq!((word(8 + 4 * 2), word(8 + 4 * 3)), (688, 700));
    two.a.close_all(two.now);
    two.exchange();
}
