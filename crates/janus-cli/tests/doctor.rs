//! `janus doctor` names steps; here they are carried out. Each test takes something away from a process (or, where that cannot be
//! done for one process, from the machine for a moment), sees the doctor miss it, does what it says, and asks again. Needs root;
//! without it a test says that it skips, unless `JANUS_PRIVILEGED=1` says that the machine must be able to.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A line of the report.
#[derive(Clone, Debug)]
struct Finding {
    good: bool,
    /// Commands in the step that would bring it.
    steps: Vec<String>,
}

/// The doctor, for everybody to run.
struct Doctor {
    program: PathBuf,
}

impl Doctor {
    /// A copy of the program that others than root can run, and that goes with the value.
    fn new(name: &str) -> Doctor {
        let place =
            std::env::temp_dir().join(format!("janus-doctor-{name}-{}", std::process::id()));
        std::fs::copy(env!("CARGO_BIN_EXE_janus"), &place).unwrap();
        Doctor { program: place }
    }

    /// What it says of `what` when `script` starts it, as `$J`.
    fn says(&self, script: &str, what: &str) -> Finding {
        let report = shell(&script.replace("$J", &format!("{} doctor", self.program.display())));
        let report = report.unwrap_or_else(|error| panic!("{script}: {error}"));
        let mut lines = report.lines();
        let found = lines.find_map(|line| {
            let (mark, rest) = line.split_at_checked(5)?;
            rest.starts_with(what).then(|| mark.trim() == "ok")
        });
        let good = found.unwrap_or_else(|| panic!("nothing of {what} in:\n{report}"));
        let remedy = lines
            .next()
            .filter(|line| line.trim_start().starts_with("->"));
        let steps = remedy.unwrap_or_default().split('`').skip(1).step_by(2);
        let program = self.program.display().to_string();
        let steps = steps.map(|step| step.replace("sudo ", "").replace("PROGRAM", &program));
        Finding {
            good,
            steps: steps.collect(),
        }
    }

    /// What is missing, and the step with this word in it.
    fn misses(&self, script: &str, what: &str, word: &str) -> String {
        let finding = self.says(script, what);
        assert!(!finding.good, "{what} is there");
        let step = finding.steps.iter().find(|step| step.contains(word));
        step.unwrap_or_else(|| panic!("no {word} in {finding:?}"))
            .clone()
    }

    fn finds(&self, script: &str, what: &str) {
        let finding = self.says(script, what);
        assert!(finding.good, "{what}: {finding:?}");
    }
}

impl Drop for Doctor {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}

