//! Resources that this machine offers to a packet engine: cores, huge pages, the TUN device, privileges; restrictions are in `limits`. It
//! looks and reports, and for what is missing names the step that would bring it; it changes nothing. `janus doctor` prints it.

mod limits;

use std::fmt;
use std::io;

use rustix::process::{Resource, getrlimit};

use crate::backend::huge_pages::HugePages;
use crate::backend::{tap, xdp};

/// The capability that TAP, AF_XDP and addresses need.
const CAP_NET_ADMIN: u32 = 12;
/// Locks memory beyond the limit.
const CAP_IPC_LOCK: u32 = 14;

/// One thing the machine has or has not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Subject of the finding.
    pub what: &'static str,
    /// How it stands, for people.
    pub state: String,
    /// Whether that is all one could wish for.
    pub good: bool,
    /// The step that would make it so.
    pub remedy: Option<String>,
}

/// The findings in the order of their weight.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Machine {
    /// Cores this process may run on.
    pub cores: usize,
    /// Bytes of huge pages that are free.
    pub huge_bytes_free: u64,
    /// Everything that was looked at.
    pub findings: Vec<Finding>,
}

impl Machine {
    /// Looks.
    #[must_use]
    pub fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let huge = HugePages::read();
        let capabilities = effective_capabilities(&read("/proc/self/status"));
        let device = std::fs::File::options()
            .read(true)
            .write(true)
            .open(tap::DEVICE)
            .map(drop);
        let transparent = chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")).to_owned();
        let files = getrlimit(Resource::Nofile);
        let findings = vec![
            find_cores(cores, &read("/sys/devices/system/cpu/online")),
            limits::find_isolated(&read("/sys/devices/system/cpu/isolated"), cores),
            limits::find_quota(limits::quota(&read("/proc/self/cgroup")), cores),
            find_huge_pages(huge),
            find_transparent(&transparent),
            find_locked(getrlimit(Resource::Memlock).current, capabilities),
            limits::find_files(files.current, files.maximum),
            find_tun(device),
            find_net_admin(capabilities),
            find_xdp(xdp::available()),
            find_dpdk(dpdk()),
        ];
        Self {
            cores,
            huge_bytes_free: huge.free * huge.size_kib * 1024,
            findings,
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .findings
            .iter()
            .map(|finding| finding.what.len())
            .max()
            .unwrap_or(0);
        for Finding {
            what,
            state,
            good,
            remedy,
        } in &self.findings
        {
            writeln!(
                f,
                "{} {what:width$}  {state}",
                if *good { "ok  " } else { "note" }
            )?;
            if let Some(remedy) = remedy {
                writeln!(f, "     {:width$}  -> {remedy}", "")?;
            }
        }
        Ok(())
    }
}

fn good(what: &'static str, state: String) -> Finding {
    Finding {
        what,
        state,
        good: true,
        remedy: None,
    }
}

fn missing(what: &'static str, state: String, remedy: String) -> Finding {
    Finding {
        what,
        state,
        good: false,
        remedy: Some(remedy),
    }
}

/// `online`: the cores of the machine, as the kernel writes them.
fn find_cores(cores: usize, online: &str) -> Finding {
    let what = "cores";
    match cores {
        1 => missing(
            what,
            "1: I/O and TCP take turns".into(),
            match online.trim() {
                "" | "0" => "the machine has no more: use combined placement".into(),
                all => format!(
                    "start it with `taskset -c {all}` (in a container, raise its set of CPUs), or use combined placement"
                ),
            },
        ),
        _ => good(what, format!("{cores} for this process")),
    }
}

fn find_huge_pages(huge: HugePages) -> Finding {
    let what = "huge pages";
    let HugePages {
        total,
        free,
        size_kib,
    } = huge;
    if size_kib == 0 {
        return missing(
            what,
            "this kernel has none".into(),
            "use a kernel with CONFIG_HUGETLBFS".into(),
        );
    }
    let state = format!("{free} of {total} free, {} MiB each", size_kib / 1024);
    if free > 0 {
        return good(what, state);
    }
    // A gigabyte: what a server with a few million connections begins with.
    let pages = (1024 * 1024 / size_kib).max(1);
    let wanted = total + pages;
    missing(
        what,
        state,
        format!(
            "`sudo sysctl -w vm.nr_hugepages={wanted}` reserves 1 GiB more until the next boot; \
             `echo vm.nr_hugepages={wanted} | sudo tee /etc/sysctl.d/90-janus.conf` from then on"
        ),
    )
}

