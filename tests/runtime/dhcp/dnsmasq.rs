//! dnsmasq as the server, in a network namespace with a bridge that our TAP device is a port of; the kernel reaches the address that
//! it gave, and its log says that it got it back, or was asked for it again.

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use janus::{BackendChoice, Runtime};
use janus_io::tap::Tap;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::until;
use crate::support::program::Program;
use crate::support::*;

const BRIDGE: &str = "jbr0";
const DEVICE: &str = "jt0";

#[test]
fn dnsmasq_gives_an_address_that_the_kernel_reaches() {
    // A thread of its own: the namespace goes with it.
    let thread = std::thread::spawn(|| -> Result<(), String> {
        run("dnsmasq", &["--version"])?;
        // SAFETY: a network namespace shares no memory or descriptors with anything, and this thread opened none.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|errno| format!("no network namespace of its own ({errno}); run as root"))?;
        lease_of_dnsmasq()
    });
    let outcome = thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if let Err(why) = outcome {
        let required = std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1");
        assert!(!required, "{why}");
        // Not by `println!`: the test runner keeps what a passing test prints to itself.
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
    }
}

fn lease_of_dnsmasq() -> Result<(), String> {
    ip(&format!("link add {BRIDGE} type bridge"))?;
    ip(&format!("address add 192.0.2.1/24 dev {BRIDGE}"))?;
    ip(&format!("link set {BRIDGE} up"))?;
    ip("link set lo up")?;
    // Made beforehand, so that it is a port of the bridge when the first question leaves.
    ip(&format!("tuntap add dev {DEVICE} mode tap multi_queue"))?;
    ip(&format!("link set {DEVICE} master {BRIDGE} up"))?;
    let log = Log(std::env::temp_dir().join(format!("janus-dnsmasq-{}", std::process::id())));
    let server = Command::new("dnsmasq")
        .arg(format!("--log-facility={}", log.0.display()))
        .args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--port=0",
            "--bind-interfaces",
        ])
        .args([
            "--user=root",
            "--group=root",
            "--pid-file=",
            "--leasefile-ro",
            "--no-ping",
        ])
        .arg(format!("--interface={BRIDGE}"))
        .arg("--dhcp-range=192.0.2.100,192.0.2.120,255.255.255.0,2m")
        .args([
            "--dhcp-option=option:router,192.0.2.1",
            "--dhcp-option=option:dns-server,192.0.2.53",
        ])
        .args([
            "--dhcp-option=option:mtu,1400",
            "--dhcp-option=121,198.51.100.0/24,192.0.2.7,0.0.0.0/0,192.0.2.1",
        ])
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("dnsmasq: {error}"))?;
    let _server = Program(server);
    for case in [ONE_COMBINED, THREE_SPLIT] {
        let runtime = case
            .builder()
            .backend(BackendChoice::Custom(Box::new(Tap::new(DEVICE))))
            .dhcp()
            .build()
            .expect("an address");
        let lease = runtime.handle().lease().expect("a lease");
        println!("{case:?}: {lease}");
        let range = Ipv4Addr::new(192, 0, 2, 100)..=Ipv4Addr::new(192, 0, 2, 120);
        assert!(range.contains(&lease.address), "{lease:?}");
        assert_eq!((lease.prefix, lease.mtu), (24, Some(1400)));
        assert_eq!(lease.gateway, Some(Ipv4Addr::new(192, 0, 2, 1)));
        let route = (
            Ipv4Addr::new(198, 51, 100, 0),
            24,
            Ipv4Addr::new(192, 0, 2, 7),
        );
        assert_eq!(lease.routes, [route]);
        assert_eq!(lease.time, Some(Duration::from_secs(120)));
        let (running, _, _) = serve_on(runtime, 80, echo);
        reached(lease.address);
        // The other case may have had the same one.
        let given_back = format!("DHCPRELEASE({BRIDGE}) {} ", lease.address);
        let before = log.count(&given_back);
        running.stop().unwrap();
        until("it is given back", || log.count(&given_back) > before);
    }
    remembered(&log);
    of_a_daemon(&log);
    Ok(())
}

