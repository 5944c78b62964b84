//! A stack's settings under the names that Linux gives them: `tcp_sack=0,tcp_rmem=4096 131072 6291456`. Scripts, the
//! script runner and the C interface say with these what they need, and the same line can be applied to a kernel.
//! Every name is kept, accepted because it cannot matter here, or refused; none is silently half kept.

use janus_tcp::{Config, CongestionControl, Ecn, SocketOptions, SynCookies};
use std::net::IpAddr;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The smallest MTU that both families can do anything with (RFC 791's 68 octets carry no whole TCP header).
const MTU_MIN: u16 = 88;
/// The window offered at first, however large the buffer: Linux lets it grow from there (tcp_select_initial_window).
const FIRST_WINDOW_MAX: u32 = 64 << 10;
/// Number of retries that `tcp_orphan_retries=0` stands for.
const ORPHAN_RETRIES: u8 = 8;

/// Names whose values change nothing that a peer or an application of this stack could see.
const WITHOUT_EFFECT: [&str; 42] = [
    "ip_default_ttl_update",
    "ip_forward",
    "ip_local_port_range",
    "ip_no_pmtu_disc",
    "tcp_abort_on_overflow",
    "tcp_adv_win_scale",
    "tcp_allowed_congestion_control",
    "tcp_app_win",
    "tcp_autocorking",
    "tcp_available_congestion_control",
    "tcp_backlog_ack_defer",
    "tcp_collapse_max_bytes",
    "tcp_comp_sack_delay_ns",
    "tcp_comp_sack_nr",
    "tcp_comp_sack_slack_ns",
    "tcp_early_demux",
    "tcp_ecn_fallback",
    "tcp_fack",
    "tcp_fastopen",
    "tcp_fwmark_accept",
    "tcp_l3mdev_accept",
    "tcp_limit_output_bytes",
    "tcp_low_latency",
    "tcp_max_syn_backlog",
    "tcp_mem",
    "tcp_migrate_req",
    "tcp_min_rtt_wlen",
    "tcp_mtu_probe_floor",
    "tcp_no_metrics_save",
    "tcp_no_ssthresh_metrics_save",
    "tcp_pacing_ca_ratio",
    "tcp_pacing_ss_ratio",
    "tcp_probe_interval",
    "tcp_probe_threshold",
    "tcp_reflect_tos",
    "tcp_retrans_collapse",
    "tcp_retries1",
    "tcp_rx_skb_cache",
    "tcp_tso_rtt_log",
    "tcp_tso_win_divisor",
    "tcp_tw_reuse",
    "tcp_tx_skb_cache",
];

/// Names that this stack keeps at one value only, and that value.
const FIXED: [(&str, &str); 10] = [
    ("tcp_reordering", "3"),
    ("tcp_max_reordering", "300"),
    ("tcp_base_mss", "1024"),
    ("tcp_min_snd_mss", "48"),
    ("tcp_stdurg", "0"),
    ("tcp_thin_linear_timeouts", "0"),
    ("tcp_workaround_signed_windows", "0"),
    ("tcp_shrink_window", "0"),
    ("tcp_ecn_option", "0"),
    ("tcp_plb_enabled", "0"),
];

/// Settings of a line, over the profile that scripts assume.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The stack.
    pub config: Config,
    /// Options that every new socket begins with.
    pub socket: SocketOptions,
    /// `mtu=`: of the interface.
    pub mtu: Option<u16>,
    /// `local_ip=`, as often as there are addresses; none: every address is the stack's own.
    pub local: Vec<IpAddr>,
}

impl Default for Settings {
    /// The profile: what packetdrill's suite and the kernel's own tests set before each script.
    fn default() -> Settings {
        let config = Config {
            receive_buffer: FIRST_WINDOW_MAX,
            receive_buffer_max: 15_728_640,
            send_buffer: 262_144,
            send_buffer_max: 4_194_304,
            count_as_linux: true,
            not_sent_low: None,
            max_syn_retries: 5,
            reset_ends_time_wait: true,
            max_orphan_retries: ORPHAN_RETRIES,
            slow_start_after_idle: false,
            require_timestamps: false,
            mtu_probing: false,
            ecn: Ecn::Off,
            ..Config::default()
        };
        Settings {
            config,
            socket: SocketOptions::default(),
            mtu: None,
            local: Vec::new(),
        }
    }
}