fn shell(script: &str) -> Result<String, String> {
    let output = Command::new("sh").args(["-c", script]).output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn required() -> bool {
    std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1")
}

/// Whether this can be shown here, with these programs; says so where not.
fn can(programs: &str) -> bool {
    let missing = programs
        .split_whitespace()
        .find(|program| shell(&format!("command -v {program}")).is_err());
    let why = match missing {
        Some(program) => format!("{program} is not installed"),
        None if shell("test $(id -u) = 0").is_err() => "run as root".to_owned(),
        None => return true,
    };
    assert!(!required(), "{why}");
    skip(&why)
}

fn skip(why: &str) -> bool {
    // Not by `println!`: the test runner keeps what a passing test prints to itself.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    false
}

/// For what is the whole machine's: only where it is said that the machine is there for these tests.
fn may_change_the_machine() -> bool {
    required()
        || skip("would change a setting of the machine for a moment; JANUS_PRIVILEGED=1 lets it")
}

/// A setting of the machine that is put back.
struct Restored {
    file: &'static str,
    before: String,
}

impl Restored {
    fn new(file: &'static str) -> Restored {
        let text = std::fs::read_to_string(file).unwrap();
        // Of "always [madvise] never" the word in brackets.
        let chosen = text.split(['[', ']']).nth(1).unwrap_or(&text);
        Restored {
            file,
            before: chosen.trim().to_owned(),
        }
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        std::fs::write(self.file, &self.before).expect("it was so before");
    }
}

/// Somebody without any privilege.
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

#[test]
fn more_cores() {
    if !can("taskset") {
        return;
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip("this machine has one core");
        return;
    }
    let doctor = Doctor::new("cores");
    let step = doctor.misses("taskset -c 0 $J", "cores", "taskset");
    doctor.finds(&format!("taskset -c 0 {step} $J"), "cores");
}

#[test]
fn more_open_files() {
    if !can("prlimit") {
        return;
    }
    let doctor = Doctor::new("files");
    let few = "prlimit --nofile=256:";
    if shell("test $(ulimit -Hn) = unlimited || test $(ulimit -Hn) -ge 4096").is_err() {
        skip("the hard limit of open files is low");
        return;
    }
    let step = doctor.misses(&format!("{few} $J"), "open files", "ulimit");
    doctor.finds(&format!("{few} sh -c '{step} && $J'"), "open files");
}

#[test]
fn more_locked_memory() {
    if !can("prlimit setpriv") {
        return;
    }
    if let Err(why) = shell("prlimit --memlock=unlimited true") {
        skip(&format!("this root may not raise limits ({why})"));
        return;
    }
    let doctor = Doctor::new("locked");
    let little = "prlimit --memlock=65536:65536";
    let bare = "setpriv --bounding-set=-ipc_lock $J";
    let step = doctor.misses(&format!("{little} {bare}"), "locked memory", "ulimit");
    doctor.finds(
        &format!("{little} sh -c '{step} && {bare}'"),
        "locked memory",
    );
}

#[test]
fn the_tap_device_for_everybody() {
    if !can("unshare mount mknod setpriv") {
        return;
    }
    let doctor = Doctor::new("tun");
    // A /dev/net of its own, that only these processes see.
    let own = "unshare -m sh -c 'mount -t tmpfs none /dev/net && mknod /dev/net/tun c 10 200 && chmod 600 /dev/net/tun";
    let step = doctor.misses(&format!("{own} && {NOBODY} $J'"), "TAP device", "chmod");
    doctor.finds(&format!("{own} && {step} && {NOBODY} $J'"), "TAP device");
    let gone = doctor.says(
        "unshare -m sh -c 'mount -t tmpfs none /dev/net && $J'",
        "TAP device",
    );
    assert!(
        !gone.good && gone.steps.iter().any(|step| step == "modprobe tun"),
        "{gone:?}"
    );
}

#[test]
fn rights_for_interfaces_and_af_xdp() {
    if !can("setpriv setcap unshare ip") {
        return;
    }
    let nobody = format!("{NOBODY} $J");
    let doctor = Doctor::new("admin");
    let step = doctor.misses(&nobody, "CAP_NET_ADMIN", "setcap");
    shell(&step).unwrap();
    doctor.finds(&nobody, "CAP_NET_ADMIN");
    // The other way: an interface made once for a user.
    let bare = Doctor::new("made");
    let step = bare.misses(&nobody, "CAP_NET_ADMIN", "ip tuntap");
    let made = format!("USER=nobody; {step} && ip -brief link show jns0");
    assert!(
        shell(&format!("unshare -n sh -c '{made}'"))
            .unwrap()
            .contains("jns0")
    );
    let doctor = Doctor::new("xdp");
    if !doctor.says("$J", "AF_XDP").good {
        skip("no AF_XDP in this kernel, or not even for root");
        return;
    }
    let step = doctor.misses(&nobody, "AF_XDP", "setcap");
    shell(&step).unwrap();
    doctor.finds(&nobody, "AF_XDP");
    doctor.finds(&nobody, "locked memory");
}

#[test]
fn processor_time_without_a_quota() {
    if !can("sh") {
        return;
    }
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let (root, file, half) = match unified {
        true => ("/sys/fs/cgroup", "cpu.max", "50000 100000"),
        false => ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"),
    };
    let group = format!("{root}/janus-doctor-{}", std::process::id());
    let made = format!("mkdir {group} && echo {half} > {group}/{file}");
    if let Err(why) = shell(&made) {
        let _ = std::fs::remove_dir(&group);
        skip(&format!("no control group of its own: {why}"));
        return;
    }
    let doctor = Doctor::new("quota");
    let inside = format!("sh -c 'echo $$ > {group}/cgroup.procs && $J'");
    let asked = std::panic::catch_unwind(|| {
        let step = doctor.misses(&inside, "processor time", "tee");
        shell(&step).unwrap();
        doctor.finds(&inside, "processor time");
    });
    std::fs::remove_dir(&group).unwrap();
    asked.unwrap();
}

#[test]
fn huge_pages() {
    if !can("sysctl") || !may_change_the_machine() {
        return;
    }
    let doctor = Doctor::new("huge");
    if doctor.says("$J", "huge pages").good {
        skip("this machine has free huge pages already");
        return;
    }
    let _restored = Restored::new("/proc/sys/vm/nr_hugepages");
    let step = doctor.misses("$J", "huge pages", "sysctl");
    shell(&step).unwrap();
    doctor.finds("$J", "huge pages");
}

#[test]
fn transparent_huge_pages() {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    if !can("tee") || !may_change_the_machine() {
        return;
    }
    if !Path::new(FILE).exists() {
        skip("no transparent huge pages in this kernel");
        return;
    }
    let doctor = Doctor::new("thp");
    let _restored = Restored::new(FILE);
    std::fs::write(FILE, "never").unwrap();
    let step = doctor.misses("$J", "transparent huge pages", "tee");
    shell(&step).unwrap();
    doctor.finds("$J", "transparent huge pages");
}
