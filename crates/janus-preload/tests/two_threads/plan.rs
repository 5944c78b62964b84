//! Random plans: calls on a small table of descriptors, each with the thread that makes it. A seed decides all of a plan.

/// A place of the table. Its number stays there when it is closed, so that calls name what is closed, or what has its number now.
pub(crate) type Place = u8;

/// Places of the table.
pub(crate) const PLACES: usize = 16;
/// Threads that carry out a plan.
pub(crate) const THREADS: usize = 3;

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Never,
    /// A few milliseconds; the baton stays until the call has ended.
    Soon,
    /// Until another call lets it go on: the baton goes on meanwhile.
    Ever,
}

/// Functions that send or receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// `send`, `recv`.
    Socket,
    /// `write`, `read`: no flags.
    File,
    /// `writev`, `readv`: no flags.
    Parts,
    /// `sendmsg`, `recvmsg`.
    Message,
}

/// Functions that wait for readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Poll,
    Ppoll,
    Select,
}

/// Acts of a forked child before it exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Childs {
    Nothing,
    Closes(Place),
    /// It sends a few bytes and exits; then the parent closes its descriptor.
    Answers(Place),
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Socket(Place),
    Bind(Place),
    Listen(Place),
    Accept(Place, Place, i32),
    /// To the address that the second was bound to last.
    Connect(Place, Place),
    Send(Place, usize, i32, By),
    Recv(Place, usize, i32, By),
    /// With SO_RCVTIMEO for the length of the call.
    RecvSoon(Place, usize, i32),
    AcceptSoon(Place, Place),
    Shutdown(Place, i32),
    Close(Place),
    CloseRange(Place, u8),
    Dup(Place, Place),
    Dup2(Place, Place),
    Dup3(Place, Place, i32),
    /// By `fcntl`, the lowest from a number on.
    DupFrom(Place, Place, i32),
    Flags(Place),
    NonBlocking(Place, bool),
    OnExec(Place, bool),
    Unread(Place),
    Set(Place, i32, i32, i32),
    Abortive(Place),
    Get(Place, i32, i32),
    PeerName(Place),
    Look(Look, [Place; 3], i16, Wait),
    Epoll(Place),
    EpollCtl(Place, i32, Place, u32),
    EpollWait(Place, Wait),
    Eventfd(Place),
    Pipe(Place, Place),
    /// From a file of the test's own.
    SendFile(Place, usize),
    /// From one pipe into another.
    Splice(Place, Place, usize),
    Fork(Childs),
}

/// A call and the thread that makes it.
pub(crate) type Step = (usize, Op);

use Op::*;

const DONTWAIT: i32 = libc::MSG_DONTWAIT;
const PEEK: i32 = libc::MSG_PEEK;
const WAITALL: i32 = libc::MSG_WAITALL;
const IN: i16 = libc::POLLIN;
const OUT: i16 = libc::POLLOUT;

/// Numbers that a seed decides.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        let mut dice = Dice((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // The first numbers of neighboring seeds are alike.
        for _ in 0..8 {
            dice.below(2);
        }
        dice
    }

    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % below as u64) as usize
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub(crate) fn place(&mut self) -> Place {
        self.below(PLACES) as Place
    }

    /// A place that held an end of a connection at first.
    fn end(&mut self) -> Place {
        match self.below(8) {
            0 => self.place(),
            _ => self.one_of(&[1, 2, 3, 4]),
        }
    }

    /// A place that held nothing at first.
    fn spare(&mut self) -> Place {
        match self.below(12) {
            0 => self.place(),
            _ => 10 + self.below(PLACES - 10) as Place,
        }
    }
}

/// The table at first: a listener, two connections, two epoll instances, an eventfd and a pipe.
pub(crate) fn setup() -> Vec<Step> {
    [
        Socket(0),
        Bind(0),
        Listen(0),
        Socket(1),
        Connect(1, 0),
        Accept(0, 2, 0),
        Socket(3),
        Connect(3, 0),
        Accept(0, 4, 0),
        Epoll(5),
        Epoll(6),
        Eventfd(7),
        Pipe(8, 9),
    ]
    .map(|op| (0, op))
    .to_vec()
}

