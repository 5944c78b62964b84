//! Bulk data both ways at once between our stack and a kernel socket, every byte compared with what its place in the stream
//! demands. The kernel's end runs on plain threads, ours on a runtime.

use crate::moving::{Movers, Report};
use crate::space::Family;
use crate::support::{PATIENCE, Running, serve_at};
use janus::Runtime;
use janus::net::TcpStream;
use janus_io::Queue;
use std::io::{Read, Write};
use std::net::{
    Shutdown, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream, UdpSocket,
};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// No protocol's port, so that tshark sees nothing but TCP in it.
pub(crate) const PORT: u16 = 47_001;
/// The kernel's end gives up when nothing comes for so long.
const SILENCE_MAX: Duration = Duration::from_secs(60);
pub(crate) const CHUNK: usize = 64 << 10;
/// What each end says last: all it got was right.
pub(crate) const RIGHT: u8 = 0x6a;
pub(crate) const WRONG: u8 = 0x95;

/// Who opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    KernelConnects,
    KernelListens,
}

/// Bytes each way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) to_janus: u64,
    pub(crate) to_kernel: u64,
}

impl Job {
    /// What the end that connects tells the other first.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.to_janus.to_le_bytes());
        bytes[8..].copy_from_slice(&self.to_kernel.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Job {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        Job {
            to_janus: word(0),
            to_kernel: word(8),
        }
    }
}

/// The bytes of a stream by their place: words of a mixed counter, so that a misplaced or repeated piece shows.
pub(crate) struct Stream {
    key: u64,
    at: u64,
}

pub(crate) const TO_JANUS: u64 = 0x1b87_3593;
pub(crate) const TO_KERNEL: u64 = 0xcc9e_2d51;

impl Stream {
    pub(crate) fn new(key: u64) -> Stream {
        Stream { key, at: 0 }
    }

    fn word(&self, index: u64) -> [u8; 8] {
        let mixed = (index ^ self.key << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 32)).to_le_bytes()
    }

    /// The next bytes, as many as fit.
    pub(crate) fn fill(&mut self, into: &mut [u8]) {
        let mut rest = into;
        while !rest.is_empty() {
            let from = (self.at % 8) as usize;
            let word = self.word(self.at / 8);
            let n = rest.len().min(8 - from);
            rest[..n].copy_from_slice(&word[from..from + n]);
            self.at += n as u64;
            rest = &mut rest[n..];
        }
    }

    /// Whether these are the next bytes.
    pub(crate) fn takes(&mut self, bytes: &[u8], scratch: &mut Vec<u8>) -> bool {
        scratch.resize(bytes.len(), 0);
        self.fill(scratch);
        scratch == bytes
    }
}

/// Carries out `job` and checks it at both ends, and does `then` while the device is still there.
pub(crate) fn carry_out<T>(
    runtime: Runtime,
    family: Family,
    role: Role,
    job: Job,
    then: impl FnOnce() -> T,
) -> T {
    let (ours, kernels) = family.addresses();
    match role {
        Role::KernelConnects => {
            let (server, _, _) = serve_at(runtime, (ours, PORT).into(), answer);
            let stream = kernel_connect((ours, PORT).into());
            (&stream).write_all(&job.to_bytes()).expect("a connection");
            kernel_end(stream, job);
            let result = then();
            server.stop().expect("a runtime that ends well");
            result
        }
        Role::KernelListens => {
            let listener = KernelListener::bind((kernels, PORT)).expect("a free port");
            let (done, verdict) = channel();
            let client = Running::start(runtime, move || {
                let done = done.clone();
                async move {
                    let stream = TcpStream::connect((kernels, PORT)).await?;
                    stream.write_all(&job.to_bytes()).await?;
                    let _ = done.send(our_end(stream, job).await);
                    std::future::pending::<std::io::Result<()>>().await
                }
            });
            let (stream, peer) = listener.accept().expect("a connection");
            assert_eq!(peer.ip(), ours);
            let mut told = [0; 16];
            (&stream).read_exact(&mut told).expect("what is to be done");
            kernel_end(stream, Job::from_bytes(told));
            let verdict = verdict.recv_timeout(PATIENCE).expect("our end's verdict");
            verdict.expect("an exchange without an error");
            let result = then();
            client.stop().expect("a runtime that ends well");
            result
        }
    }
}

