use super::*;
use crate::sockets::tests::{SERVER, Two};

const IN: u32 = abi::EPOLLIN as u32;
const OUT: u32 = abi::EPOLLOUT as u32;
const RDHUP: u32 = abi::EPOLLRDHUP as u32;
const HUP: u32 = abi::EPOLLHUP as u32;
const ERR: u32 = abi::EPOLLERR as u32;
const ET: u32 = abi::EPOLLET as u32;
const ONESHOT: u32 = abi::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = abi::EPOLLEXCLUSIVE as u32;
const ADD: i32 = abi::EPOLL_CTL_ADD;
const MOD: i32 = abi::EPOLL_CTL_MOD;
const DEL: i32 = abi::EPOLL_CTL_DEL;

impl Two {
    fn epoll(&mut self) -> i32 {
        self.b.epoll_create(0).expect("a descriptor")
    }

    fn ctl(&mut self, epfd: i32, op: i32, fd: i32, events: u32) -> Result<()> {
        self.b.epoll_ctl(self.now, epfd, op, fd, events, fd as u64)
    }

    /// What is told, as descriptor and events.
    fn told(&mut self, epfd: i32) -> Vec<(i32, u32)> {
        let mut events = [EpollEvent::default(); 8];
        let n = self
            .b
            .epoll_wait(self.now, epfd, &mut events)
            .expect("an epoll instance");
        let told = events[..n].iter();
        told.map(|event| (event.data as i32, event.events))
            .collect()
    }
}

#[test]
fn each_name_of_a_socket_is_watched_for_itself() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let epoll = two.epoll();
    for (name, outcome) in [(90, Ok(())), (91, Ok(())), (90, Err(Errno::EEXIST))] {
        let watched = (server, name);
        let added = (two.b).epoll_ctl_named(two.now, epoll, ADD, watched, IN, name as u64);
        assert_eq!(added, outcome);
    }
    two.a.write(two.now, client, b"data").expect("room");
    two.exchange();
    let mut told = two.told(epoll);
    told.sort_unstable();
    assert_eq!(told, [(90, IN), (91, IN)]);
    let mut by_name = |op, name| (two.b).epoll_ctl_named(two.now, epoll, op, (server, name), IN, 7);
    assert_eq!(by_name(MOD, 92), Err(Errno::ENOENT));
    assert_eq!(by_name(DEL, 90), Ok(()));
    assert_eq!(two.told(epoll), [(91, IN)]);
}

#[test]
fn level_tells_as_long_as_it_is_so_and_edge_once_for_each_arrival() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let (level, edge) = (two.epoll(), two.epoll());
    assert_eq!(two.ctl(level, ADD, server, IN), Ok(()));
    assert_eq!(two.ctl(edge, ADD, server, IN | OUT | ET), Ok(()));
    assert_eq!(
        (two.told(level), two.told(edge)),
        (vec![], vec![(server, OUT)])
    );
    assert_eq!(two.told(edge), []);
    for _ in 0..2 {
        two.a.write(two.now, client, b"data").expect("room");
        two.exchange();
        assert_eq!(two.told(level), [(server, IN)]);
        assert_eq!(two.told(level), [(server, IN)]);
        assert_eq!(two.told(edge), [(server, IN | OUT)]);
        assert_eq!(two.told(edge), []);
    }
    let mut got = [0; 16];
    assert_eq!(two.b.read(two.now, server, &mut got), Ok(8));
    assert_eq!((two.told(level), two.told(edge)), (vec![], vec![]));
    two.a.shutdown(two.now, client, abi::SHUT_WR).expect("open");
    two.exchange();
    assert_eq!(two.told(level), [(server, IN)]);
    assert_eq!(two.told(edge), [(server, IN | OUT)]);
    assert_eq!(two.ctl(edge, MOD, server, RDHUP | ET), Ok(()));
    assert_eq!(two.told(edge), [(server, RDHUP)]);
}

