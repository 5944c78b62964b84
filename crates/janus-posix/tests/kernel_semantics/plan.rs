//! What is tried: the ways into each state, and the calls.

/// A socket of a plan. Listeners and accepted ones are on the one host, the others on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The one that connects.
    Client,
    /// The one that was accepted.
    Server,
    Listener,
    /// Others that connect.
    Second,
    Third,
}

impl Who {
    pub(crate) const ALL: [Who; 5] = [
        Who::Client,
        Who::Server,
        Who::Listener,
        Who::Second,
        Who::Third,
    ];
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Socket(Who),
    Bind(Who),
    Listen(Who, i32),
    /// The listener's next becomes this one.
    Accept(Who, Who),
    /// To the listener's address.
    Connect(Who),
    /// To where nobody listens.
    ConnectNowhere(Who),
    Disconnect(Who),
    /// So many bytes, with these flags.
    Recv(Who, usize, i32),
    Send(Who, usize, i32),
    /// `read` and `write` of nothing.
    ReadNothing(Who),
    Shutdown(Who, i32),
    Close(Who),
    /// SO_LINGER with no time.
    Abortive(Who),
    Error(Who),
    PeerName(Who),
    /// Whether it has a port.
    HasPort(Who),
    Unread(Who),
    /// Whether reading stands at urgent data.
    AtMark(Who),
    /// Urgent data in line, or not.
    InLine(Who, bool),
    IsListening(Who),
    ReuseAddress(Who),
    ReusePort(Who),
    /// To the wildcard address, any port.
    BindAny(Who),
    /// To the port of the first, at the wildcard address or at that host's.
    BindSame(Who, Who, bool),
    /// Two epoll instances watch it.
    Watch(Who, u32),
    Rewatch(Who, u32),
    Unwatch(Who),
    /// What they tell, the events of the one that is asked first in the lower half.
    Wait(usize),
}

impl Op {
    pub(crate) fn who(self) -> Who {
        match self {
            Op::Socket(who)
            | Op::Bind(who)
            | Op::Listen(who, _)
            | Op::Accept(who, _)
            | Op::Connect(who)
            | Op::ConnectNowhere(who)
            | Op::Disconnect(who)
            | Op::Recv(who, ..)
            | Op::Send(who, ..)
            | Op::ReadNothing(who)
            | Op::Shutdown(who, _)
            | Op::Close(who)
            | Op::Abortive(who)
            | Op::Error(who)
            | Op::PeerName(who)
            | Op::HasPort(who)
            | Op::Unread(who)
            | Op::AtMark(who)
            | Op::InLine(who, _)
            | Op::IsListening(who)
            | Op::ReuseAddress(who)
            | Op::ReusePort(who)
            | Op::BindAny(who)
            | Op::BindSame(who, ..)
            | Op::Watch(who, _)
            | Op::Rewatch(who, _)
            | Op::Unwatch(who) => who,
            Op::Wait(_) => Who::Client,
        }
    }
}

use Op::*;
use Who::*;

const RD: i32 = 0;
const WR: i32 = 1;
const RDWR: i32 = 2;
const OOB: i32 = 0x1;
const PEEK: i32 = 0x2;
const TRUNC: i32 = 0x20;
const WAITALL: i32 = 0x100;
const ERRQUEUE: i32 = 0x2000;
const NOSIGNAL: i32 = 0x4000;

/// A listener and a client, connected and accepted.
fn connected() -> Vec<Op> {
    vec![
        Socket(Listener),
        Bind(Listener),
        Listen(Listener, 10),
        Socket(Client),
        Connect(Client),
        Connect(Client),
        Accept(Listener, Server),
    ]
}

fn after(mut first: Vec<Op>, then: &[Op]) -> Vec<Op> {
    first.extend(then);
    first
}

