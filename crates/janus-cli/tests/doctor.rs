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
    /// Settings that it names.
    settings: String,
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
        // By a process of its own: a file that this one has open for writing, and another test's child inherits for a moment,
        // cannot be run ("Text file busy").
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_janus"))
            .arg(&place)
            .status();
        assert!(copied.unwrap().success(), "a copy of the program");
        Doctor { program: place }
    }

    /// Returns the report's finding on `what` when `script` starts the program, as `$J`.
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
        let remedy = remedy.unwrap_or_default();
        let settings = remedy
            .split_whitespace()
            .filter(|word| word.starts_with("JANUS_"));
        let settings = settings.collect::<Vec<_>>().join(" ");
        let steps = remedy.split('`').skip(1).step_by(2);
        let program = self.program.display().to_string();
        let steps = steps.map(|step| step.replace("sudo ", "").replace("PROGRAM", &program));
        Finding {
            good,
            steps: steps.collect(),
            settings,
        }
    }

    /// Asserts that something is missing, with this word in the step that enables it.
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

/// The limits of a login are a file's: a copy of it, that only these processes see, and a user who logs in anew.
#[test]
fn limits_for_good() {
    const CONF: &str = "/etc/security/limits.conf";
    if !can("unshare mount su prlimit") {
        return;
    }
    let limited = shell("grep -q '^session.*pam_limits' /etc/pam.d/su");
    if limited.is_err() || !Path::new(CONF).exists() {
        skip("a login by `su` asks for no limits here");
        return;
    }
    if let Err(why) = shell("prlimit --memlock=unlimited --nofile=65536 true") {
        skip(&format!("this root may not raise limits ({why})"));
        return;
    }
    let doctor = Doctor::new("login");
    let copy = format!("{}.conf", doctor.program.display());
    std::fs::write(&copy, "").unwrap();
    let own = format!("mount --bind {copy} {CONF}");
    let login = "su -s /bin/sh nobody -c";
    let few = "prlimit --nofile=256:256 --memlock=65536:65536";
    for what in ["open files", "locked memory"] {
        std::fs::write(&copy, "").unwrap();
        let before = format!("{few} unshare -m sh -c '{own} && {login} \"$J\"'");
        let step = doctor.misses(&before, what, "limits.conf");
        let file = format!("{}.step", doctor.program.display());
        std::fs::write(&file, format!("USER=nobody\n{step}\n")).unwrap();
        let after = format!("{few} unshare -m sh -c '{own} && sh {file} >&2 && {login} \"$J\"'");
        let finding = doctor.says(&after, what);
        let _ = std::fs::remove_file(&file);
        assert!(finding.good, "{what}: {finding:?}");
    }
    let _ = std::fs::remove_file(&copy);
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
    let step = gone.steps.iter().find(|step| step.contains("mknod"));
    let made = format!("mount -t tmpfs none /dev/net && {}", step.unwrap());
    doctor.finds(&format!("unshare -m sh -c '{made} && $J'"), "TAP device");
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
    the_interface_made_once();
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

/// The other way: what is said to make the interface for a user is done, and he serves on it and is heard by the kernel.
fn the_interface_made_once() {
    if !can("ip mount mknod timeout") {
        return;
    }
    let doctor = Doctor::new("made");
    let finding = doctor.says(&format!("{NOBODY} $J"), "CAP_NET_ADMIN");
    let steps = finding.steps.iter().filter(|step| step.starts_with("ip "));
    let steps: Vec<&str> = steps.map(String::as_str).collect();
    assert_eq!(steps.len(), 3, "{finding:?}");
    let file = format!("{}.sh", doctor.program.display());
    // With a TAP device that everybody may open, whoever may open the machine's.
    let script = format!(
        "set -e
        mount -t tmpfs none /dev/net
        mknod -m 666 /dev/net/tun c 10 200
        ip link set lo up
        export USER=nobody
        {}
        {NOBODY} env {} {} serve --cores 1 --listen 0.0.0.0:80 > /dev/null 2> {file}.log &
        server=$!
        trap 'kill $server' EXIT
        for i in $(seq 300); do
            if exec 3<>/dev/tcp/192.0.2.1/80; then break; fi 2> /dev/null
            sleep 0.1
        done
        printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3
        cat <&3",
        steps.join("\n"),
        finding.settings,
        doctor.program.display(),
    );
    std::fs::write(&file, script).unwrap();
    let answer = shell(&format!("timeout 120 unshare -nm bash {file}"));
    let said = std::fs::read_to_string(format!("{file}.log")).unwrap_or_default();
    for name in [file.clone(), format!("{file}.log")] {
        let _ = std::fs::remove_file(name);
    }
    let answer = answer.unwrap_or_else(|error| panic!("{error}\n{said}"));
    assert!(answer.contains("Hello from Janus"), "{answer}\n{said}");
}

/// The kernel's command line is changed as said; what the kernel makes of it needs a boot, so the file that it would then show is put in
/// its place.
#[test]
fn isolated_cores() {
    if !can("unshare mount sed") {
        return;
    }
    const SHOWN: &str = "/sys/devices/system/cpu/isolated";
    let doctor = Doctor::new("isolated");
    if !Path::new(SHOWN).exists() || doctor.says("$J", "isolated cores").good {
        skip("cores are isolated already, or this kernel does not say");
        return;
    }
    let step = doctor.misses("$J", "isolated cores", "isolcpus");
    let place = doctor.program.display().to_string();
    let (grub, line, shown, file) = (
        format!("{place}.grub"),
        format!("{place}.line"),
        format!("{place}.shown"),
        format!("{place}.step"),
    );
    std::fs::write(&grub, "GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX=\"quiet\"\n").unwrap();
    // `update-grub` reads the file as a shell does, and so does this one.
    let script = format!(
        "set -e
        mount -t tmpfs none /etc/default
        cp {grub} /etc/default/grub
        update-grub() {{ . /etc/default/grub; echo \"$GRUB_CMDLINE_LINUX\" > {line}; }}
        {step}"
    );
    std::fs::write(&file, script).unwrap();
    shell(&format!("unshare -m bash {file}")).unwrap();
    let told = std::fs::read_to_string(&line).unwrap();
    let isolated = told
        .split_whitespace()
        .find_map(|word| word.strip_prefix("isolcpus="));
    let isolated = isolated.unwrap_or_else(|| panic!("{told}"));
    assert!(
        told.contains("quiet") && told.contains(&format!("nohz_full={isolated}")),
        "{told}"
    );
    std::fs::write(&shown, format!("{isolated}\n")).unwrap();
    let booted = format!("unshare -m sh -c 'mount --bind {shown} {SHOWN} && $J'");
    doctor.finds(&booted, "isolated cores");
    for name in [grub, line, shown, file] {
        let _ = std::fs::remove_file(name);
    }
}

/// The packages are ones that the distribution has; with them, and the feature that the step names, DPDK is found.
#[test]
fn dpdk() {
    if !can("apt-get") {
        return;
    }
    let doctor = Doctor::new("dpdk");
    if cfg!(any(feature = "dpdk", feature = "dpdk-dlopen")) {
        doctor.finds("$J", "DPDK");
        return;
    }
    let step = doctor.misses("$J", "DPDK", "apt install");
    let packages = step.strip_prefix("apt install ").unwrap();
    // Only as if: what would be installed is found or not.
    if let Err(why) = shell(&format!("apt-get --simulate install {packages}")) {
        skip(&format!("no lists of packages here ({why})"));
    }
    let finding = doctor.says("$J", "DPDK");
    let built = finding
        .steps
        .iter()
        .find(|step| step.starts_with("cargo run"));
    assert!(
        built.unwrap().contains("-p janus-cli --features dpdk "),
        "{finding:?}"
    );
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
    if !can("sysctl unshare mount") || !may_change_the_machine() {
        return;
    }
    let doctor = Doctor::new("huge");
    if doctor.says("$J", "huge pages").good {
        skip("this machine has free huge pages already");
        return;
    }
    let restored = Restored::new("/proc/sys/vm/nr_hugepages");
    let step = doctor.misses("$J", "huge pages", "sysctl -w");
    // And the one for later boots, in a folder of its own, read as it is at a boot.
    let later = doctor.misses("$J", "huge pages", "sysctl.d");
    shell(&step).unwrap();
    doctor.finds("$J", "huge pages");
    drop(restored);
    let _restored = Restored::new("/proc/sys/vm/nr_hugepages");
    let boot =
        format!("mount -t tmpfs none /etc/sysctl.d && {later} && sysctl -p /etc/sysctl.d/*.conf");
    shell(&format!("unshare -m sh -c '{boot}'")).unwrap();
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

/// A reader such as `head` ends early: the rest of the report is lost.
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    for command in ["doctor", "config"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut janus = Command::new(env!("CARGO_BIN_EXE_janus"));
        let output = janus.arg(command).stdout(writer).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {complaint}");
        assert!(complaint.is_empty(), "{command}: {complaint}");
    }
}
