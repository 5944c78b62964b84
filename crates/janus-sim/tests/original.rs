//! Every script of this repository through the real packetdrill, with `janus-packetdrill` where it expects a
//! kernel: another reading of the same lines than the runner's. Needs packetdrill (`PACKETDRILL=/path/to/it`, or on the
//! PATH) and CAP_SYS_ADMIN for a network namespace. Where one is missing it says `skipped: …`; with PACKETDRILL or
//! JANUS_PRIVILEGED=1 it fails instead for want of what these promise. `JANUS_SCRIPT=part` as for the runner.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use janus_sim::script::Script;

mod own;

/// A comment with such a line says why packetdrill cannot run the script.
const RUNNER_ONLY: &str = "\n// Not for the original tool: ";
/// How long a script may take, in real time: some run for hours of their own.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tool, and what it loads; or why that cannot be.
fn tool() -> Result<(PathBuf, PathBuf), String> {
    let named = std::env::var_os("PACKETDRILL").map(PathBuf::from);
    let promised =
        named.is_some() && std::env::var_os("JANUS_PRIVILEGED").is_some_and(|v| v == "1");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut on_path = std::env::split_paths(&path).map(|folder| folder.join("packetdrill"));
    let tool = match named {
        Some(tool) if tool.is_file() => tool,
        Some(tool) => panic!("PACKETDRILL={}: no such file", tool.display()),
        None => on_path
            .find(|tool| tool.is_file())
            .ok_or("no packetdrill: say PACKETDRILL=/path/to/packetdrill")?,
    };
    let namespace = Command::new("unshare").args(["-n", "true"]).output();
    if !namespace.is_ok_and(|done| done.status.success()) {
        let why = "no network namespace of its own; run as root";
        assert!(!promised, "JANUS_PRIVILEGED=1, but {why}");
        return Err(why.into());
    }
    // Cargo puts the library beside this test, as it is a dependency.
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    let library = test.with_file_name("libjanus_packetdrill.so");
    assert!(library.is_file(), "{} was not built", library.display());
    Ok((tool, library))
}

/// Runs one script; what the tool says if it does not pass.
fn run(tool: &Path, library: &Path, path: &Path, flags: &str, family: &str) -> Result<(), String> {
    let mut child = Command::new("unshare")
        .arg("-n")
        .arg(tool)
        .arg(format!("--so_filename={}", library.display()))
        .arg(format!("--so_flags={flags}"))
        .arg(format!("--ip_version={family}"))
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let ended = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if begun.elapsed() > PATIENCE => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if ended.is_none() {
        // It may be gone in this very moment.
        let _ = child.kill();
    }
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        None => Err(format!(
            "{}: takes longer than {PATIENCE:?}",
            path.display()
        )),
    }
}

/// A script in one family: its flags, and whether it must pass.
struct Job {
    path: PathBuf,
    flags: String,
    family: &'static str,
    must_pass: bool,
}

/// The tool does not tell the library the MTU. What the script's own flags say of it comes last.
fn flags(script: &Script) -> String {
    format!("mtu={},{}", script.settings.mtu, script.settings.so_flags)
}

fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for path in own::all() {
        let text = std::fs::read_to_string(&path).expect("a readable script");
        let Ok(script) = Script::parse(&text) else {
            // The runner's test tells what is wrong with it.
            continue;
        };
        let family = match script.settings.local_ip.is_ipv6() {
            true => "ipv6",
            false => "ipv4",
        };
        let must_pass = !text.contains(RUNNER_ONLY);
        if let Some(moved) = own::over_v6(&path).filter(|_| must_pass) {
            jobs.push(Job {
                path: path.clone(),
                flags: flags(&moved),
                family: "ipv6",
                must_pass,
            });
        }
        // Sockets of AF_INET6 that reach IPv4; what their error queues hold is of IPv6.
        if family == "ipv4" && must_pass && !text.contains("SOL_IP,") {
            jobs.push(Job {
                path: path.clone(),
                flags: flags(&script),
                family: "ipv4-mapped-ipv6",
                must_pass,
            });
        }
        jobs.push(Job {
            path,
            flags: flags(&script),
            family,
            must_pass,
        });
    }
    jobs
}

#[test]
fn the_original_agrees() {
    let (tool, library) = match tool() {
        Ok(found) => found,
        Err(why) => {
            // Past the test harness's capture, so that it is seen.
            let _ = writeln!(std::io::stderr(), "skipped: {why}");
            return;
        }
    };
    let (jobs, next, failed) = (jobs(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run(&tool, &library, &job.path, &job.flags, job.family);
            let trouble = match outcome {
                Err(message) if job.must_pass => Some(message),
                Ok(()) if !job.must_pass => Some(format!(
                    "{}: passes, though it says it is for the runner only",
                    job.path.display()
                )),
                _ => None,
            };
            if let Some(trouble) = trouble {
                let trouble = format!("over {}: {}", job.family, trouble.trim_end());
                failed.lock().expect("nobody panicked").push(trouble);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().expect("nobody panicked");
    assert!(
        failed.is_empty(),
        "{} of {} runs failed:\n{}",
        failed.len(),
        jobs.len(),
        failed.join("\n")
    );
}