#[test]
fn one_shot_is_silent_until_it_is_asked_for_again() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let epfd = two.epoll();
    assert_eq!(two.ctl(epfd, ADD, server, IN | ONESHOT), Ok(()));
    for _ in 0..2 {
        two.a.write(two.now, client, b"data").expect("room");
        two.exchange();
        assert_eq!(two.told(epfd), [(server, IN)]);
        two.a.write(two.now, client, b"data").expect("room");
        two.exchange();
        assert_eq!(two.told(epfd), []);
        let mut got = [0; 16];
        assert_eq!(two.b.read(two.now, server, &mut got), Ok(8));
        assert_eq!(two.ctl(epfd, MOD, server, IN | ONESHOT), Ok(()));
        assert_eq!(two.told(epfd), []);
    }
    // Not even the end is told, for what is asked for by itself goes too (EP_PRIVATE_BITS).
    two.a.write(two.now, client, b"data").expect("room");
    two.exchange();
    assert_eq!(two.told(epfd), [(server, IN)]);
    two.a.close(two.now, client).expect("open");
    two.exchange();
    assert_eq!(two.told(epfd), []);
}

#[test]
fn a_listener_and_an_attempt_are_told() {
    let mut two = Two::new();
    let listener = two.listener();
    let epfd = two.epoll();
    assert_eq!(two.ctl(epfd, ADD, listener, IN), Ok(()));
    assert_eq!(two.told(epfd), []);
    let client = two.client();
    let mine = two.a.epoll_create(0).expect("a descriptor");
    two.a
        .epoll_ctl(two.now, mine, ADD, client, OUT, 7)
        .expect("watched");
    let mut event = [EpollEvent::default(); 1];
    // A socket that was never connected hangs.
    assert_eq!(two.a.epoll_wait(two.now, mine, &mut event), Ok(1));
    assert_eq!(event[0].events, OUT | HUP);
    assert_eq!(
        two.a.connect(two.now, client, SERVER),
        Err(Errno::EINPROGRESS)
    );
    assert_eq!(two.a.epoll_wait(two.now, mine, &mut event), Ok(0));
    two.exchange();
    assert_eq!(two.a.epoll_wait(two.now, mine, &mut event), Ok(1));
    assert_eq!((event[0].events, event[0].data), (OUT, 7));
    assert_eq!(two.told(epfd), [(listener, IN)]);
    assert_eq!(two.told(epfd), [(listener, IN)]);
    let (server, _) = two.b.accept(listener).expect("a connection");
    assert_eq!(two.told(epfd), []);
    two.b.close(two.now, server).expect("open");
}

#[test]
fn a_reset_is_told_with_all_that_it_means() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let epfd = two.epoll();
    assert_eq!(two.ctl(epfd, ADD, server, RDHUP | ET), Ok(()));
    assert_eq!(two.told(epfd), []);
    let linger = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
    two.a
        .setsockopt(two.now, client, abi::SOL_SOCKET, abi::SO_LINGER, &linger)
        .expect("an option");
    two.a.close(two.now, client).expect("open");
    two.exchange();
    assert_eq!(two.told(epfd), [(server, RDHUP | HUP | ERR)]);
    assert_eq!(two.told(epfd), []);
    let all = IN | OUT | RDHUP | HUP | ERR;
    let told = two.b.readiness(two.now, server).expect("open");
    assert_eq!(told & all, all);
}

#[test]
fn a_writer_is_told_when_a_third_is_free() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let epfd = two.epoll();
    assert_eq!(two.ctl(epfd, ADD, server, OUT | ET), Ok(()));
    assert_eq!(two.told(epfd), [(server, OUT)]);
    let bytes = vec![0; 1 << 20];
    let taken = two.b.write(two.now, server, &bytes).expect("some room");
    assert!(taken < bytes.len());
    assert_eq!(two.b.write(two.now, server, &bytes), Err(Errno::EAGAIN));
    assert_eq!(two.told(epfd), []);
    let mut got = vec![0; 1 << 20];
    let mut read = 0;
    while read < taken {
        two.exchange();
        read += two.a.read(two.now, client, &mut got).expect("data");
        two.now = two.now + core::time::Duration::from_millis(50);
        two.a.stack_mut().advance(two.now);
        two.b.stack_mut().advance(two.now);
    }
    assert_eq!(two.told(epfd), [(server, OUT)]);
    assert_eq!(two.told(epfd), []);
}