/// Reads `name=value` pairs separated by commas, over the profile. An error names what is wrong and what would be right.
pub fn parse(flags: &str) -> Result<Settings, String> {
    let mut settings = Settings::default();
    let pairs = flags.split(',').map(str::trim).filter(|p| !p.is_empty());
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(format!(
                "`{pair}` is no setting: they read `name=value`, separated by commas"
            ));
        };
        settings.set(name.trim(), value.trim())?;
    }
    Ok(settings)
}

/// One setting being read.
struct Setting<'a> {
    name: &'a str,
    value: &'a str,
}

impl Setting<'_> {
    fn refuse<T>(&self, wanted: &str) -> Result<T, String> {
        Err(format!("`{}={}`: expected {wanted}", self.name, self.value))
    }

    /// A number of a range.
    fn number(&self, from: u64, to: u64) -> Result<u64, String> {
        match self.value.parse::<u64>() {
            Ok(number) if (from..=to).contains(&number) => Ok(number),
            _ => self.refuse(&format!("a number from {from} to {to}")),
        }
    }

    fn tries(&self, from: u64, to: u8) -> Result<u8, String> {
        self.number(from, to.into()).map(|tries| tries as u8)
    }

    fn seconds(&self) -> Result<Duration, String> {
        // The longest time a socket option can name.
        self.number(1, 24 * 24 * 3_600).map(Duration::from_secs)
    }

    fn switch(&self) -> Result<bool, String> {
        self.number(0, 1).map(|on| on == 1)
    }

    /// Least, first and largest size of a buffer.
    fn sizes(&self) -> Result<[u32; 3], String> {
        let sizes: Vec<u32> = self
            .value
            .split_whitespace()
            .filter_map(|size| size.parse().ok())
            .collect();
        match sizes[..] {
            [least, first, most] if 0 < first && first <= most && most <= 1 << 30 => {
                Ok([least, first, most])
            }
            _ => self.refuse(
                "three sizes, such as `4096 131072 6291456`, the second no larger than the third",
            ),
        }
    }
}

