//! Threads that run as they like on one table of descriptors. Which answers a call gets nothing decides; each must be one that the kernel
//! could give, and each byte that comes must be where it belongs.
//!
//! A stream is made of words of four bytes: a tag, and a place in the stream. Only a word's first byte has its high bit, so that any piece
//! of a stream tells whose it is, and where. Streams on numbers that no other thread touches are checked from the first byte to the end;
//! of others each piece that one call gives.

use std::ffi::c_int;
use std::io::Error;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::baton;
use crate::bytes::Answer;
use crate::calls::Table;
use crate::plan::{self, Dice, Op, PLACES, THREADS};

/// Calls of a thread in a round.
const CALLS: usize = 120;
/// Bytes of a private stream.
const STREAM: usize = 96 << 10;
/// Private descriptors have numbers from here on, above all that random calls name.
const PRIVATE: c_int = 210;
/// A call that waits longer is interrupted.
const PATIENCE: Duration = Duration::from_millis(3);
/// Byte that random calls send.
const MARK: u8 = 0x11;
/// Errors that no call may give here: what they say is not so.
const NEVER: [i32; 5] = [
    libc::EFAULT,
    libc::ENOMEM,
    libc::EIO,
    libc::ENOSYS,
    libc::EMFILE,
];

/// A byte of a stream.
fn byte(tag: u8, at: usize) -> u8 {
    let word = at / 4;
    match at % 4 {
        0 => 0x80 | tag,
        1 => (word >> 14) as u8 & 0x7f,
        2 => (word >> 7) as u8 & 0x7f,
        _ => word as u8 & 0x7f,
    }
}

/// Whether all are one piece of one stream, or what random calls send.
fn is_piece(bytes: &[u8]) -> bool {
    // An eventfd's number.
    if bytes.len() == 8 {
        return true;
    }
    let Some(head) = bytes.iter().position(|byte| byte & 0x80 != 0) else {
        // Less than a word may be anything.
        return bytes.len() < 4 || bytes.iter().all(|byte| [MARK, b'f'].contains(byte));
    };
    let Some(word) = bytes.get(head..head + 4) else {
        return true;
    };
    let (tag, place) = (
        word[0] & 0x7f,
        word[1..]
            .iter()
            .fold(0, |sum, byte| sum << 7 | usize::from(*byte)),
    );
    let first = (place * 4).checked_sub(head);
    first.is_some_and(|first| (first..).zip(bytes).all(|(at, it)| *it == byte(tag, at)))
}

/// A number that no random call names.
fn raised(fd: RawFd) -> RawFd {
    // SAFETY: the calls take numbers.
    unsafe {
        let raised = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, PRIVATE);
        assert!(raised >= PRIVATE, "{}", Error::last_os_error());
        libc::close(fd);
        raised
    }
}

/// A connection: the end that sends, under a number that no random call names, and the other.
fn connection() -> (RawFd, RawFd) {
    let table = Table::new(true);
    for op in [
        Op::Socket(0),
        Op::Bind(0),
        Op::Listen(0),
        Op::Socket(1),
        Op::Connect(1, 0),
        Op::Accept(0, 2, 0),
    ] {
        let answer = table.call(op, 0);
        assert!(answer.value >= 0, "{op:?} = {}", answer.text());
    }
    // SAFETY: it is open, and named nowhere else.
    unsafe { libc::close(table.fd(0)) };
    (raised(table.fd(1)), table.fd(2))
}

/// A private stream's way, one step at a time.
struct Stream {
    tag: u8,
    fd: RawFd,
    done: usize,
    over: bool,
}

impl Stream {
    fn send(&mut self, dice: &mut Dice) {
        let len = (1 + dice.below(3_000)).min(STREAM - self.done);
        let bytes: Vec<u8> = (self.done..self.done + len)
            .map(|at| byte(self.tag, at))
            .collect();
        let flags = libc::MSG_NOSIGNAL | dice.one_of(&[0, libc::MSG_DONTWAIT]);
        // SAFETY: so many bytes are there.
        let sent = unsafe { libc::send(self.fd, bytes.as_ptr().cast(), len, flags) };
        match sent {
            -1 => waits_or_dies("send", self.tag),
            sent => self.done += sent as usize,
        }
        if self.done == STREAM {
            // SAFETY: the calls take numbers.
            unsafe {
                assert_eq!(
                    libc::shutdown(self.fd, libc::SHUT_WR),
                    0,
                    "stream {}",
                    self.tag
                );
                libc::close(self.fd);
            }
            self.over = true;
        }
    }