/// Carries out `job` with our end as two stacks on `queue`, between which the connection moves, and does `then` while they still work.
pub(crate) fn carry_out_moving<T>(
    queue: Box<dyn Queue>,
    family: Family,
    role: Role,
    job: Job,
    then: impl FnOnce() -> T,
) -> (T, Report) {
    let (ours, kernels) = family.addresses();
    let listener = match role {
        Role::KernelListens => Some(KernelListener::bind((kernels, PORT)).expect("a free port")),
        Role::KernelConnects => None,
    };
    let over = Arc::new(AtomicBool::new(false));
    let movers = {
        let over = over.clone();
        thread::spawn(move || Movers::new(queue, family, role, job).run(&over))
    };
    // Both stacks are asked where we are, and know by that where the kernel is.
    let greeting = UdpSocket::bind((kernels, 0)).expect("a free port");
    greeting.send_to(b"hello", (ours, PORT)).expect("a route");
    match listener {
        None => {
            let stream = kernel_connect((ours, PORT).into());
            (&stream).write_all(&job.to_bytes()).expect("a connection");
            kernel_end(stream, job);
        }
        Some(listener) => {
            let (stream, peer) = listener.accept().expect("a connection");
            assert_eq!(peer.ip(), ours);
            let mut told = [0; 16];
            (&stream).read_exact(&mut told).expect("what is to be done");
            kernel_end(stream, Job::from_bytes(told));
        }
    }
    let result = then();
    over.store(true, Ordering::Relaxed);
    let report = movers.join().expect("our end does not panic");
    (result, report)
}

fn kernel_connect(address: SocketAddr) -> KernelStream {
    KernelStream::connect_timeout(&address, PATIENCE).expect("a connection")
}

/// The kernel's end: writes and reads on a thread each.
fn kernel_end(stream: KernelStream, job: Job) {
    stream
        .set_read_timeout(Some(SILENCE_MAX))
        .expect("a socket");
    stream
        .set_write_timeout(Some(SILENCE_MAX))
        .expect("a socket");
    let mut sender = stream.try_clone().expect("a socket");
    let writer = thread::spawn(move || {
        let (mut source, mut chunk, mut left) =
            (Stream::new(TO_JANUS), vec![0; CHUNK], job.to_janus);
        while left > 0 {
            let n = left.min(CHUNK as u64) as usize;
            source.fill(&mut chunk[..n]);
            sender.write_all(&chunk[..n]).expect("our stack takes it");
            left -= n as u64;
        }
    });
    let mut reader = stream.try_clone().expect("a socket");
    let (mut expected, mut chunk, mut scratch) =
        (Stream::new(TO_KERNEL), vec![0; CHUNK], Vec::new());
    let mut left = job.to_kernel;
    while left > 0 {
        let n = left.min(CHUNK as u64) as usize;
        let got = reader.read(&mut chunk[..n]).expect("our stack sends it");
        assert!(got > 0, "our end is over with {left} bytes to come");
        let at = expected.at;
        assert!(
            expected.takes(&chunk[..got], &mut scratch),
            "wrong bytes from place {at} on"
        );
        left -= got as u64;
    }
    writer.join().expect("all is written");
    (&stream).write_all(&[RIGHT]).expect("our stack takes it");
    stream.shutdown(Shutdown::Write).expect("an open socket");
    let mut last = Vec::new();
    reader.read_to_end(&mut last).expect("our end's end");
    assert_eq!(last, [RIGHT], "our end's verdict on what it got");
}

/// Our end as a server.
async fn answer(stream: TcpStream) {
    let mut told = [0; 16];
    if stream.read_exact(&mut told).await.is_ok() {
        // What goes wrong the kernel's end sees: the verdict does not come.
        let _ = our_end(stream, Job::from_bytes(told)).await;
    }
}

/// Our end: writes and reads in a task each.
async fn our_end(stream: TcpStream, job: Job) -> std::io::Result<()> {
    let stream = Rc::new(stream);
    let reader = janus::spawn(read_all(stream.clone(), job.to_janus));
    let (mut source, mut chunk, mut left) = (Stream::new(TO_KERNEL), vec![0; CHUNK], job.to_kernel);
    while left > 0 {
        let n = left.min(CHUNK as u64) as usize;
        source.fill(&mut chunk[..n]);
        stream.write_all(&chunk[..n]).await?;
        left -= n as u64;
    }
    let right = matches!(reader.await, Ok(Ok(true)));
    stream
        .write_all(&[if right { RIGHT } else { WRONG }])
        .await?;
    stream.shutdown(Shutdown::Write).await?;
    let mut last = [0; 2];
    stream.read_exact(&mut last[..1]).await?;
    // Its verdict, and nothing behind it.
    match (stream.read(&mut last[1..]).await?, last[0]) {
        (0, RIGHT) => Ok(()),
        _ => Err(std::io::Error::other("the kernel's end is not content")),
    }
}

/// Reads and compares so many bytes.
async fn read_all(stream: Rc<TcpStream>, len: u64) -> std::io::Result<bool> {
    let (mut expected, mut chunk, mut scratch) =
        (Stream::new(TO_JANUS), vec![0; CHUNK], Vec::new());
    let mut left = len;
    while left > 0 {
        let n = left.min(CHUNK as u64) as usize;
        let got = stream.read(&mut chunk[..n]).await?;
        if got == 0 || !expected.takes(&chunk[..got], &mut scratch) {
            return Ok(false);
        }
        left -= got as u64;
    }
    Ok(true)
}
