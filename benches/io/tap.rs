//! TAP through the backend and through plain reads and writes, alternating, on an interface each in a namespace of their
//! own: what the backend costs on top of the system calls. With offloads and without, each beside a loop over an interface of
//! the same kind; a row says what the header before each frame costs the kernel itself, which joined frames more than make up
//! for. For receiving, the kernel's queue is filled first, and only taking the frames out of it is timed. Needs root; skips
//! with a line otherwise.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

use janus_io::tap::Tap;
use janus_io::{Backend, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, Pool};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::pin::pin;
use crate::support::Scale;
use crate::support::link::{datagram, ip};
use crate::support::report::{Report, Value};

/// Bytes of a frame.
const LENGTHS: [usize; 2] = [64, 1_460];
/// Frames in a round: fewer than the kernel queues.
const ROUND: usize = 384;
/// Who has an interface: its name, and what the rows call it.
const SIDES: [(&str, &str); 4] = [
    ("jbjanus", "janus"),
    ("jbheader", "plain, with the header"),
    ("jbsingle", "janus, no offloads"),
    ("jbplain", "plain"),
];
/// Which of them is compared with which, and how the row is called.
const PAIRS: [(usize, usize, &str); 4] = [
    (0, 1, "backend_cost_ratio"),
    (0, 3, "backend_cost_ratio"),
    (2, 3, "backend_cost_ratio"),
    (1, 3, "header_cost_ratio"),
];
/// `struct virtio_net_hdr`: nothing to say; and "the checksum is yours to fill in", as the kernel's own sockets send.
const NOTHING: [u8; 10] = [0; 10];
const UNFILLED: [u8; 10] = {
    let (from, at) = (34_u16.to_ne_bytes(), 6_u16.to_ne_bytes());
    [1, 0, 0, 0, 0, 0, from[0], from[1], at[0], at[1]]
};

/// Puts frames into an interface's queue from the kernel's side.
struct Filler {
    socket: OwnedFd,
    index: i32,
}

impl Filler {
    fn new(name: &str) -> Result<Self, String> {
        // SAFETY: a plain system call; the descriptor is checked before it is owned.
        let socket =
            unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(format!(
                "a packet socket: {}",
                std::io::Error::last_os_error()
            ));
        }
        // SAFETY: fresh from the kernel, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let on: libc::c_int = 1;
        // SAFETY: the option is an integer, which is live for the call.
        let done = unsafe {
            let (level, option) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR);
            let len = size_of_val(&on) as u32;
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                option,
                (&raw const on).cast(),
                len,
            )
        };
        if done < 0 {
            return Err(format!("its headers: {}", std::io::Error::last_os_error()));
        }
        let name = std::ffi::CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: a zero-terminated string.
        match unsafe { libc::if_nametoindex(name.as_ptr()) } {
            0 => Err(format!("no interface {name:?}")),
            index => Ok(Self {
                socket,
                index: index as i32,
            }),
        }
    }

    fn fill(&self, frame: &[u8]) {
        let frame = [&UNFILLED[..], frame].concat();
        // SAFETY: all-zero bytes are a valid address of this kind.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = self.index;
        for _ in 0..ROUND {
            // SAFETY: the buffer and the address are live for the call and as long as said.
            let sent = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    frame.as_ptr().cast(),
                    frame.len(),
                    0,
                    (&raw const to).cast(),
                    size_of_val(&to) as u32,
                )
            };
            assert_eq!(sent, frame.len() as isize, "the kernel takes the frame");
        }
    }
}

/// Either side of the comparison.
trait Side {
    fn send(&mut self, packet: &[u8]);
    /// Takes what is queued, until there is nothing; how many frames.
    fn drain(&mut self) -> usize;
}

struct Ours {
    queue: Box<dyn Queue>,
    pool: Pool,
}

impl Ours {
    fn open(tap: Tap) -> Result<Self, String> {
        let queues = Box::new(tap).open(1);
        let queue = queues.map_err(|error| error.to_string())?.remove(0);
        Ok(Self {
            queue,
            pool: Depot::new(4096, &Growth::Inline).expect("memory").pool(),
        })
    }
}

impl Side for Ours {
    fn send(&mut self, packet: &[u8]) {
        let (mut frames, mut done) = (Batch::new(), Batch::new());
        let mut made = 0;
        while made < ROUND || !frames.is_empty() {
            while made < ROUND && !frames.is_full() {
                let buf = self.pool.alloc().expect("a buffer");
                let mut frame = Frame::new(buf, packet.len() as u16);
                // What the stack would write: the headers.
                frame.data_mut()[..42].copy_from_slice(&packet[..42]);
                let _ = frames.push(frame);
                made += 1;
            }
            self.queue.tx_burst(&mut self.pool, &mut frames, &mut done);
        }
    }

    fn drain(&mut self) -> usize {
        let mut all = 0;
        let mut batch = Batch::new();
        loop {
            self.queue.rx_burst(&mut self.pool, &mut batch);
            if batch.is_empty() {
                return all;
            }
            all += batch.len();
            batch.pull().for_each(|frame| self.pool.free(frame.buf));
        }
    }
}

/// One loop, one buffer.
struct Plain {
    file: File,
    /// What stands before each frame.
    front: &'static [u8],
    buffer: Box<[u8; 2048]>,
}