/// The states, each by its name and the way into it. The calls are then tried on `Client`, or on `Listener`.
pub(crate) fn setups() -> Vec<(&'static str, Vec<Op>)> {
    let on = |then: &[Op]| after(connected(), then);
    let mut all = vec![
        ("made", vec![Socket(Client)]),
        ("bound", vec![Socket(Client), Bind(Client)]),
        (
            "shut before anything",
            vec![Socket(Client), Shutdown(Client, RDWR)],
        ),
        (
            "listens",
            vec![Socket(Client), Bind(Client), Listen(Client, 1)],
        ),
        ("listens unbound", vec![Socket(Client), Listen(Client, 1)]),
        (
            "listened",
            vec![
                Socket(Client),
                Bind(Client),
                Listen(Client, 1),
                Shutdown(Client, RD),
            ],
        ),
        ("refused", vec![Socket(Client), ConnectNowhere(Client)]),
        (
            "refusal told",
            vec![Socket(Client), ConnectNowhere(Client), Error(Client)],
        ),
        (
            "refusal told by read",
            vec![Socket(Client), ConnectNowhere(Client), Recv(Client, 4, 0)],
        ),
        (
            "refusal told by write",
            vec![
                Socket(Client),
                ConnectNowhere(Client),
                Send(Client, 4, NOSIGNAL),
            ],
        ),
        (
            "connected, not told",
            vec![
                Socket(Listener),
                Bind(Listener),
                Listen(Listener, 10),
                Socket(Client),
                Connect(Client),
            ],
        ),
        ("connected", connected()),
        (
            "bound and connected",
            vec![
                Socket(Listener),
                Bind(Listener),
                Listen(Listener, 10),
                Socket(Client),
                Bind(Client),
                Connect(Client),
                Connect(Client),
                Accept(Listener, Server),
            ],
        ),
        (
            "an attempt",
            // With one in the queue of a listener that takes one, the next goes unanswered.
            vec![
                Socket(Listener),
                Bind(Listener),
                Listen(Listener, 0),
                Socket(Second),
                Connect(Second),
                Socket(Client),
                Connect(Client),
            ],
        ),
    ];
    all.extend([
        ("unread", on(&[Send(Server, 20, 0)])),
        ("end", on(&[Shutdown(Server, WR)])),
        (
            "unread and end",
            on(&[Send(Server, 20, 0), Shutdown(Server, WR)]),
        ),
        ("end read", on(&[Shutdown(Server, WR), Recv(Client, 5, 0)])),
        ("own end", on(&[Shutdown(Client, WR)])),
        ("reading shut", on(&[Shutdown(Client, RD)])),
        (
            "reading shut, unread",
            on(&[Shutdown(Client, RD), Send(Server, 20, 0)]),
        ),
        ("both shut", on(&[Shutdown(Client, RDWR)])),
        (
            "own end, then theirs",
            on(&[Shutdown(Client, WR), Shutdown(Server, WR)]),
        ),
        (
            "their end, then own",
            on(&[Shutdown(Server, WR), Shutdown(Client, WR)]),
        ),
        (
            "own end, then unread",
            on(&[Shutdown(Client, WR), Send(Server, 20, 0)]),
        ),
        (
            "own end, unread, theirs",
            on(&[
                Shutdown(Client, WR),
                Send(Server, 20, 0),
                Shutdown(Server, WR),
            ]),
        ),
        ("peer closed", on(&[Close(Server)])),
        (
            "peer closed, written to",
            on(&[Close(Server), Send(Client, 4, 0)]),
        ),
        (
            "peer closed with unread",
            on(&[Send(Client, 20, 0), Close(Server)]),
        ),
        ("reset", on(&[Abortive(Server), Close(Server)])),
        (
            "reset with unread",
            on(&[Send(Server, 20, 0), Abortive(Server), Close(Server)]),
        ),
        (
            "reset told by SO_ERROR",
            on(&[Abortive(Server), Close(Server), Error(Client)]),
        ),
        (
            "reset told by read",
            on(&[Abortive(Server), Close(Server), Recv(Client, 4, 0)]),
        ),
        (
            "reset told by write",
            on(&[Abortive(Server), Close(Server), Send(Client, 4, NOSIGNAL)]),
        ),
        (
            "end, then reset",
            on(&[Shutdown(Server, WR), Abortive(Server), Close(Server)]),
        ),
        (
            "own end, then reset",
            on(&[Shutdown(Client, WR), Abortive(Server), Close(Server)]),
        ),
        ("disconnected", on(&[Disconnect(Client)])),
        ("urgent octet", on(&[Send(Server, 1, OOB)])),
        (
            "urgent, more behind",
            on(&[Send(Server, 8, OOB), Send(Server, 5, 0)]),
        ),
        (
            "urgent in line",
            on(&[InLine(Client, true), Send(Server, 8, OOB)]),
        ),
        (
            "urgent taken, at the mark",
            on(&[
                Send(Server, 8, OOB),
                Recv(Client, 1, OOB),
                Recv(Client, 100, 0),
            ]),
        ),
        (
            "urgent, then the end",
            on(&[Send(Server, 8, OOB), Shutdown(Server, WR)]),
        ),
        (
            "urgent, then a reset",
            on(&[Send(Server, 8, OOB), Abortive(Server), Close(Server)]),
        ),
        (
            "urgent, reading shut",
            on(&[Send(Server, 8, OOB), Shutdown(Client, RD)]),
        ),
        (
            "disconnected, told",
            on(&[Disconnect(Client), Error(Client)]),
        ),
        (
            "connected again",
            on(&[
                Disconnect(Client),
                Error(Client),
                Close(Server),
                Connect(Client),
                Connect(Client),
                Accept(Listener, Server),
            ]),
        ),
    ]);
    all
}

