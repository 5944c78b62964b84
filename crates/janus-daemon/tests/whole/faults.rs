//! A member's life in numbered steps, as a process that is killed or stopped after each of them while others are served.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write, stdin};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use janus_shm::{Device, Link, Message, Received, VERSION, Welcome};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::bare::{Bare, Echo, claim};
use crate::churn::{all_join, in_time};
use crate::world::{LONG, World, member_builder};

/// Says to a process which port it is to have, of which daemon.
const SCRIPT: &str = "DAEMON_TEST_SCRIPT";
/// From here on it counts as a member, has ports, asks for a datagram, gives its ports back, and is gone.
const READY: usize = 6;
const GRANTED: usize = 8;
const TAKES: usize = 10;
const RELEASES: usize = 13;
const LEAVES: usize = 14;
/// Ports of members that died are free then, and a machine that is busy may take longer to notice.
const FREE_WITHIN: Duration = Duration::from_secs(2 + 3);
const DAWDLES: Duration = Duration::from_millis(5_500);
const STAYING: [(u16, &str); 2] = [(80, "red"), (81, "green")];

/// Not a test by itself: the life, a step for each line that it is told.
#[test]
fn a_member_with_a_script() {
    let Ok(text) = std::env::var(SCRIPT) else {
        return;
    };
    let (socket, port) = text.split_once(' ').expect("a socket and a port");
    let port = port.parse().expect("a port");
    let mut lines = stdin().lines();
    let mut step = 0;
    let mut done = || {
        println!("\nstep {step}");
        step += 1;
        lines.next().expect("a line").expect("a pipe");
    };
    done();
    let mut bare = Bare::new(socket.as_ref());
    let mut echo = Echo::new(&bare, port);
    done();
    bare.says_hello();
    done();
    bare.hears_welcome();
    done();
    bare.gives_memory();
    done();
    bare.gives_rings();
    done();
    bare.says(&Message::Ready, &[]);
    done();
    bare.says(&claim(1, true, port), &[]);
    bare.says(&claim(2, false, port), &[]);
    done();
    bare.is_granted(1, port);
    bare.is_granted(2, port);
    done();
    echo.fills(&bare);
    done();
    let begin = Instant::now();
    let taken = loop {
        if let Some(taken) = echo.takes_own(&bare) {
            break taken;
        }
        assert!(begin.elapsed() < LONG, "nothing comes");
        std::thread::sleep(Duration::from_millis(1));
    };
    done();
    echo.sends_back(&bare, taken);
    done();
    in_time("it is sent", || echo.reaps(&bare) > 0);
    done();
    bare.says(&Message::Release { number: 2 }, &[]);
    done();
    bare.leaves();
    println!("\nstep {LEAVES}");
    lines.next();
}

/// A process that is led through its life. It is killed if its test ends before it does.
struct Life<'a> {
    world: &'a World,
    child: Child,
    says: BufReader<ChildStdout>,
    port: u16,
    text: String,
    step: usize,
    answer: Option<Receiver<std::io::Result<(String, u32)>>>,
}

