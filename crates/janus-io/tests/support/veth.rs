//! A pair of veth interfaces between two network namespaces made for a test, which end with its threads: the near one, where
//! the test's thread is, and the far one, whose kernel is the peer. No test lives here.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::io::Write;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};

/// The interface that our packets come to, and the one they come from.
pub const NEAR: &str = "xnear";
pub const FAR: &str = "xfar";
/// Addresses of the kernel at the near end, and at the far one.
pub const NEAR_KERNEL: &str = "192.0.2.1";
pub const NEAR_KERNEL_V6: &str = "2001:db8::1";
pub const FAR_KERNEL: &str = "192.0.2.9";
pub const FAR_KERNEL_V6: &str = "2001:db8::9";
/// Addresses that no kernel has.
pub const OURS: &str = "192.0.2.7";
pub const OURS_V6: &str = "2001:db8::7";

/// Programs that the tests call on at either end.
const PROGRAMS: [&str; 3] = ["ip", "ping", "ethtool"];

type Job = Box<dyn FnOnce() + Send>;

/// The pair, as seen from the near namespace.
pub struct Veth {
    jobs: Option<Sender<Job>>,
    far: Option<JoinHandle<()>>,
}

/// Runs `test` on a thread in a namespace of its own, with a pair of so many queues each. Says `skipped: …` where that
/// cannot be, and fails instead with JANUS_PRIVILEGED=1.
pub fn in_veth(queues: usize, test: impl FnOnce(&Veth) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        programs()?;
        own_namespace()?;
        let veth = Veth::new(queues)?;
        test(&veth);
        Ok(())
    });
    let result: Result<(), String> = match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    if let Err(why) = result {
        let required = std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1");
        assert!(!required, "JANUS_PRIVILEGED=1, but {why}");
        // Past the test harness's capture, so that it is seen.
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
    }
}

fn programs() -> Result<(), String> {
    let missing = |program: &&&str| Command::new(program).arg("-V").output().is_err();
    match PROGRAMS.iter().find(missing) {
        Some(program) => Err(format!("there is no `{program}`")),
        None => Ok(()),
    }
}

fn own_namespace() -> Result<(), String> {
    // SAFETY: a network namespace shares no memory or descriptors with anything, and this thread opened none.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|errno| format!("no network namespace of its own ({errno}); run as root"))
}

impl Veth {
    fn new(queues: usize) -> Result<Veth, String> {
        let (jobs, todo) = channel::<Job>();
        let (told, far_id) = channel();
        let far = std::thread::spawn(move || {
            let made = own_namespace().map(|()| gettid().as_raw_nonzero());
            told.send(made).expect("the test waits for it");
            todo.iter().for_each(|job| job());
        });
        let far_id = far_id.recv().expect("the far thread's word")?;
        let veth = Veth {
            jobs: Some(jobs),
            far: Some(far),
        };
        let many = format!("numtxqueues {queues} numrxqueues {queues}");
        ip(&format!(
            "link add {NEAR} {many} type veth peer name {FAR} {many}"
        ))?;
        ip(&format!("link set {FAR} netns {far_id}"))?;
        set_up(NEAR, NEAR_KERNEL, NEAR_KERNEL_V6)?;
        veth.far(|| set_up(FAR, FAR_KERNEL, FAR_KERNEL_V6))?;
        Ok(veth)
    }

    /// Does something in the far namespace. Sockets made there stay there.
    pub fn far<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let jobs = self.jobs.as_ref().expect("the far thread");
        let job = move || drop(done.send(job()));
        jobs.send(Box::new(job)).expect("the far thread");
        result.recv().expect("a job that does not panic")
    }

    /// A command in the far namespace.
    pub fn far_run(&self, command: &str) -> Result<String, String> {
        let command = command.to_owned();
        self.far(move || run(&command))
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(far) = self.far.take() {
            let _ = far.join();
        }
    }
}

fn set_up(name: &str, v4: &str, v6: &str) -> Result<(), String> {
    ip("link set lo up")?;
    ip(&format!("address add {v4}/24 dev {name}"))?;
    // Otherwise the kernel would first ask for a second whether somebody else has it.
    ip(&format!("-6 address add {v6}/64 dev {name} nodad"))?;
    ip(&format!("link set {name} up")).map(drop)
}

/// Whether an XDP program is on the near interface.
pub fn is_attached() -> bool {
    ip(&format!("link show {NEAR}"))
        .unwrap()
        .contains("prog/xdp")
}

pub fn ip(arguments: &str) -> Result<String, String> {
    run(&format!("ip {arguments}"))
}

/// Runs a command of words.
pub fn run(command: &str) -> Result<String, String> {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let output = Command::new(program)
        .args(words)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let told = String::from_utf8_lossy(&output.stdout);
    Err(format!("{command}: {} {}", said.trim(), told.trim()))
}
