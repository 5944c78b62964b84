//! The line to the daemon: how it is dialed, what is asked and answered on it, and what becomes of the rings when it breaks. A thread listens.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus_shm::{Bell, Claim, Device, Link, Message, Network, Permit, Received, Share, Welcome};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

mod berth;

use super::addresses::Addresses;
use super::greeted::{Greeted, hello, hung_up};
use super::queue::Ends;
use super::{MemberCounters, SHARE, Wishes};
pub(super) use berth::Berth;

/// How long one answer may take.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a daemon that hangs is waited for at the end.
const FAREWELL: Duration = Duration::from_secs(1);
/// As many answers as a core may be about to give when its daemon ends: more than it has received and not looked at.
const UNSENT_MAX: u32 = 8192;
/// Ports that were given back and are remembered.
const RELEASED_MAX: usize = 64;
/// Pauses between attempts, at least and at most; in between a part of the time that it has taken so far, so that a daemon that comes soon is not waited for
/// much longer than that.
const REDIAL: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(200)];
const REDIAL_PART: u32 = 16;

/// The memory of all packets, as the daemon gets it.
pub(super) struct Packets {
    pub(super) memory: OwnedFd,
    pub(super) len: u64,
    /// It is the first daemon's. To another it is as good as the program's own.
    pub(super) lent: bool,
    /// Entries of each ring, as a power of two.
    pub(super) log2: u8,
}

/// Where a queue gets its rings. Behind while its count is not the one that the queue has seen.
#[derive(Default)]
struct Place {
    changes: AtomicU32,
    ends: Mutex<Option<Ends>>,
}

pub(super) struct Line {
    path: PathBuf,
    wishes: Wishes,
    packets: Packets,
    /// The first daemon's words. Another must have the same device.
    welcome: Welcome,
    addresses: Addresses,
    /// Of each core: its own end, and the daemon's, which this side keeps too, so that no daemon's end is heard on it.
    bells: Vec<(Bell, Bell)>,
    /// Ports of TCP and of UDP that are claimed, a bit for each.
    claimed: [Box<[AtomicU64]>; 2],
    places: Vec<Place>,
    state: Mutex<State>,
    changed: Condvar,
    /// Calls the thread that listens.
    calls: OwnedFd,
    counters: Arc<MemberCounters>,
}

struct State {
    /// `None`: there is no daemon.
    link: Option<Arc<Link>>,
    /// Which daemon that is.
    daemon: u32,
    last: u32,
    /// The answer to each question that somebody waits for.
    answers: BTreeMap<u32, Result<Given, Refusal>>,
    /// Claims that were granted, made again when there is another daemon.
    granted: Vec<Claim>,
    /// Ports of TCP that were given back last: connections may be there yet, which another daemon is told of.
    released: VecDeque<Claim>,
    /// Those of which this daemon has not heard yet.
    unheard: Vec<u32>,
    /// Ports that other programs have left to this one.
    permits: Vec<Permit>,
    /// Ports of TCP that are claimed among others than the group's, and among whom.
    groups: Vec<(u16, &'static str)>,
    /// Queues that are open.
    open: usize,
    listens: bool,
    listener: Option<JoinHandle<()>>,
    /// The thread is to end, although there are queues.
    rests: bool,
    /// Another member claims the ports soon after this one's end.
    succeeded: bool,
}

impl State {
    /// Connections may be there, of which the next daemon is told.
    fn is_released(&mut self, claim: Claim) {
        self.released.push_back(claim);
        if self.released.len() > RELEASED_MAX {
            self.released.pop_front();
        }
    }
}

/// A port that was granted, and the permit to leave it to others.
type Given = (u16, Option<Permit>);

pub(super) struct Refusal {
    pub(super) errno: i32,
    pub(super) why: String,
}

impl From<Refusal> for io::Error {
    fn from(it: Refusal) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(it.errno).kind(), it.why)
    }
}