impl<'a> Life<'a> {
    fn begin(world: &'a World, port: u16) -> Life<'a> {
        let this = std::env::current_exe().expect("a path");
        let mut command = Command::new(this);
        command.args(["--exact", "faults::a_member_with_a_script", "--nocapture"]);
        command.env(SCRIPT, format!("{} {port}", world.socket.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let says = BufReader::new(child.stdout.take().expect("a pipe"));
        let text = format!("{port} is asked");
        let (step, answer) = (0, None);
        let mut life = Life {
            world,
            child,
            says,
            port,
            text,
            step,
            answer,
        };
        assert!(life.has_done());
        life
    }

    /// Whether it has done its step, or has ended.
    fn has_done(&mut self) -> bool {
        let step = format!("step {}", self.step);
        self.says
            .by_ref()
            .lines()
            .any(|line| line.expect("text") == step)
    }

    /// Has it do its next steps up to this one. False: it has ended before.
    fn goes_to(&mut self, step: usize) -> bool {
        while self.step < step {
            self.step += 1;
            if self.step == TAKES {
                self.answer = Some(self.world.echoed(self.port, &self.text));
            }
            let mut to = self.child.stdin.as_ref().expect("a pipe");
            let told = to.write_all(b"\n");
            if told.is_err() || !self.has_done() {
                return false;
            }
        }
        true
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it was not waited for");
    }

    fn is_killed(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has ended");
    }

    /// Lives to the end, and has sent back what it was asked.
    fn ends_well(mut self) {
        assert!(self.goes_to(LEAVES), "port {}", self.port);
        let answer = self.answer.take().expect("it was asked").recv_timeout(LONG);
        let (text, _) = answer.expect("an end").expect("an answer");
        assert_eq!(text, self.text);
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it has ended").success());
    }
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Others are served while this happens, and everything is home in the end: how many were cut off.
fn beside_others(name: &str, happens: impl FnOnce(&World)) -> u64 {
    let world = World::new(name);
    let members = STAYING.map(|(port, name)| world.member(port, name));
    let stop = Arc::new(AtomicBool::new(false));
    let connections = STAYING.map(|(port, name)| world.steady(port, name, &stop));
    happens(&world);
    stop.store(true, Ordering::Release);
    for told in connections {
        let bytes = told.recv_timeout(LONG).expect("it lives");
        assert!(bytes.expect("it was not disturbed") > 0);
    }
    members.into_iter().for_each(crate::world::Member::ends);
    all_join(&world, 0);
    let counted = world.ends();
    let gone = counted.left.get() + counted.died.get();
    assert_eq!(counted.joined.get(), gone, "{counted}");
    counted.cut_off.get()
}

/// Lives up to each step, all at the same time.
fn at_each_step(world: &World, ports: u16) -> Vec<Life<'_>> {
    let mut lives: Vec<Life> = (0..=LEAVES as u16)
        .map(|step| Life::begin(world, ports + step))
        .collect();
    for (step, life) in lives.iter_mut().enumerate() {
        assert!(life.goes_to(step), "step {step}");
    }
    lives
}

#[test]
fn a_member_may_be_killed_at_each_step() {
    let cut_off = beside_others("killed", |world| {
        let mut lives = at_each_step(world, 5_000);
        let joined = world.counters().joined.get();
        assert_eq!(
            joined,
            (READY..=LEAVES).count() as u64 + STAYING.len() as u64
        );
        lives.iter_mut().for_each(Life::is_killed);
        let begin = Instant::now();
        in_time("deaths are noticed", || {
            world.counters().died.get() == (READY..LEAVES).count() as u64
        });
        for (step, life) in lives.iter().enumerate() {
            // A port that is kept: SYNs are dropped. All others are refused at once.
            let is_kept = (GRANTED - 1..RELEASES).contains(&step);
            if is_kept && step % 2 == 0 {
                let mut successor = Bare::new(&world.socket);
                successor.joins();
                successor.claims(1, false, life.port);
                successor.claims(2, true, life.port);
                successor.leaves();
            }
            let refused = || {
                let asked = world.asks_for(life.port, "", Duration::from_millis(200));
                let error = asked.expect_err("nobody is there");
                error.kind() == ErrorKind::ConnectionRefused
            };
            while !refused() {
                assert!(begin.elapsed() < FREE_WITHIN, "step {step}: kept for ever");
            }
        }
    });
    assert_eq!(cut_off, 0);
}

/// The daemon hears members one after another: the successor's place may come before that of the dead one, whose end it has not heard.
#[test]
fn a_successor_has_a_dead_members_port_at_once() {
    const PORT: u16 = 8_000;
    let joined = |world: &World| {
        let mut bare = Bare::new(&world.socket);
        bare.joins();
        bare
    };
    let cut_off = beside_others("successor", |world| {
        let mut pair = Some((joined(world), joined(world)));
        // Others, so that hearing takes its time.
        let others: Vec<Bare> = (0..60).map(|_| joined(world)).collect();
        for _ in 0..30 {
            let (place, dies) = pair
                .take()
                .unwrap_or_else(|| (joined(world), joined(world)));
            dies.claims(1, false, PORT);
            place.leaves();
            drop(dies);
            let mut successor = Bare::new(&world.socket);
            // In one breath.
            successor.says_hello();
            successor.gives_memory();
            successor.gives_rings();
            successor.says(&Message::Ready, &[]);
            successor.says(&claim(1, false, PORT), &[]);
            successor.hears_welcome();
            successor.is_granted(1, PORT);
            successor.leaves();
        }
        others.into_iter().for_each(Bare::leaves);
    });
    assert_eq!(cut_off, 0);
}

#[test]
fn a_member_may_be_stopped_at_each_step_and_goes_on() {
    let cut_off = beside_others("stopped", |world| {
        let lives = at_each_step(world, 6_000);
        // Those that are not back in time.
        let late = [1, 3, 5].map(|step| {
            let mut life = Life::begin(world, 7_000 + step as u16);
            assert!(life.goes_to(step));
            life
        });
        let begin = Instant::now();
        lives
            .iter()
            .chain(&late)
            .for_each(|life| life.signal(Signal::STOP));
        std::thread::sleep(Duration::from_secs(1));
        for life in lives {
            life.signal(Signal::CONT);
            life.ends_well();
        }
        std::thread::sleep(DAWDLES.saturating_sub(begin.elapsed()));
        in_time("who does not join is sent away", || {
            world.counters().cut_off.get() == late.len() as u64
        });
        for mut life in late {
            life.signal(Signal::CONT);
            assert!(!life.goes_to(LEAVES), "its line was hung up");
        }
    });
    assert_eq!(cut_off, 3);
}

/// A daemon that takes so many messages, the first of which it answers, and ends.
fn ends_after(door: &OwnedFd, messages: usize) {
    let accepts = || Link::new(accept_with(door, SocketFlags::CLOEXEC).expect("one who asks"));
    let (mut line, mut heard) = (accepts(), 0);
    while heard < messages {
        let message = match line.receive() {
            Ok(Received::Message(message, _)) => message,
            Ok(Received::End) | Err(_) => {
                // One that the daemon before had, and that has ended since it dialed.
                (line, heard) = (accepts(), 0);
                continue;
            }
            Ok(Received::Nothing | Received::Strange(_)) => {
                std::thread::yield_now();
                continue;
            }
        };
        heard += 1;
        if heard < messages && matches!(message, Message::Hello(_)) {
            let welcome = Message::Welcome(Welcome {
                version: VERSION,
                member: 1,
                device: Device::Ethernet([2, 0, 0, 0, 0, 1]),
                mtu: 1500,
                checksums: (false, false),
                ports: (32_768, 64),
                addresses: vec![([192, 0, 2, 1].into(), 24)],
                gateways: Vec::new(),
                loan: (0, 0),
            });
            // If it has ended, that is heard next.
            let _ = line.send(&welcome, &[]);
        }
    }
}

#[test]
fn a_program_is_told_of_a_daemon_that_ends_while_it_joins() {
    let folder = std::env::temp_dir().join(format!("janus-ends-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary directory");
    let path = folder.join("io.sock");
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let door = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&door, &SocketAddrUnix::new(&path).expect("a path")).expect("it is free");
    listen(&door, 1).expect("a socket");
    // None, hello, memory, rings, ready.
    for messages in 0..=4 {
        std::thread::scope(|scope| {
            let daemon = scope.spawn(|| ends_after(&door, messages));
            match member_builder(path.clone(), "").build() {
                Ok(runtime) => assert!(messages > 1, "{runtime:?} without a welcome"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("daemon at"), "after {messages}: {text}");
                }
            }
            daemon.join().expect("an end");
        });
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
