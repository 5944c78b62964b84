//! A server over AF_XDP and the kernel's own TCP as its client, over a pair of veth interfaces between namespaces made for
//! the test; and the kernel at the server's end, which keeps all that is not the server's. Needs root; without it the tests
//! say so in one line and pass, unless `JANUS_PRIVILEGED=1` says that the machine must be able to.

mod support;
#[path = "../crates/janus-io/tests/support/veth.rs"]
mod veth;

use std::io::{ErrorKind, Read, Write};
use std::net::{
    IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream as KernelStream,
    UdpSocket as KernelSocket,
};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use janus::net::{TcpStream, UdpSocket};
use janus::time::timeout;
use janus::{BackendChoice, Runtime};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};
use support::daemon::Daemon;
use support::datagrams::{send_back, there_and_back};
use support::*;
use veth::{FAR_KERNEL, NEAR, NEAR_KERNEL, NEAR_KERNEL_V6, OURS, OURS_V6, Veth, in_veth};

/// Bytes each way.
const BULK: usize = 64_000_000;
const FEW: usize = 4_000_000;
const PORT: u16 = 8080;

/// A runtime on the near interface.
fn runtime(case: Case, addresses: &[&str], ports: &str) -> Runtime {
    builder(case, addresses, ports).build().unwrap()
}

fn builder(case: Case, addresses: &[&str], ports: &str) -> janus::Builder {
    let backend = BackendChoice::Xdp {
        interface: NEAR.to_owned(),
        ports: match ports {
            "" => Default::default(),
            some => some.parse().unwrap(),
        },
    };
    let builder = case.builder().backend(backend);
    let add = |builder: janus::Builder, address: &&str| {
        let prefix = if address.contains(':') { 64 } else { 24 };
        builder.address(format!("{address}/{prefix}").parse().unwrap())
    };
    addresses.iter().fold(builder, add)
}

/// A sum over bytes in which each one's place counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    hash: u64,
    bytes: usize,
}

impl Sum {
    const NONE: Sum = Sum { hash: 7, bytes: 0 };

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.bytes += bytes.len();
    }
}

/// Sends `len` bytes that do not repeat and reads until the peer's end: the sums of both.
fn exchange(stream: KernelStream, len: usize) -> [Sum; 2] {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let (mut sum, mut word, mut chunk) = (Sum::NONE, 1_u64, vec![0; 64 << 10]);
        while sum.bytes < len {
            for piece in chunk.chunks_exact_mut(8) {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
                piece.copy_from_slice(&(word >> 7).to_le_bytes());
            }
            let part = chunk.len().min(len - sum.bytes);
            writer.write_all(&chunk[..part]).unwrap();
            sum.add(&chunk[..part]);
        }
        writer.shutdown(Shutdown::Write).unwrap();
        sum
    });
    let (mut sum, mut reader, mut chunk) = (Sum::NONE, stream, vec![0; 64 << 10]);
    loop {
        match reader.read(&mut chunk).unwrap() {
            0 => return [writing.join().unwrap(), sum],
            got => sum.add(&chunk[..got]),
        }
    }
}

/// From the far end to our server and back.
fn echoed(veth: &Veth, to: &str, len: usize) {
    let address: SocketAddr = (to.parse::<IpAddr>().unwrap(), PORT).into();
    let sums = veth.far(move || {
        let stream = KernelStream::connect_timeout(&address, PATIENCE).expect("our server");
        exchange(stream, len)
    });
    assert_eq!(sums[0], sums[1]);
    assert_eq!(sums[0].bytes, len);
}

/// A port that was given back may still be in use: a child that another test is starting just now has all that is open
/// here until it has become its program.
fn bound(at: &str, port: u16) -> TcpListener {
    let until = Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind((at, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            listener => return listener.expect("a free port"),
        }
    }
}

