//! How the value of a key is said, for whoever asks what is in force: as it could stand in a `janus.toml`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use janus_io::{Batching, xdp};

use super::keys::{Cidr, DHCP, Via};
use super::policy::{Martians, PolicySettings};
use super::{BackendName, Impairment, KernelAddress, Placement, Settings};
use crate::control::watch::PolicyName;

/// The value of a key in force; `None` where it has none.
pub(super) fn shown(key: &str, settings: &Settings) -> Option<String> {
    let s = settings;
    let tcp = janus_tcp::Config::default;
    match key {
        "cores" => Some(s.on.as_deref().map_or_else(|| s.cores.to_string(), list)),
        "placement" => Some(match s.placement {
            Placement::Combined => "combined".into(),
            Placement::Split { .. } => "split".into(),
        }),
        "io_cores" => match s.placement {
            Placement::Combined => None,
            Placement::Split { io_cores } => Some(io_cores.to_string()),
        },
        "backend" => Some(backend(s.backend).into()),
        "address" => addresses(s),
        "gateway" => s.gateway.map(text),
        "gateway_v6" => s.gateway_v6.map(text),
        "route" => some_list(&s.routes.iter().map(route).collect::<Vec<_>>()),
        "dns" => some_list(&s.name_servers),
        "trace" => s.trace.as_ref().map(|file| file.display().to_string()),
        "trace_filter" => s.trace_filter.as_ref().map(text),
        "seed" => s.seed.map(text),
        "max_connections" => Some(text(s.max_connections.unwrap_or(tcp().max_connections))),
        "receive_buffer" => Some(text(s.receive_buffer.unwrap_or(tcp().receive_buffer))),
        "receive_buffer_max" => Some(text(
            s.receive_buffer_max.unwrap_or(tcp().receive_buffer_max),
        )),
        "send_buffer" => Some(text(s.send_buffer.unwrap_or(tcp().send_buffer))),
        "send_buffer_max" => Some(text(s.send_buffer_max.unwrap_or(tcp().send_buffer_max))),
        "packet_buffers" => Some(text(s.packet_buffers)),
        "batch" => Some(match s.batch {
            Batching::Adaptive => "adaptive".into(),
            Batching::Fixed(most) => most.to_string(),
        }),
        "backlog" => Some(text(s.backlog)),
        "blocking_threads" => Some(text(s.blocking_threads)),
        "warn_future_bytes" => Some(text(s.warn_future_bytes)),
        "warn_blocked_ms" => Some(millis(s.warn_blocked)),
        "signals" => Some(text(s.signals)),
        "shutdown_ms" => Some(millis(s.shutdown)),
        "drain_ms" => Some(millis(s.drain)),
        "admin" => s.admin.map(text),
        "dhcp_wait_ms" => Some(millis(s.dhcp_wait)),
        "balance" => Some(match s.balance {
            PolicyName::Fixed => "fixed".into(),
            PolicyName::Queue => "queue".into(),
            PolicyName::Service => "service".into(),
        }),
        "balance_interval_ms" => Some(millis(s.balance_interval)),
        "owner_bits" => Some(text(s.owner_bits)),
        "portal_reach" => Some(text(&s.portal_reach)),
        "portal_listen" => Some(text(&s.portal_listen)),
        #[cfg(feature = "tokio")]
        "tokio" => Some(text(s.tokio)),
        "dhcp_file" => s.dhcp_file.as_ref().map(|file| file.display().to_string()),
        fault if fault.starts_with("impair_") => of_impairment(fault, &s.impair),
        policy if policy.starts_with("policy_") => of_policy(policy, &s.policy),
        device => of_device(device, s),
    }
}

fn of_device(key: &str, s: &Settings) -> Option<String> {
    match key {
        "tap_name" => s.tap_name.clone(),
        "tap_kernel_address" => match s.tap_kernel_address {
            KernelAddress::Neighbour => None,
            KernelAddress::Given(address, prefix) => Some(format!("{address}/{prefix}")),
            KernelAddress::None => Some("none".into()),
        },
        "tap_offloads" => Some(text(s.tap_offloads)),
        "tap_shared" => Some(text(s.tap_shared)),
        "dpdk_device" => s.dpdk_device.clone(),
        "dpdk_eal" => Some(s.dpdk_eal.join(" ")).filter(|words| !words.is_empty()),
        "dpdk_exception" => s.dpdk_exception.clone(),
        "dpdk_sleep_us" => s.dpdk_sleep.map(|time| time.as_micros().to_string()),
        "xdp_interface" => s.xdp_interface.clone(),
        "xdp_ports" => {
            let tcp = s.xdp_ports.tcp.iter().map(range);
            let udp = s
                .xdp_ports
                .udp
                .iter()
                .map(|ports| format!("{}/udp", range(ports)));
            some_list(&tcp.chain(udp).collect::<Vec<_>>())
        }
        "xdp_mode" => Some(match s.xdp_mode {
            xdp::Mode::Auto => "auto".into(),
            xdp::Mode::Native => "native".into(),
            xdp::Mode::Generic => "generic".into(),
        }),
        _ => None,
    }
}

fn of_policy(key: &str, policy: &PolicySettings) -> Option<String> {
    let limit = policy.syn_limit;
    match key {
        "policy_martians" => policy.martians.map(|martians| match martians {
            Martians::Drop => "drop".into(),
            Martians::Pass => "pass".into(),
        }),
        "policy_allow" => some_list(&policy.allow),
        "policy_deny" => some_list(&policy.deny),
        "policy_syn_rate" => limit.map(|limit| text(limit.per_second)),
        "policy_syn_burst" => limit.map(|limit| text(limit.burst)),
        "policy_syn_prefix" => limit.map(|limit| text(limit.prefix_v4)),
        "policy_syn_prefix_v6" => limit.map(|limit| text(limit.prefix_v6)),
        _ => None,
    }
}

