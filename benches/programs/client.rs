//! The clients, and what they say they did.

use std::fs;

use crate::server::{Program, Server, Work};
use crate::spaces::run;
use crate::{CONNECTIONS, Sample};

/// Ticks of the times that the kernel tells of a process, a second (USER_HZ).
const TICKS: f64 = 100.0;
/// Most requests of ab, which has a record of each.
const AB_MAX: u32 = 2_000_000;
/// Requests of redis-benchmark for each second that it is to take, by what it can do.
const REDIS_PER_S: u32 = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// The load in the process itself.
    Generator,
    Wrk,
    Ab,
    RedisBenchmark,
}

impl Client {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Client::Generator => "generator",
            Client::Wrk => "wrk",
            Client::Ab => "ab",
            Client::RedisBenchmark => "redis-benchmark",
        }
    }

    /// Clients with sockets that ask for this.
    pub(crate) fn of(program: Program) -> &'static [Client] {
        match program {
            Program::Nginx | Program::Lighttpd => &[Client::Wrk, Client::Ab],
            Program::Redis => &[Client::RedisBenchmark],
        }
    }

    /// Asks `server`, which is reached at `host`, for so long, from a namespace.
    pub(crate) fn measure(
        self,
        work: Work,
        server: &Server,
        place: &Place<'_>,
        seconds: u32,
    ) -> Result<Sample, String> {
        let (space, host) = (place.space, place.host);
        let at = format!("http://{host}:{}/", work.port);
        let line = match self {
            Client::Generator => return Err("the generator is no program".into()),
            Client::Wrk => format!("wrk -c {CONNECTIONS} -t 1 -d {seconds} {at}"),
            Client::Ab => {
                let keep = if work.closes() { "" } else { "-k" };
                format!("ab -q {keep} -c {CONNECTIONS} -t {seconds} -n {AB_MAX} {at}")
            }
            Client::RedisBenchmark => {
                let (name, count) = (work.name, seconds * REDIS_PER_S);
                let port = work.port;
                format!(
                    "redis-benchmark -h {host} -p {port} -t {name} -n {count} -c {CONNECTIONS} --csv"
                )
            }
        };
        let pin = if place.pinned { "taskset -c 1 " } else { "" };
        let before = (server.cpu(), of_children(), of_machine());
        let said = run(&format!("ip netns exec {space} {pin}{line}"))?;
        let server = server.cpu() - before.0;
        let both = server + of_children() - before.1;
        let machine = of_machine() - before.2;
        let (count, took) = match self {
            Client::Wrk => wrk(&said, seconds),
            Client::Ab => ab(&said),
            _ => redis(&said, seconds * REDIS_PER_S),
        }
        .ok_or(said)?;
        Ok(Sample {
            per_s: count / took,
            per_server_cpu: count / server,
            per_both_cpu: Some(count / both),
            per_machine_cpu: Some(count / machine),
        })
    }
}

/// From where a client asks, and where it finds the server.
pub(crate) struct Place<'a> {
    pub(crate) space: &'a str,
    pub(crate) host: &'a str,
    /// On the second processor only.
    pub(crate) pinned: bool,
}

/// Answers and seconds; nothing if one was wrong.
fn wrk(said: &str, seconds: u32) -> Option<(f64, f64)> {
    if said.contains("Socket errors") || said.contains("Non-2xx") {
        return None;
    }
    let mut lines = said.lines();
    let (count, _) = lines.find_map(|line| line.trim().split_once(" requests in"))?;
    Some((count.parse().ok()?, seconds.into()))
}

fn ab(said: &str) -> Option<(f64, f64)> {
    let number = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let wrong = number("Failed requests:")? > 0.0 || said.contains("Non-2xx");
    let answers = (
        number("Complete requests:")?,
        number("Time taken for tests:")?,
    );
    (!wrong).then_some(answers)
}

/// The second column is how many in a second.
fn redis(said: &str, count: u32) -> Option<(f64, f64)> {
    let line = said
        .lines()
        .find(|line| line.starts_with("\"SET") || line.starts_with("\"GET"))?;
    let per_s: f64 = line.split('"').nth(3)?.parse().ok()?;
    Some((count.into(), f64::from(count) / per_s))
}

/// Seconds of processor time of this process's children that have ended.
fn of_children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let times = stat.rsplit(')').next().unwrap_or_default();
    let ticks = times.split_whitespace().skip(13).take(2);
    let ticks = ticks.filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}

/// Seconds for which the machine's processors have not been idle.
fn of_machine() -> f64 {
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
