//! The place of a test: a network namespace of a thread's own, with a TAP device in it, its settings, and a capture of what
//! goes over the device as the kernel sees it. All of it goes with the thread.

use crate::bridge::Bridge;
use crate::exchange::Job;
use crate::support::privileged::run;
use crate::support::{Case, ONE_COMBINED};
use janus::{BackendChoice, Runtime};
use janus_io::faults::{FaultCounters, Faults, FaultyBackend};
use janus_io::tap::{Tap, TapCounters};
use janus_io::{Backend, Queue};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Our address, and the kernel's.
const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const KERNELS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const KERNELS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const PREFIX: u8 = 24;
const PREFIX_V6: u8 = 64;
/// Which family a connection is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// Our address, and the kernel's.
    pub(crate) fn addresses(self) -> (IpAddr, IpAddr) {
        match self {
            Family::V4 => (OURS.into(), KERNELS.into()),
            Family::V6 => (OURS_V6.into(), KERNELS_V6.into()),
        }
    }

    /// Length of the network's prefix.
    pub(crate) fn prefix(self) -> u8 {
        match self {
            Family::V4 => PREFIX,
            Family::V6 => PREFIX_V6,
        }
    }
}

/// The device; no other is in the namespace.
pub(crate) const DEVICE: &str = "jt0";
/// Up to so many bytes of traffic packets are captured whole, beyond that their headers.
const WHOLE_MAX: u64 = 40_000_000;
const HEADERS: u32 = 128;
/// What a whole packet may have. The kernel keeps room for that much for each packet that waits, whatever its length: without
/// a limit a busy machine soon has none left.
const LONGEST: u32 = 2_048;

/// Runs `test` on a thread that is alone in a fresh network namespace; it ends with the thread and what it started.
pub(crate) fn in_own(
    test: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let thread = std::thread::spawn(move || {
        // SAFETY: a network namespace shares no memory or descriptors with anything, and this thread opened none.
        if let Err(errno) = unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            return Err(format!(
                "no network namespace of its own ({errno}); run as root"
            ));
        }
        test()
    });
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A namespace with the tools there are.
pub(crate) struct Space;

impl Space {
    pub(crate) fn new(settings: &[(&str, &str)]) -> Result<Space, String> {
        for program in ["tcpdump", "tshark"] {
            run(&format!("{program} --version"))?;
        }
        run("ip -V")?;
        if !Path::new(janus_io::tap::DEVICE).exists() {
            return Err(format!("this machine has no {}", janus_io::tap::DEVICE));
        }
        for (name, value) in settings {
            let file = format!("/proc/sys/net/{name}");
            std::fs::write(&file, value).map_err(|error| format!("{file}: {error}"))?;
        }
        Ok(Space)
    }

    /// A runtime behind faults, the kernel at the other end of them.
    pub(crate) fn runtime(&self, faults: Faults) -> (Runtime, Arc<FaultCounters>) {
        // Without offloads, so that there are checksums and single segments to be judged.
        let tap = Tap::new(DEVICE)
            .with_kernel_address(KERNELS, PREFIX)
            .without_offloads();
        let backend = FaultyBackend::new(Box::new(tap), faults);
        let counters = backend.counters();
        (self.runtime_on(ONE_COMBINED, Box::new(backend)), counters)
    }

    /// The device's queue, with faults each way.
    pub(crate) fn queue(
        &self,
        sent: Faults,
        received: Faults,
    ) -> (Box<dyn Queue>, Arc<FaultCounters>) {
        let tap = Tap::new(DEVICE)
            .with_kernel_address(KERNELS, PREFIX)
            .without_offloads();
        let backend = FaultyBackend::new(Box::new(tap), sent).with_received(received);
        let counters = backend.counters();
        let queues = Box::new(backend).open(1).expect("a TAP device");
        add_address_v6();
        (queues.into_iter().next().expect("a queue"), counters)
    }

    /// A runtime whose segments cross joined.
    pub(crate) fn runtime_with_offloads(&self, case: Case) -> (Runtime, Arc<TapCounters>) {
        self.runtime_on_tap(case, true)
    }

    pub(crate) fn runtime_on_tap(&self, case: Case, offloads: bool) -> (Runtime, Arc<TapCounters>) {
        let mut tap = Tap::new(DEVICE).with_kernel_address(KERNELS, PREFIX);
        tap.offloads = offloads;
        let counters = tap.counters();
        (self.runtime_on(case, Box::new(tap)), counters)
    }

