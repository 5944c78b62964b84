//! An unmodified program on Janus and on the kernel's sockets: nginx, one process, over TAP by the preloaded library, and over veth by the
//! kernel, asked by wrk from the kernel's end in a namespace of the benchmark's own. `close`: a connection for each request.
//! `server_cpu` is the processor time of nginx, all its threads; `machine_cpu` that of the whole machine, wrk and interrupts with it: what
//! the kernel does for a packet counts for whoever runs at the moment, so that the server's own time is not the whole truth on either side.
//! Sides take turns; rows are medians of rounds. Needs root, `ip`, nginx and wrk; without them it says what is missing.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use support::Scale;
use support::report::Report;

const SERVER: &str = "192.0.2.1";
const CLIENT: &str = "192.0.2.2";
const PORT: u16 = 8080;
/// Here nginx closes after each answer.
const CLOSING_PORT: u16 = 8081;
const CONNECTIONS: &str = "50";
/// Ticks of the times that the kernel tells of a process, a second (USER_HZ).
const TICKS: f64 = 100.0;

/// Runs a line of words; its output.
fn run(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a program");
    let ended = Command::new(name).args(words).output();
    let ended = ended.map_err(|error| format!("{name}: {error}"))?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(format!(
            "{line}: {}",
            String::from_utf8_lossy(&ended.stderr).trim()
        )),
    }
}

/// Namespaces of the benchmark's own, which go with the value: `far` has wrk, and TAP; `near` has the kernel's server.
struct Spaces {
    far: String,
    near: String,
}

impl Spaces {
    fn new() -> Result<Spaces, String> {
        let id = std::process::id();
        let (far, near) = (format!("jb{id}"), format!("jc{id}"));
        let spaces = Spaces { far, near };
        run(&format!("ip netns add {}", spaces.far))?;
        run(&format!("ip netns add {}", spaces.near))?;
        Ok(spaces)
    }

    fn in_far(&self, line: &str) -> Result<String, String> {
        run(&format!("ip netns exec {} {line}", self.far))
    }

    fn in_near(&self, line: &str) -> Result<String, String> {
        run(&format!("ip netns exec {} {line}", self.near))
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for space in [&self.far, &self.near] {
            let _ = run(&format!("ip netns del {space}"));
        }
    }
}

/// nginx, which ends with the value.
struct Nginx(Child);

impl Nginx {
    fn start(space: &str, config: &Path, janus: Option<&Path>) -> Result<Nginx, String> {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", space, "nginx", "-c"])
            .arg(config);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(library) = janus {
            command
                .env("LD_PRELOAD", library)
                .env("JANUS_BACKEND", "tap");
            command
                .env("JANUS_TAP_NAME", "jt0")
                .env("JANUS_ADDRESS", format!("{SERVER}/24"));
            command.env("JANUS_TAP_KERNEL_ADDRESS", "none");
        }
        let child = command.spawn().map_err(|error| error.to_string())?;
        sleep(Duration::from_millis(700));
        Ok(Nginx(child))
    }

    /// Seconds of processor time.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        let times = stat.rsplit(')').next().unwrap_or_default();
        let ticks = times.split_whitespace().skip(11).take(2);
        ticks
            .filter_map(|ticks| ticks.parse::<f64>().ok())
            .sum::<f64>()
            / TICKS
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = run(&format!("kill -TERM {}", self.0.id()));
        let _ = self.0.wait();
    }
}

/// Seconds for which the machine's processors have not been idle.
fn machine_cpu() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = all
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    // All but idle, waiting for disks, and what the host took.
    let busy = ticks.iter().take(7).sum::<f64>()
        - ticks.get(3).unwrap_or(&0.0)
        - ticks.get(4).unwrap_or(&0.0);
    busy / TICKS
}

/// Figures of one side in one round.
struct Sample {
    per_s: f64,
    per_server_cpu: f64,
    per_machine_cpu: f64,
}

fn measure(spaces: &Spaces, nginx: &Nginx, close: bool, seconds: u64) -> Result<Sample, String> {
    let port = if close { CLOSING_PORT } else { PORT };
    let line = format!("wrk -c {CONNECTIONS} -t 1 -d {seconds} http://{SERVER}:{port}/");
    let before = (nginx.cpu(), machine_cpu());
    let said = spaces.in_far(&line)?;
    let (server, machine) = (nginx.cpu() - before.0, machine_cpu() - before.1);
    let count = said
        .lines()
        .find_map(|line| line.trim().split_once(" requests in"));
    let count: f64 = count
        .and_then(|(count, _)| count.parse().ok())
        .ok_or(said.clone())?;
    if said.contains("Socket errors") || said.contains("Non-2xx") {
        return Err(said);
    }
    Ok(Sample {
        per_s: count / seconds as f64,
        per_server_cpu: count / server,
        per_machine_cpu: count / machine,
    })
}

