//! `janus members`: what a daemon's file says of it and of the programs on its device, as a table or as JSON.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use janus_daemon::{MemberStatistics, Statistics};

use crate::daemon::SOCKET;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The daemon's socket. Its figures are in the file beside it: the same name, with `.stats`.
    #[arg(long, default_value = SOCKET)]
    socket: PathBuf,
    /// Print one object of JSON instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> janus::Result<ExitCode> {
    let path = Statistics::path_of(&args.socket);
    let statistics = Statistics::open(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            format!("{error}: no daemon is there; `--socket` says where one is")
        }
        ErrorKind::InvalidData => {
            format!("{error}: is the daemon of the same version as this command?")
        }
        _ => error.to_string(),
    })?;
    match args.json {
        true => crate::print(&Json(&statistics)),
        false => crate::print(&Table {
            statistics: &statistics,
            now: SystemTime::now(),
        }),
    }
}

/// For people.
struct Table<'a> {
    statistics: &'a Statistics,
    now: SystemTime,
}

const COLUMNS: [&str; 14] = [
    "NAME",
    "USER",
    "PROCESS",
    "CORES",
    "FOR",
    "PORTS",
    "IN FRAMES",
    "IN BYTES",
    "OUT FRAMES",
    "OUT BYTES",
    "NO BUFFER",
    "REFUSED",
    "OVER RATE",
    "BUFFERS",
];
/// Columns from there on are numbers, and end below each other.
const FIRST_NUMBER: usize = 6;

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.statistics;
        let lives = match all.is_running {
            true => "has run for",
            false => "HAS ENDED; these are its last figures. It began before",
        };
        writeln!(
            f,
            "janus daemon {} {lives} {}",
            all.process,
            self.past(all.since)
        )?;
        let rows: Vec<[String; 14]> = all.members.iter().map(|it| self.row(it)).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.fold(COLUMNS[column].len(), usize::max)
        };
        let widths: [usize; 14] = std::array::from_fn(width);
        for row in [COLUMNS.map(str::to_owned)].iter().chain(&rows) {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
                line += &match at < FIRST_NUMBER {
                    true => format!("{cell:<width$}  "),
                    false => format!("{cell:>width$}  "),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f, "{}", all.counters)
    }
}

impl Table<'_> {
    fn row(&self, it: &MemberStatistics) -> [String; 14] {
        [
            // The member has chosen it: nothing in it is for a terminal.
            it.name.escape_debug().to_string(),
            it.user.to_string(),
            match it.process {
                0 => "-".into(),
                process => process.to_string(),
            },
            it.cores.to_string(),
            self.past(it.since),
            ports(it),
            it.received.frames.to_string(),
            it.received.bytes.to_string(),
            it.sent.frames.to_string(),
            it.sent.bytes.to_string(),
            it.lost_no_buffer.to_string(),
            it.refused.to_string(),
            it.limited.to_string(),
            it.buffers.to_string(),
        ]
    }

    fn past(&self, since: SystemTime) -> String {
        let past = self.now.duration_since(since).unwrap_or(Duration::ZERO);
        let seconds = past.as_secs();
        let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
        let minutes = seconds / 60 % 60;
        match seconds {
            0..60 => format!("{seconds}s"),
            60..3_600 => format!("{minutes}m{}s", seconds % 60),
            3_600..86_400 => format!("{hours}h{minutes}m"),
            _ => format!("{days}d{hours}h"),
        }
    }
}

/// The ports that are shown by number, and how many more there are.
fn ports(it: &MemberStatistics) -> String {
    let tcp = it.tcp_ports.iter().map(u16::to_string);
    let udp = it.udp_ports.iter().map(|port| format!("{port}/udp"));
    let mut all: Vec<String> = tcp.chain(udp).collect();
    // A port at which several cores listen is claimed by each: then there may be none that is not shown.
    if it.ports > 16 {
        all.push("...".into());
    }
    match all.is_empty() {
        true => "-".into(),
        false => all.join(","),
    }
}

/// For programs.
struct Json<'a>(&'a Statistics);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0;
        let (running, process, since) = (all.is_running, all.process, millis(all.since));
        let counters = all.counters.all();
        let counters = counters.map(|(name, counter)| format!("\"{name}\":{}", counter.get()));
        let members: Vec<String> = all.members.iter().map(member).collect();
        writeln!(
            f,
            "{{\"running\":{running},\"process\":{process},\"since_ms\":{since},\"counters\":{{{}}},\"members\":[{}]}}",
            counters.join(","),
            members.join(",")
        )
    }
}

fn member(it: &MemberStatistics) -> String {
    let numbers = [
        ("identity", it.identity.into()),
        ("user", it.user.into()),
        ("process", it.process.into()),
        ("cores", it.cores.into()),
        ("since_ms", millis(it.since)),
        ("frames_in", it.received.frames),
        ("bytes_in", it.received.bytes),
        ("frames_out", it.sent.frames),
        ("bytes_out", it.sent.bytes),
        ("lost_no_buffer", it.lost_no_buffer),
        ("refused", it.refused),
        ("limited", it.limited),
        ("buffers", it.buffers),
        ("memory_bytes", it.memory),
        ("ports", it.ports),
    ];
    let numbers = numbers.map(|(name, value): (&str, u64)| format!("\"{name}\":{value}"));
    format!(
        "{{\"name\":{},{},\"tcp_ports\":{:?},\"udp_ports\":{:?}}}",
        quoted(&it.name),
        numbers.join(","),
        it.tcp_ports,
        it.udp_ports
    )
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |it| it.as_millis() as u64)
}

/// A string of JSON (RFC 8259, section 7).
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            // Also those that the standard allows and terminals obey.
            _ if char.is_control() => out += &format!("\\u{:04x}", u32::from(char)),
            _ => out.push(char),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_say_anything_else() {
        assert_eq!(
            quoted("a \"b\" \\ \u{1b}[2J\n é"),
            r#""a \"b\" \\ \u001b[2J\u000a é""#
        );
        assert_eq!("\u{1b}[2J".escape_debug().to_string(), "\\u{1b}[2J");
    }
}
