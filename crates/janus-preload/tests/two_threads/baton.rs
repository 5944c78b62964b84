//! Threads that hand a baton: one call after the other, in the order of the plan. A call that waits gives the baton on, and ends when a
//! later call lets it.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::bytes::Answer;
use crate::calls::Table;
use crate::plan::{Childs, Op, PLACES, Step, THREADS};
use crate::waits::{Waits, at_once, may_wait_for_ever};

/// No call takes so long that is to end, and no wait that was interrupted.
const LONG: Duration = Duration::from_secs(10);
/// Numbers from here on are Janus's, or the test's.
const KEPT: i32 = 200;

/// A thread that makes calls.
pub(crate) struct Hand {
    calls: Sender<(Op, u8)>,
    answers: Receiver<Answer>,
    thread: libc::pthread_t,
    /// The call that it is in.
    waits: Option<Op>,
}

extern "C" fn nothing(_: libc::c_int) {}

/// A signal interrupts calls from now on.
pub(crate) fn interrupts() {
    // SAFETY: the action is plain data, for which zeros are a value.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &action, core::ptr::null_mut()),
            0
        );
    }
}

impl Hand {
    fn new(table: Arc<Table>) -> Hand {
        let (calls, orders) = channel::<(Op, u8)>();
        let (told, answers) = channel();
        let (introduces, own) = channel();
        thread::spawn(move || {
            // SAFETY: the call takes nothing.
            introduces
                .send(unsafe { libc::pthread_self() })
                .expect("somebody waits");
            for (op, mark) in orders {
                if told.send(table.call(op, mark)).is_err() {
                    break;
                }
            }
        });
        Hand {
            calls,
            answers,
            thread: own.recv().expect("it runs"),
            waits: None,
        }
    }

    fn order(&mut self, op: Op, mark: u8) {
        self.calls.send((op, mark)).expect("it runs");
        self.waits = Some(op);
    }

    /// Its answer, if it comes in time.
    fn answer(&mut self, patience: Duration) -> Option<Answer> {
        match self.answers.recv_timeout(patience) {
            Ok(answer) => {
                self.waits = None;
                Some(answer)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("a thread is gone"),
        }
    }

    /// Interrupts its call. A signal that comes right before the call sleeps is lost, so more of them follow.
    fn interrupt(&mut self) -> Answer {
        let begin = Instant::now();
        while begin.elapsed() < LONG {
            // SAFETY: the thread runs until its orders end.
            unsafe { libc::pthread_kill(self.thread, libc::SIGUSR1) };
            if let Some(answer) = self.answer(Duration::from_millis(20)) {
                return answer;
            }
        }
        println!("a call goes on in spite of signals");
        std::process::abort();
    }
}

/// Descriptors that are open, without those that are kept.
pub(crate) fn open() -> Vec<i32> {
    let all = fs::read_dir("/proc/self/fd").expect("a directory");
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let all: Vec<i32> = numbers.filter(|fd| *fd < KEPT).collect();
    // The directory is among them, and closed.
    // SAFETY: the call takes numbers.
    let mut open: Vec<i32> = all
        .into_iter()
        .filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } != -1)
        .collect();
    open.sort_unstable();
    open
}

/// Closes what is the plan's, or was inherited.
pub(crate) fn close_all() {
    // SAFETY: nothing else has these numbers.
    unsafe { libc::close_range(3, KEPT as u32 - 1, 0) };
}

/// poll's word on each place.
fn masks(table: &Table) -> [u16; PLACES] {
    let places: [u8; PLACES] = core::array::from_fn(|at| at as u8);
    let mut polled = places.map(|place| libc::pollfd {
        fd: table.fd(place),
        events: 0x23df,
        revents: 0,
    });
    // SAFETY: there are so many.
    unsafe { libc::poll(polled.as_mut_ptr(), PLACES as libc::nfds_t, 0) };
    polled.map(|it| it.revents as u16)
}

/// Whether a call would have a result that hangs on when the one that waits is awake: an edge comes twice, or once; a call that has some of
/// its bytes looks at O_NONBLOCK only when it is woken.
fn is_disturbed(op: Op, hands: &[Hand]) -> bool {
    let mut waiting = hands.iter().filter_map(|hand| hand.waits);
    match op {
        Op::Shutdown(..) => waiting.any(|it| matches!(it, Op::EpollWait(..))),
        Op::NonBlocking(..) => waiting
            .any(|it| matches!(it, Op::Recv(_, _, flags, _) if flags & libc::MSG_WAITALL != 0)),
        _ => false,
    }
}

/// Carries out a plan; a line for each call.
pub(crate) fn run(
    plan: &[Step],
    table: Table,
    (patience, settle): (Duration, Duration),
) -> Vec<String> {
    let before = open();
    let table = Arc::new(table);
    let mut hands: Vec<Hand> = (0..THREADS).map(|_| Hand::new(table.clone())).collect();
    let mut seen = Vec::new();
    for (mark, &(thread, op)) in plan.iter().enumerate() {
        let mut line = String::new();
        let free = (0..THREADS).map(|next| (thread + next) % THREADS);
        let who = match free.clone().find(|who| hands[*who].waits.is_none()) {
            Some(who) => who,
            None => {
                line += &format!(
                    "{thread} is interrupted: {}; ",
                    hands[thread].interrupt().text()
                );
                thread
            }
        };
        let mut waiting = hands.iter().filter_map(|hand| Waits::of(hand.waits?));
        let op = match Waits::of(op) {
            Some(waits) if waiting.any(|other| waits.competes_with(other)) => at_once(op),
            // Bytes and end come by another process, at once or one after the other.
            None if matches!(op, Op::Fork(Childs::Answers(_))) && waiting.next().is_some() => {
                Op::Fork(Childs::Nothing)
            }
            None if is_disturbed(op, &hands) => at_once(op),
            _ => op,
        };
        hands[who].order(op, mark as u8);
        let limit = if may_wait_for_ever(op) {
            patience
        } else {
            LONG
        };
        line += &match hands[who].answer(limit) {
            Some(answer) => format!("{who} {op:?} = {}", answer.text()),
            None => format!("{who} {op:?} waits"),
        };
        // What a first look lets in may have an answer.
        thread::sleep(settle);
        masks(&table);
        thread::sleep(settle / 2);
        for (other, hand) in hands
            .iter_mut()
            .enumerate()
            .filter(|(_, hand)| hand.waits.is_some())
        {
            if other != who
                && let Some(answer) = hand.answer(patience)
            {
                line += &format!("; {other} has {}", answer.text());
            }
        }
        line += &format!("; {:x?}", masks(&table));
        seen.push(line);
    }
    for (who, hand) in hands
        .iter_mut()
        .enumerate()
        .filter(|(_, hand)| hand.waits.is_some())
    {
        seen.push(format!("{who} is interrupted: {}", hand.interrupt().text()));
    }
    close_all();
    drop(table);
    drop(hands);
    seen.push(format!("left: {}", open() == before));
    seen
}