#[test]
fn refusals_of_epoll_ctl() {
    let mut two = Two::new();
    let (_, server) = two.open();
    let (one, other) = (two.epoll(), two.epoll());
    assert_eq!(two.ctl(99, ADD, server, IN), Err(Errno::EBADF));
    assert_eq!(two.ctl(one, ADD, 99, IN), Err(Errno::EBADF));
    assert_eq!(two.ctl(server, ADD, one, IN), Err(Errno::EINVAL));
    assert_eq!(two.ctl(one, ADD, one, IN), Err(Errno::EINVAL));
    assert_eq!(two.ctl(one, 9, server, IN), Err(Errno::EINVAL));
    assert_eq!(two.ctl(one, MOD, server, IN), Err(Errno::ENOENT));
    assert_eq!(two.ctl(one, DEL, server, 0), Err(Errno::ENOENT));
    assert_eq!(two.ctl(one, ADD, server, IN), Ok(()));
    assert_eq!(two.ctl(one, ADD, server, IN), Err(Errno::EEXIST));
    assert_eq!(two.ctl(one, DEL, server, 0), Ok(()));
    let alone = IN | EXCLUSIVE;
    assert_eq!(two.ctl(one, ADD, server, alone | RDHUP), Err(Errno::EINVAL));
    assert_eq!(two.ctl(one, ADD, server, alone), Ok(()));
    assert_eq!(two.ctl(one, MOD, server, IN), Err(Errno::EINVAL));
    assert_eq!(two.ctl(other, ADD, one, alone), Err(Errno::EINVAL));
    assert_eq!(two.ctl(other, ADD, one, IN), Ok(()));
    assert_eq!(two.ctl(one, ADD, other, IN), Err(Errno::ELOOP));
    let mut none: [EpollEvent; 0] = [];
    let outcome = two.b.epoll_wait(two.now, one, &mut none);
    assert_eq!(outcome, Err(Errno::EINVAL));
    let mut event = [EpollEvent::default()];
    let outcome = two.b.epoll_wait(two.now, server, &mut event);
    assert_eq!(outcome, Err(Errno::EINVAL));
    assert_eq!(two.b.epoll_create(1), Err(Errno::EINVAL));
}

#[test]
fn chains_of_instances_have_an_end() {
    let mut two = Two::new();
    let chain: Vec<i32> = (0..NESTS_MAX + 1).map(|_| two.epoll()).collect();
    for at in 1..NESTS_MAX {
        assert_eq!(two.ctl(chain[at], ADD, chain[at - 1], IN), Ok(()), "{at}");
    }
    let last = two.ctl(chain[NESTS_MAX], ADD, chain[NESTS_MAX - 1], IN);
    assert_eq!(last, Err(Errno::ELOOP));
    // What happens at the bottom is seen at the top.
    let (client, server) = two.open();
    assert_eq!(two.ctl(chain[0], ADD, server, IN), Ok(()));
    let top = chain[NESTS_MAX - 1];
    assert_eq!(two.told(top), []);
    two.a.write(two.now, client, b"x").expect("room");
    two.exchange();
    assert_eq!(two.told(top), [(chain[NESTS_MAX - 2], IN)]);
    assert_eq!(
        two.b.readiness(two.now, top),
        Ok((abi::EPOLLIN | abi::EPOLLRDNORM) as u32)
    );
    assert_eq!(two.b.read(two.now, server, &mut [0; 4]), Ok(1));
    assert_eq!(two.told(top), []);
}

#[test]
fn of_those_who_want_to_be_woken_alone_one_is() {
    let mut two = Two::new();
    let listener = two.listener();
    let workers: Vec<i32> = (0..3).map(|_| two.epoll()).collect();
    for &epfd in &workers {
        assert_eq!(two.ctl(epfd, ADD, listener, IN | EXCLUSIVE), Ok(()));
        assert_eq!(two.told(epfd), []);
        two.b.wait(two.now, epfd).expect("open");
    }
    let client = two.client();
    let connecting = two.a.connect(two.now, client, SERVER);
    assert_eq!(connecting, Err(Errno::EINPROGRESS));
    two.exchange();
    two.b.gather();
    assert_eq!(two.b.next_woken(), Some(workers[0]));
    assert_eq!(two.b.next_woken(), None);
    assert_eq!(two.told(workers[1]), []);
    assert_eq!(two.told(workers[0]), [(listener, IN)]);
}