impl Plain {
    /// With the header before each frame, for the same offloads as the backend, or without.
    fn open(name: &str, header: bool) -> Result<Self, String> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(janus_io::tap::DEVICE)
            .map_err(|error| format!("{}: {error}", janus_io::tap::DEVICE))?;
        let (kind, front): (_, &[u8]) = match header {
            true => (libc::IFF_VNET_HDR, &NOTHING),
            false => (0, &[]),
        };
        let kind = kind | libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_MULTI_QUEUE;
        // SAFETY: all-zero bytes are a valid request; the name is shorter than its place.
        let done = unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
                *place = byte as libc::c_char;
            }
            request.ifr_ifru.ifru_flags = kind as i16;
            libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request)
        };
        if done < 0 {
            return Err(format!("TUNSETIFF: {}", std::io::Error::last_os_error()));
        }
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let offloads = if header { offloads } else { 0 };
        // SAFETY: the argument is a number.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, u64::from(offloads)) } < 0 {
            return Err(format!(
                "TUNSETOFFLOAD: {}",
                std::io::Error::last_os_error()
            ));
        }
        rustix::io::ioctl_fionbio(&file, true).map_err(|error| error.to_string())?;
        Ok(Self {
            file,
            front,
            buffer: Box::new([0; 2048]),
        })
    }
}

impl Side for Plain {
    fn send(&mut self, packet: &[u8]) {
        let at = self.front.len();
        let len = at + packet.len();
        for _ in 0..ROUND {
            self.buffer[..at].copy_from_slice(self.front);
            self.buffer[at..at + 42].copy_from_slice(&packet[..42]);
            let sent = self.file.write(&self.buffer[..len]);
            assert_eq!(sent.expect("the kernel takes it"), len);
        }
    }

    fn drain(&mut self) -> usize {
        let mut all = 0;
        while self.file.read(&mut *self.buffer).is_ok() {
            all += 1;
        }
        all
    }
}

/// Nanoseconds a frame: sent, received.
fn round(side: &mut dyn Side, filler: &Filler, packet: &[u8]) -> [f64; 2] {
    let begin = Instant::now();
    side.send(packet);
    let sent = begin.elapsed();
    // The kernel may have something to say of its own.
    side.drain();
    filler.fill(packet);
    let begin = Instant::now();
    let got = side.drain();
    let received = begin.elapsed();
    assert!(
        (ROUND..ROUND + 16).contains(&got),
        "{got} frames of {ROUND}"
    );
    [
        sent.as_nanos() as f64 / ROUND as f64,
        received.as_nanos() as f64 / got as f64,
    ]
}

fn measure(scale: Scale) -> Result<Report, String> {
    // SAFETY: a network namespace shares no memory or descriptors with anything, and this thread has opened none.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|errno| format!("no namespace of its own ({errno}); run as root"))?;
    let single = Tap::new(SIDES[2].0).without_offloads();
    let mut sides: [Box<dyn Side>; SIDES.len()] = [
        Box::new(Ours::open(Tap::new(SIDES[0].0))?),
        Box::new(Plain::open(SIDES[1].0, true)?),
        Box::new(Ours::open(single)?),
        Box::new(Plain::open(SIDES[3].0, false)?),
    ];
    let mut fillers = Vec::new();
    for (name, _) in SIDES {
        // So that the kernel says nothing of its own.
        ip(&format!("link set {name} addrgenmode none"))?;
        ip(&format!("link set {name} up"))?;
        fillers.push(Filler::new(name)?);
    }
    let _here = pin(0);
    let rounds = scale.pick(1, 400, 4000);
    let mut report = Report::new("io");
    for len in LENGTHS {
        let packet = datagram(len);
        let mut nanos: [[Vec<f64>; 2]; SIDES.len()] = Default::default();
        for turn in 0..=rounds {
            for step in 0..SIDES.len() {
                let who = (turn + step) % SIDES.len();
                let times = round(&mut *sides[who], &fillers[who], &packet);
                // The first round only warms up.
                if turn > 0 {
                    for (all, time) in nanos[who].iter_mut().zip(times) {
                        all.push(time);
                    }
                }
            }
        }
        tell(&mut report, len, &nanos);
    }
    Ok(report)
}

/// Rows of one length of frames.
fn tell(report: &mut Report, len: usize, nanos: &[[Vec<f64>; 2]; SIDES.len()]) {
    for (at, dir) in ["tx", "rx"].into_iter().enumerate() {
        let params: [(&str, Value); 3] = [
            ("backend", "tap".into()),
            ("dir", dir.into()),
            ("bytes", len.into()),
        ];
        for ((_, way), nanos) in SIDES.iter().zip(nanos) {
            let mpps: Vec<f64> = nanos[at].iter().map(|ns| 1e3 / ns).collect();
            let params = [&params[..], &[("way", (*way).into())]].concat();
            report.median("backend_mpps", &mpps, "Mpps", &params);
        }
        for (one, other, metric) in PAIRS {
            let pairs = nanos[one][at].iter().zip(&nanos[other][at]);
            let ratios: Vec<f64> = pairs.map(|(one, other)| one / other).collect();
            let ways: [(&str, Value); 2] = [
                ("way", SIDES[one].1.into()),
                ("beside", SIDES[other].1.into()),
            ];
            let params = [&params[..], &ways].concat();
            report.median(metric, &ratios, "x", &params);
        }
    }
}

pub(crate) fn run(scale: Scale, report: &mut Report) {
    // The namespace is the thread's and ends with it.
    let measured = std::thread::spawn(move || measure(scale)).join();
    match measured.expect("the measuring thread ends well") {
        Ok(rows) => report.append(rows),
        Err(why) => println!("skipped: tap: {why}"),
    }
}
