//! Datagrams between the kernel's UDP and ours over a TAP device with its default offloads, where the kernel leaves checksums to
//! its device; and a name server on the kernel's side. Needs root; without it the tests say so in one line and pass, unless
//! `JANUS_PRIVILEGED=1` says that the machine must be able to.

mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket as KernelSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use janus::net::TcpStream;
use janus::time::timeout;
use janus::{BackendChoice, Runtime};
use janus_io::tap::{Tap, TapCounters};
use support::datagrams::{PORT, kernel_socket, send_back, there_and_back};
use support::privileged::{in_own_space, run, skip};
use support::*;

const DEVICE: &str = "jt0";
const OURS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const KERNELS: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

/// Runs `test` in a namespace of its own, or says why not.
fn in_space(test: impl FnOnce() + Send + 'static) {
    let possible = || {
        run("ip -V")?;
        match std::path::Path::new(janus_io::tap::DEVICE).exists() {
            true => in_own_space(test),
            false => Err(format!("this machine has no {}", janus_io::tap::DEVICE)),
        }
    };
    if let Err(why) = possible() {
        skip(&why);
    }
}

/// A runtime on a TAP device as it is by default, the kernel's end set up.
fn runtime(case: Case, name_server: Option<SocketAddr>) -> (Runtime, Arc<TapCounters>) {
    let tap = Tap::new(DEVICE).with_kernel_address(KERNELS[0].parse().unwrap(), 24);
    assert!(tap.offloads, "the default");
    let counters = tap.counters();
    let builder = case
        .builder()
        .backend(BackendChoice::Custom(Box::new(tap)))
        .address(format!("{}/24", OURS[0]).parse().unwrap())
        .address(format!("{}/64", OURS[1]).parse().unwrap());
    let builder = match name_server {
        Some(server) => builder.name_server(server),
        None => builder,
    };
    let runtime = builder.build().unwrap();
    // Without `nodad` the kernel would first ask for a second whether somebody else has it.
    let address = format!("ip -6 address add {}/64 dev {DEVICE} nodad", KERNELS[1]);
    run(&address).unwrap();
    (runtime, counters)
}

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn nothing_is_lost(counters: &TapCounters) {
    assert_eq!(counters.lost_checksum.get(), 0);
    assert_eq!(counters.lost_uncut.get(), 0);
    assert_eq!(counters.lost_refused.get(), 0);
}

#[test]
fn small_full_and_fragmented_ones_there_and_back() {
    for case in [ONE_COMBINED, THREE_COMBINED, THREE_SPLIT] {
        in_space(move || {
            let (runtime, counters) = runtime(case, None);
            let server = send_back(runtime, case);
            OURS.map(ip).into_iter().for_each(there_and_back);
            nothing_is_lost(&counters);
            server.stop().unwrap();
        });
    }
}

/// Has the kernel cut what a socket sends into datagrams of this length (udp(7), UDP_SEGMENT).
fn cut_into(socket: &KernelSocket, len: libc::c_int) {
    // SAFETY: the call reads an integer, which outlives it.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const len).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// What a program sends as one and the kernel cuts comes as datagrams, the last one shorter.
#[test]
fn what_the_kernel_cuts_comes_as_datagrams() {
    in_space(|| {
        let (runtime, counters) = runtime(ONE_COMBINED, None);
        let server = send_back(runtime, ONE_COMBINED);
        for to in OURS.map(ip) {
            let socket = kernel_socket(to);
            cut_into(&socket, 1_000);
            let sent = pattern(20_300, 5);
            socket.send_to(&sent, (to, PORT)).unwrap();
            // Each comes back by itself, in order.
            let mut into = [0; 2_000];
            for part in sent.chunks(1_000) {
                let len = socket.recv(&mut into).expect("an answer");
                assert!(into[..len] == *part, "{len} of {} to {to}", part.len());
            }
        }
        nothing_is_lost(&counters);
        server.stop().unwrap();
    });
}

const A: u16 = 1;
const AAAA: u16 = 28;

/// Answers a question: both families' addresses of the kernel for `web.example`, and no other name is known.
fn answer(question: &[u8]) -> Vec<u8> {
    let name = question[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let end = 12 + name + 4;
    let mut out = question[..end].to_vec();
    out[2] |= 0x80;
    // No additional records.
    out[11] = 0;
    if &question[12..12 + name] != b"\x03web\x07example\x00" {
        out[3] = 3;
        return out;
    }
    let of_type = u16::from_be_bytes([question[end - 4], question[end - 3]]);
    let address = match (of_type, KERNELS.map(ip)) {
        (A, [IpAddr::V4(own), _]) => own.octets().to_vec(),
        (AAAA, [_, IpAddr::V6(own)]) => own.octets().to_vec(),
        _ => return out,
    };
    out[7] = 1;
    // Its name is the question's; class IN, a minute to live.
    out.extend([0xc0, 12]);
    out.extend(of_type.to_be_bytes());
    out.extend([0, 1, 0, 0, 0, 60, 0, address.len() as u8]);
    out.extend(address);
    out
}

/// A name server of the kernel's on port 53 of `at`, until it is dropped; gives how many questions it had.
struct NameServer {
    over: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl NameServer {
    fn start(at: IpAddr) -> NameServer {
        let socket = KernelSocket::bind((at, 53)).unwrap();
        let between = Duration::from_millis(20);
        socket.set_read_timeout(Some(between)).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let thread = std::thread::spawn(move || {
            let (mut into, mut asked) = ([0; 1_500], 0);
            while !ended.load(Ordering::Relaxed) {
                if let Ok((len, from)) = socket.recv_from(&mut into) {
                    socket.send_to(&answer(&into[..len]), from).unwrap();
                    asked += 1;
                }
            }
            asked
        });
        NameServer { over, thread }
    }

    fn stop(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Greets one connection.
fn greet(listener: TcpListener) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"found by name").unwrap();
        // Until the other end is done.
        let _ = stream.read(&mut [0]);
    })
}

#[test]
fn names_are_asked_of_a_server_behind_the_device() {
    for server in KERNELS {
        in_space(move || {
            let (runtime, counters) = runtime(ONE_COMBINED, Some((ip(server), 53).into()));
            let names = NameServer::start(ip(server));
            let greeting = greet(TcpListener::bind("[::]:8080").unwrap());
            let client = Running::start(runtime, || async {
                let stream = timeout(PATIENCE, TcpStream::connect("web.example:8080")).await??;
                let mut said = [0; 13];
                stream.read_exact(&mut said).await?;
                assert_eq!(&said, b"found by name");
                let unknown = timeout(PATIENCE, TcpStream::connect("none.example:8080")).await?;
                let unknown = unknown.err().map(|error| error.kind());
                assert_eq!(unknown, Some(std::io::ErrorKind::NotFound));
                Ok::<(), janus::BoxError>(())
            });
            client.join().unwrap();
            greeting.join().unwrap();
            assert!(names.stop() >= 2, "two names, each asked for");
            nothing_is_lost(&counters);
        });
    }
}