/// The calls that are tried in each state.
pub(crate) fn probes() -> Vec<Op> {
    vec![
        Recv(Client, 10, 0),
        Recv(Client, 100, 0),
        Recv(Client, 0, 0),
        Recv(Client, 10, PEEK),
        Recv(Client, 100, WAITALL),
        Recv(Client, 10, TRUNC),
        Recv(Client, 10, PEEK | TRUNC),
        Recv(Client, 10, OOB),
        Recv(Client, 0, OOB),
        Recv(Client, 10, OOB | PEEK),
        Recv(Client, 10, OOB | TRUNC),
        AtMark(Client),
        Recv(Client, 10, ERRQUEUE),
        ReadNothing(Client),
        Send(Client, 5, NOSIGNAL),
        Send(Client, 0, NOSIGNAL),
        Shutdown(Client, RD),
        Shutdown(Client, WR),
        Shutdown(Client, RDWR),
        Connect(Client),
        ConnectNowhere(Client),
        Disconnect(Client),
        Bind(Client),
        Listen(Client, 5),
        Accept(Client, Third),
        Error(Client),
        PeerName(Client),
        HasPort(Client),
        Unread(Client),
        IsListening(Client),
        Close(Client),
    ]
}

/// What is asked after every call.
pub(crate) fn aftermath(who: Who) -> Vec<Op> {
    vec![
        Error(who),
        PeerName(who),
        Recv(who, 100, 0),
        Recv(who, 100, 0),
        Send(who, 3, NOSIGNAL),
        Send(who, 3, NOSIGNAL),
        Connect(who),
        Connect(who),
        Error(who),
    ]
}

/// A state (`*`: any), the calls, and why what follows differs.
type Difference = (&'static str, fn(Op) -> bool, &'static str);

/// What is known to differ.
pub(crate) const DIFFERENCES: &[Difference] = &[(
    "*",
    |op| matches!(op, HasPort(_)),
    "a socket that has lost its port tells none; the kernel goes on telling the number that it does not hold any more",
)];

