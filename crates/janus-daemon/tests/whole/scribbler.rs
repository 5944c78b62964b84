//! A hostile member of another user, which writes all the while into everything that it can map, joins again whenever it is cut off, and claims what
//! it likes: the bytes of others stay right, and nothing of theirs is mapped by it.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use janus_seeds::Random;
use janus_shm::Descriptor;
use rustix::process::geteuid;

use crate::bare::{Bare, Echo, LOG2, PACKETS, claim};
use crate::churn::in_time;
use crate::world::{LONG, World};

/// Says to a process which daemon it is to harm.
const SCRIBBLES: &str = "DAEMON_TEST_SCRIBBLES";
const NOBODY: u32 = 65_534;
/// Of the hostile one, and for how long it goes on.
const PORT: u16 = 81;
const GOES_ON: Duration = Duration::from_secs(3);
/// Times that it is cut off meanwhile at least, and frames of its that are refused.
const AT_LEAST: u64 = 10;

/// Not a test by itself.
#[test]
fn a_member_that_scribbles() {
    let Ok(socket) = std::env::var(SCRIBBLES) else {
        return;
    };
    let (begin, mut random) = (Instant::now(), Random::new(1));
    while begin.elapsed() < 2 * LONG {
        let mut bare = Bare::new(socket.as_ref());
        bare.joins();
        bare.says(&claim(1, false, PORT), &[]);
        bare.says(&claim(2, true, PORT), &[]);
        Echo::new(&bare, PORT).fills(&bare);
        // Now its packets alone, of which it sends many at a time, and now its rings too.
        match random.below(4) {
            0 => scribbles_over_rings(&bare, &mut random),
            _ => scribbles_over_packets(&bare, &mut random),
        }
    }
}

/// Until it is cut off, which is soon.
fn scribbles_over_rings(bare: &Bare, random: &mut Random) {
    for _ in 0..1 << 14 {
        let at = random.below(bare.rings.len() / 4) as u64 * 4;
        let value = match random.below(3) {
            0 => random.bits() as u32,
            1 => random.below(1 << (LOG2 + 1)) as u32,
            _ => random.below(PACKETS) as u32,
        };
        let word = bare.rings.word(at).expect("it is within");
        word.store(value, Ordering::Relaxed);
        bare.bell.0.ring();
    }
}

/// Frames that look like its own and like another's, and change while they are looked at.
fn scribbles_over_packets(bare: &Bare, random: &mut Random) {
    let (mut tx, mut done) = (bare.ring(2), bare.end(3));
    let ours = |random: &mut Random| [[192, 0, 2, 1], [192, 0, 2, 2]][random.below(2)];
    for _ in 0..1 << 12 {
        let slot = random.below(PACKETS / 2_048) as u64 * 2_048;
        let mut frame = vec![0xff; 6];
        frame.extend(bare.mac());
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64]);
        frame.push([6, 17, 1][random.below(3)]);
        frame.extend([0, 0]);
        frame.extend(ours(random));
        frame.extend([192, 0, 2, 2]);
        let port = [PORT, 80, 82][random.below(3)];
        frame.extend(port.to_be_bytes());
        frame.extend((random.bits() as u16).to_be_bytes());
        frame.extend(std::iter::repeat_with(|| random.bits() as u8).take(40));
        bare.packets.write(slot, &frame).expect("it is within");
        let (offset, len, tag) = (slot, frame.len() as u32, random.bits() as u32);
        let _full = tx.put(Descriptor { offset, len, tag });
        if tx.publish() {
            bare.bell.0.ring();
        }
        let at = slot + 26 + random.below(12) as u64;
        let byte = [random.bits() as u8];
        bare.packets.write(at, &byte).expect("it is within");
        while let Ok(Some(_)) = done.take() {
            done.publish();
        }
    }
}

/// It, killed once the test ends.
struct Hostile(Child);

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Hostile {
    fn begin(world: &World) -> Hostile {
        // By this name also where that user may not see the file.
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "scribbler::a_member_that_scribbles"]);
        command.env(SCRIBBLES, &world.socket);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Hostile(command.spawn().expect("it runs"))
    }
}

/// Memory without a file that a process maps, by its numbers.
fn maps(process: u32) -> BTreeSet<String> {
    let text = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("it is there");
    let shared = text.lines().filter(|line| line.contains("/memfd:"));
    let number = |line: &str| line.split_whitespace().nth(4).map(str::to_owned);
    shared.filter_map(number).collect()
}

#[test]
fn one_that_scribbles_over_all_that_it_maps_harms_nobody() {
    let world = World::new("scribbler");
    let mut honest =
        [(80, "killed"), (82, "killed")].map(|(port, name)| (world.process(port), name, port));
    let stop = Arc::new(AtomicBool::new(false));
    let steady = (honest.each_ref()).map(|(_, name, port)| world.steady(*port, name, &stop));
    let hostile = Hostile::begin(&world);
    let counters = world.daemon_counters();
    let begin = Instant::now();
    let mut seen = BTreeSet::new();
    in_time("it is cut off and refused often enough", || {
        seen.append(&mut maps(hostile.0.id()));
        let often = counters.cut_off.get().min(counters.refused.get()) >= AT_LEAST;
        begin.elapsed() >= GOES_ON && often
    });
    let others: BTreeSet<String> = honest.iter().flat_map(|(it, ..)| maps(it.id())).collect();
    let (daemons, both) = (maps(std::process::id()), &seen & &others);
    assert!(!seen.is_empty() && !others.is_empty());
    assert!(both.is_empty(), "it maps what is another's: {both:?}");
    assert!(others.is_subset(&daemons), "the daemon maps theirs");
    stop.store(true, Ordering::Release);
    for steady in steady {
        let bytes = steady
            .recv_timeout(LONG)
            .expect("an end")
            .expect("no error");
        assert!(bytes > 0);
    }
    drop(hostile);
    for (process, ..) in &mut honest {
        process.kill().expect("it is ours");
        process.wait().expect("it ends");
    }
    in_time("all ends are heard", || counters.died.get() >= 2);
    world.ends();
}
