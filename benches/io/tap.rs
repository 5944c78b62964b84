//! TAP through the backend and through plain reads and writes, alternating, on an interface each in a namespace of their
//! own: what the backend costs on top of the system calls. For receiving, the kernel's queue is filled first, and only
//! taking the frames out of it is timed. Needs root; skips with a line otherwise.

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
/// The backend's interface, and the plain loop's.
const NAMES: [&str; 2] = ["jbjanus", "jbplain"];

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
    fn open() -> Result<Self, String> {
        let backend = Tap::new(NAMES[0]).with_kernel_address([192, 0, 2, 9].into(), 24);
        let queues = Box::new(backend).open(1);
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

struct Plain {
    file: File,
    buffer: Box<[u8; 2048]>,
}

impl Plain {
    fn open() -> Result<Self, String> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(janus_io::tap::DEVICE)
            .map_err(|error| format!("{}: {error}", janus_io::tap::DEVICE))?;
        // SAFETY: all-zero bytes are a valid request; the name is shorter than its place.
        let done = unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            for (place, byte) in request.ifr_name.iter_mut().zip(NAMES[1].bytes()) {
                *place = byte as libc::c_char;
            }
            request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
            libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request)
        };
        if done < 0 {
            return Err(format!("TUNSETIFF: {}", std::io::Error::last_os_error()));
        }
        rustix::io::ioctl_fionbio(&file, true).map_err(|error| error.to_string())?;
        ip(&format!("link set {} addrgenmode none", NAMES[1]))?;
        ip(&format!("link set {} up", NAMES[1]))?;
        Ok(Self {
            file,
            buffer: Box::new([0; 2048]),
        })
    }
}

impl Side for Plain {
    fn send(&mut self, packet: &[u8]) {
        for _ in 0..ROUND {
            self.buffer[..42].copy_from_slice(&packet[..42]);
            let sent = self.file.write(&self.buffer[..packet.len()]);
            assert_eq!(sent.expect("the kernel takes it"), packet.len());
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
    let mut ours = Ours::open()?;
    let mut plain = Plain::open()?;
    let fillers = [Filler::new(NAMES[0])?, Filler::new(NAMES[1])?];
    let _here = pin(0);
    let rounds = scale.pick(1, 400, 4000);
    let mut report = Report::new("io");
    for len in LENGTHS {
        let packet = datagram(len);
        let mut nanos: [[Vec<f64>; 2]; 2] = Default::default();
        for turn in 0..=rounds {
            for who in [turn % 2, 1 - turn % 2] {
                let side: &mut dyn Side = if who == 0 { &mut ours } else { &mut plain };
                let times = round(side, &fillers[who], &packet);
                // The first round only warms up.
                if turn > 0 {
                    for (all, time) in nanos[who].iter_mut().zip(times) {
                        all.push(time);
                    }
                }
            }
        }
        for (at, dir) in ["tx", "rx"].into_iter().enumerate() {
            let params: [(&str, Value); 3] = [
                ("backend", "tap".into()),
                ("dir", dir.into()),
                ("bytes", len.into()),
            ];
            for (who, nanos) in ["janus", "plain"].into_iter().zip(&nanos) {
                let mpps: Vec<f64> = nanos[at].iter().map(|ns| 1e3 / ns).collect();
                let params = [&params[..], &[("way", who.into())]].concat();
                report.median("backend_mpps", &mpps, "Mpps", &params);
            }
            let pairs = nanos[0][at].iter().zip(&nanos[1][at]);
            let ratios: Vec<f64> = pairs.map(|(ours, plain)| ours / plain).collect();
            report.median("backend_cost_ratio", &ratios, "x", &params);
        }
    }
    Ok(report)
}

pub(crate) fn run(scale: Scale, report: &mut Report) {
    // The namespace is the thread's and ends with it.
    let measured = std::thread::spawn(move || measure(scale)).join();
    match measured.expect("the measuring thread ends well") {
        Ok(rows) => report.append(rows),
        Err(why) => println!("skipped: tap: {why}"),
    }
}