/// Whether a plan is about numbers: those that calls give, those that are closed and given again. In such a plan no `accept` waits, as the
/// kernel takes its number before it does.
pub(crate) fn is_numbered(seed: u64) -> bool {
    !seed.is_multiple_of(3)
}

/// Whether epoll instances watch a socket from the first. In the other plans one becomes Janus's while threads wait for it; what watches the
/// instance by then does not learn of it, so nothing does there.
pub(crate) fn is_anchored(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// Sequences that once differed: with them the plans of the first seeds begin.
fn found(seed: u64) -> Vec<Step> {
    let (add, epoll_in) = (libc::EPOLL_CTL_ADD, libc::EPOLLIN as u32);
    match seed {
        // A call that waits goes on with its socket, whatever becomes of the number.
        0 => vec![
            (1, Recv(2, 50, 0, By::Socket)),
            (0, Close(2)),
            (0, Socket(10)),
            (0, Connect(10, 0)),
            (0, Accept(0, 11, 0)),
            (0, Send(11, 9, 0, By::Socket)),
            (0, Send(1, 7, 0, By::Socket)),
        ],
        // A thread waits for an instance that becomes Janus's.
        1 => vec![
            (1, EpollWait(5, Wait::Ever)),
            (0, EpollCtl(5, add, 2, epoll_in)),
            (0, Send(1, 7, 0, By::Socket)),
        ],
        // Both names of an instance have all of it; each name of a socket is watched for itself.
        2 => vec![
            (0, EpollCtl(6, add, 4, epoll_in)),
            (0, EpollCtl(6, add, 7, epoll_in)),
            (0, Dup(6, 10)),
            (0, Dup(4, 11)),
            (0, EpollCtl(10, add, 11, epoll_in)),
            (0, Send(7, 8, 0, By::File)),
            (0, Send(3, 7, 0, By::Socket)),
            (0, EpollWait(10, Wait::Never)),
        ],
        // What an instance watched before it was Janus's it watches until that is taken out.
        3 => vec![
            (0, EpollCtl(5, add, 7, epoll_in)),
            (0, EpollCtl(5, add, 8, epoll_in)),
            (0, EpollCtl(5, add, 2, epoll_in)),
            (0, EpollCtl(5, libc::EPOLL_CTL_DEL, 8, 0)),
            (1, EpollWait(5, Wait::Ever)),
            (0, Send(7, 8, 0, By::File)),
        ],
        // A close ends no wait, and makes no error of one.
        4 => vec![
            (1, Look(Look::Select, [2, 4, 4], IN, Wait::Ever)),
            (0, Close(2)),
            (0, Send(3, 7, 0, By::Socket)),
        ],
        // O_NONBLOCK is for later calls.
        6 => vec![
            (1, Recv(2, 50, 0, By::Socket)),
            (0, NonBlocking(2, true)),
            (0, Send(1, 7, 0, By::Socket)),
        ],
        // Errors that nobody has asked for end no select.
        8 => vec![
            (0, Close(1)),
            (0, Send(2, 7, 0, By::Socket)),
            (1, Look(Look::Select, [2, 2, 7], libc::POLLPRI, Wait::Soon)),
        ],
        // A reset has no octets that a lower mark would find.
        10 => vec![
            (0, Send(4, 95, 0, By::Message)),
            (0, EpollCtl(6, add, 4, epoll_in | libc::EPOLLET as u32)),
            (0, Close(3)),
            (0, EpollWait(6, Wait::Never)),
            (0, Set(4, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1)),
            (0, EpollWait(6, Wait::Never)),
        ],
        _ => Vec::new(),
    }
}

/// A plan of so many random calls.
pub(crate) fn plan(seed: u64, calls: usize) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    let mut all = setup();
    // A socket that has ended both directions answers data with a reset in the kernel, and takes it here.
    let how = if seed.is_multiple_of(4) {
        libc::SHUT_RD
    } else {
        libc::SHUT_WR
    };
    let begin = all.len();
    all.extend(found(seed));
    if !is_anchored(seed) {
        all.extend(watched_before(&mut dice));
    }
    while all.len() < begin + calls {
        let call = (dice.below(THREADS), random(&mut dice, how));
        all.push(match (is_numbered(seed), call) {
            (true, (who, Accept(at, new, _))) => (who, AcceptSoon(at, new)),
            (false, (who, CloseRange(at, _) | DupFrom(at, ..))) => (who, Close(at)),
            (_, call) => call,
        });
        let (_, last) = all.last_mut().expect("a call");
        *last = with_one_mark(seed, *last);
        if !is_anchored(seed) {
            *last = unwatched(*last);
        }
    }
    all
}

