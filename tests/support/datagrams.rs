//! The kernel's datagrams and ours: a runtime that sends back what comes, and a kernel's sockets that ask it, in both families,
//! with nothing in them, with all that fits a packet, and in fragments.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as KernelSocket};
use std::sync::mpsc::channel;

use janus::Runtime;
use janus::net::UdpSocket;

use super::{Case, PATIENCE, Running, pattern};

/// What comes there is sent back.
pub const PORT: u16 = 5300;
/// No socket has it.
const NOBODYS: u16 = 5301;
/// Sockets of the kernel's, each with a port of its own, so that their datagrams come to different places of every hash.
const SOCKETS: usize = 6;

/// Starts a runtime whose last core sends back what comes to [`PORT`].
pub fn send_back(runtime: Runtime, case: Case) -> Running {
    let (ready, bound) = channel();
    let server = Running::start(runtime, move || {
        let ready = ready.clone();
        async move {
            if janus::core_id() != Some(case.cores - 1) {
                return std::future::pending::<janus::Result>().await;
            }
            let socket = UdpSocket::bind(("::", PORT)).await?;
            ready.send(())?;
            loop {
                let datagram = socket.recv_datagram().await?;
                socket.send_to(datagram.bytes(), datagram.peer).await?;
            }
        }
    });
    bound.recv_timeout(PATIENCE).expect("a socket");
    server
}

/// A socket of the kernel, in this thread's namespace, of the family of `to`.
pub fn kernel_socket(to: IpAddr) -> KernelSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = KernelSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Receives, again when a signal came between: DPDK's TAP device sends signals to the process, and a wait that has a limit ends by them.
fn undisturbed<T>(mut receive: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match receive() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

/// Sends one to the runtime at `to` and waits for it to come back.
pub fn asked(socket: &KernelSocket, to: IpAddr, text: &[u8]) {
    let to = SocketAddr::new(to, PORT);
    socket.send_to(text, to).unwrap();
    let mut into = vec![0; 70_000];
    let (len, from) = undisturbed(|| socket.recv_from(&mut into)).expect("an answer");
    assert_eq!((len, from), (text.len(), to));
    assert!(into[..len] == *text, "{len} bytes to {to}");
}

/// Asks the runtime at `to`, over a link of an MTU of 1,500, from this thread's namespace.
pub fn there_and_back(to: IpAddr) {
    let room = 1_500 - 8 - if to.is_ipv4() { 20 } else { 40 };
    for round in 0..SOCKETS {
        let socket = kernel_socket(to);
        for len in [0, 1, 2, 511, room - 1, room, room + 1, 9_001, 60_000] {
            asked(&socket, to, &pattern(len, round));
        }
    }
    // Who asks at a port that nobody has is told.
    let socket = kernel_socket(to);
    socket.connect((to, NOBODYS)).unwrap();
    socket.send(b"anybody there?").unwrap();
    let refused = undisturbed(|| socket.recv(&mut [0; 16])).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{to}");
}
