use super::source::{from_environment, from_text};
use super::*;
use janus_io::Batching;
use std::net::Ipv4Addr;
use std::time::Duration;

fn environment(pairs: &[(&str, &str)]) -> Result<Partial, ConfigError> {
    let pairs = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    from_environment(pairs, |strange| panic!("{strange:?}"))
}

/// What else stands in a container: services' variables, settings without a value, slips of the pen.
#[test]
fn variables_that_are_no_settings_are_named_and_left_alone() {
    let pairs = [
        ("JANUS_PORT", "tcp://10.96.0.7:8080"),
        ("JANUS_SERVICE_HOST", "10.96.0.7"),
        ("JANUS_TAP_NAM", "x"),
        ("JANUS_ADDRESS", ""),
        ("JANUS_CORES", " "),
        ("JANUS_SEED", "7"),
    ];
    let pairs = pairs.map(|(k, v)| (k.to_string(), v.to_string()));
    let mut named = Vec::new();
    let partial = from_environment(pairs.into_iter(), |strange| named = strange.to_vec());
    let partial = partial.unwrap();
    assert_eq!((partial.cores, partial.seed), (None, Some(7)));
    assert_eq!(partial.address, None);
    assert_eq!(named.len(), 3);
    assert!(named[0].starts_with("JANUS_PORT"), "{named:?}");
    assert_eq!(named[2], "JANUS_TAP_NAM (did you mean JANUS_TAP_NAME?)");
}

#[test]
fn later_sources_win_key_by_key() {
    let file = from_text("cores = 3\nseed = 7\n[tap]\nname = \"janus0\"").unwrap();
    let env = environment(&[
        ("JANUS_CORES", "2"),
        ("HOME", "/"),
        ("JANUS_BENCH", "quick"),
    ])
    .unwrap();
    let builder = Partial {
        backlog: Some(5),
        ..Partial::default()
    };
    let settings = file.overlay(env).overlay(builder).resolve().unwrap();
    assert_eq!(settings.cores.count, 2);
    assert_eq!(settings.seed, Some(7));
    assert_eq!(settings.tap_name.as_deref(), Some("janus0"));
    assert_eq!(settings.backlog, 5);
}

#[test]
fn unknown_keys_name_the_nearest() {
    let error = from_text("adress = \"192.0.2.1/24\"")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("unknown key `adress`; did you mean `address`?"),
        "{error}"
    );
    let error = from_text("[tap]\nzzzzzzzzzz = 1").unwrap_err().to_string();
    assert!(
        error.contains("the valid ones are cores, placement"),
        "{error}"
    );
}