/// Descriptors of the kernel's that instances watch before they are Janus's.
fn watched_before(dice: &mut Dice) -> Vec<Step> {
    let mut all = Vec::new();
    for instance in [5, 6] {
        for watched in [7, 8] {
            if dice.once_in(2) {
                let (how, events) = (libc::EPOLL_CTL_ADD, libc::EPOLLIN as u32);
                all.push((0, EpollCtl(instance, how, watched, events)));
            }
        }
    }
    all
}

/// The same call; in a plan with O_NONBLOCK SO_RCVLOWAT stays 1, as a wait that has some of its bytes would end.
fn with_one_mark(seed: u64, op: Op) -> Op {
    match (seed.is_multiple_of(4), op) {
        (true, NonBlocking(at, true)) => Flags(at),
        (false, Set(at, level, libc::SO_RCVLOWAT, _)) => Set(at, level, libc::SO_RCVLOWAT, 1),
        (_, op) => op,
    }
}

/// The same call, or one that cannot make anything but an `epoll_wait` wait for an epoll instance.
fn unwatched(op: Op) -> Op {
    let instances = [5, 6];
    match op {
        Epoll(into) => Eventfd(into),
        Look(by, places, events, Wait::Ever) => Look(by, places, events, Wait::Soon),
        EpollCtl(at, how, watched, events) if instances.contains(&watched) => {
            EpollCtl(at, how, 7, events)
        }
        Dup(at, _) | Dup2(at, _) | Dup3(at, ..) | DupFrom(at, ..) if instances.contains(&at) => {
            Flags(at)
        }
        other => other,
    }
}

/// A random call, whose `shutdown` is of this kind.
pub(crate) fn random(dice: &mut Dice, how: i32) -> Op {
    match dice.below(100) {
        0..16 => send(dice),
        16..36 => recv(dice),
        36..46 => look(dice),
        46..60 => epoll(dice),
        60..72 => number(dice),
        72..82 => life(dice, how),
        82..92 => ask(dice),
        92 => SendFile(dice.end(), 1 + dice.below(3_000)),
        93 => Splice(8, 9, 10),
        94..96 => Eventfd(dice.spare()),
        96 => Pipe(dice.spare(), dice.spare()),
        97 => Fork(Childs::Nothing),
        98 => Fork(Childs::Closes(dice.place())),
        _ if dice.once_in(3) => Fork(Childs::Answers(dice.end())),
        _ => Close(dice.end()),
    }
}

fn send(dice: &mut Dice) -> Op {
    let by = dice.one_of(&[By::Socket, By::Socket, By::File, By::Parts, By::Message]);
    match dice.below(6) {
        0 => Send(9, 1 + dice.below(30), 0, By::File),
        // An eventfd takes eight bytes.
        1 => Send(7, 8, 0, By::File),
        _ => Send(
            dice.end(),
            1 + dice.below(700),
            dice.one_of(&[0, DONTWAIT]),
            by,
        ),
    }
}

fn recv(dice: &mut Dice) -> Op {
    let by = dice.one_of(&[By::Socket, By::Socket, By::File, By::Parts, By::Message]);
    let len = match dice.below(4) {
        0 => 4_000,
        1 => 1 + dice.below(20),
        _ => 1 + dice.below(900),
    };
    let flags = match dice.below(10) {
        0..4 => DONTWAIT,
        4 => DONTWAIT | PEEK,
        5 => PEEK,
        6 => WAITALL,
        // Without waiting: what it has seen, another thread may take meanwhile, and it tells it all the same.
        7 => WAITALL | PEEK | DONTWAIT,
        _ => 0,
    };
    match dice.below(14) {
        0 => Recv(8, len, 0, By::File),
        1 => Recv(7, 8, 0, By::File),
        2 | 3 => RecvSoon(dice.end(), len, flags & !DONTWAIT),
        _ => Recv(dice.end(), len, flags, by),
    }
}

