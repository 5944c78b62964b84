//! The two worlds in which a program runs: one whose only way out is a TAP device that Janus holds, and one that has the kernel's TCP only.
//! Each is a network namespace that belongs to the thread of its test and goes with it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::Signal;

use crate::library;
use crate::peers::LISTENER;
use crate::running::{self, Running};
use crate::support::privileged::{in_own_space, run, skip, tools};
use crate::upgrade::until_ended;

/// The address of the program under test.
pub const PROGRAM: &str = "192.0.2.1";
/// The address of its peers.
pub const PEER: &str = "192.0.2.2";
/// The program's device.
pub const DEVICE: &str = "janus0";
const ADDRESS: &str = "192.0.2.1/24";
const TAP: [(&str, &str); 2] = [("JANUS_BACKEND", "tap"), ("JANUS_TAP_NAME", DEVICE)];
/// Time between two looks at the kernel's tables.
const LOOK: Duration = Duration::from_millis(10);

/// Where the program's sockets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// Janus's: the library is preloaded.
    Preloaded,
    /// Janus's: `janus run` has started it.
    Run,
    /// Janus's: the library is preloaded, and a daemon has the device.
    Member,
    /// The kernel's.
    Kernel,
}

/// A place to run a program and its peers in.
pub struct World {
    pub sockets: Sockets,
    /// A directory for its files, gone with it.
    pub dir: PathBuf,
    /// Programs that were killed.
    killed: AtomicUsize,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl World {
    fn new(sockets: Sockets) -> World {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("janus-programs-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("a temporary directory");
        let killed = AtomicUsize::new(0);
        World {
            sockets,
            dir,
            killed,
        }
    }

    pub fn is_janus(&self) -> bool {
        self.sockets != Sockets::Kernel
    }

    /// Kills a program, and waits until it is gone.
    pub fn kill(&self, program: &Running) {
        self.killed.fetch_add(1, Ordering::Relaxed);
        program.signal(Signal::KILL);
        until_ended(program.pid());
    }

    /// Devices and addresses of this thread's namespace.
    fn lay_out(&self) {
        let lines = match self.is_janus() {
            true => [
                format!("ip tuntap add dev {DEVICE} mode tap"),
                format!("ip address add {PEER}/24 dev {DEVICE}"),
                format!("ip link set {DEVICE} up"),
            ],
            false => [
                format!("ip address add {PEER}/24 dev lo"),
                format!("ip address add {PROGRAM}/24 dev lo"),
                "ip link set lo up".into(),
            ],
        };
        for line in lines {
            run(&line).unwrap_or_else(|error| panic!("{error}"));
        }
        if self.is_janus() {
            // Who asks before the program has begun asks again soon.
            let file = format!("/proc/sys/net/ipv4/neigh/{DEVICE}/retrans_time_ms");
            fs::write(file, "50").expect("a setting of the namespace");
        }
    }

    /// The daemon that has the device, if one is to have it.
    fn daemon(&self) -> Option<Running> {
        (self.sockets == Sockets::Member).then(|| {
            let mut command = Command::new(library::janus());
            command.args(["daemon", "--socket", &self.path("io.sock")]);
            // As on the kernel's sockets.
            command.args(["--allow", "any:1024-65535"]);
            command.env("JANUS_TAP_KERNEL_ADDRESS", "none");
            command.envs(TAP.into_iter().chain([("JANUS_ADDRESS", ADDRESS)]));
            let mut daemon = Running::start(command, "janus daemon");
            daemon.says("programs may join");
            let everybody = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&self.dir, everybody).expect("it is ours");
            daemon
        })
    }

    /// A file in the world's directory.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.dir.join(name);
        fs::write(&path, content).expect("a temporary file");
        path.display().to_string()
    }

    /// A path in the world's directory.
    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// A script that stands beside these tests.
    pub fn script(&self, name: &str) -> String {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/scripts");
        tests.join(name).display().to_string()
    }

    /// The program under test: its words, of which none is split.
    pub fn command(&self, words: &[&str]) -> Command {
        let (name, arguments) = words.split_first().expect("a program");
        let mut command = match self.sockets {
            Sockets::Run => {
                let mut janus = Command::new(library::janus());
                janus.args(["run", "--", name]);
                janus.env("JANUS_PRELOAD_LIBRARY", library::library());
                janus
            }
            _ => Command::new(name),
        };
        command.args(arguments).current_dir(&self.dir);
        if self.is_janus() {
            for (key, value) in self.settings() {
                command.env(key, value);
            }
        }
        command
    }

    fn settings(&self) -> Vec<(&'static str, OsString)> {
        let mut settings: Vec<(&str, OsString)> = vec![("JANUS_PROGRAM_REPORT", "on".into())];
        if self.sockets == Sockets::Member {
            settings.push(("JANUS_BACKEND", "daemon".into()));
            settings.push(("JANUS_DAEMON_SOCKET", self.path("io.sock").into()));
        } else {
            settings.extend(TAP.map(|(key, value)| (key, value.into())));
            settings.push(("JANUS_ADDRESS", ADDRESS.into()));
        }
        if self.sockets != Sockets::Run {
            settings.push(("LD_PRELOAD", library::library().into()));
        }
        settings
    }

    /// Starts the program under test.
    pub fn start(&self, words: &[&str]) -> Running {
        Running::start(self.command(words), &words.join(" "))
    }

    /// Runs the program under test to its end.
    pub fn run(&self, words: &[&str]) -> running::Ended {
        self.start(words).end()
    }