#[test]
fn values_are_checked() {
    for (text, part) in [
        ("placement = \"splt\"", "neither"),
        ("address = \"192.0.2.1/33\"", "192.0.2.1/24"),
        ("cores = -1", "whole number"),
        ("close_ms = \"1s\"", "without a sign or a unit"),
        ("backlog = \"100000000000000000000\"", "too large"),
        ("receive_buffer = 0", "1 at least"),
        ("receive_buffer = \"64kb\"", "number of bytes"),
        ("receive_buffer = \"K\"", "whole number"),
        ("receive_buffer_max = \"4G\"", "too large"),
        (
            "receive_buffer_max = \"18446744073709551615G\"",
            "too large",
        ),
        ("send_buffer = 0", "1 at least"),
        ("max_connections = 0", "1 at least"),
        ("trace = true", "text in quotes"),
        ("backend = \"dpdq\"", "not one of"),
        ("batch = 65", "1 to 64"),
        ("batch = 0", "1 to 64"),
        ("batch = \"small\"", "adaptive"),
        ("tap_name = \"a-name-that-is-too-long\"", "15 bytes"),
        ("tap_offloads = \"maybe\"", "neither"),
        ("admin = 70000", "neither a port nor an address"),
        ("admin = \"localhost:9464\"", "[::1]:9464"),
        ("admin = \"192.0.2.1\"", "192.0.2.1:9464"),
    ] {
        let error = from_text(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn an_admin_port_alone_is_one_of_loopback() {
    let at = |text: &str| {
        let settings = from_text(text).unwrap().resolve().unwrap();
        settings.admin.map(|at| at.to_string())
    };
    assert_eq!(at(""), None);
    for (said, meant) in [
        ("9464", "127.0.0.1:9464"),
        ("\" 0 \"", "127.0.0.1:0"),
        ("\"0.0.0.0:9464\"", "0.0.0.0:9464"),
        ("\"[::1]:9464\"", "[::1]:9464"),
    ] {
        let said = format!("admin = {said}");
        assert_eq!(at(&said).as_deref(), Some(meant), "{said}");
    }
}

#[test]
fn switches_are_on_or_off() {
    let offloads = |text| from_text(text).unwrap().resolve().unwrap().tap_offloads;
    assert!(offloads("") && offloads("tap_offloads = \"on\""));
    assert!(!offloads("[tap]\noffloads = \"off\""));
    // In the file TOML's own words will do.
    assert!(!offloads("[tap]\noffloads = false"));
    assert_eq!(
        from_text("owner_bits = true").unwrap().owner_bits,
        Some(true)
    );
    for text in ["tokio = false", "tokio = \"off\""] {
        assert_eq!(from_text(text).unwrap().tokio, Some(false), "{text}");
    }
    let error = from_text("tokio = 1").unwrap_err().to_string();
    assert!(error.contains("neither `on` nor `off`"), "{error}");
}

#[test]
fn batches_are_adaptive_or_of_a_size() {
    let batch = |text: &str| from_text(text).unwrap().resolve().unwrap().batch;
    assert_eq!(batch(""), Batching::Adaptive);
    assert_eq!(batch("batch = \"adaptive\""), Batching::Adaptive);
    assert_eq!(batch("batch = 16"), Batching::Fixed(16));
}

#[test]
fn lists_and_groups() {
    let partial = from_text("address = [\"192.0.2.1/24\", \"198.51.100.1\"]").unwrap();
    let addresses = partial.address.unwrap().given;
    assert_eq!(
        addresses[0],
        Cidr::new(Ipv4Addr::new(192, 0, 2, 1), 24).unwrap()
    );
    assert_eq!(addresses[1].prefix(), 32);
}

#[test]
fn an_address_may_be_asked_for() {
    let settings = |text| from_text(text).unwrap().resolve().unwrap();
    let asked = settings("address = \"dhcp\"\n[dhcp]\nwait_ms = 500\nfile = \"/run/lease\"");
    assert_eq!(asked.dhcp_file.as_deref(), Some("/run/lease".as_ref()));
    assert!(asked.address.dhcp && asked.address.given.is_empty());
    assert_eq!(asked.dhcp_wait, Duration::from_millis(500));
    let both = settings("address = [\"dhcp\", \"2001:db8::1/64\"]");
    assert!(both.address.dhcp && both.address.given.len() == 1);
    let given = settings("address = \"192.0.2.1/24\"");
    assert!(!given.address.dhcp && !settings("").address.dhcp);
    // A later source that names one asks no more.
    let file = from_text("address = \"dhcp\"").unwrap();
    let env = environment(&[("JANUS_ADDRESS", "192.0.2.1/24")]).unwrap();
    assert!(!file.overlay(env).resolve().unwrap().address.dhcp);
    let error = from_text("address = \"dhpc\"").unwrap_err().to_string();
    assert!(error.contains("192.0.2.1/24"), "{error}");
}

#[test]
fn both_families() {
    let text = "address = [\"2001:db8::1/64\", \"2001:db8::2\"]\ngateway_v6 = \"fe80::1\"";
    let settings = from_text(text).unwrap().resolve().unwrap();
    let prefixes: Vec<u8> = settings
        .address
        .given
        .iter()
        .map(|own| own.prefix())
        .collect();
    assert_eq!(prefixes, [64, 128]);
    assert_eq!(settings.gateway_v6, "fe80::1".parse().ok());
    for wrong in [
        "address = \"2001:db8::1/129\"",
        "address = \"192.0.2.1/33\"",
        "gateway = \"fe80::1\"",
        "tap_kernel_address = \"2001:db8::2/64\"",
    ] {
        assert!(from_text(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn routes_name_a_network_and_a_neighbor() {
    let text = "route = [\"10.0.0.0/8 via 192.0.2.254\", \"2001:db8:1::/48 via fe80::1\"]";
    let settings = from_text(text).unwrap().resolve().unwrap();
    assert_eq!(settings.route.len(), 2);
    assert_eq!(settings.route[0].to.prefix(), 8);
    assert_eq!(
        settings.route[1].gateway,
        "fe80::1".parse::<std::net::IpAddr>().unwrap()
    );
    for wrong in [
        "route = \"10.0.0.0/8\"",
        "route = \"10.0.0.0/33 via 192.0.2.254\"",
        "route = \"10.0.0.0/8 via fe80::1\"",
        "route = \"10.0.0.0/8 via router\"",
    ] {
        assert!(from_text(wrong).is_err(), "{wrong}");
    }
    let many = vec!["10.0.0.0/8 via 192.0.2.254"; 65].join(",");
    assert!(from_text(&format!("route = \"{many}\"")).is_err());
}

#[test]
fn dpdk_has_a_device_and_arguments() {
    let text = "backend = \"dpdk\"\n[dpdk]\ndevice = \"net_tap0,iface=jt0\"\neal = \"-m 64 --log-level=8\"\nsleep_us = 0\nexception = \"jx0\"";
    let settings = from_text(text).unwrap().resolve().unwrap();
    assert_eq!(settings.backend, BackendName::Dpdk);
    assert_eq!(settings.dpdk_device.as_deref(), Some("net_tap0,iface=jt0"));
    assert_eq!(settings.dpdk_eal, ["-m", "64", "--log-level=8"]);
    assert_eq!(settings.dpdk_exception.as_deref(), Some("jx0"));
    assert_eq!(settings.dpdk_sleep, Some(Duration::ZERO));
    // Names a file for the loader, not a setting.
    environment(&[("JANUS_DPDK_SHIM", "/x.so")]).unwrap();
}

#[test]
fn xdp_has_an_interface_ports_and_a_mode() {
    let text = "backend = \"xdp\"\n[xdp]\ninterface = \"eth0\"\nports = \"80, 8000-8080, 53/udp\"\nmode = \"generic\"";
    let settings = from_text(text).unwrap().resolve().unwrap();
    assert_eq!(settings.backend, BackendName::Xdp);
    assert_eq!(settings.xdp_interface.as_deref(), Some("eth0"));
    assert_eq!(settings.xdp_ports.tcp, [80..=80, 8000..=8080]);
    assert_eq!(settings.xdp_ports.udp, [53..=53]);
    assert_eq!(settings.xdp_mode, janus_io::xdp::Mode::Generic);
    let list = from_text("xdp_ports = [80, 443]").unwrap();
    assert_eq!(list.xdp_ports.unwrap().tcp, [80..=80, 443..=443]);
    for wrong in ["0", "80-", "90-80", "65536", "http", "", "80/sctp", "/udp"] {
        assert!(
            from_text(&format!("xdp_ports = \"{wrong}\"")).is_err(),
            "{wrong}"
        );
    }
    assert!(from_text("xdp_mode = \"fast\"").is_err());
}

#[test]
fn admission_has_lists_and_a_limit() {
    let text = "[admission]\nallow = \"10.0.0.0/8, 192.0.2.7\"\ndeny = [\"10.1.0.0/16\", \"::/0\"]\nsyn_rate = 1_000\nsyn_prefix = 16";
    let settings = from_text(text).unwrap().resolve().unwrap();
    let rules = settings.rules(true, Vec::new());
    let listed = |list: &[janus_io::policy::Prefix]| {
        list.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(listed(&rules.allow), ["10.0.0.0/8", "192.0.2.7/32"]);
    assert_eq!(listed(&rules.deny), ["10.1.0.0/16", "::/0"]);
    let limit = rules.syn_limit.unwrap();
    assert_eq!((limit.per_second, limit.burst), (1000, 1000));
    assert_eq!((limit.prefix_v4, limit.prefix_v6), (16, 56));
    for wrong in [
        "admission_allow = \"10.0.0.1/8\"",
        "admission_deny = \"example\"",
        "admission_syn_rate = -1",
        "admission_syn_prefix = 33",
        "admission_syn_prefix_v6 = 129",
        "admission_martians = \"maybe\"",
    ] {
        assert!(from_text(wrong).is_err(), "{wrong}");
    }
    let lonely = from_text("admission_syn_burst = 5").unwrap().resolve();
    let error = lonely.unwrap_err().to_string();
    assert!(error.contains("`admission_syn_rate`"), "{error}");
    // Who leads outside has no martians, unless it is said.
    let martians = |text: &str, outside| {
        let settings = from_text(text).unwrap().resolve().unwrap();
        settings.rules(outside, Vec::new()).drop_martians
    };
    assert!(martians("", true) && !martians("", false));
    assert!(martians("admission_martians = \"drop\"", false));
    assert!(!martians("admission_martians = \"pass\"", true));
}

#[test]
fn a_link_can_be_bad() {
    use janus_io::faults::Faults;
    let settings = |text: &str| from_text(text).unwrap().resolve();
    assert!(settings("").unwrap().faults.is_none());
    let text = "[faults]\nloss = \"0.5%\"\ncorrupt = \"2 %\"\ndelay_ms = 20\njitter_ms = \"0.25\"\nrate_kbit = 10_000\nqueue = 50\nseed = 7";
    let faults = settings(text).unwrap().faults;
    let expected = Faults {
        seed: 7,
        loss: 5,
        corrupt: 20,
        delay: Duration::from_millis(20),
        jitter: Duration::from_micros(250),
        rate: std::num::NonZeroU64::new(10_000_000),
        queue: 50,
        ..Faults::default()
    };
    assert_eq!((faults.received, faults.sent), (expected, expected));
    assert!(faults.corrupts() && !faults.is_none());
    let sent = settings("faults_reorder = \"100%\"\nfaults_distance = 3\nfaults_way = \"sent\"");
    let sent = sent.unwrap().faults;
    assert!(sent.received.is_none());
    assert_eq!((sent.sent.reorder, sent.sent.distance), (1_000, 3));
    for wrong in [
        "faults_loss = 1",
        "faults_loss = \"101%\"",
        "faults_loss = \"-1%\"",
        "faults_loss = \"0.01%\"",
        "faults_delay_ms = -1",
        "faults_delay_ms = 60_001",
        "faults_delay_ms = \"NaN\"",
        "faults_rate_kbit = 0",
        "faults_queue = 0",
        "faults_way = \"up\"",
    ] {
        assert!(from_text(wrong).is_err(), "{wrong}");
    }
    for (text, key) in [
        ("faults_seed = 1", "`faults_seed`"),
        ("faults_way = \"sent\"", "`faults_way`"),
        (
            "faults_loss = \"60%\"\nfaults_reorder = \"50%\"",
            "`faults_loss`",
        ),
    ] {
        let error = settings(text).unwrap_err().to_string();
        assert!(error.contains(key), "{text}: {error}");
    }
}

#[test]
fn a_trace_can_have_a_filter() {
    let text = "[trace]\nfilter = \"tcp port 80 and not syn\"";
    let said = from_text(text).unwrap();
    let error = said.clone().resolve().unwrap_err().to_string();
    assert!(error.contains("only with a file in `trace`"), "{error}");
    let file = from_text("trace = \"x.pcapng\"").unwrap();
    let settings = said.overlay(file).resolve().unwrap();
    let filter = settings.trace_filter.unwrap();
    assert_eq!(filter.to_string(), "tcp port 80 and not syn");
    let error = from_text("trace_filter = \"hots 192.0.2.1\"").unwrap_err();
    assert!(
        error.to_string().contains("did you mean `host`?"),
        "{error}"
    );
}

#[test]
fn the_portal_reaches_as_far_as_said() {
    use crate::portal::PortalReach;
    let reach = |text: &str| from_text(text).unwrap().resolve().unwrap().portal_reach;
    assert_eq!(reach(""), PortalReach::Loopback);
    assert_eq!(reach("[portal]\nreach = \"any\""), PortalReach::Anywhere);
    assert!(
        matches!(reach("portal_reach = \"10.0.0.0/8\""), PortalReach::Networks(list) if list.len() == 1)
    );
    assert!(from_text("portal_reach = \"everywhere\"").is_err());
}

#[test]
fn a_handful_of_packet_buffers_is_refused() {
    let told = |count| {
        from_text(&format!("packet_buffers = {count}"))
            .unwrap()
            .resolve()
    };
    let error = told(1).unwrap_err().to_string();
    assert!(
        error.contains("1 is too few") && error.contains("1024 or more"),
        "{error}"
    );
    assert_eq!(told(1024).unwrap().packet_buffers, 1024);
}

#[test]
fn io_cores_belong_to_split() {
    let split = from_text("io_cores = 2").unwrap().resolve().unwrap();
    assert_eq!(split.placement(), Placement::Split { io_cores: 2 });
    assert_eq!(split.queues(), 2);
    let both = from_text("placement = \"combined\"\nio_cores = 2").unwrap();
    assert!(both.resolve().is_err());
    assert!(from_text("cores = 0").unwrap().resolve().is_err());
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
const BEGIN: &str =
    "<!-- Made by the test `every_key_is_in_the_manual`; JANUS_WRITE=1 writes it anew. -->\n";
const END: &str = "<!-- To here. -->\n";

#[test]
fn every_key_is_in_the_manual() {
    // The crate can be tested without the repository around it.
    let Ok(page) = std::fs::read_to_string(PAGE) else {
        return;
    };
    for key in KEYS {
        let row = format!("\n| `{}` |", key.name);
        assert_eq!(manual().matches(&row).count(), 1, "{}", key.name);
    }
    let (head, rest) = page.split_once(BEGIN).expect("where the tables begin");
    let (listed, tail) = rest.split_once(END).expect("where they end");
    if std::env::var_os("JANUS_WRITE").is_some() {
        let page = [head, BEGIN, &manual(), END, tail].concat();
        std::fs::write(PAGE, page).expect("it can be written");
        return;
    }
    assert!(
        listed == manual(),
        "JANUS_WRITE=1 cargo test -p janus-rt --lib every_key_is writes it anew"
    );
}

#[test]
fn cores_are_a_number_or_processors_and_the_later_word_counts() {
    let said = |text: &str| from_text(text).map_err(|error| error.to_string());
    let list = said("cores = \"0, 2,4-6\"").expect("a list");
    assert_eq!(list.cores, Some(Cores::on(vec![0, 2, 4, 5, 6])));
    let number = said("cores = 3").expect("a number");
    assert_eq!(number.cores, Some(Cores::count(3)));
    let silent = Partial::default();
    let settings = |partial: Partial| {
        let settings = partial.resolve().expect("it makes sense");
        (settings.cores.count, settings.cores.on)
    };
    assert_eq!(
        settings(list.clone().overlay(number.clone())),
        (3, None),
        "three, anywhere"
    );
    let five = Some(vec![0, 2, 4, 5, 6]);
    assert_eq!(settings(number.overlay(list.clone())), (5, five.clone()));
    assert_eq!(settings(list.overlay(silent)), (5, five));
    for (text, problem) in [
        ("0-", "not a processor"),
        ("a-b", "not a processor"),
        ("3-1", "not a processor"),
        ("0-3,3", "named twice"),
        ("0-100000", "not a processor"),
    ] {
        let error = said(&format!("cores = \"{text}\""))
            .map(|_| ())
            .expect_err(text);
        assert!(error.contains(problem), "{text}: {error}");
    }
}

#[test]
fn sizes_take_units() {
    let text = "receive_buffer = \"64K\"\nreceive_buffer_max = \"6 MiB\"\nsend_buffer = 70_000\nsend_buffer_max = \"80_000 B\"";
    let settings = from_text(text).unwrap().resolve().unwrap();
    assert_eq!(settings.receive_buffer, 64 << 10);
    assert_eq!(settings.receive_buffer_max, 6 << 20);
    assert_eq!(settings.send_buffer, 70_000);
    assert_eq!(settings.send_buffer_max, 80_000);
}

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
        daemon_socket = "io.sock"
        daemon_ports = "256"
        daemon_group = "web"
        daemon_memory = "isolated"
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
        speculative_accept = "auto"
        owner_bits = "true"
        balance_interval_ms = "150"
        portal_reach = "10.0.0.0/8"
        portal_listen = "192.0.2.5,2001:db8::5"
        program_ours = "127.0.0.1:80"
        program_kernel = "any"
        program_report = true
        signals = false
        tap_shared = true
        shutdown_ms = 1500
        admission_martians = "pass"
        admission_allow = "192.0.2.0/24"
        admission_deny = "192.0.2.128/25"
        admission_syn_rate = "16"
        admission_syn_burst = "17"
        admission_syn_prefix = "18"
        admission_syn_prefix_v6 = "19"
        close_ms = "20"
        admin = "192.0.2.9:9464"
        dhcp_file = "lease"
        faults_seed = "21"
        faults_way = "sent"
        faults_loss = "0.5%"
        faults_duplicate = "2%"
        faults_corrupt = "3%"
        faults_reorder = "4%"
        faults_distance = "22"
        faults_delay_ms = "2.5"
        faults_jitter_ms = "1"
        faults_rate_kbit = "1000"
        faults_queue = "23"
    "#;
    let words = from_text(said).expect("all of it makes sense");
    let settings = words.clone().resolve().expect("together too");
    for key in KEYS.iter().filter(|key| key.name != "tokio") {
        let name = key.name;
        let word = words.entries.iter().find(|word| word.key == name);
        let word = word.unwrap_or_else(|| panic!("this test says nothing of {name}"));
        let shown = (key.show)(&settings);
        assert_eq!(shown.as_deref(), Some(word.value.as_str()), "{name}");
    }
}