    fn feed(&mut self) {
        let bytes: Vec<u8> = (self.done..self.done + 400)
            .map(|at| byte(self.tag, at))
            .collect();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: so many bytes are there.
        let sent = unsafe { libc::send(self.fd, bytes.as_ptr().cast(), bytes.len(), flags) };
        self.done += usize::try_from(sent).unwrap_or(0);
    }

    fn receive(&mut self, dice: &mut Dice) {
        let mut into = vec![0; 1 + dice.below(9_000)];
        let flags = dice.one_of(&[0, 0, libc::MSG_DONTWAIT, libc::MSG_WAITALL, libc::MSG_PEEK]);
        // SAFETY: there is so much room.
        let got = unsafe { libc::recv(self.fd, into.as_mut_ptr().cast(), into.len(), flags) };
        match got {
            -1 => waits_or_dies("recv", self.tag),
            0 => {
                assert_eq!(self.done, STREAM, "stream {} ends early", self.tag);
                // SAFETY: it is open, and named nowhere else.
                unsafe { libc::close(self.fd) };
                self.over = true;
            }
            got => {
                let bytes = (self.done..).zip(&into[..got as usize]);
                bytes.for_each(|(at, it)| {
                    assert_eq!(*it, byte(self.tag, at), "stream {}, byte {at}", self.tag)
                });
                if flags & libc::MSG_PEEK == 0 {
                    self.done += got as usize;
                }
            }
        }
    }
}

fn waits_or_dies(call: &str, tag: u8) {
    let error = Error::last_os_error().raw_os_error();
    assert!(
        matches!(error, Some(libc::EAGAIN | libc::EINTR)),
        "stream {tag}: {call} fails by {error:?}"
    );
}

/// What is wrong with an answer.
fn wrong(op: Op, answer: &Answer) -> Option<&'static str> {
    let most = match op {
        Op::Send(_, len, ..)
        | Op::Recv(_, len, ..)
        | Op::RecvSoon(_, len, _)
        | Op::SendFile(_, len) => len as i64,
        Op::Look(..) => 9,
        Op::EpollWait(..) => 64,
        _ => i64::from(PRIVATE),
    };
    let cannot = |error: i32| match op {
        Op::Close(_) | Op::CloseRange(..) | Op::Dup(..) => error != libc::EBADF,
        Op::Look(..) => ![libc::EINTR, libc::EBADF].contains(&error),
        Op::EpollWait(..) => ![libc::EINTR, libc::EBADF, libc::EINVAL].contains(&error),
        Op::Flags(_) | Op::NonBlocking(..) | Op::OnExec(..) => error != libc::EBADF,
        _ => NEVER.contains(&error),
    };
    match answer.value {
        value if value > most => Some("more than there is"),
        value if value < 0 && cannot(-value as i32) => Some("no error of this call's"),
        _ if matches!(op, Op::Recv(..) | Op::RecvSoon(..)) && !is_piece(&answer.bytes) => {
            Some("bytes of two streams")
        }
        _ => None,
    }
}

/// What the threads of a round share.
struct Round {
    table: Table,
    /// Counts each thread's calls; even while it is in one.
    calls: [AtomicUsize; THREADS],
    over: AtomicBool,
}

fn random(round: &Round, who: usize, dice: &mut Dice) {
    let how = dice.one_of(&[libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR]);
    let op = plan::random(dice, how);
    // A pipe would get bytes of streams. What is opened around a fork has a number that no program was told, and a thread here that closes
    // numbers which it does not have may hit it: no program may do so.
    if matches!(op, Op::Splice(..) | Op::Fork(_)) {
        return;
    }
    round.calls[who].fetch_add(1, Ordering::SeqCst);
    let answer = round.table.call(op, MARK);
    round.calls[who].fetch_add(1, Ordering::SeqCst);
    if let Some(why) = wrong(op, &answer) {
        println!("thread {who}: {op:?} = {}: {why}", answer.text());
        std::process::abort();
    }
}