/// What dnsmasq says; the file goes with the value.
struct Log(PathBuf);

impl Log {
    fn count(&self, words: &str) -> usize {
        let text = std::fs::read_to_string(&self.0).expect("a log");
        text.lines().filter(|line| line.contains(words)).count()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The address of one life is asked for in the next, without a question who has one.
fn remembered(log: &Log) {
    let file = std::env::temp_dir().join(format!("janus-dnsmasq-lease-{}", std::process::id()));
    let (mut first, releases) = (None, log.count("DHCPRELEASE"));
    for life in 0..2 {
        let before = log.count("DHCPDISCOVER");
        let runtime = ONE_COMBINED
            .builder()
            .backend(BackendChoice::Custom(Box::new(Tap::new(DEVICE))))
            .dhcp()
            .dhcp_file(&file)
            .build()
            .expect("an address");
        let address = runtime.handle().lease().expect("a lease").address;
        assert_eq!(*first.get_or_insert(address), address);
        let (running, _, _) = serve_on(runtime, 80, echo);
        reached(address);
        running.stop().unwrap();
        let asked = log.count("DHCPDISCOVER") > before;
        assert_eq!(asked, life == 0, "life {life}");
    }
    assert_eq!(log.count("DHCPRELEASE"), releases);
    std::fs::remove_file(&file).unwrap();
}

/// A daemon has the address, a member is reached there, and the daemon that follows has the same one: nobody is asked who has one.
fn of_a_daemon(log: &Log) {
    let folder = std::env::temp_dir().join(format!("janus-dnsmasq-daemon-{}", std::process::id()));
    let settings = janus_daemon::Settings {
        socket: folder.join("io.sock"),
        allow: Vec::new(),
        limits: Vec::new(),
        lends: 8_192,
        patience: None,
        signals: false,
    };
    let (mut first, mut member) = (None, None);
    for life in 0..2 {
        let before = log.count("DHCPDISCOVER");
        let device = BackendChoice::Custom(Box::new(Tap::new(DEVICE)));
        let builder = Runtime::builder().ignore_environment().backend(device);
        let daemon = janus_daemon::Daemon::open(builder.dhcp(), &settings).expect("a daemon");
        let stop = daemon.stop();
        let running = std::thread::spawn(move || daemon.run());
        member.get_or_insert_with(|| {
            let socket = settings.socket.clone();
            let joins = Runtime::builder().ignore_environment().cores(1);
            let joins = joins.backend(BackendChoice::Daemon { socket });
            serve_on(joins.build().expect("an address"), 80, echo).0
        });
        let lease = std::fs::read_to_string(folder.join("io.sock.lease")).expect("a lease");
        let address = lease.split_whitespace().nth(1).expect("an address");
        assert_eq!(first.get_or_insert(address.to_owned()), address);
        reached(address.parse().expect("an address"));
        let asked = log.count("DHCPDISCOVER") > before;
        assert_eq!(asked, life == 0, "life {life}");
        if life == 1 {
            member
                .take()
                .map(Running::stop)
                .expect("it serves")
                .unwrap();
        }
        stop.stop();
        running.join().expect("no panic").expect("it is stopped");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A connection of the kernel's to the address.
fn reached(address: Ipv4Addr) {
    let begin = Instant::now();
    let stream = loop {
        match std::net::TcpStream::connect((address, 80)) {
            Ok(stream) => break stream,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{address}: {error}"),
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let said = pattern(100_000, 5);
    let heard = std::thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(&said).unwrap());
        let mut heard = vec![0; said.len()];
        std::io::Read::read_exact(&mut &stream, &mut heard).unwrap();
        heard
    });
    assert!(heard == said);
}

fn ip(command: &str) -> Result<(), String> {
    run("ip", &command.split(' ').collect::<Vec<_>>())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program} {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}