/// A listener of the near kernel, reached from the far end: what SSH would be.
fn kernel_serves(veth: &Veth, at: &str, port: u16) {
    let listener = bound(at, port);
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-as-before").unwrap();
    });
    let said = veth.far(move || {
        let mut stream = KernelStream::connect_timeout(&address, PATIENCE).expect("the kernel");
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    });
    assert_eq!(said, "SSH-2.0-as-before");
    serving.join().unwrap();
}

/// An address of our own beside the kernel's, in every layout: pings, ARP and neighbour discovery both ways, and bytes.
fn beside_the_kernel(case: Case) {
    in_veth(case.queues(), move |veth| {
        let runtime = runtime(case, &[OURS, OURS_V6], "");
        let both = (Ipv6Addr::UNSPECIFIED, PORT).into();
        let (server, _, _) = serve_at(runtime, both, echo);
        // Nobody knows anybody yet: each side asks for the other.
        for ping in ["ping", "ping -6 -s 3000"] {
            let to = if ping == "ping" { OURS } else { OURS_V6 };
            veth.far_run(&format!("{ping} -c 2 -i 0.2 -W 60 {to}"))
                .unwrap();
        }
        let found = veth.far_run("ip neighbour").unwrap();
        let mac = janus_io::tap::interface(NEAR).unwrap().mac.to_string();
        for address in [OURS, OURS_V6] {
            let known = |line: &str| line.starts_with(address) && line.contains(&mac);
            assert!(found.lines().any(known), "{address} has {mac}: {found}");
        }
        echoed(veth, OURS, FEW);
        echoed(veth, OURS_V6, FEW);
        kernel_serves(veth, NEAR_KERNEL, 22);
        // The same port as ours, on the kernel's address.
        kernel_serves(veth, NEAR_KERNEL, PORT);
        kernel_serves(veth, NEAR_KERNEL_V6, PORT);
        for address in [NEAR_KERNEL, NEAR_KERNEL_V6] {
            veth.far_run(&format!("ping -c 1 -W 60 {address}")).unwrap();
        }
        server.stop().unwrap();
        assert!(!veth::is_attached());
        kernel_serves(veth, NEAR_KERNEL, PORT);
    });
}

in_every_layout!(beside_the_kernel);

#[test]
fn much_data_both_ways_and_the_kernel_meanwhile() {
    in_veth(1, |veth| {
        let runtime = runtime(ONE_COMBINED, &[OURS, OURS_V6], "");
        let both = (Ipv6Addr::UNSPECIFIED, PORT).into();
        let (server, _, _) = serve_at(runtime, both, echo);
        let address: SocketAddr = (OURS.parse::<IpAddr>().unwrap(), PORT).into();
        let (done, sums) = channel();
        veth.far(move || {
            let stream = KernelStream::connect_timeout(&address, PATIENCE).expect("our server");
            // On a thread of the far end's, so that there is room for more beside it.
            std::thread::spawn(move || done.send(exchange(stream, BULK)));
        });
        // The first time just after it began, however quick the machine is.
        let sums = loop {
            kernel_serves(veth, NEAR_KERNEL, 22);
            if let Ok(sums) = sums.recv_timeout(Duration::from_millis(50)) {
                break sums;
            }
        };
        assert_eq!((sums[0], sums[0].bytes), (sums[1], BULK));
        server.stop().unwrap();
    });
}