/// A thread's streams. What it feeds random calls receive, as long as they leave the other end open.
struct Streams {
    sends: Stream,
    receives: Stream,
    feeds: Vec<Stream>,
}

/// A thread's part: random calls, between them steps of its streams.
fn part(round: &Round, who: usize, seed: u64, mut streams: Streams) {
    let mut dice = Dice::new(seed * THREADS as u64 + who as u64);
    let mut left = CALLS;
    while left > 0 || !streams.sends.over || !streams.receives.over {
        if left > 0 {
            random(round, who, &mut dice);
            left -= 1;
        }
        round.calls[who].fetch_add(1, Ordering::SeqCst);
        if !streams.sends.over {
            streams.sends.send(&mut dice);
        }
        if !streams.receives.over {
            streams.receives.receive(&mut dice);
        }
        streams.feeds.iter_mut().for_each(Stream::feed);
        round.calls[who].fetch_add(1, Ordering::SeqCst);
    }
}

/// Interrupts calls that wait, until all threads have ended.
fn interrupt(round: &Round, threads: &[libc::pthread_t]) {
    let mut seen = [0; THREADS];
    while !round.over.load(Ordering::SeqCst) {
        thread::sleep(PATIENCE);
        for (who, thread) in threads.iter().enumerate() {
            let now = round.calls[who].load(Ordering::SeqCst);
            if now == std::mem::replace(&mut seen[who], now) && now % 2 == 1 {
                // SAFETY: threads are joined after this one's end.
                unsafe { libc::pthread_kill(*thread, libc::SIGUSR1) };
            }
        }
    }
}

/// One round: all that a seed decides of it is what each thread calls, not when.
pub(crate) fn run(seed: u64) -> String {
    let before = baton::open();
    let begin = Instant::now();
    let table = Table::new(true);
    for (_, op) in plan::setup() {
        assert!(table.call(op, 0).value >= 0, "{op:?}");
    }
    let fed: Vec<_> = (10..PLACES)
        .map(|place| {
            let (end, other) = connection();
            table.put(place as u8, other);
            (place, end)
        })
        .collect();
    let round = Arc::new(Round {
        table,
        calls: [const { AtomicUsize::new(0) }; THREADS],
        over: AtomicBool::new(false),
    });
    let private = |_| {
        let (sends, receives) = connection();
        (sends, raised(receives))
    };
    let ends: Vec<(RawFd, RawFd)> = (0..THREADS).map(private).collect();
    let started: Vec<_> = (0..THREADS)
        .map(|who| {
            let stream = |of: usize, fd| Stream {
                tag: of as u8,
                fd,
                done: 0,
                over: false,
            };
            let next = (who + 1) % THREADS;
            let fed = fed.iter().filter(|(place, _)| place % THREADS == who);
            let streams = Streams {
                sends: stream(who, ends[who].0),
                receives: stream(next, ends[next].1),
                feeds: fed.map(|(place, end)| stream(0x20 + place, *end)).collect(),
            };
            let round = round.clone();
            thread::spawn(move || part(&round, who, seed, streams))
        })
        .collect();
    let threads: Vec<_> = started
        .iter()
        .map(std::os::unix::thread::JoinHandleExt::as_pthread_t)
        .collect();
    let ringer = {
        let round = round.clone();
        thread::spawn(move || interrupt(&round, &threads))
    };
    while !started.iter().all(thread::JoinHandle::is_finished) {
        thread::sleep(PATIENCE);
    }
    round.over.store(true, Ordering::SeqCst);
    ringer.join().expect("an end");
    let ended = started.into_iter().all(|it| it.join().is_ok());
    baton::close_all();
    drop(round);
    // Another connection works as the first did, and nothing of it is left.
    let (client, server) = connection();
    let fed = fed.iter().map(|(_, end)| *end);
    for fd in fed.chain([client, server]) {
        // SAFETY: each is open, and named nowhere else.
        unsafe { libc::close(fd) };
    }
    assert!(
        baton::open() == before,
        "left: {:?} of {before:?}",
        baton::open()
    );
    assert!(ended, "a thread has panicked");
    format!("free {:?}", begin.elapsed())
}
