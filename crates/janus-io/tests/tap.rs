//! The TAP backend against the kernel, in a network namespace of its own. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN: it
//! says `skipped: …` where it has not, and fails instead with JANUS_PRIVILEGED=1.

#[path = "support/polling.rs"]
mod polling;

use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use janus_io::tap::{Tap, interface};
use janus_io::{Backend, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_wire::{MacAddr, arp, ethernet, ipv4, proto};
use polling::{answer, arp_packet, frame, look};
use rustix::thread::{UnshareFlags, unshare_unsafe};

const KERNEL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// On a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `test` on a thread that is alone in a fresh network namespace; it ends with the thread. One at a time: between fork and exec a program
/// that one begins has another's descriptors too.
fn in_own_namespace(test: fn()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = std::thread::spawn(move || {
        // SAFETY: a network namespace shares no memory or descriptors with anything, and this thread opened none.
        if let Err(errno) = unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            return Err(format!(
                "no network namespace of its own ({errno}); run as root"
            ));
        }
        if let Err(error) = std::fs::File::options()
            .read(true)
            .write(true)
            .open(janus_io::tap::DEVICE)
        {
            return Err(format!(
                "{} cannot be opened ({error})",
                janus_io::tap::DEVICE
            ));
        }
        test();
        Ok(())
    });
    if let Err(why) = thread.join().expect("the test itself passes") {
        assert!(
            std::env::var_os("JANUS_PRIVILEGED").is_none_or(|v| v != "1"),
            "JANUS_PRIVILEGED=1, but {why}"
        );
        // Past the test harness's capture, so that it is seen.
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
    }
}

fn tap(name: &str) -> Box<Tap> {
    Box::new(Tap::new(name).with_kernel_address(KERNEL, 24))
}

/// The same, where every packet crosses by itself.
fn plain(name: &str) -> Box<Tap> {
    Box::new((*tap(name)).without_offloads())
}

