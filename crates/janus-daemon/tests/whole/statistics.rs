//! What a daemon's file shows of it and of its members: after traffic that is known, when a member goes, under the next daemon, and while the
//! daemon is stopped.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use janus::{BackendChoice, DaemonMemory};
use janus_daemon::{MemberStatistics, Statistics};
use janus_shm::{Hello, Message, Mode};
use rustix::process::{Pid, Signal, kill_process};

use crate::bare::{Bare, Echo, hello};
use crate::world::{LENDS, LONG, World, daemon, ends_of_a_wire};

/// Says to a process that it is a daemon, and its socket.
const DAEMON: &str = "DAEMON_TEST_DAEMON";

fn by_hand(shown: &Statistics) -> Option<&MemberStatistics> {
    shown.members.iter().find(|it| it.name == "by hand")
}

/// A segment of a connection that there is not, from this port.
pub(crate) fn segment(mac: [u8; 6], port: u16, flags: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![2; 6];
    frame.extend(mac);
    let total = (len - 14) as u16;
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    frame.resize(len, 0);
    frame
}

const RST: u8 = 4;

#[test]
fn a_members_figures_are_those_of_its_traffic() {
    let world = World::new("figures");
    let before = SystemTime::now() - Duration::from_secs(60);
    let mut bare = Bare::new(&world.socket);
    bare.joins();
    bare.claims(1, true, 53);
    bare.claims(2, false, 80);
    let mut echo = Echo::new(&bare, 53);
    let joined = world.shows(|it| by_hand(it).is_some_and(|it| it.ports == 2));
    let it = by_hand(&joined).unwrap();
    assert_eq!(
        (&it.tcp_ports[..], &it.udp_ports[..]),
        (&[80][..], &[53][..])
    );
    assert_eq!(it.process, std::process::id());
    assert_eq!(it.user, rustix::process::geteuid().as_raw());
    assert_eq!((it.cores, it.buffers), (1, 0));
    assert!(it.since > before && it.since <= SystemTime::now());
    assert_eq!(it.memory, bare.packets.len() as u64);
    // Without a buffer it waits: the client asks for the link address meanwhile, whose answer all are told.
    let asked = world.echoed(53, "53 late");
    let waits = world.shows(|it| it.counters.to_keeper.get() > 0);
    assert_eq!(by_hand(&waits).unwrap().received.frames, 0);
    echo.fills(&bare);
    // With buffers. What it takes it counts too.
    let begin = Instant::now();
    let (mut frames, mut bytes, mut sent) = (0, 0, (0, 0));
    let mut answered = None;
    while answered.is_none() || world.counters().to_members.get() > frames {
        while let Some((offset, frame)) = echo.takes(&bare) {
            (frames, bytes) = (frames + 1, bytes + frame.len() as u64);
            // Answers about link addresses are for others.
            if frame[12..14] == [8, 0] {
                sent = (sent.0 + 1, sent.1 + frame.len() as u64);
                echo.sends_back(&bare, (offset, frame));
            }
        }
        answered = answered.or_else(|| asked.try_recv().ok());
        assert!(begin.elapsed() < LONG, "no answer");
    }
    assert_eq!(answered.unwrap().unwrap().0, "53 late");
    let shown = world.shows(|it| by_hand(it).is_some_and(|it| it.sent.frames == sent.0));
    let it = by_hand(&shown).unwrap();
    assert_eq!((it.received.frames, it.received.bytes), (frames, bytes));
    assert_eq!((it.sent.frames, it.sent.bytes), sent);
    assert_eq!((it.refused, it.limited, it.lost_no_buffer), (0, 0, 0));
    // 32 were given, and each frame that came holds one.
    assert_eq!(it.buffers, 32 - frames);
    // All together it is what the daemon counts.
    let all_shown = |it: &Statistics| {
        let counted = world.counters().all().map(|(_, it)| it.get());
        it.counters.all().map(|(_, it)| it.get()) == counted
    };
    let shown = world.shows(all_shown);
    assert_eq!(shown.counters.to_members.get(), frames);
    bare.leaves();
    // Its row goes with it. The daemon's row is another, of another moment.
    let left = world.shows(|it| it.members.is_empty() && it.counters.left.get() == 1);
    assert_eq!(left.counters.to_members.get(), frames, "what it did stays");
    world.ends();
}

