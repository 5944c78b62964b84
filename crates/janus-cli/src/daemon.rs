//! `janus daemon`: one device for several programs.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use janus_daemon::{Daemon, Rule, Settings};

use crate::limit::Limited;

/// Where a daemon listens unless it is told otherwise.
pub(crate) const SOCKET: &str = "/run/janus/io.sock";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Socket at which programs ask to be taken in.
    #[arg(long, default_value = SOCKET)]
    socket: PathBuf,
    /// Ports for other users than root and the daemon's own: `www-data:80`, `any:1024-65535`. May be said several times.
    #[arg(long)]
    allow: Vec<Allow>,
    /// How much a user's programs may send, together: `www-data:bytes=100M/s,syns=1000/s`. `any` is each user without a limit of its own, by
    /// itself. Bursts are a tenth of a second's bytes and a second's SYNs, or `bytes-burst=4M`, `syns-burst=50`. May be said several times.
    #[arg(long)]
    limit: Vec<Limited>,
    /// Packet buffers of 2 KiB that programs of the daemon's own user may borrow, so that their packets are not copied. Over AF_XDP and DPDK
    /// all are memory that is there from the start, else as far as they are used.
    #[arg(long, default_value_t = 256 * 1024)]
    lend: u32,
    /// Seconds after which a program is cut off that takes none of the packets which it has been given, as it hangs or is stopped; `never`.
    #[arg(long, default_value = "120")]
    patience: Patience,
}

/// A time, as it is written.
#[derive(Clone, Debug)]
struct Patience(Option<Duration>);

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Patience, String> {
        match (text, text.parse::<u64>()) {
            ("never", _) => Ok(Patience(None)),
            (_, Ok(seconds @ 1..)) => Ok(Patience(Some(Duration::from_secs(seconds)))),
            _ => Err(format!(
                "`{text}` is neither a number of seconds nor `never`"
            )),
        }
    }
}

/// A rule, as it is written.
#[derive(Clone, Debug)]
struct Allow(Rule);

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Allow, String> {
        let hint = || format!("`{text}` is no rule such as `www-data:80` or `any:1024-65535`");
        let (user, ports) = text.rsplit_once(':').ok_or_else(hint)?;
        let user = match user {
            "any" => None,
            name => Some(number_of(name)?),
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text: &str| text.parse::<u16>().map_err(|_| hint());
        let ports: RangeInclusive<u16> = port(first)?..=port(last)?;
        match ports.is_empty() {
            true => Err(hint()),
            false => Ok(Allow(Rule { user, ports })),
        }
    }
}

/// A user's number.
pub(crate) fn number_of(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split(':').nth(1)?.parse().ok());
    number.ok_or_else(|| format!("there is no user `{name}` in /etc/passwd: give its number"))
}

pub(crate) fn run(args: Args) -> janus::Result<ExitCode> {
    let settings = Settings {
        socket: args.socket,
        allow: args.allow.into_iter().map(|Allow(rule)| rule).collect(),
        limits: (args.limit.into_iter())
            .map(|Limited(limit)| limit)
            .collect(),
        lends: args.lend,
        patience: args.patience.0,
        signals: true,
    };
    let daemon = Daemon::open(janus::Runtime::builder(), &settings)?;
    let counters = daemon.counters();
    println!("janus: programs may join at {}", settings.socket.display());
    daemon.run()?;
    println!("janus: {counters}");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_a_time_or_has_no_end() {
        let said = |text: &str| text.parse::<Patience>().map(|Patience(time)| time);
        assert_eq!(said("never"), Ok(None));
        assert_eq!(said("90"), Ok(Some(Duration::from_secs(90))));
        for wrong in ["0", "", "-1", "2m", "always"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rules_say_who_may_what() {
        let rule = |text: &str| {
            text.parse::<Allow>()
                .map(|Allow(rule)| (rule.user, rule.ports))
        };
        assert_eq!(rule("any:1024-65535"), Ok((None, 1_024..=65_535)));
        assert_eq!(rule("root:80"), Ok((Some(0), 80..=80)));
        assert_eq!(rule("1234:80"), Ok((Some(1_234), 80..=80)));
        for wrong in ["80", "root:", "root:9-8", "root:70000", "nobody at all:80"] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }
}