/// Of the daemon's memory at first, and of the member's own once another daemon is there.
#[test]
fn a_connection_outlives_daemons_that_have_the_interface() {
    in_veth(1, |veth| {
        let device = || builder(ONE_COMBINED, &[OURS], "");
        let begin = || Daemon::open(device(), "xdp", 8_192).expect("a daemon");
        let mut daemon = begin();
        let member = ONE_COMBINED.builder().packet_buffers(4_096);
        let member = member.backend(daemon.backend());
        let member = member.build().expect("it may join");
        let (server, _, _) = serve_on(member, PORT, echo);
        let address: SocketAddr = (OURS.parse::<IpAddr>().unwrap(), PORT).into();
        let (done, sums) = channel();
        veth.far(move || {
            let stream = KernelStream::connect_timeout(&address, PATIENCE).expect("our server");
            std::thread::spawn(move || done.send(exchange(stream, BULK)));
        });
        let mut uncopied = Vec::new();
        let sums = loop {
            if let Ok(sums) = sums.recv_timeout(Duration::from_millis(100)) {
                break sums;
            }
            if uncopied.len() < 3 {
                uncopied.push(daemon.ends().uncopied.get());
                daemon = begin();
            }
        };
        assert_eq!((sums[0], sums[0].bytes), (sums[1], BULK));
        assert!(uncopied[0] > 0, "what was borrowed is not copied");
        server.stop().unwrap();
        let folder = daemon.folder();
        let counters = daemon.ends();
        assert_eq!(counters.cut_off.get(), 0, "{counters}");
        assert!(counters.to_members.get() > 0, "{counters}");
        let _ = std::fs::remove_dir_all(folder);
    });
}

/// One address for both: our ports are ours, SSH's is the kernel's, and each finds its neighbours.
#[test]
fn one_address_shared_with_the_kernel() {
    in_veth(1, |veth| {
        let addresses = [NEAR_KERNEL, NEAR_KERNEL_V6];
        let runtime = runtime(ONE_COMBINED, &addresses, "80,8000-8080,5300/udp");
        let both = (Ipv6Addr::UNSPECIFIED, PORT).into();
        let (server, _, _) = serve_at(runtime, both, echo);
        for _ in 0..3 {
            for address in addresses {
                kernel_serves(veth, address, 22);
                echoed(veth, address, FEW / 4);
                veth.far_run(&format!("ping -c 1 -W 60 {address}")).unwrap();
            }
            // All forgotten, at the kernel's near end too.
            veth.far_run(&format!("ip neighbour flush dev {}", veth::FAR))
                .unwrap();
            veth::ip(&format!("neighbour flush dev {NEAR}")).unwrap();
        }
        server.stop().unwrap();
        kernel_serves(veth, NEAR_KERNEL, PORT);
    });
}

/// A datagram to `to` from the far end: what comes back.
fn asked(veth: &Veth, to: &str, port: u16, text: &'static [u8]) -> Vec<u8> {
    let to: SocketAddr = (to.parse::<IpAddr>().unwrap(), port).into();
    veth.far(move || {
        let socket = KernelSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(text, to).unwrap();
        let mut into = [0; 2_000];
        let (len, from) = socket.recv_from(&mut into).expect("an answer");
        assert_eq!(from, to);
        into[..len].to_vec()
    })
}

/// Sends to a port that nobody has until the far kernel's word comes that it is so.
async fn refused_at_last(from: u16) -> janus::Result {
    let socket = UdpSocket::bind(("0.0.0.0", from)).await?;
    socket.connect((FAR_KERNEL, 9)).await?;
    let hears = async {
        let mut into = [0; 16];
        loop {
            // An error that came meanwhile may be told here too.
            let sent = socket.send(b"anybody there?").await;
            let heard = timeout(Duration::from_millis(200), socket.recv(&mut into));
            let error = match sent {
                Err(error) => Some(error),
                Ok(_) => heard.await.ok().and_then(Result::err),
            };
            if let Some(error) = error {
                return error;
            }
        }
    };
    let error = timeout(PATIENCE, hears).await?;
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    Ok(())
}

async fn answer_all(socket: UdpSocket) -> janus::Result {
    loop {
        let datagram = socket.recv_datagram().await?;
        socket.send_to(datagram.bytes(), datagram.peer).await?;
    }
}

