//! The runtime over DPDK: the kernel as the client through `net_tap`, in a namespace made for the test, in every layout;
//! and two processes, a runtime in each, joined by `net_memif`. Needs the feature `dpdk` or `dpdk-dlopen`, and root for the
//! first: without them a test says so in one line and passes, unless `JANUS_PRIVILEGED=1` says that the machine must be
//! able to.

#[path = "../support/mod.rs"]
mod support;

use std::io::Write;

/// A test that cannot run, past what the test runner keeps to itself.
fn skip(why: &str) {
    let required = std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1");
    let built = cfg!(any(feature = "dpdk", feature = "dpdk-dlopen"));
    assert!(!(required && built), "JANUS_PRIVILEGED=1, but {why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

#[cfg(not(any(feature = "dpdk", feature = "dpdk-dlopen")))]
#[test]
fn a_program_without_dpdk_says_so() {
    use janus::BackendChoice;

    let device = "net_ring0".to_owned();
    let refused = support::ONE_COMBINED
        .builder()
        .backend(BackendChoice::Dpdk { device })
        .build();
    let text = refused.expect_err("it cannot be").to_string();
    assert!(text.contains("the feature `dpdk`"), "{text}");
    skip("DPDK tests: built without the features `dpdk` and `dpdk-dlopen`");
}

#[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
mod over {
    mod memif;

    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Ipv6Addr, TcpStream as Kernel};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use janus::net::TcpStream;
    use janus::{BackendChoice, Runtime};
    use janus_io::dpdk::{OpenPort, open_ports};
    use rustix::fd::AsFd;
    use rustix::thread::{
        LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe,
    };

    use super::skip;
    use super::support::daemon::Daemon;
    use super::support::datagrams::{send_back, there_and_back};
    use super::support::program::Program;
    use super::support::*;

    const REQUESTS: usize = 2_000;
    const CONNECTIONS: usize = 64;
    const MEGABYTES: usize = 32;
    const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    /// DPDK leaves its descriptors to programs that are started: an interface would outlive its test in another's.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn run(program: &str, arguments: &str) -> Result<String, String> {
        let output = Command::new(program)
            .args(arguments.split(' '))
            .output()
            .map_err(|error| format!("{program}: {error}"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{program} {arguments}: {}", text.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Opens the device; `None`, said, where DPDK is not to be had.
    fn build(builder: janus::Builder, device: String) -> Option<Runtime> {
        match builder.backend(BackendChoice::Dpdk { device }).build() {
            Ok(runtime) => Some(runtime),
            Err(error) if error.to_string().contains("not to be had") => {
                skip(&format!("DPDK tests: {error}"));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn port(name: &str) -> OpenPort {
        let found = open_ports().into_iter().find(|port| port.name == name);
        found.unwrap_or_else(|| panic!("{name} is open"))
    }

    /// The byte at `at` of what is echoed.
    fn byte(at: usize) -> u8 {
        (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
    }

    /// Sends and gets back numbered bytes, both ways at once.
    fn echo_from_the_kernel(mut stream: Kernel, bytes: usize) {
        let limit = Some(PATIENCE);
        stream.set_read_timeout(limit).unwrap();
        stream.set_write_timeout(limit).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            let mut piece = vec![0; 65_536];
            for start in (0..bytes).step_by(piece.len()) {
                for (at, place) in piece.iter_mut().enumerate() {
                    *place = byte(start + at);
                }
                writer.write_all(&piece).unwrap();
            }
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let (mut got, mut piece) = (0, vec![0; 65_536]);
        loop {
            // `net_tap` has the kernel signal this process at every frame.
            let n = match stream.read(&mut piece) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.unwrap(),
            };
            if n == 0 {
                break;
            }
            let right = piece[..n]
                .iter()
                .zip(got..)
                .all(|(read, at)| *read == byte(at));
            assert!(right, "between bytes {got} and {}", got + n);
            got += n;
        }
        assert_eq!(got, bytes);
        sender.join().unwrap();
    }

    /// Answers a request, or echoes what is none: the first byte tells.
    async fn either(stream: TcpStream) {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
        let mut tail = [0; 4];
        let mut http = None;
        while let Ok(Some(piece)) = stream.recv().await {
            if !*http.get_or_insert(piece.starts_with(b"GET")) {
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
                continue;
            }
            for &byte in piece.iter() {
                tail = [tail[1], tail[2], tail[3], byte];
                if &tail == b"\r\n\r\n" && stream.write_all(ANSWER).await.is_err() {
                    return;
                }
            }
        }
    }

    /// One layout against the kernel, on a thread that is alone in its namespace.
    fn against_the_kernel(case: Case, index: usize) {
        let (name, interface) = (format!("net_tap{index}"), format!("jd{index}"));
        let builder = case
            .builder()
            .address(format!("{SERVER}/24").parse().unwrap())
            .address(format!("{SERVER_V6}/64").parse().unwrap());
        let Some(runtime) = build(builder, format!("{name},iface={interface}")) else {
            return;
        };
        let device = port(&name);
        assert!(device.status.is_up() && device.facts.driver == "net_tap");
        assert!(device.facts.tx_checksum && device.facts.rx_checksum && device.facts.interrupts);
        let ip = |arguments: &str| run("ip", arguments).unwrap();
        ip(&format!("address add 192.0.2.2/24 dev {interface}"));
        ip(&format!(
            "-6 address add 2001:db8::2/64 dev {interface} nodad"
        ));
        ip(&format!("link set {interface} up"));
        let both = (Ipv6Addr::UNSPECIFIED, 80).into();
        let (server, _, _) = serve_at(runtime, both, either);

        run("ping", &format!("-c 3 -i 0.2 -W 60 {SERVER}")).unwrap();
        run("ping", &format!("-6 -c 1 -W 60 -s 3000 {SERVER_V6}")).unwrap();
        for host in [SERVER.to_string(), format!("[{SERVER_V6}]")] {
            let codes = run(
                "curl",
                &format!(
                    "-sS --max-time 300 --parallel --parallel-max {CONNECTIONS} -o /dev/null \
                     -w %{{http_code}}:%{{size_download}}\\n http://{host}/[1-{REQUESTS}]"
                ),
            );
            let codes = codes.unwrap_or_else(|error| panic!("{case:?}: {error}"));
            let right = codes.lines().filter(|line| *line == "200:6").count();
            assert_eq!(right, REQUESTS, "{case:?} {host}");
        }
        for stream in [
            Kernel::connect((SERVER, 80)),
            Kernel::connect((SERVER_V6, 80)),
        ] {
            echo_from_the_kernel(stream.unwrap(), MEGABYTES << 20);
        }
        no_copies(&device, case, (4 * MEGABYTES) << 20);
        server.stop().unwrap();
        let (counters, statistics) = (&device.counters, device.counters.statistics());
        // The last frames may have come while it was closed.
        assert!(statistics.rx_frames >= counters.received.get());
        assert_eq!(statistics.tx_frames, counters.sent.get());
        assert_eq!(statistics.rx_no_buffer, 0);
        assert!(
            run("ip", &format!("link show {interface}")).is_err(),
            "gone"
        );
    }

    /// After at least `bytes` both ways together: as many frames as carry them, and none of them copied.
    fn no_copies(device: &OpenPort, case: Case, bytes: usize) {
        let counters = &device.counters;
        let frames = (bytes / 2 / 1500) as u64;
        println!("{case:?} {counters:?}");
        assert!(counters.received.get() > frames && counters.sent.get() > frames);
        assert_eq!(
            (counters.rx_copied.get(), counters.tx_copied.get()),
            (0, 0),
            "not one payload was copied"
        );
        assert!(counters.completed.get() > frames, "lent frames came back");
        assert_eq!(counters.dropped_checksum.get(), 0);
    }

    /// Whether the tools and devices are there; says what is not.
    fn can_reach_the_kernel() -> bool {
        let tools = ["curl --version", "ip -V", "ping -V"];
        let missing = tools.iter().find_map(|tool| {
            let (program, argument) = tool.split_once(' ')?;
            run(program, argument).err()
        });
        let tun = Path::new("/dev/net/tun").exists();
        match missing.or((!tun).then(|| "no /dev/net/tun".into())) {
            Some(why) => skip(&format!("DPDK over net_tap: {why}")),
            None => return true,
        }
        false
    }

    /// Runs a test on a thread that is alone in a network namespace; an error is a want of privilege.
    fn in_a_namespace(test: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let alone = std::thread::spawn(move || {
            // SAFETY: a network namespace shares no memory or descriptors with anything, and this thread opened none.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|errno| {
                format!("no network namespace of its own ({errno}); run as root")
            })?;
            test();
            Ok(())
        });
        alone.join().expect("the test itself passes")
    }

    #[test]
    fn the_kernel_is_served_over_net_tap() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if !can_reach_the_kernel() {
            return;
        }
        let cases = [ONE_COMBINED, THREE_COMBINED, ONE_SPLIT, THREE_SPLIT];
        for (index, case) in cases.into_iter().enumerate() {
            if let Err(why) = in_a_namespace(move || against_the_kernel(case, index)) {
                return skip(&format!("DPDK over net_tap: {why}"));
            }
        }
    }

    /// Segments that the kernel found to have a wrong checksum, in this namespace.
    fn checksum_errors() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut both = names.split(' ').zip(values.split(' '));
        let found = both.find(|(name, _)| *name == "InCsumErrors");
        found.expect("the kernel counts them").1.parse().unwrap()
    }

    /// The kernel takes segments that are smaller than the link allows, as `net_tap` cuts no others.
    fn joined_to_the_kernel() {
        let builder = ONE_COMBINED
            .builder()
            .address(format!("{SERVER}/24").parse().unwrap())
            .address(format!("{SERVER_V6}/64").parse().unwrap());
        let Some(runtime) = build(builder, "net_tap9,iface=jd9".into()) else {
            return;
        };
        let device = port("net_tap9");
        assert!(device.facts.tso, "{:?}", device.facts);
        let ip = |arguments: &str| run("ip", arguments).unwrap();
        ip("address add 192.0.2.2/24 dev jd9");
        ip("-6 address add 2001:db8::2/64 dev jd9 nodad");
        ip("link set jd9 up");
        ip("route change 192.0.2.0/24 dev jd9 src 192.0.2.2 advmss 1300");
        let (server, _, _) = serve_at(runtime, (Ipv6Addr::UNSPECIFIED, 80).into(), either);
        let joined = &device.counters.joined;
        echo_from_the_kernel(Kernel::connect((SERVER, 80)).unwrap(), MEGABYTES << 20);
        let over_v4 = joined.get();
        assert!(over_v4 > 0, "{:?}", device.counters);
        // What the device cannot cut goes segment by segment.
        echo_from_the_kernel(Kernel::connect((SERVER_V6, 80)).unwrap(), 4 << 20);
        assert_eq!(joined.get(), over_v4);
        no_copies(&device, ONE_COMBINED, (2 * MEGABYTES) << 20);
        assert_eq!(device.counters.refused.get(), 0);
        assert_eq!(checksum_errors(), 0);
        server.stop().unwrap();
    }

    #[test]
    fn segments_cross_joined_where_the_device_cuts_them() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if !can_reach_the_kernel() {
            return;
        }
        if let Err(why) = in_a_namespace(joined_to_the_kernel) {
            skip(&format!("DPDK's segments over net_tap: {why}"));
        }
    }

    /// Datagrams, whose checksums `net_tap` looks at itself, with the kernel.
    fn datagrams_with_the_kernel() {
        let builder = TWO_COMBINED
            .builder()
            .address(format!("{SERVER}/24").parse().unwrap())
            .address(format!("{SERVER_V6}/64").parse().unwrap());
        let Some(runtime) = build(builder, "net_tap7,iface=jd7".into()) else {
            return;
        };
        let ip = |arguments: &str| run("ip", arguments).unwrap();
        ip("address add 192.0.2.2/24 dev jd7");
        ip("-6 address add 2001:db8::2/64 dev jd7 nodad");
        ip("link set jd7 up");
        let server = send_back(runtime, TWO_COMBINED);
        there_and_back(SERVER.into());
        there_and_back(SERVER_V6.into());
        server.stop().unwrap();
    }

    #[test]
    fn datagrams_cross_in_both_families() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if !can_reach_the_kernel() {
            return;
        }
        if let Err(why) = in_a_namespace(datagrams_with_the_kernel) {
            skip(&format!("DPDK's datagrams over net_tap: {why}"));
        }
    }

    /// A folder that goes with the value.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A daemon has the device, and a member of its serves: in borrowed buffers, or in memory of its own.
    fn a_member_and_the_kernel(lends: u32, index: usize) {
        let interface = format!("jd{index}");
        let device = format!("net_tap{index},iface={interface}");
        let builder = Runtime::builder()
            .ignore_environment()
            .address(format!("{SERVER}/24").parse().unwrap())
            .backend(BackendChoice::Dpdk { device });
        let daemon = match Daemon::open(builder, "dpdk", lends) {
            Ok(daemon) => daemon,
            Err(error) if error.to_string().contains("not to be had") => {
                return skip(&format!("DPDK under a daemon: {error}"));
            }
            Err(error) => panic!("{error}"),
        };
        let _folder = Folder(daemon.folder());
        let ip = |arguments: &str| run("ip", arguments).unwrap();
        ip(&format!("address add 192.0.2.2/24 dev {interface}"));
        ip(&format!("link set {interface} up"));
        let builder = ONE_COMBINED.builder().packet_buffers(4_096);
        let member = builder.backend(daemon.backend()).build();
        let (server, _, _) = serve_on(member.unwrap(), 80, either);
        run("ping", &format!("-c 2 -i 0.2 -W 60 {SERVER}")).unwrap();
        let codes = format!(
            "-sS --max-time 300 --parallel --parallel-max {CONNECTIONS} -o /dev/null -w %{{http_code}}\\n http://{SERVER}/[1-500]"
        );
        let codes = run("curl", &codes).unwrap();
        assert_eq!(codes.lines().filter(|line| *line == "200").count(), 500);
        echo_from_the_kernel(Kernel::connect((SERVER, 80)).unwrap(), MEGABYTES << 20);
        server.stop().unwrap();
        let counters = daemon.ends();
        assert_eq!(counters.uncopied.get() > 0, lends > 0, "{counters}");
        assert_eq!(counters.cut_off.get(), 0);
    }

    #[test]
    fn a_daemon_serves_its_members_over_net_tap() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if !can_reach_the_kernel() {
            return;
        }
        for (lends, index) in [(0, 4), (16_384, 5)] {
            if let Err(why) = in_a_namespace(move || a_member_and_the_kernel(lends, index)) {
                return skip(&format!("DPDK under a daemon: {why}"));
            }
        }
    }

    /// A kernel's listener in a namespace, which answers one connection with its name.
    fn host_listens(space: &str, address: &'static str) -> std::thread::JoinHandle<()> {
        let file = std::fs::File::open(format!("/run/netns/{space}")).unwrap();
        let (ready, listens) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), network).unwrap();
            let listener = std::net::TcpListener::bind(address).unwrap();
            ready.send(()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"kernel").unwrap();
        });
        listens.recv_timeout(PATIENCE).unwrap();
        thread
    }

    const TWO_COMBINED: Case = Case {
        cores: 2,
        placement: janus::Placement::Combined,
    };

    /// Outside is this thread's namespace; the host, whose device we have taken, is `space`. Both the host and we are
    /// reached over the one device.
    fn beside_the_kernel(space: &str) {
        let builder = TWO_COMBINED
            .builder()
            .address("192.0.2.1/24".parse().unwrap())
            .address("2001:db8::1/64".parse().unwrap())
            .dpdk_exception("jdx8");
        let Some(runtime) = build(builder, "net_tap8,iface=jd8".into()) else {
            return;
        };
        let ip = |arguments: &str| run("ip", arguments).unwrap();
        ip("address add 192.0.2.2/24 dev jd8");
        ip("-6 address add 2001:db8::2/64 dev jd8 nodad");
        ip("link set jd8 up");
        ip(&format!("link set jdx8 netns {space}"));
        ip(&format!("-n {space} address add 192.0.2.7/24 dev jdx8"));
        ip(&format!(
            "-n {space} -6 address add 2001:db8::7/64 dev jdx8 nodad"
        ));
        ip(&format!("-n {space} link set jdx8 up"));
        let (server, _, _) = serve_at(runtime, (Ipv6Addr::UNSPECIFIED, 80).into(), either);
        for address in ["192.0.2.1", "192.0.2.7"] {
            run("ping", &format!("-c 2 -i 0.2 -W 60 {address}")).unwrap();
        }
        for address in ["2001:db8::1", "2001:db8::7"] {
            run("ping", &format!("-6 -c 2 -i 0.2 -W 60 {address}")).unwrap();
        }
        // The host's way out: its own question for a neighbour, and a connection to it and from it on the same port.
        ip(&format!(
            "netns exec {space} ping -c 2 -i 0.2 -W 60 192.0.2.2"
        ));
        let host = host_listens(space, "192.0.2.7:80");
        let mut stream = Kernel::connect("192.0.2.7:80").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "kernel");
        host.join().unwrap();
        assert_eq!(
            run("curl", "-sS --max-time 120 http://192.0.2.1/").unwrap(),
            "hello\n"
        );
        echo_from_the_kernel(Kernel::connect((SERVER, 80)).unwrap(), 1 << 20);
        server.stop().unwrap();
        let left = run("ip", &format!("-n {space} link show jdx8"));
        assert!(left.is_err(), "the interface goes with the device");
    }

    /// A DHCP server on an interface that is yet to come.
    fn dnsmasq(interface: &str) -> Result<Program, String> {
        let server = Command::new("dnsmasq")
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0"])
            .args(["--user=root", "--group=root", "--pid-file="])
            .args(["--leasefile-ro", "--no-ping", "--bind-dynamic"])
            .arg(format!("--interface={interface}"))
            .arg("--dhcp-range=192.0.2.100,192.0.2.120,255.255.255.0,2m")
            .stderr(Stdio::null())
            .spawn();
        server
            .map(Program)
            .map_err(|error| format!("dnsmasq: {error}"))
    }

    /// The same where a server outside gives us our address, which nobody knows beforehand.
    fn asking_beside_the_kernel(space: &str) {
        let server = match dnsmasq("jd6") {
            Ok(server) => server,
            Err(why) => return skip(&format!("an address asked for over DPDK: {why}")),
        };
        // As soon as it is there: who opens it waits for the server's answer.
        let outside = std::thread::spawn(|| {
            let begin = Instant::now();
            while run("ip", "address add 192.0.2.2/24 dev jd6").is_err() {
                assert!(begin.elapsed() < PATIENCE, "there is no device");
                std::thread::sleep(Duration::from_millis(20));
            }
            run("ip", "link set jd6 up").unwrap();
        });
        let builder = TWO_COMBINED
            .builder()
            .dhcp()
            .dhcp_wait(PATIENCE)
            .dpdk_exception("jdx6");
        let runtime = build(builder, "net_tap6,iface=jd6".into());
        outside.join().unwrap();
        let Some(runtime) = runtime else { return };
        let lease = runtime.handle().lease().expect("an address").address;
        assert!((100..=120).contains(&lease.octets()[3]), "{lease}");
        let ip = |arguments: &str| run("ip", arguments).unwrap();
        ip(&format!("link set jdx6 netns {space}"));
        ip(&format!("-n {space} address add 192.0.2.7/24 dev jdx6"));
        ip(&format!("-n {space} link set jdx6 up"));
        let (serving, _, _) = serve_on(runtime, 80, either);
        for address in [lease, Ipv4Addr::new(192, 0, 2, 7)] {
            run("ping", &format!("-c 2 -i 0.2 -W 60 {address}")).unwrap();
        }
        ip(&format!(
            "netns exec {space} ping -c 2 -i 0.2 -W 60 192.0.2.2"
        ));
        echo_from_the_kernel(Kernel::connect((lease, 80)).unwrap(), 1 << 20);
        serving.stop().unwrap();
        drop(server);
    }

    /// Runs `test` in a namespace of its own, with the name of another that a host is in.
    fn beside_a_host(test: fn(&str)) {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if !can_reach_the_kernel() {
            return;
        }
        let space = format!("janus-dpdk-{}", std::process::id());
        if let Err(why) = run("ip", &format!("netns add {space}")) {
            return skip(&format!("DPDK's exception path: {why}; run as root"));
        }
        let inside = space.clone();
        let alone = in_a_namespace(move || test(&inside));
        run("ip", &format!("netns del {space}")).unwrap();
        if let Err(why) = alone {
            skip(&format!("DPDK's exception path: {why}"));
        }
    }

    #[test]
    fn the_kernel_keeps_its_addresses_on_the_device() {
        beside_a_host(beside_the_kernel);
    }

    #[test]
    fn an_address_is_asked_for_beside_the_kernel() {
        beside_a_host(asking_beside_the_kernel);
    }
}