fn find_transparent(mode: &str) -> Finding {
    let what = "transparent huge pages";
    match mode {
        "always" | "madvise" => good(what, mode.into()),
        "" => missing(
            what,
            "not in this kernel".into(),
            "reserve huge pages instead (above)".into(),
        ),
        _ => missing(
            what,
            mode.into(),
            "`echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`".into(),
        ),
    }
}

fn find_locked(limit: Option<u64>, capabilities: u64) -> Finding {
    let what = "locked memory";
    match limit {
        _ if has(capabilities, CAP_IPC_LOCK) => good(what, "no limit (CAP_IPC_LOCK)".into()),
        None => good(what, "no limit".into()),
        Some(bytes) => missing(
            what,
            format!(
                "at most {} KiB, too little for AF_XDP and DPDK",
                bytes / 1024
            ),
            format!(
                "as root `ulimit -l unlimited` in the shell that starts it; for a user {}",
                limits::for_good("memlock unlimited")
            ),
        ),
    }
}

fn find_tun(device: io::Result<()>) -> Finding {
    let what = "TAP device";
    let path = tap::DEVICE;
    match device {
        Ok(()) => good(what, format!("{path} can be opened")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing(
            what,
            format!("{path} is missing"),
            format!(
                "`sudo modprobe tun`; in a container pass the device in (`--device {path}`), \
                 or `sudo mkdir -p /dev/net && sudo mknod {path} c 10 200`"
            ),
        ),
        Err(error) => missing(
            what,
            format!("{path}: {error}"),
            format!("`sudo chmod 666 {path}`, or run as root"),
        ),
    }
}

fn find_net_admin(capabilities: u64) -> Finding {
    let what = "CAP_NET_ADMIN";
    if has(capabilities, CAP_NET_ADMIN) {
        return good(what, "held: interfaces can be made and set up".into());
    }
    missing(
        what,
        "not held: no new interfaces; the portal needs none".into(),
        "run as root, or `sudo setcap cap_net_admin+ep PROGRAM` (the built file, such as target/release/examples/hello), \
         or make the interface once: `sudo ip tuntap add dev jns0 mode tap user $USER multi_queue`, \
         `sudo ip address add 192.0.2.2/24 dev jns0`, `sudo ip link set jns0 up`, then start with \
         JANUS_BACKEND=tap JANUS_TAP_NAME=jns0 JANUS_TAP_KERNEL_ADDRESS=none"
            .into(),
    )
}

/// The DPDK that this program can use; an error is the step that would bring one.
#[cfg(feature = "_dpdk")]
fn dpdk() -> Result<&'static str, String> {
    janus_dpdk_sys::load().map_err(|error| error.to_string())?;
    Ok(janus_dpdk_sys::version())
}

/// The DPDK that this program can use; an error is the step that would bring one.
#[cfg(not(feature = "_dpdk"))]
fn dpdk() -> Result<&'static str, String> {
    Err(
        "`sudo apt install libdpdk-dev pkg-config`, then `cargo run --release -p janus-cli --features dpdk -- doctor`; \
         in a program of yours it is the feature `dpdk` of janus-rt"
            .into(),
    )
}

fn find_dpdk(found: Result<&str, String>) -> Finding {
    let what = "DPDK";
    match found {
        Ok(version) => good(what, version.into()),
        Err(remedy) => missing(what, "not in this program".into(), remedy),
    }
}

fn find_xdp(tried: io::Result<()>) -> Finding {
    let what = "AF_XDP";
    match tried {
        Ok(()) => good(what, "sockets and maps can be made".into()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => missing(
            what,
            "in this kernel, not permitted".into(),
            xdp::RIGHTS.into(),
        ),
        Err(error) => missing(
            what,
            format!("not in this kernel ({error})"),
            xdp::KERNEL.into(),
        ),
    }
}

fn has(capabilities: u64, which: u32) -> bool {
    capabilities >> which & 1 == 1
}

fn effective_capabilities(status: &str) -> u64 {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    hex.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

/// The word in brackets: `always [madvise] never`.
fn chosen(modes: &str) -> &str {
    modes
        .split('[')
        .nth(1)
        .and_then(|rest| rest.split(']').next())
        .unwrap_or("")
}

#[cfg(test)]
mod tests;