/// Two sockets that want one port, in all the ways that they can say how much they mind.
pub(crate) fn pairs() -> Vec<Vec<Op>> {
    let flag = |bits: usize, bit: usize| bits >> bit & 1 != 0;
    let ways = 0..1 << 9;
    ways.map(|bits| {
        let mut plan = vec![Socket(Listener), Socket(Server)];
        for (bit, op) in [
            ReuseAddress(Listener),
            ReusePort(Listener),
            ReuseAddress(Server),
            ReusePort(Server),
        ]
        .into_iter()
        .enumerate()
        {
            if flag(bits, bit) {
                plan.push(op);
            }
        }
        plan.push(if flag(bits, 4) {
            BindAny(Listener)
        } else {
            Bind(Listener)
        });
        if flag(bits, 5) {
            plan.push(Listen(Listener, 3));
        }
        plan.push(BindSame(Server, Listener, flag(bits, 6)));
        plan.push(HasPort(Server));
        if flag(bits, 7) {
            plan.push(Listen(Server, 3));
        }
        if flag(bits, 8) {
            plan.extend([
                Close(Listener),
                BindSame(Server, Server, true),
                Listen(Server, 3),
            ]);
        } else {
            plan.push(Listen(Listener, 3));
        }
        plan
    })
    .collect()
}

const IN: u32 = 0x1;
const PRI: u32 = 0x2;
const OUT: u32 = 0x4;
const RDHUP: u32 = 0x2000;
const ONESHOT: u32 = 1 << 30;
const ET: u32 = 1 << 31;

/// Numbers that a seed decides.
fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// A walk over urgent data: marks come while reading stands before, at or behind others, the octet is taken, looked at or
/// lost, and what is in line changes.
pub(crate) fn urgent_walk(seed: u64) -> Vec<Op> {
    let mut draw = dice(seed);
    let mut plan = connected();
    plan.push(Watch(Client, IN | PRI));
    for _ in 0..40 {
        let len = 1 + draw(6) as usize;
        plan.push(match draw(24) {
            0..5 => Send(Server, len, OOB),
            5..8 => Send(Server, len, 0),
            8..11 => Recv(Client, len, 0),
            11 => Recv(Client, 100, 0),
            12 => Recv(Client, 100, PEEK),
            13 => Recv(Client, len, TRUNC),
            14..17 => Recv(Client, 1, OOB),
            17 => Recv(Client, 1, OOB | PEEK),
            18 => AtMark(Client),
            19 => Unread(Client),
            20 => Wait(0),
            21 if draw(3) == 0 => InLine(Client, draw(2) == 0),
            22 if draw(6) == 0 => Shutdown(Server, WR),
            23 if draw(9) == 0 => Shutdown(Client, RD),
            _ => Unread(Client),
        });
    }
    plan
}

/// A walk of a connection that epoll instances watch: data both ways, reading it in part or whole, asking again and again,
/// watching for something else, and an end of some kind. The seed decides.
pub(crate) fn epoll_walk(seed: u64) -> Vec<Op> {
    let mut draw = dice(seed);
    let sets = [
        IN,
        OUT,
        IN | OUT,
        IN | ET,
        OUT | ET,
        IN | OUT | RDHUP | ET,
        IN | ONESHOT,
        IN | OUT | ONESHOT | ET,
        RDHUP | ET,
        0,
    ];
    let mut plan = connected();
    plan.push(Watch(Client, sets[draw(10) as usize]));
    for _ in 0..30 {
        plan.push(match draw(20) {
            0..6 => Wait(draw(2) as usize),
            6..9 => Send(Server, 1 + draw(50) as usize, 0),
            9..11 => Recv(Client, 1 + draw(60) as usize, 0),
            11 => Recv(Client, 1_000, 0),
            12 => Send(Client, 1 + draw(50) as usize, 0),
            13 => Rewatch(Client, sets[draw(10) as usize]),
            14 => Watch(Client, sets[draw(10) as usize]),
            15 => Unwatch(Client),
            16 => Recv(Server, 1_000, 0),
            17 if draw(4) == 0 => Shutdown(Server, WR),
            // One of the two: to data for a socket that has done both the kernel answers with a reset, these sockets take it.
            18 if draw(4) == 0 => Shutdown(Client, (seed % 2) as i32),
            19 if draw(8) == 0 => Close(Server),
            _ => Wait(0),
        });
    }
    plan
}