    /// Starts a peer, which knows nothing of Janus.
    pub fn start_peer(&self, words: &[&str]) -> Running {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.dir);
        Running::start(command, &words.join(" "))
    }

    /// Runs a peer to its end.
    pub fn peer(&self, words: &[&str]) -> running::Ended {
        self.start_peer(words).end()
    }

    /// Runs a peer until it succeeds: the program that it asks may have just begun.
    pub fn peer_in_time(&self, words: &[&str]) -> running::Ended {
        for _ in 0..200 {
            let ended = self.peer(words);
            if ended.code == "0" {
                return ended;
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.peer(words)
    }
}

/// Looks all the while for connections and listeners of the kernel's that are not the peers'.
struct Watch {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Watch {
    /// Watches the namespace of the calling thread, which the new one is in too.
    fn start() -> Watch {
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let thread = thread::spawn(move || {
            let mut seen = Vec::new();
            while !told.load(Ordering::Relaxed) {
                seen.extend(foreign_rows());
                thread::sleep(LOOK);
            }
            seen
        });
        Watch {
            ends,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> Vec<String> {
        self.ends.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is there until now");
        thread.join().expect("the watch goes on to its end")
    }
}

/// Rows of the kernel's tables of TCP that are not a peer's.
fn foreign_rows() -> Vec<String> {
    let mut rows = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        let text = text.unwrap_or_default();
        let locals = text.lines().skip(1);
        rows.extend(
            locals
                .filter(|row| {
                    let local = row.split_whitespace().nth(1).unwrap_or_default();
                    !local.starts_with(LISTENER)
                })
                .map(str::to_owned),
        );
    }
    rows
}

/// Frames that the device has carried, to and from Janus.
fn carried() -> (u64, u64) {
    let table = fs::read_to_string("/proc/thread-self/net/dev").expect("the kernel's devices");
    let line = table
        .lines()
        .find(|line| line.trim_start().starts_with(DEVICE));
    let numbers: Vec<u64> = line
        .into_iter()
        .flat_map(|line| line.split_whitespace())
        .filter_map(|word| word.parse().ok())
        .collect();
    (numbers[9], numbers[1])
}

/// What a program and its peers said, as [`Ended`](running::Ended) or text, in an order that does not depend on who carries its bytes.
pub type Transcript = String;

/// Runs a scenario where the sockets are. `Err`: why it cannot run.
fn transcript(
    sockets: Sockets,
    scenario: fn(&World) -> Transcript,
) -> Result<(Transcript, Vec<String>), String> {
    in_own_space(move || {
        let world = World::new(sockets);
        run("ip -V")?;
        if !Path::new("/dev/net/tun").exists() {
            return Err("this machine has no /dev/net/tun".into());
        }
        world.lay_out();
        if !world.is_janus() {
            return Ok((scenario(&world), Vec::new()));
        }
        let watch = Watch::start();
        running::forget_reports();
        let daemon = world.daemon();
        let said = scenario(&world);
        if let Some(daemon) = daemon {
            let ended = daemon.terminated().well();
            let ends = format!(" {} died, 0 cut off", world.killed.load(Ordering::Relaxed));
            assert!(ended.out.contains(&ends), "{ended}");
        }
        let kernels = watch.end();
        assert!(
            kernels.is_empty(),
            "sockets of the kernel's that are no peer's: {kernels:#?}"
        );
        let (to_janus, from_janus) = carried();
        assert!(
            to_janus > 2 && from_janus > 2,
            "{to_janus} frames went to Janus, {from_janus} came"
        );
        Ok((said, running::reports()))
    })?
}

/// Runs a scenario that judges for itself. `Err`: why it cannot run.
pub fn in_world(sockets: Sockets, needs: &[&str], scenario: fn(&World)) -> Result<(), String> {
    tools(needs)?;
    in_own_space(move || {
        let world = World::new(sockets);
        run("ip -V")?;
        world.lay_out();
        let _daemon = world.daemon();
        scenario(&world);
        Ok(())
    })?
}

/// Runs a scenario preloaded, and by the kernel's TCP, and compares what was said. `needs`: lines that show whether a program is there.
pub fn compare(needs: &[&str], scenario: fn(&World) -> Transcript) {
    compare_by(Sockets::Preloaded, needs, scenario);
}

/// [`compare`], with the program started as `sockets` says.
pub fn compare_by(sockets: Sockets, needs: &[&str], scenario: fn(&World) -> Transcript) {
    if let Err(why) = tools(needs) {
        return skip(&why);
    }
    let (janus, reports) = match transcript(sockets, scenario) {
        Ok(run) => run,
        Err(why) => return skip(&why),
    };
    for report in &reports {
        eprintln!("{report}");
    }
    let mut ends = reports.iter().filter(|it| it.ends_with(" bytes out"));
    let carried = ends.any(|report| {
        let numbers: Vec<u64> = report
            .split([' ', ','])
            .filter_map(|word| word.parse().ok())
            .collect();
        matches!(numbers[..], [sockets, connections, received, sent]
            if sockets > 0 && connections > 0 && received + sent > 0)
    });
    assert!(
        carried,
        "no program said that Janus carried bytes: {reports:?}; it and its peers said: {janus}"
    );
    let (kernel, _) = transcript(Sockets::Kernel, scenario).expect("this could run a moment ago");
    assert_eq!(janus, kernel, "Janus left, the kernel right");
}