impl Line {
    pub(super) fn dial(
        path: &Path,
        wishes: &Wishes,
        greeted: Greeted,
        packets: Packets,
        counters: Arc<MemberCounters>,
    ) -> io::Result<Arc<Line>> {
        let bells: io::Result<Vec<_>> = (0..wishes.queues).map(|_| Bell::pair()).collect();
        let bells = bells?;
        let agreed = greeted.agree(&packets, packets.lent, &bells);
        let ends = agreed.map_err(|error| hung_up(path, error))?;
        let Greeted {
            link,
            welcome,
            network,
            ..
        } = greeted;
        let place = |ends| Place {
            changes: AtomicU32::new(1),
            ends: Mutex::new(Some(ends)),
        };
        Ok(Arc::new(Line {
            path: path.to_owned(),
            wishes: wishes.clone(),
            packets,
            welcome,
            addresses: Addresses::new(network),
            bells,
            claimed: [(); 2].map(|()| (0..1024).map(|_| AtomicU64::new(0)).collect()),
            places: ends.into_iter().map(place).collect(),
            state: Mutex::new(State {
                link: Some(link),
                daemon: 1,
                last: 0,
                answers: BTreeMap::new(),
                granted: Vec::new(),
                released: VecDeque::new(),
                unheard: Vec::new(),
                permits: wishes.permit.clone().into_iter().collect(),
                groups: Vec::new(),
                open: 0,
                listens: false,
                listener: None,
                rests: false,
                succeeded: false,
            }),
            changed: Condvar::new(),
            calls: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            counters,
        }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Entries of each ring.
    pub(super) fn depth(&self) -> u32 {
        1 << self.packets.log2
    }

    /// Frames of each queue that wait for a daemon at most.
    fn unsent_max(&self) -> u32 {
        (self.wishes.buffers / (SHARE * self.wishes.queues as u32)).min(UNSENT_MAX)
    }

    pub(super) fn berth(self: &Arc<Line>, number: usize) -> Berth {
        self.lock().open += 1;
        Berth {
            line: self.clone(),
            number,
            seen: 0,
        }
    }

    /// Packets may come; somebody listens from now on.
    pub(super) fn begin(self: &Arc<Line>) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(link) = &state.link {
            let sent = link.send(&Message::Ready, &[]);
            sent.map_err(|error| hung_up(&self.path, error))?;
        }
        state.listener = Some(self.start()?);
        state.listens = true;
        Ok(())
    }

    fn start(self: &Arc<Line>) -> io::Result<JoinHandle<()>> {
        let line = self.clone();
        let thread = std::thread::Builder::new().name("janus-member".into());
        thread.stack_size(128 << 10).spawn(move || line.listen())
    }

    /// Ends the thread, until [`Line::goes_on`].
    pub(super) fn rests(&self) {
        let mut state = self.lock();
        state.rests = true;
        let listener = state.listener.take();
        drop(state);
        // It fails when the counter is full, and then it calls already.
        let _ = rustix::io::write(&self.calls, &1_u64.to_ne_bytes());
        if let Some(thread) = listener {
            // It has printed why, if it panicked.
            let _ = thread.join();
        }
        let _ = rustix::io::read(&self.calls, &mut [0; 8]);
    }

    pub(super) fn goes_on(self: &Arc<Line>) -> io::Result<()> {
        let mut state = self.lock();
        state.rests = false;
        state.listener = Some(self.start()?);
        Ok(())
    }

    /// This process has a member's memory and descriptors of another one, in whose place it is: the daemon is told before that one ends.
    pub(super) fn moves(&self) -> io::Result<()> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (mine, daemons) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        // Open for as long as the process is there.
        let _ = mine.into_raw_fd();
        let process = std::process::id();
        // Without one, the next is dialed by this process.
        let state = self.lock();
        let mut links = state.link.iter();
        links.try_for_each(|it| it.send(&Message::Moves { process }, &[daemons.as_fd()]))
    }

    pub(super) fn claim(&self, udp: bool, address: SocketAddr) -> io::Result<u16> {
        self.claim_as(Share::Join, udp, address)
    }

    /// Where the port can be shared, as `share` says.
    fn claim_as(&self, share: Share, udp: bool, address: SocketAddr) -> io::Result<u16> {
        let mut state = self.lock();
        state.last += 1;
        let permit = (state.permits.iter())
            .find(|it| !udp && it.port == address.port())
            .cloned();
        let other = state
            .groups
            .iter()
            .find(|(port, _)| *port == address.port());
        let group = other.map_or(&self.wishes.group[..], |(_, group)| group);
        let is_alone = udp || group.is_empty() && permit.is_none();
        let mut claim = Claim {
            number: state.last,
            udp,
            address,
            group: group.to_owned(),
            share: match is_alone {
                true => Share::Alone,
                false => share,
            },
            permit,
        };
        let until = Instant::now() + ANSWER_WITHIN;
        let mut asked = 0;
        loop {
            if let Some(answer) = state.answers.remove(&claim.number) {
                let (port, permit) = answer?;
                claim.address.set_port(port);
                claim.permit = permit;
                if claim.share == Share::Left {
                    state.is_released(claim);
                    return Ok(port);
                }
                self.bit(udp, port, |word, bit| word.fetch_or(bit, Ordering::Relaxed));
                state.released.retain(|it| !is_at(it, udp, port));
                state.granted.push(claim);
                return Ok(port);
            }
            if let Some(link) = state.link.as_ref().filter(|_| asked != state.daemon) {
                asked = match link.send(&Message::Claim(claim.clone()), &[]) {
                    Ok(()) => state.daemon,
                    Err(_) => asked,
                };
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("the daemon at {} does not answer", self.path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Listens at a port from now on only while no other member does, or as the others do.
    pub(super) fn reserve(&self, port: u16, reserve: bool) {
        let mut state = self.lock();
        let State { link, granted, .. } = &mut *state;
        if let Some(claim) = granted.iter_mut().find(|it| is_at(it, false, port))
            && claim.share != Share::Alone
        {
            claim.share = match reserve {
                true => Share::Reserve,
                false => Share::Join,
            };
            // Without a daemon the next one is told.
            let said = Message::Claim(claim.clone());
            let _ = link.as_ref().map(|link| link.send(&said, &[]));
        }
    }

    /// A port is left to this program.
    pub(super) fn may_have(&self, permit: Permit) {
        let permits = &mut self.lock().permits;
        permits.retain(|it| it.port != permit.port);
        permits.push(permit);
    }

    /// A port is claimed in this group from now on, in whatever group the program is; `None`: in that one.
    pub(super) fn is_shared_in(&self, port: u16, group: Option<&'static str>) {
        let groups = &mut self.lock().groups;
        groups.retain(|(it, _)| *it != port);
        groups.extend(group.map(|group| (port, group)));
    }

    /// The permit to a port of TCP, if others may have it too.
    pub(super) fn permit(&self, port: u16) -> Option<Permit> {
        let state = self.lock();
        let claim = state.granted.iter().find(|it| is_at(it, false, port))?;
        claim.permit.clone()
    }

    pub(super) fn release(&self, udp: bool, port: u16) {
        let mut state = self.lock();
        let had = state.granted.iter().position(|it| is_at(it, udp, port));
        let Some(claim) = had.map(|at| state.granted.swap_remove(at)) else {
            return;
        };
        let number = claim.number;
        self.bit(udp, port, |word, bit| {
            word.fetch_and(!bit, Ordering::Relaxed)
        });
        if let Some(link) = &state.link {
            // One that does not listen any more is gone soon.
            let _ = link.send(&Message::Release { number }, &[]);
        }
        if !udp {
            state.unheard.push(number);
            state.is_released(claim);
        }
    }

    /// This program is to have connections at a port as if it had listened there.
    pub(super) fn may_bring(&self, local: SocketAddr) -> io::Result<()> {
        let state = self.lock();
        let mut claims = state.granted.iter().chain(&state.released);
        let is_known = claims.any(|it| is_at(it, false, local.port()));
        let has_daemon = state.link.is_some();
        drop(state);
        match is_known {
            // Its answer would be waited for.
            _ if !has_daemon => Err(io::ErrorKind::WouldBlock.into()),
            true => Ok(()),
            false => self.claim_as(Share::Left, false, local).map(|_| ()),
        }
    }

    /// Says that a connection is here which another of the group had.
    pub(super) fn brings(&self, ends: (SocketAddr, SocketAddr)) {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        // Without a daemon there is nothing to be told: the next one asks where it is.
        if let Some(link) = &state.link
            && link.send(&Message::Has { number, ends }, &[]).is_ok()
        {
            state.unheard.push(number);
        }
    }

    pub(super) fn is_heard(&self) -> bool {
        self.lock().unheard.is_empty()
    }

    pub(super) fn is_succeeded(&self) {
        self.lock().succeeded = true;
    }

    fn bit(&self, udp: bool, port: u16, change: impl FnOnce(&AtomicU64, u64) -> u64) -> bool {
        let word = &self.claimed[usize::from(udp)][usize::from(port / 64)];
        let bit = 1 << (port % 64);
        change(word, bit) & bit != 0
    }

    /// Whether packets for this port are for this program.
    pub(super) fn has(&self, udp: bool, port: u16) -> bool {
        let (first, count) = self.welcome.ports;
        port.wrapping_sub(first) < count
            || self.bit(udp, port, |word, _| word.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: until the last queue is closed.
    fn listen(&self) {
        loop {
            let link = self.lock().link.clone();
            if let Some(link) = link {
                self.hear(&link);
                drop(link);
                if self.lock().rests || self.loses() {
                    return;
                }
            }
            if self.redial() {
                return;
            }
        }
    }

    /// Hears what one daemon says, until it is gone.
    fn hear(&self, link: &Link) {
        while wait([link.as_fd(), self.calls.as_fd()], None) && !self.lock().rests {
            match link.receive() {
                Ok(Received::Message(message, _)) => self.heard(message),
                Ok(Received::Nothing) => {}
                Ok(Received::End | Received::Strange(_)) | Err(_) => return,
            }
        }
    }

    fn heard(&self, message: Message) {
        let (number, answer) = match message {
            Message::Granted {
                number,
                port,
                permit,
            } => (number, Ok((port, permit))),
            Message::Refused { number, errno, why } => (number, Err(Refusal { errno, why })),
            Message::Network(network) => return self.addresses.learn(network),
            Message::Heard { number } => {
                return self.lock().unheard.retain(|it| *it != number);
            }
            // Nothing else is to be said by a daemon of this version.
            _ => return,
        };
        let mut state = self.lock();
        if let Some(had) = state.granted.iter().find(|it| it.number == number) {
            if let Err(refusal) = answer {
                let port = had.address.port();
                eprintln!(
                    "janus: the new daemon does not give port {port} back: {}",
                    refusal.why
                );
            }
            return;
        }
        if state.released.iter().any(|it| it.number == number) {
            return;
        }
        state.answers.insert(number, answer);
        self.changed.notify_all();
    }

    /// The daemon is gone. True: so is this member.
    fn loses(&self) -> bool {
        let mut state = self.lock();
        state.link = None;
        self.changed.notify_all();
        if state.open == 0 {
            return true;
        }
        drop(state);
        self.counters.daemons_lost.add_shared(1);
        eprintln!(
            "janus: the daemon at {} is gone; connections wait for another",
            self.path.display()
        );
        self.hand_out(Vec::new());
        false
    }

    /// Gives each queue its ends of other rings, or none.
    fn hand_out(&self, ends: Vec<Ends>) {
        let mut ends = ends.into_iter();
        for (place, (_, daemons)) in self.places.iter().zip(&self.bells) {
            let mut its = place.ends.lock().unwrap_or_else(PoisonError::into_inner);
            *its = ends.next();
            // With them, or who takes them would look for others once more.
            place.changes.fetch_add(1, Ordering::Release);
            drop(its);
            daemons.ring();
        }
    }

    /// Dials until there is a daemon. True: this member has ended.
    fn redial(&self) -> bool {
        let [least, most] = REDIAL;
        let (begin, mut said) = (Instant::now(), String::new());
        let hello = hello(&self.wishes, self.welcome.member, self.welcome.ports);
        loop {
            if matches!(
                *self.lock(),
                State { open: 0, .. } | State { rests: true, .. }
            ) {
                return true;
            }
            let resumed = Greeted::at(&self.path, &hello).and_then(|next| self.resume(next));
            match resumed.map_err(|error| hung_up(&self.path, error)) {
                Ok(()) => return false,
                // Once for each reason, and not for what is expected.
                Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                    let text = error.to_string();
                    if text != said && error.kind() != io::ErrorKind::NotFound {
                        eprintln!("janus: {text}");
                        said = text;
                    }
                }
                Err(_) => {}
            }
            std::thread::sleep((begin.elapsed() / REDIAL_PART).clamp(least, most));
        }
    }

    /// Another daemon is there: what this member has, it asks for again.
    fn resume(&self, next: Greeted) -> io::Result<()> {
        let ends = next.agree(&self.packets, false, &self.bells)?;
        let device = |it: &Welcome| (it.device, it.mtu, it.checksums, it.ports);
        if device(&next.welcome) != device(&self.welcome) {
            let text = "the new daemon has another device, or has given this program's ports away: restart the program";
            return Err(io::Error::other(text));
        }
        let (link, network) = (next.link, next.network);
        let mut state = self.lock();
        if state.open == 0 {
            // It has ended meanwhile, and is not to keep its ports.
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        for claim in &state.granted {
            link.send(&Message::Claim(claim.clone()), &[])?;
        }
        let mut unheard = Vec::new();
        for claim in &state.released {
            let (mut claim, number) = (claim.clone(), claim.number);
            if claim.share == Share::Alone {
                link.send(&Message::Claim(claim), &[])?;
                link.send(&Message::Release { number }, &[])?;
                unheard.push(number);
            } else {
                claim.share = Share::Left;
                link.send(&Message::Claim(claim), &[])?;
            }
        }
        state.unheard = unheard;
        link.send(&Message::Ready, &[])?;
        state.link = Some(link);
        state.daemon += 1;
        self.changed.notify_all();
        drop(state);
        if let Device::Portal(_) = self.welcome.device {
            // The kernel's connections ended with the daemon: ours are to end as those of an address that is gone.
            self.addresses.learn(Network::default());
        }
        self.addresses.learn(network);
        self.hand_out(ends);
        eprintln!("janus: there is a daemon at {} again", self.path.display());
        Ok(())
    }
}

fn is_at(claim: &Claim, udp: bool, port: u16) -> bool {
    claim.udp == udp && claim.address.port() == port
}

/// Waits until there is something to hear. False: not within that time.
pub(super) fn wait<const N: usize>(lines: [BorrowedFd<'_>; N], time: Option<Duration>) -> bool {
    let mut polled = lines.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN));
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    match poll(&mut polled, time.as_ref()) {
        Ok(ready) => ready > 0,
        Err(errno) => errno == Errno::INTR,
    }
}