/// Polls all queues until one gives a frame that `wanted` makes something of.
fn receive<T>(
    queues: &mut [Box<dyn Queue>],
    pool: &mut Pool,
    wanted: impl Fn(ethernet::Header, &[u8]) -> Option<T>,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        for queue in &mut *queues {
            if let Some(found) = look(&mut **queue, pool, &wanted) {
                return found;
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("the kernel sent nothing like it");
}

fn send(queue: &mut dyn Queue, pool: &mut Pool, frame: Frame) {
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    batch.push(frame).unwrap();
    queue.tx_burst(pool, &mut batch, &mut done);
    assert!(batch.is_empty() && done.is_empty());
}

/// Answers the kernel's question for our link address.
fn resolve(queues: &mut [Box<dyn Queue>], pool: &mut Pool, mac: MacAddr) {
    let question = receive(queues, pool, |header, payload| {
        arp_packet(header, payload).filter(|packet| packet.target_ip == OURS)
    });
    assert_eq!(
        (question.op, question.sender_ip),
        (arp::Op::Request, KERNEL)
    );
    let answer = answer(pool, &question, mac);
    send(&mut *queues[0], pool, answer);
}

#[test]
fn a_datagram_there_and_back() {
    in_own_namespace(|| there_and_back(tap("jns0"), true));
    in_own_namespace(|| there_and_back(plain("jns0"), false));
    // One that stays must not give what a later opener has not asked for.
    in_own_namespace(|| {
        let made = std::process::Command::new("ip")
            .args(["tuntap", "add", "dev", "jns0", "mode", "tap", "multi_queue"])
            .status();
        if made.is_ok_and(|status| status.success()) {
            there_and_back(tap("jns0"), true);
            there_and_back(plain("jns0"), false);
        }
    });
}

/// The kernel's own length is short for many connections at once; another was chosen.
#[test]
fn its_queues_have_room_for_many_packets() {
    in_own_namespace(|| {
        let ip = |args: &str| {
            std::process::Command::new("ip")
                .args(args.split(' '))
                .output()
        };
        let length = || {
            let told = ip("-o link show dev jns0").expect("it ran before");
            let told = String::from_utf8_lossy(&told.stdout).into_owned();
            let number = told
                .split(" qlen ")
                .nth(1)
                .and_then(|it| it.split_whitespace().next());
            number.and_then(|it| it.trim_end_matches('\\').parse::<u32>().ok())
        };
        if ip("-V").is_err() {
            let _ = writeln!(std::io::stderr(), "skipped: there is no `ip` to ask");
            return;
        }
        let made = tap("jns0").open(2).unwrap();
        assert_eq!(length(), Some(16_384));
        drop(made);
        for args in [
            "tuntap add dev jns0 mode tap multi_queue",
            "link set jns0 txqueuelen 2000",
        ] {
            assert!(ip(args).unwrap().status.success());
        }
        let found = tap("jns0").open(2).unwrap();
        assert_eq!(length(), Some(2_000));
        drop(found);
    });
}

fn there_and_back(backend: Box<Tap>, offloads: bool) {
    let counters = backend.counters();
    let mut queues = backend.open(2).unwrap();
    let offered = queues[1].caps();
    assert_eq!(
        [
            offered.tx_checksum,
            offered.rx_checksum,
            offered.tso,
            offered.gro
        ],
        [offloads; 4]
    );
    let mut pool = Depot::new(1024, &Growth::Inline).unwrap().pool();
    let found = interface("jns0").unwrap();
    let caps = queues[0].caps().clone();
    assert!(found.up);
    assert_eq!(
        (u32::from(caps.mtu), caps.mac),
        (found.mtu, Some(found.far_mac()))
    );
    let ours = caps.mac.unwrap();

    let socket = UdpSocket::bind((KERNEL, 4000)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(b"there", (OURS, 5000)).unwrap();
    resolve(&mut queues, &mut pool, ours);
    let (header, mut packet) = receive(&mut queues, &mut pool, |header, payload| {
        let ip = (header.ethertype == ethernet::ethertype::IPV4)
            .then(|| ipv4::parse(payload).unwrap())?;
        (ip.proto == proto::UDP && ip.payload().ends_with(b"there"))
            .then(|| (header, payload.to_vec()))
    });
    assert_eq!((header.dst, header.src), (ours, found.mac));

    // Back with addresses and ports turned; a UDP checksum of 0 says there is none.
    let udp = packet.split_off(ipv4::LEN);
    let repr = ipv4::Repr {
        src: OURS,
        dst: KERNEL,
        proto: proto::UDP,
        payload_len: udp.len() as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut packet, &repr);
    packet.extend_from_slice(&[&udp[2..4], &udp[..2], &udp[4..6], &[0, 0], b"hence"].concat());
    let back = ethernet::Header {
        dst: header.src,
        src: ours,
        ethertype: ethernet::ethertype::IPV4,
    };
    let back = frame(&mut pool, back, &packet);
    send(&mut *queues[1], &mut pool, back);
    let mut answer = [0; 64];
    let (len, from) = socket.recv_from(&mut answer).unwrap();
    assert_eq!((&answer[..len], from), (&b"hence"[..], (OURS, 5000).into()));
    assert_eq!(
        (counters.lost_refused.get(), counters.read_errors.get()),
        (0, 0)
    );
}

#[test]
fn the_descriptor_wakes_a_sleeper() {
    in_own_namespace(|| {
        let queues = tap("jns0").open(1).unwrap();
        let mut parker = janus_io::park::Parker::new().unwrap();
        // The kernel's own chatter (neighbour discovery) may be there already or not; ours surely wakes.
        let socket = UdpSocket::bind((KERNEL, 4000)).unwrap();
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            socket.send_to(b"wake", (OURS, 5000)).unwrap();
        });
        let fds = [queues[0].wait_fd().unwrap()];
        let woken = parker.park(&fds, Some(PATIENCE), || false).unwrap();
        assert_eq!(woken, janus_io::park::Woken::Event);
        sender.join().unwrap();
    });
}

#[test]
fn an_interface_in_use_and_one_of_one_queue_are_refused_with_advice() {
    in_own_namespace(|| {
        let first = tap("jns0").open(2).unwrap();
        let error = tap("jns0").open(1).err().unwrap().to_string();
        assert!(error.contains("another program has"), "{error}");
        let mut shared = tap("jns0");
        shared.shared = true;
        drop(shared.open(1).unwrap());
        let error = Box::new(Tap::new("lo")).open(1).err().unwrap().to_string();
        assert!(error.contains("lo is no TAP interface"), "{error}");
        assert!(!error.contains("link del"), "{error}");
        let mut long = tap("jns1");
        long.mtu = 9000;
        let error = long.open(1).err().unwrap().to_string();
        assert!(error.contains("mtu 1500"), "{error}");
        drop(first);
        assert!(interface("jns0").is_err(), "it goes with its last queue");
        drop(tap("jns0").open(1).expect("nobody has it now"));
        // One who asked to share says nothing to others, but is seen by them.
        let mut shared = tap("jns0");
        shared.shared = true;
        let _shared = shared.open(1).unwrap();
        let error = tap("jns0").open(1).err().unwrap().to_string();
        assert!(error.contains("another program has"), "{error}");
    });
}

#[test]
fn a_refused_frame_is_counted_and_not_kept() {
    in_own_namespace(|| refused(Tap::new("jns0")));
    in_own_namespace(|| refused(Tap::new("jns0").without_offloads()));
}

/// Without an address it stays down, and the kernel takes nothing.
fn refused(backend: Tap) {
    let backend = Box::new(backend);
    let counters = backend.counters();
    let mut queues = backend.open(1).unwrap();
    let mut pool = Depot::new(64, &Growth::Inline).unwrap().pool();
    let header = ethernet::Header {
        dst: MacAddr::BROADCAST,
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        ethertype: 0x0800,
    };
    let sent = frame(&mut pool, header, &[0; 40]);
    send(&mut *queues[0], &mut pool, sent);
    assert_eq!(counters.lost_refused.get(), 1);
}