#[test]
fn closing_takes_a_descriptor_out_of_every_instance() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let (one, other) = (two.epoll(), two.epoll());
    for epfd in [one, other] {
        assert_eq!(two.ctl(epfd, ADD, server, IN | OUT), Ok(()));
        assert_eq!(two.told(epfd), [(server, OUT)]);
    }
    two.b.close(two.now, other).expect("open");
    two.b.close(two.now, server).expect("open");
    two.exchange();
    assert_eq!(two.told(one), []);
    assert_eq!(two.ctl(one, DEL, server, 0), Err(Errno::EBADF));
    two.a.close(two.now, client).expect("open");
    two.exchange();
    two.a.close_all(two.now);
    two.b.close_all(two.now);
    two.exchange();
    assert!(two.a.files.is_empty() && two.b.files.is_empty());
    assert!(two.b.files.items.free.len() == two.b.files.items.items.len());
}

#[test]
fn who_waits_is_named_once() {
    let mut two = Two::new();
    let (client, server) = two.open();
    assert_eq!(two.b.next_woken(), None);
    two.b.wait(two.now, server).expect("open");
    two.a.write(two.now, client, b"x").expect("room");
    two.exchange();
    two.b.gather();
    assert_eq!(
        (two.b.next_woken(), two.b.next_woken()),
        (Some(server), None)
    );
    two.a.write(two.now, client, b"x").expect("room");
    two.exchange();
    two.b.gather();
    assert_eq!(two.b.next_woken(), None);
}

impl Two {
    /// The peer reads all that `server` has sent; room is made there.
    fn drain(&mut self, client: i32) {
        let mut into = vec![0; 100_000];
        self.exchange();
        while self.a.recv(self.now, client, &mut into, 0).is_ok() {
            self.exchange();
        }
    }

    /// Whether a writer would be told to go on.
    fn has_room(&self, server: i32) -> bool {
        let socket = self.b.files.table.peek(server).expect("open");
        let conn = socket.state.connection().expect("connected");
        self.b.stack().status(conn).expect("known").writable
    }
}

/// There is room, and it is gone again when the word that was left for it is looked at: more word is left.
#[test]
fn a_writer_that_was_told_in_vain_is_told_again() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let epoll = two.epoll();
    let now = two.now;
    while two.b.send(now, server, &[1; 10_000], 0).is_ok() {}
    assert_eq!(two.ctl(epoll, ADD, server, OUT), Ok(()));
    assert_eq!(two.told(epoll), []);
    two.drain(client);
    assert!(two.has_room(server));
    // Taken whole, so that nothing has to be waited for.
    while two.has_room(server) {
        assert_eq!(two.b.send(now, server, &[1; 100], 0), Ok(100));
    }
    assert_eq!(two.told(epoll), []);
    two.drain(client);
    assert!(two.has_room(server));
    assert_eq!(two.told(epoll), [(server, OUT)]);
}

/// What happens to one of three connections, and when their instances are asked.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(usize, usize),
    Read(usize, usize),
    /// Written until nothing more is taken.
    Fill(usize),
    /// The peer reads and acknowledges all that was written.
    Drain(usize),
    End(usize),
    Ask,
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::*;
    let one = (0..12u8, 0..3usize, 1..3_000usize).prop_map(|(kind, which, n)| match kind {
        0..3 => Step::Arrive(which, n),
        3..5 => Step::Read(which, n),
        5 => Step::Read(which, 1 << 20),
        6 => Step::Fill(which),
        7 => Step::Drain(which),
        8 if n < 500 => Step::End(which),
        _ => Step::Ask,
    });
    proptest::collection::vec(one, 1..60)
}

/// Three connections and what an edge is owed for each.
struct Walk {
    two: Two,
    ends: Vec<(i32, i32)>,
    level: i32,
    edge: i32,
    owed: [bool; 3],
    full: [bool; 3],
    ended: [bool; 3],
}

impl Walk {
    fn new() -> Walk {
        let mut two = Two::new();
        let listener = two.listener();
        let (level, edge) = (two.epoll(), two.epoll());
        let mut ends = Vec::new();
        for _ in 0..3 {
            let client = two.client();
            let outcome = two.a.connect(two.now, client, SERVER);
            assert_eq!(outcome, Err(Errno::EINPROGRESS));
            two.exchange();
            let (server, _) = two.b.accept(listener).expect("a connection");
            assert_eq!(two.ctl(level, ADD, server, IN | OUT | RDHUP), Ok(()));
            assert_eq!(two.ctl(edge, ADD, server, IN | OUT | RDHUP | ET), Ok(()));
            ends.push((client, server));
        }
        Walk {
            two,
            ends,
            level,
            edge,
            owed: [true; 3],
            full: [false; 3],
            ended: [false; 3],
        }
    }