/// Datagrams at an address that the kernel has too: our ports are ours, the others are its, and so is TCP; errors come to whom
/// they are about.
#[test]
fn datagrams_for_our_ports_at_a_shared_address() {
    in_veth(1, |veth| {
        let addresses = [NEAR_KERNEL, NEAR_KERNEL_V6];
        let runtime = runtime(ONE_COMBINED, &addresses, "5300-5301/udp");
        let (ready, bound) = channel();
        let server = Running::start(runtime, move || {
            let ready = ready.clone();
            async move {
                refused_at_last(5301).await?;
                let socket = UdpSocket::bind("[::]:5300").await?;
                ready.send(())?;
                answer_all(socket).await
            }
        });
        bound
            .recv_timeout(PATIENCE)
            .expect("a refusal, and a socket");
        for address in addresses {
            let kernel = KernelSocket::bind((address, 5302)).unwrap();
            let answering = std::thread::spawn(move || {
                let (_, from) = kernel.recv_from(&mut [0; 2_000]).unwrap();
                kernel.send_to(b"the kernel", from).unwrap();
            });
            assert_eq!(asked(veth, address, 5300, b"who?"), b"who?");
            assert_eq!(asked(veth, address, 5302, b"who?"), b"the kernel");
            answering.join().unwrap();
            kernel_serves(veth, address, 5300);
        }
        server.stop().unwrap();
    });
}

/// The far kernel leaves the checksums of what it sends to its interface, which has no hardware to fill them in.
#[test]
fn datagrams_whose_checksum_is_left_to_the_interface() {
    for case in [ONE_COMBINED, THREE_COMBINED] {
        in_veth(case.queues(), move |veth| {
            let runtime = runtime(case, &[OURS, OURS_V6], "");
            let server = send_back(runtime, case);
            for to in [OURS, OURS_V6] {
                let to: IpAddr = to.parse().unwrap();
                veth.far(move || there_and_back(to));
            }
            server.stop().unwrap();
        });
    }
}

/// A segment whose checksum is wrong, not merely left out, is dropped, counted and told of.
#[test]
fn a_wrong_checksum_is_told_of() {
    in_veth(1, |veth| {
        let (tell, told) = channel();
        let tell = std::sync::Mutex::new(tell);
        let runtime = builder(ONE_COMBINED, &[OURS], "").warn_blocked(None);
        let runtime = runtime.on_warning(move |warning| {
            let _ = tell.lock().unwrap().send(warning.clone());
        });
        let (count, counted) = channel();
        let server = Running::start(runtime.build().unwrap(), move || {
            let count = count.clone();
            async move {
                while janus::report().unwrap().tcp.dropped_checksum == 0 {
                    janus::time::sleep(Duration::from_millis(1)).await;
                }
                count.send(janus::report().unwrap().tcp.dropped_checksum)?;
                std::future::pending::<janus::Result>().await
            }
        });
        veth.far(|| {
            let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP));
            let to: SocketAddr = (OURS.parse::<IpAddr>().unwrap(), 0).into();
            // A SYN of the least length, from port 1 to port 80.
            let mut syn = [0; 20];
            (syn[1], syn[3], syn[12], syn[13], syn[16]) = (1, 80, 5 << 4, 2, 0x77);
            rustix::net::sendto(raw.unwrap(), &syn, SendFlags::empty(), &to).unwrap();
        });
        let warning = told.recv_timeout(PATIENCE).expect("a warning");
        let expected = janus::Warning::BadChecksums {
            core: Some(0),
            count: 1,
        };
        assert_eq!(warning, expected);
        assert_eq!(counted.recv_timeout(PATIENCE), Ok(1));
        server.stop().unwrap();
    });
}

#[test]
fn outwards_to_a_kernel() {
    in_veth(1, |veth| {
        let runtime = runtime(ONE_COMBINED, &[OURS], "");
        let listener = veth.far(|| TcpListener::bind((FAR_KERNEL, PORT)).unwrap());
        let client = Running::start(runtime, || async {
            let stream = TcpStream::connect((FAR_KERNEL, PORT)).await?;
            echo(stream).await;
            std::future::pending::<std::io::Result<()>>().await
        });
        let (stream, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), OURS.parse::<IpAddr>().unwrap());
        let sums = exchange(stream, FEW);
        assert_eq!((sums[0], sums[0].bytes), (sums[1], FEW));
        client.stop().unwrap();
    });
}
