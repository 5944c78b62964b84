//! DPDK's environment (EAL): started once in a process, with the arguments that were given and those that this machine
//! calls for. Says in words why it does not start. Knows no ports.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::sync::{Mutex, PoisonError};

use janus_dpdk_sys::{check, ffi, load};

use crate::backend::huge_pages::HugePages;

/// Arguments that decide on memory: where one is given, nothing is added.
const MEMORY: &[&str] = &[
    "--no-huge",
    "--in-memory",
    "--huge-dir",
    "--legacy-mem",
    "--single-file-segments",
];
/// Arguments that decide on cores.
const CORES: &[&str] = &["-l", "-c", "--lcores"];
/// Arguments that decide on devices of a bus.
const DEVICES: &[&str] = &["-a", "--allow", "-b", "--block", "--no-pci"];
/// Megabytes for DPDK's own needs without huge pages. The packet buffers are not among them: they are ours.
const MEGABYTES: &str = "128";

/// How the environment was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Eal {
    /// Arguments that EAL was started with.
    pub(super) arguments: Vec<String>,
    /// Arguments that the user gave.
    given: Vec<String>,
}

/// Facts of the machine that decide on the arguments, besides those that are given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// Huge pages that are free.
    pub(super) huge_pages: u64,
    /// A processor of ours.
    pub(super) processor: usize,
    /// The device, as configured.
    pub(super) device: &'a str,
}

enum State {
    Down,
    Up(Eal),
    /// It cannot be tried twice.
    Failed(String),
}

static STATE: Mutex<State> = Mutex::new(State::Down);

/// Starts the environment if it is not up. `given` are arguments of the user's, which go before ours.
pub(super) fn start(given: &[String], device: &str) -> io::Result<Eal> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*state {
        State::Up(eal) if given.is_empty() || *given == *eal.given => return Ok(eal.clone()),
        State::Up(eal) => {
            return Err(other(format!(
                "DPDK starts once in a process, and did with `{}`: give the same arguments again, or none",
                eal.given.join(" ")
            )));
        }
        State::Failed(why) => return Err(other(why.clone())),
        State::Down => {}
    }
    load().map_err(|error| io::Error::new(io::ErrorKind::NotFound, error.to_string()))?;
    let facts = Facts {
        huge_pages: HugePages::read().free,
        processor: some_processor(),
        device,
    };
    let arguments = arguments(given, facts)?;
    if let Err(error) = on_a_thread_of_its_own(&arguments) {
        let why = explain(&arguments, &error);
        *state = State::Failed(why.clone());
        return Err(other(why));
    }
    let eal = Eal {
        arguments,
        given: given.to_vec(),
    };
    *state = State::Up(eal.clone());
    Ok(eal)
}

impl Eal {
    /// Whether it does without huge pages.
    pub(super) fn without_huge_pages(&self) -> bool {
        self.arguments.iter().any(|word| word == "--no-huge")
    }
}

/// Whether a device is a virtual one, made by its name, and not one of a bus.
pub(super) fn is_virtual(device: &str) -> bool {
    !device.contains(':') || device.contains(',')
}

/// The whole command line.
pub(super) fn arguments(given: &[String], facts: Facts<'_>) -> io::Result<Vec<String>> {
    let has = |which: &[&str]| {
        given.iter().any(|word| {
            let option = word.split('=').next().unwrap_or(word);
            // Short options may have their value attached.
            which.iter().any(|name| {
                option == *name || (name.len() == 2 && word.starts_with(*name) && word.len() > 2)
            })
        })
    };
    let mut words = vec!["janus".to_owned()];
    words.extend(given.iter().cloned());
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    if !has(CORES) {
        // One is enough: the threads that poll are ours and are registered.
        add(&["-l", &facts.processor.to_string()]);
    }
    let physical = !is_virtual(facts.device);
    if !has(MEMORY) {
        if facts.huge_pages > 0 {
            add(&["--in-memory"]);
        } else if physical {
            return Err(other(format!(
                "no huge pages are free, and the device {} needs some: `sudo sysctl -w vm.nr_hugepages=512` reserves \
                 1 GiB",
                facts.device
            )));
        } else {
            add(&["--no-huge", "--no-shconf"]);
            if !has(&["-m"]) {
                add(&["-m", MEGABYTES]);
            }
        }
    }
    if !has(DEVICES) {
        match physical {
            true => add(&["-a", facts.device]),
            false => add(&["--no-pci"]),
        }
    }
    if !physical && !has(&["--iova-mode"]) {
        add(&["--iova-mode=va"]);
    }
    if !has(&["--no-telemetry", "--telemetry"]) {
        add(&["--no-telemetry"]);
    }
    if !has(&["--log-level"]) {
        add(&["--log-level=error"]);
    }
    Ok(words)
}