fn config(folder: &Path) -> Result<PathBuf, String> {
    let io = |error: std::io::Error| error.to_string();
    fs::create_dir_all(folder.join("html")).map_err(io)?;
    fs::write(folder.join("html/index.html"), "a page\n").map_err(io)?;
    let (folder, file) = (folder.display(), folder.join("nginx.conf"));
    let text = format!(
        "daemon off; master_process off; error_log {folder}/errors; pid {folder}/pid;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; sendfile on; keepalive_requests 1000000;\n\
         server {{ listen {PORT}; root {folder}/html; }}\n\
         server {{ listen {CLOSING_PORT}; keepalive_timeout 0; root {folder}/html; }} }}\n"
    );
    fs::write(&file, text).map_err(io)?;
    Ok(file)
}

/// The library, built as this benchmark is.
fn library() -> Result<PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or("cargo".into());
    run(&format!("{cargo} build --release -p janus-preload"))?;
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let built = target.with_file_name("release").join("libjanus_preload.so");
    match built.is_file() {
        true => Ok(built),
        false => Err(format!("{} is not there", built.display())),
    }
}

fn compare(report: &mut Report) -> Result<(), String> {
    for program in ["ip -V", "nginx -v", "wrk -v"] {
        // wrk says its version and fails.
        match run(program) {
            Err(why) if why.ends_with("(os error 2)") => return Err(why),
            _ => {}
        }
    }
    let library = library()?;
    let folder = std::env::temp_dir().join(format!("janus-programs-{}", std::process::id()));
    let config = config(&folder)?;
    let spaces = Spaces::new()?;
    let (rounds, seconds) = (Scale::get().pick(1, 3, 7), Scale::get().pick(1, 3, 5));
    let mut samples: Vec<(&str, bool, Sample)> = Vec::new();
    for _ in 0..rounds {
        let nginx = Nginx::start(&spaces.far, &config, Some(&library))?;
        spaces.in_far(&format!("ip addr add {CLIENT}/24 dev jt0"))?;
        spaces.in_far("ip link set jt0 up")?;
        for close in [false, true] {
            samples.push(("janus", close, measure(&spaces, &nginx, close, seconds)?));
        }
        drop(nginx);
        spaces.in_far(&format!(
            "ip link add v0 type veth peer name v1 netns {}",
            spaces.near
        ))?;
        spaces.in_far(&format!("ip addr add {CLIENT}/24 dev v0"))?;
        spaces.in_near(&format!("ip addr add {SERVER}/24 dev v1"))?;
        spaces.in_far("ip link set v0 up")?;
        spaces.in_near("ip link set v1 up")?;
        let nginx = Nginx::start(&spaces.near, &config, None)?;
        for close in [false, true] {
            samples.push(("kernel", close, measure(&spaces, &nginx, close, seconds)?));
        }
        drop(nginx);
        spaces.in_far("ip link del v0")?;
    }
    let _ = fs::remove_dir_all(&folder);
    type Figure = fn(&Sample) -> f64;
    let figures: [(&str, Figure); 3] = [
        ("requests_per_s", |it| it.per_s),
        ("requests_per_server_cpu_s", |it| it.per_server_cpu),
        ("requests_per_machine_cpu_s", |it| it.per_machine_cpu),
    ];
    for close in [false, true] {
        for side in ["janus", "kernel"] {
            let own = samples.iter().filter(|it| it.0 == side && it.1 == close);
            let own: Vec<&Sample> = own.map(|it| &it.2).collect();
            let way = if close { "close" } else { "keep" };
            let params = [
                ("program", "nginx".into()),
                ("on", side.into()),
                ("connections", way.into()),
            ];
            for (metric, figure) in figures {
                let all: Vec<f64> = own.iter().map(|it| figure(it)).collect();
                report.median(metric, &all, "1/s", &params);
            }
        }
    }
    Ok(())
}

fn main() {
    let mut report = Report::new("programs");
    if let Err(why) = compare(&mut report) {
        println!("skipped: {why}");
        return;
    }
    report.finish();
}