#[test]
fn what_comes_without_a_buffer_waits_as_far_as_there_is_room() {
    let world = World::new("waits");
    let mut bare = Bare::new(&world.socket);
    bare.joins();
    bare.claims(1, true, 53);
    let mut echo = Echo::new(&bare, 53);
    let stop = world.floods(53, "53 one of many");
    let full = world.shows(|it| it.counters.lost_no_buffer.get() > 0);
    assert_eq!(full.counters.to_members.get(), 0);
    stop.store(true, Ordering::Release);
    // Those that came first wait, and all are given.
    let room = ((world.buffers().capacity() - LENDS as usize) / 4).min(4_096);
    echo.fills(&bare);
    let mut taken = 0;
    let begin = Instant::now();
    while taken < room {
        if let Some((offset, _)) = echo.takes(&bare) {
            taken += 1;
            echo.gives_again(&bare, offset);
        }
        assert!(begin.elapsed() < LONG, "{taken} of {room}");
    }
    // One that ends with its buffers full leaves nothing behind.
    let stop = world.floods(53, "53 one of many");
    let lost = world.counters().lost_no_buffer.get();
    let before = full.counters.lost_no_buffer.get().max(lost);
    world.shows(|it| it.counters.lost_no_buffer.get() > before);
    stop.store(true, Ordering::Release);
    bare.dies();
    world.ends();
}

#[test]
fn members_that_take_nothing_leave_buffers_for_others() {
    let world = World::new("deaf");
    let honest = world.member_with(80, "honest", DaemonMemory::Isolated);
    // Others have borrowed what there is to lend.
    let borrowers: Vec<Bare> = (1..6)
        .map(|part| {
            let mut bare = Bare::new(&world.socket);
            let wants = Hello {
                mode: Mode::Shared,
                buffers: LENDS >> part,
                ..hello()
            };
            bare.says(&Message::Hello(wants), &[]);
            bare.hears_welcome();
            bare
        })
        .collect();
    assert!(world.counters().lent.get() > u64::from(LENDS) * 9 / 10);
    // As many as may wait for each of these are half of the others.
    let deaf = [53, 54, 55].map(|port| {
        let mut bare = Bare::new(&world.socket);
        bare.joins();
        bare.claims(1, true, port);
        (bare, world.floods(port, "one of many"))
    });
    world.shows(|it| it.counters.lost_no_buffer.get() > 0);
    for _ in 0..20 {
        assert_eq!(world.asks(80, "hello").unwrap(), "honest: hello");
    }
    for (bare, stop) in deaf {
        stop.store(true, Ordering::Release);
        bare.dies();
    }
    // Its line ends with each: what it was lent comes home.
    for bare in borrowers {
        bare.says(&Message::Leave { keeps: false }, &[]);
    }
    honest.ends();
    world.ends();
}

#[test]
fn what_a_member_may_not_send_is_its_own() {
    let world = World::new("blame");
    let honest = world.member(81, "honest");
    let mut bare = Bare::new(&world.socket);
    bare.joins();
    let mac = bare.mac();
    let own = bare.welcome.as_ref().unwrap().ports.0;
    let mut tx = bare.ring(2);
    bare.sends(&mut tx, &segment(mac, own, RST, 100));
    world.shows(|it| by_hand(it).is_some_and(|it| it.sent.bytes == 100));
    for at in 1..=3 {
        bare.sends(&mut tx, &segment(mac, 81, RST, 60));
        world.shows(|it| by_hand(it).is_some_and(|it| it.refused == at));
    }
    assert_eq!(world.asks(81, "hello").unwrap(), "honest: hello");
    let answered = |it: &MemberStatistics| it.name != "by hand" && it.sent.frames > 1;
    let shown = world.shows(|it| it.members.iter().any(answered));
    for it in &shown.members {
        let is_bare = it.name == "by hand";
        assert_eq!(it.refused, if is_bare { 3 } else { 0 });
        assert_eq!(it.sent.frames == 1, is_bare, "{it:?}");
    }
    drop(bare);
    world.shows(|it| it.members.len() == 1);
    honest.ends();
    world.ends();
}