/// Nothing of a link that is a good one.
fn of_impairment(key: &str, link: &Impairment) -> Option<String> {
    let (way, faults) = match (link.received.is_none(), link.sent.is_none()) {
        (true, true) => return None,
        (true, false) => ("sent", &link.sent),
        (false, true) => ("received", &link.received),
        (false, false) => ("both", &link.sent),
    };
    let share = |thousandths: u16| format!("{}%", f64::from(thousandths) / 10.0);
    let delay = |time: Duration| text(time.as_nanos() as f64 / 1e6);
    match key {
        "impair_way" => Some(way.into()),
        "impair_seed" => Some(text(faults.seed)),
        "impair_loss" => Some(share(faults.loss)),
        "impair_duplicate" => Some(share(faults.duplicate)),
        "impair_corrupt" => Some(share(faults.corrupt)),
        "impair_reorder" => Some(share(faults.reorder)),
        "impair_distance" => Some(text(faults.distance)),
        "impair_delay_ms" => Some(delay(faults.delay)),
        "impair_jitter_ms" => Some(delay(faults.jitter)),
        "impair_rate_kbit" => (faults.rate > 0).then(|| text(faults.rate / 1_000)),
        "impair_queue" => Some(text(faults.queue)),
        _ => None,
    }
}

fn range(ports: &RangeInclusive<u16>) -> String {
    match ports.start() == ports.end() {
        true => ports.start().to_string(),
        false => format!("{}-{}", ports.start(), ports.end()),
    }
}

fn backend(name: BackendName) -> &'static str {
    match name {
        BackendName::Auto => "auto",
        BackendName::Portal => "portal",
        BackendName::Tap => "tap",
        BackendName::Dpdk => "dpdk",
        BackendName::Xdp => "xdp",
    }
}

fn addresses(settings: &Settings) -> Option<String> {
    let own = settings.addresses.iter().map(cidr);
    let all: Vec<String> = settings
        .dhcp
        .then(|| DHCP.to_owned())
        .into_iter()
        .chain(own)
        .collect();
    some_list(&all)
}

fn cidr(own: &Cidr) -> String {
    format!("{}/{}", own.address, own.prefix)
}

fn route(via: &Via) -> String {
    format!("{} via {}", cidr(&via.to), via.gateway)
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

fn text(value: impl Display) -> String {
    value.to_string()
}

fn list<T: Display>(values: &[T]) -> String {
    values.iter().map(text).collect::<Vec<_>>().join(",")
}

fn some_list<T: Display>(values: &[T]) -> Option<String> {
    (!values.is_empty()).then(|| list(values))
}

#[cfg(test)]
mod tests {
    use super::super::keys::KEYS;
    use super::super::source::from_text;
    use super::*;

    /// Every key, with a value that is no default, comes out as it went in.
    #[test]
    fn what_is_said_of_any_key_is_shown() {
        let said = r#"
            cores = "0,2"
            placement = "split"
            io_cores = "2"
            backend = "tap"
            tap_name = "t0"
            tap_kernel_address = "192.0.2.9/24"
            tap_offloads = "false"
            dpdk_device = "net_null0"
            dpdk_eal = "-m 64"
            dpdk_exception = "x0"
            dpdk_sleep_us = "7"
            xdp_interface = "e0"
            xdp_ports = "80,90-99,53/udp"
            xdp_mode = "generic"
            address = "dhcp,192.0.2.7/24,2001:db8::7/64"
            dhcp_wait_ms = "9"
            gateway = "192.0.2.254"
            gateway_v6 = "fe80::1"
            route = "10.0.0.0/8 via 192.0.2.3"
            dns = "192.0.2.53:53,[2001:db8::53]:5353"
            trace = "a.pcapng"
            trace_filter = "tcp port 80"
            seed = "5"
            max_connections = "100"
            receive_buffer = "1000"
            receive_buffer_max = "2000"
            send_buffer = "3000"
            send_buffer_max = "4000"
            packet_buffers = "5000"
            batch = "9"
            backlog = "11"
            blocking_threads = "12"
            warn_future_bytes = "13"
            warn_blocked_ms = "14"
            balance = "queue"
            owner_bits = "true"
            balance_interval_ms = "150"
            portal_reach = "10.0.0.0/8"
            portal_listen = "192.0.2.5,2001:db8::5"
            signals = false
            tap_shared = true
            shutdown_ms = 1500
            policy_martians = "pass"
            policy_allow = "192.0.2.0/24"
            policy_deny = "192.0.2.128/25"
            policy_syn_rate = "16"
            policy_syn_burst = "17"
            policy_syn_prefix = "18"
            policy_syn_prefix_v6 = "19"
            drain_ms = "20"
            admin = "192.0.2.9:9464"
            dhcp_file = "lease"
            impair_seed = "21"
            impair_way = "sent"
            impair_loss = "0.5%"
            impair_duplicate = "2%"
            impair_corrupt = "3%"
            impair_reorder = "4%"
            impair_distance = "22"
            impair_delay_ms = "2.5"
            impair_jitter_ms = "1"
            impair_rate_kbit = "1000"
            impair_queue = "23"
        "#;
        let words = from_text(said).expect("all of it makes sense");
        let settings = words.clone().resolve().expect("together too");
        for key in KEYS
            .iter()
            .map(|key| key.name)
            .filter(|key| *key != "tokio")
        {
            let word = words.said.iter().find(|word| word.key == key);
            let word = word.unwrap_or_else(|| panic!("this test says nothing of {key}"));
            assert_eq!(
                shown(key, &settings).as_deref(),
                Some(word.value.as_str()),
                "{key}"
            );
        }
    }
}