    fn take(&mut self, step: Step) {
        let now = self.two.now;
        let two = &mut self.two;
        match step {
            Step::Arrive(i, _) | Step::End(i) if self.ended[i] => {}
            Step::Arrive(i, n) => {
                two.a
                    .setsockopt(
                        now,
                        self.ends[i].0,
                        abi::SOL_TCP,
                        abi::TCP_NODELAY,
                        &[1, 0, 0, 0],
                    )
                    .expect("an option");
                // What the peer's window has no room for arrives later, which is no matter of this test.
                let unread = two.b.ioctl(self.ends[i].1, abi::FIONREAD, 0).expect("open");
                if unread < 20_000 && two.a.write(now, self.ends[i].0, &vec![0; n]).is_ok() {
                    two.exchange();
                    self.owed[i] = true;
                }
            }
            Step::End(i) => {
                two.a
                    .shutdown(now, self.ends[i].0, abi::SHUT_WR)
                    .expect("open");
                two.exchange();
                (self.owed[i], self.ended[i]) = (true, true);
            }
            Step::Read(i, n) => {
                // Nothing there is no matter.
                let _ = two.b.read(now, self.ends[i].1, &mut vec![0; n]);
                two.exchange();
            }
            Step::Fill(i) => {
                while two.b.write(now, self.ends[i].1, &[0; 4_096]).is_ok() {}
                self.full[i] = true;
            }
            Step::Drain(i) => self.drain(i),
            Step::Ask => self.ask(),
        }
    }

    fn drain(&mut self, i: usize) {
        let (client, server) = self.ends[i];
        let two = &mut self.two;
        for _ in 0..200 {
            two.exchange();
            let _ = two.a.read(two.now, client, &mut vec![0; 1 << 17]);
            two.exchange();
            if two.b.ioctl(server, abi::SIOCOUTQ, 0) == Ok(0) {
                break;
            }
            two.now = two.now + core::time::Duration::from_millis(50);
            two.a.stack_mut().advance(two.now);
            two.b.stack_mut().advance(two.now);
        }
        assert_eq!(two.b.ioctl(server, abi::SIOCOUTQ, 0), Ok(0));
    }

    /// Room for one who found none is news.
    fn note_room(&mut self) {
        for (i, &(_, server)) in self.ends.iter().enumerate() {
            let conn = self.two.b.connection(server).expect("one");
            let status = self.two.b.stack().status(conn).expect("one");
            if self.full[i] && status.writable {
                (self.owed[i], self.full[i]) = (true, false);
            }
        }
    }

    fn ask(&mut self) {
        let ready: Vec<u32> = (0..3)
            .map(|i| {
                let mask = self.two.b.readiness(self.two.now, self.ends[i].1);
                mask.expect("open") & (IN | OUT | RDHUP | HUP | ERR)
            })
            .collect();
        let told = |epfd: i32, two: &mut Two| {
            let mut told = two.told(epfd);
            told.sort_unstable();
            told
        };
        let expected = |wanted: &dyn Fn(usize) -> bool| -> Vec<(i32, u32)> {
            let some = (0..3).filter(|&i| ready[i] != 0 && wanted(i));
            some.map(|i| (self.ends[i].1, ready[i])).collect()
        };
        let (by_level, by_edge) = (expected(&|_| true), expected(&|i| self.owed[i]));
        assert_eq!(told(self.level, &mut self.two), by_level);
        assert_eq!(told(self.edge, &mut self.two), by_edge);
        self.owed = [false; 3];
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(150))]

    /// Level tells what is ready, always; edge tells it once for each thing that happened.
    #[test]
    fn what_is_told_is_what_a_simple_model_says(steps in steps()) {
        let mut walk = Walk::new();
        walk.ask();
        for step in steps {
            walk.take(step);
            // Who hands the stack frames gathers what they woke.
            walk.two.b.gather();
            walk.note_room();
        }
        walk.ask();
    }
}