fn wait(dice: &mut Dice) -> Wait {
    dice.one_of(&[Wait::Never, Wait::Never, Wait::Soon, Wait::Ever])
}

fn look(dice: &mut Dice) -> Op {
    let by = dice.one_of(&[Look::Poll, Look::Poll, Look::Ppoll, Look::Select]);
    let places = [dice.end(), dice.place(), dice.place()];
    let events = dice.one_of(&[IN, IN, OUT, IN | OUT, IN | libc::POLLRDHUP]);
    Look(by, places, events, wait(dice))
}

fn epoll(dice: &mut Dice) -> Op {
    let instance = match dice.below(10) {
        0 => dice.place(),
        _ => dice.one_of(&[5, 6]),
    };
    let how = dice.one_of(&[0, 0, libc::EPOLLET as u32, libc::EPOLLONESHOT as u32]);
    let what = dice.one_of(&[
        libc::EPOLLIN as u32,
        libc::EPOLLIN as u32,
        libc::EPOLLOUT as u32,
        (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP) as u32,
    ]);
    let watched = match dice.below(3) {
        0 => dice.place(),
        1 => dice.one_of(&[7, 8, 0]),
        _ => dice.end(),
    };
    match dice.below(12) {
        0..4 => EpollCtl(instance, libc::EPOLL_CTL_ADD, watched, what | how),
        4 => EpollCtl(instance, libc::EPOLL_CTL_MOD, watched, what | how),
        5..7 => EpollCtl(instance, libc::EPOLL_CTL_DEL, watched, 0),
        7 if dice.once_in(3) => Epoll(dice.spare()),
        _ => EpollWait(instance, wait(dice)),
    }
}

/// Descriptors change hands.
fn number(dice: &mut Dice) -> Op {
    match dice.below(16) {
        0..2 => Dup(dice.end(), dice.spare()),
        2 => Dup2(dice.end(), dice.spare()),
        3 => Dup2(dice.place(), dice.place()),
        4 => Dup3(
            dice.place(),
            dice.place(),
            dice.one_of(&[0, libc::O_CLOEXEC, 1]),
        ),
        5 => DupFrom(dice.place(), dice.spare(), dice.below(40) as i32),
        6 => CloseRange(dice.place(), dice.below(3) as u8),
        7..10 => Close(dice.spare()),
        10..12 => Close(dice.place()),
        12 => Close(dice.end()),
        13 => NonBlocking(dice.place(), dice.once_in(2)),
        14 => OnExec(dice.place(), dice.once_in(2)),
        _ => Flags(dice.place()),
    }
}

fn life(dice: &mut Dice, how: i32) -> Op {
    match dice.below(20) {
        0..4 => Socket(dice.spare()),
        4..8 => Connect(dice.spare(), 0),
        8 => Connect(dice.place(), dice.place()),
        9 => Bind(dice.spare()),
        10 => Listen(dice.spare()),
        11..14 => Accept(0, dice.spare(), dice.one_of(&[0, libc::SOCK_NONBLOCK])),
        14 => AcceptSoon(0, dice.spare()),
        15 => Accept(dice.place(), dice.spare(), libc::SOCK_CLOEXEC),
        16..18 => Shutdown(dice.end(), how),
        18 => Shutdown(dice.place(), how),
        _ => Abortive(dice.end()),
    }
}

fn ask(dice: &mut Dice) -> Op {
    use libc::*;
    match dice.below(8) {
        0..3 => Unread(dice.end()),
        3 => Get(dice.end(), SOL_SOCKET, SO_ERROR),
        4 => {
            let name = dice.one_of(&[
                SO_TYPE,
                SO_ACCEPTCONN,
                SO_DOMAIN,
                SO_PROTOCOL,
                SO_KEEPALIVE,
                SO_RCVLOWAT,
            ]);
            Get(dice.place(), SOL_SOCKET, name)
        }
        5 => PeerName(dice.place()),
        6 if dice.once_in(2) => Set(dice.end(), SOL_SOCKET, SO_RCVLOWAT, dice.one_of(&[1, 20])),
        6 => Set(dice.end(), SOL_SOCKET, SO_KEEPALIVE, 1),
        _ => Get(dice.end(), IPPROTO_TCP, TCP_NODELAY),
    }
}