    /// The same with the kernel behind a cable and a bridge.
    pub(crate) fn bridged(
        &self,
        case: Case,
    ) -> Result<(Bridge, Runtime, Arc<TapCounters>), String> {
        const CABLE: &str = "peer";
        let tap = Tap::new(DEVICE);
        let counters = tap.counters();
        let (bridge, runtime) = Bridge::new(CABLE, move || build_on(case, Box::new(tap)))?;
        for command in [
            format!("address add {KERNELS}/{PREFIX} dev {CABLE}"),
            format!("-6 address add {KERNELS_V6}/{PREFIX_V6} dev {CABLE} nodad"),
            format!("link set {CABLE} up"),
        ] {
            run(&format!("ip {command}"))?;
        }
        Ok((bridge, runtime, counters))
    }

    fn runtime_on(&self, case: Case, backend: Box<dyn Backend>) -> Runtime {
        let runtime = build_on(case, backend);
        add_address_v6();
        runtime
    }

    pub(crate) fn advertise_mss(&self, family: Family, mss: u16) {
        let ours = family.addresses().0;
        let route = format!("ip route replace {ours} dev {DEVICE} advmss {mss}");
        run(&route).expect("a route");
    }

    /// Begins to capture.
    pub(crate) fn capture(&self, job: Job) -> Result<Capture, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let whole = job.to_janus + job.to_kernel <= WHOLE_MAX;
        let length = if whole { LONGEST } else { HEADERS };
        let index = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("janus-kernel-{}-{index}.pcap", std::process::id());
        let file = std::env::temp_dir().join(name);
        let mut child = Command::new("tcpdump")
            .args([
                "-i",
                DEVICE,
                "-n",
                "-Z",
                "root",
                "-B",
                "65536",
                "--immediate-mode",
            ])
            .args(["-s", &length.to_string(), "-w"])
            .arg(&file)
            .args(["tcp"])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("tcpdump: {error}"))?;
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        // The line that says it is listening, or why it is not.
        let heard = said.read_line(&mut line);
        assert!(
            heard.is_ok() && line.contains("listening"),
            "tcpdump: {line}"
        );
        Ok(Capture {
            child,
            said,
            file,
            whole,
        })
    }

    /// Segments whose checksum the kernel found wrong.
    pub(crate) fn checksum_errors(&self) -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let at = names.split(' ').position(|name| name == "InCsumErrors");
        let value = values.split(' ').nth(at.expect("the counter"));
        value.expect("its value").parse().expect("a number")
    }
}

fn add_address_v6() {
    // Without `nodad` the kernel would first ask for a second whether somebody else has it.
    let address = format!("ip -6 address add {KERNELS_V6}/{PREFIX_V6} dev {DEVICE} nodad");
    run(&address).expect("an IPv6 address");
}

fn build_on(case: Case, backend: Box<dyn Backend>) -> Runtime {
    case.builder()
        .backend(BackendChoice::Custom(backend))
        .address(format!("{OURS}/{PREFIX}").parse().unwrap())
        .address(format!("{OURS_V6}/{PREFIX_V6}").parse().unwrap())
        .build()
        .expect("a runtime on a TAP device")
}

/// A capture under way.
pub(crate) struct Capture {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    file: PathBuf,
    whole: bool,
}

/// A capture that is done.
pub(crate) struct Captured {
    pub(crate) file: PathBuf,
    /// Packets are there to their end.
    pub(crate) whole: bool,
}

impl Capture {
    pub(crate) fn stop(mut self) -> Captured {
        let pid = Pid::from_child(&self.child);
        self.catch_up(pid);
        kill_process(pid, Signal::INT).expect("tcpdump is still there");
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("its last words");
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "tcpdump: {rest}");
        Captured {
            file: self.file,
            whole: self.whole,
        }
    }

    /// What the kernel holds for tcpdump when it ends is lost, and on a busy machine that is much. So it is asked how far
    /// it is until it has all, or has written nothing more for a second.
    fn catch_up(&mut self, pid: Pid) {
        let (mut written, mut unchanged) = (None, 0);
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(100));
            kill_process(pid, Signal::USR1).expect("tcpdump is still there");
            let mut line = String::new();
            self.said.read_line(&mut line).expect("how far it is");
            // "tcpdump: 2 packets captured, 3 packets received by filter, 1 packets dropped by kernel"
            let numbers: Vec<u64> = line
                .split([' ', ','])
                .filter_map(|word| word.parse().ok())
                .collect();
            let has_all = matches!(numbers[..], [now, came, lost] if now + lost >= came);
            unchanged = match written == numbers.first().copied() {
                true => unchanged + 1,
                false => 0,
            };
            written = numbers.first().copied();
            if written.is_none() || unchanged >= 10 || has_all && unchanged >= 2 {
                return;
            }
        }
    }
}
