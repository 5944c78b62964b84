//! Settings of `--option` lines. Every option of the original tool is either kept, ignored because it cannot matter
//! without a kernel (and listed as such), or refused.

use janus_posix::sysctl;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The settings of one script.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The stack's own address.
    pub local_ip: IpAddr,
    /// The address the script plays.
    pub remote_ip: IpAddr,
    /// Sockets are IPv6's, packets IPv4's.
    pub mapped: bool,
    /// The port `bind(.., ..., ...)` takes.
    pub bind_port: u16,
    /// The port `connect(.., ..., ...)` goes to.
    pub connect_port: u16,
    /// The MTU of the interface.
    pub mtu: u16,
    /// How far off the expected time an event may be, in microseconds.
    pub tolerance_micros: u64,
    /// Tolerance in percent of the time since the event before; the larger of the two counts. `None` is zero here,
    /// since time is virtual and nothing is late, and 12.5 in the original tool.
    pub tolerance_percent: Option<f64>,
    /// Length of a tick of the outbound timestamp clock; 0: TSval is not checked.
    pub timestamp_tick_micros: u64,
    /// An inbound TSecr that no outbound TSval of the script matches is scaled from the first one.
    pub timestamp_ecr_scaled: bool,
    /// An expected packet larger than the one sent is not put together from several.
    pub strict_segments: bool,
    /// Settings of the stack, as [`janus_posix::sysctl`] reads them.
    pub so_flags: String,
    /// `--define` symbols.
    pub defines: BTreeMap<String, String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            local_ip: Ipv4Addr::new(192, 168, 0, 1).into(),
            remote_ip: Ipv4Addr::new(192, 0, 2, 1).into(),
            mapped: false,
            bind_port: 8080,
            connect_port: 8080,
            mtu: 1500,
            tolerance_micros: 4_000,
            tolerance_percent: None,
            timestamp_tick_micros: 0,
            timestamp_ecr_scaled: false,
            strict_segments: false,
            so_flags: String::new(),
            defines: BTreeMap::new(),
        }
    }
}

fn parse<T: std::str::FromStr>(name: &str, value: Option<&str>) -> Result<T, String> {
    let value = value.ok_or_else(|| format!("`--{name}` needs a value: `--{name}=..`"))?;
    value
        .parse()
        .map_err(|_| format!("`--{name}={value}` is not a value it can take"))
}

impl Settings {
    /// The addresses of IPv6 that the original tool takes.
    fn over_v6(&mut self) {
        self.local_ip = Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 0).into();
        self.remote_ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into();
    }

    /// Returns these settings over IPv6, with segments of the same size: the MTU grows by the difference of the
    /// headers. `None` when the script is over IPv6 already or names addresses.
    pub fn moved_to_v6(&self) -> Option<Settings> {
        let ours = Settings::default();
        if self.mapped || (self.local_ip, self.remote_ip) != (ours.local_ip, ours.remote_ip) {
            return None;
        }
        let mut moved = self.clone();
        moved.over_v6();
        moved.mtu += 20;
        Some(moved)
    }

    /// Sets one option; the error says what to do.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        match name {
            "local_ip" => self.local_ip = parse(name, value)?,
            "remote_ip" => self.remote_ip = parse(name, value)?,
            "bind_port" => self.bind_port = parse(name, value)?,
            "connect_port" => self.connect_port = parse(name, value)?,
            "mtu" => self.mtu = parse(name, value)?,
            "tolerance_usecs" => self.tolerance_micros = parse(name, value)?,
            "tolerance_percent" => self.tolerance_percent = Some(parse(name, value)?),
            "tcp_ts_tick_usecs" => self.timestamp_tick_micros = parse(name, value)?,
            "tcp_ts_ecr_scaled" => self.timestamp_ecr_scaled = true,
            "strict_segments" => self.strict_segments = true,
            "so_flags" => {
                let flags: String = parse(name, value)?;
                sysctl::parse(&flags).map_err(|error| format!("`--so_flags`: {error}"))?;
                self.so_flags = flags;
            }
            "define" => {
                let definition: String = parse(name, value)?;
                let Some((symbol, value)) = definition.split_once('=') else {
                    return Err("`--define` reads `--define=SYMBOL=value`".into());
                };
                self.defines.insert(symbol.to_owned(), value.to_owned());
            }
            "ip_version" => match value {
                Some("ipv4") => {}
                Some("ipv6") => self.over_v6(),
                Some("ipv4-mapped-ipv6" | "ipv4_mapped_ipv6") => self.mapped = true,
                _ => {
                    return Err("`--ip_version` is `ipv4`, `ipv6` or `ipv4-mapped-ipv6`".into());
                }
            },
            // The other host and the link are the runner itself: nothing to set up.
            "gateway_ip" | "netmask_ip" | "speed" | "mss" | "verbose" | "debug"
            | "init_scripts" | "is_anyip" | "send_omit_free" | "code_command" | "code_format"
            | "code_sockopt" => {}
            "wire_client" | "wire_server" | "so_filename" | "non_fatal" | "dry_run" => {
                return Err(format!(
                    "`--{name}` is not an option of this runner, which has one stack and runs it"
                ));
            }
            _ => return Err(format!("`--{name}` is not an option of this runner")),
        }
        Ok(())
    }
}