/// DPDK pins the thread that starts it and keeps it as its main one: not the caller's.
fn on_a_thread_of_its_own(arguments: &[String]) -> Result<(), String> {
    let words: Vec<CString> = arguments
        .iter()
        .map(|word| CString::new(word.as_str()).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    let run = move || {
        // DPDK's parser may move the pointers about and keep some: both live for ever.
        let pointers: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
        let pointers = pointers.leak();
        // SAFETY: as many zero-terminated strings as are counted, never freed.
        let answer = unsafe { ffi::jd_eal_init(pointers.len() as c_int, pointers.as_mut_ptr()) };
        check(answer).map(|_| ()).map_err(|error| error.to_string())
    };
    let thread = std::thread::Builder::new().name("janus-eal".into());
    let thread = thread.spawn(run).map_err(|error| error.to_string())?;
    thread
        .join()
        .unwrap_or_else(|_| Err("its thread panicked".into()))
}

fn explain(arguments: &[String], error: &str) -> String {
    format!(
        "DPDK does not start ({error}) with `{}`: its own words are on stderr; as root, `sudo sysctl -w vm.nr_hugepages=512` \
         gives it huge pages, and without them `--no-huge --no-shconf` does for virtual devices",
        arguments.join(" ")
    )
}

fn other(text: String) -> io::Error {
    io::Error::other(text)
}

/// A processor that this process may use.
fn some_processor() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None);
    allowed.map_or(0, |set| {
        (0..rustix::thread::CpuSet::MAX_CPU)
            .find(|cpu| set.is_set(*cpu))
            .unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(given: &str, huge_pages: u64, device: &str) -> String {
        let given: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
        let facts = Facts {
            huge_pages,
            processor: 3,
            device,
        };
        match arguments(&given, facts) {
            Ok(words) => words.join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_virtual_device_gets_huge_pages_or_does_without() {
        assert_eq!(
            words("", 8, "net_tap0,iface=t0"),
            "janus -l 3 --in-memory --no-pci --iova-mode=va --no-telemetry --log-level=error"
        );
        assert_eq!(
            words("", 0, "net_tap0,iface=t0"),
            "janus -l 3 --no-huge --no-shconf -m 128 --no-pci --iova-mode=va --no-telemetry --log-level=error"
        );
    }

    #[test]
    fn a_device_of_the_bus_is_allowed_alone_and_wants_huge_pages() {
        assert_eq!(
            words("", 8, "0000:03:00.0"),
            "janus -l 3 --in-memory -a 0000:03:00.0 --no-telemetry --log-level=error"
        );
        let refused = words("", 0, "0000:03:00.0");
        assert!(refused.contains("vm.nr_hugepages"), "{refused}");
    }

    #[test]
    fn what_is_given_goes_before_what_we_would_choose() {
        assert_eq!(
            words(
                "-l1 --no-huge -m 64 --log-level=8 --iova-mode=pa --telemetry -b 0:0",
                9,
                "net_ring0"
            ),
            "janus -l1 --no-huge -m 64 --log-level=8 --iova-mode=pa --telemetry -b 0:0"
        );
        assert_eq!(
            words("-m 64", 0, "net_ring0"),
            "janus -m 64 -l 3 --no-huge --no-shconf --no-pci --iova-mode=va --no-telemetry --log-level=error"
        );
    }
}