impl Settings {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let short = name.strip_prefix("net.ipv4.").unwrap_or(name);
        let setting = Setting { name: short, value };
        let known = self.set_buffers_and_times(&setting)?
            || self.set_tries(&setting)?
            || self.set_parts_of_tcp(&setting)?
            || self.set_surroundings(&setting)?;
        let without_effect = WITHOUT_EFFECT.contains(&short)
            || name.starts_with("net.core.")
            || name.starts_with("net.ipv6.");
        if known || without_effect {
            return Ok(());
        }
        match FIXED.iter().find(|(fixed, _)| *fixed == short) {
            Some((_, only)) if *only == value => Ok(()),
            Some((_, only)) => setting.refuse(&format!("{only}: this stack has no other")),
            None => Err(format!("`{name}` is not a setting known here")),
        }
    }

    fn set_buffers_and_times(&mut self, setting: &Setting) -> Result<bool, String> {
        let (config, socket) = (&mut self.config, &mut self.socket);
        match setting.name {
            "tcp_rmem" => {
                let [_, first, most] = setting.sizes()?;
                // Half is for what the kernel keeps beside the data; the scale is chosen by the whole.
                config.receive_buffer = (first / 2).clamp(1, FIRST_WINDOW_MAX);
                config.receive_buffer_max = most.max(config.receive_buffer);
            }
            "tcp_wmem" => {
                let [_, first, most] = setting.sizes()?;
                (config.send_buffer, config.send_buffer_max) = (first, most);
            }
            "tcp_notsent_lowat" => {
                let bytes = setting.number(1, u32::MAX.into())? as u32;
                config.not_sent_low = (bytes != u32::MAX).then_some(bytes);
            }
            "tcp_min_tso_segs" => config.burst_least = Some(setting.tries(1, 255)?),
            "tcp_moderate_rcvbuf" => config.tune_receive_buffer = setting.switch()?,
            "tcp_fin_timeout" => {
                // TCP_LINGER2 cannot say more either.
                config.fin_wait_2 = Some(Duration::from_secs(setting.number(1, 120)?));
            }
            "tcp_keepalive_time" => socket.keepalive_idle = setting.seconds()?,
            "tcp_keepalive_intvl" => socket.keepalive_interval = setting.seconds()?,
            "tcp_rto_min_us" => {
                config.rto_min = Duration::from_micros(setting.number(1_000, 120_000_000)?);
            }
            "tcp_rto_max_ms" => {
                config.rto_max = Duration::from_millis(setting.number(1_000, 120_000)?);
            }
            "tcp_invalid_ratelimit" => {
                let pause_ms = setting.number(0, 1 << 20)?;
                config.invalid_ack_interval =
                    (pause_ms > 0).then(|| Duration::from_millis(pause_ms));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_tries(&mut self, setting: &Setting) -> Result<bool, String> {
        let (config, socket) = (&mut self.config, &mut self.socket);
        match setting.name {
            "tcp_syn_retries" => config.max_syn_retries = setting.tries(1, 127)?,
            "tcp_synack_retries" => config.max_syn_ack_retries = setting.tries(0, 5)?,
            "tcp_retries2" => config.max_retries = setting.tries(1, 255)?,
            "tcp_orphan_retries" => {
                config.max_orphan_retries = match setting.tries(0, 255)? {
                    0 => ORPHAN_RETRIES,
                    tries => tries,
                }
            }
            "tcp_syn_linear_timeouts" => config.syn_linear_timeouts = setting.tries(0, 127)?,
            "tcp_keepalive_probes" => socket.keepalive_count = setting.tries(1, 127)?,
            "tcp_max_orphans" => config.max_orphans = setting.number(0, u32::MAX.into())? as u32,
            "tcp_max_tw_buckets" => {
                config.max_time_wait = setting.number(1, config.max_time_wait.into())? as u32;
            }
            "tcp_challenge_ack_limit" => {
                let most = setting.number(1, u32::MAX.into())? as u32;
                // Linux's default is no limit.
                config.challenge_acks_per_second = (most < i32::MAX as u32).then_some(most);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_parts_of_tcp(&mut self, setting: &Setting) -> Result<bool, String> {
        let config = &mut self.config;
        match setting.name {
            // 2 is without the random offset, which relative numbers do not show.
            "tcp_timestamps" => config.timestamps = setting.number(0, 2)? > 0,
            "tcp_window_scaling" => config.window_scaling = setting.switch()?,
            "tcp_rfc1337" => config.reset_ends_time_wait = !setting.switch()?,
            "tcp_sack" => config.sack = setting.switch()?,
            "tcp_dsack" => config.dsack = setting.switch()?,
            "tcp_slow_start_after_idle" => config.slow_start_after_idle = setting.switch()?,
            // Early retransmit (1 and 2) gave way to RACK; 3 and 4 probe.
            "tcp_early_retrans" => config.tail_loss_probe = setting.number(0, 4)? >= 3,
            "tcp_recovery" => match setting.number(0, 7)? {
                0 => config.rack = false,
                1 => config.rack = true,
                _ => return setting.refuse("0 or 1: variants of RACK are not here"),
            },
            "tcp_frto" => config.frto = setting.number(0, 2)? > 0,
            "tcp_mtu_probing" => config.mtu_probing = setting.switch()?,
            "tcp_ecn" => {
                config.ecn = match setting.number(0, 2)? {
                    0 => Ecn::Off,
                    1 => Ecn::On,
                    _ => Ecn::Passive,
                }
            }
            "tcp_congestion_control" => {
                config.congestion = match setting.value {
                    "cubic" => CongestionControl::Cubic,
                    "reno" => CongestionControl::NewReno,
                    _ => return setting.refuse("`cubic` or `reno`"),
                }
            }
            "tcp_syncookies" => {
                config.syn_cookies = match setting.number(0, 2)? {
                    0 => SynCookies::Never,
                    1 => SynCookies::Pressure,
                    _ => SynCookies::Always,
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_surroundings(&mut self, setting: &Setting) -> Result<bool, String> {
        match setting.name {
            "mtu" => self.mtu = Some(setting.number(MTU_MIN.into(), u16::MAX.into())? as u16),
            // No setting of TCP in Linux but of the device, `ip link set dev .. gso_max_segs`: with 1 a burst is so many
            // segments, none of which knows of the others.
            "gso_max_segs" => {
                if setting.number(1, 65_535)? == 1 {
                    self.config.burst_least = None;
                }
            }
            // None of Linux's, which never does.
            "require_timestamps" => self.config.require_timestamps = setting.switch()?,
            "ip_default_ttl" => self.socket.ttl = Some(setting.tries(1, 255)?),
            "local_ip" => match setting.value.parse() {
                Ok(address) => self.local.push(address),
                Err(_) => return setting.refuse("an address"),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }
}