#[test]
fn members_together_are_what_the_daemon_counts() {
    let world = World::new("together");
    let shared = world.member_with(80, "shared", DaemonMemory::Shared);
    let isolated = world.member_with(81, "isolated", DaemonMemory::Isolated);
    let big = "0123456789abcdef".repeat(20_000);
    for port in [80, 81] {
        assert!(world.asks(port, &big).unwrap().ends_with(&big));
    }
    assert_eq!(shared.asks(81, "hello").unwrap(), "isolated: hello");
    let shown = world.shows(|it| {
        let (all, counters) = (&it.members, &it.counters);
        let received: u64 = all.iter().map(|it| it.received.frames).sum();
        let sent: u64 = all.iter().map(|it| it.sent.frames).sum();
        received == counters.to_members.get()
            && sent == counters.from_members.get() + counters.inside.get()
            && counters.to_members.get() == world.counters().to_members.get()
    });
    for it in &shown.members {
        assert!(
            it.received.bytes > 320_000 && it.sent.bytes > 320_000,
            "{it:?}"
        );
        assert!(it.buffers > 0, "{it:?}");
    }
    assert!(shown.counters.uncopied.get() > 200, "{shown:?}");
    let own: Vec<bool> = shown.members.iter().map(|it| it.memory > 0).collect();
    assert_eq!(own, [false, true]);
    shared.ends();
    isolated.ends();
    world.ends();
}

#[test]
fn the_next_daemon_shows_its_own_figures() {
    let world = World::new("next");
    let member = world.member(80, "member");
    assert_eq!(world.asks(80, "hello").unwrap(), "member: hello");
    let one = |it: &Statistics| it.members.len() == 1 && it.counters.joined.get() == 1;
    let first = world.shows(one);
    let world = world.restart();
    let second = world.shows(one);
    assert!(second.since >= first.since && second.members[0].since >= second.since);
    assert_eq!(second.members[0].identity, first.members[0].identity);
    member.ends();
    world.ends();
}

/// Not a test by itself: the daemon of a process that is to be stopped.
#[test]
fn a_daemon_that_is_stopped() {
    if let Ok(socket) = std::env::var(DAEMON) {
        let (near, _far) = ends_of_a_wire();
        let daemon = daemon(socket.into(), &[], None, BackendChoice::wire(near));
        daemon.run().expect("it is killed");
    }
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stopped_daemon_can_be_read_and_a_killed_one_too() {
    let folder = format!("janus-daemon-{}-stopped", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    let socket: PathBuf = folder.join("io.sock");
    let path = Statistics::path_of(&socket);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "statistics::a_daemon_that_is_stopped"]);
    let command = command.env(DAEMON, &socket).stdout(Stdio::null());
    let mut process = Process(command.spawn().unwrap());
    let begin = Instant::now();
    while Statistics::open(&path).is_err() {
        assert!(begin.elapsed() < LONG, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut bare = Bare::new(&socket);
    bare.joins();
    bare.claims(1, false, 80);
    let has_joined = |it: &Statistics| by_hand(it).is_some_and(|it| it.tcp_ports == [80]);
    while !has_joined(&Statistics::open(&path).unwrap()) {
        assert!(begin.elapsed() < LONG, "it is not shown");
        std::thread::sleep(Duration::from_millis(1));
    }
    process.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", process.0.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
        assert!(begin.elapsed() < LONG, "it is not stopped");
    }
    for _ in 0..100 {
        let shown = Statistics::open(&path).unwrap();
        assert!(shown.is_running && has_joined(&shown));
        assert_eq!(shown.process, process.0.id());
    }
    process.signal(Signal::KILL);
    process.0.wait().unwrap();
    let shown = Statistics::open(&path).unwrap();
    assert!(!shown.is_running && has_joined(&shown), "its last figures");
    std::fs::remove_dir_all(folder).unwrap();
}
